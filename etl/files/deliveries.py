"""Deliveries: a source file and all that came of it, put together from its pieces wherever these were read.

Answers "what came, how far is it, what was held back" for `etl files`, `etl show`, the end of `etl run` and whoever
judges. Changes nothing; the verdict given here is what the pieces say at this moment. One by its id: `walking`.
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
    """One file of a delivery: the source, a unit file, or something held back, where it lies and what is noted."""

    place: Place
    status: Status
    file: names.FileName
    name: str
    note: notes.FileNote = field(default_factory=notes.FileNote)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A source file and everything that came of it."""

    note: notes.SourceNote
    pieces: Sequence[Piece]
    generation: int = 0
    rows: int = 0
    units: int = 0
    held_back: int = 0
    #: units there, by location.
    loaded: Mapping[str, int] = field(default_factory=dict)
    said: str = ""

    #: what an operator took out of the road for good, as `place/name`.
    discarded: Sequence[str] = ()
    #: something of it is on its way between two folders, or cannot be found or read.
    moving: bool = False

    @property
    def verdict(self) -> str:
        """How it ended so far: working, failed, partial or resolved."""
        statuses = {piece.status for piece in self.pieces}
        if self.moving or statuses & {Status.WORKING, Status.IN_PROCESS}:
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


def of_pieces(
    note: notes.SourceNote, pieces: Sequence[Piece], discarded: Iterable[str], *, moving: bool = False
) -> Delivery:
    """Put a delivery together from its pieces and from what of it was discarded; looks at nothing else."""
    transformed = _transformed(pieces)
    # what an older generation left behind can change nothing any more
    pieces = [one for one in pieces if one.file.is_source or one.file.generation >= transformed.generation]
    there = {f"{piece.place}/{piece.name}" for piece in pieces}
    return Delivery(
        note=note,
        pieces=pieces,
        generation=transformed.generation,
        rows=transformed.rows,
        units=transformed.units + _corrected(pieces),
        held_back=_held_back(pieces),
        loaded=_loaded(pieces),
        said=transformed.said or _said_by_extract(pieces),
        discarded=[one for one in discarded if one not in there and _is_of_life(one, transformed.generation)],
        moving=moving,
    )


def unnoted(pipeline: str, file_id: str, given: str) -> notes.SourceNote:
    """Give what is known of a source file whose note was lost: what its name says."""
    return notes.SourceNote(
        id=file_id,
        pipeline=pipeline,
        given=given,
        sha256="",
        size=0,
        mtime=0,
        arrived=names.milliseconds(file_id) / 1000,
    )


def of_pipeline(
    layout: Layout, pipeline: str, locations: Iterable[str], ids: set[str] | None = None
) -> list[Delivery]:
    """Give the deliveries of a pipeline, oldest first; only those of `ids` where given."""
    places = [place for place in layouts.places(pipeline, locations) if place.location != layouts.REQUESTS]
    pieces: dict[str, list[Piece]] = defaultdict(list)
    for place in places:
        for status in Status:
            for piece in _pieces(layout, place, status, ids):
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


def _pieces(layout: Layout, place: Place, status: Status, ids: set[str] | None) -> Iterable[Piece]:
    for name in survey.listing(layout, place, status):
        file = names.parse(place.pipeline, name)
        if file is not None and (ids is None or file.id in ids):
            note = notes.glance(layout, place, name)
            yield Piece(place=place, status=status, file=file, name=name, note=note)


def _delivery(layout: Layout, pipeline: str, file_id: str, pieces: Sequence[Piece]) -> Delivery:
    note = notes.glance_source(layout, pipeline, file_id) or unnoted(pipeline, file_id, pieces[0].file.given)
    return of_pieces(note, pieces, notes.read_discarded(layout, pipeline, file_id))


def _is_of_life(discarded: str, generation: int) -> bool:
    """Tell whether what was discarded is missing still: what an older generation left is not."""
    file = names.parse(discarded.partition("/")[0], discarded.rpartition("/")[2])
    return file is None or file.is_source or file.generation >= generation


def _transformed(pieces: Sequence[Piece]) -> notes.FileNote:
    for piece in pieces:
        if piece.file.is_source and piece.place.stage is Stage.TRANSFORM:
            return piece.note
    return notes.FileNote()


def _said_by_extract(pieces: Sequence[Piece]) -> str:
    """Give what extract said of a source file that it did not hand on: a duplicate."""
    if len(pieces) == 1 and pieces[0].place.stage is Stage.EXTRACT and pieces[0].status is Status.RESOLVED:
        return pieces[0].note.said
    return ""


def _corrected(pieces: Sequence[Piece]) -> int:
    """Count the units made of rows that were held back and corrected."""
    bad = [piece for piece in pieces if piece.file.is_held_back and piece.place.stage is Stage.TRANSFORM]
    return sum(piece.note.units for piece in bad)


def _held_back(pieces: Sequence[Piece]) -> int:
    """Count what is held back right now: the rows and units in `-bad` files that lie in `failed/`."""
    bad = [piece for piece in pieces if piece.file.is_held_back and piece.status is Status.FAILED]
    return sum(piece.note.rows for piece in bad)


def _loaded(pieces: Sequence[Piece]) -> dict[str, int]:
    """Sum the units at each location over the unit files; one that went there twice is there once."""
    there: dict[str, dict[str, int]] = defaultdict(dict)
    for piece in pieces:
        if piece.place.stage is Stage.LOAD:
            for location, told in piece.note.locations.items():
                units = int(told.get("units", 0))
                there[location][piece.name] = max(units, there[location].get(piece.name, 0))
    return {location: sum(there[location].values()) for location in sorted(there)}
