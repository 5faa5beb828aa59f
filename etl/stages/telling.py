"""Telling: what becomes of a file is told to whoever keeps the history, at its claim and at its end.

Says what happened and what the reason beside the file says, nothing more; never fails and never waits for anybody.
Called on the road every job takes.
"""

from __future__ import annotations

import os
import time
from functools import cache

from etl.app import App
from etl.files import names, notes
from etl.files.moves import Claim
from etl.model import Failed, Outcome, Place, PutOff, Resolved, Skipped, Stage, Update, Waiting

#: characters of what is said that are told.
LONGEST = 500
#: the event of an update that tells of no file but of what followed its verdict.
FOLLOWED = "followed"


def claimed(app: App, waiting: Waiting, claim: Claim) -> None:
    """Tell that a file was claimed; one that got its id by that is gone under its old name."""
    if claim.name != waiting.name:
        moved(app, waiting.place, waiting.name)
    app.tell(
        Update(
            place=claim.place,
            name=claim.name,
            event="claimed",
            at=time.time(),
            attempt=claim.note.attempt,
            worker=_worker(os.getpid()),
        )
    )


def ended(app: App, claim: Claim, outcome: Outcome, seconds: float) -> None:
    """Tell how a claim ended."""
    event, count, said = told(outcome)
    app.tell(
        Update(
            place=claim.place,
            name=claim.name,
            event=event,
            at=time.time(),
            attempt=claim.note.attempt,
            worker=_worker(os.getpid()),
            seconds=round(seconds, 4),
            count=count,
            said=said[:LONGEST],
        )
    )


def moved(app: App, place: Place, name: str) -> None:
    """Tell that somebody moved a file."""
    app.tell(Update(place=place, name=name, event="moved", at=time.time()))


def followed(app: App, pipeline: str, file_id: str) -> None:
    """Tell that something followed a verdict: nothing moved, and yet there is more to be known."""
    note = notes.glance_source(app.layout, pipeline, file_id)
    if note is not None:
        place = Place(pipeline=pipeline, stage=Stage.EXTRACT)
        name = str(names.christen(note.given, note.id))
        app.tell(Update(place=place, name=name, event=FOLLOWED, at=time.time()))


def told(outcome: Outcome) -> tuple[str, int, str]:
    """Give how a claim ended: the event, its count, and what is said of it."""
    match outcome:
        case Resolved(count=count, said=said):
            return "resolved", count, said
        case Failed(reason=reason):
            return "failed", 0, reason.summary
        case PutOff(reason=reason):
            return "put_off", 0, reason.summary
        case Skipped(why=why):
            return "skipped", 0, why


@cache
def _worker(pid: int) -> str:
    return f"{os.uname().nodename}:{pid}"
