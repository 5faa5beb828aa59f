"""Deliveries: one line per source file, read from the folders and notes alone.

Answers "what came, how far is it, what was held back" for `etl files`, `etl show` and the end of `etl run`.
Changes nothing; the verdict given here is what the disk says at this moment.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from etl.files import layout as layouts
from etl.files import names, notes, survey
from etl.files.layout import Layout
from etl.model import Place, Stage, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One file of a delivery: the source, a unit file, or something held back, and where it lies."""

    place: Place
    status: Status
    file: names.FileName
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A source file and everything that came of it."""

    note: notes.SourceNote
    pieces: Sequence[Piece]
    rows: int = 0
    units: int = 0
    held_back: int = 0
    #: units there, by location.
    loaded: Mapping[str, int] = field(default_factory=dict)
    said: str = ""

    #: what an operator took out of the road for good.
    discarded: Sequence[str] = ()

    @property
    def verdict(self) -> str:
        """How it ended so far: working, failed, partial or resolved."""
        statuses = {piece.status for piece in self.pieces}
        if statuses & {Status.WORKING, Status.IN_PROCESS}:
            return "working"
        failed = [piece for piece in self.pieces if piece.status is Status.FAILED]
        if not failed and not self.discarded:
            return "resolved"
        source_failed = any(piece.file.is_source for piece in failed) or any(
            map(self._is_source, self.discarded)
        )
        return "failed" if source_failed and not any(self.loaded.values()) else "partial"

    def _is_source(self, discarded: str) -> bool:
        file = names.parse(self.note.pipeline, discarded.rpartition("/")[2])
        return file is not None and file.is_source


def of_pipeline(
    layout: Layout, pipeline: str, locations: Iterable[str], ids: set[str] | None = None
) -> list[Delivery]:
    """Give the deliveries of a pipeline, oldest first; only those of `ids` where given."""
    places = [place for place in layouts.places(pipeline, locations) if place.location != layouts.REQUESTS]
    pieces: dict[str, list[Piece]] = defaultdict(list)
    for place in places:
        for status in Status:
            for piece in _pieces(layout, place, status):
                if ids is None or piece.file.id in ids:
                    pieces[piece.file.id].append(piece)
    return [_delivery(layout, pipeline, file_id, pieces[file_id]) for file_id in sorted(pieces)]


def moved(layout: Layout, delivery: Delivery) -> float:
    """Give the time of the last move of any piece of a delivery."""
    times = []
    for piece in delivery.pieces:
        try:
            facts = layout.file(piece.place, piece.status, piece.name).lstat()
            # what may not be opened is moved with its own mtime; every rename sets the ctime
            times.append(max(facts.st_mtime, facts.st_ctime))
        except FileNotFoundError:
            times.append(time.time())  # it is moving right now
    return max(times, default=0.0)


def _pieces(layout: Layout, place: Place, status: Status) -> Iterable[Piece]:
    for name in survey.listing(layout, place, status):
        file = names.parse(place.pipeline, name)
        if file is not None:
            yield Piece(place=place, status=status, file=file, name=name)


def _delivery(layout: Layout, pipeline: str, file_id: str, pieces: Sequence[Piece]) -> Delivery:
    note = notes.glance_source(layout, pipeline, file_id) or notes.SourceNote(
        id=file_id,
        pipeline=pipeline,
        given=pieces[0].file.given,
        sha256="",
        size=0,
        mtime=0,
        arrived=names.milliseconds(file_id) / 1000,
    )
    transformed = _source_note(layout, pieces)
    discarded = notes.read_discarded(layout, pipeline, file_id)
    # what an older generation left behind can change nothing any more
    pieces = [one for one in pieces if one.file.is_source or one.file.generation >= transformed.generation]
    return Delivery(
        note=note,
        pieces=pieces,
        rows=transformed.rows,
        units=transformed.units + _corrected(layout, pieces),
        held_back=_held_back(layout, pieces),
        loaded=_loaded(layout, pieces),
        said=transformed.said or _said_by_extract(layout, pieces),
        discarded=[one for one in discarded if _counts(one, pieces, transformed.generation)],
    )


def _counts(discarded: str, pieces: Sequence[Piece], generation: int) -> bool:
    """Tell whether what was discarded is missing still: not from an older generation, and not back on the road."""
    place, _, name = discarded.rpartition("/")
    if any(str(piece.place) == place and piece.name == name for piece in pieces):
        return False
    file = names.parse(place.partition("/")[0], name)
    return file is None or file.is_source or file.generation >= generation


def _source_note(layout: Layout, pieces: Sequence[Piece]) -> notes.FileNote:
    for piece in pieces:
        if piece.file.is_source and piece.place.stage is Stage.TRANSFORM:
            return notes.glance(layout, piece.place, piece.name)
    return notes.FileNote()


def _said_by_extract(layout: Layout, pieces: Sequence[Piece]) -> str:
    """Give what extract said of a source file that it did not hand on: a duplicate."""
    if len(pieces) == 1 and pieces[0].place.stage is Stage.EXTRACT and pieces[0].status is Status.RESOLVED:
        return notes.glance(layout, pieces[0].place, pieces[0].name).said
    return ""


def _corrected(layout: Layout, pieces: Sequence[Piece]) -> int:
    """Count the units made of rows that were held back and corrected."""
    bad = [piece for piece in pieces if piece.file.is_held_back and piece.place.stage is Stage.TRANSFORM]
    return sum(notes.glance(layout, piece.place, piece.name).units for piece in bad)


def _held_back(layout: Layout, pieces: Sequence[Piece]) -> int:
    """Count what is held back right now: the rows and units in `-bad` files that lie in `failed/`."""
    held = 0
    for piece in pieces:
        if piece.file.is_held_back and piece.status is Status.FAILED:
            held += notes.glance(layout, piece.place, piece.name).rows
    return held


def _loaded(layout: Layout, pieces: Sequence[Piece]) -> dict[str, int]:
    """Sum the units at each location over the unit files."""
    loaded: dict[str, int] = defaultdict(int)
    for piece in pieces:
        if piece.place.stage is not Stage.LOAD:
            continue
        for location, told in notes.glance(layout, piece.place, piece.name).locations.items():
            loaded[location] += int(told.get("units", 0))
    return dict(loaded)
