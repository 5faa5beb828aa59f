"""How many workers there are and how much waits, for `etl status`: a few quick questions to Redis.

Never starts a server and never imports rq, so that the command people type most often starts fast.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import redis as redis_py
from pydantic import SecretStr

from etl.queues import clients, connection, embedded, keys, lanes


def census(redis: SecretStr, data: Path, data_id: str) -> dict[str, Any] | None:
    """Count workers, and per queue what is queued and started; None when no embedded server runs.

    Raises `Unavailable` when a configured Redis does not answer.
    """
    if redis.get_secret_value() != connection.EMBEDDED:
        with connection.connect(redis, data) as client:
            return _count(client, data_id)
    socket = embedded.running(data)
    if socket is None:
        return None
    try:
        with connection.open_socket(socket) as client:
            return _count(client, data_id)
    except (redis_py.RedisError, OSError):
        return None  # it ended while we asked


def _count(client: redis_py.Redis, data_id: str) -> dict[str, Any]:
    names = (keys.short_queue(data_id, keys.text(key)) for key in client.smembers(keys.QUEUES))
    all_lanes = sorted(name for name in names if name is not None)
    alive = clients.connected_names(client)
    workers: set[str] = set()
    counts: dict[str, dict[str, int]] = {}
    for lane in all_lanes:
        with client.pipeline() as pipeline:
            pipeline.llen(keys.queue(data_id, lane))
            pipeline.zcard(keys.started(data_id, lane))
            pipeline.smembers(keys.workers(data_id, lane))
            queued, started, members = pipeline.execute()
        # people think in queues; what is urgent in one is no queue of its own
        told = counts.setdefault(lanes.queue(lane), {"queued": 0, "started": 0})
        told["queued"] += queued
        told["started"] += started
        workers |= {keys.worker_name(keys.text(key)) for key in members}
    if alive is not None:
        # a worker's connections carry its name, also where no queue had a job yet
        workers = {name for name in alive if name.startswith(keys.queue_name(data_id, ""))}
    return {"workers": len(workers), "queues": counts}
