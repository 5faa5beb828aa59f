"""How the ledger's values become rows of its tables, and come back.

Only turns one into the other; asks and writes nothing. Used by `writes` and `queries`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson
import sqlalchemy as sa

from etl.ledger.rows import Attempt, Delivery, File, Folder, FollowUp, Run, Total, Verdict, spelled
from etl.model import Place, Stage, Status

Row = sa.Row[Any]
#: headers of a message that are columns of their own.
_ASKED_FOR = ("type", "key", "priority")


def dump(value: Any) -> str:
    """Give a value as JSON text, the same for the same value."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def at(place: Place) -> dict[str, str]:
    """Give the columns of a place."""
    return {"pipeline": place.pipeline, "stage": str(place.stage), "location": place.location}


def place(row: Row) -> Place:
    """Read a place."""
    return Place(pipeline=row.pipeline, stage=Stage(row.stage), location=row.location)


def file_row(file: File) -> dict[str, Any]:
    """Give a file as a row."""
    return {
        **at(file.place),
        "status": str(file.status),
        "name": file.name,
        "file_id": file.file_id,
        "generation": file.generation,
        "part": file.part,
        "since": file.since,
        "attempts": file.attempts,
        "summary": spelled(file.summary),
        "causes": causes_text(file.causes),
        "note": spelled(dump(dict(file.note))),
    }


def causes_text(causes: Iterable[str]) -> str:
    """Give causes as they are stored and compared."""
    return spelled(dump(sorted(map(spelled, causes))))


def file(row: Row) -> File:
    """Read a file."""
    return File(
        place=place(row),
        name=row.name,
        status=Status(row.status),
        file_id=row.file_id,
        generation=row.generation,
        part=row.part,
        since=row.since,
        attempts=row.attempts,
        summary=row.summary,
        causes=tuple(orjson.loads(row.causes)),
        note=orjson.loads(row.note),
    )


def attempt_row(one: Attempt) -> dict[str, Any]:
    """Give an attempt as a row."""
    return {
        **at(one.place),
        "name": one.name,
        "attempt": one.attempt,
        "file_id": one.file_id,
        "begun": one.begun,
        "ended": one.ended,
        "seconds": one.seconds,
        "worker": spelled(one.worker),
        "outcome": spelled(one.outcome),
        "count": one.count,
        "rows": one.rows,
        "said": spelled(one.said),
    }


def attempt(row: Row) -> Attempt:
    """Read an attempt."""
    facts = dict(row._mapping)
    for name in ("pipeline", "stage", "location"):
        del facts[name]
    return Attempt(place=place(row), **facts)


def delivery_row(one: Delivery) -> dict[str, Any]:
    """Give what is known of a delivery from its arrival on; how far it is is written elsewhere."""
    headers = {spelled(str(key)): spelled(str(value)) for key, value in one.headers.items()}
    return {
        "pipeline": one.pipeline,
        "file_id": one.file_id,
        "given": spelled(one.given)[:1000],
        "sha256": one.sha256,
        "size": one.size,
        "arrived": one.arrived,
        "origin": spelled(one.origin),
        "headers": spelled(dump(headers)),
        **{name: headers.get(name, "")[:200] for name in _ASKED_FOR},
    }


def delivery(row: Row) -> Delivery:
    """Read a delivery."""
    facts = {name: value for name, value in row._mapping.items() if name not in _ASKED_FOR}
    return Delivery(**{**facts, "headers": orjson.loads(row.headers), "loaded": orjson.loads(row.loaded)})


def verdict_row(one: Verdict) -> dict[str, Any]:
    """Give a verdict as a row."""
    return {
        **_delivered(one),
        "number": one.number,
        "verdict": one.verdict,
        "at": one.at,
        "said": spelled(one.said),
        "counts": dump(dict(one.counts)),
    }


def verdict(row: Row) -> Verdict:
    """Read a verdict."""
    return Verdict(**{**row._mapping, "counts": orjson.loads(row.counts)})


def followup_row(one: FollowUp) -> dict[str, Any]:
    """Give what followed a verdict as a row."""
    told = {name: spelled(str(getattr(one, name))) for name in ("key", "what", "target", "state", "said")}
    return {**_delivered(one), "number": one.number, "tries": one.tries, "at": one.at, **told}


def followup(row: Row) -> FollowUp:
    """Read what followed a verdict."""
    return FollowUp(**row._mapping)


def _delivered(one: Verdict | FollowUp) -> dict[str, Any]:
    return {"pipeline": one.pipeline, "file_id": one.file_id}


def run(row: Row) -> Run:
    """Read one life of a service."""
    return Run(**row._mapping)


def folder(row: Row, oldest: Mapping[Place, float] | None = None) -> Folder:
    """Read a status folder."""
    here, status = place(row), Status(row.status)
    waits = (oldest or {}).get(here) if status is Status.WORKING else None
    return Folder(
        place=here, status=status, files=row.files, stamp=row.stamp, ignored=row.ignored, oldest=waits
    )


def total(row: Row) -> Total:
    """Read a total."""
    return Total(
        place=place(row),
        outcome=row.outcome,
        jobs=row.jobs,
        seconds=row.seconds,
        rows=row.rows,
        count=row._mapping["count"],  # a row is a tuple, and has a method of that name
    )
