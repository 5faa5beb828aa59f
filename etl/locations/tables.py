"""The table units go to: found as it is, or made from the unit schema and the first units.

Never changes a table that is there and never writes a row. Called by the sql location.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import NoSuchTableError

from etl import errors
from etl.locations.bookkeeping import WORD
from etl.model import Block, UnitFile

#: which source file, generation and line a row came from.
FILE, GENERATION, LINE = "_etl_file", "_etl_generation", "_etl_line"
LINEAGE = (FILE, GENERATION, LINE)
ADD_LINEAGE = (
    f"Add {FILE} (text, indexed), {GENERATION} (integer) and {LINE} (bigint), or set `lineage: false`"
)
#: units looked at when a table is made without a schema.
SAMPLE = 10_000

_Type = sa.types.TypeEngine[Any]
_BY_SCHEMA: dict[str, _Type] = {
    "string": sa.Text(),
    "integer": sa.BigInteger(),
    "number": sa.Double(),
    "boolean": sa.Boolean(),
    "object": sa.JSON(),
    "array": sa.JSON(),
}
#: a date-time names an instant: without its time zone the same text would mean another one.
_BY_FORMAT: dict[str, _Type] = {"date": sa.Date(), "date-time": sa.DateTime(timezone=True)}
_BY_VALUE: dict[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    dict: "object",
    list: "object",
}


def split_name(written: str) -> tuple[str | None, str]:
    """Split `schema.table` as an operator writes it."""
    schema, _, table = written.rpartition(".")
    return schema or None, table


def find(connection: sa.Connection, written: str) -> sa.Table | None:
    """Read the table as the database has it; None when it is not there."""
    schema, name = split_name(written)
    # every name is quoted: no list of a database's reserved words is complete
    quoted = [] if connection.dialect.requires_name_normalize else [("column_reflect", _quote_column)]
    table = sa.Table(
        sa.quoted_name(name, True if quoted else None), sa.MetaData(), schema=schema, listeners=quoted
    )
    try:
        sa.inspect(connection).reflect_table(table, None, resolve_fks=False)
    except NoSuchTableError:
        return None
    for column in table.columns:
        if isinstance(column.type, sa.JSON):
            # a missing value is NULL, not the JSON text null
            column.type.none_as_null = True
    return table


def _quote_column(_inspector: Any, _table: sa.Table, column: dict[str, Any]) -> None:
    column["name"] = sa.quoted_name(column["name"], True)


def draft(written: str, units: UnitFile, key: Sequence[str], *, lineage: bool) -> sa.Table | None:
    """Draw the table for these units, or return None when nothing is known of them: no schema and no unit."""
    types = column_types(units.schema, sample(units.blocks()))
    if not types:
        return None
    missing = [name for name in key if name not in types]
    if missing:
        raise errors.Refused(
            f"table {written!r} cannot be made: the units have no field {_listed(missing)} named in `key`",
            next="Correct `key` or the fields of the units, then move the file back",
        )
    schema, name = split_name(written)
    columns = [_column(field, kind, field in key) for field, kind in types.items()]
    table = sa.Table(name, sa.MetaData(), *columns, schema=schema, quote=True)
    if lineage:
        for column in (
            sa.Column(FILE, WORD),
            sa.Column(GENERATION, sa.Integer),
            sa.Column(LINE, sa.BigInteger),
        ):
            table.append_column(column)
        # rows of one file lie together, so PostgreSQL finds them by an index that costs nothing to keep
        block_range: dict[str, Any] = {
            "postgresql_using": "brin",
            "postgresql_with": {"autosummarize": "on"},
        }
        sa.Index(f"{name}_etl_file", table.c[FILE], **block_range)
    return table


def _column(name: str, kind: _Type, in_key: bool) -> sa.Column[Any]:
    if in_key and isinstance(kind, sa.Text):
        kind = WORD
    return sa.Column(name, kind, primary_key=in_key, autoincrement=False, quote=True)


def sample(blocks: Iterable[Block]) -> list[Block]:
    """Take blocks until they hold enough units to tell types by."""
    taken: list[Block] = []
    seen = 0
    for block in blocks:
        taken.append(block)
        seen += len(block.rows)
        if seen >= SAMPLE:
            break
    return taken


def column_types(schema: Mapping[str, Any], blocks: Sequence[Block]) -> dict[str, _Type]:
    """Choose a type per field: the schema's where it names one, else what the values are."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    fields = dict.fromkeys([*properties, *(field for block in blocks for field in block.fields)])
    return {field: _declared(properties.get(field)) or _seen(field, blocks) for field in fields}


def _declared(declared: Any) -> _Type | None:
    """Give the type a schema declares, which may also allow null."""
    if not isinstance(declared, Mapping):
        return None
    written = declared.get("type", ())
    kinds = {written} if isinstance(written, str) else set(written)
    kinds.discard("null")
    if kinds == {"string"} and declared.get("format") in _BY_FORMAT:
        return _BY_FORMAT[declared["format"]]
    if kinds == {"integer", "number"}:
        return _BY_SCHEMA["number"]
    if len(kinds) > 1:
        return _BY_SCHEMA["string"]
    return _BY_SCHEMA.get(kinds.pop()) if kinds else None


def _seen(field: str, blocks: Sequence[Block]) -> _Type:
    """Give the type all values of a field have; text where they differ or there is none."""
    kinds: set[str] = set()
    for block in blocks:
        if field in block.fields:
            at = block.fields.index(field) + 1
            kinds |= {
                _BY_VALUE.get(kind, "string") for kind in {type(row[at]) for row in block.rows} - {type(None)}
            }
    if kinds == {"integer", "number"}:
        return _BY_SCHEMA["number"]
    return _BY_SCHEMA[kinds.pop()] if len(kinds) == 1 else _BY_SCHEMA["string"]


def require_columns(table: sa.Table, fields: Iterable[str]) -> None:
    """Accept fields that all have a column of their own, or raise `Refused` naming the others."""
    if ours := [field for field in fields if field in LINEAGE]:
        raise errors.Refused(
            f"units have a field {_listed(ours)}, a name that is kept for lineage",
            next="Give it another name in `columns` or the handler, then move the file back",
        )
    if unknown := [field for field in fields if field not in table.c]:
        raise errors.Refused(
            f"table {table.fullname!r} has no column {_listed(unknown)}",
            next="Add it to the table, or rename or drop the field in `columns`, then move the file back",
        )


def require_fields(block: Block, needed: Iterable[str]) -> None:
    """Accept units that have the fields an upsert goes by, or raise `Refused` naming what is missing."""
    if missing := [name for name in needed if name not in block.fields]:
        raise errors.Refused(
            f"units have no field {_listed(missing)}, which `key` or `newest_by` names",
            next="Correct the option or the fields of the units, then move the file back",
        )


def require_lineage(table: sa.Table) -> None:
    """Accept a table with lineage columns, or raise `Refused` saying how to add them."""
    if missing := missing_lineage(table):
        raise errors.Refused(
            f"table {table.fullname!r} has no lineage column {_listed(missing)}", next=ADD_LINEAGE
        )


def missing_lineage(table: sa.Table) -> list[str]:
    """Name the lineage columns that a table does not have."""
    return [name for name in LINEAGE if name not in table.c]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)
