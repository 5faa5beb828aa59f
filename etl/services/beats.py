"""Beats: sources that say `every` are pulled by themselves, each by one request file that goes round and round.

A beat moves the request of its source back to `working/`, as a person would; while it waits or is in process the
beat is skipped. Pulls nothing itself. Called by the dropbox.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from etl import disk
from etl.app import App
from etl.config.schema import Source
from etl.errors import Vanished
from etl.files import arrivals, moves, names, survey
from etl.files.layout import REQUESTS
from etl.model import Place, Stage, Status, Waiting
from etl.stages import pauses, sources


@dataclass(slots=True)
class _Beat:
    place: Place
    key: str
    every: float
    #: when it is next due, by our clock.
    next: float
    #: the request's name with its id, once it is known.
    name: str = ""

    @property
    def given(self) -> str:
        return f"every-{self.key}.json"


class Beats:
    """One beat for each source with `every`. The first is at once; any number of dropboxes may beat."""

    def __init__(self, app: App, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._clock = clock
        self._beats = [
            _of(pipeline.name, source, clock())
            for pipeline in app.config.pipelines.values()
            for source in pipeline.spec.extract.sources
            if source.every is not None
        ]

    def moves(self, place: Place, name: str) -> bool:
        """Tell whether a request is one that is moved and announced from here."""
        return any(beat.place == place and beat.name == name for beat in self._beats)

    def wanted(self) -> float:
        """Give the seconds until the next beat; infinity when there is none."""
        return max(0.0, min((beat.next for beat in self._beats), default=math.inf) - self._clock())

    def turn(self) -> None:
        """Ask for a pull of every source whose time has come."""
        for beat in self._beats:
            if beat.next <= self._clock():
                beat.next = self._clock() + beat.every
                if not pauses.why(self._app, beat.place):
                    self._beat(beat)

    def _beat(self, beat: _Beat) -> None:
        # one at a time: two who find no request must not both write one
        lock = disk.lock_path(self._app.layout.pulled(beat.place.pipeline) / f".every-{beat.key}.lock")
        if lock is None:
            return
        with lock:
            waiting = self._again(beat)
        if waiting is not None:
            beat.name = waiting.name
            self._app.announce([waiting])

    def _again(self, beat: _Beat) -> Waiting | None:
        """Have the request wait once more, or make it; None while it is being followed, or just was."""
        layout = self._app.layout
        # two looks: between the folders of one, a request that was put off may have been missed
        status = self._find(beat) or self._find(beat)
        if status is None:
            pipeline = beat.place.pipeline
            return arrivals.request(layout, pipeline, {"every": beat.key}, beat.given)
        if status in (Status.WORKING, Status.IN_PROCESS):
            return None
        try:
            age = time.time() - layout.file(beat.place, status, beat.name).lstat().st_mtime
            if 0 <= age < beat.every / 2:  # another dropbox keeps this beat, or we just started anew
                beat.next = self._clock() + beat.every - age
                return None
            return moves.retry(layout, beat.place, beat.name, status)
        except (FileNotFoundError, Vanished):
            return None  # a person took it, or moved it back

    def _find(self, beat: _Beat) -> Status | None:
        """Tell where the request of a source lies; None when there is none."""
        layout = self._app.layout
        for status in Status:
            if beat.name and layout.file(beat.place, status, beat.name).exists():
                return status
        for status in Status:
            for name in survey.listing(layout, beat.place, status):
                file = names.parse(beat.place.pipeline, name)
                if file is not None and file.is_source and file.given == beat.given:
                    beat.name = name
                    return status
        return None


def _of(pipeline: str, source: Source, now: float) -> _Beat:
    place = Place(pipeline=pipeline, stage=Stage.EXTRACT, location=REQUESTS)
    return _Beat(place=place, key=sources.key(source.path), every=source.every or math.inf, next=now)
