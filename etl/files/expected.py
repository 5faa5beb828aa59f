"""What came of what is expected: a record for each expectation in `data/<pipeline>/.expected/`, bounded.

Beside the data, so that cleaning, a flushed Redis or a lost ledger change nothing. Reads and writes; decides nothing.
Written by the calendar; the headers of the last ones by whoever transforms them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from etl import disk
from etl.files.layout import Layout
from etl.points import Point

#: deliveries and days that are remembered of one expectation.
MOST, MOST_DAYS = 30, 40
#: deliveries whose headers are: two that come together may be worked in any order.
MOST_HEADERS = 5
#: columns, and characters of their names, of the longest header that is kept.
MOST_COLUMNS, LONGEST_HEADER = 2_000, 64_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One delivery of what is expected."""

    id: str
    given: str
    #: when it came, seconds since 1970.
    at: float
    size: int
    sha256: str
    #: None until it was transformed.
    rows: int | None = None
    #: why transform failed, while it did.
    failed: str = ""
    #: what is wrong with it: kind and sentence.
    wrong: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is known of one expectation."""

    name: str
    by: str
    #: from when on something is told, seconds since 1970: what lies before is history.
    since: float
    #: up to when source notes were looked at, nanoseconds on the clock of their disk.
    looked: int = 0
    #: when the youngest delivery came that is no longer remembered.
    floor: float = 0.0
    #: oldest first.
    deliveries: tuple[Known, ...] = ()
    #: by day: when its first delivery came.
    came: Mapping[str, float] = field(default_factory=dict)
    #: the days of which it was told that nothing came.
    missing: tuple[str, ...] = ()

    def knows(self, file_id: str) -> bool:
        """Tell whether a delivery is remembered."""
        return any(one.id == file_id for one in self.deliveries)

    def having(self, one: Known) -> Record:
        """Give the record with a delivery added, or put in the place of an older state of it."""
        others = [known for known in self.deliveries if known.id != one.id]
        every = sorted([*others, one], key=lambda known: (known.at, known.id))
        dropped, kept = every[:-MOST], every[-MOST:]
        floor = max([self.floor, *(known.at for known in dropped)])
        return replace(self, deliveries=tuple(kept), floor=floor)

    def first_on(self, day: str, at: float) -> Record:
        """Give the record with a day on which a delivery came."""
        came = {**self.came, day: min(at, self.came.get(day, at))}
        return replace(self, came={day: came[day] for day in sorted(came)[-MOST_DAYS:]})

    def without(self, day: str) -> Record:
        """Give the record with a day of which it was told that nothing came."""
        return replace(self, missing=tuple(sorted({*self.missing, day}))[-MOST_DAYS:])


def folder(layout: Layout, pipeline: str) -> Path:
    """Where all that is known of one pipeline's expectations lies."""
    return layout.data / pipeline / ".expected"


def read(layout: Layout, pipeline: str, key: str) -> Record | None:
    """Read a record; None where there is none, or it is damaged: it then begins anew, and tells nothing twice."""
    try:
        facts = json.loads((folder(layout, pipeline) / f"{key}.json").read_bytes())
        told = _kept(Record, facts)
        deliveries = tuple(Known(**_kept(Known, one)) for one in told.pop("deliveries", ()))
        return Record(**told | {"deliveries": deliveries, "missing": tuple(told.get("missing", ()))})
    except (FileNotFoundError, ValueError, TypeError, AttributeError):
        return None


def write(layout: Layout, pipeline: str, key: str, record: Record) -> None:
    """Keep a record, durably."""
    disk.make_folder(folder(layout, pipeline))
    path = folder(layout, pipeline) / f"{key}.json"
    disk.write(path, json.dumps(asdict(record), indent=1).encode() + b"\n", Point.EXPECTED)


def lock(layout: Layout, pipeline: str) -> disk.Lock | None:
    """Lock the records of a pipeline; None while another tells of them."""
    disk.make_folder(folder(layout, pipeline))
    return disk.lock_path(folder(layout, pipeline) / ".lock")


# --- headers -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The header of one delivery that was transformed."""

    id: str
    given: str
    columns: tuple[str, ...]


def can_be_kept(columns: tuple[str, ...]) -> bool:
    """Tell whether a header is of a size that is kept."""
    return len(columns) <= MOST_COLUMNS and sum(map(len, columns)) <= LONGEST_HEADER


def read_headers(layout: Layout, pipeline: str, key: str) -> list[Header]:
    """Read the last headers of an expectation, oldest delivery first; damaged ones are as good as none."""
    try:
        facts = json.loads(_headers(layout, pipeline, key).read_bytes())
        return [Header(**_kept(Header, one) | {"columns": tuple(one["columns"])}) for one in facts["headers"]]
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
        return []


def before(headers: Iterable[Header], file_id: str) -> Header | None:
    """Give the header of the delivery before one; None where nothing older is known."""
    return max((one for one in headers if one.id < file_id), key=lambda one: one.id, default=None)


def headers_file(layout: Layout, pipeline: str, key: str, header: Header) -> tuple[Path, bytes]:
    """Give where the headers are kept and as what with one more, to be committed with what its file makes."""
    others = [one for one in read_headers(layout, pipeline, key) if one.id != header.id]
    kept = sorted([*others, header], key=lambda one: one.id)[-MOST_HEADERS:]
    facts = {"headers": [asdict(one) for one in kept]}
    return _headers(layout, pipeline, key), json.dumps(facts, indent=1).encode() + b"\n"


def _headers(layout: Layout, pipeline: str, key: str) -> Path:
    return folder(layout, pipeline) / f"{key}.headers.json"


def _kept(kind: type[Record] | type[Known] | type[Header], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what a newer version may have added."""
    known = {one.name for one in fields(kind)}
    return {key: value for key, value in facts.items() if key in known}
