"""Outages: a location goes away and comes back. Each is told once, and what waited for it is announced.

Decides nothing about a file; what a location answered is `load`'s to hear.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress

from etl.app import App
from etl.errors import Away
from etl.files import away, names, notes, survey
from etl.model import Place, Status, Waiting

log = logging.getLogger("etl.stages")

#: files announced by the one who finds a location back; the scan announces what is beyond.
MOST_ANNOUNCED = 10_000


def gone(app: App, place: Place, error: Away, asked: float) -> None:
    """Mark a location as away, and tell it if nobody has. A disk without room for the mark stops nothing."""
    if not app.waits_for_away:
        return
    with suppress(OSError):
        if away.mark(app.layout, place, error.summary, asked=asked, now=time.time()):
            log.warning(
                "%s: away: %s. Its files wait in %s/working and are loaded when it is back; other locations go on",
                place,
                error.summary,
                place,
                extra={"event": "location_away"},
            )


def back(app: App, place: Place) -> None:
    """Hear that a location answers: if it was away, tell it and have what waited for it worked."""
    with suppress(OSError):
        now = time.time()
        if known := away.clear(app.layout, place, now):
            log.warning("%s: back after %.0f s", place, now - known.since, extra={"event": "location_back"})
            _catch_up(app, place)


def _catch_up(app: App, place: Place) -> None:
    """Announce what waits there and is due; what a person moved there meanwhile is the scan's to look at."""
    now, due = time.time(), []
    for name in survey.listing(app.layout, place, Status.WORKING)[:MOST_ANNOUNCED]:
        note = notes.glance(app.layout, place, name)
        if names.parse(place.pipeline, name) and not note.ended and note.not_before <= now:
            due.append(Waiting(place=place, name=name))
    app.announce(due)
