"""Every question that is asked of the ledger; each has an index that answers it, and long answers come in pages.

Changes nothing. Takes a connection of `opening`; called by the recorder, by verbs and by metrics.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson
import sqlalchemy as sa

from etl.ledger import codec, tables
from etl.ledger.rows import Address, Attempt, Delivered, Delivery, File, Folder, FollowUp, Run, Total, Verdict
from etl.model import Place, Status

#: what is asked; a name for those who may not know what is behind it.
Connection = sa.Connection
#: names asked for in one statement.
SLICE = 500
_ID = re.compile(r"~([0-9a-z]{16})(?![0-9a-z])")
# written out: a database uses an index of some rows only where it sees that these are meant
_WAITING = tables.files.c.status == sa.literal_column("'working'")
_UNNAMED = tables.files.c.file_id == sa.literal_column("''")
_FAILED = tables.files.c.status == sa.literal_column("'failed'")


def position(connection: sa.Connection) -> str:
    """Give up to which update everything was written; "" before the first."""
    table = tables.about
    found = connection.execute(sa.select(table.c.value).where(table.c.key == "position"))
    return found.scalar_one_or_none() or ""


# --- what lies where ---------------------------------------------------------------------------------------


def folders(connection: sa.Connection, pipeline: str | None = None) -> list[Folder]:
    """Give every status folder with the number of its files, and since when the oldest waiting file waits."""
    table = tables.folders
    found = connection.execute(_of(sa.select(table), table, pipeline)).all()
    places = {codec.place(row) for row in found if row.status == Status.WORKING and row.files > 0}
    oldest = {place: since for place in places if (since := _oldest(connection, place)) is not None}
    return [codec.folder(row, oldest) for row in found]


def stamps(connection: sa.Connection) -> dict[tuple[Place, Status], int]:
    """Give what every status folder looked like when it was last listed."""
    table = tables.folders
    return {(codec.place(row), Status(row.status)): row.stamp for row in connection.execute(sa.select(table))}


def _oldest(connection: sa.Connection, place: Place) -> float | None:
    since = tables.files.c.since
    statement = sa.select(since).where(_WAITING, *_at(tables.files, place)).order_by(since).limit(1)
    return connection.execute(statement).scalar_one_or_none()


def dropped(connection: sa.Connection, place: Place) -> list[str]:
    """Give the names of waiting files that have no id yet."""
    name = tables.files.c.name
    statement = sa.select(name).where(_WAITING, _UNNAMED, *_at(tables.files, place)).order_by(name)
    return list(connection.execute(statement).scalars())


def failed(connection: sa.Connection, pipeline: str | None = None, limit: int = 100_000) -> list[File]:
    """Give what lies in `failed/`, in the order of its names."""
    table = tables.files
    order = (table.c.pipeline, table.c.stage, table.c.location, table.c.name)
    statement = _of(sa.select(table).where(_FAILED), table, pipeline).order_by(*order).limit(limit)
    return [codec.file(row) for row in connection.execute(statement)]


def causes(connection: sa.Connection, pipeline: str | None = None) -> list[tuple[Place, str, int]]:
    """Give how many files failed at a place for a cause, most first; a file with two causes counts for both."""
    table, counts = tables.causes, defaultdict[tuple[Place, str], int](int)
    for row in connection.execute(_of(sa.select(table), table, pipeline)):
        for cause in orjson.loads(row.causes):
            counts[codec.place(row), cause] += row.files
    told = [(place, cause, count) for (place, cause), count in counts.items() if count > 0]
    return sorted(told, key=lambda one: (-one[2], str(one[0]), one[1]))


def spans(connection: sa.Connection) -> dict[tuple[Place, str], tuple[float, float]]:
    """Give for each cause at a place since when the first and the last of its files lie there."""
    table = tables.files
    where = (table.c.pipeline, table.c.stage, table.c.location, table.c.causes)
    span = (sa.func.min(table.c.since).label("first"), sa.func.max(table.c.since).label("last"))
    found: dict[tuple[Place, str], tuple[float, float]] = {}
    statement: sa.Select[Any] = sa.select(*where, *span).where(_FAILED).group_by(*where)
    for row in connection.execute(statement):
        at = codec.place(row)
        for cause in orjson.loads(row.causes):
            first, last = found.get((at, cause), (row.first, row.last))
            found[at, cause] = (min(first, row.first), max(last, row.last))
    return found


# --- deliveries --------------------------------------------------------------------------------------------


def deliveries(
    connection: sa.Connection,
    *,
    since: float = 0.0,
    pipeline: str | None = None,
    after: Delivery | None = None,
    limit: int = 10_000,
) -> list[Delivery]:
    """Give what came since a moment, oldest first; the next page begins `after` the last one of this."""
    table = tables.deliveries
    statement = _of(sa.select(table).where(table.c.arrived >= since), table, pipeline)
    if after is not None:
        order = sa.tuple_(table.c.arrived, table.c.file_id)
        statement = statement.where(order > (after.arrived, after.file_id))
    statement = statement.order_by(table.c.arrived, table.c.file_id).limit(limit)
    return [codec.delivery(row) for row in connection.execute(statement)]


def there(connection: sa.Connection, pipeline: str, known: Sequence[Delivery]) -> set[str]:
    """Give the ids of those deliveries of a pipeline of which something lies in a folder."""
    table, found = tables.files, set[str]()
    for some in _sliced([one.file_id for one in known if not one.open and not one.failed]):
        statement = sa.select(table.c.file_id).where(table.c.pipeline == pipeline, table.c.file_id.in_(some))
        found.update(connection.execute(statement.distinct()).scalars())
    return found | {one.file_id for one in known if one.open or one.failed}


def find(
    connection: sa.Connection, wanted: str, pipeline: str | None = None, limit: int = 100
) -> list[Delivery]:
    """Find deliveries by a path, a full name, a given name, an id or the start of one; oldest first."""
    table, last = tables.deliveries, wanted.rstrip("/").rpartition("/")[2]
    known = [table.c.given == last]
    if told := _ID.search(last):
        known.append(table.c.file_id == told[1])
    elif len(last) >= 4 and re.fullmatch(r"[0-9a-z]{4,16}", last):
        # not BETWEEN, in which PostgreSQL takes no collation
        known.append(sa.and_(table.c.file_id >= last, table.c.file_id < last + "~"))
    # one question each: an index answers it, where it would not answer their sum
    found: dict[Delivered, Delivery] = {}
    for condition in known:
        statement = _of(sa.select(table).where(condition), table, pipeline)
        for row in connection.execute(statement.order_by(table.c.file_id).limit(limit)):
            found[row.pipeline, row.file_id] = codec.delivery(row)
    return sorted(found.values(), key=lambda one: one.file_id)


def delivery(connection: sa.Connection, pipeline: str, file_id: str) -> Delivery | None:
    """Give one delivery, or None."""
    row = connection.execute(_about(tables.deliveries, pipeline, file_id)).one_or_none()
    return None if row is None else codec.delivery(row)


def pieces(connection: sa.Connection, pipeline: str, file_id: str) -> list[File]:
    """Give every file of a delivery, where it lies now."""
    return [codec.file(row) for row in connection.execute(_about(tables.files, pipeline, file_id))]


def attempts(connection: sa.Connection, pipeline: str, file_id: str) -> list[Attempt]:
    """Give all attempts at files of a delivery, oldest first as far as that is known."""
    found = [codec.attempt(row) for row in connection.execute(_about(tables.attempts, pipeline, file_id))]
    return sorted(found, key=lambda one: (one.begun or one.ended or 0.0, one.place, one.name, one.attempt))


def verdicts(connection: sa.Connection, pipeline: str, file_id: str) -> list[Verdict]:
    """Give the verdicts of a delivery in their order."""
    statement = _about(tables.verdicts, pipeline, file_id).order_by(tables.verdicts.c.number)
    return [codec.verdict(row) for row in connection.execute(statement)]


def followups(connection: sa.Connection, pipeline: str, file_id: str) -> list[FollowUp]:
    """Give what followed the verdicts of a delivery."""
    table = tables.followups
    statement = _about(table, pipeline, file_id).order_by(table.c.number, table.c.key)
    return [codec.followup(row) for row in connection.execute(statement)]


def touched(connection: sa.Connection, limit: int = 1_000) -> list[Delivery]:
    """Give deliveries of which something moved since their verdict was last asked for."""
    table = tables.deliveries
    statement = sa.select(table).where(sa.not_(table.c.judged))
    statement = statement.order_by(table.c.pipeline, table.c.file_id).limit(limit)
    return [codec.delivery(row) for row in connection.execute(statement)]


def unknown(connection: sa.Connection, wanted: Iterable[Delivered]) -> set[Delivered]:
    """Give those of the source files that the ledger has never heard of."""
    table, left = tables.deliveries, set(wanted)
    ids = defaultdict[str, list[str]](list)
    for pipeline, file_id in left:
        ids[pipeline].append(file_id)
    for pipeline, listed in ids.items():
        for some in _sliced(listed):
            statement = sa.select(table.c.file_id).where(
                table.c.pipeline == pipeline, table.c.file_id.in_(some)
            )
            left -= {(pipeline, file_id) for file_id in connection.execute(statement).scalars()}
    return left


# --- the rest ----------------------------------------------------------------------------------------------


def totals(connection: sa.Connection) -> list[Total]:
    """Give all attempts that ended, by place and outcome."""
    return [codec.total(row) for row in connection.execute(sa.select(tables.totals))]


def service_events(connection: sa.Connection, since: float = 0.0, limit: int = 1_000) -> list[Run]:
    """Give the services that ran, newest start first."""
    table = tables.service_events
    statement = sa.select(table).where(table.c.started >= since)
    found = connection.execute(statement.order_by(table.c.started.desc()).limit(limit))
    return [codec.run(row) for row in found]


def names_in(connection: sa.Connection, place: Place, status: Status) -> dict[str, float]:
    """Give the names that the ledger has of one status folder, and since when each lies there."""
    table = tables.files
    where = (*_at(table, place), table.c.status == str(status))
    return {
        row.name: row.since
        for row in connection.execute(sa.select(table.c.name, table.c.since).where(*where))
    }


def files_at(connection: sa.Connection, wanted: Collection[Address]) -> dict[Address, list[File]]:
    """Give what the ledger has of certain names."""
    table, found = tables.files, defaultdict[Address, list[File]](list)
    every = [str(status) for status in Status]
    for place, some in _by_place(wanted):
        statement = sa.select(table).where(
            *_at(table, place), table.c.status.in_(every), table.c.name.in_(some)
        )
        for row in connection.execute(statement):
            found[place, row.name].append(codec.file(row))
    return dict(found)


def attempts_at(
    connection: sa.Connection, wanted: Collection[Address]
) -> Mapping[tuple[Place, str, int], Attempt]:
    """Give what is known of all attempts at certain files."""
    table, found = tables.attempts, {}
    for place, some in _by_place(wanted):
        statement = sa.select(table).where(*_at(table, place), table.c.name.in_(some))
        for row in connection.execute(statement):
            found[place, row.name, row.attempt] = codec.attempt(row)
    return found


def _by_place(wanted: Iterable[Address]) -> Iterator[tuple[Place, Sequence[str]]]:
    names = defaultdict[Place, list[str]](list)
    for place, name in wanted:
        names[place].append(name)
    for place, listed in names.items():
        for some in _sliced(sorted(listed)):
            yield place, some


def _sliced(listed: Sequence[str]) -> Iterator[Sequence[str]]:
    for begin in range(0, len(listed), SLICE):
        yield listed[begin : begin + SLICE]


def _at(table: sa.Table, place: Place) -> list[sa.ColumnElement[bool]]:
    return [table.c[key] == value for key, value in codec.at(place).items()]


def _of(statement: sa.Select[Any], table: sa.Table, pipeline: str | None) -> sa.Select[Any]:
    return statement if pipeline is None else statement.where(table.c.pipeline == pipeline)


def _about(table: sa.Table, pipeline: str, file_id: str) -> sa.Select[Any]:
    return sa.select(table).where(table.c.pipeline == pipeline, table.c.file_id == file_id)
