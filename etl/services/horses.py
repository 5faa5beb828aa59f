"""What a forked worker does, and the program that keeps a crew of them at work: `etl worker`.

Everything a worker needs it opens for itself after the fork; the guard only looks after it and the folders.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from etl import app as apps
from etl.app import App
from etl.config.reading import Config
from etl.errors import Unavailable
from etl.files import layout as layouts
from etl.queues import connection, enqueue
from etl.queues.queue import Report
from etl.services import mending
from etl.services.doorkeeper import Doorkeeper
from etl.services.workers import Crew

log = logging.getLogger(__name__)


def horse(
    config: Config, queues: Sequence[str], *, waits_for_away: bool, burst: bool = False
) -> Callable[[Report], None]:
    """Give what a forked worker does: open everything for itself, then work the queues."""

    def start(report: Report) -> None:
        from etl.queues.worker import run_worker

        with connection.connect(config.settings.redis, config.data) as client:
            data_id = layouts.Layout(config.data).data_id()
            app = App.open(config, enqueue.RedisAnnouncer(client, data_id))
            app.waits_for_away = waits_for_away
            app.progress = report.progressed
            with apps.serving(app):
                run_worker(client, data_id, list(queues), burst=burst, report=report)

    return start


def work(config: Config, queues: Sequence[str], count: int, *, burst: bool) -> None:
    """Keep `count` workers on the queues until a signal comes; with `burst`, until the queues are empty."""
    with connection.connect(config.settings.redis, config.data) as client:
        connection.require_fit(client)
        app = App.open(config, enqueue.RedisAnnouncer(client, layouts.Layout(config.data).data_id()))
        crew = Crew(horse(config, queues or app.queues(), waits_for_away=True, burst=burst), count)
        scan = _Scan(app, client)
        if burst:
            scan.turn()
            scan.let_in()
            crew.start()
            crew.drain()
        else:
            log.info("%d workers on %s", count, ", ".join(queues or app.queues()))
            crew.watch(also=scan.turn)


class _Scan:
    """Mends every pipeline when it is time, and keeps an embedded server alive."""

    def __init__(self, app: App, client: object) -> None:
        self._app = app
        self._next = 0.0
        self._door = Doorkeeper(app, drops=False)
        self._mender = mending.Mender(
            app, lambda: mending.announced(client, app), drops=False, door=self._door
        )

    def turn(self) -> None:
        """Scan if it is time; a Redis that is away is told and tried again."""
        self._app.announce(self._mender.go_on(self._door.turn()))
        if time.monotonic() < self._next:
            return
        settings = self._app.config.settings
        self._next = time.monotonic() + settings.scan
        try:
            connection.revive(settings.redis, self._app.config.data)
            self._mender.mend(self._app.config.pipelines)
        except (Unavailable, OSError) as error:
            log.warning("the scan is put off: %s", error, extra={"event": "scan_put_off"})

    def let_in(self) -> None:
        """Wait until what was moved back is complete, as far as that takes one more look."""
        if self._door.standing:
            time.sleep(self._door.wanted())
            self.turn()
