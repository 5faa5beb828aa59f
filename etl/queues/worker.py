"""Our RQ worker: works job after job in this process, so that what a job opened can be kept for the next.

Has no thread, no scheduler and takes no orders through Redis; a guard outside holds the hard time limit.
Called by whoever forks workers, with a connection of its own.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

import redis
import rq.job
import rq.queue
from rq.exceptions import StopRequested
from rq.timeouts import UnixSignalDeathPenalty
from rq.worker import SimpleWorker, WorkerStatus

from etl import process
from etl.errors import EtlError, TimeUp, Unavailable
from etl.queues import keys
from etl.queues.job import JSON, RESULT_TTL, Job, JobQueue
from etl.queues.queue import Report, Unheard

log = logging.getLogger(__name__)

#: seconds between looks at jobs that other workers left behind.
MAINTENANCE = 60
#: seconds a silent worker is believed to live; it waits for jobs 15 s less than that in one go.
WORKER_TTL = 45
#: seconds between looks whether Redis still knows this worker: somebody may have flushed it.
KNOWN_EVERY = 5.0


def run_worker(
    connection: redis.Redis,
    data_id: str,
    queues: Sequence[str],
    *,
    ends: float | None = None,
    report: Report | None = None,
) -> None:
    """Work the queues until SIGTERM or SIGINT, the job in hand included; with `ends`, until nothing came
    for so many seconds; 0: until they are empty.

    Raise `Unavailable` when Redis goes away at a moment at which that cannot be waited for.
    """
    # RQ's own lines repeat what ours say
    logging.getLogger("rq.worker").setLevel(logging.WARNING)
    logging.getLogger("rq.worker").addFilter(_without_traceback)
    name = f"{keys.queue_name(data_id, socket.gethostname())}-{os.getpid()}-{secrets.token_hex(3)}"
    names = [keys.queue_name(data_id, queue) for queue in queues]
    try:
        _christen(connection, name)
        Worker(names, name, connection, report or Unheard()).work(
            burst=ends == 0, max_idle_time=max(1, round(ends)) if ends else None
        )
    except redis.RedisError as error:
        raise Unavailable(f"Redis does not answer ({error})") from error


def _christen(connection: redis.Redis, name: str) -> None:
    """Have all connections of this worker carry its name: that is how others see that it lives.

    Those that are open already have none, and less patience than waiting for a job takes: they are opened anew.
    """
    pool = connection.connection_pool
    pool.connection_kwargs["client_name"] = name
    pool.disconnect()
    pool.reset()


def _without_traceback(record: logging.LogRecord) -> bool:
    """Tell of a Redis that is away in one line; the guard starts another worker, which waits for it."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, redis.RedisError):
        record.msg, record.args = "Redis does not answer, this worker ends: %s", (error,)
        record.exc_info = None
    return True


class TimeLimit(UnixSignalDeathPenalty):
    """RQ's alarm, raising what no `except Exception` of a handler swallows."""

    def __init__(self, timeout: int | None, exception: Any = None, **kwargs: Any) -> None:
        super().__init__(timeout, TimeUp)  # type: ignore[no-untyped-call]

    def handle_death_penalty(self, signum: int, frame: FrameType | None) -> None:
        """Tell the job that its time is up."""
        process.strike(process.time_up(self._timeout))


class Worker(SimpleWorker):
    """RQ's in-process worker, without what we do not want and with one readable line per job."""

    queue_class: type[rq.queue.Queue] = JobQueue
    job_class = Job
    death_penalty_class = TimeLimit
    #: seconds at most between two tries to reach a Redis that is away.
    max_connection_wait_time = 5.0

    def __init__(self, queues: Sequence[str], name: str, connection: redis.Redis, report: Report) -> None:
        super().__init__(
            list(queues),
            name,
            connection=connection,
            default_result_ttl=RESULT_TTL,
            maintenance_interval=MAINTENANCE,
            worker_ttl=WORKER_TTL,
            serializer=JSON,
        )
        self._report = report
        self._waits_for_jobs = False
        self._known_until = 0.0

    def bootstrap(self, *_: Any, **__: Any) -> None:
        """Register, and leave logging and subscriptions alone."""
        self.register_birth()  # type: ignore[no-untyped-call]
        self.set_state(WorkerStatus.STARTED)

    def heartbeat(self, *args: Any, **kwargs: Any) -> None:
        """Give a sign of life, and register once more where Redis has forgotten us (P12)."""
        super().heartbeat(*args, **kwargs)
        if time.monotonic() >= self._known_until and kwargs.get("pipeline") is None:
            self._known_until = time.monotonic() + KNOWN_EVERY
            if not self.connection.sismember(self.redis_workers_keys, self.key):
                self.connection.delete(self.key)
                self.register_birth()  # type: ignore[no-untyped-call]

    def unsubscribe(self) -> None:
        """Do nothing: we listen to no channel, so nobody can order through Redis what we do not offer."""

    def register_death(self) -> None:
        """Say goodbye if Redis still listens."""
        with suppress(redis.RedisError, OSError):
            super().register_death()  # type: ignore[no-untyped-call]

    def request_stop(self, signum: int, frame: FrameType | None) -> None:
        """Stop after the job in hand, or at once while waiting for one."""
        self._stop_requested = True
        process.stop_soon()
        if self._waits_for_jobs:
            raise StopRequested

    def dequeue_job_and_maintain_ttl(
        self, timeout: int | None, max_idle_time: int | None = None
    ) -> tuple[rq.job.Job, rq.queue.Queue] | None:
        """Wait for a job; only here may a signal interrupt us."""
        self._waits_for_jobs = True
        try:
            # a signal that came just before found nobody waiting
            if self._stop_requested:
                raise StopRequested
            return super().dequeue_job_and_maintain_ttl(timeout, max_idle_time)
        finally:
            self._waits_for_jobs = False

    def execute_job(self, job: rq.job.Job, queue: rq.queue.Queue) -> None:
        """Do one job in this process, tell the guard when it begins and ends, and say if it went wrong."""
        begun = time.monotonic()
        self._report.started(job.description or "", int(job.timeout or 0))
        try:
            super().execute_job(job, queue)
        finally:
            self._report.ended()
        status = job.get_status(refresh=False).value
        log.log(
            # what became of the file was said by its stage
            logging.DEBUG if status == "finished" else logging.WARNING,
            "%s: the job is %s after %.2f s",
            *(job.description, status, time.monotonic() - begun),
            extra={"event": "job_ended", "job": job.id},
        )

    def handle_exception(self, job: rq.job.Job, *exc_info: Any) -> None:
        """Log what a job let escape; nothing is asked of the job itself, which may be unreadable."""
        # what we refuse ourselves says all there is to say in one line
        ours = isinstance(exc_info[1], EtlError)
        log.error("%s: %s", job.description or job.id, exc_info[1], exc_info=None if ours else exc_info)

    def _install_signal_handlers(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self.request_stop)
