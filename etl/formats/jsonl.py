"""JSON lines: one object a line, in UTF-8.

A line that is no JSON, or no object, is put aside with the column at which reading stopped. Called through
`format`; also reads what was held back from formats whose rows have no text of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, ClassVar

import orjson

from etl.config import strict
from etl.formats.format import Batch, Wrong, why_not_a_record
from etl.formats.text import Text, split
from etl.model import Trouble


class JsonLines(strict.Strict):
    """Newline-delimited JSON."""

    raw_rows: ClassVar[bool] = True

    def open(self, stream: BinaryIO) -> _Lines:
        """Begin to read; nothing can be wrong before the first batch."""
        return _Lines(stream)


class _Lines:
    """A JSON lines file being read."""

    columns: tuple[str, ...] | None = None
    head = ""
    encoding = "utf-8"

    def __init__(self, stream: BinaryIO) -> None:
        self._text = Text(stream, self.encoding)

    def batches(self) -> Iterator[Batch]:
        """Read on to the end, or raise InvalidFile."""
        first = 1
        while block := self._text.take():
            lines = split(block)
            yield from _batch(lines, first).bounded()
            first += len(lines)


#: as many digits as the largest number of 64 bits has at least.
_MANY_DIGITS = re.compile(r"\d{19}")


def _too_large(raw: str) -> str:
    """Say that a line holds an integer of more than 64 bits, which would come out rounded; "" for none."""
    if not _MANY_DIGITS.search(raw):
        return ""
    try:
        json.loads(raw, parse_int=_within_64_bits)
    except ValueError as error:
        return str(error)
    return ""


def _within_64_bits(digits: str) -> int:
    if not -(1 << 63) <= int(digits[:25]) < 1 << 64:
        raise ValueError(f"the integer {digits[:25]} has more than 64 bits; write it as text")
    return int(digits)


def _batch(raws: list[str], first: int) -> Batch:
    kept: list[int] = []
    rows: list[dict[str, Any]] = []
    wrong: list[Wrong] = []
    for line, raw in enumerate(raws, first):
        try:
            row = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            if raw.strip():
                cause = f"not valid JSON: {error.msg} at column {error.colno}"
                wrong.append(Wrong(trouble=Trouble(line=line, cause=cause), raw=raw))
            continue
        if cause := _too_large(raw) or why_not_a_record(row) or "":
            wrong.append(Wrong(trouble=Trouble(line=line, cause=cause), raw=raw))
        else:
            kept.append(line)
            rows.append(row)
    texts = raws if len(rows) == len(raws) else [raws[line - first] for line in kept]
    return Batch(lines=kept, rows=rows, raw=texts, wrong=wrong)
