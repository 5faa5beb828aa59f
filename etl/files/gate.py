"""The gate: tells whether a file that somebody put into `working/` is complete, and never gives up on one.

Looks at a file's facts and asks the system for writers; reads no content, moves nothing, trusts no file's clock.
Called by whoever looks for work that people dropped.
"""

from __future__ import annotations

import errno
import fcntl
import math
import os
import signal
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from etl.files import names
from etl.model import Seen

#: seconds between two looks at a file that somebody has open for writing, at least.
LOOK_AGAIN = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one look at a file told."""

    settled: bool
    #: the file as it was then, for its claim to compare; None for what is no regular file.
    seen: Seen | None = None
    #: seconds until another look may tell more; None: not before something happens to the file.
    again: float | None = None
    gone: bool = False


def seen(facts: os.stat_result) -> Seen:
    """Give what identifies the state of a file."""
    return Seen(
        inode=facts.st_ino, size=facts.st_size, mtime_ns=facts.st_mtime_ns, ctime_ns=facts.st_ctime_ns
    )


class Gate:
    """Remembers since when each file has been as it is, by our own clock: a file server's may be off.

    A file is settled when it was renamed in, or its done-file is there, or it was unchanged for `settle` over two
    looks; and in every case nobody has it open for writing, where the system can tell (P2).
    """

    def __init__(
        self, settle: float, done: str | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settle = settle
        self._done = done
        self._clock = clock
        #: how a file was when it was last seen to change, and when that was.
        self._since: dict[Path, tuple[Seen, float]] = {}
        self._renamed: set[Path] = set()

    def renamed(self, path: Path) -> None:
        """Hear that a file was renamed to this name: as it is now, it is whole."""
        self._renamed.add(path)

    def made(self, path: Path) -> None:
        """Hear that a file was made under this name: it is about to be written."""
        self._renamed.discard(path)

    def forget_gone(self) -> None:
        """Forget every name that is no longer there."""
        for path in [path for path in (*self._since, *self._renamed) if not os.path.lexists(path)]:
            self._forget(path)

    def _forget(self, path: Path) -> None:
        self._since.pop(path, None)
        self._renamed.discard(path)

    def look(self, path: Path, *, drop: bool = True) -> Look:
        """Tell whether a file is complete; `drop` is off for one that came back, which needs no done-file again."""
        try:
            facts = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            self._forget(path)
            return Look(settled=False, gone=True)
        if not stat.S_ISREG(facts.st_mode):
            return Look(settled=True)  # the claim refuses it with a reason
        now = seen(facts)
        unchanged = self._unchanged(path, now)
        if drop and self._done is not None:
            told = _changed(path.with_name(names.done_name(self._done, path.name)))
            if told is None:
                return Look(settled=False)  # its done-file is not there
            if told >= now.ctime_ns:
                unchanged = math.inf
        if unchanged < self._settle:
            return Look(settled=False, again=self._settle - unchanged)
        return self._without_writer(path, now)

    def _unchanged(self, path: Path, now: Seen) -> float:
        """Give the seconds a file has been as it is; what was renamed in has been so for ever."""
        before, since = self._since.get(path, (None, 0.0))
        if path in self._renamed or before != now:
            since = -math.inf if path in self._renamed else self._clock()
            self._since[path] = (now, since)
            self._renamed.discard(path)
        return self._clock() - since

    def _without_writer(self, path: Path, now: Seen) -> Look:
        try:
            # opening asks a file server anew, which `lstat` may not do
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return Look(settled=True, seen=now)  # gone or not ours to read: the claim says so
        try:
            if seen(os.fstat(descriptor)) == now and not _has_writer(descriptor):
                return Look(settled=True, seen=now)
        finally:
            os.close(descriptor)
        # it is quiet for `settle` only from here on, however it came
        self._since[path] = (now, self._clock())
        return Look(settled=False, again=max(self._settle, LOOK_AGAIN))


def _changed(path: Path) -> int | None:
    try:
        return path.lstat().st_ctime_ns
    except OSError:
        return None


def _has_writer(descriptor: int) -> bool:
    """Tell whether anybody has the file open for writing; False where the system does not tell us."""
    if sys.platform != "linux":
        return False
    try:
        # who opens it for writing while we hold the lease sends us a signal: not SIGIO, which kills
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        # only the owner may ask (EACCES), and not every file system answers (EINVAL)
        return error.errno == errno.EAGAIN
    with suppress(OSError):
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False
