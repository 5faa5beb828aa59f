"""The tables of the ledger and their indexes: every question of the command line has one that answers it.

Names columns only; making them is `opening`'s, filling them `writes`', asking them `queries`'.
"""

from __future__ import annotations

import sqlalchemy as sa

#: the version these tables are; each has a step in `opening`.
VERSION = 2

metadata = sa.MetaData()

# compared byte by byte in both databases, so that a range of names or ids means the same
_Word = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_Moment = sa.Float(53)


def _word(name: str, *, key: bool = False) -> sa.Column[str]:
    return sa.Column(name, _Word, primary_key=key, nullable=False)


def _number(name: str, *, key: bool = False, default: int = 0) -> sa.Column[int]:
    kind = sa.BigInteger()
    if key:
        return sa.Column(name, kind, primary_key=True, autoincrement=False)
    return sa.Column(name, kind, nullable=False, server_default=str(default))


def _text(name: str, default: str = "") -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False, server_default=default)


def _place(*, key: bool = True) -> list[sa.Column[str]]:
    return [_word(name, key=key) for name in ("pipeline", "stage", "location")]


def _only(table_column: sa.Column[str], value: str, name: str, *columns: sa.Column[str]) -> None:
    """Index only the rows of one status: few of many."""
    where = table_column == sa.literal_column(f"'{value}'")
    sa.Index(name, *columns, sqlite_where=where, postgresql_where=where)


#: what kind of schema this is, whose data folder it belongs to, how far the updates are read.
about = sa.Table("etl_about", metadata, _word("key", key=True), _text("value"))

files = sa.Table(
    "etl_files",
    metadata,
    *_place(),
    _word("status", key=True),
    _word("name", key=True),
    _word("file_id"),
    _number("generation", default=1),
    _word("part"),
    sa.Column("since", _Moment, nullable=False),
    _number("attempts"),
    _text("summary"),
    _text("causes", "[]"),
    _text("note", "{}"),
    sa.Index("etl_files_of_delivery", "pipeline", "file_id"),
)
_only(
    files.c.status,
    "working",
    "etl_files_waiting",
    files.c.pipeline,
    files.c.stage,
    files.c.location,
    files.c.since,
)
_only(
    files.c.status,
    "failed",
    "etl_files_failed",
    files.c.pipeline,
    files.c.stage,
    files.c.location,
    files.c.name,
)

_dropped = sa.and_(
    files.c.status == sa.literal_column("'working'"), files.c.file_id == sa.literal_column("''")
)
sa.Index(
    "etl_files_dropped",
    *(files.c.pipeline, files.c.stage, files.c.location, files.c.name),
    sqlite_where=_dropped,
    postgresql_where=_dropped,
)

attempts = sa.Table(
    "etl_attempts",
    metadata,
    *_place(),
    _word("name", key=True),
    _number("attempt", key=True),
    _word("file_id"),
    sa.Column("begun", _Moment),
    sa.Column("ended", _Moment),
    sa.Column("seconds", _Moment),
    _text("worker"),
    _text("outcome"),
    sa.Column("count", sa.BigInteger()),
    sa.Column("rows", sa.BigInteger()),
    _text("said"),
    sa.Index("etl_attempts_of_delivery", "pipeline", "file_id"),
)

deliveries = sa.Table(
    "etl_deliveries",
    metadata,
    _word("pipeline", key=True),
    _word("file_id", key=True),
    _word("given"),
    _text("sha256"),
    _number("size"),
    sa.Column("arrived", _Moment, nullable=False),
    _text("origin"),
    _text("headers", "{}"),
    # what a question about messages asks for
    _word("type"),
    _word("key"),
    _word("priority"),
    _number("open"),
    _number("failed"),
    sa.Column("judged", sa.Boolean(), nullable=False, server_default=sa.false()),
    _text("verdict", "working"),
    _number("verdict_number"),
    sa.Column("ended", _Moment),
    _number("rows"),
    _number("units"),
    _number("held_back"),
    _text("loaded", "{}"),
    _text("said"),
    sa.Index("etl_deliveries_by_id", "file_id"),
    sa.Index("etl_deliveries_by_given", "given"),
    sa.Index("etl_deliveries_by_arrival", "arrived", "file_id"),
    sa.Index("etl_deliveries_of_pipeline", "pipeline", "arrived", "file_id"),
    sa.Index("etl_deliveries_by_type", "type", "arrived"),
)
sa.Index(
    "etl_deliveries_touched",
    deliveries.c.pipeline,
    deliveries.c.file_id,
    sqlite_where=sa.not_(deliveries.c.judged),
    postgresql_where=sa.not_(deliveries.c.judged),
)

verdicts = sa.Table(
    "etl_verdicts",
    metadata,
    _word("pipeline", key=True),
    _word("file_id", key=True),
    _number("number", key=True),
    _text("verdict"),
    sa.Column("at", _Moment, nullable=False),
    _text("said"),
    _text("counts", "{}"),
    sa.Index("etl_verdicts_by_time", "at"),
)

followups = sa.Table(
    "etl_followups",
    metadata,
    _word("pipeline", key=True),
    _word("file_id", key=True),
    _number("number", key=True),
    _word("key", key=True),
    _text("what"),
    _text("target"),
    _text("state"),
    _number("tries"),
    _text("said"),
    sa.Column("at", _Moment, nullable=False),
)

service_events = sa.Table(
    "etl_service_events",
    metadata,
    _word("name", key=True),
    _word("host", key=True),
    _number("pid", key=True),
    sa.Column("started", _Moment, primary_key=True),
    _number("restarts"),
    sa.Column("ended", _Moment),
    sa.Index("etl_service_events_by_start", "started"),
)

#: counts per status folder are kept with every write, so that asking for them costs nothing.
folders = sa.Table(
    "etl_folders",
    metadata,
    *_place(),
    _word("status", key=True),
    _number("files"),
    _number("stamp"),
    _number("ignored"),
)

#: failed files by what is wrong with them, kept with every write as the counts are.
causes = sa.Table(
    "etl_causes",
    metadata,
    *_place(),
    # a text may be longer than what PostgreSQL can index
    _word("digest", key=True),
    _text("causes"),
    _number("files"),
)

totals = sa.Table(
    "etl_totals",
    metadata,
    *_place(),
    _word("outcome", key=True),
    _number("jobs"),
    sa.Column("seconds", _Moment, nullable=False, server_default="0"),
    _number("rows"),
    _number("count"),
)

#: which tick of a schedule was claimed by whom: the primary key is what gives one run per tick (P20).
ticks = sa.Table(
    "etl_ticks",
    metadata,
    _word("schedule", key=True),
    # the moment it is due, in seconds since 1970
    _number("tick", key=True),
    _text("plan"),
    _text("state"),
    _text("how"),
    _number("missed"),
    _text("owner"),
    sa.Column("claimed", _Moment, nullable=False),
    sa.Column("done", _Moment),
)
