"""Walking: one delivery found by its id, from the source file on to whatever came of it, name by name.

Lists no status folder unless a person renamed the source, so its cost is that of the delivery and not of the
pipeline. Changes nothing. Called by whoever judges, and for `etl show`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from etl.errors import Final
from etl.files import deliveries, names, notes, survey
from etl.files.deliveries import Delivery, Piece
from etl.files.layout import REQUESTS, Layout
from etl.files.names import FileName
from etl.model import Place, Stage, Status


def find(layout: Layout, pipeline: str, file_id: str, locations: Iterable[str]) -> Delivery | None:
    """Find a delivery by its id, or give None when nothing of it is there.

    What is between two folders at this moment, lies in an outbox, is damaged or gone makes it `moving`: it has no
    verdict then.
    """
    source = notes.glance_source(layout, pipeline, file_id)
    discarded = notes.read_discarded(layout, pipeline, file_id)
    walk = _Walk(layout, pipeline, list(locations), discarded)
    given = source.given if source else ""
    walk.moving = walk.is_being_handed_out(file_id)
    walk.source(names.christen(given, file_id))
    if not walk.pieces and not any(map(walk.is_sources, discarded)):
        return None
    source = source or deliveries.unnoted(pipeline, file_id, given or walk.given(file_id))
    return deliveries.of_pieces(source, walk.pieces, discarded, moving=walk.moving)


def whole(layout: Layout, one: Delivery, locations: Iterable[str]) -> Delivery:
    """Give a delivery together with what of it has left the folders, as its notes have it: a replayed one's unit files.

    One that has all its unit files, as nearly every one does, is given back as it is.
    """
    made = {piece.name for piece in one.pieces if piece.place.stage is Stage.LOAD}
    for piece in one.pieces:
        if not piece.file.is_source or piece.place.stage is not Stage.TRANSFORM or not piece.note.recipe:
            continue
        ordinals = range(1, piece.note.children + 1)
        if any(str(piece.file.child(number, piece.note.generation)) not in made for number in ordinals):
            return find(layout, one.note.pipeline, one.note.id, locations) or one
    return one


class _Walk:
    """What was found so far. A parent is looked at before its children: once it is resolved, these are out (rule 4)."""

    def __init__(
        self, layout: Layout, pipeline: str, locations: Sequence[str], discarded: Iterable[str]
    ) -> None:
        self._layout = layout
        self._pipeline = pipeline
        self._load = Place(pipeline=pipeline, stage=Stage.LOAD)
        self._at = {location: replace(self._load, location=location) for location in locations}
        self._discarded = frozenset(discarded)
        self.pieces: list[Piece] = []
        self.moving = False

    def is_sources(self, discarded: str) -> bool:
        """Tell whether something discarded was the source file itself."""
        file = names.parse(self._pipeline, discarded.rpartition("/")[2])
        return file is not None and file.is_source

    def given(self, file_id: str) -> str:
        """Give the name as given, as far as what was found tells it."""
        return self.pieces[0].file.given if self.pieces else file_id

    def is_being_handed_out(self, file_id: str) -> bool:
        """Tell whether a committed attempt of this delivery is not finished yet; few outboxes ever are there."""
        stages = [Place(pipeline=self._pipeline, stage=stage) for stage in Stage]
        for place in (*stages, *self._at.values()):
            with suppress(FileNotFoundError):
                if any(f"~{file_id}" in box.name for box in self._layout.outbox(place).iterdir()):
                    return True
        return False

    # --- the source

    def source(self, file: FileName) -> None:
        """Walk from the source file on, by the name it should have or else by the one a person gave it."""
        extract = Place(pipeline=self._pipeline, stage=Stage.EXTRACT)
        transform = replace(extract, stage=Stage.TRANSFORM)
        extracted, transformed = self._look(extract, file), self._look(transform, file)
        if not extracted and not transformed:
            if self._is_request(file):
                return
            extracted = self._renamed(extract, file.id)
        passed_on = any(piece.note.recipe and piece.status is Status.RESOLVED for piece in extracted)
        if not transformed and (passed_on or not extracted):
            transformed = self._renamed(transform, file.id)
            if passed_on and not transformed and not self._is_discarded(transform, file):
                self.moving = True
        self.pieces += extracted
        for piece in transformed:
            if piece.status is Status.RESOLVED and not piece.note.recipe:
                self.moving = True  # without its note nobody knows what came of it
            self._offspring(piece)

    def _is_request(self, file: FileName) -> bool:
        requests = Place(pipeline=self._pipeline, stage=Stage.EXTRACT, location=REQUESTS)
        return any(os.path.lexists(self._layout.file(requests, status, str(file))) for status in Status)

    def _is_discarded(self, place: Place, file: FileName) -> bool:
        return any(one.startswith(f"{place}/") and self.is_sources(one) for one in self._discarded)

    def _renamed(self, place: Place, file_id: str) -> list[Piece]:
        return [
            Piece(place=place, status=status, file=file, name=name, note=self._note(place, name))
            for status in Status
            for name in survey.listing(self._layout, place, status)
            if file_id in name and (file := names.parse(self._pipeline, name)) and file.id == file_id
            if file.is_source
        ]

    # --- what came of it

    def _offspring(self, piece: Piece) -> None:
        """Take down a file of transform, its unit files, and what was held back from it, with what came of that."""
        self.pieces.append(piece)
        note, file = piece.note, piece.file
        generation = note.generation or file.generation
        for ordinal in range(1, note.children + 1):
            self._unit_file(file.child(ordinal, generation))
        if note.held_back:
            found: list[Piece] = []
            for suffix in {file.plain_suffix, ".jsonl"}:
                found += self._look(piece.place, file.held_back(suffix, generation))
            if not found and not self._was_discarded(piece.place, file.held_back("", generation)):
                self.moving = True
            for bad in found:
                self._offspring(bad)

    def _was_discarded(self, place: Place, file: FileName) -> bool:
        """Tell whether a file was discarded at a place, whatever its suffix."""
        return any(one.startswith(f"{place}/{file}") for one in self._discarded)

    def _unit_file(self, file: FileName) -> None:
        """Take down a unit file at load, the copies that locations have of it, and what these held back."""
        found = self._expect(self._load, file)
        for place in self._at.values():
            found += self._look(place, file)
        self.pieces += found
        told = {location: facts for piece in found for location, facts in piece.note.locations.items()}
        # a note that a power loss took says nothing: what it would have told is looked for
        silent = any(piece.status is Status.RESOLVED and not piece.note.locations for piece in found)
        held = [
            place for location, place in self._at.items() if silent or "held_back" in told.get(location, {})
        ]
        for place in held:
            self._held_back(place, file.held_back(".jsonl", file.generation))

    def _held_back(self, place: Place, file: FileName) -> None:
        """Take down what a location held back, and what it held back of that again."""
        found = self._look(place, file)
        self.pieces += found
        if any(facts.get("held_back") for piece in found for facts in piece.note.locations.values()):
            self._held_back(place, file.held_back(".jsonl", file.generation))

    # --- one file

    def _expect(self, place: Place, file: FileName) -> list[Piece]:
        """Look for a file that has to be there unless it was discarded."""
        found = self._look(place, file)
        if not found and f"{place}/{file}" not in self._discarded:
            self.moving = True
        return found

    def _look(self, place: Place, file: FileName) -> list[Piece]:
        """Give where a file lies at a place: nowhere, in one folder, or in two while it has a twin.

        Two looks, as one that goes back to `working/` meanwhile may be missed by the first. What was resolved and
        is in no folder is in the archive.
        """
        name = str(file)
        note = self._note(place, name)
        # ours have a note before they are there; a drop of a person's waits, or was refused unread
        known = tuple(Status) if note != notes.FileNote() or not place.location else _UNNOTED
        statuses = self._statuses(place, name, known) or (
            known is not _UNNOTED and self._statuses(place, name)
        )
        if not statuses and f"{place}/{name}" not in self._discarded and note != notes.FileNote():
            if note.ended == Status.RESOLVED:
                statuses = [Status.RESOLVED]
            else:
                self.moving = self.moving or not file.is_source
        note = self._note(place, name) if statuses and note == notes.FileNote() else note
        return [
            Piece(place=place, status=status, file=file, name=name, note=note) for status in statuses or ()
        ]

    def _statuses(self, place: Place, name: str, among: Sequence[Status] = tuple(Status)) -> list[Status]:
        folder = f"{self._layout.folder(place)}/"
        return [status for status in among if os.path.lexists(f"{folder}{status}/{name}")]

    def _note(self, place: Place, name: str) -> notes.FileNote:
        try:
            return notes.read(self._layout, place, name)
        except (Final, TypeError):
            self.moving = True
            return notes.FileNote()


#: where a file may lie at a location without a note.
_UNNOTED = (Status.WORKING, Status.FAILED)
