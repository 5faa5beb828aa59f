"""From values to rows with their lineage: which file, generation and line a table says a row came from.

Only looks. Fields are columns that the table itself has, quoted by the database's own rules; values are bound,
never written into a statement. Called by the sql location.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from etl import errors
from etl.config.wording import near_word
from etl.locations import sql_keys, tables
from etl.locations.bookkeeping import Books
from etl.model import Traced


@dataclass(frozen=True, slots=True)
class Wish:
    """Which rows are asked for: values by field, and how many rows at most."""

    values: Mapping[str, str]
    most: int


def rows(engine: sa.Engine, books: Books, target: str, wish: Wish) -> Iterator[Traced]:
    """Give the rows with these values, the newest file first, or raise `Refused`; none where nothing was loaded."""
    with sql_keys.looking(engine, books) as connection:
        table = None if connection is None else tables.find(connection, target)
        if connection is None or table is None:
            return
        tables.require_lineage(table)
        asked = [_condition(table, field, value) for field, value in wish.values.items()]
        newest = [table.c[name].desc() for name in tables.LINEAGE[:2]]
        statement = sa.select(table).where(*asked).order_by(*newest, table.c[tables.LINE]).limit(wish.most)
        for row in connection.execute(statement).mappings():
            yield _traced(dict(row))


def _traced(row: dict[str, Any]) -> Traced:
    file, generation, line = (row.pop(name) for name in tables.LINEAGE)
    return Traced(
        values=row,
        file=str(file or ""),
        generation=int(generation or 0),
        line=None if line is None else int(line),
    )


def _condition(table: sa.Table, field: str, text: str) -> sa.ColumnElement[bool]:
    if field not in table.c:
        near = near_word(field, [column.name for column in table.c])
        hint = f"Did you mean {near!r}?" if near else f"It has {', '.join(table.c.keys())}"
        raise errors.Refused(f"table {table.fullname!r} has no column {field!r}", next=hint)
    column: sa.ColumnElement[Any] = table.c[field]
    try:
        kind = column.type.python_type
    except NotImplementedError:  # a type of the database's own is compared as it is shown
        return sa.cast(column, sa.Text) == text
    try:
        same: sa.ColumnElement[bool] = column == _value(kind, text)
    except (ValueError, ArithmeticError) as error:
        raise errors.Refused(
            f"{text!r} is not a value of column {field!r} ({kind.__name__})",
            next="Write it as the table has it",
        ) from error
    return same


_READ: dict[type, Any] = {
    int: int,
    float: float,
    Decimal: Decimal,
    date: date.fromisoformat,
    datetime: datetime.fromisoformat,
    bool: lambda text: {"true": True, "false": False, "1": True, "0": False}[text.lower()],
}


def _value(kind: type, text: str) -> Any:
    """Read a value as the column's type has it, or raise ValueError."""
    try:
        return _READ.get(kind, str)(text)
    except KeyError as error:
        raise ValueError(text) from error
