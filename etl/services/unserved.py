"""Unserved: what is known of queues whose work waits while no worker serves them, in `data/.etl/catch_all.json`.

Reads and writes that file only. Kept by the catch-all; read by `etl status`, which imports little.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from etl import disk
from etl.points import Point

#: what is done about a queue: it is watched; a worker was started for it; no worker may be started.
COUNTING, STARTED, REFUSED = "counting", "started", "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unserved:
    """One queue that nobody serves while something waits in it."""

    queue: str
    #: when that was first seen, seconds since 1970.
    since: float
    #: checks so far that found it so.
    checks: int = 0
    #: jobs or files that wait.
    waiting: int = 0
    state: str = COUNTING
    why: str = ""


def read(data: Path) -> dict[str, Unserved]:
    """Give the queues nobody serves, by name; none where the file is missing or damaged: it is counted anew."""
    try:
        facts = json.loads(_path(data).read_bytes())
        return {one["queue"]: Unserved(**one) for one in facts}
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return {}


def write(data: Path, known: Mapping[str, Unserved]) -> None:
    """Remember the queues nobody serves."""
    if not known and not _path(data).exists():
        return
    facts = json.dumps([asdict(known[queue]) for queue in sorted(known)], indent=1)
    # lost in a power loss, it is counted anew
    disk.write(_path(data), facts.encode() + b"\n", Point.NOTE_UNSERVED, durable=False)


def _path(data: Path) -> Path:
    return data / ".etl" / "catch_all.json"
