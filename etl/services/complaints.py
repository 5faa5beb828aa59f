"""Complaints of the catch-all: a reason beside every file that waits for a queue nobody serves, and one notice.

Knows its own reasons by their cause and touches no other; the files stay where they wait. Called by the catch-all.
"""

from __future__ import annotations

import logging
import os

from etl import points
from etl.files import reasons, spool, survey
from etl.files.layout import Layout
from etl.model import Place, Reason, Status, Urgency
from etl.points import Point
from etl.services.unserved import Unserved

log = logging.getLogger(__name__)

#: files of a place that get a reason; the rest is told by `etl status`.
MOST = 10_000


def put(layout: Layout, place: Place, one: Unserved) -> None:
    """Write a reason beside every file that waits at a place; one that has a reason already keeps it."""
    for name in survey.listing(layout, place, Status.WORKING)[:MOST]:
        path = layout.reason(place, name, Status.WORKING)
        if path.exists():
            continue
        reasons.write(layout, place, name, _reason(one), Status.WORKING)
        if not os.path.lexists(layout.file(place, Status.WORKING, name)):  # claimed meanwhile
            path.unlink(missing_ok=True)


def remove(layout: Layout, place: Place, queue: str) -> None:
    """Remove our reasons for a queue, also those whose file was claimed just as they were written."""
    for path in layout.status(place, Status.WORKING).glob("*.reason.json"):
        name = path.name.removesuffix(".reason.json")
        if reasons.read(layout, place, name, Status.WORKING).get("cause") == _cause(queue):
            with points.effect(Point.UNSERVED_CLEAR):
                path.unlink(missing_ok=True)


def notice(layout: Layout, one: Unserved) -> None:
    """Tell people once that a queue is not served and none of us may change that."""
    reason = _reason(one)
    log.error("%s; %s", reason.summary, reason.next, extra={"event": "notice"})
    spool.notice(layout, "unserved", reason.summary, f"{reason.impact}\n\nNext: {reason.next}")


def _cause(queue: str) -> str:
    return f"no worker serves the queue {queue}"


def _reason(one: Unserved) -> Reason:
    return Reason(
        summary=f"{_cause(one.queue)}, and {one.why}",
        impact="the file waits; nothing is lost, and it is worked as soon as a worker comes",
        urgency=Urgency.NOW,
        next=f"start a worker on any host that can do it: etl worker {one.queue}; or raise catch_all.max_workers",
        cause=_cause(one.queue),
    )
