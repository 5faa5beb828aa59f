"""The nouns everybody shares: places, statuses, reasons, unit files and how a job ends.

Holds values only: no file is touched, no connection opened, nothing outside the standard library imported.
Every room above imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Stage(StrEnum):
    """What is done to a file. The word is also the folder's name."""

    EXTRACT = "extract"
    TRANSFORM = "transform"
    LOAD = "load"


class Status(StrEnum):
    """The folder a file lies in. The word is also the folder's name."""

    WORKING = "working"
    IN_PROCESS = "in_process"
    RESOLVED = "resolved"
    FAILED = "failed"


class Urgency(StrEnum):
    """When somebody has to look at a failure."""

    NOW = "now"
    MORNING = "morning"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Place:
    """One set of status folders: a pipeline's stage, or one location of its load stage."""

    pipeline: str
    stage: Stage
    location: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.pipeline, self.stage, self.location) if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a file looked like when its job was made; a file that is no longer that goes back to waiting."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A file that lies in a `working/` folder and wants a job."""

    place: Place
    name: str
    seen: Seen | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One thing wrong with one row or unit: where it is and why."""

    cause: str
    line: int | None = None
    field: str | None = None
    unit: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Give the facts that are known, in the order people read them."""
        facts = {"line": self.line, "field": self.field, "unit": self.unit, "cause": self.cause}
        return {key: value for key, value in facts.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a file failed, for people: what happened, what it means, what to do next."""

    summary: str
    next: str
    impact: str = ""
    urgency: Urgency = Urgency.MORNING
    where: tuple[Trouble, ...] = ()
    #: troubles that are not told one by one in `where`.
    more: int = 0
    cause: str = ""
    attempt: int = 0
    at: str = ""
    recipe: str = ""
    about: Mapping[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Give the reason in the order in which a person reads it."""
        facts: dict[str, Any] = {
            "summary": self.summary,
            "impact": self.impact,
            "urgency": str(self.urgency),
            "next": self.next,
            "where": [trouble.as_dict() for trouble in self.where],
            "cause": self.cause,
            "attempt": self.attempt,
            "at": self.at,
            "recipe": self.recipe,
        }
        if self.about:
            facts["about"] = dict(self.about)
        return facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Units of one shape. Each row is the unit's source line followed by the values of `fields`."""

    fields: tuple[str, ...]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitKey:
    """What makes a unit file the same unit file at a location, whatever happens to it: rule 5's key."""

    data: str
    pipeline: str
    file: str
    generation: int
    part: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitFile:
    """One unit file as a location sees it: its key, and its units as often as they are asked for."""

    key: UnitKey
    name: str
    recipe: str
    sha256: str
    blocks: Callable[[], Iterator[Block]]
    #: JSON Schema of one unit, as configured; {} when there is none.
    schema: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What one location did with one unit file."""

    #: units written by this call; 0 when they were there before.
    count: int
    #: units the location refused, by ordinal in the unit file (from 0); always the same for one key.
    rejected: tuple[Trouble, ...] = ()
    #: the same unit file was loaded here by an earlier attempt.
    before: bool = False
    #: a newer generation of the source file is here already; nothing was written.
    superseded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One unit file that a location has, as the location itself recorded it."""

    file: str
    generation: int
    part: str
    #: units written.
    count: int
    #: how many units it refused.
    rejected: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """One row that a location has, and what of its origin the location itself knows."""

    values: Mapping[str, Any]
    file: str
    generation: int
    #: the line in the source file; None where the location keeps the unit's place in its unit file instead.
    line: int | None = None
    #: name of the unit file and ordinal in it, from 0.
    unit_file: str = ""
    unit: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """More rows of one generation of a source file than a location may have."""

    file: str
    generation: int
    rows: int
    #: units that its keys say were loaded.
    counted: int
    #: the generation that counts; rows of a lower one should be gone.
    current: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The file is done; `count` jobs were announced or units inserted. 0 is a fine count."""

    count: int
    said: str = ""
    #: rows or units kept out, and locations that refused: the file is done, its delivery is not.
    held_back: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The file lies in `failed/` with its reason beside it."""

    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class PutOff:
    """The file is back in `working/` and will be tried again after `not_before` (seconds since 1970)."""

    reason: Reason
    not_before: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """This job changed nothing: another has the file, it is gone, or it is not complete yet."""

    why: str
    #: somebody has to do something about the cause.
    pressing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """Something happened to a file: a hint to look where it lies now, and a line of its history.

    Lost, doubled or late, it changes nothing: the folders are the truth.
    """

    place: Place
    name: str
    #: claimed, resolved, failed, put_off, skipped, moved.
    event: str
    #: seconds since 1970.
    at: float
    #: the attempt it belongs to; 0 for none.
    attempt: int = 0
    #: `host:pid` of the worker.
    worker: str = ""
    seconds: float = 0.0
    count: int = 0
    said: str = ""


Outcome = Resolved | Failed | PutOff | Skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a job in hand has done since it last said so; for whoever watches."""

    #: rows read.
    rows: int = 0
    #: units loaded, over all locations.
    units: int = 0
    held_back: int = 0
