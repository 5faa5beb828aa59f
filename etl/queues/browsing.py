"""RQ's classes for whoever only browses Redis: ours, so that nothing in there is unpickled, imported or called.

Used by the dashboard.
"""

from __future__ import annotations

from typing import Any

import redis
import rq.job
import rq.queue
import rq.worker
from redis import RedisError as NoAnswer
from rq.exceptions import NoSuchJobError as NoSuchJob

from etl.queues.job import JSON, Job
from etl.queues.job import JobQueue as Queue

__all__ = ["JSON", "Job", "NoAnswer", "NoSuchJob", "Queue", "Worker", "requeue"]


class Worker(rq.worker.Worker):
    """A worker as it is seen from outside."""

    queue_class: type[rq.queue.Queue] = Queue
    job_class = Job


def requeue(job_id: str, connection: redis.Redis, **_: Any) -> rq.job.Job:
    """Put a failed job into its queue again."""
    return Job.fetch(job_id, connection=connection).requeue()
