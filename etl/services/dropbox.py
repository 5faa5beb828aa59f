"""The dropbox: what is put into a `working/` folder is found, let in when it is complete, and announced.

1. The scan is the mechanism: at start and every `scan`, over all folders, whatever was heard or missed (P9).
2. Events only cut the time until then: the names they bring are looked at at once, and nothing else.
3. Sources that say `every` are pulled on their beat; what killed workers left in Redis is cleared.
Works no file itself. Kept running by `service.keep`; any number may run, on any host.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from watchdog import events, observers
from watchdog.observers.api import BaseObserver, ObservedWatch

from etl.app import App
from etl.config.reading import Config
from etl.files import layout as layouts
from etl.model import Place, Status, Waiting
from etl.queues import connection, enqueue
from etl.queues.stranded import Stranded
from etl.services import mending, service
from etl.services.beats import Beats
from etl.services.doorkeeper import Doorkeeper

log = logging.getLogger(__name__)

#: seconds between two scans, at most, where no events are heard; and at least, however much is due.
DEAF_SCAN = 5.0
#: a scan may take one part in so many of the time.
SHARE = 4
_HEARD = [
    *(events.FileMovedEvent, events.DirMovedEvent, events.FileCreatedEvent, events.DirCreatedEvent),
    *(events.FileClosedEvent, events.DirDeletedEvent),
]


@contextmanager
def open(config: Config) -> Iterator[Dropbox]:  # noqa: A001
    """Open everything a dropbox needs, for as long as the context lasts."""
    with connection.connect(config.settings.redis, config.data) as client:
        connection.require_fit(client)
        app = App.open(config, enqueue.RedisAnnouncer(client, layouts.Layout(config.data).data_id()))
        yield Dropbox(app, client)


class Dropbox:
    """A service; see `service.Service`."""

    name = "dropbox"

    def __init__(self, app: App, client: Any) -> None:
        self._app = app
        self._door = Doorkeeper(app, drops=True)
        self._mender = mending.Mender(
            app, lambda: mending.announced(client, app), drops=True, door=self._door
        )
        self._stranded = Stranded(client, app.data_id, app.lanes())
        self._beats = Beats(app)
        self.watch = Watch(app)
        self._next_scan = 0.0

    def turn(self) -> float:
        """Look at what was touched, beat, scan when it is time; give the seconds until one of these is due."""
        for touch in self.watch.heard():
            self._hear(touch)
        # first: it makes the folders again without which all the rest goes wrong
        if time.monotonic() >= self._next_scan:
            begun = time.monotonic()
            self._next_scan = begun + DEAF_SCAN  # whatever it meets, the rest has its turn
            self._next_scan = begun + self._scan()
        self._announce(self._door.turn())
        self._beats.turn()
        return max(0.0, min(self._next_scan - time.monotonic(), self._door.wanted(), self._beats.wanted()))

    def _hear(self, touch: Touch) -> None:
        if not touch.name:  # the folder itself is gone: it is made and watched again
            self._next_scan = 0.0
        elif not self._beats.moves(touch.place, touch.name):
            self._door.touched(touch.place, touch.name, renamed=touch.renamed, made=touch.made)

    def _announce(self, waiting: list[Waiting]) -> None:
        self._app.announce(self._mender.go_on(waiting))

    def _scan(self) -> float:
        """Look through all folders, and give the seconds from its begin to the next scan."""
        begun = time.monotonic()
        pause: float = self._app.config.settings.scan
        # before the folders are read: what comes later is heard
        if not self.watch.arm():
            pause = min(pause, DEAF_SCAN)
        if self._mender.scan():
            self._stranded.clear()
        else:
            pause = min(pause, DEAF_SCAN)
        if self._mender.due:
            pause = min(pause, self._mender.due - time.time() + time.monotonic() - begun)
        return max(pause, mending.SHORTEST_SCAN, SHARE * (time.monotonic() - begun))

    def close(self) -> None:
        """Stop listening."""
        self.watch.close()


# --- events ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Touch:
    """Something happened to a name in a `working/` folder; "" is the folder itself, which is gone."""

    place: Place
    name: str
    renamed: bool = False
    made: bool = False


class Watch:
    """Hears of what happens in every `working/` folder, where the system tells; never touches a file."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._heard: SimpleQueue[Touch] = SimpleQueue()
        self.observer: BaseObserver | None = None
        #: what is watched for a place, and which folder that was: one that is made again is another.
        self._watches: dict[Place, tuple[ObservedWatch, tuple[int, int]]] = {}
        self._told = ""

    def heard(self) -> Iterator[Touch]:
        """Give what was heard since the last time, in its order."""
        with suppress(Empty):
            while True:
                yield self._heard.get_nowait()

    def arm(self) -> bool:
        """Watch every folder that is not watched, or no longer; False when events cannot be had of all."""
        trouble = self._start() or "; ".join(filter(None, (self._arm(place) for place in self._places())))
        if trouble and trouble != self._told:
            log.warning(
                "no events, folders are scanned instead: %s", trouble, extra={"event": "watch_failed"}
            )
        self._told = trouble
        return not trouble

    def _places(self) -> list[Place]:
        return [place for pipeline in self._app.config.pipelines for place in self._app.places(pipeline)]

    def _start(self) -> str:
        """Start an observer if none is alive, and say what is in the way."""
        if self.observer is not None and self.observer.is_alive():
            return ""
        if self.observer is not None:
            log.warning("the watcher died and is replaced", extra={"event": "watch_replaced"})
            self.close()
        self._watches.clear()
        try:
            self.observer = _observer()
            self.observer.start()
        except (OSError, RuntimeError, ImportError) as error:
            self.observer = None
            return str(error)
        return ""

    def _arm(self, place: Place) -> str:
        assert self.observer is not None
        folder = self._app.layout.status(place, Status.WORKING)
        try:
            if not folder.is_dir():
                locations = self._app.pipeline(place.pipeline).spec.load.locations
                self._app.layout.make(place.pipeline, locations)
            facts = folder.stat()
            before = self._watches.get(place)
            if before is not None:
                if before[1] == (facts.st_dev, facts.st_ino) and self._is_alive(before[0]):
                    return ""
                del self._watches[place]
                with suppress(KeyError):
                    self.observer.unschedule(before[0])
            ear = _Ear(place, folder, self._heard)
            watch = self.observer.schedule(ear, str(folder), recursive=True, event_filter=_HEARD)
        except OSError as error:
            return f"{place}: {error}"
        self._watches[place] = (watch, (facts.st_dev, facts.st_ino))
        return ""

    def _is_alive(self, watch: ObservedWatch) -> bool:
        assert self.observer is not None
        return any(emitter.watch == watch and emitter.is_alive() for emitter in self.observer.emitters)

    def close(self) -> None:
        """Stop listening; doing it twice is fine."""
        if self.observer is not None:
            self.observer.stop()
            with suppress(RuntimeError):  # it never started
                self.observer.join()
            self.observer = None


def _observer() -> BaseObserver:
    if sys.platform == "linux":
        from watchdog.observers.inotify import InotifyObserver

        # else a file that is renamed in from outside would look like one that is made and then written
        return InotifyObserver(generate_full_events=True)
    return observers.Observer()


class _Ear(events.FileSystemEventHandler):
    """Lives in the watcher's thread: puts names on a queue and does nothing else."""

    def __init__(self, place: Place, folder: Path, heard: SimpleQueue[Touch]) -> None:
        self._place = place
        self._folder = str(folder)
        self._heard = heard

    def dispatch(self, event: events.FileSystemEvent) -> None:
        """Hear of one event."""
        renamed = isinstance(event, events.FileSystemMovedEvent)
        path = os.fsdecode(event.dest_path if renamed else event.src_path)
        deleted = isinstance(event, events.DirDeletedEvent)
        name = path.removeprefix(self._folder).strip("/")
        if not path or deleted is bool(name):  # moved away, or a folder inside is gone
            return
        # what lies in a folder that was moved in is told, too, but was not made there
        made = isinstance(event, events.FileCreatedEvent) and not event.is_synthetic
        self._heard.put(Touch(place=self._place, name=name, renamed=renamed, made=made))
        service.wake()
