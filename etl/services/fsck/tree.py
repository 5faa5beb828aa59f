"""One look at one pipeline: every folder listed once, every note read once, in the order in which files travel.

That order is what makes a look at a living tree true enough: what a stage passes on is there before the stage
says so. Changes nothing; the checks beside this module ask it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from etl.app import App
from etl.files import names, notes
from etl.files.layout import REQUESTS
from etl.model import Place, Stage, Status

#: what makes a file the same file at every place: id, generation, part.
Piece = tuple[str, int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A staging or outbox folder of one attempt."""

    place: Place
    #: the file whose attempt it was.
    name: str
    folder: Path
    #: somebody has locked it: work goes on.
    held: bool
    damaged: bool = False


@dataclass(slots=True)
class Tree:
    """What lies where, and what the notes say."""

    app: App
    pipeline: str
    #: place -> name -> the status folders it lies in.
    lying: dict[Place, dict[str, list[Status]]] = field(default_factory=dict)
    #: names that a `.reason.json` explains, by folder.
    reasons: dict[Place, dict[Status, set[str]]] = field(default_factory=dict)
    #: files in `in_process/` that nobody has locked.
    orphans: list[tuple[Place, str]] = field(default_factory=list)
    #: None stands for a damaged note.
    file_notes: dict[Place, dict[str, notes.FileNote | None]] = field(default_factory=dict)
    sources: dict[str, notes.SourceNote | None] = field(default_factory=dict)
    outboxes: list[Box] = field(default_factory=list)
    stagings: list[Box] = field(default_factory=list)
    #: what lies in outboxes, in the archive, or was discarded, by place.
    elsewhere: dict[Place, set[Piece]] = field(default_factory=lambda: defaultdict(set))
    #: archived under a path that names no place, which will do for any.
    archived: set[Piece] = field(default_factory=set)
    #: (place, name) below archive/discarded, and what the notes know to be discarded.
    thrown_out: set[tuple[Place, str]] = field(default_factory=set)
    noted_discards: set[str] = field(default_factory=set)
    #: the archives of clean that have a manifest which can be read, and manifests that cannot.
    archives: list[Path] = field(default_factory=list)
    damaged_manifests: list[tuple[Path, Exception]] = field(default_factory=list)
    #: folders that could not be listed; nothing can be said about what is missing then.
    unreadable: list[Path] = field(default_factory=list)
    _files: dict[str, names.FileName | None] = field(default_factory=dict)
    _statuses: dict[Place, dict[Piece, list[Status]]] = field(default_factory=dict)
    _names: dict[Place, dict[Piece, str]] = field(default_factory=dict)

    @property
    def places(self) -> list[Place]:
        """Every place of the pipeline, in the order in which a file passes them."""
        return self.app.places(self.pipeline)

    def place(self, stage: Stage, location: str = "") -> Place:
        """Name a place of this pipeline."""
        return Place(pipeline=self.pipeline, stage=stage, location=location)

    def file(self, name: str) -> names.FileName | None:
        """Read a name, once; None for one that carries no id of this pipeline."""
        if name not in self._files:
            self._files[name] = names.parse(self.pipeline, name)
        return self._files[name]

    def pieces(self, place: Place) -> dict[Piece, list[Status]]:
        """Give what lies at a place by piece, with the status folders it lies in."""
        if place not in self._statuses:
            found: dict[Piece, list[Status]] = {}
            for name, statuses in self.lying[place].items():
                if file := self.file(name):
                    found[piece(file)] = statuses
            self._statuses[place] = found
        return self._statuses[place]

    def name(self, place: Place, wanted: Piece) -> str:
        """Give the name under which a file lies or is noted at a place; "" where it never was."""
        if place not in self._names:
            known = [*self.file_notes[place], *self.lying[place]]
            self._names[place] = {piece(file): name for name in known if (file := self.file(name))}
        return self._names[place].get(wanted, "")

    def has(self, place: Place, wanted: Piece) -> bool:
        """Tell whether a file is accounted for at a place: in a status folder, an outbox or the archive."""
        return wanted in self.pieces(place) or wanted in self.elsewhere[place] or wanted in self.archived

    def waits(self, wanted: Piece) -> bool:
        """Tell whether a file is still to be worked somewhere."""
        on_its_way = {Status.WORKING, Status.IN_PROCESS}
        return any(on_its_way & set(self.pieces(place).get(wanted, ())) for place in self.places)

    def resolved(self, place: Place) -> Iterator[tuple[str, names.FileName, notes.FileNote]]:
        """Give the files in `resolved/` of a place that lie nowhere else there, with their notes."""
        for name, statuses in self.lying[place].items():
            file = self.file(name)
            note = self.file_notes[place].get(name, notes.FileNote())
            if file and note and statuses == [Status.RESOLVED]:
                yield name, file, note

    def known_ids(self) -> set[str]:
        """Give the id of everything that lies in a folder or has a note."""
        named = {name for place in self.places for name in (*self.lying[place], *self.file_notes[place])}
        return {file.id for name in named if (file := self.file(name))} | self.sources.keys()

    def ids(self) -> set[str]:
        """Give the id of everything that is accounted for anywhere."""
        lying = {one[0] for place in self.places for one in self.pieces(place)}
        away = {one[0] for pieces in self.elsewhere.values() for one in pieces}
        return lying | away | {one[0] for one in self.archived}


def piece(file: names.FileName) -> Piece:
    """Tell what makes a file the same file at every place."""
    return file.id, file.generation, file.part


def road(tree: Tree) -> list[Place]:
    """Give the places of files: all but those of requests."""
    return [place for place in tree.places if place.location != REQUESTS]
