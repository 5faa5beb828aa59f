"""The ticks of schedules: who claimed which, what came of it, and since when a schedule counts.

A claim is one row under the primary key (schedule, tick): of any number of schedulers one gets it (P20). Knows nothing
of cron lines or clocks. Called by the scheduler, who alone writes these rows; read by `etl schedule`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from etl.ledger import tables
from etl.ledger.rows import Tick

#: the states of a row; the first two are no runs.
BEGUN, ENDED, CLAIMED, DONE = "begun", "ended", "claimed", "done"
#: seconds before a tick that is done for which older ones are kept.
KEPT = 100 * 86_400
_TABLE = tables.ticks


def last(connection: sa.Connection, schedule: str, now: float) -> Tick | None:
    """Give the newest row of a schedule up to now; what a wrong clock wrote into the future does not count."""
    statement = sa.select(_TABLE).where(_TABLE.c.schedule == schedule, _TABLE.c.tick <= int(now))
    return _one(connection, statement.order_by(_TABLE.c.tick.desc()))


def last_run(connection: sa.Connection, schedule: str, now: float) -> Tick | None:
    """Give the newest tick of a schedule that was claimed."""
    ran = sa.select(_TABLE).where(_TABLE.c.schedule == schedule, _TABLE.c.state.in_((CLAIMED, DONE)))
    return _one(connection, ran.where(_TABLE.c.tick <= int(now)).order_by(_TABLE.c.tick.desc()))


def unfinished(connection: sa.Connection, schedule: str) -> Tick | None:
    """Give the oldest tick that somebody claimed and nobody finished."""
    statement = sa.select(_TABLE).where(_TABLE.c.schedule == schedule, _TABLE.c.state == CLAIMED)
    return _one(connection, statement.order_by(_TABLE.c.tick))


def open_schedules(connection: sa.Connection, now: float, besides: Collection[str]) -> list[str]:
    """Give the schedules that count and are not among these."""
    known = connection.execute(sa.select(_TABLE.c.schedule).distinct()).scalars().all()
    latest = {name: last(connection, name, now) for name in sorted({*known} - {*besides})}
    return [name for name, one in latest.items() if one is not None and one.state != ENDED]


def claim(connection: sa.Connection, tick: Tick) -> bool:
    """Claim a tick; tell whether it is ours now: no when anybody else ever did."""
    statement = _insert(connection).values(**_row(tick)).on_conflict_do_nothing()
    # without being asked to, psycopg's number of rows is not kept
    return connection.execute(statement.execution_options(preserve_rowcount=True)).rowcount == 1


def finish(connection: sa.Connection, tick: Tick, now: float) -> None:
    """Write that what a tick is for was done; rows of long ago go, or a minute's schedule would pile them up."""
    ours = _TABLE.c.schedule == tick.schedule
    connection.execute(sa.update(_TABLE).where(ours, _TABLE.c.tick == tick.tick).values(state=DONE, done=now))
    connection.execute(sa.delete(_TABLE).where(ours, _TABLE.c.tick < tick.tick - KEPT))


def mark(connection: sa.Connection, tick: Tick) -> None:
    """Write from when on a schedule counts, or no longer does; a run at that very moment stays one."""
    statement = _insert(connection).values(**_row(tick))
    runs = _TABLE.c.state.in_((CLAIMED, DONE))
    statement = statement.on_conflict_do_update(
        index_elements=list(_TABLE.primary_key.columns),
        set_={"plan": tick.plan, "state": sa.case((runs, _TABLE.c.state), else_=tick.state)},
    )
    connection.execute(statement)


def _row(tick: Tick) -> dict[str, Any]:
    return {name: getattr(tick, name) for name in _TABLE.c.keys()}  # noqa: SIM118 - columns, not a dict


def _one(connection: sa.Connection, statement: sa.Select[Any]) -> Tick | None:
    row = connection.execute(statement.limit(1)).one_or_none()
    return None if row is None else Tick(**row._mapping)


def _insert(connection: sa.Connection) -> sqlite.Insert | postgresql.Insert:
    if connection.dialect.name == "postgresql":
        return postgresql.insert(_TABLE)
    return sqlite.insert(_TABLE)
