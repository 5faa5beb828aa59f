"""The recorder: keeps the ledger in step with the folders, from updates it hears of and from what folders look like.

1. An update is a hint: where that file lies now is looked up and written, so that lost, doubled and late ones change
   nothing. 2. Folders that changed are compared all the same. 3. One recorder writes at a time, others stand by.
Moves no file. Nobody waits for it: while it or the ledger is away, the pipelines go on (P18).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from etl import disk
from etl.app import App
from etl.config.reading import Config
from etl.errors import Unavailable
from etl.files import layout as layouts
from etl.ledger import opening, queries, writes
from etl.ledger.opening import Ledger
from etl.ledger.rows import Address, Attempt, Delivered, File, Folder, Run, spelled
from etl.model import Update
from etl.queues import connection, enqueue, updates
from etl.services import comparing, records, sighting
from etl.services.standings import Standings

log = logging.getLogger(__name__)

#: updates read, and files looked at, for one transaction.
MOST = 2_000
#: seconds that a turn waits for updates; between two comparisons at least; of the time these take one part in so many.
LISTEN, COMPARE_EVERY, SHARE = 1.0, 2.0, 10
#: seconds until a recorder that stands by, or whose ledger is away, tries again.
STAND_BY, AWAY = 2.0, 5.0


@contextmanager
def open(config: Config) -> Iterator[Recorder]:  # noqa: A001
    """Open everything a recorder needs, for as long as the context lasts; the ledger itself is opened in a turn."""
    data_id = layouts.Layout(config.data).data_id()
    with connection.connect(config.settings.redis, config.data) as client:
        app = App.open(config, enqueue.RedisAnnouncer(client, data_id))
        yield Recorder(app, updates.Reader(client, data_id))


class Recorder:
    """A service; see `service.Service`."""

    name = "recorder"

    def __init__(self, app: App, reader: updates.Reader) -> None:
        self._app = app
        self._reader = reader
        self._standings = Standings(app)
        self._lock: disk.Lock | None = None
        self._ledger: Ledger | None = None
        self._position = ""
        self._next_compare = self._next_reconcile = 0.0
        #: what is in the way, as it was told.
        self._told: dict[str, str] = {}

    def turn(self) -> float:
        """Write what was heard, compare when it is time; give the seconds until the next turn is wanted."""
        if not self._is_active():
            return STAND_BY
        try:
            ledger = self._opened()
            heard = self._listen()
            self._write(ledger, heard.updates if heard else (), heard.position if heard else "")
            now = time.monotonic()
            if now >= self._next_reconcile or (heard and heard.gap):
                self._reconcile(ledger)
            elif now >= self._next_compare:
                self._compare(ledger)
            self._standings.turn(ledger)
        except Unavailable as error:
            self._leave()
            self._tell("ledger", f"{error}")
            return AWAY
        self._tell("ledger", "")
        return 0.0 if heard is not None else LISTEN

    def close(self) -> None:
        """Leave the ledger to the next recorder."""
        self._leave()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # --- who writes, and where

    def _is_active(self) -> bool:
        """Tell whether we are the one who writes; become it if nobody is."""
        if self._lock is None:
            self._lock = disk.lock_path(self._app.layout.own / "recorder.lock")
            self._tell("turn", "" if self._lock else "another recorder is active; this one stands by")
        return self._lock is not None

    def _opened(self) -> Ledger:
        if self._ledger is not None and not self._ledger.is_there():
            log.warning("the ledger is gone and is made anew", extra={"event": "ledger_gone"})
            self._leave()
        if self._ledger is None:
            ledger = opening.for_writing(self._app.config, self._app.data_id)
            with ledger.reading() as asking:
                self._position = queries.position(asking)
            # whatever happened while nobody listened shows in the folders
            self._ledger, self._next_reconcile = ledger, 0.0
        return self._ledger

    def _leave(self) -> None:
        if self._ledger is not None:
            self._ledger.close()
            self._ledger = None

    def _tell(self, about: str, said: str) -> None:
        """Tell what is in the way once, and once that it is over."""
        before = self._told.get(about, "")
        if said and said != before:
            log.warning("%s", said, extra={"event": f"{about}_away"})
        elif before and not said:
            log.info("goes on: %s", before.partition(".")[0], extra={"event": f"{about}_back"})
        self._told[about] = said

    # --- updates

    def _listen(self) -> updates.Heard | None:
        """Read what was told; None when Redis is away: the folders are compared all the same."""
        try:
            heard = self._reader.read(self._position, MOST, LISTEN)
        except Unavailable as error:
            self._tell("redis", str(error))
            return None
        self._tell("redis", "")
        if heard.gap:
            log.info("updates were missed; the folders are compared", extra={"event": "updates_missed"})
        return heard

    def _write(self, ledger: Ledger, told: Sequence[Update], position: str) -> None:
        """Look where everything lies that was told of, and write it together with how far was read."""
        configured = {place for name in self._app.config.pipelines for place in self._app.places(name)}
        told = [one for one in told if one.place in configured]
        if position and (told or position != self._position):
            attempts = [one for update in told if (one := sighting.attempt(update)) is not None]
            wanted = {(update.place, update.name) for update in told}
            followed = {key for update in told if (key := sighting.followed(update)) is not None}
            self._record(ledger, wanted, touched=followed, attempts=attempts, position=position)
            self._position = position

    def _record(  # noqa: PLR0913 - the parts of one batch
        self,
        ledger: Ledger,
        wanted: Iterable[Address],
        *,
        touched: Collection[Delivered] = (),
        attempts: Sequence[Attempt] = (),
        listed: Sequence[Folder] = (),
        position: str = "",
    ) -> None:
        layout = self._app.layout
        seen = {(place, spelled(name)): sighting.look(layout, place, name) for place, name in wanted}
        sources: dict[tuple[str, str], list[File]] = {}
        for files in seen.values():
            for one in files:
                if one.file_id:
                    sources.setdefault((one.place.pipeline, one.file_id), []).append(one)
        with ledger.writing() as writing:
            unknown = queries.unknown(writing, sources)
            arrived = [sighting.arrival(layout, *source, sources[source]) for source in sorted(unknown)]
            batch = writes.Batch(
                seen=seen,
                touched=touched,
                attempts=attempts,
                arrived=arrived,
                listed=listed,
                position=position,
            )
            writes.record(writing, batch)

    # --- folders

    def _compare(self, ledger: Ledger) -> None:
        """Hold the folders that changed against the ledger; never more than a tenth of the time."""
        begun = time.monotonic()
        for difference in comparing.changed(self._app, ledger):
            wanted = comparing.addresses(difference)
            for start in range(0, len(wanted), MOST):
                self._record(ledger, wanted[start : start + MOST])
            # last: a listing that was cut short is made again
            self._record(ledger, (), listed=[difference.folder])
        self._see_services(ledger)
        self._next_compare = time.monotonic() + max(COMPARE_EVERY, SHARE * (time.monotonic() - begun))

    def _reconcile(self, ledger: Ledger) -> None:
        """Compare now, and take out what is no longer configured."""
        gone = comparing.unconfigured(self._app, ledger)
        if gone:
            with ledger.writing() as writing:
                for place in gone:
                    writes.forget_place(writing, place)
        self._compare(ledger)
        self._next_reconcile = time.monotonic() + self._app.config.settings.reconcile

    def _see_services(self, ledger: Ledger) -> None:
        living = [
            Run(name=one.name, host=one.host, pid=one.pid, started=one.started, restarts=one.restarts)
            for one in records.living(self._app.config.data)
        ]
        with ledger.writing() as writing:
            writes.see_services(writing, living, time.time())
