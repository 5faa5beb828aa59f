"""The supervisor: starts the services as its children, starts them again when they die, stops them in order.

Does no work of theirs and knows them by name only. One per data folder. Called by `etl up`.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from etl import process
from etl.config import reading
from etl.config.reading import Config
from etl.errors import ConfigError, EtlError
from etl.queues import connection
from etl.services import catalogue, catch_all, child, heartbeat, records, seat
from etl.services.child import Child
from etl.services.orders import Orders

log = logging.getLogger(__name__)

#: seconds between two looks at everything; a child that dies is seen at once.
LOOK_EVERY = 1.0
#: seconds a service has to stop beyond what its jobs in hand are given.
STOP_WITHIN = 15.0
#: seconds a service has to stop when it is to stop at once.
HURRY_WITHIN = 5.0
#: seconds a service has to show up after it was started.
SHOWS_WITHIN = 30.0
#: seconds that are spent at the end on processes nobody looks after.
STRAYS_WITHIN = 5.0


def run(config: Config, overrides: Mapping[str, str]) -> None:
    """Keep every service of a data folder running until SIGTERM or SIGINT.

    Raise `Unavailable` when another supervisor has the folder, or Redis is not there or not fit at the start.
    """
    with (
        Orders() as orders,
        seat.take(config.data) as taken,
        connection.connect(config.settings.redis, config.data) as client,
    ):
        connection.require_fit(client)
        # from now on: a server that was started before is nobody's child, and that is how it should be
        process.adopt_orphans()
        log.info("serves %s; Ctrl-C stops everything", config.data, extra={"event": "start"})
        with (
            records.held(config.data, "supervisor"),
            _server_kept_alive(config),
            catch_all.watching(config) as caught,
            _metrics(config),
        ):
            one = Supervisor(config, overrides, orders, taken, caught)
            with heartbeat.beating(config.settings.heartbeat, one.all_run):
                one.run()


class Supervisor:
    """1. starts, 2. watches and restarts, 3. renews one after the other at a reload, 4. stops in order."""

    def __init__(
        self,
        config: Config,
        overrides: Mapping[str, str],
        orders: Orders,
        taken: seat.Seat,
        caught: catch_all.CatchAll,
    ) -> None:
        self._config = config
        self._overrides = overrides
        self._orders = orders
        self._seat = taken
        self._renewal: _Renewal | None = None
        #: children that whoever became us had before.
        self._others = process.children(os.getpid())
        self._environment = {f"ETL_{key.upper()}": value for key, value in overrides.items()}
        #: workers for queues that nobody served, by queue.
        self._extras: dict[str, Child] = {}
        self._catch_all = caught
        self._children = [self._child(config, *one) for one in catalogue.wanted(config).items()]
        #: services that were switched off, until they have ended.
        self._leaving: list[Child] = []

    def _child(self, config: Config, name: str, entry: catalogue.Entry) -> Child:
        command = child.command(config.folder, "service", name)
        return Child(name, command, self._environment, _grace(config, entry))

    def run(self) -> None:
        """Keep the services running until asked to stop."""
        try:
            while not self._orders.stops:
                try:
                    self._turn()
                except Exception:  # the edge: whatever a turn meets, the services are looked after
                    log.exception("a turn failed; it is tried again", extra={"event": "turn_failed"})
                self._orders.wait(LOOK_EVERY)
        finally:
            self._stop()

    def all_run(self) -> bool:
        """Tell whether every service runs; from any thread."""
        return all(one.pid for one in self._children)

    def _turn(self) -> None:
        for one in self._children:
            one.tend()
        self._leaving = [one for one in self._leaving if not one.bury()]
        self._tend_extras()
        self._end_strays(LOOK_EVERY)
        if self._renewal and self._renewal.is_over():
            self._seat.reloaded(self._renewal.said, self._renewal.renewed)
            self._renewal = None
        if self._orders.reload and not self._renewal:
            self._orders.reload = False
            self._reload()

    def _tend_extras(self) -> None:
        """Bury workers that ended because nothing came any more, and start those the catch-all asks for."""
        self._extras = {queue: one for queue, one in self._extras.items() if not one.bury()}
        for queue in self._catch_all.wanted():
            idle = f"{self._config.settings.catch_all.idle:.0f}s"
            arguments = ("worker", queue, "--workers", "1", "--idle", idle)
            grace = STOP_WITHIN + self._config.settings.stop_grace
            command = child.command(self._config.folder, *arguments)
            one = Child(f"worker for {queue}", command, self._environment, grace, once=True)
            one.tend()
            if one.pid:
                self._extras[queue] = one
        self._catch_all.living({queue: one.pid for queue, one in self._extras.items()})

    @property
    def _everybody(self) -> list[Child]:
        return [*self._children, *self._leaving, *self._extras.values()]

    def _end_strays(self, within: float) -> None:
        """End what a killed service left behind."""
        if os.getpid() == 1:  # in a container everybody's orphans fall to us
            return
        with connection.standing_server(self._config.settings.redis, self._config.data) as server:
            if server is not None:  # one that starts right now looks like a stray
                process.end_strays({server, *self._others, *(one.pid for one in self._everybody)}, within)

    # --- reload

    def _reload(self) -> None:
        try:
            config = reading.read(self._config.folder, self._overrides)
            self._must_be_the_same(config)
        except (EtlError, OSError) as error:
            log.warning(
                "not reloaded, the services go on as they are: %s", error, extra={"event": "not_reloaded"}
            )
            self._seat.refused(str(error))
            return
        for held in (one for errors in config.broken.values() for one in errors):
            log.error("held: %s", held, extra={"event": "pipeline_held"})
        log.info("reload: every service is started anew, one after the other", extra={"event": "reload"})
        self._switch(config)
        for one in self._extras.values():  # one that is still needed is started again
            one.ask_to_leave()
        self._catch_all.follow(config)
        self._renewal = _Renewal(self._children, config)

    def _switch(self, config: Config) -> None:
        """Have those services as children that are wanted now; new ones begin with the next turn."""
        wanted, known = catalogue.wanted(config), {one.name: one for one in self._children}
        for name in known.keys() - wanted.keys():
            known[name].ask_to_leave()
            self._leaving.append(known[name])
        self._children = [known.get(name) or self._child(config, name, one) for name, one in wanted.items()]
        for one in self._children:
            one.grace = _grace(config, wanted[one.name])

    def _must_be_the_same(self, config: Config) -> None:
        """Refuse what cannot change under running services."""
        for key, old, new in (
            ("data", self._config.data, config.data),
            ("redis", self._config.settings.redis, config.settings.redis),
        ):
            if old != new:
                raise ConfigError(f"`{key}` has changed", next="stop `etl up` and start it again")

    # --- stop

    def _stop(self) -> None:
        """Stop the services in the opposite order of their start; a second signal ends all at once."""
        log.info("stops; a second signal ends everything at once", extra={"event": "stop"})
        for one in reversed(self._everybody):
            one.ask_to_leave()
            while not one.bury() and self._orders.stops < 2:
                self._orders.wait(LOOK_EVERY / 4)
        for one in self._everybody:  # asked twice, they end what is in hand and give its file back
            one.hurry(HURRY_WITHIN)
        while [one for one in self._everybody if not one.bury()]:
            self._orders.wait(LOOK_EVERY / 4)
        self._end_strays(STRAYS_WITHIN)
        log.info("stopped", extra={"event": "stopped"})


class _Renewal:
    """A reload in progress: one service after the other leaves and is started anew; none of it is a crash."""

    def __init__(self, children: list[Child], config: Config) -> None:
        self.said = ""
        self.renewed: list[dict[str, str | int]] = []
        self._data = config.data
        self._left = list(children)
        self._begin()

    def is_over(self) -> bool:
        """Go on as far as is possible now, and tell whether every service is new."""
        while self._left:
            one = self._left[0]
            shows = one.pid and one.pid != self._before and self._shows(one.pid)
            if not shows and time.monotonic() < self._until:
                return False
            if shows:
                self.renewed.append({"name": one.name, "before": self._before, "pid": one.pid})
            else:
                self.said = f"{one.name} does not come back; see the log of the supervisor"
            self._left.pop(0)
            self._begin()
        return True

    def _begin(self) -> None:
        if self._left:
            one = self._left[0]
            self._before = one.pid
            self._until = time.monotonic() + one.grace + SHOWS_WITHIN
            one.ask_to_leave()

    def _shows(self, pid: int) -> bool:
        return any((one.pid, one.host) == (pid, records.host()) for one in records.living(self._data))


def _grace(config: Config, entry: catalogue.Entry) -> float:
    return STOP_WITHIN + (config.settings.stop_grace if entry.holds_jobs else 0.0)


def _metrics(config: Config) -> AbstractContextManager[None]:
    """Serve metrics where that is wanted; who does not pays nothing for it."""
    if config.settings.metrics is None:
        return nullcontext()
    from etl.services import metrics

    return metrics.served(config)


# --- the embedded server ---------------------------------------------------------------------------------------


@contextmanager
def _server_kept_alive(config: Config) -> Iterator[None]:
    """Bring an embedded server that was killed back, in a thread: its start may take long, our children may not."""
    if config.settings.redis.get_secret_value() != connection.EMBEDDED:
        yield
        return
    over = threading.Event()
    thread = threading.Thread(target=_keep_alive, args=(config, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(STOP_WITHIN)


def _keep_alive(config: Config, over: threading.Event) -> None:
    told, before = "", _server(config)
    while not over.wait(LOOK_EVERY):
        try:
            connection.revive(config.settings.redis, config.data)
        except (EtlError, OSError) as error:
            if str(error) != told:
                log.warning("%s", error, extra={"event": "server_away"})
            told = str(error)
            continue
        now = _server(config)
        if before and now and now != before:  # a service may have been faster than we are
            log.warning("the embedded Redis had ended and was started again", extra={"event": "server_back"})
        told, before = "", now or before


def _server(config: Config) -> int | None:
    with connection.standing_server(config.settings.redis, config.data) as server:
        return server
