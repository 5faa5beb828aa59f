"""Are the folders there, on one file system, and writable? Without that no promise can be kept.

Looks at folders and never into one; a fix makes what is missing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from etl import disk
from etl.app import App
from etl.files import layout as layouts
from etl.files import survey
from etl.model import Place, Stage, Status
from etl.services.fsck.finding import Finding


def missing(app: App, pipeline: str) -> Iterator[Finding]:
    """P1: every folder is there; what should be moved into one that is not stays behind."""
    if not (app.layout.data / pipeline).is_dir():
        return  # nothing was ever dropped, and the first to need it makes it
    for place, folder in _folders(app, pipeline):
        if not folder.is_dir():
            yield Finding(
                promise="P1",
                check="folder-missing",
                place=place,
                name=_shown(app, folder),
                what="is not there",
                next="`etl fsck --fix` makes it; the files that lay in it are told one by one",
                fix=lambda folder=folder: _make(folder),  # type: ignore[misc]
            )


def _make(folder: Path) -> str:
    disk.make_folder(folder)
    return "made it"


def on_another_file_system(app: App, pipeline: str) -> Iterator[Finding]:
    """P4: every move is a rename, and a rename works within one file system only."""
    for place, folder in _folders(app, pipeline):
        if folder.is_dir() and folder.stat().st_dev != app.layout.data.stat().st_dev:
            yield Finding(
                promise="P4",
                check="folder-elsewhere",
                place=place,
                name=_shown(app, folder),
                what="lies on another file system than the data folder, and every move is a rename",
                next=f"put the whole of {app.layout.data} on one file system",
            )


def not_writable(app: App, pipeline: str) -> Iterator[Finding]:
    """P1: what may not be moved stays where it is, whatever becomes of it."""
    for place, folder in _folders(app, pipeline):
        if folder.is_dir() and not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            yield Finding(
                promise="P1",
                check="folder-closed",
                place=place,
                name=_shown(app, folder),
                what="is not readable and writable for this user",
                next=f"chmod g+rwxs {folder}, or run this as the user who owns it",
            )


def of_no_location(app: App, pipeline: str) -> Iterator[Finding]:
    """P17: what lies at a location is worked; at one that is no longer configured nobody does."""
    known = {*app.pipeline(pipeline).spec.load.locations, *Status}
    load = app.layout.data / pipeline / Stage.LOAD
    for folder in sorted(load.iterdir()) if load.is_dir() else ():
        if folder.name in known or folder.name.startswith(".") or not folder.is_dir():
            continue
        unworked = (Status.WORKING, Status.IN_PROCESS, Status.FAILED)
        place = Place(pipeline=pipeline, stage=Stage.LOAD, location=folder.name)
        if count := sum(len(survey.listing(app.layout, place, status)) for status in unworked):
            yield Finding(
                promise="P17",
                check="location-gone",
                place=str(place),
                name=folder.name,
                what=f"is no location of this configuration; unresolved files that lie there: {count:,}",
                next=f"configure {folder.name} again, or move the folder below data/archive/",
            )


def of_no_pipeline(app: App) -> Iterator[Finding]:
    """P1: what was accepted is worked; in the folder of a pipeline that is no longer configured nobody looks."""
    known = {*app.config.pipelines, *app.config.broken, "archive"}
    for folder in sorted(app.layout.data.iterdir()) if app.layout.data.is_dir() else ():
        if folder.name not in known and (folder / ".notes").is_dir():
            yield Finding(
                promise="P1",
                check="pipeline-gone",
                place=folder.name,
                name=folder.name,
                what="is no pipeline of this configuration, and nobody works what lies there",
                next=f"bring config/pipelines/{folder.name}.yaml back, or move the folder below data/archive/",
            )


def identity(app: App) -> Iterator[Finding]:
    """P16: the id under which the locations know this data folder is there, once there is anything to know."""
    if (app.layout.own / "id").exists() or not any(app.layout.data.glob("*/.notes/*.json")):
        return
    yield Finding(
        promise="P16",
        check="data-id",
        place=".etl",
        name="id",
        what="is not there; under a new one every location takes what it has for what it never saw",
        next=f"bring {app.layout.own / 'id'} back from a backup, or read it in column data of a table _etl_keys",
    )


def _folders(app: App, pipeline: str) -> Iterator[tuple[str, Path]]:
    """Give every folder a pipeline must have; a location that was configured just now has none yet."""
    layout = app.layout
    for place in layouts.places(pipeline, app.pipeline(pipeline).spec.load.locations):
        if _is_location(place) and not layout.folder(place).is_dir():
            continue
        for status in Status:
            yield str(place), layout.status(place, status)
        for own in (layout.staging(place), layout.outbox(place), layout.folder(place) / ".notes"):
            yield str(place), own
    yield pipeline, layout.data / pipeline / ".notes"
    yield pipeline, layout.pulled(pipeline)


def _is_location(place: Place) -> bool:
    return place.stage is Stage.LOAD and bool(place.location)


def _shown(app: App, folder: Path) -> str:
    return str(folder.relative_to(app.layout.data))
