"""Choosing files on the command line: by path, given name, id or its start, place, cause, recipe and age.

Only what is typed; `services.triage` knows what it means. Called by verbs that act on failed files, and by views.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import wraps
from typing import Any

import click

from etl.cli import common, one
from etl.config.reading import Config
from etl.files import names, reasons, survey
from etl.files.layout import Layout
from etl.model import Place, Stage, Status
from etl.services.triage import FailedFile, Wanted


def options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb FILES and the options that narrow down failed files, handed to it as one `wanted`."""

    @wraps(function)
    def bundled(**given: Any) -> Any:
        wanted = Wanted(**{part.name: given.pop(part.name) for part in fields(Wanted)})
        if not wanted:
            raise click.UsageError(
                "name files, or choose with --pipeline, --stage, --location, --cause, --recipe, --older-than or "
                "--newer-than"
            )
        return function(wanted=wanted, **given)

    stages = click.Choice(["extract", "transform", "load"])
    for option in (
        click.option("--newer-than", type=common.DURATION, help="Only those that failed within this time."),
        click.option(
            "--older-than", type=common.DURATION, help="Only those that failed longer ago than this."
        ),
        click.option("--recipe", help="Only those that failed under a recipe that starts like this."),
        click.option("--cause", help="Only those of this cause: its word, or a text in what is said."),
        click.option("--location", help="Only this location's."),
        click.option("--stage", type=stages, help="Only this stage's."),
        click.option("--pipeline", "-p", help="Only this pipeline's."),
        click.argument("files", nargs=-1),
    ):
        bundled = option(bundled)
    return bundled


def with_reasons(tree: Layout, found: Iterable[tuple[Place, str]]) -> list[FailedFile]:
    """Give failed files with what lies beside them."""
    return [
        FailedFile(place=place, name=name, reason=reasons.read(tree, place, name)) for place, name in found
    ]


def deliveries(config: Config, tree: Layout, wanted: str) -> list[tuple[str, str]]:
    """Give pipeline and id of the deliveries that are meant; folders are listed only for a name without an id."""
    last = wanted.rstrip("/").rpartition("/")[2]
    found = {
        (name, file.id) for name in config.pipelines if (file := names.parse(name, last)) is not None
    } or {(source.pipeline, source.id) for source in one.look_up(config, last)}
    return sorted(found or _given(config, tree, last))


def _given(config: Config, tree: Layout, given: str) -> set[tuple[str, str]]:
    """Look for source files by the name they were given."""
    return {
        (pipeline, file.id)
        for pipeline in config.pipelines
        for stage in (Stage.EXTRACT, Stage.TRANSFORM)
        for status in Status
        for name in survey.listing(tree, Place(pipeline=pipeline, stage=stage), status)
        if (file := names.parse(pipeline, name)) is not None and file.is_source
        if given in (name, file.given) or name == str(names.christen(given, file.id))
    }
