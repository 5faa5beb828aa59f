"""What an operator has to fix before units can go into a table: reach, table, columns, key, rights.

Only looks: takes no write lock, makes no table and no database file. Called by the sql location.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import sqlalchemy as sa

from etl.locations import engines, tables
from etl.locations.sql_options import Options


def look(engine: sa.Engine, books: Sequence[sa.Table], wanted: Options) -> list[str]:
    """List what is wrong, or raise a SQLAlchemyError when the database cannot be asked."""
    if engine.dialect.name == "sqlite" and not (engine.url.database or "").startswith("file:"):
        file = Path(engine.url.database or "")
        wrong = list(_sqlite_file(file))
        if wrong or not file.exists():
            return wrong or ([] if wanted.create else [_no_table(wanted)])
    with engine.connect().execution_options(**{engines.LOOKING: True}) as connection:
        table = tables.find(connection, wanted.table)
        found = list(_table(connection, table, wanted))
        if connection.dialect.name == "postgresql":
            found += _rights(connection, table, books, wanted)
        return found


def _no_table(wanted: Options) -> str:
    return f"there is no table {wanted.table!r}: make it, or set `create: true`"


def _sqlite_file(file: Path) -> Iterator[str]:
    """Look at the file without opening it: opening would make it."""
    if not file.parent.is_dir():
        yield f"there is no folder {file.parent} for the database: make it"
    elif not os.access(file.parent, os.W_OK | os.X_OK):
        yield f"folder {file.parent} is not writable, but SQLite keeps its journal there: allow writing"
    elif file.exists() and not os.access(file, os.R_OK | os.W_OK):
        yield f"database {file} is not writable: allow writing"


def _table(connection: sa.Connection, table: sa.Table | None, wanted: Options) -> Iterator[str]:
    if table is None:
        if not wanted.create:
            yield _no_table(wanted)
        return
    for name in (*wanted.key, *filter(None, [wanted.newest_by])):
        if name not in table.c:
            yield f"table {wanted.table!r} has no column {name!r}: add it, or correct `key` or `newest_by`"
    if wanted.has_lineage and (missing := tables.missing_lineage(table)):
        yield f"table {wanted.table!r} has no {', '.join(missing)}. {tables.ADD_LINEAGE}"
    if wanted.mode == "upsert" and frozenset(wanted.key) not in _unique_keys(connection, wanted.table):
        columns = ", ".join(wanted.key)
        yield f"table {wanted.table!r} has no unique index on ({columns}), which upsert needs: add one"


def _unique_keys(connection: sa.Connection, written: str) -> set[frozenset[str | None]]:
    schema, name = tables.split_name(written)
    inspector = sa.inspect(connection)
    unique = {frozenset[str | None](inspector.get_pk_constraint(name, schema)["constrained_columns"])}
    unique |= {frozenset(found["column_names"]) for found in inspector.get_unique_constraints(name, schema)}
    # an index on part of the rows or on expressions cannot stand for the key
    indexes = [index for index in inspector.get_indexes(name, schema) if index["unique"]]
    whole = [index for index in indexes if not index.get("dialect_options", {}).get("postgresql_where")]
    return unique | {frozenset(index["column_names"]) for index in whole}


def _rights(
    connection: sa.Connection, table: sa.Table | None, books: Sequence[sa.Table], wanted: Options
) -> Iterator[str]:
    needed = {"SELECT", "INSERT"}
    needed |= {"UPDATE"} if wanted.mode == "upsert" else set()
    needed |= {"DELETE"} if wanted.mode == "append" and wanted.has_lineage else set()
    inspector = sa.inspect(connection)
    there = [
        (book, {"SELECT", "INSERT", "UPDATE"})
        for book in books
        if inspector.has_table(book.name, book.schema)
    ]
    to_make = [] if len(there) == len(books) else [book.name for book in books]
    if table is not None:
        there.append((table, needed))
    elif wanted.create:
        to_make.append(wanted.table)
    for checked, rights in there:
        if missing := [right for right in sorted(rights) if not _may(connection, checked, right)]:
            yield f"no right to {', '.join(missing)} on table {checked.fullname!r}: GRANT it to this user"
    if to_make and not _may_create(connection, tables.split_name(wanted.table)[0]):
        yield f"no right to make {', '.join(to_make)}: GRANT CREATE on the schema to this user"


def _may(connection: sa.Connection, table: sa.Table, right: str) -> bool:
    name = connection.dialect.identifier_preparer.format_table(table)
    return bool(connection.scalar(sa.select(sa.func.has_table_privilege(name, right))))


def _may_create(connection: sa.Connection, schema: str | None) -> bool:
    where = sa.literal(schema) if schema else sa.func.current_schema()
    known = sa.select(sa.func.has_schema_privilege(sa.column("nspname"), "CREATE")).select_from(
        sa.text("pg_namespace")
    )
    return bool(connection.scalar(known.where(sa.column("nspname") == where)))
