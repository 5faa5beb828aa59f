"""What a forked worker does, and the program that keeps a crew of them at work: `etl worker`.

Everything a worker needs it opens for itself after the fork; the guard only looks after it and the folders.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from etl import app as apps
from etl.app import App
from etl.config.reading import Config
from etl.errors import Unavailable
from etl.files import layout as layouts
from etl.queues import connection, enqueue
from etl.queues.queue import Report
from etl.services import mending
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
            crew.start()
            crew.drain()
        else:
            log.info("%d workers on %s", count, ", ".join(queues or app.queues()))
            crew.watch(also=scan.turn)


class _Scan:
    """Mends every pipeline when it is time, and keeps an embedded server alive."""

    def __init__(self, app: App, client: object) -> None:
        self._app = app
        self._client = client
        self._next = 0.0

    def turn(self) -> None:
        """Scan if it is time; a Redis that is away is told and tried again."""
        if time.monotonic() < self._next:
            return
        settings = self._app.config.settings
        self._next = time.monotonic() + settings.scan
        try:
            connection.revive(settings.redis, self._app.config.data)
            known = mending.announced(self._client, self._app)
        except (Unavailable, OSError) as error:
            log.warning("the scan is put off: %s", error, extra={"event": "scan_put_off"})
            return
        for pipeline in self._app.config.pipelines:
            try:
                mending.mend(self._app, pipeline, known, drops=False)
            except OSError as error:  # a folder that cannot be read holds its own pipeline alone
                log.warning("%s: the scan is put off: %s", pipeline, error, extra={"event": "scan_put_off"})


class Workers:
    """The crew as a service."""

    name = "workers"

    def __init__(self, crew: Crew, scan: _Scan, grace: float) -> None:
        self._crew = crew
        self._scan = scan
        self._grace = grace

    def turn(self) -> float:
        """Tend the crew, and scan if it is time."""
        self._crew.tend()
        self._scan.turn()
        return 0.05

    def close(self) -> None:
        """Let jobs in hand finish."""
        self._crew.stop(self._grace)


@contextmanager
def open(config: Config) -> Iterator[Workers]:  # noqa: A001
    """Open the workers on every queue as a service."""
    settings = config.settings
    with connection.connect(settings.redis, config.data) as client:
        connection.require_fit(client)
        app = App.open(config, enqueue.RedisAnnouncer(client, layouts.Layout(config.data).data_id()))
        crew = Crew(horse(config, app.queues(), waits_for_away=True), settings.workers)
        log.info("%d workers on %s", settings.workers, ", ".join(app.queues()))
        yield Workers(crew, _Scan(app, client), settings.stop_grace)
