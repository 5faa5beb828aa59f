"""csv and tsv: a header, then one row a line, with quoted newlines where there are any.

A block of lines is parsed at once; only a block in which a row spans lines, or something is wrong, is gone
through row by row. Ragged and wrongly quoted rows are put aside, never repaired. Called through `format`.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, BinaryIO, ClassVar, cast

from pydantic import Field, model_validator

from etl.config import strict
from etl.errors import InvalidFile
from etl.formats.format import MAX_ROW, Batch, Wrong
from etl.formats.text import Cursor, Encoding, Text, held_back_encoding, split
from etl.model import Trouble

# the limit is the process's, and on fields; ours is on rows, and must be the first to be met
csv.field_size_limit(4 * MAX_ROW)

_Character = Annotated[str, Field(min_length=1, max_length=1)]


class Csv(strict.Strict):
    """Comma-separated values and their cousins."""

    raw_rows: ClassVar[bool] = True

    delimiter: _Character = ","
    #: null when quotes mean nothing.
    quote: _Character | None = '"'
    encoding: Encoding = "utf-8"
    #: the line the header is on.
    header: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _characters_differ(self) -> Csv:
        if self.delimiter == self.quote or "\n" in self._characters or "\r" in self._characters:
            raise ValueError("delimiter and quote must be two different characters, neither a newline")
        return self

    @property
    def _characters(self) -> str:
        return self.delimiter + (self.quote or "")

    @property
    def dialect(self) -> dict[str, Any]:
        """Give the options in `csv`'s words."""
        quoting = csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE
        return {"delimiter": self.delimiter, "quotechar": self.quote, "quoting": quoting, "strict": True}

    def open(self, stream: BinaryIO) -> _Table:
        """Read the header, or raise InvalidFile when there is no usable one."""
        return _Table(self, stream)


class Tsv(Csv):
    """Tab-separated values."""

    delimiter: _Character = "\t"


