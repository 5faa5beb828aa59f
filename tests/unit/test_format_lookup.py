"""A format is found by its name, and what an operator wrote for it is checked."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from etl.config import schema
from etl.config.reading import Origin
from etl.errors import ConfigError
from etl.formats.format import FORMATS, open_format

ORIGIN = Origin(
    file=Path("pipelines/prices.yaml"),
    lines={
        ("transform", "read"): 4,
        ("transform", "read", "format"): 5,
        ("transform", "read", "delimeter"): 6,
    },
)


def written(**options: object) -> schema.Read:
    return schema.Read.model_validate(options)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_every_format_opens_by_its_name(name: str) -> None:
    content = {"csv": b"a\n1\n", "tsv": b"a\n1\n", "jsonl": b'{"a":"1"}\n', "json": b'[{"a":"1"}]'}[name]
    found = open_format(written(format=name, max_unpacked="1GB"), ORIGIN)
    [batch] = found.open(io.BytesIO(content)).batches()
    assert len(batch.rows) == 1
    assert found.raw_rows == (batch.raw is not None)


def test_an_unknown_format_is_answered_with_the_near_word() -> None:
    with pytest.raises(ConfigError, match=r"prices.yaml:5: transform.read.format: .*did you mean 'csv'\?"):
        open_format(written(format="cvs"), ORIGIN)


def test_an_unknown_option_is_answered_with_the_near_word() -> None:
    with pytest.raises(ConfigError, match=r"prices.yaml:6: transform.read.delimeter: .*'delimiter'"):
        open_format(written(format="csv", delimeter=";"), ORIGIN)


def test_an_option_keeps_what_was_written() -> None:
    found = open_format(written(format="csv", delimiter=";"), ORIGIN)
    assert found.open(io.BytesIO(b"a;b\n")).columns == ("a", "b")
