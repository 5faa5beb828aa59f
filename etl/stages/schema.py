"""The schema of a unit: text is read as the types it names, then the unit is held against all of it.

Compiled once per file. Whole tables are coerced column by column, and validated only for what coercion has
not already proven. Never fetches a remote schema. Called by the transform stage.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from typing import Any, NoReturn
from uuid import UUID

import jsonschema_rs

from etl.formats import coercion
from etl.formats.coercion import Coercion, Empty, UnfitError, shown
from etl.model import Trouble

#: what stands for the value in a validator's message until we put in as much of it as may be seen.
_MASK = "\0"
#: a name of its own for the unit's schema, so that "#/…" inside it keeps its meaning inside a list of units.
_UNIT = "urn:rq-etl:unit"
#: keywords that only describe.
_SILENT = {"title", "description", "default", "examples", "$schema", "$id", "$comment"}
#: keywords that coercion settles when every value is text.
_SETTLED = _SILENT | {"type", "format"}
_KINDS = {"integer": coercion.INTEGER, "number": coercion.NUMBER, "boolean": coercion.BOOLEAN}
_TEXTS = {"date": coercion.DATE, "date-time": coercion.TIME}

Row = Sequence[Any]


class UnitTroubles(Exception):
    """One unit does not keep to its schema; `troubles` says where and why."""

    def __init__(self, troubles: Sequence[Trouble]) -> None:
        super().__init__(
            "; ".join(f"{one.field}: {one.cause}" if one.field else one.cause for one in troubles)
        )
        self.troubles = list(troubles)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitSchema:
    """A unit's schema, ready for use."""

    required: tuple[str, ...]
    _coercions: Mapping[str, Coercion]
    _one: jsonschema_rs.Validator
    _many: jsonschema_rs.Validator
    #: coercion alone is enough for a table of text.
    _settled: bool
    _redact: frozenset[str]

    @classmethod
    def compile(cls, schema: Mapping[str, Any], redact: Collection[str] = ()) -> UnitSchema:
        """Compile a schema as configured, or raise ValueError; values of `redact` show in no cause."""
        if schema.get("type", "object") != "object":
            raise ValueError(f"the schema must be of type object, as a unit is, not {schema['type']!r}")
        _validator(schema)
        properties: Mapping[str, Any] = schema.get("properties", {})
        required = tuple(schema.get("required", ()))
        coercions = {
            name: made
            for name, rule in properties.items()
            if isinstance(rule, dict) and (made := _coercion(rule, name in required, name in redact))
        }
        rules = {name: _unformatted(rule, name in coercions) for name, rule in properties.items()}
        unit = {**schema, "$id": _UNIT} | ({"properties": rules} if rules else {})
        return cls(
            required=required,
            _coercions=coercions,
            _one=_validator(unit),
            _many=_validator({"items": unit} | {key: unit[key] for key in ("$schema",) if key in unit}),
            _settled=_is_settled(schema, coercions),
            _redact=frozenset(redact),
        )

    def table(
        self, fields: tuple[str, ...], lines: Sequence[int], rows: Sequence[Sequence[str]]
    ) -> tuple[list[Row], list[tuple[int, Trouble]]]:
        """Coerce and validate rows of text; give the good ones as [line, *values], one trouble per bad one.

        A bad row is given by its index in `rows`, in order.
        """
        troubles: defaultdict[int, list[Trouble]] = defaultdict(list)
        columns: list[Sequence[Any]] = []
        for field, cells in zip(fields, zip(*rows, strict=True), strict=False):
            values, wrong = self._coercions[field].column(cells) if field in self._coercions else (cells, [])
            columns.append(values)
            for index, cause in wrong:
                troubles[index].append(Trouble(line=lines[index], field=field, cause=cause))
        good: list[Row] = list(zip(lines, *columns, strict=True)) if rows else []
        if not self._settled or not set(self.required) <= set(fields):
            self._validate(fields, good, troubles)
        if troubles:
            good = [row for index, row in enumerate(good) if index not in troubles]
        return good, [(index, _together(troubles[index])) for index in sorted(troubles)]

    def unit(self, unit: Mapping[str, Any], line: int) -> dict[str, Any]:
        """Give one unit with its text coerced, or raise UnitTroubles with all that is wrong."""
        made, troubles = dict(unit), []
        for field, value in unit.items():
            try:
                made[field] = self._value(field, value)
            except UnfitError as error:
                troubles.append(Trouble(line=line, field=field, cause=str(error)))
        checked = (
            made if not troubles else {key: made[key] for key in made if key not in _fields_of(troubles)}
        )
        troubles += self._troubles(self._present(checked), line, _fields_of(troubles))
        if troubles:
            raise UnitTroubles(troubles)
        return made

    def _value(self, field: str, value: Any) -> Any:
        """Give a value as JSON knows it: a handler may have made dates, decimals and ids."""
        if isinstance(value, date | time):
            return value.isoformat()
        if isinstance(value, UUID):
            return str(value)
        made = self._coercions.get(field)
        if made is None:
            return value
        if isinstance(value, Decimal) and made.kinds:
            return made.cell(str(value))
        return made.cell(value) if isinstance(value, str) else value

    def _present(self, unit: dict[str, Any]) -> dict[str, Any]:
        """Leave out what is null without need to be there: a table has no other way to say absent."""
        if None not in unit.values():
            return unit
        return {key: value for key, value in unit.items() if value is not None or key in self.required}

    def _validate(
        self, fields: tuple[str, ...], rows: Sequence[Row], troubles: defaultdict[int, list[Trouble]]
    ) -> None:
        """Add the troubles that the validator finds in rows that have none yet."""
        indexes = [index for index in range(len(rows)) if index not in troubles]
        units = [self._present(dict(zip(fields, rows[index][1:], strict=True))) for index in indexes]
        if self._many.is_valid(units):
            return
        for index, unit in zip(indexes, units, strict=True):
            if found := self._troubles(unit, rows[index][0], ()):
                troubles[index] = found

    def _troubles(self, unit: dict[str, Any], line: int, known: Collection[str]) -> list[Trouble]:
        """List what the validator says against one unit, but for the fields that are `known` to be wrong."""
        missing = [name for name in self.required if name not in unit and name not in known]
        found = [Trouble(line=line, field=name, cause="missing, but required") for name in missing]
        try:
            if self._one.is_valid(unit):
                return found
            errors = list(self._one.iter_errors(unit))
        except ValueError as error:
            return [*found, Trouble(line=line, cause=f"cannot be held against the schema: {error}")]
        return found + [self._trouble(error, line) for error in errors if not _is_about_missing(error)]

    def _trouble(self, error: jsonschema_rs.ValidationError, line: int) -> Trouble:
        path = [str(part) for part in error.instance_path]
        field, inner = (path[0] if path else None), ".".join(path[1:])
        redacted = field in self._redact if field else bool(self._redact)
        cause = error.message.replace(_MASK, shown(error.instance, redacted))
        if inner:
            cause = f"at {inner}: {cause}"
        return Trouble(line=line, field=field, cause=cause)


