"""Is everything that was ever accepted or made still somewhere?

Asks the notes what there must be and the tree whether it is there: in a status folder, an outbox or the archive.
Mends nothing: what is gone can only be brought back.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from etl import disk
from etl.files import notes
from etl.model import Place, Stage, Status
from etl.services.fsck.finding import Finding
from etl.services.fsck.tree import Piece, Tree, piece

_TAKEN = "if somebody took it out, move it below data/archive/"


def passed_on(tree: Tree) -> Iterator[Finding]:
    """P1: what is resolved in extract is known to transform."""
    extract, transform = tree.place(Stage.EXTRACT), tree.place(Stage.TRANSFORM)
    for name, file, note in tree.resolved(extract):
        # a duplicate is resolved and hands nothing on; its note says so
        duplicate = note.ended == Status.RESOLVED and not note.recipe
        if not duplicate and not tree.has(transform, piece(file)):
            yield Finding(
                promise="P1",
                check="lost",
                place=str(transform),
                name=name,
                what="is resolved in extract and nowhere in transform",
                next=f"copy it from {extract}/resolved to {transform}/working; {_TAKEN}",
            )


def unit_files(tree: Tree) -> Iterator[Finding]:
    """P1: every unit file that a committed transform says it made is at load."""
    transform, load = tree.place(Stage.TRANSFORM), tree.place(Stage.LOAD)
    for name, note in tree.file_notes[transform].items():
        file = tree.file(name)
        if file is None or note is None or not note.recipe:
            continue
        for ordinal in range(1, note.children + 1):
            child = file.child(ordinal, note.generation)
            if not tree.has(load, piece(child)):
                yield Finding(
                    promise="P1",
                    check="lost",
                    place=str(load),
                    name=str(child),
                    what="was made by transform and is nowhere",
                    next=f"bring it back from a backup to {load}/working, or change {name} or its recipe and move "
                    f"it to {transform}/working: all its units are made anew; {_TAKEN}",
                )


def held_back(tree: Tree) -> Iterator[Finding]:
    """P1: the rows that a committed transform held back are in their `-bad` file."""
    transform = tree.place(Stage.TRANSFORM)
    for name, note in tree.file_notes[transform].items():
        file = tree.file(name)
        if file is None or note is None or not note.recipe or not note.held_back:
            continue
        bad = file.held_back(".jsonl", note.generation)
        if not tree.has(transform, piece(bad)):
            yield Finding(
                promise="P1",
                check="lost",
                place=str(transform),
                name=tree.name(transform, piece(bad)) or str(bad),
                what=f"is nowhere: {note.held_back:,} rows were held back in it from {name}",
                next=f"correct {name} and move it to {transform}/working: all its rows are read anew; {_TAKEN}",
            )


def unworked(tree: Tree) -> Iterator[Finding]:
    """P26: what lies in transform's `resolved/` was transformed."""
    transform = tree.place(Stage.TRANSFORM)
    for name, _, note in tree.resolved(transform):
        if not note.recipe:
            yield Finding(
                promise="P26",
                check="unworked",
                place=str(transform),
                name=name,
                what="lies in resolved/ and was never transformed, as its note has it",
                next=f"move it to {transform}/working",
            )


def lost(tree: Tree) -> Iterator[Finding]:
    """P1: every file that has a note is at its stage, in an outbox, or in the archive."""
    stale = _registered_twice(tree)
    for place in tree.places:
        for name in tree.file_notes[place]:
            file = tree.file(name)
            if file and file.id not in stale and not _is_accounted_for(tree, place, piece(file)):
                yield _lost(tree, place, name, file.id)
    noted = {file.id for place in tree.places for name in tree.file_notes[place] if (file := tree.file(name))}
    for file_id in tree.sources.keys() - noted - tree.ids() - stale:
        source = tree.sources[file_id]
        yield _lost(tree, tree.place(Stage.EXTRACT), source.given if source else file_id, file_id)


def _lost(tree: Tree, place: Place, name: str, file_id: str) -> Finding:
    source = tree.sources.get(file_id)
    origin = f" It came from {source.origin}." if source and source.origin else ""
    note = tree.app.layout.source_note(tree.pipeline, file_id)
    return Finding(
        promise="P1",
        check="lost",
        place=str(place),
        name=name,
        what=f"is nowhere: its note is there, the file is in no folder of {place.stage}, no outbox and no archive."
        + origin,
        next=f"bring it back from a backup or have it delivered anew; {_TAKEN}, or remove its notes ({note})",
    )


def _is_accounted_for(tree: Tree, place: Place, wanted: Piece) -> bool:
    """Tell whether a file is where its note is, or waits where somebody moved it.

    A location's copy that was moved to load itself is a matter between load's note and the location.
    """
    if tree.has(place, wanted) or (place.stage is not Stage.EXTRACT and tree.waits(wanted)):
        return True
    return bool(place.location) and tree.has(replace(place, location=""), wanted)


def _registered_twice(tree: Tree) -> set[str]:
    """Give the ids of drops whose worker died between the note and the first claim: the next one noted them anew.

    Such a drop was not touched, so its second id carries the same time.
    """
    here = tree.ids()
    drops = {name for place in tree.places for name in tree.lying[place] if tree.file(name) is None}
    by_facts: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for file_id, source in tree.sources.items():
        if source and not source.origin:
            by_facts[file_id[:9], source.given, source.sha256, source.mtime].append(file_id)
    stale = set()
    for facts, ids in by_facts.items():
        if facts[1] in drops or here.intersection(ids):
            stale |= set(ids) - here
    return stale


def discards(tree: Tree) -> Iterator[Finding]:
    """P26: a delivery knows what of it was discarded, or it would be shown as whole."""
    for place, name in tree.thrown_out:
        file = tree.file(name)
        # of a delivery that left with its notes nothing is shown any more
        left = file is not None and file.id not in tree.sources
        if file and not left and f"{place}/{name}" not in tree.noted_discards:
            yield Finding(
                promise="P26",
                check="discard",
                place=str(place),
                name=name,
                what="was discarded, and its delivery is still shown as if it were whole",
                next="`etl fsck --fix` notes it",
                fix=lambda place=place, file=file, name=name: _note_discard(  # type: ignore[misc]
                    tree, place, file.id, name
                ),
            )


def _note_discard(tree: Tree, place: Place, file_id: str, name: str) -> str:
    notes.add_discarded(tree.app.layout, place, file_id, name, "noted by fsck: the discard was interrupted")
    return "noted it"


def changed(tree: Tree) -> Iterator[Finding]:
    """P3: what is resolved in extract has the bytes it was accepted with, or those it was last extracted with."""
    extract = tree.place(Stage.EXTRACT)
    for name, file, note in tree.resolved(extract):
        source = tree.sources.get(file.id)
        right = {source.sha256 if source else "", note.recipe} - {""}
        try:
            descriptor = disk.open_regular(tree.app.layout.file(extract, Status.RESOLVED, name))
        except OSError:
            continue  # moved on, or nothing that has bytes
        with os.fdopen(descriptor, "rb") as stream:
            digest = disk.sha256(stream.fileno())
        if right and digest not in right:
            yield Finding(
                promise="P3",
                check="changed",
                place=str(extract),
                name=name,
                what="has other bytes than those it was accepted with",
                next=f"bring it back from a backup; if it was corrected, move it to {extract}/working to have the "
                "correction loaded",
            )