class _Table:
    """A table being read."""

    def __init__(self, options: Csv, stream: BinaryIO) -> None:
        self._text = Text(stream, options.encoding)
        self._dialect = options.dialect
        #: the line the next row starts at.
        self._line = 1
        self.encoding, mark = held_back_encoding(options.encoding)
        self.columns, head = self._read_header(options.header)
        self.head = mark + head
        self._width = len(self.columns)

    def batches(self) -> Iterator[Batch]:
        """Read on to the end, or raise InvalidFile."""
        while block := self._text.take():
            raw = split(block)
            rows = self._at_once(block, raw)
            if rows is None:
                batch = self._row_by_row(block)
            else:
                batch = Batch(lines=range(self._line, self._line + len(raw)), rows=rows, raw=raw)
                self._line += len(raw)
            yield from self._sifted(batch).bounded()

    def _at_once(self, block: str, lines: Sequence[str]) -> list[list[str]] | None:
        """Parse a block in which each line is one row; give None when it must be gone through."""
        if "\0" in block:
            return None
        try:
            rows = list(csv.reader(lines, **self._dialect))
        except csv.Error:
            return None
        return rows if len(rows) == len(lines) else None

    def _row_by_row(self, block: str) -> Batch:
        lines: list[int] = []
        rows: list[list[str]] = []
        raws: list[str] = []
        wrong: list[Wrong] = []
        cursor = Cursor(block)
        reader = csv.reader(cursor, **self._dialect)
        while not cursor.ended:
            cursor.begin_row()
            row, cause = _next_row(reader)
            if cause and cursor.ended:
                row, cause, cursor = self._row_beyond(cursor.row)
            raw = _without_end(cursor.row)
            if cause or "\0" in raw:
                wrong.append(Wrong(trouble=Trouble(line=self._line, cause=cause or _nul(raw)), raw=raw))
            elif row:
                lines.append(self._line)
                rows.append(row)
                raws.append(raw)
            self._line += cursor.lines
        return Batch(lines=lines, rows=rows, raw=raws, wrong=wrong)

    def _row_beyond(self, begun: str) -> tuple[list[str], str, Cursor]:
        """Read the row that has begun on into the next blocks, or raise InvalidFile when it does not end."""
        # reading twice as far each time keeps the work in proportion to the row
        while len(begun) <= MAX_ROW and (more := self._text.take(min(len(begun), MAX_ROW - len(begun) + 1))):
            begun += more
            cursor = Cursor(begun)
            row, cause = _next_row(csv.reader(cursor, **self._dialect))
            if not cursor.ended:
                self._text.put_back(cursor.rest)
                cursor.ended = True
                return row, cause, cursor
        reach = f"the next {MAX_ROW >> 20} MB" if len(begun) > MAX_ROW else "the end of the file"
        raise InvalidFile(
            f"the quote opened in the row at line {self._line} is not closed by {reach}",
            next="Close or double the quote there; if quotes mean nothing here, set read: {quote: null}.",
            where=[Trouble(line=self._line, cause="a quote is opened here and never closed")],
        )

    def _sifted(self, batch: Batch) -> Batch:
        """Put ragged rows aside and drop empty lines; a batch without any is handed on as it is."""
        if set(map(len, batch.rows)) <= {self._width}:
            return batch
        assert batch.raw is not None
        rows = cast("Sequence[Sequence[str]]", batch.rows)
        good, wrong = [], list(batch.wrong)
        for line, row, raw in zip(batch.lines, rows, batch.raw, strict=True):
            if len(row) == self._width:
                good.append((line, row, raw))
            elif row:
                cause = f"{_values(len(row))}, the header has {self._width}"
                wrong.append(Wrong(trouble=Trouble(line=line, cause=cause), raw=raw))
        wrong.sort(key=lambda one: one.trouble.line or 0)
        return Batch(
            lines=[line for line, _, _ in good],
            rows=[row for _, row, _ in good],
            raw=[raw for _, _, raw in good],
            wrong=wrong,
        )

    def _read_header(self, number: int) -> tuple[tuple[str, ...], str]:
        """Give the columns and all text down to them; the rows stay for `batches`."""
        block = ""
        while True:
            more = self._text.take(len(block))
            block += more
            cursor = Cursor(block)
            for _ in itertools.islice(cursor, number - 1):
                pass
            row, cause = _next_row(csv.reader(_without_blank(cursor), **self._dialect))
            if not cursor.ended or not more or len(block) > MAX_ROW:
                break
        if cause or not row:
            raise _no_header(number, cause)
        _check_names(row, number)
        self._line += cursor.lines
        self._text.put_back(cursor.rest)
        return tuple(row), _without_end(cursor.row) + "\n"


def _next_row(reader: Iterator[list[str]]) -> tuple[list[str], str]:
    """Give the next row, none at the end, or why it cannot be told what the row is."""
    try:
        return next(reader, []), ""
    except csv.Error as error:
        return [], f"the quotes are not right: {error}"


def _without_blank(lines: Iterator[str]) -> Iterator[str]:
    """Skip empty lines in front of the header."""
    return itertools.dropwhile(lambda line: not line.strip("\r\n"), lines)


def _without_end(raw: str) -> str:
    return raw.removesuffix("\n").removesuffix("\r")


def _nul(raw: str) -> str:
    return f"a NUL character at column {raw.index(chr(0)) + 1}"


def _values(count: int) -> str:
    return f"{count} value" if count == 1 else f"{count} values"


def _no_header(number: int, cause: str) -> InvalidFile:
    cause = cause or "there is none"
    return InvalidFile(
        f"no header at line {number}: {cause}",
        next="The first line must name the columns; set read: {header: N} when it is a later one.",
        where=[Trouble(line=number, cause=cause)],
    )


def _check_names(names: Sequence[str], line: int) -> None:
    """Accept a header's names, or raise InvalidFile naming every one that cannot stand."""
    causes = []
    for position, name in enumerate(names, 1):
        if not name.strip():
            causes.append(f"column {position} has no name")
        elif "\0" in name:
            causes.append(f"column {position} has a NUL character in its name")
        elif name in names[: position - 1]:
            causes.append(f"column {position} is called {name[:80]!r}, as column {names.index(name) + 1} is")
    if causes:
        raise InvalidFile(
            f"the header at line {line} cannot be used: {'; '.join(causes[:5])}",
            next="Give every column one name of its own, or check delimiter and header under read.",
            where=[Trouble(line=line, cause=cause) for cause in causes[:100]],
        )
