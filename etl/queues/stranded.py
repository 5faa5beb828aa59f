"""Stranded entries: what a killed worker leaves in Redis is cleared, so that counts are true and memory is free.

Looks at our own queues only and decides nothing about files: work that lost its job gets another from the scan.
Called once in every scan, and by `etl fsck`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import redis

from etl import errors
from etl.queues import clients, keys

log = logging.getLogger(__name__)

#: scans between two searches for job hashes that are in no list: these cost a walk over all keys.
EVERY = 10


def abandoned(connection: redis.Redis, data_id: str, queue: str) -> list[str]:
    """List the entries of jobs that were begun by workers that are gone."""
    return [entry for entry, lives in clients.begun(connection, data_id, queue).items() if not lives]


def clear(connection: redis.Redis, data_id: str, queue: str, entry: str) -> None:
    """Take a stranded entry and its job out; its file is announced again by whoever scans."""
    job_id = entry.partition(":")[0]
    with connection.pipeline() as pipeline:
        pipeline.zrem(keys.started(data_id, queue), entry)
        pipeline.lrem(keys.intermediate(data_id, queue), 0, job_id)
        pipeline.delete(keys.execution(entry), keys.executions(job_id), keys.job(job_id))
        pipeline.execute()


class Stranded:
    """Clears what looks stranded in two scans: once may be a worker in the middle of something."""

    def __init__(self, connection: redis.Redis, data_id: str, queues: Sequence[str]) -> None:
        self._connection = connection
        self._data_id = data_id
        self._queues = queues
        self._suspects: set[str] = set()
        self._unlisted: set[str] = set()
        self._scans = 0

    def clear(self) -> int:
        """Clear what is stranded for sure and give how many entries that were, or raise `Unavailable`."""
        try:
            return self._clear_all()
        except (redis.RedisError, OSError) as error:
            raise errors.Unavailable(
                f"Redis does not tell which jobs there are ({error})", next="It is asked again"
            ) from error

    def _clear_all(self) -> int:
        begun = {
            f"{queue} {entry}"
            for queue in self._queues
            for entry in abandoned(self._connection, self._data_id, queue)
        }
        popped = {entry for queue in self._queues for entry in self._popped(queue)}
        cleared = 0
        for queue, entry in self._twice(begun | popped):
            clear(self._connection, self._data_id, queue, entry)
            cleared += 1
        if self._scans % EVERY == 0:
            cleared += self._clear_unlisted()
        self._scans += 1
        if cleared:
            log.info("%d entries of workers that are gone were cleared", cleared, extra={"event": "cleared"})
        return cleared

    def _twice(self, found: set[str]) -> list[tuple[str, str]]:
        """Give queue and entry of what was found in the scan before, too."""
        twice, self._suspects = found & self._suspects, found
        return [(queue, entry) for queue, _, entry in (one.partition(" ") for one in sorted(twice))]

    def _popped(self, queue: str) -> Iterator[str]:
        """Give the jobs that were taken from the list and never begun."""
        for job_id in self._connection.lrange(keys.intermediate(self._data_id, queue), 0, -1):
            yield f"{queue} {keys.text(job_id)}"

    # --- jobs in no list

    def _clear_unlisted(self) -> int:
        """Delete jobs that say they are queued and are in no list, if they said so the last time, too."""
        found = set(self._queued_by_their_word())
        for queue in self._queues:
            for key in (keys.queue(self._data_id, queue), keys.intermediate(self._data_id, queue)):
                found -= {keys.text(one) for one in self._connection.lrange(key, 0, -1)}
        twice, self._unlisted = found & self._unlisted, found
        for job_id in twice:
            self._connection.delete(keys.job(job_id))
        return len(twice)

    def _queued_by_their_word(self) -> Iterator[str]:
        ours = {keys.queue_name(self._data_id, queue) for queue in self._queues}
        page: list[str] = []
        for key in self._connection.scan_iter(match=keys.job("*"), count=1000):
            page.append(keys.text(key))
            if len(page) == 1000:
                yield from self._of_ours(page, ours)
                page = []
        yield from self._of_ours(page, ours)

    def _of_ours(self, page: Sequence[str], ours: set[str]) -> Iterator[str]:
        with self._connection.pipeline(transaction=False) as pipeline:
            for key in page:
                pipeline.hmget(key, "status", "origin")
            answers = pipeline.execute(raise_on_error=False)
        for key, answer in zip(page, answers, strict=True):
            status, origin = ("", "") if isinstance(answer, Exception) else map(keys.text, answer)
            if status == "queued" and origin in ours:
                yield key.removeprefix(keys.job(""))
