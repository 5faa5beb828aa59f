"""The verdict note: `.notes/<id>.verdict.json` keeps every verdict a delivery got, and what followed each.

Beside the source's note, so that a flushed Redis or a lost ledger forgets none and repeats none. Reads, writes and
locks; decides nothing. Written by whoever judges, and by the courier for what followed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from etl import disk
from etl.errors import Final
from etl.files.layout import Layout
from etl.points import Point

#: lock files of one pipeline's verdicts; a delivery uses the one that its id falls on.
_LOCKS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One verdict: how a delivery stood when nothing of it was open any more."""

    #: counts from 1 for each delivery.
    number: int
    #: resolved, partial, failed.
    verdict: str
    generation: int = 0
    rows: int = 0
    units: int = 0
    held_back: int = 0
    #: units there, by location.
    loaded: Mapping[str, int] = field(default_factory=dict)
    #: files that an operator took out of the road.
    discarded: int = 0
    #: seconds since 1970.
    at: float = 0.0
    #: what changed since the verdict before.
    said: str = ""

    def same(self, other: Record) -> bool:
        """Tell whether another verdict says the same of the delivery."""
        return replace(self, number=0, at=0.0, said="") == replace(other, number=0, at=0.0, said="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """What became of one thing that follows a verdict."""

    #: told, refused, failed, waiting.
    state: str
    tries: int = 0
    said: str = ""
    at: float = 0.0
    #: a host or a pipeline, never a whole URL: that may carry a secret.
    target: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """All verdicts of a delivery, oldest first, and what followed each, as `<number>/<what>`."""

    records: tuple[Record, ...] = ()
    followed: Mapping[str, Followed] = field(default_factory=dict)

    @property
    def last(self) -> Record | None:
        """Give the verdict that counts; None while there never was one."""
        return self.records[-1] if self.records else None

    def numbered(self, number: int) -> Record | None:
        """Give one verdict by its number."""
        return next((record for record in self.records if record.number == number), None)


def path(layout: Layout, pipeline: str, file_id: str) -> Path:
    """Where the verdict note of a delivery lies."""
    return layout.data / pipeline / ".notes" / f"{file_id}.verdict.json"


def is_verdict(note: str) -> bool:
    """Tell the name of a verdict note, without `.json`, from a source note's."""
    return note.endswith(".verdict")


def read(layout: Layout, pipeline: str, file_id: str) -> Verdicts:
    """Read the verdicts of a delivery, or raise `Final` when their note is damaged."""
    where = path(layout, pipeline, file_id)
    try:
        facts = json.loads(where.read_bytes())
        return Verdicts(
            records=tuple(_build(Record, one) for one in facts["verdicts"]),
            followed={what: _build(Followed, one) for what, one in facts.get("followed", {}).items()},
        )
    except FileNotFoundError:
        return Verdicts()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Final(
            f"the verdict note {where} is damaged: {error}",
            next=f"move {where.name} out of the folder; the delivery is then judged anew, as its first time",
        ) from error


def lock(layout: Layout, pipeline: str, file_id: str) -> disk.Lock:
    """Wait until nobody else writes this delivery's verdicts, and lock them."""
    number = int.from_bytes(file_id.encode()[-4:]) % _LOCKS
    return disk.wait_for_lock(layout.data / pipeline / ".notes" / f".verdicts-{number}.lock")


def add(layout: Layout, pipeline: str, file_id: str, record: Record) -> None:
    """Record one more verdict, durably: from here on it counts. The caller holds the lock."""
    told = read(layout, pipeline, file_id)
    _write(layout, pipeline, file_id, replace(told, records=(*told.records, record)), Point.NOTE_VERDICT)


def follow(layout: Layout, pipeline: str, file_id: str, what: str, followed: Followed) -> None:
    """Record what became of one thing that follows a verdict, `<number>/<what>`."""
    with lock(layout, pipeline, file_id):
        told = read(layout, pipeline, file_id)
        kept = replace(told, followed={**told.followed, what: followed})
        _write(layout, pipeline, file_id, kept, Point.FOLLOW)


def since(layout: Layout) -> float:
    """Give since when verdicts are given in this data folder; the first who asks says that it is now (P27)."""
    mark = layout.own / "verdicts-since"
    if not mark.exists():
        disk.make_folder(layout.own)
        with disk.wait_for_lock(layout.own / "verdicts-since.lock"):
            if not mark.exists():
                disk.write(mark, f"{time.time()}\n".encode(), Point.NOTE_VERDICT)
    return float(mark.read_text())


def _write(layout: Layout, pipeline: str, file_id: str, told: Verdicts, point: Point) -> None:
    facts: dict[str, Any] = {"verdicts": [asdict(record) for record in told.records]}
    if told.followed:
        facts["followed"] = {what: asdict(one) for what, one in told.followed.items()}
    disk.write(path(layout, pipeline, file_id), json.dumps(facts, indent=1).encode() + b"\n", point)


Kept = TypeVar("Kept", Record, Followed)


def _build(kind: type[Kept], facts: Mapping[str, Any]) -> Kept:
    """Build what is kept, leaving out what a newer version may have added."""
    known = {item.name for item in fields(kind)}
    return kind(**{key: value for key, value in facts.items() if key in known})
