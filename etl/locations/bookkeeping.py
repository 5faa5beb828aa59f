"""What a database remembers of us: which unit files it has, and the current generation of each source file.

Both tables are written in the transaction that writes the units, so a unit file and its key are there
together or not at all. Never touches the table units go to. Called by the sql location.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, IntegrityError

from etl.model import Trouble, UnitFile, UnitKey

#: text that can be part of a key; some databases need a length for that.
WORD = sa.Text().with_variant(sa.String(120), "mysql", "mariadb", "mssql", "oracle")


class Standing(Enum):
    """How a unit file's generation compares with the one this database has of its source file."""

    CURRENT = auto()
    NEWER = auto()
    SUPERSEDED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What was written about a unit file when it was loaded."""

    sha256: str
    rejected: tuple[Trouble, ...]


def make(engine: sa.Engine, table: sa.Table) -> None:
    """Create `table` if it is missing, also when several processes do so at once."""
    try:
        with engine.begin() as connection:
            table.create(connection, checkfirst=True)
    except DBAPIError:
        # of several that saw it missing one wins; the others are told that it exists
        with engine.connect() as connection:
            if not sa.inspect(connection).has_table(table.name, schema=table.schema):
                raise


class Books:
    """The two bookkeeping tables, as one target table uses them: a database may hold several locations."""

    def __init__(self, target: str, schema: str | None, *, lineage: bool) -> None:
        metadata = sa.MetaData(schema=schema)
        self._target = target
        self._lineage = lineage
        self._files = sa.Table(
            "_etl_files", metadata, *_source_columns(), sa.Column("generation", sa.Integer)
        )
        self._files.append_column(sa.Column("recipe", sa.Text))
        self._keys = sa.Table(
            "_etl_keys",
            metadata,
            *_source_columns(),
            sa.Column("generation", sa.Integer, primary_key=True, autoincrement=False),
            sa.Column("part", WORD, primary_key=True),
            sa.Column("sha256", sa.Text),
            sa.Column("count", sa.BigInteger),
            sa.Column("rejected", sa.Text),
            #: whether its rows say where they came from, so that they can be told apart later.
            sa.Column("lineage", sa.Boolean),
            sa.Column("at", sa.DateTime(timezone=True), server_default=sa.func.now()),
        )

    @property
    def tables(self) -> tuple[sa.Table, sa.Table]:
        """Both tables."""
        return self._files, self._keys

    def of_pipeline(self, table: sa.Table, data: str, pipeline: str) -> sa.ColumnElement[bool]:
        """Choose the rows of one of the two tables that concern a pipeline's units in this target."""
        wanted = {"data": data, "pipeline": pipeline, "target": self._target}
        return sa.and_(*(table.c[name] == value for name, value in wanted.items()))

    def enter(self, connection: sa.Connection, units: UnitFile) -> Standing:
        """Compare generations under a lock that holds the answer true until the transaction ends.

        Unit files of one generation share the lock and load side by side; only a newer one takes it alone.
        """
        row = self._source(units.key) | {"generation": units.key.generation, "recipe": units.recipe}
        this_file = self._this_file(units.key)
        generation = sa.select(self._files.c.generation).where(this_file)
        there = connection.scalar(generation)
        if there is None:
            if _insert_new(connection, self._files, row):
                return Standing.CURRENT
            there = connection.execute(generation).scalar_one()
        # what was read may be old, but it never falls: it decides which lock to take, not the answer.
        # Taking the shared one first and the other later would let two of us wait for each other
        alone = there < units.key.generation
        there = connection.execute(generation.with_for_update(read=not alone)).scalar_one()
        if there == units.key.generation:
            return Standing.CURRENT
        return Standing.SUPERSEDED if there > units.key.generation else Standing.NEWER

    def raise_generation(self, connection: sa.Connection, units: UnitFile) -> None:
        """Make this unit file's generation the current one of its source file."""
        values = {"generation": units.key.generation, "recipe": units.recipe}
        connection.execute(self._files.update().where(self._this_file(units.key)).values(values))

    def has_older_without_lineage(self, connection: sa.Connection, key: UnitKey) -> bool:
        """Tell whether units of a lower generation of this source file were loaded that cannot be told apart."""
        keys = self._keys.c
        older = sa.and_(*(keys[name] == value for name, value in self._source(key).items()))
        unmarked = sa.and_(keys.lineage.is_(sa.false()), keys["count"] > 0, keys.generation < key.generation)
        found = sa.select(keys.part).where(older, unmarked).limit(1)
        return connection.execute(found).first() is not None

    def claim(self, connection: sa.Connection, units: UnitFile) -> Kept | None:
        """Write the key of a unit file; if it is there already, return what was kept with it.

        Waits for a transaction that has just written the same key, so of several one loads.
        """
        row = self._source(units.key) | {"generation": units.key.generation, "part": units.key.part}
        row |= {"sha256": units.sha256, "count": 0, "rejected": "[]", "lineage": self._lineage}
        if _insert_new(connection, self._keys, row):
            return None
        found = connection.execute(
            sa.select(self._keys.c.sha256, self._keys.c.rejected).where(self._this_key(units.key))
        ).one()
        return Kept(
            sha256=found.sha256, rejected=tuple(Trouble(**facts) for facts in orjson.loads(found.rejected))
        )

    def settle(
        self, connection: sa.Connection, key: UnitKey, count: int, rejected: Sequence[Trouble]
    ) -> None:
        """Keep with the key what became of its units, so that what was refused can always be made again."""
        kept = orjson.dumps([trouble.as_dict() for trouble in rejected]).decode()
        connection.execute(self._keys.update().where(self._this_key(key)).values(count=count, rejected=kept))

    def _source(self, key: UnitKey) -> dict[str, Any]:
        return {"data": key.data, "pipeline": key.pipeline, "target": self._target, "file": key.file}

    def _this_file(self, key: UnitKey) -> sa.ColumnElement[bool]:
        return sa.and_(*(self._files.c[name] == value for name, value in self._source(key).items()))

    def _this_key(self, key: UnitKey) -> sa.ColumnElement[bool]:
        wanted = self._source(key) | {"generation": key.generation, "part": key.part}
        return sa.and_(*(self._keys.c[name] == value for name, value in wanted.items()))


def _source_columns() -> list[sa.Column[Any]]:
    return [sa.Column(name, WORD, primary_key=True) for name in ("data", "pipeline", "target", "file")]


def _insert_new(connection: sa.Connection, table: sa.Table, row: dict[str, Any]) -> bool:
    """Insert a row unless its primary key is there; tell whether it was inserted."""
    if connection.dialect.name in ("postgresql", "sqlite"):
        insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
        statement = insert(table).values(row).on_conflict_do_nothing()
        # without the option SQLAlchemy forgets how many rows an INSERT made
        result = connection.execute(statement, execution_options={"preserve_rowcount": True})
        return result.rowcount == 1
    try:
        with connection.begin_nested():
            connection.execute(table.insert().values(row))
    except IntegrityError:
        return False
    return True
