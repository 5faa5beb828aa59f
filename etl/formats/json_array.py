"""JSON: one document with an array of objects in it, at the top or at a dotted path.

Parsed as it streams; one record at a time is in memory. A document that is broken off or has no such array
is wrong as a whole. Called through `format`.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, BinaryIO, ClassVar

import ijson
import orjson

from etl.config import strict
from etl.config.wording import near_word
from etl.errors import InvalidFile
from etl.formats.format import MAX_DEPTH, Batch, Wrong, why_not_a_record
from etl.model import Trouble

#: bytes per read.
CHUNK = 64 << 10
#: bytes that may pass without a record coming to its end.
MAX_ITEM = 64 << 20


class JsonArray(strict.Strict):
    """A JSON document."""

    raw_rows: ClassVar[bool] = False

    #: the keys that lead to the array, with dots between them; "" when the document is the array.
    path: str = ""

    def open(self, stream: BinaryIO) -> _Document:
        """Begin to read; what is wrong shows with the first batch."""
        return _Document(stream, self.path)


class _Document:
    """A JSON document being read."""

    columns: tuple[str, ...] | None = None
    head = ""
    encoding = "utf-8"

    def __init__(self, stream: BinaryIO, path: str) -> None:
        self._stream = stream
        self._search = _Search(path)
        self._depth = _Depth()
        self._found = ijson.sendable_list()
        item = f"{path}.item" if path else "item"
        self._parser = ijson.items_coro(self._found, item, use_float=True)
        self._records = 0

    def batches(self) -> Iterator[Batch]:
        """Read on to the end, or raise InvalidFile."""
        since = 0
        for chunk in self._chunks():
            since = 0 if self._found else since + len(chunk)
            yield from self._batch().bounded()
            if since > MAX_ITEM:
                raise self._broken(f"no record came to its end within {MAX_ITEM >> 20} MB")
        self._search.conclude()

    def _chunks(self) -> Iterator[bytes]:
        """Parse chunk by chunk; whatever the parser dislikes is the file's fault."""
        try:
            for chunk in _without_mark(self._stream):
                if self._depth.after(chunk) > MAX_DEPTH:
                    raise self._broken(f"nested deeper than {MAX_DEPTH} levels")
                self._search.send(chunk)
                self._parser.send(chunk)
                yield chunk
            self._parser.close()
        except ijson.JSONError as error:
            raise self._broken(str(error).partition("\n")[0].removeprefix("parse error: ")) from error

    def _batch(self) -> Batch:
        lines: list[int] = []
        rows: list[dict[str, Any]] = []
        wrong: list[Wrong] = []
        for number, record in enumerate(self._found, self._records + 1):
            if cause := why_not_a_record(record):
                wrong.append(
                    Wrong(trouble=Trouble(line=number, cause=cause), raw=orjson.dumps(record).decode())
                )
            else:
                lines.append(number)
                rows.append(record)
        self._records += len(self._found)
        self._found.clear()
        return Batch(lines=lines, rows=rows, raw=None, wrong=wrong)

    def _broken(self, cause: str) -> InvalidFile:
        records = self._records + len(self._found)
        return InvalidFile(
            f"the JSON cannot be read after record {records}: {cause}",
            next="Check that the file is complete and valid JSON; one record a line is format: jsonl.",
            where=[Trouble(line=records + 1, cause=cause)],
        )


class _Search:
    """Looks for the array until it is found, so that an empty array is told from a wrong path."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._events = ijson.sendable_list()
        self._parser = ijson.parse_coro(self._events)
        self._sections: list[str] = []
        self._found = False

    def send(self, chunk: bytes) -> None:
        """Look through one more chunk, as long as there is need to."""
        if self._found:
            return
        self._parser.send(chunk)
        self._found = any(event[:2] == (self._path, "start_array") for event in self._events)
        self._sections += [prefix for prefix, name, _ in self._events if name == "start_array"][:100]
        self._events.clear()

    def conclude(self) -> None:
        """Raise InvalidFile when there was no array at the path."""
        if self._found:
            return
        place = f"at {self._path!r}" if self._path else "at the top of the document"
        near = near_word(self._path, self._sections) or next(filter(None, self._sections), "")
        raise InvalidFile(
            f"there is no array {place}",
            next=f"Set read: {{path: {near or 'keys.that.lead.there'}}} to where the records are.",
            where=[Trouble(cause=f"no array {place}")],
        )


class _Depth:
    """Counts how deep a document nests, before a parser that remembers the way down follows it there."""

    _escape = re.compile(rb"\\.", re.DOTALL)
    _other = bytes(set(range(256)) - set(b"[]{}"))
    _step = bytes.maketrans(b"[{]}", b"\2\2\0\0")

    def __init__(self) -> None:
        self._inside = self._now = 0
        self._tail = b""

    def after(self, chunk: bytes) -> int:
        """Give the deepest level up to the end of this chunk."""
        text = self._escape.sub(b"", self._tail + chunk)
        self._tail = b"\\" if text.endswith(b"\\") else b""
        # every second part stands between quotes
        parts = text.split(b'"')
        outside = b"".join(parts[self._inside :: 2])
        self._inside = (self._inside + len(parts) - 1) % 2
        steps = outside.translate(self._step, self._other)
        levels = list(accumulate((step - 1 for step in steps), initial=self._now))
        self._now = levels[-1]
        return max(levels)


def _without_mark(stream: BinaryIO) -> Iterator[bytes]:
    """Give the bytes after the UTF-8 mark, or raise InvalidFile for the mark of UTF-16."""
    first = stream.read(CHUNK)
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InvalidFile(
            "the file is UTF-16; JSON is UTF-8",
            next="Have it saved as UTF-8.",
            where=[Trouble(line=1, cause="starts with the mark of UTF-16")],
        )
    yield first.removeprefix(codecs.BOM_UTF8)
    while chunk := stream.read(CHUNK):
        yield chunk
