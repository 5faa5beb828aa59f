"""Who is connected to Redis: the one sign of life that ends with a worker, however it ended.

Asks only, and imports no rq. Called by its siblings in this room.
"""

from __future__ import annotations

import redis

from etl.queues import keys


def connected_names(connection: redis.Redis) -> frozenset[str] | None:
    """Name the connected clients, workers among them; None where the server does not tell."""
    try:
        return frozenset(str(client.get("name", "")) for client in connection.client_list())
    except redis.exceptions.ResponseError:
        return None


def begun(connection: redis.Redis, data_id: str, queue: str) -> dict[str, bool]:
    """Tell of each `job:execution` that a worker has begun whether that worker lives; yes where nobody knows."""
    entries = [keys.text(entry) for entry in connection.zrange(keys.started(data_id, queue), 0, -1)]
    # a killed worker's entry stays until its time limit has passed, which may be hours
    alive = connected_names(connection) if entries else None
    if alive is None:
        return dict.fromkeys(entries, True)
    with connection.pipeline(transaction=False) as pipeline:
        for entry in entries:
            pipeline.hget(keys.execution(entry), "worker_name")
        workers = pipeline.execute()
    return {
        entry: not worker or keys.text(worker) in alive
        for entry, worker in zip(entries, workers, strict=True)
    }
