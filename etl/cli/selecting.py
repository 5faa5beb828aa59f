"""Choosing files on the command line: by path, given name, id or its start, pipeline, stage, location, cause."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any

import click

from etl.cli import common, one
from etl.config.reading import Config
from etl.errors import Final
from etl.files import layout as layouts
from etl.files import names, reasons, survey
from etl.files.layout import Layout
from etl.model import Place, Stage, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedFile:
    """A file in a `failed/` folder with its reason."""

    place: Place
    name: str
    reason: dict[str, Any]

    @property
    def summary(self) -> str:
        """Why, in one line."""
        return reasons.summary(self.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which failed files a command is about."""

    files: tuple[str, ...]
    pipeline: str | None
    stage: str | None
    location: str | None
    cause: str | None

    def among(self, found: Sequence[FailedFile]) -> list[FailedFile]:
        """Keep what matches everything that was asked for; a FILE that matches nothing is an error."""
        for file in self.files:
            if not any(matches(one.place.pipeline, one.name, file) for one in found):
                raise Final(f"no failed file matches {file!r}", next="see them with: etl failed")
        return [one for one in found if self._means(one)]

    def _means(self, one: FailedFile) -> bool:
        place = one.place
        return (
            (not self.files or any(matches(place.pipeline, one.name, file) for file in self.files))
            and (not self.stage or place.stage == self.stage)
            and (not self.location or place.location == self.location)
            and (
                not self.cause or self.cause.lower() in f"{one.summary} {one.reason.get('cause', '')}".lower()
            )
        )


def options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb FILES and the options that narrow down failed files, handed to it as one `wanted`."""

    @wraps(function)
    def bundled(**given: Any) -> Any:
        wanted = Wanted(**{part.name: given.pop(part.name) for part in fields(Wanted)})
        if not any((wanted.files, wanted.pipeline, wanted.stage, wanted.location, wanted.cause)):
            raise click.UsageError("name files, or choose with --pipeline, --stage, --location or --cause")
        return function(wanted=wanted, **given)

    stages = click.Choice(["extract", "transform", "load"])
    for option in (
        click.option("--cause", help="Only those whose summary or cause contains this text."),
        click.option("--location", help="Only this location's."),
        click.option("--stage", type=stages, help="Only this stage's."),
        click.option("--pipeline", "-p", help="Only this pipeline's."),
        click.argument("files", nargs=-1),
    ):
        bundled = option(bundled)
    return bundled


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


def matches(pipeline: str, name: str, wanted: str) -> bool:
    """Tell whether a file is meant by a path, a given name, a full name, an id or the start of one."""
    last = wanted.rstrip("/").rpartition("/")[2]
    file = names.parse(pipeline, name)
    if last == name:
        return True
    return file is not None and (file.given == last or (len(last) >= 4 and file.id.startswith(last)))
