"""Choosing files on the command line: by path, given name, id or its start, pipeline, stage, location, cause."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from etl.cli import common
from etl.config.reading import Config
from etl.errors import Final
from etl.files import layout as layouts
from etl.files import names, reasons, survey
from etl.files.layout import Layout
from etl.model import Place, Status

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedFile:
    """A file in a `failed/` folder with its reason."""

    place: Place
    name: str
    reason: dict[str, Any]

    @property
    def summary(self) -> str:
        """Why, in one line."""
        return str(self.reason.get("summary") or "no reason file lies beside it")


def options(function: Function) -> Function:
    """Give a verb the options that narrow down failed files."""
    for option in (
        click.option("--cause", help="Only those whose summary or cause contains this text."),
        click.option("--location", help="Only this location's."),
        click.option(
            "--stage", type=click.Choice(["extract", "transform", "load"]), help="Only this stage's."
        ),
        click.option("--pipeline", "-p", help="Only this pipeline's."),
    ):
        function = option(function)
    return function


def failed(config: Config, tree: Layout, pipeline: str | None) -> list[FailedFile]:
    """Give everything that lies in a `failed/` folder."""
    found = []
    for name in common.chosen(config, pipeline):
        for place in layouts.places(name, config.pipelines[name].spec.load.locations):
            found += [
                FailedFile(place=place, name=file, reason=reasons.read(tree, place, file))
                for file in survey.listing(tree, place, Status.FAILED)
            ]
    return found


def narrowed(
    found: Sequence[FailedFile],
    files: Sequence[str],
    stage: str | None,
    location: str | None,
    cause: str | None,
) -> list[FailedFile]:
    """Keep what matches everything that was asked for; a FILE that matches nothing is an error."""
    for wanted in files:
        if not any(matches(one.place.pipeline, one.name, wanted) for one in found):
            raise Final(f"no failed file matches {wanted!r}", next="see them with: etl failed")
    return [
        one
        for one in found
        if (not files or any(matches(one.place.pipeline, one.name, wanted) for wanted in files))
        and (not stage or one.place.stage == stage)
        and (not location or one.place.location == location)
        and (not cause or cause.lower() in f"{one.summary} {one.reason.get('cause', '')}".lower())
    ]


def matches(pipeline: str, name: str, wanted: str) -> bool:
    """Tell whether a file is meant by a path, a given name, a full name, an id or the start of one."""
    last = wanted.rstrip("/").rpartition("/")[2]
    file = names.parse(pipeline, name)
    if last == name:
        return True
    return file is not None and (file.given == last or (len(last) >= 4 and file.id.startswith(last)))
