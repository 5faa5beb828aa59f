"""Every Redis key and queue name in one place, as RQ spells them.

Builds names only: no connection is opened and rq is not imported, so that `census` starts fast.
Called by its siblings in this room.
"""

from __future__ import annotations

#: set of all queue keys, of every program that shares this Redis.
QUEUES = "rq:queues"
#: set of all worker keys.
WORKERS = "rq:workers"
_QUEUE = "rq:queue:"
_STARTED = "rq:wip:"
_WORKERS = "rq:workers:"
_WORKER = "rq:worker:"
_JOB = "rq:job:"
_EXECUTION = "rq:execution:"
_EXECUTIONS = "rq:executions:"


def updates(data_id: str) -> str:
    """Key of the stream of status updates, which the recorder reads."""
    return f"etl:{data_id}:updates"


def progress(data_id: str) -> str:
    """Key of the hash that says how far the jobs in hand are: `place/name` of each."""
    return f"etl:{data_id}:progress"


def text(answer: object) -> str:
    """Read a key or an id out of an answer of Redis."""
    return answer.decode() if isinstance(answer, bytes) else str(answer)


def schedules(data_id: str) -> str:
    """Key of the sorted set of what runs by the clock, by the moment it is next due."""
    return f"etl:{data_id}:schedules"


def schedule(data_id: str, name: str) -> str:
    """Id of the job that stands for one schedule; always the same."""
    return f"etl-{data_id}-schedule-{name}"


def queue_name(data_id: str, queue: str) -> str:
    """Name a queue so that two data folders can share a Redis and `rq info` still reads well."""
    return f"etl-{data_id}-{queue}"


def queue(data_id: str, queue: str) -> str:
    """Key of the list of waiting job ids."""
    return _QUEUE + queue_name(data_id, queue)


def intermediate(data_id: str, queue: str) -> str:
    """Key of the list of job ids that a worker has taken and not yet begun."""
    return f"{_QUEUE}{queue_name(data_id, queue)}:intermediate"


def short_queue(data_id: str, key: str) -> str | None:
    """Give back the short name of one of our queue keys; None for somebody else's."""
    prefix = queue(data_id, "")
    return key.removeprefix(prefix) if key.startswith(prefix) else None


def started(data_id: str, queue: str) -> str:
    """Key of the sorted set of `job:execution` that workers have begun."""
    return _STARTED + queue_name(data_id, queue)


def workers(data_id: str, queue: str) -> str:
    """Key of the set of worker keys that listen to a queue."""
    return _WORKERS + queue_name(data_id, queue)


def worker_name(key: str) -> str:
    """Give the name a worker's key was made of; it is also the name of its Redis connections."""
    return key.removeprefix(_WORKER)


def job(job_id: str) -> str:
    """Key of the hash that holds one job."""
    return _JOB + job_id


def execution(job_and_execution: str) -> str:
    """Key of the hash that says which worker began a job."""
    return _EXECUTION + job_and_execution


def executions(job_id: str) -> str:
    """Key of the sorted set of one job's executions."""
    return _EXECUTIONS + job_id
