"""The groom of one worker: forks it, holds it to its time limit, and ends all it started when it ends or must.

A process that does nothing else, so that a guard busy with folders delays no deadline (P14) and a guard that is
killed leaves nothing behind (P23). Adopts what the worker leaves; moves no file. Forked by the guard in `workers`.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

from etl import process
from etl.errors import EtlError
from etl.model import Place
from etl.queues.queue import Report
from etl.services.slate import Slate

log = logging.getLogger(__name__)

#: ask a groom to have the worker finish its job and end; to end it at once, and all it started.
FINISH, END = signal.SIGTERM, signal.SIGUSR1
#: what may not strike a process between its fork and the first line it runs.
HELD_OFF = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD)
#: seconds between two looks at the deadline.
_LOOK_EVERY = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty:
    """What a groom has to do: whom to look after, and how."""

    #: what the worker does.
    start: Callable[[Report], None]
    slate: Slate
    #: seconds a job may go on after its own time limit has told it to stop.
    overrun: float
    #: processes that may outlive the worker though it started them: the embedded server.
    kept: Callable[[], Collection[int]]
    #: told right before a worker is ended with a file in hand: place, name, and whether it overran or must stop.
    foretell: Callable[[Place, str, bool], None]


def live(duty: Duty, guard: int, ready: int) -> NoReturn:
    """Be the groom; never return into the guard's code. `ready` is written to once there is a worker."""
    try:
        os.setsid()
        _Groom(duty, guard).look_after(ready)
    except BaseException:
        log.exception("the groom %d of a worker ended", os.getpid())
    finally:
        os._exit(0)


class _Groom:
    """One worker's groom. Signals only wake it; what to do is decided in one place."""

    def __init__(self, duty: Duty, guard: int) -> None:
        self._duty = duty
        self._guard = guard
        self._finish = self._end = self._told = False
        self._ears, mouth = os.pipe()
        os.set_blocking(mouth, False)
        os.set_blocking(self._ears, False)
        signal.set_wakeup_fd(mouth, warn_on_full_buffer=False)
        for number in HELD_OFF:
            signal.signal(number, self._hear)
        process.die_with_parent(guard, END)
        self._adopts = process.adopt_orphans()
        duty.slate.groom = os.getpid()
        self._pid = 0

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self._end |= number == END
        self._finish |= number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

    def look_after(self, ready: int) -> None:
        """Fork the worker and stay until nothing of it is left."""
        self._pid = os.fork()
        if self._pid == 0:
            os.close(ready)
            _work(self._duty)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_OFF)
        self._duty.slate.born(self._pid)
        os.write(ready, b"!")
        os.close(ready)
        self._duty.slate.died(self._wait())
        if not self._adopts:  # its process group is all that can be found then
            self._kill_group()
        if not process.end_strays(keep=self._duty.kept()):
            log.error("something that worker %d started does not end", self._pid)

    def _wait(self) -> int:
        """Give the wait status of the worker, once it has ended or was made to."""
        while True:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                return status
            self._act()
            if select.select([self._ears], [], [], _LOOK_EVERY)[0]:
                os.read(self._ears, 4096)

    def _act(self) -> None:
        """End the worker if it must end, pass on that it should."""
        slate = self._duty.slate
        if slate.overrun() > self._duty.overrun:
            log.error("%s is over its time limit: worker %d is ended", slate.job, self._pid)
            slate.overran()
            self._foretell(overran=True)
            self._kill()
        # where the kernel does not tell us that the guard is dead, we look; no file is to blame for that (P7)
        elif self._end or os.getppid() != self._guard:
            self._foretell(overran=False)
            self._kill()
        elif self._finish:
            self._finish = False
            os.kill(self._pid, signal.SIGTERM)

    def _foretell(self, *, overran: bool) -> None:
        """Leave word, once, for whoever finds the file of this worker: it did not simply die."""
        file, self._told = (None if self._told else self._duty.slate.file), True
        if file is None:
            return
        try:
            self._duty.foretell(*file, overran)
        except (EtlError, OSError) as error:
            log.warning("the end of worker %d will look like a death: %s", self._pid, error)

    def _kill(self) -> None:
        """End the worker and everything it started, whatever their code catches."""
        started = process.descendants(self._pid) - set(self._duty.kept())
        self._kill_group()
        for pid in (self._pid, *started):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)


def _work(duty: Duty) -> NoReturn:
    """Be the worker; never return into the groom's code."""
    code = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (*HELD_OFF, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        process.die_with_parent(duty.slate.groom)
        process.adopt_orphans()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_OFF)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        duty.start(duty.slate)
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
