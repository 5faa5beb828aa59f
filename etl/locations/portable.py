"""Rows into any database SQLAlchemy knows: one statement, executed for many rows.

Never opens or ends a transaction. Chosen by the sql location where there is no faster road.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from etl.locations.writer import Plan, Rows

#: databases whose ON CONFLICT we know.
UPSERTING = ("postgresql", "sqlite")


class PortableWriter:
    """Writes by executing one INSERT for many rows."""

    def __init__(self, connection: sa.Connection, plan: Plan) -> None:
        self._connection = connection
        self._plan = plan
        #: the statement's parameters get names of their own: a column's may hold any character.
        self._names = [f"v{number}" for number in range(len(plan.columns))]
        self._statement = self._upsert() if plan.upsert_by else plan.table.insert().values(self._values())
        found = ((at, _converter(plan.table.c[name].type)) for at, name in enumerate(plan.columns))
        self._converters = [(at, convert) for at, convert in found if convert]

    def write(self, rows: Rows) -> None:
        """Write all rows of a slice, or raise."""
        parameters = []
        for row in self._plan.prepare(rows):
            for at, convert in self._converters:
                row[at] = convert(row[at])
            parameters.append(dict(zip(self._names, row, strict=True)))
        self._connection.execute(self._statement, parameters)

    def _values(self) -> dict[str, Any]:
        columns = self._plan.table.c
        return {
            column: sa.bindparam(name, type_=columns[column].type)
            for name, column in zip(self._names, self._plan.columns, strict=True)
        }

    def _upsert(self) -> sa.Insert:
        """Insert, or update where the row that is there is not newer."""
        plan, old = self._plan, self._plan.table.c
        insert = postgresql.insert if self._connection.dialect.name == "postgresql" else sqlite.insert
        statement = insert(plan.table).values(self._values())
        if not plan.updated:
            return statement.on_conflict_do_nothing(index_elements=[old[name] for name in plan.upsert_by])
        new = statement.excluded
        not_newer = sa.tuple_(*(old[name] for name in plan.order)) <= sa.tuple_(
            *(new[name] for name in plan.order)
        )
        return statement.on_conflict_do_update(
            index_elements=[old[name] for name in plan.upsert_by],
            set_={name: new[name] for name in plan.updated},
            # a row that tells nothing of its age was there before us
            where=sa.or_(old[plan.order[0]].is_(None), not_newer),
        )


def _converter(kind: sa.types.TypeEngine[Any]) -> Callable[[Any], Any] | None:
    """Give what turns a unit's value into what the driver takes for this type, or None where it is that."""
    match kind:
        case sa.DateTime():
            return _instant
        case sa.Date():
            return lambda value: date.fromisoformat(value) if isinstance(value, str) else value
        case sa.Time():
            return lambda value: time.fromisoformat(value) if isinstance(value, str) else value
        case sa.String():
            return lambda value: orjson.dumps(value).decode() if isinstance(value, dict | list) else value
    return None


def _instant(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    moment = datetime.fromisoformat(value)
    # where a type has no time zone the offset would be dropped, so the text is brought to one all share
    return moment.astimezone(UTC) if moment.tzinfo else moment
