"""`etl schedule`: what runs by the clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click

from etl.cli import common
from etl.config.reading import Config
from etl.errors import EtlError
from etl.files.layout import Layout
from etl.services import plans, records
from etl.services.plans import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """One plan, as far as the ledger remembers it."""

    plan: Plan
    next: int
    last: float | None = None
    how: str = ""
    missed: int = 0


@click.command("schedule")
@common.as_json
def command(json_: bool) -> None:
    """Show what runs by the clock: its cron line and zone, when it last ran and how, when it runs next.

    Times are those of the zone. `caught up`: what was due while no scheduler ran was made up for once. Works while
    nothing runs.
    """
    config = common.configuration()
    lines = _lines(config)
    runs = any(one.name == "scheduler" for one in records.living(config.data))
    if json_:
        common.print_json({"scheduler_runs": runs, "schedules": [_facts(line) for line in lines]})
        return
    now = time.time()
    rows = [row for line in lines for row in _rows(line, now)]
    common.print_table(["name", "cron, zone", "last run", "how", "next run"], rows)
    common.print_paused(Layout(config.data), sorted(config.pipelines))
    if not runs:
        click.echo("no scheduler runs: start `etl up`; the newest of what is missed is caught up")


def _lines(config: Config) -> list[_Line]:
    found, now = plans.of(config), time.time()
    known: Callable[[Plan], _Line] = lambda plan: _Line(plan=plan, next=plan.next(now))  # noqa: E731
    if not (config.data / ".etl" / "id").exists():
        return [known(plan) for plan in found]
    from etl.ledger import opening

    try:
        ledger = opening.for_reading(config, Layout(config.data).data_id())
    except EtlError as error:
        common.tell(f"{error.summary}; last runs are not known")
        return [known(plan) for plan in found]
    try:
        with ledger.reading() as asking:
            return [_remembered(asking, plan, now) for plan in found]
    finally:
        ledger.close()


def _remembered(asking: Any, plan: Plan, now: float) -> _Line:
    from etl.ledger import ticks

    last, ran = ticks.last(asking, plan.name, now), ticks.last_run(asking, plan.name, now)
    counts = last is not None and last.plan == plan.text and last.state != ticks.ENDED
    after = last.tick if counts and last else now
    if ran is None:
        return _Line(plan=plan, next=plan.next(after))
    how = ran.how if ran.state == ticks.DONE else "begun"
    return _Line(plan=plan, next=plan.next(after), last=ran.tick, how=how, missed=ran.missed)


def _rows(line: _Line, now: float) -> list[list[str]]:
    """Give the line of a plan, and what its columns have no room for below it."""
    plan = line.plan
    next_run = "due" if line.next <= now else _when(plan, line.next, now)
    missed = f"{line.missed} missed" if line.missed else ""
    first = [plan.name, plan.line, _when(plan, line.last, now) if line.last else "", line.how, next_run]
    return [first, ["", plan.zone, "", missed, ""]]


def _facts(line: _Line) -> dict[str, Any]:
    zone = line.plan.clock
    return {
        "name": line.plan.name,
        "pipeline": line.plan.pipeline or None,
        "cron": line.plan.line,
        "zone": line.plan.zone,
        "last": None if line.last is None else datetime.fromtimestamp(line.last, zone).isoformat(),
        "how": line.how or None,
        "missed": line.missed,
        "next": datetime.fromtimestamp(line.next, zone).isoformat(),
    }


def _when(plan: Plan, moment: float, now: float) -> str:
    """Write a moment as short as can be: the year only where it is another."""
    then, today = (datetime.fromtimestamp(one, plan.clock) for one in (moment, now))
    return then.strftime("%m-%d %H:%M" if then.year == today.year else "%Y-%m-%d %H:%M")
