"""RQ's classes for whoever only browses Redis: ours, so that nothing in there is unpickled, imported or called.

Used by the dashboard.
"""

from __future__ import annotations

from typing import Any

import rq.job
import rq.queue
import rq.worker
from redis import Redis as Connection
from redis import RedisError as NoAnswer
from rq.exceptions import NoSuchJobError as NoSuchJob

from etl.queues.job import JSON, Job, JobQueue

__all__ = ["JSON", "Connection", "Job", "NoAnswer", "NoSuchJob", "Queue", "Worker", "requeue"]


class Queue(JobQueue):
    """A queue as it is seen from outside; who looks may not know a name yet."""

    def __init__(self, name: str = "default", connection: Connection | None = None, **options: Any) -> None:
        assert connection is not None, "whoever looks is connected"
        super().__init__(name, connection, **options)


class Worker(rq.worker.Worker):
    """A worker as it is seen from outside."""

    queue_class: type[rq.queue.Queue] = Queue
    job_class = Job


def requeue(job_id: str, connection: Connection, **_: Any) -> rq.job.Job:
    """Put a failed job into its queue again."""
    return Job.fetch(job_id, connection=connection).requeue()
