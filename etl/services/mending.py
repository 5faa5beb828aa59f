"""Mending: files whose worker died come back, and work that has no job gets one. The folders decide.

Changes nothing that a living worker holds; any number may mend at once, on any host. Called in a loop by
whoever keeps running: the dropbox, `etl worker`, `etl run`.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from etl.app import App
from etl.errors import EtlError, Unavailable
from etl.files import names, notes, outbox, recovery, survey
from etl.files.layout import REQUESTS
from etl.model import Place, Status, Waiting
from etl.queues import connection, enqueue
from etl.queues.queue import Identity
from etl.services.doorkeeper import Doorkeeper
from etl.stages import clean, pauses, serial

log = logging.getLogger(__name__)

#: seconds after which a paused place is looked at again; seconds between two scans at the least.
PAUSE_LOOK, SHORTEST_SCAN = 5.0, 1.0


def announced(client: Any, app: App) -> set[Identity]:
    """Tell which work has a job, in any queue."""
    known: set[Identity] = set()
    for queue in app.lanes():
        known |= enqueue.queued(client, app.data_id, queue)
        # a drop gets its id as its job begins: what lies under its old name by then is another file
        known |= {one for one in enqueue.begun(client, app.data_id, queue) if _has_id(one)}
    return known


def _has_id(identity: Identity) -> bool:
    _, pipeline, _, name = identity
    return names.parse(pipeline, name) is not None


@contextmanager
def _alone(what: object) -> Iterator[None]:
    """Tell of what cannot be read or mended: it holds its own file, place or pipeline and no other."""
    try:
        yield
    except (EtlError, OSError) as error:
        log.warning("%s: the scan is put off: %s", what, error, extra={"event": "scan_put_off"})
    except Exception:  # the edge: whatever one folder holds, the others are looked at
        log.exception("%s: the scan is put off", what, extra={"event": "scan_put_off"})


class Mender:
    """One scan after the other over the same folders: what a scan learned helps the next."""

    def __init__(
        self, app: App, asks: Callable[[], set[Identity]], *, drops: bool, door: Doorkeeper | None = None
    ) -> None:
        self._app = app
        self._asks = asks
        #: off: files without an id are left alone.
        self._drops = drops
        #: decides about what people put there; without one, all of it is taken as it lies.
        self.door = door
        #: when the next file that was put off is due, seconds since 1970; 0: none is.
        self.due = 0.0
        self._paused: dict[Place, str] = {}

    def mend(self, pipelines: Iterable[str]) -> None:
        """Recover orphans, finish what was committed, and announce what waits without a job.

        Raise `Unavailable` when the queue does not tell which work has one; orphans are recovered all the same.
        """
        waits: list[tuple[Place, list[str]]] = []
        for pipeline in pipelines:
            with _alone(pipeline):
                # whatever folder somebody removed is there again
                self._app.layout.make(pipeline, self._app.pipeline(pipeline).spec.load.locations)
                waits += [(place, self._restored(place)) for place in self._app.places(pipeline)]
        # asked after the folders were read: what was published meanwhile has a job by now
        known = self._asks()
        self.due = 0.0
        lost: list[Waiting] = []
        for place, listing in waits:
            with _alone(place):
                lost += self._lost(place, listing, known)
        self._app.announce(lost)

    def scan(self) -> bool:
        """Mend every pipeline, an embedded server first; False, and told, when Redis or the disk puts it off."""
        config = self._app.config
        try:
            connection.revive(config.settings.redis, config.data)
            self.mend(config.pipelines)
            self._ask_again()
        except (Unavailable, OSError) as error:
            log.warning("the scan is put off: %s", error, extra={"event": "scan_put_off"})
            return False
        return True

    def _ask_again(self) -> None:
        """Have a job made for a clean that was asked for and whose job was lost."""
        if clean.asked(self._app.layout) and clean.work(self._app).identity not in self._asks():
            clean.announce(self._app)

    def _restored(self, place: Place) -> list[str]:
        """Finish and bring back what the dead left at a place, and give the names that wait there."""
        layout = self._app.layout
        with _alone(place):
            outbox.sweep(layout, place, self._app.announce)
        for name in survey.listing(layout, place, Status.IN_PROCESS):
            with _alone(place):  # one file that the disk does not let go holds up no other
                recovery.recover(layout, place, name, self._app.announce)
        if self.door is not None:
            with _alone(place):
                self.door.walk(place)
        complete = self._app.pipeline(place.pipeline).spec.extract.complete
        return survey.listing(layout, place, Status.WORKING, survey.done_pattern(place, complete.done))

    # --- pauses

    def go_on(self, waiting: Iterable[Waiting]) -> list[Waiting]:
        """Give those of the waiting files whose place is not paused; the others are left to a later scan."""
        waiting = list(waiting)
        paused = {place for place in {one.place for one in waiting} if self._why(place)}
        return [one for one in waiting if one.place not in paused]

    def _why(self, place: Place) -> str:
        """Say why a place is paused, and tell it once when that begins and once when it ends."""
        why = pauses.why(self._app, place)
        # a location that goes away or is back is told by whoever finds out
        told = bool(why) and pauses.due(self._app, place) is None
        if told and place not in self._paused:
            log.warning("%s pauses: %s", place, why, extra={"event": "place_paused"})
        if not why and place in self._paused:
            log.info("%s goes on", place, extra={"event": "place_resumed"})
        self._paused = {known: said for known, said in self._paused.items() if known != place}
        if told:
            self._paused[place] = why
        return why

    # --- work without a job

    def _lost(self, place: Place, listing: Iterable[str], known: set[Identity]) -> Iterator[Waiting]:
        """Give what waits at a place without a job; of a paused place one file, when it may be tried."""
        paused = bool(self._why(place))
        if paused:
            due = pauses.due(self._app, place)
            # looked at again soon: nobody tells us when there is room, or when a location is back
            self._note_due(max(due or 0.0, time.time() + PAUSE_LOOK))
            if due is None or due > time.time():
                return
        about = self._app.work(Waiting(place=place, name="")).identity[:3]
        for name in listing:
            lost = (*about, name) not in known and not serial.waits(
                self._app, Waiting(place=place, name=name)
            )
            one = self._ready(place, name) if lost else None
            if one is not None:
                yield one
            if paused and (one is not None or (*about, name) in known):
                return

    def _ready(self, place: Place, name: str) -> Waiting | None:
        """Give a file that has no job as what may be announced now, or None."""
        file = names.parse(place.pipeline, name)
        note = notes.glance(self._app.layout, place, name) if file else None
        # nobody but us writes requests
        ours = note is not None and (note.is_ours or (place.location == REQUESTS and not note.ended))
        if note is not None and ours:
            if note.not_before > time.time():
                self._note_due(note.not_before)
                if self.door is not None:
                    self.door.later(place, name, note.not_before)
                return None
            gone = not os.path.lexists(self._app.layout.file(place, Status.WORKING, name))
            return None if gone else Waiting(place=place, name=name)
        if self.door is not None:
            return self.door.admit(place, name, note)
        return Waiting(place=place, name=name) if file or self._drops else None

    def _note_due(self, due: float) -> None:
        if due:
            self.due = min(self.due or math.inf, due)
