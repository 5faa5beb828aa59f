"""Our RQ job and queue: JSON only, five allowed functions, nothing that was not written by us is read back.

Whoever can write to Redis can make our functions look at files, and nothing more: other functions, callbacks,
webhooks, dependencies and repeats are refused or never read. Used by `enqueue` and `worker`.
"""

from __future__ import annotations

import importlib
import json
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

import rq.job
import rq.queue
from redis import Redis
from rq.exceptions import NoSuchJobError

from etl import errors
from etl.queues.queue import ALLOWED

log = logging.getLogger(__name__)

#: seconds a finished job is kept for the curious; seconds a failed one is.
RESULT_TTL, FAILURE_TTL = 600, 24 * 3600
#: characters; descriptions are shown in logs and, unescaped, in dashboards.
LONGEST_DESCRIPTION = 120
_UNSAFE = re.compile(r"[^A-Za-z0-9 ._~/+=@-]")
#: the fields of a job's hash that we write; all others (callbacks, webhooks, repeats, …) are not ours.
_OURS = frozenset(
    {"data", "description", "origin", "status", "timeout", "result_ttl", "failure_ttl", "worker_name"}
    | {"created_at", "enqueued_at", "started_at", "ended_at", "last_heartbeat"}
)


class JSON:
    """RQ's serializer contract in plain ASCII JSON: names that are not UTF-8 travel as escaped surrogates."""

    @staticmethod
    def dumps(value: Any) -> bytes:
        """Write JSON values."""
        return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode("ascii")

    @staticmethod
    def loads(data: bytes) -> Any:
        """Read JSON values; anything else (a pickle) raises ValueError."""
        return json.loads(data)


def describe(function: str, arguments: Mapping[str, Any]) -> str:
    """Say in safe characters what a job does: `transform books/books~01k3f9a2m1qz7hd4.csv`."""
    parts = (arguments.get(key) for key in ("pipeline", "location", "name"))
    return safe(f"{function.rpartition('.')[2]} {'/'.join(str(part) for part in parts if part)}".rstrip())


def safe(text: str) -> str:
    """Replace what could hurt a terminal or a page, and cut what is too long."""
    text = _UNSAFE.sub("_", text)
    return text if len(text) <= LONGEST_DESCRIPTION else f"{text[: LONGEST_DESCRIPTION - 3]}..."


class Job(rq.job.Job):
    """A job that can only ever call one of the allowed functions, with named JSON arguments."""

    def __init__(
        self,
        id: str | None = None,  # noqa: A002
        connection: Redis | None = None,
        serializer: Any = None,
    ) -> None:
        super().__init__(id, connection=connection, serializer=JSON)

    def restore(self, raw_data: Mapping[bytes, bytes]) -> None:
        """Read back what we wrote; a hash we cannot have written is no job at all."""
        ours = {key: value for key, value in raw_data.items() if key.decode(errors="replace") in _OURS}
        try:
            super().restore(ours)
            if not self.timeout or self.timeout <= 0:
                raise ValueError("no time limit")  # noqa: TRY301
        except (ValueError, TypeError, KeyError) as error:
            log.warning("job %s is not readable and is left out: %s", safe(str(self._id)), safe(str(error)))
            raise NoSuchJobError(f"Job {self._id} is not one of ours") from error
        self.description = safe(self.description or "")

    @property
    def func(self) -> Callable[..., Any]:
        """Import the function this job names, or raise `Final` before anything is imported."""
        # args and instance are other ways to have something called
        if self.func_name not in ALLOWED or self.instance is not None or self.args:
            raise errors.Final(
                f"Job {self.id} asks for {self.func_name!r}, which no job may call",
                next="Find out who else writes to this Redis",
            )
        module, _, name = self.func_name.rpartition(".")
        function: Callable[..., Any] = getattr(importlib.import_module(module), name)
        return function


class JobQueue(rq.queue.Queue):
    """A queue of our jobs. No job waits for another, so finishing one never enqueues a second."""

    job_class = Job

    def __init__(self, name: str, connection: Redis, **options: Any) -> None:
        super().__init__(name, connection=connection, **(options | {"job_class": Job, "serializer": JSON}))

    def enqueue_dependents(self, *_: Any, **__: Any) -> None:
        """Do nothing."""
