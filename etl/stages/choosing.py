"""Choosing: what clean takes from one pipeline, put together by the day on which it came.

Looks at so many files at a time that memory stays small, however many there are. Moves and removes nothing. Called by
`stages.clean`, for a dry run too; about each delivery it asks `departing`.
"""

from __future__ import annotations

import secrets
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import groupby

from etl.app import App
from etl.files import archives, cleanings, leaving, names, spool, survey
from etl.files.cleanings import Cleaning, Planned
from etl.files.held import Held
from etl.files.layout import REQUESTS
from etl.model import Place, Stage, Status
from etl.stages.departing import Departures
from etl.stages.origins import Delivery, Departure, Lying

#: files that are looked at together, and files that leave together: memory and archives stay small.
WINDOW, MOST = 20_000, 10_000
#: requests that are moved round and round by their beat.
_BEATS = "every-*.json"


@dataclass(slots=True)
class Chooser:
    """Chooses from one pipeline."""

    app: App
    pipeline: str
    now: float
    #: off for a dry run.
    judges: bool = True
    #: what stays though it is old enough, and why.
    left: dict[str, str] = field(default_factory=dict)

    @property
    def _rests_since(self) -> float:
        return self.now - self.app.pipeline(self.pipeline).spec.clean.archive_after

    @property
    def _everywhere(self) -> list[Place]:
        locations = self.app.pipeline(self.pipeline).spec.load.locations
        return leaving.places(self.app.layout, self.pipeline, locations)

    @property
    def _places(self) -> list[Place]:
        return [place for place in self._everywhere if place.location != REQUESTS]

    def size(self) -> int:
        """Give about how many bytes are going to be archived: those of extract's files that have rested."""
        extract = Place(pipeline=self.pipeline, stage=Stage.EXTRACT)
        return sum(
            one.stamp.size for one in self._lying(extract, Status.RESOLVED) if one.since <= self._rests_since
        )

    def cleanings(self) -> Iterator[Cleaning]:
        """Give what leaves together, oldest first; looked at only when it is asked for."""
        for window in self._windows():
            asked = self._departures(window)
            departures = [found for one in self._look(window) if (found := asked.of(one))]
            for day, group in groupby(departures, key=lambda one: archives.day_of(one.id)):
                for together in _limited(group):
                    yield self._cleaning(day, together)

    def requests(self) -> list[Lying]:
        """Give the requests for an extract that were followed long ago; those of beats are used again."""
        place = Place(pipeline=self.pipeline, stage=Stage.EXTRACT, location=REQUESTS)
        return [
            one
            for one in self._lying(place, Status.RESOLVED)
            if one.since <= self._rests_since and not fnmatchcase(one.file.given, _BEATS)
        ]

    def _departures(self, window: set[str]) -> Departures:
        waiting = (path.name.split("~") for path in spool.waiting(self.app.layout))
        told_of = {of[1] for of in waiting if of[0] == self.pipeline and len(of) > 1}
        held = Held(self.app.config.archive, self.pipeline, window)
        return Departures(self.app, self.pipeline, self.now, told_of, held, self.judges, self.left)

    # --- which deliveries

    def _windows(self) -> Iterator[set[str]]:
        """Give the ids of deliveries of which something may be taken, as many together as have few enough files."""
        census = self._census()
        window: set[str] = set()
        files = 0
        for file_id in sorted(census):
            window.add(file_id)
            files += census[file_id]
            if files >= WINDOW:
                yield window
                window, files = set(), 0
        if window:
            yield window

    def _census(self) -> Counter[str]:
        """Count the files of each delivery of which something has rested long enough, or nothing but notes is left."""
        counted: Counter[str] = Counter()
        rested: set[str] = set()
        for place in self._places:
            for one in self._lying(place, Status.RESOLVED):
                counted[one.file.id] += 1
                if one.since <= self._rests_since:
                    rested.add(one.file.id)
        present = leaving.ids(self.app.layout, self.pipeline, self._everywhere)
        for name in leaving.listed(self.app.layout.data / self.pipeline / ".notes"):
            file_id = leaving.of_source(name)
            if file_id not in present and names.is_id(self.pipeline, file_id):
                rested.add(file_id)
                counted[file_id] += 1
        return Counter({file_id: counted[file_id] for file_id in rested})

    def _look(self, window: set[str]) -> Iterator[Delivery]:
        """Give all there is of some deliveries, oldest first."""
        files: dict[str, list[Lying]] = defaultdict(list)
        for place in self._places:
            for status in Status:
                for one in self._lying(place, status, window):
                    files[one.file.id].append(one)
        noted = leaving.noted(self.app.layout, self.pipeline, self._places, window)
        for file_id in sorted(window):
            yield Delivery(id=file_id, files=files[file_id], notes=noted.get(file_id, []))

    def _lying(self, place: Place, status: Status, among: set[str] | None = None) -> Iterator[Lying]:
        for name in survey.listing(self.app.layout, place, status):
            file = names.parse(self.pipeline, name)
            if file is None or (among is not None and file.id not in among):
                continue
            with suppress(FileNotFoundError):  # moved on since it was listed
                facts = self.app.layout.file(place, status, name).lstat()
                yield Lying(place=place, status=status, name=name, file=file, stamp=cleanings.stamp(facts))

    # --- together

    def _cleaning(self, day: str, departures: Sequence[Departure]) -> Cleaning:
        planned = []
        for stage in Stage:
            files = [
                chosen for one in departures for chosen in one.files if chosen.member.place.stage is stage
            ]
            notes = [(path, one.id) for one in departures for path in one.notes if stage is Stage.EXTRACT]
            if files or notes:
                planned.append(Planned(stage=stage, token=secrets.token_hex(8), files=files, notes=notes))
        return Cleaning(
            pipeline=self.pipeline,
            day=day,
            archives=planned,
            regenerable=[file for one in departures for file in one.regenerable],
            leaving=[one.id for one in departures if one.notes],
        )


def _limited(departures: Iterator[Departure]) -> Iterator[list[Departure]]:
    """Give departures in groups of not too many files; one delivery always stays together."""
    together: list[Departure] = []
    files = 0
    for one in departures:
        if together and files + one.size > MOST:
            yield together
            together, files = [], 0
        together.append(one)
        files += one.size
    if together:
        yield together
