"""What is written into the ledger: a batch of what was seen and told, all of it or nothing.

Writes what it is given as often as it is given it, with the same result; counts are kept in the same transaction.
Called by the recorder, who alone writes these tables; those of schedules are `ticks`'.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from etl.ledger import codec, queries, tables
from etl.ledger.rows import (
    Address,
    Attempt,
    Delivered,
    Delivery,
    File,
    Folder,
    FollowUp,
    Run,
    Verdict,
    spelled,
)
from etl.model import Place, Status

#: rows of one statement; SQLite takes some ten thousand values.
SLICE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one look at the disk found."""

    #: for each name that was looked for: the files of that name at that place now; none: it is gone.
    seen: Mapping[Address, Sequence[File]] = field(default_factory=dict)
    attempts: Sequence[Attempt] = ()
    #: deliveries to be asked about again although none of their files moved.
    touched: Collection[Delivered] = ()
    #: source files that the ledger may not know yet.
    arrived: Sequence[Delivery] = ()
    #: folders as they were listed.
    listed: Sequence[Folder] = ()
    #: up to which update everything was read; "" leaves it as it is.
    position: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a delivery stands: what is written once its verdict was asked for."""

    delivery: Delivery
    verdicts: Sequence[Verdict] = ()
    followups: Sequence[FollowUp] = ()


def record(connection: sa.Connection, batch: Batch) -> None:
    """Write one batch."""
    before = queries.files_at(connection, batch.seen)
    arrived = [codec.delivery_row(one) for one in batch.arrived]
    put(connection, tables.deliveries, arrived, keep=True)
    _put_files(connection, before, batch.seen)
    _touch(connection, dict.fromkeys(batch.touched, (0, 0)))
    _put_attempts(connection, [*batch.attempts, *_noted(batch.seen, before)])
    put(connection, tables.folders, [_listed(one) for one in batch.listed], only=("stamp", "ignored"))
    if batch.position:
        put(connection, tables.about, [{"key": "position", "value": batch.position}])


def _listed(one: Folder) -> dict[str, Any]:
    return {**codec.at(one.place), "status": str(one.status), "stamp": one.stamp, "ignored": one.ignored}


# --- files -------------------------------------------------------------------------------------------------


def _put_files(
    connection: sa.Connection,
    before: Mapping[Address, Sequence[File]],
    seen: Mapping[Address, Sequence[File]],
) -> None:
    old = {(address, one.status): one for address, files in before.items() for one in files}
    new = {(address, one.status): one for address, files in seen.items() for one in files}
    gone = [one for key, one in old.items() if key not in new]
    changed = [one for key, one in new.items() if old.get(key) != one]
    if gone:
        keys = ("pipeline", "stage", "location", "status", "name")
        where = [tables.files.c[key] == sa.bindparam(f"of_{key}") for key in keys]
        rows = [codec.file_row(one) for one in gone]
        connection.execute(
            sa.delete(tables.files).where(*where), [{f"of_{key}": row[key] for key in keys} for row in rows]
        )
    put(connection, tables.files, [codec.file_row(one) for one in changed])
    replaced = [old[key] for key, one in new.items() if key in old and old[key] != one]
    _count(connection, [*gone, *replaced], changed)


def _count(connection: sa.Connection, less: Sequence[File], more: Sequence[File]) -> None:
    """Keep the counts of folders, causes and deliveries in step with the files."""
    folders: Counter[tuple[Place, Status]] = Counter()
    causes: Counter[tuple[Place, str]] = Counter()
    # every delivery that was touched is in here, also where its counts stay as they are
    deliveries: dict[Delivered, list[int]] = defaultdict(lambda: [0, 0])
    for sign, files in ((-1, less), (1, more)):
        for one in files:
            folders[one.place, one.status] += sign
            if one.status is Status.FAILED:
                causes[one.place, codec.causes_text(one.causes or (one.summary,))] += sign
            if one.file_id:
                counts = deliveries[one.place.pipeline, one.file_id]
                counts[0] += sign * one.is_open
                counts[1] += sign * (one.status is Status.FAILED)
    add(
        connection,
        tables.folders,
        [
            {**codec.at(place), "status": str(status), "files": count}
            for (place, status), count in folders.items()
        ],
        ("files",),
    )
    add(connection, tables.causes, [_cause(*key, count) for key, count in causes.items()], ("files",))
    if any(causes.values()):
        connection.execute(sa.delete(tables.causes).where(tables.causes.c.files <= 0))
    _touch(connection, deliveries)


def _cause(place: Place, causes: str, count: int) -> dict[str, Any]:
    digest = hashlib.sha256(causes.encode()).hexdigest()
    return {**codec.at(place), "digest": digest, "causes": causes, "files": count}


def _touch(connection: sa.Connection, deliveries: Mapping[Delivered, Sequence[int]]) -> None:
    table = tables.deliveries
    if not deliveries:
        return
    statement = (
        sa.update(table)
        .where(table.c.pipeline == sa.bindparam("of"), table.c.file_id == sa.bindparam("id"))
        .values(
            open=table.c.open + sa.bindparam("opened"),
            failed=table.c.failed + sa.bindparam("broken"),
            judged=False,
        )
    )
    rows = [
        {"of": pipeline, "id": file_id, "opened": opened, "broken": broken}
        for (pipeline, file_id), (opened, broken) in sorted(deliveries.items())
    ]
    connection.execute(statement, rows)


# --- attempts ----------------------------------------------------------------------------------------------


def _noted(
    seen: Mapping[Address, Sequence[File]], before: Mapping[Address, Sequence[File]]
) -> Iterable[Attempt]:
    """Give the attempts that notes tell of: those nobody told us of, and how the last one ended."""
    for address, files in seen.items():
        for one in files:
            known = max((old.attempts for old in before.get(address, ())), default=0)
            for number in range(min(known, one.attempts) + 1, one.attempts + 1):
                yield Attempt(place=one.place, name=one.name, attempt=number, file_id=one.file_id)
            if one.attempts and not one.is_open:
                yield Attempt(
                    place=one.place,
                    name=one.name,
                    attempt=one.attempts,
                    file_id=one.file_id,
                    outcome=str(one.status),
                    rows=int(one.note["rows"]) if "rows" in one.note else None,
                )


def _put_attempts(connection: sa.Connection, told: Iterable[Attempt]) -> None:
    """Merge what was told of attempts into what is known, and keep the totals in step."""
    news: dict[tuple[Place, str, int], Attempt] = {}
    for one in told:
        news[one.key] = news[one.key].merged(one) if one.key in news else one
    known = queries.attempts_at(connection, {(place, name) for place, name, _ in news})
    changed: list[Attempt] = []
    totals: dict[tuple[Place, str], list[float]] = defaultdict(lambda: [0, 0.0, 0, 0])
    for key, one in news.items():
        old = known.get(key)
        merged = old.merged(one) if old else one
        if merged != old:
            changed.append(merged)
            _add_up(totals, old, -1)
            _add_up(totals, merged, 1)
    put(connection, tables.attempts, [codec.attempt_row(one) for one in changed])
    columns = ("jobs", "seconds", "rows", "count")
    rows = [
        {**codec.at(place), "outcome": outcome, **dict(zip(columns, sums, strict=True))}
        for (place, outcome), sums in totals.items()
    ]
    add(connection, tables.totals, rows, columns)


def _add_up(totals: dict[tuple[Place, str], list[float]], one: Attempt | None, sign: int) -> None:
    if one is not None and one.outcome:
        sums = totals[one.place, one.outcome]
        for index, value in enumerate((1, one.seconds or 0.0, one.rows or 0, one.count or 0)):
            sums[index] += sign * value


# --- deliveries, services, folders --------------------------------------------------------------------------


def stand(connection: sa.Connection, standings: Sequence[Standing]) -> None:
    """Write how deliveries stand, with their verdicts and what followed these."""
    table = tables.deliveries
    columns = ("verdict", "verdict_number", "ended", "rows", "units", "held_back", "judged")
    if not standings:
        return
    statement = (
        sa.update(table)
        .where(table.c.pipeline == sa.bindparam("of"), table.c.file_id == sa.bindparam("id"))
        .values({name: sa.bindparam(f"new_{name}") for name in (*columns, "loaded", "said")})
    )
    rows = []
    for one in (standing.delivery for standing in standings):
        row = {"of": one.pipeline, "id": one.file_id}
        row |= {f"new_{name}": getattr(one, name) for name in columns}
        rows.append(row | {"new_loaded": codec.dump(dict(one.loaded)), "new_said": spelled(one.said)})
    connection.execute(statement, rows)
    verdicts = [codec.verdict_row(one) for standing in standings for one in standing.verdicts]
    put(connection, tables.verdicts, verdicts)
    put(
        connection,
        tables.followups,
        [codec.followup_row(one) for standing in standings for one in standing.followups],
    )


def see_services(connection: sa.Connection, living: Iterable[Run], now: float) -> None:
    """Write which services run, and that those which did no longer do."""
    table = tables.service_events
    rows = [
        {"name": one.name, "host": one.host, "pid": one.pid, "started": one.started, "restarts": one.restarts}
        for one in living
    ]
    put(connection, table, rows, keep=True)
    running = {(row["name"], row["host"], row["pid"], row["started"]) for row in rows}
    for one in connection.execute(sa.select(table).where(table.c.ended.is_(None))).all():
        if (one.name, one.host, one.pid, one.started) not in running:
            same = [table.c[key] == one._mapping[key] for key in ("name", "host", "pid", "started")]
            connection.execute(sa.update(table).where(*same).values(ended=now))


def forget_place(connection: sa.Connection, place: Place) -> None:
    """Take all files of a place out that is no longer configured; what happened there is kept."""
    _touch(connection, _left_behind(connection, place))
    for table in (tables.files, tables.folders, tables.causes):
        same = [table.c[key] == value for key, value in codec.at(place).items()]
        connection.execute(sa.delete(table).where(*same))


def _left_behind(connection: sa.Connection, place: Place) -> dict[Delivered, list[int]]:
    """Count, below zero, what deliveries have at a place that is about to be forgotten and not yet resolved."""
    table, counts = tables.files, defaultdict[Delivered, list[int]](lambda: [0, 0])
    where = [table.c[key] == value for key, value in codec.at(place).items()]
    statement = sa.select(table.c.file_id, table.c.status).where(
        *where, table.c.file_id != "", table.c.status != str(Status.RESOLVED)
    )
    for file_id, status in connection.execute(statement):
        counts[place.pipeline, file_id][status == Status.FAILED] -= 1
    return counts


# --- for both databases --------------------------------------------------------------------------------------


def put(
    connection: sa.Connection,
    table: sa.Table,
    rows: Sequence[Mapping[str, Any]],
    *,
    only: Sequence[str] = (),
    keep: bool = False,
) -> None:
    """Insert rows; one that is there is overwritten, in these columns `only` or in all, or kept as it is."""
    if not rows:
        return
    statement = _insert(connection, table)
    changed = only or [name for name in rows[0] if name not in table.primary_key.columns]
    if keep or not changed:
        statement = statement.on_conflict_do_nothing()
    else:
        statement = statement.on_conflict_do_update(
            index_elements=list(table.primary_key.columns),
            set_={name: statement.excluded[name] for name in changed},
        )
    connection.execute(statement, list(rows))


def add(
    connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]
) -> None:
    """Add to the numbers of rows, which are made where they are missing."""
    rows = [row for row in rows if any(row[name] for name in columns)]
    if not rows:
        return
    statement = _insert(connection, table)
    statement = statement.on_conflict_do_update(
        index_elements=list(table.primary_key.columns),
        set_={name: table.c[name] + statement.excluded[name] for name in columns},
    )
    connection.execute(statement, rows)


def _insert(connection: sa.Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table)
    return sqlite.insert(table)
