"""Clean: takes what has come to rest off the road, into verified archives, one pipeline and day after the other.

Asked for durably, so that a lost job is announced again; any number may be asked for, one works at a time.
Called by `jobs`, by `etl clean`, and by whoever keeps the time.
"""

from __future__ import annotations

import logging
import secrets
from pathlib import Path

from etl import disk, points
from etl.app import App
from etl.errors import Unavailable
from etl.files.layout import Layout
from etl.points import Point
from etl.queues import lanes
from etl.queues.queue import Work

log = logging.getLogger(__name__)

#: seconds that the job may take: years may wait to be archived, and nobody waits for it.
TIMEOUT = 24 * 3600


def folder(layout: Layout) -> Path:
    """Where our own things lie: the lock, the journals, the mark of one that was asked for."""
    return layout.own / "clean"


# --- asked for ---------------------------------------------------------------------------------------------


def ask(app: App) -> None:
    """Ask for one clean, durably, and have a job made for it; asked twice while one is wanted it is one."""
    mark = folder(app.layout) / "asked"
    if not mark.exists():
        disk.make_folder(mark.parent)
        disk.write(mark, f"{secrets.token_hex(8)}\n".encode(), Point.CLEAN_ASK)
    announce(app)


def asked(layout: Layout) -> str:
    """Give the token of the clean that is asked for; "" when none is."""
    try:
        return (folder(layout) / "asked").read_text().strip() or "asked"
    except FileNotFoundError:
        return ""


def answered(layout: Layout, token: str) -> None:
    """Take the mark away, unless another one was asked for meanwhile."""
    if token and asked(layout) == token:
        with points.effect(Point.CLEAN_ASK):
            (folder(layout) / "asked").unlink(missing_ok=True)


def work(app: App) -> Work:
    """Give the job that cleans."""
    queue = lanes.lane(app.queues()[0], "normal")
    return Work(function="etl.jobs.clean", arguments={}, queue=queue, timeout=TIMEOUT)


def announce(app: App) -> None:
    """Have a job made for what was asked for; while the queue is away the mark waits for the next scan."""
    try:
        app.announcer.announce([work(app)])
    except Unavailable as error:
        log.warning("%s", error, extra={"event": "not_announced"})


# --- done --------------------------------------------------------------------------------------------------


def job(app: App) -> int:
    """Clean, and give the number of archives built."""
    token = asked(app.layout)
    answered(app.layout, token)
    return 0
