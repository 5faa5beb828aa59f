"""Expectations: what came of what is expected, brought up to date from notes and folders, and what is wrong with it.

Every finding is made once, when its facts are first known, and kept in the record; what came before an expectation
was first looked at is history and finds nothing. Writes nothing. Used by the calendar and by `etl files --today`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from fnmatch import fnmatchcase
from statistics import median

from etl.config.expecting import Expectation
from etl.config.reading import PipelineConfig
from etl.files import names, notes
from etl.files.expected import Known, Record
from etl.files.layout import Layout
from etl.files.notes import SourceNote
from etl.model import Place, Stage, Status
from etl.services import came

#: deliveries with a known number of rows from which on "usual" means something.
ENOUGH = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong with what is expected."""

    #: missing, late, empty, small, duplicate, header.
    kind: str
    text: str
    #: the delivery or the day it is about.
    about: str


def brought_up(
    layout: Layout,
    pipeline: str,
    one: Expectation,
    record: Record,
    new: Sequence[SourceNote],
) -> tuple[Record, list[Finding]]:
    """Give a record with what came and what became of it since, and what is newly found to be wrong."""
    found: list[Finding] = []
    for source in new:
        if fnmatchcase(source.given, one.name):
            record = _arrived(one, record, source, found)
    for known in record.deliveries:
        if known.rows is None:
            note = _transformed(layout, pipeline, known)
            if note.ended == Status.RESOLVED and note.recipe:
                record = _transformed_to(one, record, known, note, found)
            elif known.failed != (failed := note.said if note.ended == Status.FAILED else ""):
                record = record.having(replace(known, failed=failed))
    return record, found


def _transformed(layout: Layout, pipeline: str, known: Known) -> notes.FileNote:
    place = Place(pipeline=pipeline, stage=Stage.TRANSFORM)
    return notes.glance(layout, place, str(names.christen(known.given, known.id)))


def _arrived(one: Expectation, record: Record, source: SourceNote, found: list[Finding]) -> Record:
    """Take down a delivery, with what can be said of it at once."""
    # the time in the id is that of the drop: who was paused meanwhile does not make a file late
    at = names.milliseconds(source.id) / 1000
    if record.knows(source.id) or at <= record.floor:
        return record
    known = Known(id=source.id, given=source.given, at=at, size=source.size, sha256=source.sha256)
    day = one.day_of(at)
    if at >= record.since:
        if day.isoformat() not in record.came and at > one.due(day):
            known = _wrong(
                known, "late", f"{_name(known)} came at {_clock(one, at)}, {_late(one, day, at)}", found
            )
        twin = next((other for other in record.deliveries if other.sha256 == known.sha256), None)
        if not known.size:
            known = _wrong(known, "empty", f"{_name(known)} is empty: 0 bytes", found)
        elif twin and known.sha256:
            said = f"{_name(known)} has the same bytes as {_name(twin)}, which came {_clock(one, twin.at)}"
            known = _wrong(known, "duplicate", said, found)
    return record.having(known).first_on(day.isoformat(), at)


def _transformed_to(
    one: Expectation, record: Record, known: Known, note: notes.FileNote, found: list[Finding]
) -> Record:
    """Take down what a delivery came to."""
    usual = [
        other.rows
        for other in record.deliveries
        if other.rows is not None and (other.at, other.id) < (known.at, known.id)
    ]
    known = replace(known, rows=note.rows, failed="")
    if known.at >= record.since:
        if not note.rows and known.size:
            known = _wrong(known, "empty", f"{_name(known)} is empty: it has no rows", found)
        elif len(usual) >= ENOUGH and 0 < note.rows < one.rows.at_least * median(usual):
            said = (
                f"{_name(known)} is unusually small: {_rows(note.rows)}, where {median(usual):,.0f} are usual and at "
                f"least {one.rows.at_least * 100:g}% of that are expected"
            )
            known = _wrong(known, "small", said, found)
        if note.drift:
            known = _wrong(
                known, "header", f"{_name(known)} has another header than before: {note.drift}", found
            )
    return record.having(known)


def _wrong(known: Known, kind: str, text: str, found: list[Finding]) -> Known:
    found.append(Finding(kind=kind, text=text, about=known.id))
    return replace(known, wrong={**known.wrong, kind: text})


def missed(one: Expectation, day: date) -> Finding:
    """Say that nothing came by the hour of a day."""
    text = f"{names.printable(one.name)} did not come by {one.hour} on {day:%a} {day.isoformat()}"
    return Finding(kind="missing", text=text, about=day.isoformat())


def _name(known: Known) -> str:
    return names.printable(known.given)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


def _clock(one: Expectation, moment: float) -> str:
    return f"{datetime.fromtimestamp(moment, one.zone):%a %Y-%m-%d %H:%M}"


def _late(one: Expectation, day: date, at: float) -> str:
    minutes = max(1, int((at - one.due(day)) // 60))
    hours, minutes = divmod(minutes, 60)
    told = " ".join([f"{hours} h"] * bool(hours) + [f"{minutes} min"] * bool(minutes or not hours))
    return f"{told} after {one.hour} of {day:%a} {day.isoformat()}"


# --- how it stands today -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How one expectation stands on the day it is looked at."""

    pipeline: str
    name: str
    day: str
    by: str
    due: float
    #: came, late, missing, awaited.
    state: str
    #: when the first file of the day came.
    first: float | None
    #: those that are remembered.
    came: Sequence[Known]
    wrong: Mapping[str, Sequence[str]]


def looked_at(
    layout: Layout, pipeline: PipelineConfig, one: Expectation, record: Record | None, now: float
) -> Record:
    """Give what a calendar would know of an expectation by now; without a record also of what came earlier today."""
    looked = record.looked if record else None
    new = came.Notes(layout, pipeline.name).new(looked, now, history=record is None)
    begun = record or Record(name=one.name, by=str(one.by), since=one.begins(one.local(now)))
    return brought_up(layout, pipeline.name, one, begun, new)[0]


def today(
    layout: Layout, pipeline: PipelineConfig, one: Expectation, current: Record, now: float
) -> Standing | None:
    """Tell how an expectation stands today in its zone; None on a day on which nothing is expected."""
    day = one.local(now)
    if not one.is_on(day):
        return None
    of_today = [known for known in current.deliveries if one.day_of(known.at) == day]
    first = current.came.get(day.isoformat())
    if first is None:
        first = min((at for at in came.waiting(layout, pipeline, one) if one.day_of(at) == day), default=None)
    due, wrong = one.due(day), dict[str, list[str]]()
    if first is None and now > due:
        wrong["missing"] = [missed(one, day).text]
    for known in of_today:
        for kind, text in known.wrong.items():
            wrong.setdefault(kind, []).append(text)
        if known.failed:
            wrong.setdefault("failed", []).append(f"{_name(known)} failed: {names.printable(known.failed)}")
    return Standing(
        pipeline=pipeline.name,
        name=one.name,
        day=day.isoformat(),
        by=one.hour,
        due=due,
        state=_state(first, due, now),
        first=first,
        came=of_today,
        wrong=wrong,
    )


def _state(first: float | None, due: float, now: float) -> str:
    if first is None:
        return "missing" if now > due else "awaited"
    return "late" if first > due else "came"
