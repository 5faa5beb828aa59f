"""Cron lines: which minutes of a zone's clock they mean, and the moments at which these come.

Pure arithmetic: reads no clock and no configuration. Every local time it names comes exactly once a day, also on the
days on which clocks change. Used by `scheduling` to check what was written, and by whoever needs the next moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from functools import lru_cache

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
#: name, first and last value, and the words that stand for values.
_FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 7, _DAYS),
)
_SHORT = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
#: days after which a line that named none never will: the longest wait is for 29 February over a century's end.
_LONGEST = 366 * 9


@dataclass(frozen=True, slots=True)
class Cron:
    """What a cron line says."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    #: 0 is Sunday.
    weekdays: frozenset[int]
    #: both kinds of day are named: then either of them is enough, as cron has always had it.
    either: bool

    def is_on(self, day: date) -> bool:
        """Tell whether any moment of this day is meant."""
        if day.month not in self.months:
            return False
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return of_month or of_week if self.either else of_month and of_week


def parse(text: str) -> Cron:
    """Read a cron line, or raise ValueError saying what is wrong with it."""
    if not text.isascii():
        raise ValueError(f"{text!r} is not a cron line: write it in plain digits and English words")
    parts = _SHORT.get(text.strip().lower(), text).split()
    if len(parts) != len(_FIELDS):
        raise ValueError(
            f"{text!r} is not a cron line: write minute, hour, day of the month, month and day of the week, "
            "for example 0 2 * * *"
        )
    minutes, hours, days, months, weekdays = (
        frozenset(_field(part, *field)) for part, field in zip(parts, _FIELDS, strict=True)
    )
    either = not parts[2].startswith("*") and not parts[4].startswith("*")
    found = Cron(minutes, hours, days, months, frozenset(day % 7 for day in weekdays), either)
    first = date(2000, 1, 1)
    if not any(found.is_on(first + timedelta(days=day)) for day in range(_LONGEST)):
        raise ValueError(f"{text!r} never comes: no such day exists")
    return found


def _field(text: str, name: str, first: int, last: int, words: tuple[str, ...]) -> Iterator[int]:
    for part in text.lower().split(","):
        span, slash, written = part.partition("/")
        step = int(written) if written.isdecimal() else 0 if slash else 1
        low, dash, high = span.partition("-")
        begin = first if span == "*" else _value(low, first, last, words)
        # `5/15` counts on from 5, as `5-59/15` does
        end = _value(high, first, last, words) if dash else last if span == "*" or slash else begin
        end = last if (high, last) == ("sun", 7) else end  # a week may end on Sunday
        if begin is None or end is None or begin > end or not 1 <= step <= last:
            shown = f"{first}-{last}" + (f" or {words[0]}-{words[-1]}" if words else "")
            raise ValueError(f"{part!r} is no {name} ({shown}; *, lists, ranges and */steps are understood)")
        yield from range(begin, end + 1, step)


def _value(text: str, first: int, last: int, words: tuple[str, ...]) -> int | None:
    if text in words:
        return words.index(text) + first
    return int(text) if text.isdecimal() and len(text) <= 2 and first <= int(text) <= last else None


# --- moments -----------------------------------------------------------------------------------------------


def after(cron: Cron, zone: tzinfo, moment: float) -> Iterator[int]:
    """Give the moments that come after one, in seconds since 1970, for ever; none twice."""
    day = datetime.fromtimestamp(moment, zone).date() - timedelta(days=1)
    last = moment
    while day.year < 9_990:
        for one in _on(cron, zone, day):
            if one > last:
                yield one
                last = one
        day += timedelta(days=1)


def newest(cron: Cron, zone: tzinfo, moment: float, since: float) -> int | None:
    """Give the last moment that came by `moment` and after `since`; None when none did."""
    day = datetime.fromtimestamp(moment, zone).date() + timedelta(days=1)
    first = datetime.fromtimestamp(since, zone).date() - timedelta(days=1)
    while day >= first:
        found = [one for one in _on(cron, zone, day) if since < one <= moment]
        if found:
            return found[-1]
        day -= timedelta(days=1)
    return None


@lru_cache(maxsize=64)
def _on(cron: Cron, zone: tzinfo, day: date) -> tuple[int, ...]:
    """Give the moments of one day of a zone, in their order.

    A time that is skipped when clocks go forward comes as much later as they went; one that is there twice when they
    go back comes the first time only, unless every hour is meant: then the hour that is repeated is one more.
    """
    if not cron.is_on(day):
        return ()
    every_hour, moments = len(cron.hours) == 24, set()
    for hour in cron.hours:
        for minute in cron.minutes:
            first = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
            second = first.replace(fold=1)
            moments.add(int(first.timestamp()))
            if every_hour and second.timestamp() > first.timestamp():
                moments.add(int(second.timestamp()))
    return tuple(sorted(moments))


def shown(moment: float, zone: tzinfo) -> str:
    """Write a moment as a zone's clock shows it: `2026-11-19 02:00 GMT`."""
    return datetime.fromtimestamp(moment, zone).strftime("%Y-%m-%d %H:%M %Z")
