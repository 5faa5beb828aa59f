"""Rows into PostgreSQL the fast way: COPY, on the connection and in the transaction that SQLAlchemy holds.

Never opens or ends a transaction. Chosen by the sql location for `postgresql+psycopg`.
"""

from __future__ import annotations

from typing import Any

import orjson
import psycopg
import sqlalchemy as sa
from psycopg import sql
from psycopg.adapt import Dumper

from etl.locations.answers import CopyError
from etl.locations.tables import FILE
from etl.locations.writer import Plan, Rows

#: where rows wait to be merged; gone at the end of the transaction.
INCOMING = "_etl_incoming"
#: the order of arrival there.
ARRIVED = "_etl_arrived"


class _JsonText(Dumper):
    """Writes nested values as JSON text."""

    def dump(self, obj: Any) -> bytes:
        return orjson.dumps(obj)


class CopyWriter:
    """Writes by COPY into the table itself; to upsert, into a temporary table that is then merged."""

    def __init__(self, connection: sa.Connection, plan: Plan) -> None:
        driver: Any = connection.connection.driver_connection
        self._plan = plan
        self._cursor: psycopg.Cursor[Any] = driver.cursor()
        self._cursor.adapters.register_dumper(dict, _JsonText)
        types = [plan.table.c[name].type for name in plan.columns]
        if not any(isinstance(kind, sa.ARRAY) for kind in types):
            self._cursor.adapters.register_dumper(list, _JsonText)
        self._json = [at for at, kind in enumerate(types) if isinstance(kind, sa.JSON)]
        table = sql.Identifier(*filter(None, (plan.table.schema, plan.table.name)))
        into = sql.Identifier("pg_temp", INCOMING) if plan.upsert_by else table
        self._copy = sql.SQL("COPY {} ({}) FROM STDIN").format(into, _names(plan.columns))
        self._merge = _merge(plan, table) if plan.upsert_by else None
        if self._merge:
            self._make_incoming(table)

    def write(self, rows: Rows) -> None:
        """Write all rows of a slice, or raise."""
        try:
            with self._cursor.copy(self._copy) as copy:
                write_row = copy.write_row
                for row in self._plan.prepare(rows):
                    for at in self._json:
                        row[at] = None if row[at] is None else orjson.dumps(row[at]).decode()
                    write_row(row)
            if self._merge:
                self._cursor.execute(self._merge)
                self._cursor.execute(sql.SQL("TRUNCATE {}").format(sql.Identifier("pg_temp", INCOMING)))
        except psycopg.Error as error:
            raise CopyError(error) from error

    def _make_incoming(self, table: sql.Identifier) -> None:
        # with the table's checks, so that COPY itself names the line that breaks one
        make = sql.SQL(
            "DROP TABLE IF EXISTS {into}; CREATE TEMPORARY TABLE {name} (LIKE {table} INCLUDING DEFAULTS"
            " INCLUDING CONSTRAINTS INCLUDING IDENTITY INCLUDING GENERATED,"
            " {arrived} BIGINT GENERATED ALWAYS AS IDENTITY) ON COMMIT DROP"
        )
        try:
            self._cursor.execute(
                make.format(
                    into=sql.Identifier("pg_temp", INCOMING),
                    name=sql.Identifier(INCOMING),
                    table=table,
                    arrived=sql.Identifier(ARRIVED),
                )
            )
        except psycopg.Error as error:
            raise CopyError(error) from error


def _names(columns: tuple[str, ...], prefix: str = "") -> sql.Composed:
    parts = [sql.Identifier(*filter(None, (prefix, name))) for name in columns]
    return sql.SQL(", ").join(parts)


def _merge(plan: Plan, table: sql.Identifier) -> sql.Composed:
    """Bring in the last of the rows that share a key, wherever the row that is there is not newer."""
    newest_first = [
        sql.SQL("{} DESC NULLS LAST").format(sql.Identifier(name)) for name in plan.order if plan.newest_by
    ]
    newest_first.append(sql.SQL("{} DESC").format(sql.Identifier(ARRIVED)))
    update = sql.SQL("{0} = excluded.{0}")
    statement = sql.SQL(
        "INSERT INTO {table} AS old ({columns}) SELECT DISTINCT ON ({key}) {columns} FROM {incoming}"
        " ORDER BY {key}, {newest_first} ON CONFLICT ({key}) "
    ).format(
        table=table,
        columns=_names(plan.columns),
        key=_names(plan.upsert_by),
        incoming=sql.Identifier("pg_temp", INCOMING),
        newest_first=sql.SQL(", ").join(newest_first),
    )
    if not plan.updated:
        return statement + sql.SQL("DO NOTHING")
    # a row that tells nothing of its age was there before us
    return statement + sql.SQL("DO UPDATE SET {} WHERE {} IS NULL OR ({}) <= ({})").format(
        sql.SQL(", ").join(update.format(sql.Identifier(name)) for name in plan.updated),
        sql.Identifier("old", plan.order[0]),
        _ages(plan, "old"),
        _ages(plan, "excluded"),
    )


def _ages(plan: Plan, row: str) -> sql.Composed:
    # ids sort by their bytes, whatever language the database sorts in
    parts = [
        sql.SQL('{} COLLATE "C"' if name == FILE else "{}").format(sql.Identifier(row, name))
        for name in plan.order
    ]
    return sql.SQL(", ").join(parts)
