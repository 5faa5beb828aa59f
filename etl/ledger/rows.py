"""What the ledger keeps, as values: files, attempts, deliveries, verdicts and what followed, services, folders.

Holds shapes and how two reports of one attempt become one; no database is touched and no file looked at.
Made by whoever looks at the disk (`services`), written by `writes`, given back by `queries`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from etl.model import Place, Status

#: where a file may lie, and its name as the ledger spells it.
Address = tuple[Place, str]
#: a source file: its pipeline and its id.
Delivered = tuple[str, str]
#: a byte of a name that is not UTF-8, as Python holds it and as we spell it.
_ESCAPED = re.compile(r"\\u(dc[89a-f][0-9a-f])")


def spelled(text: str) -> str:
    """Give a text as both databases can hold it; bytes of a name that are not UTF-8 are escaped."""
    return text.replace("\0", "\\0").encode(errors="backslashreplace").decode()


def unspelled(text: str) -> str:
    """Give a name back as it is on disk, from how the ledger spells it."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text) if "\\" in text else text


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file in one status folder."""

    place: Place
    name: str
    status: Status
    #: the source file it is or descends from; "" for a drop without an id, and for a request.
    file_id: str = ""
    generation: int = 1
    part: str = ""
    #: its mtime: since when it lies there.
    since: float = 0.0
    attempts: int = 0
    summary: str = ""
    #: what is wrong with it, without lines and values.
    causes: tuple[str, ...] = ()
    #: its note, without the lines of held-back rows.
    note: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Tell whether it still waits or is being worked."""
        return self.status in (Status.WORKING, Status.IN_PROCESS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One claim and what became of it, as far as it was told or can be read from a note."""

    place: Place
    name: str
    attempt: int
    file_id: str = ""
    begun: float | None = None
    #: None while it goes on, and where nobody told us: then the outcome is read from the folder.
    ended: float | None = None
    seconds: float | None = None
    worker: str = ""
    #: resolved, failed, put_off, skipped; "" while nobody knows.
    outcome: str = ""
    count: int | None = None
    rows: int | None = None
    said: str = ""

    @property
    def key(self) -> tuple[Place, str, int]:
        """Tell attempts apart."""
        return self.place, self.name, self.attempt

    def merged(self, other: Attempt) -> Attempt:
        """Put two reports together; the same whichever comes first, and however often.

        What was told by who ended it counts more than what a folder shows later.
        """
        first, second = (other, self) if other.ended and not self.ended else (self, other)
        return replace(
            first,
            file_id=first.file_id or second.file_id,
            begun=second.begun if first.begun is None else first.begun,
            ended=second.ended if first.ended is None else first.ended,
            seconds=second.seconds if first.seconds is None else first.seconds,
            worker=first.worker or second.worker,
            outcome=first.outcome or second.outcome,
            count=second.count if first.count is None else first.count,
            rows=second.rows if first.rows is None else first.rows,
            said=first.said or second.said,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A source file as it was delivered, and how far it is."""

    pipeline: str
    file_id: str
    given: str = ""
    sha256: str = ""
    size: int = 0
    arrived: float = 0.0
    origin: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    #: files of it that wait or are worked, and that lie in `failed/`; kept by `writes`.
    open: int = 0
    failed: int = 0
    #: False: touched since its counts were last made and, where nothing of it is open, its verdict was asked for.
    judged: bool = False
    #: how it stands: working, resolved, partial, failed.
    verdict: str = "working"
    #: the last verdict that was recorded, and when; 0 before the first.
    verdict_number: int = 0
    ended: float | None = None
    rows: int = 0
    units: int = 0
    held_back: int = 0
    loaded: Mapping[str, int] = field(default_factory=dict)
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One verdict of a delivery, in its order."""

    pipeline: str
    file_id: str
    number: int
    verdict: str
    at: float
    said: str = ""
    counts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowUp:
    """What followed a verdict: a hook or a callback, and how far it is."""

    pipeline: str
    file_id: str
    number: int
    #: which of the things that follow this verdict.
    key: str
    what: str = ""
    target: str = ""
    state: str = ""
    tries: int = 0
    said: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One life of a service: when it started, and when it was seen to be gone."""

    name: str
    host: str
    pid: int
    started: float
    restarts: int = 0
    ended: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """One moment of a schedule, and what came of it."""

    schedule: str
    #: when it was due, in seconds since 1970.
    tick: int
    #: the cron line and zone it belongs to.
    plan: str
    #: claimed or done; begun: from here on the schedule counts; ended: it was taken out of the configuration.
    state: str
    #: on time or caught up.
    how: str = ""
    #: ticks before this one that came while nobody looked, and are not made up for.
    missed: int = 0
    #: who claimed it.
    owner: str = ""
    claimed: float = 0.0
    done: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """One status folder: how many files the ledger has of it, and what it looked like when it was last listed."""

    place: Place
    status: Status
    files: int = 0
    #: its mtime in nanoseconds; 0: it has to be listed.
    stamp: int = 0
    #: names in it that are never work.
    ignored: int = 0
    #: since when the oldest waiting file waits.
    oldest: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """All attempts of one place that ended in one way."""

    place: Place
    outcome: str
    jobs: int = 0
    seconds: float = 0.0
    rows: int = 0
    #: jobs announced, unit files made or units inserted, as the stage counts.
    count: int = 0
