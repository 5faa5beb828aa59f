"""Load: one unit file goes to every location, each in its own transaction; one that refuses stops no other.

A file in `load/working` goes to all locations, one in `load/<location>/working` to that one alone. What a
location refuses becomes that location's own copy or held-back file, published with the load's outbox.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO

from etl import disk, points
from etl.app import App
from etl.errors import Away, ConfigError, EtlError, Final, Refused, Retryable, StillAway
from etl.files import notes, outbox, reasons
from etl.files.moves import Claim
from etl.formats import units
from etl.model import (
    Block,
    Loaded,
    Place,
    Progress,
    Reason,
    Resolved,
    Stage,
    Status,
    UnitFile,
    UnitKey,
    Urgency,
)
from etl.points import Point
from etl.stages import endings, outages, pauses

if TYPE_CHECKING:
    from etl.locations.location import Location


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one location said to one unit file."""

    location: str
    loaded: Loaded | None = None
    error: EtlError | None = None

    @property
    def told(self) -> str:
        """Say it in a few words."""
        if isinstance(self.error, Away):
            return f"{self.location}: away"
        if self.loaded is None:
            return f"{self.location}: {self.error.summary if self.error else 'no answer'}"
        if self.loaded.superseded:
            return f"{self.location}: superseded by a newer generation"
        return f"{self.location}: loaded before" if self.loaded.before else ""


def work(app: App, claim: Claim) -> Resolved:
    """Load a unit file and publish what was refused; raise only when its one location wants another try."""
    if not claim.file.part:
        raise Final(
            f"{claim.name!r} is not a unit file",
            next="source files belong into extract/working or transform/working",
        )
    with os.fdopen(os.dup(claim.descriptor), "rb") as stream:
        stream.seek(0)
        file = _unit_file(app, claim, stream)
        # hashed to its end by now: what still grows is written to no location
        claim.check_unchanged()
        answers = [_ask(app, claim.place, location, file) for location in _wanted(app, claim.place)]
        _raise_if_alone(app, claim, answers)
        return _publish(app, claim, file, answers)


def _wanted(app: App, place: Place) -> list[Location]:
    """Give the locations this file is for, or raise `Final` when one cannot even be opened."""
    try:
        locations = app.locations(place.pipeline)
    except ConfigError as error:
        raise Final(error.summary, next="mend the configuration, then move the file back") from error
    return [locations[place.location]] if place.location else list(locations.values())


def _unit_file(app: App, claim: Claim, stream: BinaryIO) -> UnitFile:
    """Describe the claimed file to the locations."""
    file, pipeline = claim.file, claim.place.pipeline

    def blocks() -> Iterator[Block]:
        # what our own disk answers must not be taken for an answer of the location
        try:
            stream.seek(0)
            yield from units.read_blocks(stream)
        except OSError as error:
            raise Retryable(f"{claim.name!r} cannot be read: {error}", next="check the disk") from error

    return UnitFile(
        key=UnitKey(
            data=app.data_id, pipeline=pipeline, file=file.id, generation=file.generation, part=file.part
        ),
        name=claim.name,
        recipe=units.read_recipe(stream),
        sha256=disk.sha256(claim.descriptor),
        blocks=blocks,
        schema=app.pipeline(pipeline).spec.transform.unit_schema,
    )


def _ask(app: App, place: Place, location: Location, file: UnitFile) -> Answer:
    own = replace(place, location=location.name)
    if place != own and (paused := pauses.away_now(app, own)):
        # known to be away: its own copy waits for it, and the other locations wait for no time-out
        return Answer(location=location.name, error=Away(paused))
    asked = time.time()
    try:
        answer = Answer(location=location.name, loaded=location.load(file))
    except Away as error:
        outages.gone(app, own, error, asked)
        return Answer(location=location.name, error=error)
    except (Final, Retryable) as error:
        told = endings.discreet(app, file.key.pipeline, location.name, error)
        answer = Answer(location=location.name, error=told)
    outages.back(app, own)
    return answer


def _raise_if_alone(app: App, claim: Claim, answers: list[Answer]) -> None:
    """Let the road decide about a location's own file: there is nobody else to wait for."""
    place = claim.place
    if not place.location or not (error := answers[0].error):
        return
    if not isinstance(error, Away):
        raise error
    if not app.waits_for_away:
        raise Refused(error.summary, next=error.next, where=error.where) from error
    with suppress(OSError):  # a view for people, and the disk may be full
        reason = replace(_waits(app, place, error), attempt=claim.note.attempt)
        reasons.write(app.layout, place, claim.name, reason, Status.WORKING)
    raise StillAway(f"{place.location} is away: {error.summary}")


def _waits(app: App, place: Place, error: EtlError) -> Reason:
    """Give the reason of a file that waits for a location."""
    return replace(
        endings.reason(app, place, error),
        urgency=Urgency.INFO,
        next=f"nothing: it waits for {place.location} and is loaded by itself when that is back",
    )


