"""The composition root: one `App` per process, and the only place where connections are made.

Puts configuration, layout, queue, formats and locations together and hands them to the stages. Everything is
opened on first use, so that a command pays only for what it touches.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from etl.config import reading
from etl.config.origin import together
from etl.config.schema import StageOptions
from etl.errors import ConfigError, Unavailable
from etl.files import names, notes, verdicts
from etl.files.layout import REQUESTS, Layout, places
from etl.model import Place, Progress, Stage, Update, Waiting
from etl.queues import lanes
from etl.queues.queue import Announcer, Board, Unshown, Work

if TYPE_CHECKING:
    from etl.formats.format import Format
    from etl.locations.location import Location


log = logging.getLogger(__name__)

#: messages whose headers are remembered; a source note is made once and never changes.
_REMEMBERED = 10_000


def _unwatched(progress: Progress) -> None:
    """Nobody watches."""


def _unguarded(place: Place, name: str) -> None:
    """Nobody brings the file back but the next scan."""


def _unrecorded(update: Update) -> None:
    """Nobody keeps a history; the folders say it all."""


@dataclass(slots=True)
class App:
    """Everything a job needs, opened when it is first asked for."""

    config: reading.Config
    layout: Layout
    data_id: str
    announcer: Announcer
    #: an away location is waited for; off under `etl run`, where somebody waits for the exit code.
    waits_for_away: bool = True
    progress: Callable[[Progress], None] = _unwatched
    #: told which file was claimed, so that it is brought back at once should this process die.
    holds: Callable[[Place, str], None] = _unguarded
    #: told what happens to files, for the history; never raises.
    tell: Callable[[Update], None] = _unrecorded
    #: shows how far the job in hand is; never raises.
    board: Board = field(default_factory=Unshown)
    _formats: dict[str, Format] = field(default_factory=dict)
    _locations: dict[str, Mapping[str, Location]] = field(default_factory=dict)
    _headers: dict[tuple[str, str], Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def open(cls, config: reading.Config, announcer: Announcer) -> App:
        """Make the folders of every pipeline and put the parts together; no connection is opened yet."""
        layout = Layout(config.data)
        for name, pipeline in config.pipelines.items():
            layout.make(name, pipeline.spec.load.locations)
        verdicts.since(layout)  # before anything arrives: what comes from now on is followed by its hooks
        return cls(config, layout, layout.data_id(), announcer)

    def pipeline(self, name: str) -> reading.PipelineConfig:
        """Give a pipeline's configuration, or raise ConfigError."""
        return self.config.pipeline(name)

    def options(self, place: Place) -> StageOptions:
        """Give what the operator said about how jobs of this place run."""
        spec = self.pipeline(place.pipeline).spec
        stages: dict[Stage, StageOptions] = {
            Stage.EXTRACT: spec.extract,
            Stage.TRANSFORM: spec.transform,
            Stage.LOAD: spec.load,
        }
        return stages[place.stage]

    def format(self, pipeline: str) -> Format:
        """Give the pipeline's format, or raise ConfigError when its options cannot be followed."""
        from etl.formats.format import open_format

        if pipeline not in self._formats:
            configured = self.pipeline(pipeline)
            self._formats[pipeline] = open_format(configured.spec.transform.read, configured.origin)
        return self._formats[pipeline]

    def locations(self, pipeline: str) -> Mapping[str, Location]:
        """Give the pipeline's locations by name, or raise ConfigError."""
        from etl.locations.location import open_location

        if pipeline not in self._locations:
            configured, errors = self.pipeline(pipeline), []
            opened: dict[str, Location] = {}
            for name, written in configured.spec.load.locations.items():
                try:
                    opened[name] = open_location(name, written, configured.origin, self.config.root)
                except ConfigError as error:
                    errors.append(error)
            if errors:
                raise together(errors)
            self._locations[pipeline] = opened
        return self._locations[pipeline]

    def places(self, pipeline: str) -> list[Place]:
        """Give every place of a pipeline."""
        return list(places(pipeline, self.pipeline(pipeline).spec.load.locations))

    def announce(self, waiting: Sequence[Waiting]) -> None:
        """Have one job made for each waiting file, if the queue takes them.

        A queue that is away stops nothing (P12): the files wait where they are, and the next scan finds them.
        """
        if not waiting:
            return
        try:
            self.announcer.announce([self.work(one) for one in waiting])
        except Unavailable as error:
            log.warning("%s", error, extra={"event": "not_announced"})

    def work(self, waiting: Waiting) -> Work:
        """Give the job that works a waiting file."""
        place, options = waiting.place, self.options(waiting.place)
        priority = self.headers(place.pipeline, waiting.name).get("priority", "normal")
        lane = lanes.lane(options.queue, priority)
        arguments: dict[str, object] = {"pipeline": place.pipeline, "name": waiting.name}
        if waiting.seen:
            seen = waiting.seen
            arguments["seen"] = [seen.inode, seen.size, seen.mtime_ns, seen.ctime_ns]
        if place.location == REQUESTS:
            return Work(
                function="etl.jobs.pull",
                arguments=arguments,
                queue=lane,
                timeout=max(1, int(options.timeout)),
            )
        if place.location:
            arguments["location"] = place.location
        function = f"etl.jobs.{place.stage}"
        return Work(function=function, arguments=arguments, queue=lane, timeout=max(1, int(options.timeout)))

    def headers(self, pipeline: str, name: str) -> Mapping[str, str]:
        """Give the headers of the message that a file is, or descends from; none for any other file."""
        file = names.parse(pipeline, name)
        if file is None:
            return {}
        known = self._headers.get((pipeline, file.id))
        if known is None:
            note = notes.glance_source(self.layout, pipeline, file.id)
            if note is None:
                return {}
            known = note.headers
            if len(self._headers) >= _REMEMBERED:
                self._headers.clear()
            self._headers[pipeline, file.id] = known
        return known

    def queues(self) -> list[str]:
        """Give every queue any stage of any pipeline names, the default first."""
        named = {
            options.queue
            for pipeline in self.config.pipelines.values()
            for options in (pipeline.spec.extract, pipeline.spec.transform, pipeline.spec.load)
        }
        return sorted(named or {"default"}, key=lambda queue: (queue != "default", queue))

    def lanes(self, queues: Sequence[str] | None = None) -> list[str]:
        """Give the lanes of these queues (default: of all) in the order in which workers take from them."""
        return lanes.of(queues or self.queues())

    def close(self) -> None:
        """Close what was opened."""
        for locations in self._locations.values():
            for location in locations.values():
                location.close()


_current: list[App] = []


@contextmanager
def serving(app: App) -> Iterator[None]:
    """Make `app` the one that jobs in this process work with."""
    _current.append(app)
    try:
        yield
    finally:
        _current.remove(app)
        app.close()


def current() -> App:
    """Give the app of this process, or say that jobs need one of our workers."""
    if not _current:
        raise ConfigError("this job runs outside an rq-etl worker", next="start workers with: etl worker")
    return _current[-1]


def board() -> Board:
    """Give the board of this process; outside a worker one that nobody looks at."""
    return _current[-1].board if _current else Unshown()


def configuration(explicit: Path | None, overrides: Mapping[str, str] | None = None) -> reading.Config:
    """Find and read the configuration."""
    return reading.read(reading.find(explicit), overrides)
