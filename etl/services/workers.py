"""The guard of the workers: forks them, holds them to their time limits, replaces the dead.

Knows nothing of jobs but their time limits, never imports rq, starts no thread, lets no worker outlive it.
`etl run` calls `tend` in its own loop, `etl worker` calls `watch`.
"""

from __future__ import annotations

import logging
import mmap
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType

from etl import process
from etl.errors import EtlError
from etl.model import Progress
from etl.queues.queue import Report
from etl.services.respawn import Respawn

log = logging.getLogger(__name__)

#: seconds a job may go on after its own time limit has told it to stop.
OVERRUN = 10.0
#: seconds given to jobs in hand when the guard is asked to stop.
GRACE = 60.0
_LOOK_EVERY = 0.05
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """A worker that ended though nobody asked it to."""

    pid: int
    why: str
    #: what it was doing; "" when it was waiting.
    job: str


class Slate:
    """What a worker writes and its guard reads, in memory both share: the job in hand, its deadline, its progress."""

    #: bytes of the deadline and of the three counts of progress.
    _DEADLINE, _NUMBERS = 8, 32

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._deadline = memoryview(self._memory)[: self._DEADLINE].cast("d")
        self._counts = memoryview(self._memory)[self._DEADLINE : self._NUMBERS].cast("q")
        self._guard = os.getpid()

    def started(self, job: str, timeout: int) -> None:
        """Note the job, then by when it must be over."""
        if os.getppid() != self._guard:
            # where the kernel does not end us together with our guard, we begin nothing without it
            os._exit(1)
        self._memory[self._NUMBERS :] = job.encode()[:500].ljust(mmap.PAGESIZE - self._NUMBERS, b"\0")
        self._deadline[0] = time.monotonic() + timeout

    def ended(self) -> None:
        """Wipe the deadline."""
        self._deadline[0] = 0.0

    def progressed(self, progress: Progress) -> None:
        """Add to what this worker has done since it was first forked."""
        for index, done in enumerate((progress.rows, progress.units, progress.held_back)):
            self._counts[index] += done

    @property
    def progress(self) -> Progress:
        """Give what was done so far."""
        rows, units, held_back = self._counts
        return Progress(rows=rows, units=units, held_back=held_back)

    @property
    def job(self) -> str:
        """Say what is in hand, or ""."""
        return (
            self._memory[self._NUMBERS :].rstrip(b"\0").decode(errors="replace") if self._deadline[0] else ""
        )

    def overrun(self) -> float:
        """Give the seconds the job in hand is over its limit; 0 or less when all is well."""
        return time.monotonic() - self._deadline[0] if self._deadline[0] else 0.0


class Horse:
    """One worker's place in the crew: the process that fills it now, and when it may be filled again."""

    def __init__(self) -> None:
        self.slate = Slate()
        self.pid = 0
        self._respawn = Respawn()

    def fork(self, start: Callable[[Report], None]) -> None:
        """Fork a process that calls `start`, unless its predecessors keep ending at once."""
        if not self._respawn.due:
            return
        self._respawn.started()
        self.slate.ended()
        guard = os.getpid()
        # a stop signal must not meet our guard's handlers in the child
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
        try:
            self.pid = os.fork()
            if self.pid == 0:
                _live(start, self.slate, guard)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)

    def reap(self) -> Death | None:
        """Bury the process if it has ended, and end what it left behind; None while it lives."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            return None
        self.kill()
        code = os.waitstatus_to_exitcode(status)
        why = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        death = Death(pid=pid, why=why, job=self.slate.job)
        self._respawn.ended(killed=code == -signal.SIGKILL)
        self.pid = 0
        return death

    def kill(self) -> None:
        """End the process and everything it started, whatever their code catches."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


def _live(start: Callable[[Report], None], slate: Slate, guard: int) -> None:
    """Be the worker; never return into the guard's code."""
    code = 1
    try:
        os.setsid()
        process.die_with_parent(guard)
        for number in (*_STOP_SIGNALS, signal.SIGALRM, signal.SIGCHLD, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        start(slate)
        code = 0
    except EtlError as error:  # it says all there is to say; the guard starts another
        log.warning("worker %d ended: %s", os.getpid(), error)
    except BaseException:
        log.exception("worker %d ended", os.getpid())
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


class Crew:
    """N workers and the one who tends them. Start it before the calling process has any thread."""

    def __init__(self, start: Callable[[Report], None], count: int, *, overrun: float = OVERRUN) -> None:
        self._start = start
        self._overrun = overrun
        self._horses = [Horse() for _ in range(count)]
        self._asked_to_stop = 0

    @property
    def pids(self) -> list[int]:
        """Give the process ids of the workers there are."""
        return [horse.pid for horse in self._horses if horse.pid]

    @property
    def progress(self) -> Progress:
        """Give what all workers have done so far."""
        each = [horse.slate.progress for horse in self._horses]
        return Progress(
            rows=sum(one.rows for one in each),
            units=sum(one.units for one in each),
            held_back=sum(one.held_back for one in each),
        )

    def start(self) -> None:
        """Fork the workers that are not there yet."""
        for horse in self._horses:
            if not horse.pid:
                horse.fork(self._start)

    def tend(self) -> list[Death]:
        """End who overran, replace who died, and tell of each; call it several times a second."""
        deaths = []
        self._end_overrun()
        for horse in self._horses:
            if horse.pid and (death := horse.reap()):
                log.warning("worker %d %s%s", death.pid, death.why, f" at {death.job}" if death.job else "")
                deaths.append(death)
            if not horse.pid:
                horse.fork(self._start)
        return deaths

    def _end_overrun(self) -> None:
        for horse in self._horses:
            if horse.pid and horse.slate.overrun() > self._overrun:
                log.error("%s is over its time limit: worker %d is ended", horse.slate.job, horse.pid)
                horse.kill()

    def stop(self, grace: float = GRACE) -> None:
        """Let the workers finish the job in hand for `grace` seconds, then end and bury them all."""
        for pid in self.pids:
            os.kill(pid, signal.SIGTERM)
        until = time.monotonic() + grace
        while self._bury() and time.monotonic() < until and self._asked_to_stop < 2:
            time.sleep(_LOOK_EVERY)
        for horse in self._horses:
            if horse.pid:
                horse.kill()
        while self._bury():
            time.sleep(_LOOK_EVERY)

    def _bury(self) -> int:
        """Bury the workers that have ended and count those that have not."""
        for horse in self._horses:
            if horse.pid:
                horse.reap()
        return len(self.pids)

    def drain(self) -> None:
        """Wait until every worker has ended by itself; nobody is replaced."""
        while self._bury():
            self._end_overrun()
            time.sleep(_LOOK_EVERY)

    def watch(self, also: Callable[[], None] = lambda: None, grace: float = GRACE) -> None:
        """Start the crew and tend it until SIGTERM or SIGINT, then stop it; a second signal stops at once.

        `also` is called in every turn.
        """
        before = {number: signal.signal(number, self._ask_to_stop) for number in _STOP_SIGNALS}
        try:
            self.start()
            while not self._asked_to_stop:
                self.tend()
                also()
                time.sleep(_LOOK_EVERY)
        finally:
            self.stop(grace)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _ask_to_stop(self, number: int, frame: FrameType | None) -> None:
        self._asked_to_stop += 1
