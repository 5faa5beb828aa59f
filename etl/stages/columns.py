"""From a file's header to the fields of a unit: renaming, dropping, and what must be there before the first row.

Pure: decides from names alone. Called by transform.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from etl.config.schema import Transform
from etl.errors import InvalidFile
from etl.model import Trouble


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """What becomes of each column of one file."""

    #: the fields of a row, in order.
    fields: tuple[str, ...]
    #: the place of each field in the header; None when the header is taken as it is.
    places: tuple[int, ...] | None

    def pick(self, rows: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
        """Give the values of our fields from rows in the header's order."""
        if self.places is None:
            return rows
        if len(self.places) == 1:
            place = self.places[0]
            return [(row[place],) for row in rows]
        return list(map(itemgetter(*self.places), rows))


def of_header(header: Sequence[str], spec: Transform) -> Columns:
    """Plan the columns of a table, or raise `InvalidFile` naming what is missing or unknown."""
    field_of = _renamed(header, spec)
    if twice := _twice(field_of):
        raise InvalidFile(
            twice,
            next="map only one of them in transform.columns, or ask for a file without the other",
            where=[Trouble(cause=twice)],
        )
    missing = [field for field in _needed(spec) if field not in field_of.values()]
    if missing:
        raise _missing(missing, header, spec)
    if spec.unknown_columns == "fail" and (
        unknown := [name for name in header if not _known(name, field_of[name], spec)]
    ):
        raise InvalidFile(
            f"unknown column {', '.join(map(repr, unknown))}",
            next="add it to transform.columns or the schema, or set `unknown_columns: drop`",
            where=[Trouble(field=name, cause="unknown column") for name in unknown],
        )
    kept = [
        (place, field_of[name])
        for place, name in enumerate(header)
        if spec.unknown_columns != "drop" or _known(name, field_of[name], spec)
    ]
    places, fields = tuple(place for place, _ in kept), tuple(field for _, field in kept)
    return Columns(fields=fields, places=None if places == tuple(range(len(header))) else places)


def fields(header: Sequence[str], spec: Transform) -> list[tuple[str, str]]:
    """Give the field that each column becomes, with the column's name in the file."""
    field_of = _renamed(header, spec)
    return [(field_of[name], name) for name in header]


def of_record(record: dict[str, Any], spec: Transform) -> dict[str, Any]:
    """Rename and drop the keys of a record that brings its own."""
    if not spec.columns and spec.unknown_columns == "keep":
        return record
    field_of = _renamed(list(record), spec)
    if twice := _twice(field_of):
        raise ValueError(twice)
    unknown = [name for name in record if not _known(name, field_of[name], spec)]
    if unknown and spec.unknown_columns == "fail":
        raise ValueError(f"unknown column {', '.join(map(repr, unknown))}")
    dropped = set(unknown) if spec.unknown_columns == "drop" else set()
    return {field_of[name]: value for name, value in record.items() if name not in dropped}


def _renamed(header: Collection[str], spec: Transform) -> dict[str, str]:
    """Give the field of each column: the first header listed for a field that is there gets its name."""
    field_of = {name: name for name in header}
    for field, headers in spec.columns.items():
        found = next((name for name in headers if name in field_of), None)
        if found is not None:
            field_of[found] = field
    return field_of


def _twice(field_of: Mapping[str, str]) -> str:
    """Say which two columns would become one field, so that neither value is lost in silence; "" for none."""
    first: dict[str, str] = {}
    for name, field in field_of.items():
        if field in first:
            return f"the columns {first[field]!r} and {name!r} would both be {field!r}"
        first[field] = name
    return ""


def _needed(spec: Transform) -> list[str]:
    """Give the fields that must be there: what the schema requires, or with a handler all that are mapped."""
    required = list(spec.unit_schema.get("required", ()))
    if spec.handler is None and required:
        return required
    return list(spec.columns)


def _known(name: str, field: str, spec: Transform) -> bool:
    properties = spec.unit_schema.get("properties", {})
    if not spec.columns and not properties:
        return True
    return field in spec.columns or field in properties


def _missing(missing: Sequence[str], header: Sequence[str], spec: Transform) -> InvalidFile:
    named = [
        f"{field!r} ({' or '.join(map(repr, spec.columns[field]))})" if field in spec.columns else repr(field)
        for field in missing
    ]
    return InvalidFile(
        f"missing column {', '.join(named)}; the header has {', '.join(map(repr, header))}",
        next="ask for a complete file, or map the header's name in transform.columns",
        where=[Trouble(field=field, cause="missing column") for field in missing],
    )
