"""Draining: nothing new is taken in, and what is on its way comes to its end.

Looks at the folders only; whoever works goes on working. Called by `etl drain`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from etl.errors import Paused
from etl.files import layout as layouts
from etl.files import paused, survey
from etl.files.layout import Layout
from etl.model import Place, Stage, Status

#: seconds between two looks at the folders.
LOOK_EVERY = 0.2


def wait(
    layout: Layout,
    pipeline: str,
    locations: list[str],
    timeout: float,
    look: Callable[[dict[str, int]], None],
) -> dict[str, int]:
    """Wait until nothing of a pipeline whose extract is paused is on its way; give what is left at the end, by place.

    Raise `Paused` when something else is paused too: it would never end.
    """
    until = time.monotonic() + timeout
    while True:
        for mark in paused.of_pipeline(layout, pipeline):
            if mark.stage != Stage.EXTRACT:
                said, _, hint = str(mark).rpartition("; ")
                raise Paused(
                    f"{pipeline} cannot be drained while {mark.target} is paused {said}",
                    next=f"{hint}, then drain it again",
                )
        # two looks: a file that was put back may have been missed by one
        left = under_way(layout, pipeline, locations) or under_way(layout, pipeline, locations)
        look(left)
        if not left or time.monotonic() >= until:
            return left
        time.sleep(LOOK_EVERY)


def under_way(layout: Layout, pipeline: str, locations: list[str]) -> dict[str, int]:
    """Count what was taken in and has not ended, by place."""
    left: dict[str, int] = {}
    # in the order of the road: what moves on while we look is met further down
    for place in layouts.places(pipeline, locations):
        if files := sum(len(survey.listing(layout, place, status)) for status in _statuses(place)):
            left[str(place)] = files
    return left


def _statuses(place: Place) -> list[Status]:
    taken_in = [Status.IN_PROCESS]
    return taken_in if place.stage is Stage.EXTRACT else [Status.WORKING, *taken_in]
