"""What a forked worker does, and the program that keeps a crew of them at work: `etl worker`.

Everything a worker needs it opens for itself after the fork; the guard only looks after it and the folders.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from etl import app as apps
from etl.app import App
from etl.config.reading import Config
from etl.errors import EtlError
from etl.files import fates, names, recovery
from etl.files import layout as layouts
from etl.model import Place
from etl.queues import connection, enqueue, progress, updates
from etl.queues.queue import Report
from etl.services import mending, service
from etl.services.doorkeeper import Doorkeeper
from etl.services.workers import LOOK_EVERY, OVERRUN, Crew, Death, Terms
from etl.stages import endings

log = logging.getLogger(__name__)


def horse(
    config: Config,
    lanes: Sequence[str],
    *,
    waits_for_away: bool,
    ends: float | None = None,
) -> Callable[[Report], None]:
    """Give what a forked worker does: open everything for itself, then work the lanes, the first first."""

    def start(report: Report) -> None:
        from etl.queues.worker import run_worker

        with connection.connect(config.settings.redis, config.data) as client:
            data_id = layouts.Layout(config.data).data_id()
            app = App.open(config, enqueue.RedisAnnouncer(client, data_id))
            app.waits_for_away = waits_for_away
            app.progress = report.progressed
            app.holds = report.holds
            app.tell = updates.Teller(client, data_id)
            app.board = board = progress.Board(client, data_id)
            board.tidy()
            with apps.serving(app):
                run_worker(client, data_id, list(lanes), ends=ends, report=report)

    return start


class Workers:
    """Keeps `count` workers on the queues, and looks through the folders every `scan`: a service."""

    name = "workers"

    def __init__(
        self,
        config: Config,
        queues: Sequence[str],
        count: int,
        *,
        ends: float | None = None,
        overrun: float = OVERRUN,
    ) -> None:
        with ExitStack() as opened:
            client = opened.enter_context(connection.connect(config.settings.redis, config.data))
            connection.require_fit(client)
            app = App.open(config, enqueue.RedisAnnouncer(client, layouts.Layout(config.data).data_id()))
            self._opened = opened.pop_all()  # what follows opens nothing
        queues = queues or app.queues()
        start = horse(config, app.lanes(queues), waits_for_away=True, ends=ends)
        self.crew = Crew(start, count, terms(app, overrun))
        self.scan = _Scan(app, client)
        log.info("%d %s on %s", count, "worker" if count == 1 else "workers", ", ".join(queues))

    def turn(self) -> float:
        """Tend the workers, and scan if it is time."""
        # the workers first: what a dead one had in hand must not look like anybody's orphan to the scan
        wanted = self.crew.turn()
        self.scan.turn()
        return wanted

    def close(self) -> None:
        """Let jobs in hand finish for `stop_grace`, bring back what could not, and leave Redis."""
        with self._opened:
            self.crew.close()


def work(config: Config, queues: Sequence[str], count: int, *, ends: float | None = None) -> None:
    """Keep `count` workers on the queues until a signal comes.

    With `ends`, until nothing was worked for so many seconds; 0: until the queues are empty.
    """
    workers = Workers(config, queues, count, ends=ends)
    if ends is None:
        return service.keep(workers)
    with service.Stop() as stop:
        try:
            workers.scan.turn()
            workers.scan.let_in()
            workers.crew.start()
            while not stop.asked and workers.crew.drain():
                if ends:
                    workers.scan.turn()
                stop.wait(LOOK_EVERY)
        finally:
            workers.close()
    return None


def terms(app: App, overrun: float = OVERRUN) -> Terms:
    """Give the terms for a crew that works for `app`: files of dead workers are brought back at once."""
    settings = app.config.settings

    def foretell(place: Place, name: str, overran: bool) -> None:
        fates.foretell(app.layout, place, name, _overran(app, place) if overran else fates.Stopped())

    def mourn(death: Death) -> None:
        if death.file is None:
            return
        place, name = death.file
        try:
            back = recovery.recover(app.layout, place, name, app.announce, _fate(app, place, death))
        except (EtlError, OSError) as error:
            log.warning("%s/%s is left to the next scan: %s", place, names.printable(name), error)
        else:
            app.announce([back] if back else [])

    return Terms(
        overrun=overrun,
        grace=settings.stop_grace,
        mourn=mourn,
        foretell=foretell,
        kept=lambda: connection.own_server(settings.redis, app.config.data),
        adopts=True,
    )


def _fate(app: App, place: Place, death: Death) -> fates.Fate:
    if death.overran:
        return _overran(app, place)
    return fates.Stopped() if death.stopped else fates.Died(why=death.why)


def _overran(app: App, place: Place) -> fates.Overran:
    told = "it did not stop when its time limit had passed, so its worker was ended"
    return fates.Overran(reason=endings.timeout(app, place, told))


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
        begun, pause = time.monotonic(), self._app.config.settings.scan
        self._mender.scan()
        if self._mender.due:  # what was put off or is paused is due before the next scan
            pause = min(pause, max(mending.SHORTEST_SCAN, self._mender.due - time.time()))
        self._next = begun + pause

    def let_in(self) -> None:
        """Wait until what was moved back is complete, as far as that takes one more look."""
        if self._door.standing:
            time.sleep(self._door.wanted())
            self.turn()


@contextmanager
def open(config: Config) -> Iterator[Workers]:  # noqa: A001
    """Open the workers on the queues that are served here as a service, which closes itself."""
    yield Workers(config, config.settings.queues, config.settings.workers)
