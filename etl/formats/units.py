"""Unit files: what transform writes and load reads. UTF-8 JSON lines of two kinds, and nothing else.

`{"fields": ["sku", "price"]}` says what the following units consist of; `[2, "A-1", 9.5]` is a unit: its
source line, then its values in that order. Written and read in a stream; never repaired when damaged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, BinaryIO

import orjson

from etl.errors import InvalidFile
from etl.model import Block, Trouble

#: bytes of unit file that become one block, roughly.
BLOCK = 2 << 20
#: rows encoded together.
AT_ONCE = 1000


class UnitWriter:
    """Writes units to an open file and counts them."""

    def __init__(self, handle: BinaryIO, recipe: str = "") -> None:
        self._handle = handle
        self._fields: tuple[str, ...] | None = None
        #: told on the first line, so that a unit file says by itself what it was made with.
        self._recipe = recipe
        self.count = 0

    def write(self, fields: tuple[str, ...], rows: Sequence[Sequence[Any]]) -> None:
        """Write rows of `[line, *values]`, or raise ValueError for a value that JSON cannot say."""
        if fields != self._fields:
            self._handle.write(_fields_line(fields, self._recipe if self._fields is None else ""))
            self._fields = fields
        for start in range(0, len(rows), AT_ONCE):
            part = rows[start : start + AT_ONCE]
            self._handle.write(_lines(part))
            self.count += len(part)


def check(unit: Mapping[str, Any]) -> None:
    """Make sure that a unit can be written, or raise ValueError as `UnitWriter.write` does."""
    _line(tuple(unit.values()))


def read_recipe(handle: BinaryIO) -> str:
    """Give what the unit file says it was made with, or "", and go back to its beginning."""
    try:
        first = orjson.loads(handle.readline(BLOCK))
    except orjson.JSONDecodeError:
        first = None
    handle.seek(0)
    return str(first.get("recipe", "")) if isinstance(first, dict) else ""


def read_blocks(handle: BinaryIO, *, rows: int = 10_000) -> Iterator[Block]:
    """Read blocks of one shape and at most `rows` units, or raise InvalidFile with the damaged line."""
    fields: tuple[str, ...] | None = None
    number = 1
    while lines := handle.readlines(BLOCK):
        for start in range(0, len(lines), rows):
            part = _parsed(lines[start : start + rows], number)
            for block in _blocks(part, fields, number):
                fields = block.fields
                if block.rows:
                    yield block
            number += len(part)


def _blocks(part: list[Any], fields: tuple[str, ...] | None, number: int) -> Iterator[Block]:
    """Cut parsed lines at every change of shape."""
    shapes = [index for index, value in enumerate(part) if type(value) is dict]
    for start, end in zip([-1, *shapes], [*shapes, len(part)], strict=True):
        if start >= 0:
            fields = _fields(part[start], number + start)
        units = part[start + 1 : end]
        if fields is None and units:
            raise _damaged(number, "no fields are named before the first unit")
        if fields is not None:
            _check(units, len(fields) + 1, number + start + 1)
            yield Block(fields=fields, rows=units)


def _parsed(lines: list[bytes], number: int) -> list[Any]:
    values: list[Any] = []
    try:
        # the loop is the compiler's; where it stopped is known from what it has given
        values.extend(map(orjson.loads, lines))
    except orjson.JSONDecodeError as error:
        raise _damaged(number + len(values), f"not valid JSON: {error.msg}") from error
    return values


def _fields(value: dict[str, Any], number: int) -> tuple[str, ...]:
    fields = value.get("fields")
    if not isinstance(fields, list) or not all(isinstance(name, str) for name in fields):
        raise _damaged(number, "neither a unit nor a list of fields")
    return tuple(fields)


def _check(units: list[Any], width: int, number: int) -> None:
    """Raise InvalidFile for the first unit that is not a source line and `width` - 1 values."""
    if set(map(type, units)) <= {list} and set(map(len, units)) <= {width}:
        return
    for index, unit in enumerate(units):
        if type(unit) is not list or len(unit) != width:
            raise _damaged(number + index, f"not a unit of {width - 1} values")


def _damaged(number: int, cause: str) -> InvalidFile:
    return InvalidFile(
        f"the unit file is damaged at line {number}: {cause}",
        next="Retry the source file, so that its unit files are made again.",
        where=[Trouble(line=number, cause=cause)],
    )


def _fields_line(fields: tuple[str, ...], recipe: str = "") -> bytes:
    said = {"fields": fields, "recipe": recipe} if recipe else {"fields": fields}
    return orjson.dumps(said, option=orjson.OPT_APPEND_NEWLINE)


def _lines(rows: Sequence[Sequence[Any]]) -> bytes:
    """Give one line per row. In one go where no value holds what separates rows: half the time of one by one."""
    whole = _dumped(rows)
    if whole.count(b"],[") == len(rows) - 1 and b"null" not in whole:
        return whole[1:-1].replace(b"],[", b"]\n[") + b"\n"
    return b"\n".join(map(_line, rows)) + b"\n"


def _line(row: Sequence[Any]) -> bytes:
    line = _dumped(row)
    if b"null" in line and not _finite(row):
        raise ValueError("cannot be written as JSON: not a finite number")
    return line


def _dumped(value: Sequence[Any]) -> bytes:
    try:
        return orjson.dumps(value, _said_otherwise, orjson.OPT_PASSTHROUGH_DATACLASS)
    except TypeError as error:
        raise ValueError(f"cannot be written as JSON: {error.__cause__ or error}") from error


def _said_otherwise(value: Any) -> str:
    """Give the text of a value that JSON has no word for."""
    if isinstance(value, Decimal) and value.is_finite():
        return str(value)
    raise ValueError(f"a value of type {type(value).__name__} has no place in a unit")


def _finite(value: Any) -> bool:
    """Say whether every number in it is one; JSON has no word for the others and would say null."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_finite, value.values()))
    return not isinstance(value, list | tuple) or all(map(_finite, value))