def _is_about_missing(error: jsonschema_rs.ValidationError) -> bool:
    return not error.instance_path and isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Required)


def _validator(schema: Mapping[str, Any]) -> jsonschema_rs.Validator:
    try:
        return jsonschema_rs.validator_for(
            dict(schema), validate_formats=True, mask=_MASK, retriever=_nothing_is_fetched
        )
    except jsonschema_rs.ValidationError as error:
        where = ".".join(map(str, error.instance_path))
        message = error.message.replace(_MASK, shown(error.instance, False))
        raise ValueError(f"not a valid JSON Schema{f' at {where}' if where else ''}: {message}") from error
    except ValueError as error:
        raise ValueError(f"not a valid JSON Schema: {error}") from error


def _nothing_is_fetched(uri: str) -> NoReturn:
    raise ValueError(f"{uri} would have to be fetched; write that schema here instead")


def _types(rule: Mapping[str, Any]) -> list[str]:
    types = rule.get("type", [])
    return [types] if isinstance(types, str) else list(types)


def _coercion(rule: Mapping[str, Any], required: bool, redacted: bool) -> Coercion | None:
    """Say how text is read for a property, or None when it stays what it is."""
    types = _types(rule)
    kinds = [_KINDS[name] for name in ("integer", "number", "boolean") if name in types]
    text = "string" in types
    if text and rule.get("format") in _TEXTS:
        kinds.append(_TEXTS[rule["format"]])
        text = False
    if not kinds and "null" not in types:
        return None
    empty = Empty.TEXT if text else Empty.WRONG
    if "null" in types or not (required or text):
        empty = Empty.NULL
    # a list or an object cannot be written as text: the validator says so better
    text = text or not kinds
    return Coercion(kinds=tuple(kinds), text=text, empty=empty, redacted=redacted)


def _unformatted(rule: Any, coerced: bool) -> Any:
    """Take off the format that coercion checks: a validator wants a time zone with every time."""
    if coerced and rule.get("format") in _TEXTS:
        return {key: value for key, value in rule.items() if key != "format"}
    return rule


def _is_settled(schema: Mapping[str, Any], coercions: Mapping[str, Coercion]) -> bool:
    """Say whether a table of text that was coerced cannot break the schema any more."""
    if not set(schema) <= _SILENT | {"type", "required", "properties"}:
        return False
    return all(
        isinstance(rule, dict)
        and set(rule) <= _SETTLED
        and not {"array", "object"} & set(_types(rule))
        and _types(rule) != ["null"]
        and ("format" not in rule or (name in coercions and rule["format"] in _TEXTS))
        for name, rule in schema.get("properties", {}).items()
    )


def _fields_of(troubles: Sequence[Trouble]) -> set[str]:
    return {trouble.field for trouble in troubles if trouble.field}


def _together(troubles: Sequence[Trouble]) -> Trouble:
    """Make one trouble of all that is wrong with a row: the first, with the others behind it."""
    first, *others = troubles
    if not others:
        return first
    also = "; ".join(f"{one.field}: {one.cause}" if one.field else one.cause for one in others)
    return Trouble(line=first.line, field=first.field, cause=f"{first.cause}; also {also}")
