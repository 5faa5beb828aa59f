"""Replaying: which source files of some days go back to `transform/working`, from where, and which are left alone.

A file is replayed as the newest life there is of it, under its own id; what waits, is worked, failed or was discarded
is left alone, and so is a duplicate that was never loaded. Works nothing. Called by `etl replay`.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path

from etl import disk
from etl.app import App
from etl.config.reading import Config
from etl.errors import EtlError, Final, NoRoom, NotClaimed, Unavailable
from etl.files import acts, archived, archives, names, notes, replays, room, survey
from etl.files.acts import Act
from etl.files.archived import Archived
from etl.files.layout import Layout
from etl.model import Place, Stage, Status, Waiting
from etl.stages import clean, telling

#: seconds between two looks whether a clean has ended.
LOOK_EVERY = 0.2
#: why somebody replays who wants another generation, as the act has it.
AGAIN = "again: another generation, whatever the recipe"
#: statuses of a source file in which it is not to be touched, and what is said of it then.
_OPEN = {
    Status.WORKING: "waits in {}",
    Status.IN_PROCESS: "is being worked in {}",
    Status.FAILED: "lies in {}: put it right and move it back (etl retry)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is to be replayed."""

    pipeline: str
    first: date
    last: date
    #: given names, patterns of such, full names, ids or their starts; none means all.
    only: tuple[str, ...] = ()
    #: a new generation, also where the recipe is the same.
    again: bool = False

    def has(self, day: str) -> bool:
        """Tell whether a day is one of those."""
        return self.first.isoformat() <= day <= self.last.isoformat()

    def means(self, one: Candidate) -> bool:
        """Tell whether a source file is among those that were named."""
        return not self.only or any(
            fnmatchcase(one.given, wanted) or names.means(self.pipeline, one.name, wanted)
            for wanted in self.only
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A source file of one of the days: where it would be taken from, or why it is left alone."""

    pipeline: str
    id: str
    name: str
    given: str
    #: its file in `resolved/`, or the archive that it lies in.
    source: Path
    #: its path inside the archive.
    inside: str = ""
    #: why it stays as it is; "" when it is to be moved.
    why: str = ""
    held: Archived | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What became of one candidate."""

    candidate: Candidate
    #: it waits now.
    moved: bool = False
    #: why it does not; of those that were left alone, as the candidate has it.
    why: str = ""
    #: something is wrong, and somebody has to put it right.
    wrong: bool = False

    def forgotten(self) -> Replayed:
        """Give it without all that archives hold of its delivery: of many days that is much."""
        return replace(self, candidate=replace(self.candidate, held=None))


@dataclass(slots=True, kw_only=True)
class Day:
    """What is to be replayed of one day, and what of its archives cannot be read."""

    day: str
    candidates: Sequence[Candidate] = ()
    wrong: Sequence[EtlError] = ()


@contextmanager
def alone(app: App, waits: Callable[[], None]) -> Iterator[None]:
    """Have nothing archived meanwhile; `waits` is called once where an archiving has to be waited for."""
    lock = clean.alone(app.layout)
    if lock is None:
        waits()
    while lock is None:
        time.sleep(LOOK_EVERY)
        lock = clean.alone(app.layout)
    with lock:
        yield


# --- what there is -----------------------------------------------------------------------------------------


def look(config: Config, layout: Layout, wish: Wish) -> Iterator[Day]:
    """Give what came on each of the days, oldest first, or raise `Unavailable`; changes nothing."""
    if config.archive != config.data / "archive" and not config.archive.is_dir():
        raise Unavailable(
            f"the archive folder {config.archive} is not there",
            next="mount its disk, or correct `archive:` in settings.yaml",
        )
    lying = _lying(layout, wish)
    of_archives = {day for day in archives.days(config.archive) if wish.has(day)}
    for day in sorted(of_archives | {archives.day_of(one) for one in lying}):
        wrong: list[EtlError] = []
        held: dict[str, Archived] = {}
        try:
            held = archived.of_day(config.archive, wish.pipeline, day)
        except Final as error:  # of what is in there nobody knows which life is the newest
            wrong.append(error)
        here = {one for one in lying if archives.day_of(one) == day}
        found = []
        for file_id in sorted(here | held.keys()):
            try:
                one = _candidate(layout, wish.pipeline, file_id, lying.get(file_id, []), held.get(file_id))
            except EtlError as error:
                wrong.append(error)
                continue
            if one is not None and wish.means(one):
                found.append(one)
        if found or wrong:
            yield Day(day=day, candidates=found, wrong=wrong)


#: where a source file lies: place, status, name.
Lying = tuple[Place, Status, str]


def _lying(layout: Layout, wish: Wish) -> dict[str, list[Lying]]:
    """Find the source files of the days that lie in a folder of extract or transform, by id."""
    found: dict[str, list[Lying]] = defaultdict(list)
    for stage in (Stage.EXTRACT, Stage.TRANSFORM):
        place = Place(pipeline=wish.pipeline, stage=stage)
        for status in Status:
            for name in survey.listing(layout, place, status):
                file = names.parse(wish.pipeline, name)
                if file and file.is_source and wish.has(archives.day_of(file.id)):
                    found[file.id].append((place, status, name))
    return found


def _candidate(
    layout: Layout, pipeline: str, file_id: str, lying: Sequence[Lying], held: Archived | None
) -> Candidate | None:
    """Tell where a source file would be taken from, or why it is left alone; None where there is no source of it."""
    transform = Place(pipeline=pipeline, stage=Stage.TRANSFORM)
    for place, status, name in lying:
        if status in _OPEN:
            return _here(layout, (place, status, name), _OPEN[status].format(f"{place}/{status}"))
    for place, status, name in lying:
        if place == transform:
            return _here(layout, (place, status, name), "")
    if held is not None and held.source is not None:
        manifest, member = held.source
        return Candidate(
            pipeline=pipeline,
            id=file_id,
            name=member.name,
            given=member.given,
            source=manifest.path,
            inside=member.path,
            why=_discarded(layout, held, f"{transform}/{member.name}"),
            held=held,
        )
    for one in lying:  # in extract's resolved/ alone
        return _here(layout, one, _not_passed_on(layout, one))
    if held is None or not held.files:
        return None
    manifest, member = held.files[-1]
    return Candidate(
        pipeline=pipeline,
        id=file_id,
        name=member.name,
        given=member.given,
        source=manifest.path,
        inside=member.path,
        why="was not loaded: it is a duplicate, or its source is in no archive",
    )


def _here(layout: Layout, lying: Lying, why: str) -> Candidate:
    place, status, name = lying
    file = names.parse(place.pipeline, name)
    assert file is not None, "it was found by its id"
    note = notes.glance_source(layout, place.pipeline, file.id)
    return Candidate(
        pipeline=place.pipeline,
        id=file.id,
        name=name,
        given=note.given if note else file.given,
        source=layout.file(place, status, name),
        why=why,
    )


def _not_passed_on(layout: Layout, lying: Lying) -> str:
    place, _, name = lying
    note = notes.read(layout, place, name)
    if not note.recipe:
        return note.said or "was not passed on to transform"
    return f"is nowhere in {place.pipeline}/transform: see etl fsck"


def _discarded(layout: Layout, held: Archived, source: str) -> str:
    """Say that an operator took the source out of the road, and why; "" when nobody did."""
    told = notes.read_discarded(layout, held.pipeline, held.id)
    path = str(layout.discarded(held.pipeline, held.id).relative_to(layout.data))
    if not told and path in held.notes:
        told = {
            one: why
            for _, data in archived.read_notes(held, [path])
            for one, why in json.loads(data).get("discarded", {}).items()
        }
    return f"was discarded: {told[source]}" if source in told else ""


# --- what is done ------------------------------------------------------------------------------------------


def bring_back(app: App, day: Day, act: Act) -> Iterator[Replayed]:
    """Bring back what came on one day, oldest first, and give what became of each; one that cannot stops no other.

    The act is recorded before the first is moved; its `because` is set where a new generation is asked for.
    """
    if not day.candidates:
        return
    place = Place(pipeline=day.candidates[0].pipeline, stage=Stage.TRANSFORM)
    held = [one.held for one in day.candidates if one.held is not None and not one.why]
    room.require(
        app.layout, app.config.settings.reserve, sum(one.source[1].size for one in held if one.source)
    )
    with ExitStack() as stack:
        stack.enter_context(_refusing(day))
        aside = None
        if held:
            aside = stack.enter_context(replays.unpacked(app.layout, place, day.day, held, app.announce))
        moving = tuple(f"{place}/{one.name}" for one in day.candidates if not one.why)
        with _recorded(app.layout, replace(act, files=moving)) as left:
            for done in _moved(app, place, day, aside, again=bool(act.because)):
                if done.moved:
                    left.discard(f"{place}/{done.candidate.name}")
                yield done


@contextmanager
def _recorded(layout: Layout, act: Act) -> Iterator[set[str]]:
    """Record an act before it is done; what is left in the set at the end was not done after all."""
    left = set(act.files)
    if left:
        acts.record(layout, act)
    try:
        yield left
    finally:
        if left:
            acts.record(layout, replace(act, files=tuple(sorted(left)), undone=True))


@contextmanager
def _refusing(day: Day) -> Iterator[None]:
    """Put an answer of the disk in words; nothing that was written aside is left then."""
    try:
        yield
    except OSError as error:
        full = error.errno in disk.NO_ROOM
        raise (NoRoom if full else Unavailable)(
            f"{day.day}: the disk answered: {error}",
            next="make room, then replay it again" if full else "check the disk, then replay it again",
        ) from error


def _moved(
    app: App, place: Place, day: Day, aside: replays.Unpacked | None, *, again: bool
) -> Iterator[Replayed]:
    for one in day.candidates:
        if one.why:
            yield Replayed(candidate=one, why=one.why)
            continue
        try:
            _move(app, place, one, aside, again=again)
        except NotClaimed as error:
            yield Replayed(candidate=one, why=str(error))
        except (EtlError, OSError) as error:
            yield Replayed(candidate=one, why=str(error), wrong=True)
        else:
            telling.moved(app, place, one.name)
            yield Replayed(candidate=one, moved=True)


def _move(app: App, place: Place, one: Candidate, aside: replays.Unpacked | None, *, again: bool) -> Waiting:
    if one.held is None or aside is None:
        return replays.send_back(app.layout, place, one.name, app.announce, again=again)
    return replays.put_back(app.layout, place, one.held, aside, again=again)
