"""Do the locations have what the notes say they have, once, and of one generation?

Asks each location once for its keys, which stream past what the notes lead us to expect. Mends nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from etl.errors import EtlError
from etl.files import names, notes
from etl.model import Key, Place, Stage, Status
from etl.services.fsck.finding import Finding, Tally
from etl.services.fsck.tree import Piece, Tree, piece

if TYPE_CHECKING:
    from etl.locations.location import Location


@dataclass(slots=True)
class Expected:
    """What one location must have: unit files and, where a note tells, how many of their units."""

    place: Place
    keys: dict[Piece, tuple[str, int | None]] = field(default_factory=dict)


def refused(tree: Tree) -> Iterator[Finding]:
    """P17: a location that refused a unit file has a copy of it."""
    load = tree.place(Stage.LOAD)
    for name, file, note in tree.resolved(load):
        for location, told in note.locations.items():
            own = tree.place(Stage.LOAD, location)
            if "refused" in told and own in tree.lying and not tree.has(own, piece(file)):
                yield Finding(
                    promise="P17",
                    check="copy-lost",
                    place=str(own),
                    name=name,
                    what=f"was refused by {location}, and its copy is nowhere",
                    next=f"copy it from {load}/resolved to {own}/working: only {location} is loaded then",
                )


def held_back(tree: Tree) -> Iterator[Finding]:
    """P16: the units a location held back are in their `-bad` file at that location."""
    for place in _load_places(tree):
        for name, file, note in tree.resolved(place):
            for location, told in note.locations.items():
                own = tree.place(Stage.LOAD, location)
                if told.get("held_back") and own in tree.lying:
                    yield from _bad_file(tree, own, name, file, int(told["held_back"]))


def _bad_file(tree: Tree, own: Place, name: str, file: names.FileName, count: int) -> Iterator[Finding]:
    bad = file.held_back(".jsonl", file.generation)
    if str(bad) in tree.file_notes[own] and tree.has(own, piece(bad)):
        return
    yield Finding(
        promise="P16",
        check="lost",
        place=str(own),
        name=str(bad),
        what=f"is nowhere: {count:,} units of {name} were held back in it",
        next=f"remove its note in {own}/.notes if there is one, then copy {name} from a resolved/ folder of load to "
        f"{own}/working: the location knows what it held back, and the file is made anew",
    )


def at_locations(tree: Tree, tally: Tally) -> Iterator[Finding]:
    """P26, P16, P11: ask every location for its keys and for what is there too often."""
    expected = _expected(tree)
    for name, location in tree.app.locations(tree.pipeline).items():
        tally.doing(f"{tree.pipeline}: asking {name}")
        place = tree.place(Stage.LOAD, name)
        try:
            yield from _keys(tree, location, expected[name], tally)
            yield from _excess(tree, location, place)
        except EtlError as error:
            yield Finding(
                promise="P26",
                check="not-asked",
                place=str(place),
                name=name,
                what=f"could not be asked what it has: {error.summary}",
                next=f"{error.next}; then look again" if error.next else "bring it back, then look again",
            )
        finally:
            location.close()


def _load_places(tree: Tree) -> list[Place]:
    return [place for place in tree.places if place.stage is Stage.LOAD]


def _expected(tree: Tree) -> dict[str, Expected]:
    """Gather from the notes of resolved unit files what each location must have."""
    configured = tree.app.pipeline(tree.pipeline).spec.load.locations
    expected = {name: Expected(place=tree.place(Stage.LOAD, name)) for name in configured}
    for place in _load_places(tree):
        for name, file, note in tree.resolved(place):
            for location in [place.location] if place.location else configured:
                units = _units(note, location)
                if units != _NOT_THERE:
                    expected[location].keys.setdefault(piece(file), (name, units))
    return expected


#: stands for a unit file that a location need not have.
_NOT_THERE = -1


def _units(note: notes.FileNote, location: str) -> int | None:
    """Tell how many units of a resolved file are at a location; None where the note was lost and cannot say."""
    told: dict[str, Any] | None = dict(note.locations[location]) if location in note.locations else None
    if told is None:
        # a note that tells of others only is older than this location
        return None if not note.locations else _NOT_THERE
    return int(told["units"]) if "units" in told else _NOT_THERE


def _keys(tree: Tree, location: Location, expected: Expected, tally: Tally) -> Iterator[Finding]:
    """Hold what a location has against what it must have, key by key."""
    found = location.keys(tree.app.data_id, tree.pipeline)
    if found is None:
        return
    tally.locations += 1
    newest: dict[str, int] = {}
    for key in _ours(tree, found, tally):
        newest[key.file] = max(key.generation, newest.get(key.file, 0))
        wanted = expected.keys.pop((key.file, key.generation, key.part), None)
        if wanted and wanted[1] is not None and wanted[1] != key.count:
            yield _other_count(expected.place, wanted[0], wanted[1], key.count)
        if key.rejected:
            yield from _rejected(tree, expected.place, key)
    for (file_id, generation, _), (name, _) in expected.keys.items():
        # a location may forget an older generation when it takes a newer one
        if newest.get(file_id, 0) <= generation:
            yield _no_key(expected.place, name)


def _ours(tree: Tree, found: Iterable[Key], tally: Tally) -> Iterator[Key]:
    for key in found:
        if names.is_id(tree.pipeline, key.file):
            tally.keys += 1
            if tally.keys % 10_000 == 0:
                tally.doing(tree.pipeline)
            yield key


def _other_count(place: Place, name: str, noted: int, counted: int) -> Finding:
    return Finding(
        promise="P26",
        check="count",
        place=str(place),
        name=name,
        what=f"has {noted:,} units there by its note and {counted:,} by the location's key",
        next="look at the rows of this file; the key was written with them and is right",
    )


def _no_key(place: Place, name: str) -> Finding:
    return Finding(
        promise="P26",
        check="not-there",
        place=str(place),
        name=name,
        what=f"is resolved, and {place.location} has no key of it: its units are not there",
        next=f"copy it from a resolved/ folder of load to {place}/working; so you also fill a location that now "
        "points elsewhere",
    )


def _rejected(tree: Tree, place: Place, key: Key) -> Iterator[Finding]:
    """P16: what a location rejected has become a file; one that is still on its way makes it when it ends."""
    unit: Piece = (key.file, key.generation, key.part)
    homes = [home for home in (place, tree.place(Stage.LOAD)) if _is_resolved(tree, home, unit)]
    if homes and not tree.waits(unit):
        name = tree.name(homes[0], unit)
        if file := tree.file(name):
            yield from _bad_file(tree, place, name, file, key.rejected)


def _is_resolved(tree: Tree, place: Place, unit: Piece) -> bool:
    return tree.pieces(place).get(unit) == [Status.RESOLVED]


def _excess(tree: Tree, location: Location, place: Place) -> Iterator[Finding]:
    """P16, P11: no more rows than were loaded, and none of an older generation."""
    for one in location.excess(tree.app.data_id, tree.pipeline):
        source = tree.sources.get(one.file)
        look = f"look at the rows with _etl_file '{one.file}' and _etl_generation {one.generation}"
        older = one.generation < one.current
        yield Finding(
            promise="P11" if older else "P16",
            check="older-rows" if older else "doubled",
            place=str(place),
            name=f"{one.file}.{one.generation}",
            what=f"({source.given if source else 'its source note is missing'}) has {one.rows:,} rows there, "
            + (
                f"left of generation {one.generation} though {one.current} replaced it"
                if older
                else f"and only {one.counted:,} were loaded"
            ),
            next=f"{look}; remove what is too much",
        )
