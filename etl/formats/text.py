"""A stream of bytes as text, in blocks of whole lines, bounded however long a line is.

Knows newlines, encodings and byte order marks, and nothing of rows. A line ends at \\n, \\r\\n or \\r.
Used by the formats that are made of lines.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import Annotated, BinaryIO

from pydantic import AfterValidator

from etl.errors import InvalidFile
from etl.formats.format import MAX_ROW
from etl.model import Trouble

#: bytes per read; a block's rows live in memory together, and the shortest row is two bytes of text.
BLOCK = 256 << 10
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
#: what a file may start with, and the encoding that it gives away.
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def _known_encoding(name: str) -> str:
    try:
        "a".encode(name)
    except LookupError as error:
        raise ValueError(f"{name!r} is no text encoding; use for example utf-8, cp1252 or utf-16") from error
    # the mark that makes the difference is always taken off
    return codecs.lookup(name).name.replace("utf-8-sig", "utf-8")


Encoding = Annotated[str, AfterValidator(_known_encoding)]


class Text:
    """A file's text, handed out in whole lines."""

    def __init__(self, stream: BinaryIO, encoding: str) -> None:
        self._stream = stream
        self._encoding = encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()
        #: whole lines that were put back.
        self._ready = ""
        #: the beginning of a line whose end was not read yet.
        self._begun = ""
        #: newlines decoded so far; what was decoded last, because a \r\n may be cut in two.
        self._newlines = 0
        self._last = ""
        self._ended = False

    def take(self, at_least: int = 1) -> str:
        """Give the next whole lines, "" at the end, or raise InvalidFile for what is no text."""
        text = self._block()
        while len(text) < at_least and (more := self._block()):
            text += more
        return text

    def put_back(self, text: str) -> None:
        """Put unused lines back, to be taken next."""
        self._ready = text + self._ready

    def _block(self) -> str:
        if self._ready:
            end = _last_end(self._ready[:BLOCK]) or len(self._ready)
            text, self._ready = self._ready[:end], self._ready[end:]
            return text
        text, self._begun = self._begun, ""
        while not self._ended:
            text += self._decode(text)
            end = _last_end(text)
            if end and not self._ended:
                self._begun = text[end:]
                return text[:end]
            if len(text) - end > MAX_ROW:
                raise self._too_long()
        return text

    def _decode(self, before: str) -> str:
        data = self._stream.read(BLOCK)
        self._ended = not data
        if not self._last:
            self._check_mark(data)
        try:
            text = self._decoder.decode(data, final=self._ended)
        except UnicodeDecodeError as error:
            raise self._undecodable(error, before) from error
        if text and not self._last:
            self._last, text = "\ufeff", text.removeprefix("\ufeff")
        self._newlines += _newlines(text) - (self._last.endswith("\r") and text.startswith("\n"))
        self._last = text or self._last
        return text

    def _check_mark(self, data: bytes) -> None:
        meant = next((name for mark, name in _MARKS.items() if data.startswith(mark)), None)
        if meant and not self._encoding.startswith(meant) and self._encoding != "utf-32":
            raise InvalidFile(
                f"the file says it is {meant.upper()}, but is read as {self._encoding}",
                next=f"Set read: {{encoding: {meant}}} where the format has it, or have it saved as UTF-8.",
                where=[Trouble(line=1, cause=f"starts with the mark of {meant.upper()}")],
            )

    def _undecodable(self, error: UnicodeDecodeError, before: str) -> InvalidFile:
        good = before + error.object[: error.start].decode(self._encoding, "ignore")
        line = 1 + self._newlines + _newlines(good) - _newlines(before)
        column = len(good) - max(good.rfind("\n"), good.rfind("\r"))
        byte = error.object[error.start : error.start + 1].hex()
        return InvalidFile(
            f"line {line} is not {self._encoding}: byte 0x{byte} at column {column} ({error.reason})",
            next="Set read: {encoding: …} to what the sender uses (often cp1252), or ask for UTF-8.",
            where=[Trouble(line=line, cause=f"byte 0x{byte} at column {column} is not {self._encoding}")],
        )

    def _too_long(self) -> InvalidFile:
        line = 1 + self._newlines
        return InvalidFile(
            f"line {line} is longer than {MAX_ROW >> 20} MB",
            next="Check that the file has line ends and is of the configured format.",
            where=[Trouble(line=line, cause=f"longer than {MAX_ROW >> 20} MB")],
        )


class Cursor:
    """Hands lines with their ends to a reader, and knows the text that its last row was made of."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._matches = _LINE.finditer(text)
        self._start = self._end = 0
        #: lines handed out since the row began.
        self.lines = 0
        #: a reader asked for more than there was.
        self.ended = False

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        match = next(self._matches, None)
        if match is None:
            self.ended = True
            raise StopIteration
        self._end = match.end()
        self.lines += 1
        return match.group()

    def begin_row(self) -> None:
        """Forget the lines handed out so far."""
        self._start, self.lines = self._end, 0

    @property
    def row(self) -> str:
        """Give the text handed out since the row began."""
        return self._text[self._start : self._end]

    @property
    def rest(self) -> str:
        """Give the text not handed out yet."""
        return self._text[self._end :]


def _last_end(text: str) -> int:
    """Give where the last whole line ends; a \\r at the very end may be the first half of \\r\\n."""
    return max(text.rfind("\n"), text.rfind("\r", 0, -1)) + 1


def _newlines(text: str) -> int:
    return text.count("\n") + (text.count("\r") - text.count("\r\n") if "\r" in text else 0)


def split(text: str) -> list[str]:
    """Split text into its lines, without their ends."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def held_back_encoding(encoding: str) -> tuple[str, str]:
    """Give the encoding in which rows are written piece by piece, and the mark that goes before the first."""
    if encoding in ("utf-16", "utf-32"):
        # these put a mark before every piece they encode
        return f"{encoding}-le", "\ufeff"
    return encoding, ""
