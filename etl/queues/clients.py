"""Who is connected to Redis: the one sign of life that ends with a worker, however it ended.

Asks only, and imports no rq. Called by `enqueue` and `census`.
"""

from __future__ import annotations

import redis


def connected_names(connection: redis.Redis) -> frozenset[str] | None:
    """Name the connected clients, workers among them; None where the server does not tell."""
    try:
        return frozenset(str(client.get("name", "")) for client in connection.client_list())
    except redis.exceptions.ResponseError:
        return None
