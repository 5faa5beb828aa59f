"""The catch-all: finds work whose queue no worker serves, asks for a worker, or says that none may be started.

Starts nothing itself: it tells the supervisor which queues want a worker, and is told which have one. Moves no file;
writes reasons beside those that wait in vain, and removes them. Run by the supervisor in a thread of its own, because
Redis may hang.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from etl.app import App
from etl.config.reading import Config
from etl.errors import EtlError
from etl.files import names, notes, survey
from etl.files.layout import REQUESTS
from etl.model import Place, Status
from etl.queues import looking
from etl.queues.enqueue import InlineAnnouncer
from etl.services import complaints, unserved
from etl.services.unserved import COUNTING, REFUSED, STARTED, Unserved
from etl.stages import pauses

log = logging.getLogger(__name__)

#: files of a place that are asked whether they are due.
_ASKED = 100
#: seconds that a check in hand is waited for at the end.
_STOP_WITHIN = 2.0


class CatchAll:
    """1. counts checks per queue, 2. asks for workers, 3. complains where none may be started, 4. clears it again."""

    def __init__(self, config: Config) -> None:
        self._follow(config)
        self._new: Config | None = None
        self._known = unserved.read(config.data)
        self._lock = threading.Lock()
        self._wanted: list[str] = []
        self._started: Mapping[str, int] = {}

    def _follow(self, config: Config) -> None:
        self._config = config
        self._app = App.open(config, InlineAnnouncer())
        self._rules = config.settings.catch_all

    # --- what the supervisor does

    def follow(self, config: Config) -> None:
        """Have the next check follow another configuration."""
        with self._lock:
            self._new = config

    @property
    def every(self) -> float:
        """Give the seconds between two checks."""
        return self._rules.every

    def wanted(self) -> list[str]:
        """Give the queues for which a worker is to be started now, once."""
        with self._lock:
            wanted, self._wanted = self._wanted, []
            return wanted

    def living(self, started: Mapping[str, int]) -> None:
        """Hear for which queues workers that were started live: their process ids."""
        with self._lock:
            self._started = dict(started)

    # --- a check

    def check(self, now: float | None = None) -> None:
        """Look once at every queue; one check more for those that nobody serves."""
        now = time.time() if now is None else now
        with self._lock:
            new, self._new = self._new, None
        if new:
            self._follow(new)
        with looking.opened(self._config.settings.redis, self._config.data) as client:
            if client is None:
                return  # the server is being brought back; nothing is known
            found = {queue: self._looked(client, queue, now) for queue in self._app.queues()}
        for queue in {*self._known, *found}:
            before, one = self._known.get(queue), found.get(queue)
            if one is None:
                self._cleared(queue, before)
            elif one.state == REFUSED:
                self._refused(one, before)
        self._known = {queue: one for queue, one in found.items() if one}
        unserved.write(self._config.data, self._known)

    def _looked(self, client: Any, queue: str, now: float) -> Unserved | None:
        """Give what is to be known of a queue; None when it is served or nothing waits in it."""
        wanted = self._app.lanes([queue])
        if looking.living_workers(client, self._app.data_id, wanted):
            return None
        waiting = max(looking.waiting_jobs(client, self._app.data_id, wanted), self._due(queue))
        if not waiting:
            return None
        known = self._known.get(queue) or Unserved(queue=queue, since=now)
        return self._decided(replace(known, checks=known.checks + 1, waiting=waiting))

    def _decided(self, one: Unserved) -> Unserved:
        """Decide what is done about a queue nobody serves."""
        most = self._rules.max_workers
        with self._lock:
            if one.queue in self._started or one.queue in self._wanted:
                return replace(one, state=STARTED, why="a worker was started for it")
            if one.checks < self._rules.max_checks:
                return replace(one, state=COUNTING, why="")
            if len(self._started) + len(self._wanted) >= most:
                why = f"no worker may be started for it: catch_all.max_workers is {most}"
                return replace(one, state=REFUSED, why=f"{why}, and all are in use" if most else why)
            self._wanted.append(one.queue)
        log.warning(
            "%d wait in queue %s and no worker serves it: one is started",
            *(one.waiting, one.queue),
            extra={"event": "queue_unserved"},
        )
        # counted anew once that worker has ended
        return replace(one, checks=0, state=STARTED, why="a worker was started for it")

    def _due(self, queue: str) -> int:
        """Count the files that wait for a queue and could be begun; a drop that has no id yet has no job either."""
        due = 0
        for place in self._places(queue):
            if pauses.told(self._config, self._app.layout, place):
                continue
            names_ = [name for name in self._waiting(place) if names.parse(place.pipeline, name)]
            if any(self._is_due(place, name) for name in names_[:_ASKED]):
                due += len(names_)
        return due

    def _is_due(self, place: Place, name: str) -> bool:
        return notes.glance(self._app.layout, place, name).not_before <= time.time()

    def _places(self, queue: str) -> Iterator[Place]:
        for pipeline in self._config.pipelines:
            for place in self._app.places(pipeline):
                if self._app.options(place).queue == queue:
                    yield place

    def _waiting(self, place: Place) -> list[str]:
        return survey.listing(self._app.layout, place, Status.WORKING)

    # --- complaints

    def _refused(self, one: Unserved, before: Unserved | None) -> None:
        for place in self._places(one.queue):
            if place.location != REQUESTS:
                complaints.put(self._app.layout, place, one)
        if before is None or before.state != REFUSED:
            complaints.notice(self._app.layout, one)

    def _cleared(self, queue: str, before: Unserved | None) -> None:
        if before is None:
            return
        # everywhere: a place may name another queue by now
        for pipeline in self._config.pipelines:
            for place in self._app.places(pipeline):
                complaints.remove(self._app.layout, place, queue)
        if before.state != COUNTING:  # nobody was told of it
            log.info(
                "queue %s is served again, or nothing waits in it", queue, extra={"event": "queue_served"}
            )


@contextmanager
def watching(config: Config) -> Iterator[CatchAll]:
    """Check every `catch_all.every` in a thread for as long as the context lasts."""
    over, one = threading.Event(), CatchAll(config)
    thread = threading.Thread(target=_watch, args=(one, over), daemon=True)
    thread.start()
    try:
        yield one
    finally:
        over.set()
        thread.join(_STOP_WITHIN)


def _watch(one: CatchAll, over: threading.Event) -> None:
    told = ""
    while not over.wait(one.every):
        try:
            one.check()
            told = ""
        except (EtlError, OSError) as error:
            if str(error) != told:
                log.warning("queues are not checked: %s", error, extra={"event": "catch_all_put_off"})
            told = str(error)
        except Exception:  # the edge: the next check tries again
            log.exception("queues are not checked", extra={"event": "catch_all_put_off"})
