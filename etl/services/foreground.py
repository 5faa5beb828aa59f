"""Work in the foreground: put files in, have them worked, and wait until nothing of them is left to do.

With workers on a queue, or inline without any server. Looks only at the folders to know what is left, so a
lost job or a dead worker costs a moment and nothing else. Called by `etl run`.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Protocol

from etl import app as apps
from etl import process
from etl.app import App
from etl.config.reading import Config
from etl.errors import Interrupted
from etl.files import layout as layouts
from etl.files import names, survey
from etl.model import Progress, Status
from etl.queues import connection, enqueue
from etl.queues.queue import Identity
from etl.services import horses, mending, service
from etl.services.doorkeeper import Doorkeeper
from etl.services.workers import Crew
from etl.stages import pauses

#: seconds between two looks at the folders.
LOOK_EVERY = 0.1
#: seconds without any movement after which jobs and owners are checked.
QUIET = 1.0


class Hands(Protocol):
    """Whoever does the work: a crew of workers, or this very process."""

    app: App

    def turn(self) -> None:
        """Do some work or let others do it for a moment."""

    def announced(self) -> set[Identity]:
        """Tell which work has a job."""

    @property
    def progress(self) -> Progress:
        """Give what was done so far."""


@dataclass(slots=True)
class Inline:
    """Works every job in this process, one after the other, with no server at all."""

    app: App
    queue: enqueue.InlineAnnouncer
    progress: Progress = field(default_factory=Progress)

    def turn(self) -> None:
        """Work the oldest jobs for a moment, or wait for one where there is none."""
        until = time.monotonic() + LOOK_EVERY
        while time.monotonic() < until:
            if work := self.queue.take():
                # by name, as RQ does it: whoever starts something higher does not import it
                module, _, function = work.function.rpartition(".")
                with process.time_limit(work.timeout):
                    getattr(import_module(module), function)(**work.arguments)
            else:
                return time.sleep(LOOK_EVERY / 2)
        return None

    def announced(self) -> set[Identity]:
        """Nothing waits elsewhere."""
        return set()

    def add(self, done: Progress) -> None:
        """Count what a job says it has done."""
        self.progress = Progress(
            rows=self.progress.rows + done.rows,
            units=self.progress.units + done.units,
            held_back=self.progress.held_back + done.held_back,
        )


@dataclass(slots=True)
class Workers:
    """A crew on the queue, tended by this process."""

    app: App
    crew: Crew
    asks: Callable[[], set[Identity]]

    def turn(self) -> None:
        """Tend the workers for a moment."""
        self.crew.tend()
        time.sleep(LOOK_EVERY)

    def announced(self) -> set[Identity]:
        """Ask the queue."""
        # what a dead worker had in hand is brought back with the reason first, before it looks like an orphan
        self.crew.tend()
        return self.asks()

    @property
    def progress(self) -> Progress:
        """Give what all workers have done."""
        return self.crew.progress


def hands(config: Config, *, inline: bool) -> AbstractContextManager[Hands]:
    """Open whoever does the work: this process, or workers on the configured Redis."""
    return _inline(config) if inline else _with_workers(config)


@contextmanager
def _inline(config: Config) -> Iterator[Hands]:
    """Work in this process."""
    queue = enqueue.InlineAnnouncer()
    app = App.open(config, queue)
    app.waits_for_away = False
    own = Inline(app, queue)
    app.progress = own.add
    with apps.serving(app), process.adopting_orphans(), _stoppable():
        yield own


@contextmanager
def _with_workers(config: Config) -> Iterator[Hands]:
    """Work with forked workers on the configured Redis."""
    with connection.connect(config.settings.redis, config.data) as client:
        connection.require_fit(client)
        app = App.open(config, enqueue.RedisAnnouncer(client, layouts.Layout(config.data).data_id()))
        start = horses.horse(config, app.lanes(), waits_for_away=False)
        crew = Crew(start, config.settings.workers, horses.terms(app))
        crew.start()
        try:
            with _stoppable():
                yield Workers(app, crew, lambda: mending.announced(client, app))
        finally:
            crew.stop(grace=0.5)


@contextmanager
def _stoppable() -> Iterator[None]:
    """Have SIGTERM and SIGHUP do what Ctrl-C does, and no commit be torn by either (P15)."""
    before = {
        number: signal.signal(number, lambda *_: process.strike(Interrupted()))
        for number in service.STOP_SIGNALS
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


Look = Callable[[Progress, int, float, str], None]


def work_off(hands: Hands, pipeline: str, ids: set[str] | None, look: Look) -> int:
    """Work until nothing of `ids` (None: of the whole pipeline) waits or is in process.

    `look` is told what was done so far, how many files are left, when the next that was put off is due, and why
    nothing moves where something pauses it.
    Give the number of files that were left alone: not complete, or without their done-file.
    """
    run = _Run(hands, pipeline, ids)
    moved, before, due, why = time.monotonic(), (Progress(), -1), 0.0, ""
    if ids is None:
        run.mender.mend([pipeline])
    while run.goes_on():
        now = (hands.progress, run.left)
        look(*now, due, why)
        if now != before:
            moved, before, due, why = time.monotonic(), now, 0.0, ""
        elif time.monotonic() - moved > QUIET:
            pauses.require_going(hands.app.layout, pipeline)
            why = _paused(hands.app, pipeline)
            run.mender.mend([pipeline])
            moved, due = time.monotonic(), run.mender.due
        hands.turn()
        hands.app.announce(run.mender.go_on(run.door.turn()))
    look(hands.progress, 0, 0.0, "")
    return len(run.door.outside) if ids is None else 0


def _paused(app: App, pipeline: str) -> str:
    """Say why what waits is not begun; "" when nothing is in the way."""
    for place in app.places(pipeline):
        if survey.listing(app.layout, place, Status.WORKING) and (why := pauses.why(app, place)):
            return why
    return ""


class _Run:
    """What one call of `work_off` is about, and how much of it is left."""

    def __init__(self, hands: Hands, pipeline: str, ids: set[str] | None) -> None:
        self._app, self._pipeline, self._ids = hands.app, pipeline, ids
        self.door = Doorkeeper(hands.app, drops=ids is None)
        self.mender = mending.Mender(hands.app, hands.announced, drops=ids is None, door=self.door)
        self.left = 0
        self._settle = hands.app.pipeline(pipeline).spec.extract.complete.settle
        self._outside: frozenset[object] = frozenset()
        self._patience = 0.0

    def goes_on(self) -> bool:
        """Tell whether anything is left, or may yet turn out to be complete."""
        # two looks: between the folders of one, a file that was put back may have been missed
        self.left = self._count() or self._count()
        if self._outside != frozenset(self.door.outside):
            # what is not complete after two looks is left alone: it may be written to for hours
            self._outside = frozenset(self.door.outside)
            self._patience = time.monotonic() + self._settle + QUIET
        return bool(self.left) or (self.door.standing > 0 and time.monotonic() < self._patience)

    def _count(self) -> int:
        """Count what waits or is in process."""
        return sum(
            _ours(self._pipeline, name, self._ids) and (place, name) not in self.door.outside
            for place in self._app.places(self._pipeline)
            for status in (Status.WORKING, Status.IN_PROCESS)
            for name in survey.listing(self._app.layout, place, status, self.door.done(place))
        )


def _ours(pipeline: str, name: str, ids: set[str] | None) -> bool:
    if ids is None:
        return True
    file = names.parse(pipeline, name)
    return file is not None and file.id in ids
