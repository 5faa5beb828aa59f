"""What is expected today, below the morning screen: by which hour, whether it came, and what is wrong with it.

Asks the folders, so that it is right with no service running. Called by `etl files --today`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

from etl.cli import common
from etl.config.reading import Config
from etl.files import expected as records
from etl.files import names
from etl.files.layout import Layout
from etl.services import expectations
from etl.services import records as living
from etl.services.expectations import Standing

#: sentences of one kind that are told one by one.
_FEW = 3


def today(config: Config, pipelines: Sequence[str]) -> list[Standing]:
    """Give how each expectation of these pipelines stands today, the first hour first.

    While a courier lives its records are seconds old; without one the notes are looked through.
    """
    tree, now, found = Layout(config.data), time.time(), []
    kept = any(one.name == "courier" for one in living.living(config.data))
    for name in pipelines:
        pipeline = config.pipelines[name]
        for one in pipeline.spec.expect:
            record = records.read(tree, name, one.key)
            if record is None or not kept:
                record = expectations.looked_at(tree, pipeline, one, record, now)
            found.append(expectations.today(tree, pipeline, one, record, now))
    return sorted(
        (one for one in found if one is not None), key=lambda one: (one.due, one.pipeline, one.name)
    )


def facts(one: Standing) -> dict[str, Any]:
    """Give one expectation as facts; it is told from a file by its key `expected`."""
    return {
        "expected": one.name,
        "pipeline": one.pipeline,
        "day": one.day,
        "by": one.by,
        "due": one.due,
        "state": one.state,
        "first": one.first,
        "came": [
            {"id": known.id, "name": known.given, "at": known.at, "rows": known.rows} for known in one.came
        ],
        "wrong": [{"kind": kind, "text": text} for kind, texts in one.wrong.items() for text in texts],
    }


def show(found: Sequence[Standing]) -> None:
    """Print a line for each expectation, what is wrong below it, and how many came."""
    if not found:
        return
    several = len({one.pipeline for one in found}) > 1
    click.echo("\nexpected today")
    for one in found:
        label = names.printable(f"{one.pipeline}/{one.name}" if several else one.name)
        click.echo(f"  {label}  by {one.by}  {_state(one)}")
        for texts in one.wrong.values():
            for text in texts[:_FEW]:
                common.print_wrapped(names.printable(text), indent=4)
            if len(texts) > _FEW:
                click.echo(f"    … and {len(texts) - _FEW:,} more, with --json")
    came = sum(one.state in ("came", "late") for one in found)
    word = "file" if len(found) == 1 else "files"
    click.echo(f"{came} of {len(found)} expected {word} came")


def _state(one: Standing) -> str:
    if one.first is None:
        return click.style(one.state, fg="red" if one.state == "missing" else None)
    taken = "" if one.came else ", not taken yet"
    return f"{click.style(one.state, fg='yellow' if one.wrong else 'green')} {common.when(one.first)}{taken}"
