"""Attempt logs: what was logged and printed while a file was worked, `.logs/<file>.log` beside its status folders.

One line per record: time, attempt, level, text. For people alone: nothing is decided by it, and a log that cannot be
written is given up, never the job. Written by `capturing`, read by `etl show --log`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from etl import disk, points
from etl.files import names
from etl.files.layout import Layout
from etl.model import Place
from etl.points import Point

#: bytes of one log, over all attempts.
MOST = 1_000_000
#: bytes of that which are kept for the line that says so.
_LAST_LINE = 200
#: the level of the line that says how an attempt ended.
END = "END"
_FULL = "the log is full at 1 MB; what came after is in the worker's log alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a log."""

    #: ISO, UTC, so that its text sorts as time does.
    at: str
    attempt: str
    level: str
    text: str


class Log:
    """The log of one attempt; not there before something is added."""

    __slots__ = ("_attempt", "_descriptor", "_given_up", "_path", "_size")

    def __init__(self, layout: Layout, place: Place, name: str, attempt: int) -> None:
        self._path = layout.log(place, name)
        self._attempt = attempt
        self._descriptor = -1
        self._size = 0
        self._given_up = False

    @property
    def is_there(self) -> bool:
        """Tell whether anything was ever logged for this file, by this attempt or an earlier one."""
        return self._descriptor >= 0 or os.path.lexists(self._path)

    @property
    def is_written(self) -> bool:
        """Tell whether this attempt logged anything."""
        return self._descriptor >= 0

    def add(self, level: str, text: str) -> None:
        """Add text, a line of the log for each of its lines; never fails."""
        for line in text.splitlines() or [""]:
            if self._given_up:
                return
            try:
                self._add(level, line)
            except OSError:  # no room, no right, a name too long: it goes without a log
                self._given_up = True

    def close(self) -> None:
        """Write nothing more; doing it twice is fine."""
        self._given_up = True
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _add(self, level: str, text: str) -> None:
        if self._descriptor < 0:
            self._open()
        if self._given_up:
            return
        line = self._line(level, text)
        if self._size + len(line) > MOST - _LAST_LINE:
            self._given_up, line = True, self._line("WARNING", _FULL)
        with points.effect(Point.LOG):
            self._size += os.write(self._descriptor, line)

    def _line(self, level: str, text: str) -> bytes:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        shown = names.printable(text.expandtabs())
        return f"{now} {self._attempt} {level} {shown}\n".encode()

    def _open(self) -> None:
        disk.make_folder(self._path.parent)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        self._descriptor = os.open(self._path, flags, 0o664)
        self._size = os.fstat(self._descriptor).st_size
        end = f"{_FULL}\n".encode()
        # an earlier attempt said so already
        if os.pread(self._descriptor, len(end), max(0, self._size - len(end))) == end:
            self._given_up = True


def read(layout: Layout, place: Place, name: str, start: int = 0) -> tuple[list[Line], int]:
    """Give the whole lines of a file's log from an offset on, and the offset behind them; none without a log."""
    try:
        descriptor = disk.open_regular(layout.log(place, name))
    except OSError:
        return [], start
    try:
        found = os.pread(descriptor, 2 * MOST, start)
    finally:
        os.close(descriptor)
    whole = found[: found.rfind(b"\n") + 1]
    return list(_lines(whole)), start + len(whole)


def _lines(found: bytes) -> Iterator[Line]:
    for line in found.decode(errors="replace").split("\n")[:-1]:
        at, attempt, level, text = (*line.split(" ", 3), "", "", "", "")[:4]
        yield Line(at=at, attempt=attempt, level=level, text=text)
