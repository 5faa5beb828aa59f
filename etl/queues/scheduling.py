"""Schedules in Redis: one entry of rq-scheduler for each, which says when it is next due.

A doorbell only: who hears it claims the tick elsewhere. An entry has a fixed id, is put again as often as anybody
likes, and is never taken out to be run: it moves to its next moment in one step, so that no crash can lose or double
it. Used by the scheduler.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import redis
import rq_scheduler

from etl import errors, points
from etl.points import Point
from etl.queues import keys
from etl.queues.job import Job, JobQueue, describe
from etl.queues.queue import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One schedule: its name, when it is next due (seconds since 1970), and the job that will then be wanted."""

    name: str
    due: int
    work: Work


class Bell:
    """The entries of one data folder; another folder, or another program, has its own under another key."""

    def __init__(self, connection: redis.Redis, data_id: str) -> None:
        self._connection = connection
        self._data_id = data_id
        self._key = keys.schedules(data_id)
        self._scheduler = _scheduler(connection, data_id)

    def put(self, entries: Sequence[Entry]) -> None:
        """Have exactly these entries, each at its moment; those that are right already are left alone."""
        with _asking():
            found: Sequence[Any] = self._connection.zrange(self._key, 0, -1, withscores=True)
            known = {keys.text(job_id): int(score) for job_id, score in found}
            wanted = {keys.schedule(self._data_id, entry.name): entry for entry in entries}
            for job_id in known.keys() - wanted.keys():
                with points.effect(Point.SCHEDULE_REGISTER):
                    self._scheduler.cancel(job_id)
                    self._connection.delete(keys.job(job_id))
            for job_id, entry in wanted.items():
                if known.get(job_id) != entry.due or not self._connection.exists(keys.job(job_id)):
                    self._put(job_id, entry)

    def move(self, entry: Entry) -> None:
        """Put one entry, or move it to its next moment."""
        with _asking():
            self._put(keys.schedule(self._data_id, entry.name), entry)

    def _put(self, job_id: str, entry: Entry) -> None:
        with points.effect(Point.SCHEDULE_REGISTER):
            # never a result_ttl: Redis would forget the schedule with its job
            self._scheduler.schedule(
                datetime.fromtimestamp(entry.due, UTC),
                entry.work.function,
                kwargs=dict(entry.work.arguments),
                id=job_id,
                timeout=entry.work.timeout,
                description=describe(entry.work.function, entry.work.arguments),
            )

    def due(self, now: float) -> list[str]:
        """Give the names of the schedules whose moment has come; one that cannot be read is taken out."""
        start = keys.schedule(self._data_id, "")
        with _asking():
            jobs = list(self._scheduler.get_jobs(until=int(now)))
        return [str(job.id).removeprefix(start) for job in jobs]


@contextmanager
def _asking() -> Iterator[None]:
    try:
        yield
    except redis.RedisError as error:
        raise errors.Unavailable(
            f"Redis does not tell what is due ({error})",
            next="nothing is lost: what comes due meanwhile is caught up once Redis is back",
        ) from error


def _scheduler(connection: redis.Redis, data_id: str) -> Any:
    scheduler = rq_scheduler.Scheduler(
        queue_name=keys.queue_name(data_id, "default"),
        connection=connection,
        job_class=Job,
        queue_class=JobQueue,
    )
    scheduler.scheduled_jobs_key = keys.schedules(data_id)
    return scheduler
