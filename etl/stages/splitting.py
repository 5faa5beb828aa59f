"""Rows become units: batch by batch, through columns, handler and schema; what is wrong is held back.

Streams: memory holds one batch. Tables without a handler go column by column, everything else row by row.
Called by transform.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from etl.config.schema import Transform
from etl.errors import Interrupted, TimeUp
from etl.formats import units
from etl.formats.format import Batch, Reading
from etl.model import Progress, Trouble
from etl.stages import columns, handlers
from etl.stages.publishing import HeldBack, UnitFiles
from etl.stages.schema import UnitSchema, UnitTroubles
from etl.stages.watching import Watch

Record = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Splitter:
    """Everything one file's rows pass through."""

    spec: Transform
    schema: UnitSchema
    handler: handlers.Handler | None
    file: handlers.File
    out: UnitFiles
    held: HeldBack
    watch: Watch
    #: of a file that was itself held back: the source line of each of its rows.
    original_lines: tuple[int, ...] = ()
    redact: frozenset[str] = frozenset()
    #: of a table: its columns, and how they differ from those of the delivery before.
    header: tuple[str, ...] = ()
    drift: str = ""
    rows: int = 0
    #: what is wrong in the batch in hand: trouble, source line, row as it came.
    bad: list[tuple[Trouble, int, str | Record]] = field(default_factory=list)

    def run(self, reading: Reading, progress: Callable[[Progress], None]) -> None:
        """Read to the end, or raise `InvalidFile` when the file as a whole is wrong."""
        work = self._records if reading.columns is None else self._table(reading.columns)
        for batch in reading.batches():
            self.watch.batch(len(batch.rows) + len(batch.wrong))
            lines = self._source_lines(batch)
            held = self.held.count
            for wrong in batch.wrong:
                line = lines[wrong.trouble.line or 0]
                self.bad.append((_at(wrong.trouble, line), line, wrong.raw))
            work(batch, lines)
            self._hold_back()
            read = len(batch.rows) + len(batch.wrong)
            self.rows += read
            progress(Progress(rows=read, held_back=self.held.count - held))

    def _hold_back(self) -> None:
        """Keep out what is wrong in this batch, in the order of the file whoever found it."""
        for trouble, line, raw in sorted(self.bad, key=itemgetter(1)):
            self.held.add(trouble, line, raw)
        self.bad.clear()

    def _source_lines(self, batch: Batch) -> dict[int, int] | _Same:
        """Give the line in the source file for each line of this one: lineage tells where a row first stood."""
        if not self.original_lines:
            return _SAME
        here = sorted([*batch.lines, *(wrong.trouble.line or 0 for wrong in batch.wrong)])
        known = self.original_lines[self.rows : self.rows + len(here)]
        return dict(zip(here, (*known, *here[len(known) :]), strict=True))

    def _table(self, header: tuple[str, ...]) -> Callable[[Batch, dict[int, int] | _Same], None]:
        plan = columns.of_header(header, self.spec)

        def as_table(batch: Batch, lines: dict[int, int] | _Same) -> None:
            rows: Sequence[Sequence[str]] = batch.rows  # type: ignore[assignment]
            told = batch.lines if lines is _SAME else [lines[line] for line in batch.lines]
            good, bad = self.schema.table(plan.fields, told, plan.pick(rows))
            for index, trouble in bad:
                self.bad.append((trouble, told[index], _raw(batch, index)))
            self.out.write(plan.fields, good)

        def as_records(batch: Batch, lines: dict[int, int] | _Same) -> None:
            rows: Sequence[Sequence[str]] = batch.rows  # type: ignore[assignment]
            records = (dict(zip(plan.fields, row, strict=True)) for row in plan.pick(rows))
            self._each(records, batch, lines)

        return as_table if self.handler is None else as_records

    def _records(self, batch: Batch, lines: dict[int, int] | _Same) -> None:
        self._each(iter(batch.rows), batch, lines)  # type: ignore[arg-type]

    def _each(self, records: Iterator[Record], batch: Batch, lines: dict[int, int] | _Same) -> None:
        """Make units row by row; a row of which anything is wrong is held back whole."""
        shape: tuple[str, ...] = ()
        waiting: list[list[Any]] = []
        for index, record in enumerate(records):
            self.watch.row(index)
            line = lines[batch.lines[index]]
            try:
                made = self._units(record, line)
            except UnitTroubles as error:
                self.bad.append((error.troubles[0], line, _raw(batch, index)))
                continue
            for unit in made:
                fields = tuple(unit)
                if fields != shape:
                    self.out.write(shape, waiting)
                    shape, waiting = fields, []
                waiting.append([line, *unit.values()])
        self.out.write(shape, waiting)

    def _units(self, record: Record, line: int) -> list[Record]:
        """Give the units of one row, checked; raise `UnitTroubles` with what is wrong."""
        try:
            row = record if self.held.reading.columns is not None else columns.of_record(record, self.spec)
            made = [row] if self.handler is None else list(handlers.units(self.handler, row, self.file))
            checked = [self.schema.unit(unit, line) for unit in made]
            for unit in checked:
                units.check(unit)
        except (UnitTroubles, TimeUp, Interrupted):
            raise
        except handlers.DECIDES:
            raise
        except BaseException as error:  # the edge: whatever user code raises is this row's trouble
            cause = handlers.trouble(error)
            if self.redact:
                cause = f"{type(error).__name__} (not shown: the pipeline redacts fields)"
            raise UnitTroubles([Trouble(line=line, cause=cause)]) from error
        return checked


class _Same(dict[int, int]):
    """Every line is its own: the file is the source."""

    def __missing__(self, line: int) -> int:
        return line


_SAME = _Same()


def _raw(batch: Batch, index: int) -> str | Record:
    return batch.raw[index] if batch.raw is not None else batch.rows[index]  # type: ignore[return-value]


def _at(trouble: Trouble, line: int) -> Trouble:
    return Trouble(line=line, field=trouble.field, unit=trouble.unit, cause=trouble.cause)
