"""The schema of units: what text is read as, what is refused and why, for tables and for single units."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.stages.schema import UnitSchema, UnitTroubles

PRICES = {
    "required": ["sku", "price"],
    "properties": {
        "sku": {"type": "string"},
        "price": {"type": "number"},
        "qty": {"type": "integer"},
        "active": {"type": ["boolean", "null"]},
        "day": {"type": "string", "format": "date"},
    },
}
FIELDS = ("sku", "price", "qty", "active", "day")


def outcome(rule: dict[str, Any], text: str, required: bool = True) -> Any:
    """Give what one cell becomes, or the cause for which it is refused."""
    schema = UnitSchema.compile({"properties": {"x": rule}, "required": ["x"] if required else []})
    good, bad = schema.table(("x",), [7], [[text]])
    return good[0][1] if good else bad[0][1].cause


def test_a_table_is_read_as_its_types() -> None:
    good, bad = UnitSchema.compile(PRICES).table(
        FIELDS, [2, 3], [["A", "9.5", "3", "yes", "2026-11-18"], ["B", " 1e2 ", "", "", ""]]
    )
    assert [tuple(row) for row in good] == [
        (2, "A", 9.5, 3, True, "2026-11-18"),
        (3, "B", 100.0, None, None, None),
    ]
    assert bad == []


def test_a_bad_row_is_named_by_index_line_field_and_cause() -> None:
    good, bad = UnitSchema.compile(PRICES).table(
        FIELDS,
        [2, 3, 4],
        [["A", "abc", "1", "1", ""], ["B", "1", "1", "1", ""], ["C", "", "1.5", "1", "18.11.2026"]],
    )
    assert [row[0] for row in good] == [3]
    assert [(index, trouble.line, trouble.field) for index, trouble in bad] == [
        (0, 2, "price"),
        (2, 4, "price"),
    ]
    assert bad[0][1].cause == "'abc' is not a number"
    assert bad[1][1].cause == (
        "empty, but required; also qty: '1.5' is not an integer; "
        "also day: '18.11.2026' is not a date (YYYY-MM-DD)"
    ).replace("; also day", "; day")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("integer", "-3", -3),
        ("integer", " +12 ", 12),
        ("integer", "007", 7),
        ("integer", str(2**63 - 1), 2**63 - 1),
        ("number", "-.5", -0.5),
        ("number", "1E3", 1000.0),
        ("boolean", "TRUE", True),
        ("boolean", " n ", False),
        ("boolean", "0", False),
        ("string", " kept ", " kept "),
        ("string", "", ""),
    ],
)
def test_text_is_read_as_the_type(kind: str, text: str, value: Any) -> None:
    found = outcome({"type": kind}, text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("kind", "text", "cause"),
    [
        ("integer", "1_000", "'1_000' is not an integer"),
        ("integer", "1.0", "'1.0' is not an integer"),
        ("integer", "٣", "'٣' is not an integer"),
        ("integer", "1\t", "'1\\t' is not an integer"),
        ("integer", "\ud800", "'\\ud800' is not an integer"),
        ("integer", str(2**63), f"'{2**63}' does not fit into 64 bits"),
        ("integer", "9" * 100, f"'{'9' * 78}… does not fit into 64 bits"),
        ("number", "nan", "'nan' is not a number"),
        ("number", "Infinity", "'Infinity' is not a number"),
        ("number", "1_0", "'1_0' is not a number"),
        ("number", "0x1p3", "'0x1p3' is not a number"),
        ("number", "1,5", "'1,5' is not a number"),
        ("number", "1e999", "'1e999' is too large for a number"),
        ("boolean", "maybe", "'maybe' is not true or false"),
        ("integer", "  ", "empty, but required"),
        ("number", "", "empty, but required"),
    ],
)
def test_text_that_does_not_fit_is_refused_with_its_cause(kind: str, text: str, cause: str) -> None:
    assert outcome({"type": kind}, text) == cause


@pytest.mark.parametrize(
    ("form", "text", "value"),
    [
        ("date", "2026-11-18", "2026-11-18"),
        ("date", " 2026-11-18 ", "2026-11-18"),
        ("date-time", "2026-11-18 07:05", "2026-11-18T07:05:00"),
        ("date-time", "2026-11-18T07:05:00Z", "2026-11-18T07:05:00+00:00"),
        ("date-time", "2026-11-18", "2026-11-18T00:00:00"),
    ],
)
@pytest.mark.parametrize("more", [{}, {"minLength": 1}], ids=["settled", "validated"])
def test_dates_and_times_are_checked_and_written_alike(
    form: str, text: str, value: str, more: dict[str, Any]
) -> None:
    rule = {"type": "string", "format": form, **more}
    assert outcome(rule, text) == value
    schema = UnitSchema.compile({"properties": {"x": rule}})
    assert schema.unit({"x": text}, 1) == {"x": value}


@pytest.mark.parametrize("text", ["2026-02-30", "20261118", "2026-W01-1", "18.11.2026", "2026-11-18x", "x"])
def test_a_date_that_is_none_is_refused(text: str) -> None:
    assert outcome({"type": "string", "format": "date"}, text) == f"{text!r} is not a date (YYYY-MM-DD)"


@pytest.mark.parametrize(
    ("rule", "required", "value"),
    [
        ({"type": "number"}, False, None),
        ({"type": ["number", "null"]}, True, None),
        ({"type": ["string", "null"]}, True, None),
        ({"type": "string"}, False, ""),
        ({"type": "string", "format": "date"}, False, None),
        ({"type": "string", "format": "date"}, True, "empty, but required"),
        ({"type": ["integer", "string"]}, True, ""),
        ({"type": "integer", "minimum": 3}, False, None),
        ({"type": "integer", "enum": [3]}, False, None),
        ({"type": "string", "minLength": 1}, True, "'' is shorter than 1 character"),
        ({}, True, ""),
    ],
)
def test_an_empty_text_means_null_where_text_means_nothing(
    rule: dict[str, Any], required: bool, value: Any
) -> None:
    assert outcome(rule, "", required) == value


def test_the_first_type_that_fits_is_taken() -> None:
    rule = {"type": ["string", "integer", "boolean"]}
    assert [outcome(rule, text) for text in ("7", "yes", "other")] == [7, True, "other"]
    assert outcome({"type": ["integer", "boolean"]}, "x") == "'x' is not an integer or true or false"


@given(st.lists(st.text("0159+-_. eEnaif٣\t", max_size=6), min_size=1, max_size=6))
@pytest.mark.parametrize("kind", ["integer", "number", "boolean", "date", "date-time"])
def test_a_cell_means_the_same_whatever_its_neighbours_are(kind: str, cells: list[str]) -> None:
    rule = {"type": "string", "format": kind} if kind.startswith("date") else {"type": kind}
    schema = UnitSchema.compile({"properties": {"x": rule}})
    good, bad = schema.table(("x",), range(len(cells)), [[cell] for cell in cells])
    together = {row[0]: row[1] for row in good} | {index: trouble.cause for index, trouble in bad}
    assert together == {index: outcome(rule, cell, required=False) for index, cell in enumerate(cells)}


def test_the_whole_schema_counts_after_coercion() -> None:
    schema = UnitSchema.compile(
        {
            "properties": {"qty": {"type": "integer", "minimum": 1}, "kind": {"enum": ["a", "b"]}},
            "additionalProperties": False,
        }
    )
    good, bad = schema.table(("qty", "kind"), [2, 3, 4, 5], [["1", "a"], ["0", "a"], ["x", "c"], ["2", "c"]])
    assert [tuple(row) for row in good] == [(2, 1, "a")]
    assert [(index, trouble.line, trouble.field) for index, trouble in bad] == [
        (1, 3, "qty"),
        (2, 4, "qty"),
        (3, 5, "kind"),
    ]
    assert bad[0][1].cause == "0 is less than the minimum of 1"
    assert schema.table(("other",), [2], [["1"]])[1][0][1].cause.startswith("Additional properties")


def test_references_inside_the_schema_are_followed() -> None:
    schema = UnitSchema.compile(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "properties": {"a": {"$ref": "#/definitions/short"}},
            "definitions": {"short": {"maxLength": 2}},
        }
    )
    good, bad = schema.table(("a",), [1, 2], [["ab"], ["abc"]])
    assert (len(good), len(bad)) == (1, 1)


def test_a_required_column_that_is_not_there_makes_every_row_bad() -> None:
    schema = UnitSchema.compile(PRICES)
    assert schema.required == ("sku", "price")
    good, bad = schema.table(("sku",), [2, 3], [["A"], ["B"]])
    assert good == []
    assert [(trouble.field, trouble.cause) for _, trouble in bad] == [("price", "missing, but required")] * 2


def test_no_schema_leaves_text_as_it_is() -> None:
    schema = UnitSchema.compile({})
    assert schema.table(("a", "b"), [2], [["1", ""]]) == ([(2, "1", "")], [])
    assert schema.table(("a",), [], []) == ([], [])
    assert schema.unit({"a": {"b": [1]}}, 1) == {"a": {"b": [1]}}


def test_a_unit_is_coerced_and_keeps_what_the_schema_does_not_name() -> None:
    unit = UnitSchema.compile(PRICES).unit({"sku": "A", "price": "9.5", "qty": 3, "more": [1], "day": ""}, 7)
    assert unit == {"sku": "A", "price": 9.5, "qty": 3, "more": [1], "day": None}


def test_a_handler_may_make_dates_and_decimals() -> None:
    schema = UnitSchema.compile(
        {"properties": {"at": {"type": "string", "format": "date-time"}, "price": {"type": "number"}}}
    )
    unit = schema.unit({"at": datetime(2026, 11, 18, 7), "price": Decimal("9.5"), "on": date(2026, 1, 2)}, 1)
    assert unit == {"at": "2026-11-18T07:00:00", "price": 9.5, "on": "2026-01-02"}


def test_all_that_is_wrong_with_a_unit_is_said() -> None:
    with pytest.raises(UnitTroubles) as caught:
        UnitSchema.compile(PRICES).unit({"price": "x", "qty": 1.5, "active": [1]}, 7)
    assert [(trouble.line, trouble.field, trouble.cause) for trouble in caught.value.troubles] == [
        (7, "price", "'x' is not a number"),
        (7, "sku", "missing, but required"),
        (7, "qty", '1.5 is not of type "integer"'),
        (7, "active", '[1] is not of types "null", "boolean"'),
    ]


def test_a_trouble_inside_a_value_says_where() -> None:
    schema = UnitSchema.compile(
        {"properties": {"items": {"type": "array", "items": {"properties": {"n": {"type": "integer"}}}}}}
    )
    with pytest.raises(UnitTroubles) as caught:
        schema.unit({"items": [{"n": 1}, {"n": "x" * 200}]}, 7)
    [trouble] = caught.value.troubles
    assert trouble.field == "items"
    assert trouble.cause.startswith("at 1.n: 'xxx")
    assert trouble.cause.endswith('… is not of type "integer"')
    assert len(trouble.cause) < 130


def test_a_value_that_no_schema_knows_is_a_trouble_not_a_crash() -> None:
    with pytest.raises(UnitTroubles, match="cannot be held against the schema"):
        UnitSchema.compile(PRICES).unit({"sku": "A", "price": b"bytes"}, 7)


def test_redacted_values_show_in_no_cause() -> None:
    secret = "DE00CANARY"
    schema = UnitSchema.compile(
        {
            "properties": {"iban": {"type": "integer"}, "code": {"type": "string", "maxLength": 3}},
            "not": {"required": ["flag"]},
        },
        redact=["iban", "code"],
    )
    _, bad = schema.table(("iban", "code", "flag"), [1, 2], [[secret, "x", ""], ["1", secret, "x"]])
    assert bad[0][1].cause == "the value is not an integer"
    with pytest.raises(UnitTroubles) as caught:
        schema.unit({"iban": secret, "code": secret, "flag": 1}, 1)
    assert len(caught.value.troubles) == 3
    assert secret not in str(caught.value) + str(bad)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "array"}, "must be of type object"),
        ({"properties": {"a": {"type": "int"}}}, r"at properties\.a\.type: 'int'"),
        ({"properties": []}, "at properties"),
        ({"required": "sku"}, "at required"),
        ({"properties": {"a": {"pattern": "("}}}, "at properties.a.pattern"),
        ({"properties": {"a": {"default": date(2026, 1, 1)}}}, "not a valid JSON Schema"),
        ({"properties": {"a": {"$ref": "http://127.0.0.1:9/x"}}}, "would have to be fetched"),
    ],
)
def test_a_schema_that_is_none_is_refused_with_a_sentence(schema: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        UnitSchema.compile(schema)