def _publish(app: App, claim: Claim, file: UnitFile, answers: list[Answer]) -> Resolved:
    """Commit this load: copies for those who refused, held-back units, and the note."""
    count = sum(answer.loaded.count for answer in answers if answer.loaded)
    total = _total(file, answers)
    rejected = [
        answer
        for answer in answers
        if answer.loaded and answer.loaded.rejected and _is_news(app, claim, answer)
    ]
    refused = [answer for answer in answers if answer.error]
    with outbox.stage(app.layout, claim.place, claim.name, claim.note.attempt) as staging:
        for answer in rejected:
            _hold_back(app, claim, file, staging, answer)
        for answer in refused:
            _copy_for(app, claim, staging, answer)
        held = sum(len(answer.loaded.rejected) for answer in rejected if answer.loaded)
        said = "; ".join(filter(None, (answer.told for answer in answers)))
        told = {answer.location: _told(answer, total) for answer in answers}
        note = replace(
            claim.note,
            ended=Status.RESOLVED,
            units=total,
            held_back=held,
            said=said,
            locations={**claim.note.locations, **told},
        )
        claim.check_unchanged()
        staging.commit(note, app.announce)
    app.progress(Progress(units=count, held_back=held))
    return Resolved(count=count, said=said, held_back=held, refused=len(refused))


def _is_news(app: App, claim: Claim, answer: Answer) -> bool:
    """Tell whether what a location rejected is still to be held back: once that has a note, it may be mended by now."""
    return not app.layout.note(_bad_place(claim, answer), _bad_name(claim)).exists()


def _bad_place(claim: Claim, answer: Answer) -> Place:
    return Place(pipeline=claim.place.pipeline, stage=Stage.LOAD, location=answer.location)


def _bad_name(claim: Claim) -> str:
    return str(claim.file.held_back(".jsonl", claim.file.generation))


def _total(file: UnitFile, answers: list[Answer]) -> int:
    """Count the file's units: as a location counted them, else by reading."""
    for answer in answers:
        loaded = answer.loaded
        if loaded and not loaded.before and not loaded.superseded:
            return loaded.count + len(loaded.rejected)
    return sum(len(block.rows) for block in file.blocks())


def _told(answer: Answer, total: int) -> dict[str, Any]:
    if answer.loaded is None:
        kind = "away" if isinstance(answer.error, Away) else "refused"
        return {kind: answer.error.summary if answer.error else ""}
    if answer.loaded.superseded:
        return {"superseded": True}
    held = len(answer.loaded.rejected)
    return {"units": total - held} | ({"held_back": held} if held else {})


def _copy_for(app: App, claim: Claim, staging: outbox.Staging, answer: Answer) -> None:
    """Give a location that did not take the file its own copy: waiting for another try, or failed."""
    error = answer.error
    assert error is not None
    place = replace(claim.place, location=answer.location)
    retry = app.options(place).retry
    for_it = isinstance(error, Away)
    waits = app.waits_for_away if for_it else isinstance(error, Retryable) and retry.times > 0
    status = Status.WORKING if waits else Status.FAILED
    path = staging.child(place, status, claim.name)
    with points.effect(Point.STAGE_CHILD), os.fdopen(os.dup(claim.descriptor), "rb") as stream:
        stream.seek(0)
        disk.copy(stream, path)
    # one try is used up, and the copy's own go on from there; waiting for a location that is away is none
    not_before = time.time() + endings.delay(retry, 0) if waits and not for_it else 0.0
    told = _waits(app, place, error) if waits and for_it else _refusal(app, place, error, not_before)
    told = replace(told, attempt=claim.note.attempt)
    staging.add(app.layout.reason(place, claim.name, status), reasons.encode(told))
    note = notes.FileNote(
        # an earlier copy's attempts are not used again
        attempt=notes.read(app.layout, place, claim.name).attempt,
        tries=int(bool(not_before)),
        not_before=not_before,
        ended="" if waits else Status.FAILED,
        said=error.summary,
    )
    staging.add(app.layout.note(place, claim.name), notes.dump(note))


def _refusal(app: App, place: Place, error: EtlError, not_before: float) -> Reason:
    """Say why a location did not take a file, and what is to be done: nothing, if it is tried again."""
    told = endings.reason(app, place, error)
    if not_before:
        when = time.strftime("%H:%M:%S", time.localtime(not_before))
        return replace(told, urgency=Urgency.INFO, next=f"nothing: it is tried again at {when}")
    back = f"move it from {place}/failed to {place}/working; only {place.location} is loaded then"
    return replace(told, next=f"{error.next or 'put it right'}; then {back}")


def _hold_back(app: App, claim: Claim, file: UnitFile, staging: outbox.Staging, answer: Answer) -> None:
    """Publish the units a location rejected as that location's own `-bad` file."""
    assert answer.loaded is not None
    rejected = answer.loaded.rejected
    place, name = _bad_place(claim, answer), _bad_name(claim)
    with points.effect(Point.STAGE_CHILD), staging.child(place, Status.FAILED, name).open("xb") as handle:
        writer = units.UnitWriter(handle, file.recipe)
        for fields, row in _rows_of(file, {trouble.unit for trouble in rejected if trouble.unit is not None}):
            writer.write(fields, [row])
    told = endings.shown(app, claim.place.pipeline, rejected)
    reason = Reason(
        summary=f"{answer.location} refused {len(rejected):,} units of {claim.name!r}",
        impact=f"all its other units are at {answer.location}; these are missing until they are corrected",
        next=f"correct the units in {name}, then move it from {place}/failed to {place}/working",
        where=told,
        cause=told[0].cause,
        attempt=claim.note.attempt,
        recipe=file.recipe,
        about=endings.about(app, claim.place.pipeline),
    )
    staging.add(app.layout.reason(place, name), reasons.encode(reason))
    staging.add(
        app.layout.note(place, name), notes.dump(notes.FileNote(ended=Status.FAILED, rows=len(rejected)))
    )


def _rows_of(file: UnitFile, ordinals: set[int]) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    start = 0
    for block in file.blocks():
        for index, row in enumerate(block.rows, start):
            if index in ordinals:
                yield block.fields, list(row)
        start += len(block.rows)
