"""Unit files: what is written is what is read, in bounded blocks, and damage is named by its line."""

from __future__ import annotations

import io
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.errors import InvalidFile
from etl.formats.units import UnitWriter, check, read_blocks

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
shapes = st.lists(st.text(), unique=True, max_size=3).map(tuple)
tables = shapes.flatmap(
    lambda fields: st.tuples(
        st.just(fields),
        st.lists(st.tuples(st.integers(1, 10**6), *[json_values] * len(fields)).map(list), max_size=4),
    )
)


def written(fields: tuple[str, ...], rows: list[list[Any]]) -> bytes:
    handle = io.BytesIO()
    UnitWriter(handle).write(fields, rows)
    return handle.getvalue()


def test_a_unit_file_looks_as_documented() -> None:
    handle = io.BytesIO()
    writer = UnitWriter(handle)
    writer.write(("sku", "price"), [[2, "A-1", 9.5], (3, "Ä", None)])
    writer.write(("sku", "price"), [[4, "A-2", 1]])
    writer.write(("sku",), [[5, "A-3"]])
    assert handle.getvalue().decode().splitlines() == [
        '{"fields":["sku","price"]}',
        '[2,"A-1",9.5]',
        '[3,"Ä",null]',
        '[4,"A-2",1]',
        '{"fields":["sku"]}',
        '[5,"A-3"]',
    ]
    assert writer.count == 4


@given(st.lists(tables, max_size=4))
def test_what_is_written_is_what_is_read(written: list[tuple[tuple[str, ...], list[list[Any]]]]) -> None:
    handle = io.BytesIO()
    writer = UnitWriter(handle)
    for fields, rows in written:
        writer.write(fields, rows)
    handle.seek(0)
    found = [(block.fields, list(row)) for block in read_blocks(handle, rows=2) for row in block.rows]
    assert found == [(fields, row) for fields, rows in written for row in rows]
    assert writer.count == len(found)


def test_blocks_are_bounded() -> None:
    handle = io.BytesIO(written(("a",), [[line, line] for line in range(1, 25_001)]))
    blocks = list(read_blocks(handle))
    assert max(len(block.rows) for block in blocks) <= 10_000
    assert [row[0] for block in blocks for row in block.rows] == list(range(1, 25_001))


def test_an_empty_unit_file_has_no_blocks() -> None:
    assert list(read_blocks(io.BytesIO(b""))) == []
    assert list(read_blocks(io.BytesIO(written(("a",), [])))) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal("9.50"), b'"9.50"'),
        (date(2026, 11, 18), b'"2026-11-18"'),
        (datetime(2026, 11, 18, 7, 5, tzinfo=UTC), b'"2026-11-18T07:05:00+00:00"'),
        (UUID(int=7), b'"00000000-0000-0000-0000-000000000007"'),
        (2**63, b"9223372036854775808"),
    ],
)
def test_values_without_a_word_in_json_are_written_as_text(value: Any, text: bytes) -> None:
    assert written(("a",), [[1, value]]).endswith(b"[1," + text + b"]\n")


@dataclass
class _Thing:
    size: float


deep: list[Any] = []
for _ in range(300):
    deep = [deep]


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        [1, {"a": float("nan")}],
        2**70,
        b"bytes",
        {1, 2},
        {1: 2},
        Decimal("NaN"),
        "\ud800",
        _Thing(1.0),
        object(),
        deep,
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_that_json_cannot_say_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"cannot be written as JSON: \w"):
        check({"a": value})
    with pytest.raises(ValueError, match=r"cannot be written as JSON: \w"):
        UnitWriter(io.BytesIO()).write(("a",), [[1, "before"], [2, value]])


def test_text_that_looks_like_the_end_of_a_row_is_text() -> None:
    rows = [[1, "],["], [2, "a"], [3, "]\n["], [4, "null"]]
    assert [row for block in read_blocks(io.BytesIO(written(("a",), rows))) for row in block.rows] == rows


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b'[1,"a"]\n', 1),
        (b'{"fields":["a"]}\n[1,"a"]\n[2,"b', 3),
        (b'{"fields":["a"]}\n[1,"a"]\n[2]\n', 3),
        (b'{"fields":["a"]}\n"x"\n', 2),
        (b'{"fields":["a"]}\n[1,2]\n{"sku":1}\n', 3),
        (b'{"fields":["a"]}\n[1,2]\n{"fields":["a","b"]}\n[1,2,3]\n[1,2]\n', 5),
    ],
)
def test_a_damaged_unit_file_is_refused_with_the_line(data: bytes, line: int) -> None:
    with pytest.raises(InvalidFile, match=f"damaged at line {line}:"):
        list(read_blocks(io.BytesIO(data)))
    with pytest.raises(InvalidFile, match=f"damaged at line {line}:"):
        list(read_blocks(io.BytesIO(data), rows=1))
