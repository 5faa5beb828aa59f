"""The contract of this room: what a job is before it is one, who announces it, and who hears of its progress.

Names shapes only and imports neither rq nor redis. `stages` makes `Work`, `services` listens to `Report`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from etl.model import Place, Progress

#: the only functions a job may name; their dotted paths are a public contract.
ALLOWED = frozenset(
    {"etl.jobs.extract", "etl.jobs.transform", "etl.jobs.load", "etl.jobs.pull", "etl.jobs.clean"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One job to be: which allowed function, for which file. `arguments` holds JSON values only."""

    function: str
    arguments: Mapping[str, Any]
    #: the lane: a queue's short name, without the data folder's id, and `-high` or `-low` for its priority.
    queue: str = "default"
    #: seconds the job may take.
    timeout: int

    @property
    def identity(self) -> Identity:
        """Tell what this job is about; two jobs about the same thing are one too many, never a fault."""
        return identity(self.function, self.arguments)


#: function, pipeline, location and name of a job.
Identity = tuple[str, str, str, str]


def identity(function: str, arguments: Mapping[str, Any]) -> Identity:
    """Tell what a job is about: function, pipeline, location ('' for none) and file name."""
    pipeline, location, name = (str(arguments.get(key) or "") for key in ("pipeline", "location", "name"))
    return function, pipeline, location, name


class Announcer(Protocol):
    """Whoever turns work into jobs."""

    def announce(self, works: Sequence[Work]) -> None:
        """Make one job of each, or raise `Unavailable`; a job that is made twice does no harm."""


class Report(Protocol):
    """Whoever must know that a worker has a job in hand, and for how long it may have it."""

    def started(self, job: str, timeout: int) -> None:
        """Hear that `job` begins and may take `timeout` seconds."""

    def ended(self) -> None:
        """Hear that the job is over, however it ended."""

    def progressed(self, progress: Progress) -> None:
        """Hear what the job in hand has done since it last said so."""

    def holds(self, place: Place, name: str) -> None:
        """Hear which file the job in hand has claimed: should the worker die, that one must be brought back."""


class Unheard:
    """A report nobody listens to."""

    def started(self, job: str, timeout: int) -> None:
        """Say nothing."""

    def ended(self) -> None:
        """Say nothing."""

    def progressed(self, progress: Progress) -> None:
        """Say nothing."""

    def holds(self, place: Place, name: str) -> None:
        """Say nothing."""


class Board(Protocol):
    """Whoever shows how far the job in hand is; never raises."""

    def begin(self, place: Place, name: str) -> None:
        """Hear which file the job has claimed."""

    def read(self, rows: int, done: float, total: float) -> None:
        """Hear how many rows, and how many bytes of how many, were read of it."""

    def say(self, done: object, total: object, text: object) -> None:
        """Hear what a handler says of itself, whatever that is."""

    def end(self) -> None:
        """Hear that the job is over."""


class Unshown:
    """A board nobody looks at."""

    def begin(self, place: Place, name: str) -> None:
        """Say nothing."""

    def read(self, rows: int, done: float, total: float) -> None:
        """Say nothing."""

    def say(self, done: object, total: object, text: object) -> None:
        """Say nothing."""

    def end(self) -> None:
        """Say nothing."""
