"""The reference is complete: verbs, their options, every key an operator may write, every field of a reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import click
import pytest
from pydantic import BaseModel

from etl.cli.verbs import VERBS, etl
from etl.config.schema import Pipeline
from etl.config.settings import Settings
from etl.formats.format import FORMATS
from etl.locations.location import KINDS
from etl.model import Reason, Trouble

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference.md"


@cache
def in_backticks() -> str:
    """Give everything the reference puts in backticks, one span a line."""
    text = re.sub(r"^```.*?^```", "", REFERENCE.read_text(), flags=re.DOTALL | re.MULTILINE)
    return "\n".join(re.findall(r"`([^`\n]+)`", text))


def is_mentioned(word: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", in_backticks()) is not None


def options() -> Iterator[str]:
    """Give `verb --option` for every option there is."""
    for verb in VERBS:
        command = etl.get_command(click.Context(etl), verb)
        assert command is not None
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                yield f"{verb} {max(parameter.opts, key=len)}"
    yield from (f"etl {max(one.opts, key=len)}" for one in etl.params if isinstance(one, click.Option))


def keys(model: type[BaseModel]) -> Iterator[str]:
    """Give every key of a model and of the models below it, as an operator writes it."""
    for name, field in model.model_fields.items():
        yield field.alias or name
        for below in _models(field.annotation):
            yield from keys(below)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def format_keys() -> set[str]:
    found = set()
    for where in FORMATS.values():
        module, _, name = where.partition(":")
        found |= set(keys(getattr(import_module(f"etl.formats.{module}"), name)))
    return found


def location_keys() -> set[str]:
    return {key for module in KINDS.values() for key in keys(import_module(module).Options)}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_in_the_reference(verb: str) -> None:
    assert is_mentioned(f"etl {verb}")


def test_every_option_of_every_verb_is_in_the_reference() -> None:
    assert [option for option in options() if not is_mentioned(option.split()[1])] == []


def test_every_setting_is_in_the_reference() -> None:
    assert [key for key in keys(Settings) if not is_mentioned(key)] == []


def test_every_key_of_a_pipeline_is_in_the_reference() -> None:
    assert [key for key in sorted(set(keys(Pipeline))) if not is_mentioned(key)] == []


def test_every_format_and_its_options_are_in_the_reference() -> None:
    assert [key for key in sorted({*FORMATS, *format_keys()}) if not is_mentioned(key)] == []


def test_every_kind_of_location_and_its_options_are_in_the_reference() -> None:
    assert [key for key in sorted({*KINDS, *location_keys()}) if not is_mentioned(key)] == []


def test_every_field_of_a_reason_is_in_the_reference() -> None:
    reason = Reason(summary="x", next="y", about={"owner": "z"}).as_dict()
    trouble = Trouble(cause="x", line=1, field="y", unit=2).as_dict()
    assert [key for key in [*reason, *trouble] if not is_mentioned(key)] == []
