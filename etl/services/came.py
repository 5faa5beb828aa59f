"""What came: the source notes of a pipeline, each read once, and the dropped files that nobody has taken yet.

Only looks, and costs next to nothing while the folder of notes rests. Called by the calendar and by who shows a day.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from etl.config.expecting import Expectation
from etl.config.reading import PipelineConfig
from etl.files import names, notes, survey
from etl.files.layout import Layout
from etl.files.notes import SourceNote
from etl.model import Place, Stage, Status

#: seconds after which a delivery is not looked at any more.
_LONG_AGO = 40 * 86_400.0
#: source notes that are looked through for the history of a new expectation.
_HISTORY = 5_000
#: nanoseconds that notes may be written out of order, by hosts whose clocks differ.
_SLACK_NS = 600_000_000_000
#: characters before `.json` in the name of a source note.
_ID = 16


class Notes:
    """The source notes of one pipeline; each is read once."""

    def __init__(self, layout: Layout, pipeline: str) -> None:
        self._layout = layout
        self._pipeline = pipeline
        self._folder = layout.source_note(pipeline, "x").parent
        self._seen: set[str] = set()
        self._stamp = 0
        #: when the youngest note was written that was seen, on the clock of its disk.
        self.looked = 0

    def new(self, looked: int | None, now: float, *, history: bool) -> list[SourceNote]:
        """Give the notes that were written since a time, in the order of arrival; for `history` the latest ones."""
        try:
            stamp = self._folder.stat().st_mtime_ns
        except FileNotFoundError:
            return []
        if stamp == self._stamp:
            return []
        # an id begins with its time: what came long ago counts for no day any more
        begin = names.new_id(self._pipeline, int(1000 * (now - _LONG_AGO)))[:9]
        ids = {
            entry.name[:_ID]: entry
            for entry in os.scandir(self._folder)
            if entry.name >= begin and len(entry.name) == _ID + 5 and entry.name.endswith(".json")
        }
        fresh = sorted(ids.keys() - self._seen)
        latest = set(fresh[-_HISTORY:]) if history else set()
        found = [one for one in fresh if self._is_since(ids[one], looked) or one in latest]
        self._seen = set(ids)
        # a folder that changes in the instant it is read looks the same afterwards
        self._stamp = stamp if time.time_ns() - stamp > 2_000_000_000 else 0
        told = (notes.glance_source(self._layout, self._pipeline, one) for one in found)
        return [one for one in told if one is not None and not one.is_request]

    def _is_since(self, entry: os.DirEntry[str], looked: int | None) -> bool:
        try:
            written = entry.stat().st_mtime_ns
        except FileNotFoundError:
            return False
        self.looked = max(self.looked, written)
        return looked is not None and written >= looked - _SLACK_NS


def waiting(layout: Layout, pipeline: PipelineConfig, one: Expectation) -> Iterator[float]:
    """Give when each dropped file came that waits to be taken and is expected by its name."""
    for stage in (Stage.EXTRACT, Stage.TRANSFORM):
        place = Place(pipeline=pipeline.name, stage=stage)
        done = survey.done_pattern(place, pipeline.spec.extract.complete.done)
        folder = layout.status(place, Status.WORKING)
        paths = [folder / name for name in survey.listing(layout, place, Status.WORKING, done)]
        paths += [path for below in survey.folders(layout, place) for path in survey.inside(below, done)]
        for path in paths:
            if names.parse(pipeline.name, path.name) is None and fnmatchcase(path.name, one.name):
                yield from _came(path)


def _came(path: Path) -> Iterator[float]:
    with suppress(FileNotFoundError):
        yield path.lstat().st_ctime
