"""Digests: what one notice tells, and its words: the subject, and the first line that is read at three in the morning.

Values and words only; what failed is found by whoever watches, and how it looks is the templates'.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from etl.model import Urgency

#: causes that a notice tells one by one; the others are counted.
MOST_CAUSES = 20
#: news and recovered causes that a notice tells one by one.
MOST_LINES = 50
_WORST = (Urgency.NOW, Urgency.MORNING, Urgency.INFO)
_ACT = {Urgency.NOW: "act now", Urgency.MORNING: "can wait until morning", Urgency.INFO: "nothing to do"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One file of a cause, as its reason tells it."""

    file: str
    summary: str = ""
    next: str = ""
    #: where, line by line.
    troubles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What several failed files have in common."""

    pipeline: str
    place: str
    cause: str
    word: str
    #: failures since the last notice, and files that lie in `failed/` now.
    new: int
    total: int
    #: when the first and the last of them failed.
    first: str
    last: str
    urgency: Urgency
    location: str = ""
    #: rows that are held back; 0 for files that failed whole.
    held: int = 0
    sample: Sample | None = None
    #: owner, contact, runbook.
    about: Mapping[str, str] = field(default_factory=dict)
    #: to be pasted into a shell of the host that sent this.
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of news, or one cause of which nothing is left."""

    pipeline: str
    kind: str
    text: str
    next: str = ""
    urgency: Urgency = Urgency.INFO


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """All that one notice tells."""

    #: failure: at once; digest: after a window; recovered: nothing else is to be told.
    kind: str
    causes: tuple[Cause, ...] = ()
    news: tuple[Line, ...] = ()
    recovered: tuple[Line, ...] = ()
    #: files that failed, how many of them whole, rows held back, of how many.
    files: int = 0
    whole: int = 0
    held: int = 0
    of: int = 0
    #: files that lay there before anybody watched.
    again: int = 0
    #: files that lie in `failed/` now, told or not.
    left: int = 0
    window: str = ""

    @property
    def urgency(self) -> Urgency:
        """The worst of what is told."""
        told = {one.urgency for one in self.causes} | {one.urgency for one in self.news}
        return next((one for one in _WORST if one in told), Urgency.INFO)

    @property
    def pipelines(self) -> list[str]:
        """Whose it is."""
        failed = {one.pipeline for one in self.causes}
        return sorted(failed | {one.pipeline for one in (*self.news, *self.recovered)})

    @property
    def shown(self) -> tuple[Cause, ...]:
        """The causes that are told one by one, the most pressing first."""
        return tuple(sorted(self.causes, key=_pressing)[:MOST_CAUSES])

    @property
    def more(self) -> int:
        """How many causes are only counted."""
        return max(0, len(self.causes) - MOST_CAUSES)


def _pressing(one: Cause) -> tuple[int, int, str, str]:
    return _WORST.index(one.urgency), -one.new, one.place, one.cause


def titled(site: str, subject: str) -> str:
    """Put in front of a subject who writes: `[etl prod]`."""
    return f"[etl {site}] {subject}" if site else f"[etl] {subject}"


def subject(one: Digest) -> str:
    """Say in a line whose it is, how much, and how pressing; holds no name of a file and no value."""
    said = [_failed(one)] if one.files else []
    kinds = [line.kind for line in one.news]
    said += [f"{kinds.count(kind):,} {kind}" for kind in dict.fromkeys(kinds)]
    if not said:
        return f"{_among(one.pipelines)}: recovered{_causes(len(one.recovered))}"
    if one.again == one.files > 0:
        said[0] += ", known again"
    return f"{_among(one.pipelines)}: {', '.join(said)}, {_ACT[one.urgency]}"


def _failed(one: Digest) -> str:
    held = f"{one.held:,} of {one.of:,} rows held back" if one.of else f"{rows(one.held)} held back"
    parts = [f"{files(one.whole)} failed"] if one.whole else []
    parts += [held] if one.held else []
    return ", ".join(parts) + (_causes(len(one.causes)) if len(one.causes) > 1 else "")


def _causes(count: int) -> str:
    return f", {count:,} causes" if count != 1 else ""


def _among(pipelines: Sequence[str]) -> str:
    if len(pipelines) > 3:
        return f"{len(pipelines)} pipelines"
    *others, last = [name for name in pipelines if name] or ["etl"]
    return f"{', '.join(others)} and {last}" if others else last


def files(count: int) -> str:
    """Give a count of files with its word."""
    return f"{count:,} file" + ("" if count == 1 else "s")


def rows(count: int) -> str:
    """Give a count of rows with its word."""
    return f"{count:,} row" + ("" if count == 1 else "s")


def lead(one: Digest) -> str:
    """Say whether anything is lost, whether to act now, and what happens if nobody does: the first line."""
    if not one.files and not one.news:
        if one.left:
            lie = "lies" if one.left == 1 else "lie"
            return (
                "Nothing is lost, and nothing is to be done about what is over. If you do nothing, what was told "
                f"before stays as it is: {files(one.left)} of other causes still {lie} in failed/."
            )
        return (
            "All is well again: of what failed here nothing is left in failed/. You need not do anything, "
            "and nothing happens if you do not."
        )
    lost = "Nothing is lost" if one.files else "No file failed and nothing is lost"
    act = {
        Urgency.NOW: ", but act now",
        Urgency.MORNING: ", and it can wait until morning",
        Urgency.INFO: ", and you need not do anything",
    }[one.urgency]
    return f"{lost}{act}. If you do nothing, {_otherwise(one)}."


def _otherwise(one: Digest) -> str:
    """Say what happens if nobody acts: what stays out, and that the rest goes on."""
    said = list(dict.fromkeys(filter(None, map(_stays, one.causes))))
    if one.news and not one.files:
        return "it stays as it is told below, and all other files go on"
    if not said:
        return "nothing changes, and all other files go on"
    if len(said) > 2:
        said = ["what failed stays in failed/ and is missing where it should be loaded"]
    return f"{' and '.join(said)}; all other files go on"


def _stays(cause: Cause) -> str:
    if not cause.total:
        return ""
    if cause.place.endswith(".requests"):
        return "what was asked for is not pulled"
    where = f" at {cause.location}" if cause.location else ""
    if cause.held:
        return f"the rows held back stay missing{where}"
    return f"the failed files stay missing{where}" if where else "the failed files are not loaded"


def moment(seconds: float) -> str:
    """Write a time for people."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def spoken(seconds: float) -> str:
    """Write a duration for people."""
    for limit, unit, size in ((120, "s", 1), (7200, "min", 60), (172_800, "h", 3600)):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def worst(urgencies: Iterable[str]) -> Urgency:
    """Give the most pressing of several; what cannot be read can wait until morning."""
    told = set(urgencies)
    return next((one for one in _WORST if one in told), Urgency.MORNING)
