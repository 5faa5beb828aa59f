"""What an operator may write about files that are expected: which, on which days, by which hour of which zone.

Shapes, defaults and the calendar that follows from them; no file is looked at. Put in its place by `schema`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from fnmatch import fnmatchcase
from functools import cache
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pydantic import BeforeValidator, ConfigDict, Field

from etl.config.durations import Duration, Share
from etl.config.strict import Strict
from etl.config.wording import near_word

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_EVERY_DAY = tuple(range(7))


def _time(value: Any) -> time:
    """Read an hour such as 06:00, or raise ValueError saying how to write one."""
    if isinstance(value, time):
        return value
    match = re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)", value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(
            f'{value!r} is not an hour; write one from 00:00 to 23:59 in quotes, for example "06:00"'
        )
    return time(int(match[1]), int(match[2]))


def _days(value: Any) -> tuple[int, ...]:
    """Read days such as mon-fri or [mon, wed], or raise ValueError saying how to write them."""
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not parts:
        raise ValueError(_not_days(value))
    if all(type(part) is int and part in _EVERY_DAY for part in parts):
        return tuple(parts)
    found: set[int] = set()
    for part in parts:
        for one in str(part).split(","):
            first, dash, last = one.strip().lower().partition("-")
            if first not in DAYS or (dash and last not in DAYS):
                raise ValueError(_not_days(part))
            begin, end = DAYS.index(first), DAYS.index(last if dash else first)
            # sat-mon goes over the end of the week
            found |= {day % 7 for day in range(begin, end + (7 if end < begin else 0) + 1)}
    return tuple(sorted(found))


def _not_days(value: Any) -> str:
    return f"{value!r} is not a day; write for example mon-fri, or a list of {', '.join(DAYS)}"


def _zone(value: Any) -> ZoneInfo:
    """Read the name of a time zone, or raise ValueError with the near one."""
    if isinstance(value, ZoneInfo):
        return value
    try:
        return ZoneInfo(str(value))
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        known = sorted(available_timezones())
        hint = "this host has no time zones: install its tzdata package" if not known else ""
        near = near_word(str(value), known)
        hint = hint or (f"did you mean {near!r}?" if near else "write for example Europe/London or UTC")
        raise ValueError(f"there is no time zone {value!r}; {hint}") from error


def one_or_many(value: Any) -> Any:
    """Let a single section stand for a list of one, and an empty one for none."""
    return [value] * bool(value) if isinstance(value, dict) else value


class ExpectedRows(Strict):
    """How many rows an expected file has."""

    #: the share of what is usual below which a file is unusually small.
    at_least: Share = "0%"  # type: ignore[assignment]


class Expectation(Strict):
    """One file that is expected, and what of it is told."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    #: a pattern for the name as given.
    name: str = Field(min_length=1)
    by: Annotated[time, BeforeValidator(_time)]
    days: Annotated[tuple[int, ...], BeforeValidator(_days)] = _EVERY_DAY
    zone: Annotated[ZoneInfo, BeforeValidator(_zone)]
    #: how long before its hour a file counts for that day; without, from midnight on.
    early: Duration | None = Field(default=None, gt=0, le=6 * 86_400)
    rows: ExpectedRows = ExpectedRows()
    #: what happens when a column is missing, renamed or in another place.
    drift: Literal["warn", "fail"] = "warn"

    @property
    def key(self) -> str:
        """What its record is called on disk: the same as long as name and hour are."""
        return hashlib.sha256(f"{self.name}\n{self.by}".encode()).hexdigest()[:16]

    @property
    def hour(self) -> str:
        """Give its hour with the zone, for people."""
        return f"{self.by:%H:%M} {self.zone.key}"

    def due(self, day: date) -> float:
        """Give the moment by which it has to be there on a day."""
        return datetime.combine(day, self.by, self.zone).timestamp()

    def begins(self, day: date) -> float:
        """Give the moment from which a file counts for a day."""
        if self.early is not None:
            return self.due(day) - self.early
        return datetime.combine(day, time(), self.zone).timestamp()

    def local(self, moment: float) -> date:
        """Give the date in its zone."""
        return datetime.fromtimestamp(moment, self.zone).date()

    def is_on(self, day: date) -> bool:
        """Tell whether it is expected on a day."""
        return day.weekday() in self.days

    def day_of(self, moment: float) -> date:
        """Give the day for which a file counts: the last one that has begun, days off left out."""
        latest = self.local(moment) + timedelta(days=7)
        around = (latest - timedelta(days=back) for back in range(16))
        return next(day for day in around if self.is_on(day) and self.begins(day) <= moment)

    def due_between(self, after: float, until: float) -> Iterator[date]:
        """Give the days whose hour lies after a moment and not after another."""
        day = self.local(after)
        while self.due(day) <= until:
            if self.is_on(day) and self.due(day) > after:
                yield day
            day += timedelta(days=1)


# --- patterns ----------------------------------------------------------------------------------------------


def can_both_match(one: str, other: str) -> bool:
    """Tell whether there is a name that two patterns match."""
    first, second = _tokens(one), _tokens(other)

    @cache
    def meet(left: int, right: int) -> bool:
        if left < len(first) and first[left] == "*":
            return meet(left + 1, right) or (right < len(second) and meet(left, right + 1))
        if right < len(second) and second[right] == "*":
            return meet(left, right + 1) or (left < len(first) and meet(left + 1, right))
        if left == len(first) or right == len(second):
            return left == len(first) and right == len(second)
        return _share_one(first[left], second[right]) and meet(left + 1, right + 1)

    return meet(0, 0)


def _tokens(pattern: str) -> list[str]:
    return re.findall(r"\[!?\]?[^\]]*\]|.", pattern, re.DOTALL)


def _share_one(one: str, other: str) -> bool:
    """Tell whether one character fits both: itself, any, or one of a set."""
    candidates = {*one, *other, *map(chr, range(32, 127))}
    return any(fnmatchcase(char, one) and fnmatchcase(char, other) for char in candidates)
