"""The guard of the workers: forks a groom for each, replaces the dead, and tells what each had in hand.

Knows nothing of jobs, never imports rq, starts no thread, lets no worker outlive it: the time limits and the end
of everything a worker started are its groom's. `etl run` calls `tend` in its own loop, `etl worker` gives turns.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from etl import process
from etl.model import Place, Progress
from etl.queues.queue import Report
from etl.services import groom, service
from etl.services.respawn import Respawn
from etl.services.slate import Slate

log = logging.getLogger(__name__)

#: seconds a job may go on after its own time limit has told it to stop; one more, and nothing of it exists (P14).
OVERRUN = 9.0
#: seconds given to jobs in hand when the guard is asked to stop.
GRACE = 60.0
#: seconds a groom may take to end what its worker started.
_END_WITHIN = 10.0
#: seconds between two looks at the workers.
LOOK_EVERY = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """A worker that ended though its queues were not empty, or that had to be ended."""

    pid: int
    why: str
    #: what it was doing; "" when it was waiting.
    job: str
    #: place and name of the file it had claimed.
    file: tuple[Place, str] | None = None
    #: it was ended because its time limit had passed; because we had to stop.
    overran: bool = False
    stopped: bool = False


def _no_mourning(death: Death) -> None:
    """Leave what it had in hand to the next scan."""


def _untold(place: Place, name: str, overran: bool) -> None:
    """Leave no word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a crew is kept. Times in seconds."""

    overrun: float = OVERRUN
    grace: float = GRACE
    #: told of every death once nothing of that worker is left: the file it had can be brought back.
    mourn: Callable[[Death], None] = _no_mourning
    #: told by a groom, in its own process, right before it ends a worker: place and name of the file in hand, and
    #: whether it overran or must stop.
    foretell: Callable[[Place, str, bool], None] = _untold
    #: processes that may outlive a worker though it started them.
    kept: Callable[[], Collection[int]] = frozenset
    #: whether this process adopts what a worker leaves whose groom was killed. Only for one that is a guard and
    #: nothing else: it ends every child then that it did not have before.
    adopts: bool = False


class Horse:
    """One worker's place in the crew: the groom that fills it now, and when it may be filled again."""

    def __init__(self, start: Callable[[Report], None], terms: Terms) -> None:
        self.slate = Slate()
        self.groom = 0
        self._duty = groom.Duty(
            start=start,
            slate=self.slate,
            overrun=terms.overrun,
            kept=terms.kept,
            foretell=terms.foretell,
        )
        self._respawn = Respawn()
        self._told_to_end = False

    def fork(self) -> None:
        """Have a groom fork a worker, unless its predecessors keep ending at once."""
        if not self._respawn.due:
            return
        self._respawn.started()
        self.slate.wipe()
        self._told_to_end = False
        guard = os.getpid()
        ears, ready = os.pipe()
        # a signal must not meet our guard's handlers in the child
        before = signal.pthread_sigmask(signal.SIG_BLOCK, groom.HELD_OFF)
        try:
            self.groom = os.fork()
            if self.groom == 0:
                os.close(ears)
                groom.live(self._duty, guard, ready)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(ready)
        os.read(ears, 1)  # a byte, or nothing if it is dead already
        os.close(ears)

    def reap(self) -> Death | None:
        """Bury the groom if it has ended, and with it the worker; None while it lives."""
        pid, status = os.waitpid(self.groom, os.WNOHANG)
        if pid == 0:
            return None
        self.groom = 0
        if self.slate.status is None:  # the groom itself was killed: the kernel ends its worker
            _wait_for_end(self.slate.pid)
        else:
            status = self.slate.status
        code = os.waitstatus_to_exitcode(status)
        self._respawn.ended(killed=code == -signal.SIGKILL)
        return Death(
            pid=self.slate.pid,
            why=f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}",
            job=self.slate.job,
            file=self.slate.file,
            overran=self.slate.has_overrun,
            stopped=self._told_to_end,
        )

    def finish(self) -> None:
        """Ask the worker to end after the job in hand."""
        if self.groom:
            os.kill(self.groom, groom.FINISH)

    def end(self) -> None:
        """Have the worker and everything it started ended now."""
        if self.groom:
            self._told_to_end = True
            os.kill(self.groom, groom.END)

    def kill(self) -> None:
        """End a groom that does not come to an end."""
        if self.groom:
            os.kill(self.groom, signal.SIGKILL)


