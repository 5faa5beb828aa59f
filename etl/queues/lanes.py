"""Lanes: each queue is three lists in Redis, so that what is urgent overtakes what waits, whoever works it.

Names only. `default` has the lanes `default-high`, `default` and `default-low`; no queue's own name holds a `-`.
Called by `app`, which chooses the lane, and by whoever counts queues.
"""

from __future__ import annotations

from collections.abc import Iterable

#: priority -> what is added to the queue's name, in the order in which workers take them.
_SUFFIX = {"high": "-high", "normal": "", "low": "-low"}


def lane(queue: str, priority: str) -> str:
    """Name the lane of a queue for a priority; one that nobody knows is normal."""
    return queue + _SUFFIX.get(priority, "")


def of(queues: Iterable[str]) -> list[str]:
    """Give every lane of the queues as workers listen to them: what is high in any of them comes first."""
    queues = list(queues)
    return [queue + suffix for suffix in _SUFFIX.values() for queue in queues]


def queue(lane: str) -> str:
    """Give the queue a lane belongs to."""
    return lane.partition("-")[0]


def rank(lane: str) -> int:
    """Give 0 for a lane that comes first, 1 for a normal one, 2 for one that comes last."""
    _, _, word = lane.partition("-")
    return {"high": 0, "": 1, "low": 2}.get(word, 1)
