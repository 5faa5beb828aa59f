"""Work becomes jobs: many at once on Redis, or one after the other in this process.

Never decides what is to be done and never looks at a file. `stages` announces, a scan asks what is announced.
"""

from __future__ import annotations

import json
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import redis
from rq.queue import EnqueueData

from etl import errors
from etl.queues import clients, keys, lanes
from etl.queues.job import FAILURE_TTL, RESULT_TTL, JobQueue, describe
from etl.queues.queue import ALLOWED, Identity, Work, identity

#: jobs per MULTI: all or none of a slice is announced.
SLICE = 1_000


class RedisAnnouncer:
    """Announces through RQ, in slices that are announced whole or not at all."""

    def __init__(self, connection: redis.Redis, data_id: str) -> None:
        self._connection = connection
        self._data_id = data_id

    def announce(self, works: Sequence[Work]) -> None:
        """Enqueue one job each, in this order within a lane; raise `Unavailable` when Redis does not take them."""
        # what is urgent first, and few lanes make few transactions
        ordered = sorted(works, key=lambda work: (lanes.rank(work.queue), work.queue))
        try:
            for queue, wanted in groupby(ordered, key=lambda work: work.queue):
                self._enqueue(queue, list(wanted))
        except (redis.RedisError, OSError) as error:
            raise errors.Unavailable(
                f"Redis did not take {len(works)} jobs ({error})",
                next="Nothing is lost: files that wait get a job with the next scan, once Redis is back",
            ) from error

    def _enqueue(self, queue: str, works: Sequence[Work]) -> None:
        target = JobQueue(keys.queue_name(self._data_id, queue), connection=self._connection)
        for begin in range(0, len(works), SLICE):
            target.enqueue_many([_prepare(work) for work in works[begin : begin + SLICE]])


def _prepare(work: Work) -> EnqueueData:
    if work.function not in ALLOWED:
        raise ValueError(f"{work.function!r} is not a function a job may call")
    return JobQueue.prepare_data(
        work.function,
        kwargs=dict(work.arguments),
        timeout=work.timeout,
        result_ttl=RESULT_TTL,
        failure_ttl=FAILURE_TTL,
        description=describe(work.function, work.arguments),
    )


class InlineAnnouncer:
    """Keeps the work in this process, for a run without any server."""

    def __init__(self) -> None:
        #: by rank: what comes first, what is normal, what comes last.
        self._works: tuple[deque[Work], ...] = (deque(), deque(), deque())

    def announce(self, works: Sequence[Work]) -> None:
        """Remember the work, in this order within a lane."""
        for work in works:
            self._works[lanes.rank(work.queue)].append(work)

    def take(self) -> Work | None:
        """Take the oldest of the most urgent work, or None when there is none left."""
        return next((lane.popleft() for lane in self._works if lane), None)


def announced(connection: redis.Redis, data_id: str, queue: str = "default") -> set[Identity]:
    """Tell what has a job: one that waits, or one that a living worker has begun."""
    return queued(connection, data_id, queue) | begun(connection, data_id, queue)


@contextmanager
def _asking() -> Iterator[None]:
    try:
        yield
    except (redis.RedisError, OSError) as error:
        raise errors.Unavailable(
            f"Redis does not tell which jobs there are ({error})",
            next="Nothing is lost: files wait where they lie, and are worked once Redis is back",
        ) from error


@_asking()
def queued(connection: redis.Redis, data_id: str, queue: str = "default") -> set[Identity]:
    """Tell what has a job that waits, or raise `Unavailable`."""
    waiting = [keys.text(job_id) for job_id in connection.lrange(keys.queue(data_id, queue), 0, -1)]
    return set(_identities(connection, waiting))


@_asking()
def begun(connection: redis.Redis, data_id: str, queue: str = "default") -> set[Identity]:
    """Tell what has a job that a living worker has begun, or raise `Unavailable`."""
    return set(_identities(connection, _begun(connection, data_id, queue)))


def _begun(connection: redis.Redis, data_id: str, queue: str) -> list[str]:
    """List the jobs that workers have begun, without those whose worker is gone."""
    entries = clients.begun(connection, data_id, queue)
    return [entry.partition(":")[0] for entry, lives in entries.items() if lives]


def _identities(connection: redis.Redis, job_ids: Sequence[str]) -> Iterator[Identity]:
    for data in _in_bulk(connection, [(keys.job(job_id), "data") for job_id in job_ids]):
        try:
            function, _, _, arguments = json.loads(zlib.decompress(data))
            yield identity(function, arguments)
        except (TypeError, ValueError, AttributeError, zlib.error):
            continue  # gone meanwhile, or not ours


def _in_bulk(connection: redis.Redis, wanted: Sequence[tuple[str, str]]) -> Iterator[Any]:
    """Read one field of each hash, thousands per round trip."""
    for begin in range(0, len(wanted), 10 * SLICE):
        with connection.pipeline(transaction=False) as pipeline:
            for key, field in wanted[begin : begin + 10 * SLICE]:
                pipeline.hget(key, field)
            yield from pipeline.execute()
