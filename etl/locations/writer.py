"""How rows get into a table: what is to be written, and the contract of whoever writes it.

Holds values only and runs no statement. `portable` and `postgres` implement it; the sql location chooses one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import sqlalchemy as sa

from etl.locations.tables import FILE, GENERATION, LINE

Rows = Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be done with units of one shape."""

    table: sa.Table
    fields: tuple[str, ...]
    #: source file and generation, written beside each unit with its line; None without lineage.
    lineage: tuple[str, int] | None
    #: the columns by which a row is the same row; empty when rows are only added.
    upsert_by: tuple[str, ...] = ()
    newest_by: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Name the columns written, in the order of a prepared row."""
        return (LINE, *self.fields, FILE, GENERATION) if self.lineage else self.fields

    @property
    def updated(self) -> tuple[str, ...]:
        """Name the columns that a newer row brings to an older one."""
        return tuple(name for name in self.columns if name not in self.upsert_by)

    @property
    def order(self) -> tuple[str, ...]:
        """Name the columns that tell an older row from a newer one."""
        return (self.newest_by,) if self.newest_by else (FILE, GENERATION, LINE)

    def prepare(self, rows: Rows) -> Iterator[list[Any]]:
        """Turn rows of a block, which start with their line, into rows of `columns`, one at a time."""
        if self.lineage is None:
            return (list(row[1:]) for row in rows)
        file, generation = self.lineage
        return ([*row, file, generation] for row in rows)


class Writer(Protocol):
    """Writes units of one shape inside the caller's transaction."""

    def write(self, rows: Rows) -> None:
        """Write all rows of a slice, or raise one of `answers.UNIT_ERRORS`; the caller rolls back."""
