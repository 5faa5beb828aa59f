"""The watch: sees on the disk what failed and which locations went away, and has people told of it.

1. Lists only `failed/` folders that changed, and reads only reasons that are new. 2. Takes down what it saw before it
tells anything, so that a restart, an emptied Redis and a second courier change nothing. 3. One watches at a time.
Costs no job anything (P22). Given its turns by the courier.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass

from etl import disk
from etl.app import App
from etl.errors import EtlError
from etl.files import away, names, news, noticed_opening, survey
from etl.files.news import News
from etl.files.noticed import Noticed
from etl.model import Place, Status, Urgency
from etl.notify import digest
from etl.services import digesting, failures

log = logging.getLogger(__name__)

#: seconds between two looks; one that took long is followed by a rest ten times as long, or, while there is more
#: to read than one look reads, by one as long: nobody may have been told of any of it yet.
EVERY, RESTS, BEHIND = 1.0, 10.0, 1.0
#: reasons read at one look at a place; the next look goes on.
MOST = 2_000
#: seconds for which a folder must have rested before its time is trusted: two changes may share one.
RESTED = 2.0


@dataclass(slots=True)
class _Open:
    """What is held while this is the one that watches."""

    lock: disk.Lock
    memory: Noticed
    digests: digesting.Digests

    def close(self) -> None:
        self.memory.close()
        self.lock.release()


class Watch:
    """Looks, remembers, and has digests written."""

    def __init__(self, app: App, clock: Callable[[], float] = time.time) -> None:
        self._app = app
        self._clock = clock
        #: when it looked last, and for how long it rests after that.
        self._last, self._rest = 0.0, 0.0
        self._behind = False
        self._open: _Open | None = None
        #: by place: how its failed/ looked when it was last listed whole; missing to list it again.
        self._stamps: dict[Place, int] = {}
        self._said = ""

    def turn(self) -> None:
        """Look if it is time, and spool what is to be told; whatever is in the way is logged and tried again."""
        now, begun = self._clock(), time.monotonic()
        if 0 <= now - self._last < self._rest:
            return
        try:
            self._watch(now)
            self._said = ""
        except (EtlError, OSError, sqlite3.Error) as error:
            if str(error) != self._said:
                log.warning("failures are not watched: %s", error, extra={"event": "watch_put_off"})
            self._said = str(error)
            self.close()
        except Exception:  # the edge: what is spooled is sent all the same
            log.exception("failures are not watched", extra={"event": "watch_put_off"})
            self.close()
        self._last = self._clock()
        rests = min(RESTS, BEHIND) if self._behind else RESTS
        self._rest = max(EVERY, rests * (time.monotonic() - begun))

    def close(self) -> None:
        """Let another watch; what was seen is taken down."""
        self._stamps.clear()
        if self._open is not None:
            self._open.close()
            self._open = None

    def _watch(self, now: float) -> None:
        if self._open is None:
            lock = noticed_opening.lock(self._app.layout)
            if lock is None:
                return  # another does
            self._open = self._opened(lock, now)
        held = self._open
        held.digests.spool()
        places = [place for name in self._app.config.pipelines for place in self._app.places(name)]
        self._behind = False  # what is in the way of a look is given its rest
        whole = [self._look(held.memory, place, now) for place in places]
        self._behind = not all(whole)
        self._forget(held.memory, places)
        known = held.memory.away()
        for place in places:
            self._location(held.memory, place, known.get(str(place)), now)
        # at the start, all that lies there is one notice
        held.digests.turn(now, complete=all(whole))

    def _opened(self, lock: disk.Lock, now: float) -> _Open:
        try:
            memory = noticed_opening.load(self._app.layout, now)
        except BaseException:
            lock.release()
            raise
        return _Open(lock=lock, memory=memory, digests=digesting.Digests(self._app, memory))

    # --- failures

    def _look(self, memory: Noticed, place: Place, now: float) -> bool:
        """Take down what changed in a `failed/` folder; False when there is more of it."""
        try:
            facts = self._app.layout.status(place, Status.FAILED).stat()
        except FileNotFoundError:
            return True
        if self._stamps.get(place) == facts.st_ctime_ns:
            return True
        listed, _ = survey.dated(self._app.layout, place, Status.FAILED)
        known = memory.known(str(place))
        changed = [
            name for name, moved in listed.items() if known.get(name, (-1.0, ""))[0] not in (moved, 0.0)
        ]
        # those without a reason are asked again, but never before the others
        asked = [*changed, *(name for name in listed if known.get(name, (-1.0, ""))[0] == 0.0)][:MOST]
        found = [one for name in asked if (one := failures.read(self._app, place, name, listed[name], now))]
        left = known.keys() - listed.keys()
        if found or left:
            memory.saw(str(place), found, left, now)
        whole = len(changed) <= MOST
        unread = len(found) < len(asked)
        # a clock that was set back makes every folder one of the future: trusted as well
        if whole and not unread and abs(time.time() - facts.st_ctime) > RESTED:
            self._stamps[place] = facts.st_ctime_ns
        return whole

    def _forget(self, memory: Noticed, places: list[Place]) -> None:
        """Forget places that are no longer configured; those of held pipelines are not among them."""
        here = {str(place) for place in places}
        for place in memory.places():
            if place not in here and place.partition("/")[0] not in self._app.config.broken:
                memory.forget(place)

    # --- locations

    def _location(self, memory: Noticed, place: Place, before: float | None, now: float) -> None:
        """Tell in the next digest that a location went away, and that it is back."""
        if not place.location or place.location.startswith("."):
            return
        mark = away.read(self._app.layout, place)
        if mark is not None and before is None:
            news.put(self._app.layout, _gone(place, mark))
            memory.went(str(place), mark.since)
        elif mark is None and before is not None:
            news.put(self._app.layout, _back(place, before, now))
            memory.went(str(place), None)


def _gone(place: Place, mark: away.Mark) -> News:
    return News(
        pipeline=place.pipeline,
        key=f"away/{place}/{mark.since}",
        kind="location away",
        text=f"{place.location} is away since {digest.moment(mark.since)}: {names.printable(mark.said)}. "
        f"Its files wait in {place}/working; other locations go on",
        next="put the location right; its files follow by themselves when it is back",
        at=mark.since,
    )


def _back(place: Place, since: float, now: float) -> News:
    return News(
        pipeline=place.pipeline,
        key=f"back/{place}/{since}",
        kind="location back",
        text=f"{place.location} is back after {digest.spoken(now - since)}; what waited for it follows",
        urgency=Urgency.INFO,
        at=now,
    )
