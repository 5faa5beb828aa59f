"""Notes: what a folder cannot say about a file and what must outlive a flushed Redis and a lost ledger.

A source note is made once per source file; a file note holds what changes at one place and is written only by
whoever holds that file's lock. Notes stay put when files move.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from etl import disk
from etl.errors import Final
from etl.files.layout import Layout
from etl.model import Place
from etl.points import Point


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceNote:
    """What is known of a source file from its first claim on."""

    id: str
    pipeline: str
    #: the name as it was given, whole and unescaped.
    given: str
    sha256: str
    size: int
    #: the file's own mtime, before our moves set it.
    mtime: float
    #: when it came, seconds since 1970.
    arrived: float
    #: where it was pulled from; "" for a drop.
    origin: str = ""
    #: of a message; a callback may carry a token, so they stay out of `repr`.
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileNote:
    """What changes about a file at one place."""

    #: claims so far; never goes down, so that an attempt's staging folder is its own.
    attempt: int = 0
    #: retryable failures since it was last dropped or moved back.
    tries: int = 0
    #: deaths of its worker since it was last dropped or moved back, and the attempt last charged for one.
    deaths: int = 0
    death_charged: int = 0
    #: it changed while it was read, and has to settle once more.
    unsettled: bool = False
    #: not to be claimed before this time, seconds since 1970.
    not_before: float = 0.0
    #: the status in which it last came to rest; "" while it never did.
    ended: str = ""
    #: what decided the output of the last committed attempt, and which life of the file that was.
    recipe: str = ""
    generation: int = 0
    #: somebody wants another generation, whatever the recipe; used up by the commit of one.
    again: bool = False
    #: what the last committed attempt made.
    children: int = 0
    rows: int = 0
    units: int = 0
    held_back: int = 0
    said: str = ""
    #: of a table: its columns as they stand in the file, and how they differ from what was expected.
    header: tuple[str, ...] = ()
    drift: str = ""
    #: by location: how many units of this file are there, how many it held back, why it refused, or that it was away.
    locations: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: of a held-back file: the line of each row in the file it was held back from.
    lines: tuple[int, ...] = ()

    @property
    def is_ours(self) -> bool:
        """Tell whether we put the file where it waits; without a note it may be a copy that is still being written."""
        return self != FileNote() and not self.ended and not self.unsettled

    def begun(self) -> FileNote:
        """The note for one more attempt. A person who moved it back from where it rested starts the counts anew."""
        started = replace(self, attempt=self.attempt + 1, ended="", not_before=0.0, unsettled=False)
        return replace(started, tries=0, deaths=0) if self.ended else started


def read(layout: Layout, place: Place, name: str) -> FileNote:
    """Read a file's note at a place; a file that has none yet gets an empty one."""
    facts = _load(layout.note(place, name))
    return FileNote() if facts is None else from_facts(facts)


def glance(layout: Layout, place: Place, name: str) -> FileNote:
    """Read a file's note for a view: a damaged one says nothing, and the claim of its file says why."""
    try:
        return read(layout, place, name)
    except Final:
        return FileNote()


def write(layout: Layout, place: Place, name: str, note: FileNote, point: Point) -> None:
    """Write a file's note. The caller holds the file's lock.

    What decides about later attempts (recipe, lines) must survive a power loss; counts for people need not. Nor
    need the time until which a failure backs off, but before the first attempt it is the producer's word.
    """
    lasting = bool(note.recipe or note.lines or (note.not_before and not note.attempt))
    disk.write(layout.note(place, name), dump(note), point, durable=lasting)


def read_source(layout: Layout, pipeline: str, file_id: str) -> SourceNote | None:
    """Read a source file's note, or None where it is not there."""
    facts = _load(layout.source_note(pipeline, file_id))
    return None if facts is None else _build(SourceNote, facts)


def glance_source(layout: Layout, pipeline: str, file_id: str) -> SourceNote | None:
    """Read a source file's note for a view: a damaged one is as good as none."""
    try:
        return read_source(layout, pipeline, file_id)
    except Final:
        return None


def write_source(layout: Layout, note: SourceNote) -> None:
    """Write a source file's note, once: before the file is first claimed or published under its id."""
    disk.write(layout.source_note(note.pipeline, note.id), dump(note), Point.NOTE_SOURCE)


def read_discarded(layout: Layout, pipeline: str, file_id: str) -> dict[str, str]:
    """Give what of a source file was discarded, as `place/name`, and why."""
    told = (_load(layout.discarded(pipeline, file_id)) or {}).get("discarded", {})
    return dict(told) if isinstance(told, dict) else {}


def add_discarded(layout: Layout, place: Place, file_id: str, name: str, because: str) -> None:
    """Remember that a piece of a source file was discarded: its delivery will never be whole."""
    told = read_discarded(layout, place.pipeline, file_id) | {f"{place}/{name}": because}
    disk.write(layout.discarded(place.pipeline, file_id), dump({"discarded": told}), Point.DISCARD)


def dump(note: SourceNote | FileNote | Mapping[str, Any]) -> bytes:
    """Give a note as the bytes that are stored: JSON a person can read; what says nothing is left out."""
    facts = note if isinstance(note, Mapping) else asdict(note)
    told = {
        key: value
        for key, value in facts.items()
        if value or (value == 0 and key in ("size", "rows", "units"))
    }
    return json.dumps(told, indent=1).encode() + b"\n"


def from_facts(facts: Mapping[str, Any]) -> FileNote:
    """Build a file note from its stored facts."""
    return _build(FileNote, facts)


Note = TypeVar("Note", SourceNote, FileNote)


def _build(kind: type[Note], facts: Mapping[str, Any]) -> Note:
    """Build a note from what is stored, leaving out what a newer version may have added."""
    known = {item.name for item in fields(kind)}
    kept: dict[str, Any] = {key: value for key, value in facts.items() if key in known}
    if kind is SourceNote:
        kept = {"sha256": "", "mtime": 0.0, "given": "", **kept}
    else:
        kept |= {name: tuple(kept[name]) for name in ("lines", "header") if name in kept}
    return kind(**kept)


def _load(path: Path) -> dict[str, Any] | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if not data:  # what a power loss leaves of a note that was not worth a sync
        return None
    try:
        facts = json.loads(data)
    except ValueError as error:
        raise Final(
            f"the note {path} is damaged: {error}",
            next=f"move {path.name} out of the folder; the file is then treated as one that was never worked",
        ) from error
    if not isinstance(facts, dict):
        raise Final(f"the note {path} is not a JSON object", next="move it out of the folder")
    return facts