def _wait_for_end(pid: int, within: float = 2.0) -> None:
    """Wait until a worker whose groom was killed is gone, so that what it had locked is free."""
    until = time.monotonic() + within
    while pid and process.lives(pid) and time.monotonic() < until:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        time.sleep(LOOK_EVERY / 10)


class Crew:
    """N workers and the one who tends them: a service. Start it before the calling process has any thread."""

    name = "workers"

    def __init__(self, start: Callable[[Report], None], count: int, terms: Terms = Terms()) -> None:
        self._terms = terms
        if terms.adopts:
            process.adopt_orphans()
        self._others = process.children(os.getpid()) if terms.adopts else set()
        self._horses = [Horse(start, terms) for _ in range(count)]
        #: places of workers that died at a job while the queues are drained.
        self._owed: set[Horse] = set()

    @property
    def pids(self) -> list[int]:
        """Give the process ids of the workers there are."""
        return [horse.slate.pid for horse in self._horses if horse.groom]

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
            if not horse.groom:
                horse.fork()

    def tend(self) -> list[Death]:
        """Replace who died, and tell of each; call it several times a second."""
        deaths = self._bury()
        self.start()
        return deaths

    def drain(self) -> bool:
        """Bury who ended and replace only who died at a job; tell whether there is anybody left to wait for."""
        for horse in self._horses:
            if horse.groom and (death := self._reap(horse)) and death.job:
                self._owed.add(horse)
            if horse in self._owed:
                horse.fork()
            if horse.groom:
                self._owed.discard(horse)
        return bool(self._owed) or any(horse.groom for horse in self._horses)

    def turn(self) -> float:
        """Tend the workers."""
        self.tend()
        return LOOK_EVERY

    def close(self) -> None:
        """Stop."""
        self.stop(self._terms.grace)

    def stop(self, grace: float = GRACE) -> None:
        """Let the workers finish the job in hand for `grace` seconds or until a signal, then end and bury them all."""
        with _impatience() as asked:
            for horse in self._horses:
                horse.finish()
            self._wait(lambda: asked() or service.asked() > 1, grace)
            for horse in self._horses:
                horse.end()
            self._wait(lambda: False, _END_WITHIN)
            for horse in self._horses:
                horse.kill()
            self._wait(lambda: False, _END_WITHIN)

    def _wait(self, enough: Callable[[], bool], within: float) -> None:
        """Wait until all have ended."""
        until = time.monotonic() + within
        self._bury()
        while any(horse.groom for horse in self._horses) and time.monotonic() < until and not enough():
            time.sleep(LOOK_EVERY / 5)
            self._bury()

    def _bury(self) -> list[Death]:
        """Bury the workers that have ended."""
        return [death for horse in self._horses if horse.groom and (death := self._reap(horse))]

    def _reap(self, horse: Horse) -> Death | None:
        """Bury one worker if it has ended, and have what it held brought back."""
        if death := horse.reap():
            level, at = (logging.WARNING, f" at {death.job}") if death.job else (logging.DEBUG, "")
            log.log(level, "worker %d %s%s", death.pid, death.why, at, extra={"event": "worker_ended"})
            if horse.slate.status is None:
                self._end_orphans()
            self._terms.mourn(death)
        return death

    def _end_orphans(self) -> None:
        """End what was left by a worker whose groom was killed."""
        if self._terms.adopts:
            grooms = [horse.groom for horse in self._horses if horse.groom]
            process.end_strays(keep={*grooms, *self._others, *self._terms.kept()})


@contextmanager
def _impatience() -> Iterator[Callable[[], bool]]:
    """Tell inside whether a stop signal came; none of them does anything else there."""
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.signal(number, note) for number in service.STOP_SIGNALS}
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
