"""What a look at Redis finds: which workers live, and jobs shown as started whose worker is gone.

Asks only, but for `clear`, and never starts a server. Called by `etl fsck`, the
catch-all and the probe.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import redis as redis_py
from pydantic import SecretStr

from etl import errors
from etl.queues import clients, connection, embedded, keys, stranded


def opened(redis: SecretStr, data: Path) -> AbstractContextManager[redis_py.Redis | None]:
    """Open Redis if it is there: None when no embedded server runs; `Unavailable` when a URL does not answer."""
    if redis.get_secret_value() != connection.EMBEDDED:
        return connection.connect(redis, data)
    socket = embedded.running(data)
    return nullcontext(None) if socket is None else connection.open_socket(socket)


@contextmanager
def _asking() -> Iterator[None]:
    try:
        yield
    except (redis_py.RedisError, OSError) as error:
        raise errors.Unavailable(
            f"Redis does not say what it has ({error})", next="Nothing is lost: files wait where they lie"
        ) from error


@_asking()
def living_workers(client: redis_py.Redis, data_id: str, queues: Sequence[str]) -> int:
    """Count the workers on these queues that are connected; one that a flush made nameless may be on any."""
    named = {name for queue in queues for name in _members(client, keys.workers(data_id, queue))}
    alive = clients.connected_names(client)
    if alive is None:
        return len(named)
    ours = {name for name in alive if name.startswith(keys.queue_name(data_id, ""))}
    return len((named & alive) | (ours - _members(client, keys.WORKERS)))


def _members(client: redis_py.Redis, key: str) -> set[str]:
    return {keys.worker_name(keys.text(one)) for one in client.smembers(key)}


@_asking()
def waiting_jobs(client: redis_py.Redis, data_id: str, queues: Sequence[str]) -> int:
    """Count the jobs that wait in these queues."""
    return sum(int(client.llen(keys.queue(data_id, queue))) for queue in queues)


@_asking()
def stranded_jobs(client: redis_py.Redis, data_id: str, queue: str) -> list[str]:
    """List the jobs shown as started whose worker is not connected; none where the server does not tell."""
    return stranded.abandoned(client, data_id, queue)


@_asking()
def clear(client: redis_py.Redis, data_id: str, queue: str, entry: str) -> None:
    """Take a stranded entry out of what is started."""
    stranded.clear(client, data_id, queue, entry)
