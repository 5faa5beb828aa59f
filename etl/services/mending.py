"""Mending: files whose worker died come back, and work that has no job gets one. The folders decide.

Changes nothing that a living worker holds; any number may mend at once. Called in a loop by whoever keeps
running.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from etl.app import App
from etl.files import moves, names, outbox, survey
from etl.model import Place, Status, Waiting
from etl.queues import enqueue
from etl.queues.queue import Identity

log = logging.getLogger(__name__)


def announced(client: Any, app: App) -> set[Identity]:
    """Tell which work has a job, in any queue."""
    known: set[Identity] = set()
    for queue in app.queues():
        known |= enqueue.queued(client, app.data_id, queue)
        # a drop gets its id as its job begins: what lies under its old name by then is another file
        known |= {one for one in enqueue.begun(client, app.data_id, queue) if _has_id(one)}
    return known


def _has_id(identity: Identity) -> bool:
    _, pipeline, _, name = identity
    return names.parse(pipeline, name) is not None


def mend(app: App, pipeline: str, known: set[Identity], *, drops: bool) -> float:
    """Recover orphans, announce what waits without a job, and tell when the next file put off is due (0: none).

    With `drops` off, files without an id are left alone: they may still be being written.
    """
    lost: list[Waiting] = []
    dues: list[float] = []
    for place in app.places(pipeline):
        with _told(place):
            outbox.sweep(app.layout, place, app.announce)
        for name in survey.listing(app.layout, place, Status.IN_PROCESS):
            with _told(place):
                moves.recover(app.layout, place, name, app.announce)
        for waiting, due in survey.waiting(app.layout, place, drops=drops):
            if due > time.time():
                dues.append(due)
            elif app.work(waiting).identity not in known:
                lost.append(waiting)
    app.announce(lost)
    return min(dues, default=0.0)


@contextmanager
def _told(place: Place) -> Iterator[None]:
    """Tell of a disk that does not let us mend something, and go on: one bad file holds up no other."""
    try:
        yield
    except OSError as error:
        log.warning(
            "%s: not mended: %s; the next scan tries again", place, error, extra={"event": "not_mended"}
        )


def all_waiting(app: App, pipeline: str) -> list[Waiting]:
    """Give everything that waits in a pipeline and is due."""
    places = app.places(pipeline)
    found = [one for place in places for one in survey.waiting(app.layout, place, drops=True)]
    return [waiting for waiting, due in found if due <= time.time()]
