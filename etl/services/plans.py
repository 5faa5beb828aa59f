"""Plans: what is to run by the clock, and when next: one for each `schedule:` of a pipeline, one for the nightly clean.

Derived from the configuration; claims nothing and starts nothing. Used by the scheduler and by `etl schedule`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import tzinfo
from itertools import islice, takewhile
from pathlib import Path
from zoneinfo import ZoneInfo

from etl.config import cron
from etl.config.cron import Cron
from etl.config.reading import Config
from etl.config.scheduling import Schedule

#: the plan that is no pipeline's; no pipeline can be called so.
CLEAN = "clean"
#: missed ticks that are counted one by one.
MOST_COUNTED = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One thing that runs by the clock."""

    #: `clean`, a pipeline, or `pipeline-2` for its second schedule.
    name: str
    #: the pipeline whose sources are pulled; "" for the clean.
    pipeline: str
    line: str
    zone: str

    @property
    def text(self) -> str:
        """Give what the ledger keeps of it: another text is another plan."""
        return f"{self.line} {self.zone}"

    @property
    def cron(self) -> Cron:
        """Give what its line says."""
        return cron.parse(self.line)

    @property
    def clock(self) -> tzinfo:
        """Give the zone whose clock it follows."""
        return ZoneInfo(self.zone)

    def next(self, after: float) -> int:
        """Give the first tick after a moment."""
        return next(cron.after(self.cron, self.clock, after))

    def newest(self, now: float, since: float) -> int | None:
        """Give the last tick that came by now and after `since`; None when none did."""
        return cron.newest(self.cron, self.clock, now, since)

    def between(self, since: float, until: float) -> int:
        """Count the ticks between two moments, up to a thousand."""
        ticks = takewhile(lambda tick: tick < until, cron.after(self.cron, self.clock, since))
        return sum(1 for _ in islice(ticks, MOST_COUNTED))

    def shown(self, moment: float) -> str:
        """Write a moment as its zone's clock shows it."""
        return cron.shown(moment, self.clock)


def of(config: Config) -> list[Plan]:
    """Give every plan of a configuration, by name; those of pipelines that are held are not among them."""
    plans = [plan for name in config.pipelines for plan in _of_pipeline(config, name)]
    if config.settings.clean is not None:
        plans.append(_plan(CLEAN, "", config.settings.clean))
    return sorted(plans, key=lambda plan: plan.name)


def folder(data: Path) -> Path:
    """Where the locks of plans lie; there once anything ever was to run by the clock."""
    return data / ".etl" / "schedules"


def are_wanted(config: Config) -> bool:
    """Tell whether anything is to run by the clock, or was, and it may have to be written that it no longer is."""
    return bool(of(config) or config.broken) or folder(config.data).is_dir()


def _of_pipeline(config: Config, name: str) -> Iterator[Plan]:
    for number, one in enumerate(config.pipelines[name].spec.schedule, 1):
        yield _plan(name if number == 1 else f"{name}-{number}", name, one)


def _plan(name: str, pipeline: str, one: Schedule) -> Plan:
    return Plan(name=name, pipeline=pipeline, line=one.cron, zone=one.zone)


def pipeline_of(name: str) -> str:
    """Give the pipeline that a plan's name speaks of."""
    return name.partition("-")[0]
