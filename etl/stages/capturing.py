"""Capturing: what is logged and printed while a file is worked goes into the log of its attempt as well.

Takes nothing away: all of it still goes where it went before. Our own records are left out, and so is what programs
print that a handler starts. Called on the road every job takes.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

from etl.errors import Interrupted
from etl.files.attempt_logs import END, Log
from etl.files.moves import Claim
from etl.model import Failed, Outcome, PutOff, Skipped
from etl.stages import telling

#: characters after which a line without an end is written down as it is.
LONGEST = 8192
#: whose records are not the handler's.
_OURS = ("etl", "rq")


class Captured:
    """What is captured of one attempt."""

    def __init__(self, claim: Claim) -> None:
        self.log = Log(claim.layout, claim.place, claim.name, claim.note.attempt)
        self.out = _Lines(sys.stdout, self.log, "STDOUT")
        self.err = _Lines(sys.stderr, self.log, "STDERR")

    def end(self, outcome: Outcome, seconds: float) -> None:
        """Say how the attempt ended: where it did not resolve, or where there is a log."""
        self.end_lines()
        # what is skipped was no attempt, and the next scan may skip it again
        wanted = self.log.is_written if isinstance(outcome, Skipped) else self.log.is_there
        if wanted or isinstance(outcome, Failed | PutOff):
            event, _, said = telling.told(outcome)
            told = f": {said}" if said else ""
            self.log.add(END, f"{event.replace('_', ' ')} in {seconds:.2f} s{told}")

    def end_lines(self) -> None:
        """Add what was printed and has no end of line."""
        self.out.end_line()
        self.err.end_line()

    def close(self) -> None:
        """Add nothing more; streams that a handler kept only pass on from now on."""
        self.out.detach()
        self.err.detach()
        self.log.close()


@contextmanager
def output(claim: Claim) -> Iterator[Captured]:
    """Keep what is logged and printed inside in the log of the claim's attempt."""
    captured = Captured(claim)
    out, err = cast(TextIO, captured.out), cast(TextIO, captured.err)
    try:
        with redirect_stdout(out), redirect_stderr(err), _records(captured.log, captured.err.stream):
            yield captured
    except Interrupted:
        captured.end_lines()
        if captured.log.is_written:
            captured.log.add(END, "stopped; the attempt does not count")
        raise
    finally:
        captured.close()


class _Lines:
    """A stream that passes everything on and adds whole lines to a log; once detached, it only passes on.

    A handler may keep it: a logging handler made inside has it as its stream for good.
    """

    def __init__(self, stream: TextIO, log: Log, level: str) -> None:
        self.stream = stream
        self._log: Log | None = log
        self._level = level
        self._begun = ""

    def write(self, text: str) -> int:
        """Pass text on, and add the lines it ends."""
        count = self.stream.write(text)
        if self._log is not None:
            whole, newline, self._begun = (self._begun + text).rpartition("\n")
            if newline:
                self._log.add(self._level, whole)
            if len(self._begun) > LONGEST:
                self.end_line()
        return count

    def writelines(self, lines: Any) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def end_line(self) -> None:
        """Add what was begun and has no end of line."""
        begun, self._begun = self._begun, ""
        if begun and self._log is not None:
            self._log.add(self._level, begun)

    def detach(self) -> None:
        """Add nothing more."""
        self._log = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class _Records(logging.Handler):
    """Adds the records of others' loggers to a log."""

    def __init__(self, log: Log, last_resort: TextIO | None) -> None:
        super().__init__(logging.INFO)
        self._log = log
        self._last_resort = last_resort

    def emit(self, record: logging.LogRecord) -> None:
        """Add one record, its traceback included."""
        try:
            text = self.format(record)
        except Exception:
            self.handleError(record)
            return
        if record.name.partition(".")[0] not in _OURS:
            self._log.add(record.levelname, text)
        if self._last_resort is not None and record.levelno >= logging.WARNING:
            self._last_resort.write(f"{text}\n")


@contextmanager
def _records(log: Log, stderr: TextIO) -> Iterator[None]:
    """Add the handler's records inside to a log, from INFO on."""
    root = logging.getLogger()
    # where nobody listens, Python prints warnings; with us it believes that somebody does
    alone, level = not root.handlers, root.level
    handler = _Records(log, stderr if alone else None)
    root.addHandler(handler)
    if alone and level > logging.INFO:
        root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)
        if alone:
            root.setLevel(level)
