"""What a database says it has of us: the keys of a pipeline, and where its table holds more than they count.

Only looks, in one statement each and in a stream; takes no write lock and makes no database file. Called by the
sql location.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import sqlalchemy as sa

from etl.locations import engines, tables
from etl.locations.bookkeeping import Books
from etl.model import Excess, Key

#: rows are fetched so many at a time.
_STREAM = {"yield_per": 5_000}

#: id of the data folder, and pipeline.
Whose = tuple[str, str]


def keys(engine: sa.Engine, books: Books, whose: Whose) -> Iterator[Key]:
    """Give every key of a pipeline; none where nothing was ever loaded."""
    kept = books.tables[1]
    with looking(engine, books) as connection:
        if connection is None:
            return
        columns = (kept.c.file, kept.c.generation, kept.c.part, kept.c["count"], kept.c.rejected)
        statement = sa.select(*columns).where(books.of_pipeline(kept, *whose))
        for file, generation, part, count, rejected in connection.execute(
            statement, execution_options=_STREAM
        ):
            refused = 0 if rejected == "[]" else len(orjson.loads(rejected))
            yield Key(file=file, generation=generation, part=part, count=count, rejected=refused)


def excess(engine: sa.Engine, books: Books, target: str, whose: Whose) -> Iterator[Excess]:
    """Give every generation of a file of ours with more rows in the table than its keys count, or that is replaced.

    One statement, so that a load that commits meanwhile is seen whole or not at all.
    """
    with looking(engine, books) as connection:
        table = None if connection is None else tables.find(connection, target)
        if connection is None or table is None or tables.missing_lineage(table):
            return
        files = books.tables[0]
        there, counted = _rows(table), _counted(books, whose)
        loaded = sa.func.coalesce(counted.c.units, 0)
        statement = (
            sa.select(there.c.file, there.c.generation, there.c.rows, loaded, files.c.generation)
            .join(files, sa.and_(files.c.file == there.c.file, books.of_pipeline(files, *whose)))
            .outerjoin(
                counted,
                sa.and_(counted.c.file == there.c.file, counted.c.generation == there.c.generation),
            )
            .where(sa.or_(there.c.rows > loaded, there.c.generation < files.c.generation))
        )
        for file, generation, rows, units, current in connection.execute(
            statement, execution_options=_STREAM
        ):
            yield Excess(
                file=file, generation=generation, rows=int(rows), counted=int(units), current=int(current)
            )


def _rows(table: sa.Table) -> sa.Subquery:
    """Count the table's rows per file and generation."""
    file, generation = table.c[tables.FILE], table.c[tables.GENERATION]
    return (
        sa.select(file.label("file"), generation.label("generation"), sa.func.count().label("rows"))
        .group_by(file, generation)
        .subquery("there")
    )


def _counted(books: Books, whose: Whose) -> sa.Subquery:
    """Sum what the keys count per file and generation."""
    kept = books.tables[1]
    return (
        sa.select(kept.c.file, kept.c.generation, sa.func.sum(kept.c["count"]).label("units"))
        .where(books.of_pipeline(kept, *whose))
        .group_by(kept.c.file, kept.c.generation)
        .subquery("counted")
    )


@contextmanager
def looking(engine: sa.Engine, books: Books) -> Iterator[sa.Connection | None]:
    """Connect to look; None where there is no database file or none of our tables, so nothing was ever loaded."""
    database = engine.url.database or ""
    if engine.dialect.name == "sqlite" and not database.startswith("file:") and not Path(database).exists():
        yield None
        return
    with engine.connect().execution_options(**{engines.LOOKING: True}) as connection:
        inspector = sa.inspect(connection)
        there = all(inspector.has_table(book.name, book.schema) for book in books.tables)
        yield connection if there else None
