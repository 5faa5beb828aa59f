"""Has every file that waits a job, while somebody is there to do it, and has every begun job somebody?

Asked only where Redis answers: what waits with nobody running is no broken promise, it waits.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from etl.app import App
from etl.errors import Unavailable
from etl.files import notes
from etl.model import Place, Status, Waiting
from etl.queues import looking as redis_looking
from etl.queues.queue import Identity
from etl.services import mending
from etl.services.fsck.finding import Finding
from etl.services.fsck.tree import Tree
from etl.stages import pauses

#: seconds beyond a scan until which a file may wait for its job.
SLACK = 5.0


def unannounced(tree: Tree, client: Any) -> Iterator[Finding]:
    """P12: a file that waits longer than a scan has a job, while workers run."""
    app = tree.app
    try:
        if not redis_looking.living_workers(client, app.data_id, app.lanes()):
            return
        known = mending.announced(client, app)
    except Unavailable:
        return  # it ended while we asked; the files wait where they lie
    for place in tree.places:
        if pauses.why(app, place):
            continue
        for name, statuses in tree.lying[place].items():
            if Status.WORKING in statuses and _has_no_job(tree, place, name, known):
                yield Finding(
                    promise="P12",
                    check="no-job",
                    place=str(place),
                    name=name,
                    what="waits, is due, and has no job, though workers run",
                    next="`etl fsck --fix` announces it; if this comes back, look at what the workers log",
                    fix=lambda place=place, name=name: _announce(app, place, name),  # type: ignore[misc]
                )


def _has_no_job(tree: Tree, place: Place, name: str, known: set[Identity]) -> bool:
    app = tree.app
    # a name without an id may still be being written
    if tree.file(name) is None or app.work(Waiting(place=place, name=name)).identity in known:
        return False
    note = tree.file_notes[place].get(name) or notes.FileNote()
    try:
        lies_since = app.layout.file(place, Status.WORKING, name).lstat().st_ctime
    except OSError:
        return False
    due = max(lies_since, 0.0 if note.ended else note.not_before)
    return time.time() - due > app.config.settings.scan + SLACK


def _announce(app: App, place: Place, name: str) -> str:
    app.announce([Waiting(place=place, name=name)])
    return "announced it"


def stranded(app: App, client: Any) -> Iterator[Finding]:
    """P26: what RQ shows as started is in a living worker's hands."""
    for queue in app.lanes():
        try:
            entries = redis_looking.stranded_jobs(client, app.data_id, queue)
        except Unavailable:
            return
        for entry in entries:
            yield Finding(
                promise="P26",
                check="stranded-job",
                place=f"queue {queue}",
                name=entry,
                what="is shown as started, and its worker is gone",
                next="nothing is lost: its file waits or is brought back; `etl fsck --fix` clears the entry",
                fix=lambda queue=queue, entry=entry: _clear(app, client, queue, entry),  # type: ignore[misc]
            )


def _clear(app: App, client: Any, queue: str, entry: str) -> str:
    redis_looking.clear(client, app.data_id, queue, entry)
    return "cleared it"
