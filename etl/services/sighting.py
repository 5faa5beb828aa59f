"""Sighting: where a file lies at this moment and what its notes say, as the ledger keeps it.

A few questions to the disk for each name, and no folder is listed. Changes nothing. Called by the recorder for
everything it hears of or finds changed.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable
from dataclasses import fields, replace

from etl.files import causes, headers, names, notes, reasons
from etl.files.layout import REQUESTS, Layout
from etl.ledger.rows import Attempt, Delivered, Delivery, File, spelled
from etl.model import Place, Status, Update
from etl.stages import telling

#: told events that end an attempt.
ENDINGS = frozenset({"resolved", "failed", "put_off", "skipped"})


def look(layout: Layout, place: Place, name: str) -> tuple[File, ...]:
    """Give the files of this name at a place: usually one, two while a namesake waits, none once it is gone."""
    if names.never_work(name) or "/" in name or "\0" in name or not names.fits(name):
        return ()
    found = _found(layout, place, name)
    if len(found) != 1:  # it may be on its way between two folders
        found = _found(layout, place, name)
    return tuple(_file(layout, place, name, status, since) for status, since in found)


def _found(layout: Layout, place: Place, name: str) -> list[tuple[Status, float]]:
    folder, found = f"{layout.folder(place)}/", []
    for status in Status:
        try:
            facts = os.lstat(f"{folder}{status}/{name}")
        except (FileNotFoundError, NotADirectoryError):
            continue
        if not stat.S_ISDIR(facts.st_mode):
            found.append((status, facts.st_mtime))
    return found


def _file(layout: Layout, place: Place, name: str, status: Status, since: float) -> File:
    file = names.parse(place.pipeline, name)
    if file is None:
        # a drop nobody has claimed yet; only what failed has something to say
        file = names.FileName(stem="", id="")
    note = notes.glance(layout, place, name)
    why = reasons.read(layout, place, name) if status is Status.FAILED else {}
    return File(
        place=place,
        name=spelled(name),
        status=status,
        file_id=file.id if place.location != REQUESTS else "",
        generation=file.generation,
        part=file.part,
        since=since,
        attempts=note.attempt,
        summary=spelled(reasons.summary(why) if status is Status.FAILED else note.said),
        causes=tuple(sorted(map(spelled, causes.of(why)))) if status is Status.FAILED else (),
        note=_kept(note),
    )


def _kept(note: notes.FileNote) -> dict[str, object]:
    """Give of a note what counts are made of; the lines of held-back rows may be many and stay on disk."""
    facts = json.loads(notes.dump(note))
    return {key: value for key, value in facts.items() if key != "lines"}


def note_of(file: File) -> notes.FileNote:
    """Give a file's note back, as far as the ledger keeps it."""
    known = {one.name for one in fields(notes.FileNote)}
    return notes.from_facts({key: value for key, value in file.note.items() if key in known})


def arrival(layout: Layout, pipeline: str, file_id: str, known: Iterable[File]) -> Delivery:
    """Give what is known of a source file from its note, or from the name of one of its files."""
    note = notes.glance_source(layout, pipeline, file_id)
    if note is None:
        file = next((names.parse(pipeline, one.name) for one in known), None)
        given, arrived = file.given if file else "", names.milliseconds(file_id) / 1000
        return Delivery(pipeline=pipeline, file_id=file_id, given=given, arrived=arrived)
    return Delivery(
        pipeline=pipeline,
        file_id=file_id,
        given=note.given,
        sha256=note.sha256,
        size=note.size,
        arrived=note.arrived,
        origin=note.origin,
        headers=headers.shown(note.headers),
    )


def followed(update: Update) -> Delivered | None:
    """Give the delivery whose verdict something followed; None where an update tells of something else."""
    file = names.parse(update.place.pipeline, update.name) if update.event == telling.FOLLOWED else None
    return (update.place.pipeline, file.id) if file else None


def attempt(update: Update) -> Attempt | None:
    """Give the attempt that an update tells of; None where it tells of none."""
    if update.attempt < 1:
        return None
    place, name = update.place, spelled(update.name)
    file = names.parse(place.pipeline, update.name) if place.location != REQUESTS else None
    file_id = file.id if file else ""
    one = Attempt(place=place, name=name, attempt=update.attempt, file_id=file_id, worker=update.worker)
    if update.event not in ENDINGS:
        return replace(one, begun=update.at) if update.event == "claimed" else None
    return replace(
        one,
        begun=update.at - update.seconds,
        ended=update.at,
        seconds=update.seconds,
        outcome=update.event,
        count=update.count,
        said=update.said,
    )
