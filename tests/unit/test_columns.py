"""Columns: a file's header becomes the fields of a unit, or the file is refused before its first row."""

from __future__ import annotations

from typing import Any

import pytest

from etl.config.schema import Transform
from etl.errors import InvalidFile
from etl.stages import columns


def spec(**options: Any) -> Transform:
    return Transform.model_validate({"read": "csv", **options})


def test_without_anything_said_a_header_is_taken_as_it_is() -> None:
    plan = columns.of_header(("a", "b"), spec())
    assert (plan.fields, plan.places) == (("a", "b"), None)
    rows = [["1", "2"]]
    assert plan.pick(rows) is rows


def test_a_field_takes_the_first_of_its_headers_that_is_there() -> None:
    mapped = spec(columns={"sku": ["Artikel-Nr.", "ArtNr"], "price": "Preis"})
    assert columns.of_header(("ArtNr", "Preis"), mapped).fields == ("sku", "price")
    assert columns.of_header(("ArtNr", "Artikel-Nr.", "Preis"), mapped).fields == ("ArtNr", "sku", "price")


def test_unknown_columns_are_kept_dropped_or_refused() -> None:
    header = ("x", "Preis", "y")
    assert columns.of_header(header, spec(columns={"price": "Preis"})).fields == ("x", "price", "y")
    dropping = columns.of_header(header, spec(columns={"price": "Preis"}, unknown_columns="drop"))
    assert dropping.fields == ("price",)
    assert dropping.pick([["1", "2", "3"]]) == [("2",)]
    with pytest.raises(InvalidFile, match="unknown column 'x', 'y'"):
        columns.of_header(header, spec(columns={"price": "Preis"}, unknown_columns="fail"))


def test_columns_named_in_the_schema_are_known() -> None:
    schema = {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
    plan = columns.of_header(("a", "extra", "b"), spec(schema=schema, unknown_columns="drop"))
    assert plan.fields == ("a", "b")
    assert plan.pick([["1", "x", "2"]]) == [("1", "2")]


def test_all_missing_columns_are_named_at_once_with_the_headers_they_may_have() -> None:
    wanted = spec(columns={"sku": ["SKU", "Item"], "price": "Price"}, schema={"required": ["sku", "price"]})
    with pytest.raises(InvalidFile) as refusal:
        columns.of_header(("Name",), wanted)
    assert "'sku' ('SKU' or 'Item'), 'price' ('Price')" in refusal.value.summary
    assert "'Name'" in refusal.value.summary
    assert [trouble.field for trouble in refusal.value.where] == ["sku", "price"]


def test_with_a_handler_only_mapped_columns_must_be_there() -> None:
    wanted = spec(handler="m:f", columns={"sku": "SKU"}, schema={"required": ["sku", "made_by_the_handler"]})
    assert columns.of_header(("SKU",), wanted).fields == ("sku",)
    with pytest.raises(InvalidFile, match="missing column 'sku'"):
        columns.of_header(("Name",), wanted)


def test_two_columns_never_become_one_field() -> None:
    mapped = spec(columns={"price": ["Preis", "price"]})
    told = "the columns 'Preis' and 'price' would both be 'price'"
    with pytest.raises(InvalidFile, match=told):
        columns.of_header(("Preis", "price"), mapped)
    with pytest.raises(ValueError, match=told):
        columns.of_record({"Preis": 1, "price": 2}, mapped)


def test_a_record_is_renamed_and_thinned_like_a_table() -> None:
    record = {"Preis": 1, "x": 2}
    assert columns.of_record(record, spec()) is record
    assert columns.of_record(record, spec(columns={"price": "Preis"})) == {"price": 1, "x": 2}
    assert columns.of_record(record, spec(columns={"price": "Preis"}, unknown_columns="drop")) == {"price": 1}
    with pytest.raises(ValueError, match="unknown column 'x'"):
        columns.of_record(record, spec(columns={"price": "Preis"}, unknown_columns="fail"))
