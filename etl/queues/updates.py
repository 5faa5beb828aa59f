"""Status updates: a capped stream on which workers say what happened to a file, and from which the recorder reads.

An update is a hint, so losing some is harmless and telling never fails or waits for long; reading says when
something was missed. Told by workers, read by the recorder.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson
import redis

from etl import errors
from etl.model import Place, Stage, Update
from etl.queues import keys

#: updates that are kept, roughly: days without a recorder fill no memory (P18).
KEPT = 100_000
#: seconds for which nothing is told after Redis did not take an update: a job never waits twice.
SILENT = 5.0
#: for tests only, `drop=0.1,double=0.05,shuffle`: shares of updates that are lost or told twice; any order.
FAULT = "ETL_UPDATES_FAULT"
START = "0-0"


class Teller:
    """Puts updates on the stream; whatever Redis answers, nobody hears of it."""

    def __init__(
        self, connection: redis.Redis, data_id: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._connection = connection
        self._key = keys.updates(data_id)
        self._clock = clock
        self._silent_until = 0.0
        self._fault = _Fault.read()

    def __call__(self, *updates: Update) -> None:
        """Tell what happened, in one round trip; never raises."""
        if self._clock() < self._silent_until:
            return
        try:
            with self._connection.pipeline(transaction=False) as pipeline:
                for update in updates:
                    for _ in range(self._fault.times()):
                        pipeline.xadd(self._key, {"u": _dump(update)}, maxlen=KEPT, approximate=True)
                pipeline.execute()
        except (redis.RedisError, OSError):
            self._silent_until = self._clock() + SILENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What was read at once."""

    updates: Sequence[Update]
    #: id of the last one; what was handed in when there was none.
    position: str
    #: something between the position before and this may have been missed.
    gap: bool = False


class Reader:
    """Reads the stream from a position on; who reads keeps it."""

    def __init__(self, connection: redis.Redis, data_id: str) -> None:
        self._connection = connection
        self._key = keys.updates(data_id)
        self._fault = _Fault.read()
        self._held: list[Update] = []

    def read(self, position: str, most: int, wait: float) -> Heard:
        """Give what was told after `position`, waiting up to `wait` seconds for it, or raise `Unavailable`."""
        after = position or START
        try:
            block = max(1, int(wait * 1000))
            answer: Any = self._connection.xread({self._key: after}, count=most, block=block)
            # asked after reading: what was lost before it shows in what is left
            first: Any = self._connection.xrange(self._key, count=1)
        except (redis.RedisError, OSError) as error:
            raise errors.Unavailable(
                f"Redis does not tell what happened to files ({error})",
                next="Nothing is lost: the ledger is held against the folders meanwhile",
            ) from error
        entries = _entries(answer)
        gap = after != START and (not first or _order(keys.text(first[0][0])) > _order(after))
        last = keys.text(entries[-1][0]) if entries else (START if gap else after)
        told = [update for _, fields in entries if (update := _load(fields.get(b"u"))) is not None]
        return Heard(updates=self._disturbed(told), position=last, gap=gap)

    def _disturbed(self, told: list[Update]) -> list[Update]:
        """Do what the test switch asks for: another order, also across batches."""
        if not self._fault.shuffle:
            return told
        mixed = [*self._held, *told]
        random.shuffle(mixed)
        self._held = mixed[: len(told) // 3]
        return mixed[len(self._held) :]


def _entries(answer: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    streams = answer.values() if isinstance(answer, dict) else [entries for _, entries in answer or ()]
    found: list[tuple[bytes, dict[bytes, bytes]]] = []
    for entries in streams:
        # by another protocol of Redis they come one list deeper
        found += entries[0] if entries and isinstance(entries[0], list) else entries
    return found


def _order(entry_id: str) -> tuple[int, int]:
    milliseconds, _, number = entry_id.partition("-")
    return int(milliseconds), int(number or 0)


def _dump(update: Update) -> bytes:
    place = update.place
    told = {key: value for key, value in asdict(update).items() if value and key != "place"}
    # a name or a message may hold what is no UTF-8
    told = {
        key: value.encode(errors="surrogateescape").decode("latin-1") if isinstance(value, str) else value
        for key, value in told.items()
    }
    return orjson.dumps({"place": [place.pipeline, str(place.stage), place.location], **told})


def _load(told: bytes | None) -> Update | None:
    """Read an update; None for what is none: whoever writes to Redis may write anything."""
    try:
        facts = orjson.loads(told or b"")
        pipeline, stage, location = facts.pop("place")
        facts = {
            key: value.encode("latin-1").decode(errors="surrogateescape") if isinstance(value, str) else value
            for key, value in facts.items()
        }
        place = Place(pipeline=str(pipeline), stage=Stage(stage), location=str(location))
        update = Update(place=place, **facts)
        numbers = (update.at, update.attempt, update.seconds, update.count)
        texts = (update.name, update.event, update.worker, update.said)
        fits = all(isinstance(one, int | float) for one in numbers) and all(
            isinstance(one, str) for one in texts
        )
    except (ValueError, TypeError, AttributeError, KeyError):
        return None
    return update if fits else None


@dataclass(frozen=True, slots=True)
class _Fault:
    drop: float = 0.0
    double: float = 0.0
    shuffle: bool = False

    @classmethod
    def read(cls) -> _Fault:
        told = dict(one.partition("=")[::2] for one in os.environ.get(FAULT, "").split(",") if one)
        return cls(float(told.get("drop", 0)), float(told.get("double", 0)), "shuffle" in told)

    def times(self) -> int:
        """Tell how often the next update is told."""
        if not (self.drop or self.double):
            return 1
        die = random.random()  # noqa: S311 - a die, not a secret
        return 0 if die < self.drop else 2 if die < self.drop + self.double else 1
