"""The board: how far the jobs in hand are, kept in Redis while they run, for whoever looks.

Telling it never fails, costs a short job nothing and is lost without harm. Workers write it through `App.board`,
`etl status` reads it.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import redis

from etl.model import Place
from etl.queues import keys

#: seconds between two writes of one worker.
EVERY = 0.5
#: seconds after which what nobody took off the board is gone: its worker was killed.
KEPT = 24 * 3600
#: seconds for which nothing is written after Redis did not answer: a job never waits twice in a row.
SILENT = 5.0
#: characters of a handler's text that are kept.
LONGEST = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class InWork:
    """How far one job is."""

    #: what is done of `total`; bytes read, or whatever the handler counts.
    done: float = 0.0
    total: float | None = None
    text: str = ""
    rows: int = 0
    #: seconds since 1970: when the job began, and when this was so.
    begun: float = 0.0
    at: float = 0.0
    #: `host:pid`.
    worker: str = ""

    @property
    def percent(self) -> float | None:
        """Give the share that is done; None where the whole is not known."""
        if not self.total or self.total < 0:
            return None
        return round(100 * min(1.0, max(0.0, self.done / self.total)), 1)

    def left(self, now: float) -> float | None:
        """Guess the seconds until the end, if it goes on as it went so far; None where nothing can be said."""
        if not self.total or not 0 < self.done <= self.total:
            return None
        needed = (self.at - self.begun) * (self.total / self.done - 1)
        return round(max(0.0, needed - max(0.0, now - self.at)), 1)


class Board:
    """Writes how far this worker's job is; whatever Redis answers, nobody hears of it."""

    def __init__(
        self, connection: redis.Redis, data_id: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._connection = connection
        self._key = keys.progress(data_id)
        self._clock = clock
        self._field = b""
        self._now = InWork()
        self._due = self._silent_until = 0.0
        self._shown = self._handlers = False

    def begin(self, place: Place, name: str) -> None:
        """Hear which file the job has claimed; nothing is written yet."""
        self._field = f"{place}/{name}".encode(errors="surrogateescape")
        self._now = InWork(begun=time.time(), worker=f"{os.uname().nodename}:{os.getpid()}")
        # a job that is over by then is never shown
        self._due = self._clock() + EVERY
        self._shown = self._handlers = False

    def read(self, rows: int, done: float, total: float) -> None:
        """Show rows and bytes read so far; the share is the handler's once it has told one."""
        now = replace(self._now, rows=rows)
        self._now = now if self._handlers else replace(now, done=done, total=total)
        self._show()

    def say(self, done: object, total: object, text: object) -> None:
        """Show what a handler says of itself, at once if it is the first; what is no number is left out."""
        if not self._field:
            return
        if not self._handlers:
            self._due = 0.0  # a handler may say it once and then be silent for an hour
        self._handlers = True
        told = text[:LONGEST] if isinstance(text, str) else ""
        self._now = replace(self._now, done=_number(done) or 0.0, total=_number(total), text=told)
        self._show()

    def end(self) -> None:
        """Take the job off the board."""
        field, self._field = self._field, b""
        if self._shown and field:
            self._try(lambda: self._connection.hdel(self._key, field))

    def tidy(self) -> None:
        """Take off what killed workers left long ago."""

        def old() -> None:
            before = time.time() - KEPT
            found: Any = self._connection.hgetall(self._key)
            left = [field for field, value in found.items() if (_load(value) or InWork()).at < before]
            if left:
                self._connection.hdel(self._key, *left)

        self._try(old)

    def _show(self) -> None:
        now = self._clock()
        if not self._field or now < self._due:
            return
        self._due = now + EVERY
        self._now = replace(self._now, at=time.time())
        self._shown = True
        self._try(self._write)

    def _write(self) -> None:
        with self._connection.pipeline(transaction=False) as pipeline:
            pipeline.hset(self._key, self._field, json.dumps(asdict(self._now)))
            pipeline.expire(self._key, KEPT)
            pipeline.execute()

    def _try(self, ask: Callable[[], object]) -> None:
        if self._clock() < self._silent_until:
            return
        try:
            ask()
        except (redis.RedisError, OSError):
            self._silent_until = self._clock() + SILENT


def shown(connection: redis.Redis, data_id: str) -> dict[tuple[str, str], InWork]:
    """Give what is on the board by place and name; nothing where Redis does not answer."""
    try:
        found: Any = connection.hgetall(keys.progress(data_id))
    except (redis.RedisError, OSError):
        return {}
    told = {}
    for field, value in found.items():
        place, _, name = field.decode(errors="surrogateescape").rpartition("/")
        if (one := _load(value)) is not None:
            told[place, name] = one
    return told


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):  # its row does not suffer from it
        return None
    return number if math.isfinite(number) else None


def _load(value: bytes) -> InWork | None:
    """Read an entry; None for what is none: whoever writes to Redis may write anything."""
    try:
        one = InWork(**json.loads(value))
        numbers = (one.done, one.rows, one.begun, one.at, one.total or 0)
        fits = all(isinstance(number, int | float) and math.isfinite(number) for number in numbers)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
    return one if fits and isinstance(one.text, str) and isinstance(one.worker, str) else None
