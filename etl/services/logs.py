"""How services write their log: one line each with time, service and message, however many write to one stream.

Colour on a terminal only. Called by every verb that keeps running.
"""

from __future__ import annotations

import logging
import os
import sys
import zlib
from typing import TextIO

from etl.files import names

#: columns of the service's name.
_WIDTH = 10
_DIM, _YELLOW, _RED, _PLAIN = "\x1b[2m", "\x1b[33m", "\x1b[31m", "\x1b[0m"
#: six, because with so many the names of our services fall on different ones.
_OF_SERVICES = ("\x1b[36m", "\x1b[96m", "\x1b[35m", "\x1b[32m", "\x1b[34m", "\x1b[95m")


class Lines(logging.Formatter):
    """Writes `time service message`; each line of a longer message has its own time and service."""

    def __init__(self, name: str, *, colour: bool) -> None:
        # on a terminal the day is known, and room is short
        super().__init__(datefmt="%H:%M:%S" if colour else "%Y-%m-%d %H:%M:%S")
        self._name = name
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        """Give the lines of one record."""
        message = record.getMessage().removeprefix(f"{self._name}: ")
        if record.exc_info:
            message += "\n" + self.formatException(record.exc_info)
        head = f"{self.formatTime(record, self.datefmt)} {self._name:<{_WIDTH}} "
        tint = ""
        if self._colour:
            of_service = _OF_SERVICES[zlib.crc32(self._name.encode()) % len(_OF_SERVICES)]
            time, _, rest = head.partition(" ")
            head = f"{_DIM}{time}{_PLAIN} {of_service}{rest}{_PLAIN}"
            if record.levelno >= logging.WARNING:
                tint = _RED if record.levelno >= logging.ERROR else _YELLOW
        end = _PLAIN if tint else ""
        return "\n".join(f"{head}{tint}{_shown(line)}{end}" for line in message.splitlines() or [""])


def _shown(line: str) -> str:
    """Escape what a terminal would obey: names and what handlers print may hold anything."""
    return "\t".join(map(names.printable, line.split("\t")))


def begin(name: str, stream: TextIO | None = None) -> None:
    """Have everything this process logs written in the name of a service."""
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    colour = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    handler.setFormatter(Lines(name, colour=colour))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # its warnings are about its own threads; that events are missing is said by the dropbox
    logging.getLogger("watchdog").setLevel(logging.ERROR)
    # a browser asks for more at once than there are threads, and then waits a moment
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    # it tells every URL it asks for, and in those an operator may have written a token
    logging.getLogger("httpx").setLevel(logging.WARNING)
