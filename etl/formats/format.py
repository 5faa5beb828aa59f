"""The contract every format keeps: a stream of bytes in, bounded batches of rows out, wrong rows beside them.

Knows formats by name only and imports one when it is asked for. The options an operator writes for a format
are the format: a frozen model that can `open` a stream. Called by the transform stage.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from etl.config import reading, schema
from etl.config.wording import near_word
from etl.model import Trouble

#: characters of the longest row or line; a longer one fails its file.
MAX_ROW = 16 << 20
#: rows of the largest batch.
MAX_BATCH = 8192
#: levels a record may be nested; unit files and validators can follow this many.
MAX_DEPTH = 100

#: a format's name to the module and class in this package.
FORMATS = {
    "csv": "table:Csv",
    "tsv": "table:Tsv",
    "jsonl": "jsonl:JsonLines",
    "json": "json_array:JsonArray",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """A row that could not be read: why, and its text as it stands in the file."""

    trouble: Trouble
    raw: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Rows read together; `lines`, `rows` and `raw` run side by side."""

    #: the source line each row starts at, from 1; a json record has its number instead.
    lines: Sequence[int]
    #: values in header order for tables, one dict a row for json and jsonl.
    rows: Sequence[Sequence[str]] | Sequence[dict[str, Any]]
    #: each row's text without its last newline; None where a row has no text of its own.
    raw: Sequence[str] | None
    wrong: Sequence[Wrong] = ()

    def bounded(self) -> Iterator[Batch]:
        """Give this batch in parts of at most MAX_BATCH rows; nothing at all when it holds nothing."""
        if len(self.rows) <= MAX_BATCH:
            if self.rows or self.wrong:
                yield self
            return
        wrong = list(self.wrong)
        for start in range(0, len(self.rows), MAX_BATCH):
            part, after = slice(start, start + MAX_BATCH), self.lines[start + MAX_BATCH :]
            # wrong rows go with the part they stand in, so that batches follow the order of the file
            count = sum((one.trouble.line or 0) < after[0] for one in wrong) if after else len(wrong)
            raw = None if self.raw is None else self.raw[part]
            yield Batch(lines=self.lines[part], rows=self.rows[part], raw=raw, wrong=wrong[:count])
            del wrong[:count]


class Reading(Protocol):
    """A file being read."""

    #: the header as given, known before the first batch; None when every row carries its own keys.
    columns: tuple[str, ...] | None
    #: what goes on top of held-back rows: the header and what stands above it.
    head: str
    #: the encoding held-back rows are written in.
    encoding: str

    def batches(self) -> Iterator[Batch]:
        """Read on to the end, or raise InvalidFile when the file as a whole is wrong."""


class Format(Protocol):
    """A way to read files, with its options filled in."""

    @property
    def raw_rows(self) -> bool:
        """Say whether held-back rows are written raw in this very format, or else as JSON lines."""

    def open(self, stream: BinaryIO) -> Reading:
        """Read up to the first row, or raise InvalidFile."""


def open_format(read: schema.Read, origin: reading.Origin) -> Format:
    """Give the format an operator configured, or raise ConfigError naming the key and the near word."""
    path = ("transform", "read")
    if read.format not in FORMATS:
        near = near_word(read.format, list(FORMATS))
        hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(FORMATS)}"
        raise origin.error((*path, "format"), f"unknown format {read.format!r}; {hint}")
    module, _, name = FORMATS[read.format].partition(":")
    model = getattr(importlib.import_module(f"etl.formats.{module}"), name)
    made: Format = reading.options(model, read.options, origin, path)
    return made


def why_not_a_record(value: Any) -> str | None:
    """Say why a JSON value cannot be a record, or None when it can."""
    if type(value) is not dict:
        return f"{_KINDS.get(type(value), 'a number')}, not an object with named values"
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) is dict or type(inner) is list
        ]
        if not level:
            return None
    return f"nested deeper than {MAX_DEPTH} levels"


_KINDS = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}
