"""A table in a SQL database. The units of a unit file, its key and its generation are one transaction.

So a unit file is in the table exactly once, whatever was killed and however often it is loaded.
Never moves a file and never changes a table that is there. Opened by `location`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from etl import errors, points
from etl.locations import answers, bookkeeping, engines, sql_findings, sql_keys, sql_trace, tables
from etl.locations.bookkeeping import Books, Kept, Standing
from etl.locations.isolation import Isolation
from etl.locations.portable import PortableWriter
from etl.locations.sql_options import Options
from etl.locations.writer import Plan, Writer
from etl.model import Block, Excess, Key, Loaded, Traced, UnitFile

Told = TypeVar("Told")


def open_location(name: str, options: Options, root: Path) -> SqlLocation:
    """Open the location without connecting."""
    return SqlLocation(name, options, root)


class SqlLocation:
    """Loads unit files into one table."""

    def __init__(self, name: str, options: Options, root: Path) -> None:
        self.name = name
        url = engines.placed(engines.address(options.url.get_secret_value()), root)
        self._options = options
        self._engine = engines.open_engine(url)
        self._books = Books(options.table, tables.split_name(options.table)[0], lineage=options.has_lineage)
        self._process = os.getpid()
        #: what this process has seen to be there; looked for again after every error.
        self._has_books = False
        self._table: sa.Table | None = None

    def load(self, units: UnitFile) -> Loaded:
        """Write the units in one transaction, or raise `Away`, `Retryable` or `Refused` and write nothing."""
        self._leave_parents_connections()
        try:
            return self._load(units)
        except SQLAlchemyError as error:
            self.close()
            raise answers.whole(error, f"location {self.name!r} ({self._shown})", self._secret) from error
        except errors.Refused:
            self._forget()
            raise

    def findings(self) -> list[str]:
        """Say what an operator has to fix. Writes nothing, makes no database file, never raises."""
        self._leave_parents_connections()
        try:
            found = sql_findings.look(self._engine, self._books.tables, self._options)
        except SQLAlchemyError as error:
            self.close()
            return [str(answers.whole(error, f"location {self.name!r} ({self._shown})", self._secret))]
        return [f"location {self.name!r}: {finding}" for finding in found]

    def keys(self, data: str, pipeline: str) -> Iterator[Key] | None:
        """Tell every key of a pipeline in a stream, or raise `Away`, `Retryable` or `Refused`."""
        return self._asked(sql_keys.keys(self._engine, self._books, (data, pipeline)))

    def excess(self, data: str, pipeline: str) -> Iterator[Excess]:
        """Tell where the table has more rows than its keys count, or rows of a generation that was replaced."""
        if self._options.mode != "append" or not self._options.has_lineage:
            return iter(())
        whose = (data, pipeline)
        return self._asked(sql_keys.excess(self._engine, self._books, self._options.table, whose))

    def trace(self, wanted: Mapping[str, str], most: int) -> Iterator[Traced]:
        """Tell which file, generation and line the rows with these values came from, or raise as `keys` does."""
        return self._asked(
            sql_trace.rows(self._engine, self._books, self._options.table, sql_trace.Wish(wanted, most))
        )

    def _asked(self, told: Iterator[Told]) -> Iterator[Told]:
        self._leave_parents_connections()
        try:
            yield from told
        except SQLAlchemyError as error:
            self.close()
            raise answers.whole(error, f"location {self.name!r} ({self._shown})", self._secret) from error

    def close(self) -> None:
        """Close the connections; the next use connects again."""
        self._forget()
        self._engine.dispose()

    @property
    def _secret(self) -> str:
        return self._engine.url.password or ""

    @property
    def _shown(self) -> str:
        return self._engine.url.render_as_string(hide_password=True)

    def _forget(self) -> None:
        self._has_books, self._table = False, None

    def _leave_parents_connections(self) -> None:
        # a forked child that speaks on its parent's connection garbles both
        if self._process != os.getpid():
            self._process = os.getpid()
            self._engine.dispose(close=False)

    def _load(self, units: UnitFile) -> Loaded:
        if not self._has_books:
            for table in self._books.tables:
                bookkeeping.make(self._engine, table)
            self._has_books = True
        target = self._target(units)
        with self._engine.connect() as connection:
            loaded = self._write(connection, units, target)
            with points.effect(points.Point.LOCATION_COMMIT):
                connection.commit()
        return loaded

    def _write(self, connection: sa.Connection, units: UnitFile, target: sa.Table | None) -> Loaded:
        standing = self._books.enter(connection, units)
        if standing is Standing.SUPERSEDED:
            return Loaded(count=0, superseded=True)
        if standing is Standing.NEWER:
            self._replace_older(connection, units, target)
        kept = self._books.claim(connection, units)
        if kept:
            return _loaded_before(kept, units)
        isolation = Isolation(
            connection, lambda: sum(len(block.rows) for block in units.blocks()), self._secret
        )
        with points.effect(points.Point.LOCATION_WRITE):
            if target is not None:
                self._insert(connection, units, target, isolation)
        isolation.finish()
        rejected = tuple(sorted(isolation.troubles, key=lambda trouble: trouble.unit or 0))
        self._books.settle(connection, units.key, isolation.written, rejected)
        return Loaded(count=isolation.written, rejected=rejected)

    def _replace_older(self, connection: sa.Connection, units: UnitFile, target: sa.Table | None) -> None:
        """Make way for a newer generation: take out the older one's rows, where they can be told apart."""
        if self._options.mode == "append":
            self._refuse_second_life(connection, units)
            if self._options.has_lineage and target is not None:
                rows, key = target.c, units.key
                older = sa.and_(rows[tables.FILE] == key.file, rows[tables.GENERATION] < key.generation)
                connection.execute(target.delete().where(older))
        self._books.raise_generation(connection, units)

    def _refuse_second_life(self, connection: sa.Connection, units: UnitFile) -> None:
        """Refuse a newer generation while rows of an older one are there that nobody can tell apart."""
        if self._books.has_older_without_lineage(connection, units.key):
            table, file = self._options.table, units.key.file
            raise errors.Refused(
                f"{units.name}: loaded before under another recipe, and {table!r} keeps no lineage of those rows",
                next=f"Delete its old rows from {table!r} and, in the table _etl_keys, the rows of file {file}",
            )

    def _insert(
        self, connection: sa.Connection, units: UnitFile, target: sa.Table, isolation: Isolation
    ) -> None:
        writer: Writer | None = None
        shape: tuple[str, ...] = ()
        for block in units.blocks():
            if writer is None or block.fields != shape:
                shape = block.fields
                writer = self._writer(connection, self._plan(units, target, block))
            isolation.write(block.rows, writer)

    def _writer(self, connection: sa.Connection, plan: Plan) -> Writer:
        if connection.dialect.name == "postgresql" and connection.dialect.driver == "psycopg":
            from etl.locations.postgres import CopyWriter

            return CopyWriter(connection, plan)
        return PortableWriter(connection, plan)

    def _plan(self, units: UnitFile, target: sa.Table, block: Block) -> Plan:
        options = self._options
        tables.require_columns(target, block.fields)
        if options.mode == "upsert":
            tables.require_fields(block, [*options.key, *filter(None, [options.newest_by])])
        return Plan(
            table=target,
            fields=block.fields,
            lineage=(units.key.file, units.key.generation) if options.has_lineage else None,
            upsert_by=options.key if options.mode == "upsert" else (),
            newest_by=options.newest_by,
        )

    def _target(self, units: UnitFile) -> sa.Table | None:
        """Find the table or make it; None when it is to be made and nothing is known of it yet."""
        if self._table is None:
            self._table = self._find()
        if self._table is None and self._options.create:
            options = self._options
            drafted = tables.draft(options.table, units, options.key, lineage=options.has_lineage)
            if drafted is None:
                return None
            bookkeeping.make(self._engine, drafted)
            self._table = self._find()
        if self._table is None:
            raise errors.Refused(
                f"location {self.name!r}: there is no table {self._options.table!r}",
                next="Make it, or set `create: true` to have it made from the units, then move the file back",
            )
        if self._options.has_lineage:
            tables.require_lineage(self._table)
        return self._table

    def _find(self) -> sa.Table | None:
        with self._engine.connect().execution_options(**{engines.LOOKING: True}) as connection:
            return tables.find(connection, self._options.table)


def _loaded_before(kept: Kept, units: UnitFile) -> Loaded:
    if kept.sha256 != units.sha256:
        raise errors.Refused(
            f"{units.name}: already loaded, and its bytes have changed since",
            next="Drop corrected units as a new file, or correct the source file and move that one back",
        )
    return Loaded(count=0, before=True, rejected=kept.rejected)
