"""The probe: one line and one code that say whether somebody has to look, for monitors that ask every minute.

Looks at the folders, the records of services and Redis; starts no server and changes nothing. Called by
`etl check --probe`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from etl.app import App
from etl.config.reading import Config
from etl.errors import EtlError
from etl.files import away, paused, room, survey
from etl.files import layout as layouts
from etl.files.layout import Layout
from etl.model import Place, Status
from etl.queues import looking
from etl.queues.queue import Work
from etl.services import plans, records

#: seconds after which something that waits is worth a look.
LONG = 2 * 3600.0
#: services without which nothing is worked.
_NEEDED = ("workers", "dropbox")


class Level(IntEnum):
    """What a monitor makes of it; the number is the exit code."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """One thing that somebody has to look at."""

    level: Level
    said: str


@dataclass(slots=True)
class Probe:
    """What was found: how bad it is, what to look at, and the figures a monitor draws."""

    signs: list[Sign] = field(default_factory=list)
    failed: int = 0
    waiting: int = 0
    #: seconds since which the oldest file waits.
    oldest: float = 0.0

    @property
    def level(self) -> Level:
        """Give the worst of the signs."""
        return max((sign.level for sign in self.signs), default=Level.OK)

    def __str__(self) -> str:
        said = "; ".join(sign.said for sign in sorted(self.signs, key=lambda sign: -sign.level))
        figures = f"failed={self.failed} waiting={self.waiting} oldest={self.oldest:.0f}s"
        # a bar separates the words from the figures, and a line is a line
        words = (said or "all is well").replace("|", "/").replace("\n", " ")
        return f"ETL {self.level.name} - {words} | {figures}"


class _Nobody:
    """Announces nothing: a probe makes no job."""

    def announce(self, works: Sequence[Work]) -> None:
        """Do nothing."""


def probe(config: Config) -> Probe:
    """Look once."""
    found, layout = Probe(), Layout(config.data)
    found.signs += _services(config)
    found.signs += _redis(config, layout)
    if why := room.short(layout, config.settings.reserve):
        found.signs.append(Sign(level=Level.CRITICAL, said=why))
    found.signs += _warnings(config, layout)
    for pipeline in config.pipelines.values():
        for place in layouts.places(pipeline.name, pipeline.spec.load.locations):
            done = survey.done_pattern(place, pipeline.spec.extract.complete.done)
            _count(found, layout, place, done)
    if found.failed:
        found.signs.append(Sign(level=Level.WARNING, said=f"{found.failed:,} failed (etl failed)"))
    if found.oldest > LONG:
        hours = found.oldest / 3600
        found.signs.append(Sign(level=Level.WARNING, said=f"something waits since {hours:.0f} h"))
    return found


def _count(found: Probe, layout: Layout, place: Place, done: str | None) -> None:
    found.failed += len(survey.listing(layout, place, Status.FAILED))
    waiting = survey.count(layout, place, Status.WORKING, done)
    found.waiting += waiting.files
    found.oldest = max(found.oldest, survey.age(waiting.oldest) or 0.0)


def _services(config: Config) -> Iterator[Sign]:
    living = {one.name for one in records.living(config.data)}
    if missing := [name for name in _NEEDED if name not in living]:
        yield Sign(level=Level.CRITICAL, said=f"no {' and no '.join(missing)} run (etl up)")
    if plans.of(config) and "scheduler" not in living:
        yield Sign(level=Level.WARNING, said="no scheduler runs: what is due by the clock waits (etl up)")


def _redis(config: Config, layout: Layout) -> Iterator[Sign]:
    """Tell that Redis does not answer, or which queues nobody serves though something waits in them."""
    try:
        with looking.opened(config.settings.redis, config.data) as client:
            if client is None:
                yield Sign(level=Level.CRITICAL, said="the embedded Redis does not run (etl up)")
                return
            app = App(config, layout, layout.data_id(), _Nobody())
            for queue in app.queues():
                lanes = app.lanes([queue])
                waiting = looking.waiting_jobs(client, app.data_id, lanes)
                if waiting and not looking.living_workers(client, app.data_id, lanes):
                    yield Sign(
                        level=Level.CRITICAL, said=f"{waiting:,} wait in queue {queue}, no worker serves it"
                    )
    except EtlError as error:
        yield Sign(level=Level.CRITICAL, said=error.summary)


def _warnings(config: Config, layout: Layout) -> Iterator[Sign]:
    if config.broken:
        held = ", ".join(sorted(config.broken))
        yield Sign(level=Level.WARNING, said=f"held because of their configuration: {held} (etl check)")
    for name, pipeline in config.pipelines.items():
        for mark in paused.of_pipeline(layout, name):
            yield Sign(level=Level.WARNING, said=f"{mark.target} is paused by {mark.who}")
        for place in layouts.places(name, pipeline.spec.load.locations):
            if place.location and (mark_ := away.read(layout, place)):
                since = time.strftime("%H:%M", time.localtime(mark_.since))
                yield Sign(level=Level.WARNING, said=f"{place} is away since {since}")
