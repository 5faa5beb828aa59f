"""Keeps bad units from stopping good ones: a slice that is refused is split until only the bad units are out.

Each try is a savepoint, so what was refused leaves no trace; too many bad units refuse the whole file.
Called by the sql location for every block of a unit file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import sqlalchemy as sa

from etl import errors
from etl.locations import answers
from etl.locations.writer import Rows, Writer
from etl.model import Trouble

#: this many units may be refused, or this share of them if that is more.
MOST_BAD, MOST_BAD_SHARE = 100, 0.10
#: troubles shown when a whole file is refused.
SHOWN = 10


class Isolation:
    """Writes the blocks of one unit file and gathers the units that were refused."""

    def __init__(self, connection: sa.Connection, count_units: Callable[[], int], secret: str) -> None:
        self._connection = connection
        self._count_units = count_units
        self._secret = secret
        self._total: int | None = None
        self._seen = 0
        self.troubles: list[Trouble] = []

    @property
    def written(self) -> int:
        """Count the units that are in."""
        return self._seen - len(self.troubles)

    def write(self, rows: Rows, writer: Writer) -> None:
        """Write the rows of one block, in order, without the units that the database refuses."""
        waiting = [(0, len(rows))]
        while waiting:
            start, end = waiting.pop()
            if start == end:
                continue
            refusal = self._try(rows[start:end], writer)
            if refusal is None:
                continue
            bad = start + refusal.at if refusal.at is not None else start
            if refusal.at is None and end - start > 1:
                middle = (start + end) // 2
                waiting += [(middle, end), (start, middle)]
                continue
            self._hold_back(bad, rows[bad][0], refusal)
            waiting += [(bad + 1, end), (start, bad)]
        self._seen += len(rows)

    def finish(self) -> None:
        """Accept what is written, or raise `Refused` when not one unit was good.

        Without a key nothing of the file has happened here, so it can be corrected as it is and moved back.
        """
        if self.troubles and not self.written:
            self._refuse_all("every unit is refused")

    def _try(self, rows: Rows, writer: Writer) -> answers.Refusal | None:
        savepoint = self._connection.begin_nested()
        try:
            writer.write(rows)
            savepoint.commit()
        except answers.UNIT_ERRORS as error:
            refusal = answers.refusal(error, self._secret)
            if refusal is None:
                # not back to the savepoint: with a full disk SQLite has undone everything, savepoints too, and
                # would complain of that instead
                raise
            savepoint.rollback()
            return refusal
        return None

    def _hold_back(self, bad: int, line: int | None, refusal: answers.Refusal) -> None:
        trouble = Trouble(cause=refusal.cause, line=line, field=refusal.field, unit=self._seen + bad)
        self.troubles.append(trouble)
        if len(self.troubles) <= MOST_BAD:
            return
        if self._total is None:
            self._total = self._count_units()
        if len(self.troubles) > max(MOST_BAD, self._total * MOST_BAD_SHARE):
            self._refuse_all(f"at least {len(self.troubles)} units are refused, too many to hold back")

    def _refuse_all(self, told: str) -> NoReturn:
        first = sorted(self.troubles, key=lambda trouble: trouble.unit or 0)[:SHOWN]
        raise errors.Refused(
            f"{told}; first: {first[0].cause}",
            next="compare the units with the table and correct what differs",
            where=first,
        )
