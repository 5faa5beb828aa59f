"""Pauses: why a place begins nothing just now. Asked before a file is claimed and before one is announced.

Looks at the disk and the folders only and moves nothing: what waits goes on waiting where it lies, and goes on
by itself when the cause has passed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from etl.app import App
from etl.config.reading import Config
from etl.errors import Paused
from etl.files import away, paused, room, survey
from etl.files.layout import Layout
from etl.model import Place, Stage, Status

#: seconds for which a count of waiting files is believed; a listing of 100,000 names is not free.
_COUNT_HOLDS = 1.0


def why(app: App, place: Place) -> str:
    """Say why no file of a place may be claimed now; "" when nothing is in the way."""
    return (
        by_hand(app.layout, place)
        or no_room(app)
        or too_many_wait(app.config, app.layout, place)
        or away_now(app, place)
    )


def by_hand(layout: Layout, place: Place) -> str:
    """Say that an operator paused a place; "" when nobody did."""
    mark = paused.of_place(layout, place)
    return str(mark) if mark else ""


def require_going(layout: Layout, pipeline: str) -> None:
    """Make sure that nobody paused a pipeline or a stage of it, or raise `Paused`."""
    for mark in paused.of_pipeline(layout, pipeline):
        said, _, hint = str(mark).rpartition("; ")
        raise Paused(f"{mark.target} is paused {said}", next=hint)


def due(app: App, place: Place) -> float | None:
    """Tell when one file of a place that is away may go through as the probe; None when that is not the pause."""
    if not (app.waits_for_away and place.location) or by_hand(app.layout, place) or no_room(app):
        return None
    known = away.read(app.layout, place)
    return known.next if known else None


def may_probe(app: App, place: Place) -> bool:
    """Tell whether the caller's file may be the probe of a location that is away; the next one has to wait longer."""
    when, now = due(app, place), time.time()
    return when is not None and when <= now and away.probe(app.layout, place, now)


def told(config: Config, layout: Layout, place: Place) -> str:
    """Say to a person why a place begins nothing; "" when nothing is in the way."""
    known = away.read(layout, place) if place.location else None
    return (
        by_hand(layout, place)
        or room.short(layout, config.settings.reserve)
        or too_many_wait(config, layout, place)
        or (_told_away(place, known) if known else "")
    )


def no_room(app: App) -> str:
    """Say that less disk is free than the operator wants to keep; "" when there is room (P24)."""
    return room.short(app.layout, app.config.settings.reserve)


def away_now(app: App, place: Place) -> str:
    """Say that a location is away and waited for; "" when it is not, or is to be asked all the same."""
    # under `etl run` somebody waits for the exit code: the location is asked, whatever others heard of it
    known = away.read(app.layout, place) if app.waits_for_away and place.location else None
    return _told_away(place, known) if known else ""


def _told_away(place: Place, known: away.Mark) -> str:
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(known.since))
    return f"away since {since}: {known.said}"


# --- back pressure -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Counted:
    """How many unit files waited, and until when that is believed."""

    files: int
    until: float


_counted: dict[tuple[Layout, Place], _Counted] = {}


def too_many_wait(config: Config, layout: Layout, place: Place) -> str:
    """Say that transform is too far ahead of load; "" for every other stage.

    Counts what waits in `load/working`. What waits for one location that is away stops no transform, or the
    others would wait as well; the reserve bounds it.
    """
    if place.stage is not Stage.TRANSFORM:
        return ""
    most = config.pipeline(place.pipeline).spec.load.max_waiting
    load = Place(pipeline=place.pipeline, stage=Stage.LOAD)
    files = _count(layout, load, most)
    if files <= most:
        return ""
    return (
        f"{files:,} unit files wait in {load}/working, more than the {most:,} of load.max_waiting; "
        "it goes on by itself when enough of them are loaded"
    )


def _count(layout: Layout, load: Place, most: int) -> int:
    known = _counted.get((layout, load))
    if known is None or known.until < time.monotonic():
        # all names first: sorting out which of them are files costs far more and is rarely needed
        folder = layout.status(load, Status.WORKING)
        files = sum(1 for _ in folder.iterdir()) if folder.exists() else 0
        if files > most:
            files = len(survey.listing(layout, load, Status.WORKING))
        known = _counted[layout, load] = _Counted(files, time.monotonic() + _COUNT_HOLDS)
    return known.files
