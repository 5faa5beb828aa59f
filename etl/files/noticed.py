"""What was noticed and what people were told of it: a small SQLite file, `data/.etl/notices/noticed.db`.

One row for each failure and cause. A mail and what it tells are written in one transaction, and only then spooled, so
that a crash neither forgets a failure nor tells it anew. Looks at no status folder and sends nothing. Held open by the
one who watches.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etl import points
from etl.points import Point

#: seconds for which what is told and gone is remembered: put back into failed/ by hand it is no news.
KEEP = 7 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One file that failed once, as its reason tells it."""

    name: str
    #: what makes it this failure of that file and no other: attempt and time of its reason.
    stamp: str
    #: the file's mtime, by which a change is seen; 0 to look again.
    moved: float
    #: when it failed.
    at: float
    urgency: str
    #: by word.
    causes: Mapping[str, str]
    #: rows or units held back, and of how many; 0 for a file that failed whole.
    held: int = 0
    of: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One cause as it is to be told: how many failures are new, how many files lie there now, since when."""

    word: str
    place: str
    cause: str
    new: int
    total: int
    first: float
    last: float
    urgency: str
    held: int
    of: int
    #: a file of it, the newest.
    sample: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """Since when something is to be told to somebody, our clock; 0 for nothing."""

    #: of causes that nobody knows of, of known ones, and of causes of which nothing is left.
    fresh: float
    known: float
    recovered: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """What is to be told, added up: files, those that failed whole, and rows held back out of how many."""

    files: int
    whole: int
    held: int
    of: int


class Noticed:
    """The memory; every change of it is one transaction and passes `Point.NOTICED`."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        #: part of every mail's key, so that those of a memory made anew are no copies of older ones.
        self.token = self._meta("token")
        #: when it was made: what failed before may have been told out of one that was lost.
        self.since = float(self._meta("since"))

    def _meta(self, key: str) -> str:
        (value,) = self._connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return str(value)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with as_os_error(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                with points.effect(Point.NOTICED):
                    self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _ask(self, question: str, *values: Any) -> list[tuple[Any, ...]]:
        with as_os_error(self.path):
            return self._connection.execute(question, values).fetchall()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    # --- what lies in failed/

    def known(self, place: str) -> dict[str, tuple[float, str]]:
        """Give what is known to lie at a place: by name its mtime and stamp."""
        rows = self._ask(
            "SELECT DISTINCT name, moved, stamp FROM failure WHERE place = ? AND gone = 0", place
        )
        return {os.fsdecode(name): (moved, stamp) for name, moved, stamp in rows}

    def places(self) -> list[str]:
        """Give the places of which something is known."""
        return [place for (place,) in self._ask("SELECT DISTINCT place FROM cause")]

    def saw(self, place: str, found: Sequence[Failure], left: Iterable[str], now: float) -> None:
        """Take down what failed at a place, and which names no longer lie there."""
        pipeline = place.partition("/")[0]
        names = [os.fsencode(one.name) for one in found]
        with self._writing() as to:
            # an older failure of the same name is over, and one that is seen again is no other
            to.executemany(
                "UPDATE failure SET gone = ? WHERE place = ? AND name = ? AND gone = 0",
                [(now, place, name) for name in [*names, *map(os.fsencode, left)]],
            )
            rows = [
                (
                    pipeline,
                    place,
                    name,
                    one.stamp,
                    word,
                    one.moved,
                    one.at,
                    now,
                    one.urgency,
                    one.held,
                    one.of,
                )
                for name, one in zip(names, found, strict=True)
                for word in one.causes
            ]
            to.executemany(
                "INSERT INTO failure(pipeline, place, name, stamp, word, moved, at, seen, urgency, held, of) "
                "VALUES (?,?,?,?,?,?,?,?,?,?,?) "
                "ON CONFLICT DO UPDATE SET gone = 0, moved = excluded.moved",
                rows,
            )
            causes = {word: cause for one in found for word, cause in one.causes.items()}
            to.executemany(
                "INSERT INTO cause(word, pipeline, place, cause) VALUES (?,?,?,?) ON CONFLICT DO NOTHING",
                [(word, pipeline, place, cause) for word, cause in causes.items()],
            )
            _count_out(to, place, now)

    def forget(self, place: str) -> None:
        """Forget a place that is no longer configured."""
        with self._writing() as to:
            to.execute("DELETE FROM failure WHERE place = ?", (place,))
            to.execute("DELETE FROM cause WHERE place = ?", (place,))

    def away(self) -> dict[str, float]:
        """Give since when places are known to be away."""
        return dict(self._ask("SELECT place, since FROM away"))

    def went(self, place: str, since: float | None) -> None:
        """Take down that a place is away since a moment, or, with None, that it is back."""
        with self._writing() as to:
            to.execute("DELETE FROM away WHERE place = ?", (place,))
            if since is not None:
                to.execute("INSERT INTO away(place, since) VALUES (?,?)", (place, since))

    # --- what is to be told

    def pending(self, pipelines: Sequence[str], settled: float) -> Pending:
        """Tell since when something waits to be told of these pipelines; recovered counts if before `settled`."""
        among = json.dumps(pipelines)
        ((fresh, known),) = self._ask(
            "SELECT min(CASE WHEN NOT open THEN seen END), min(CASE WHEN open THEN seen END) "
            "FROM failure JOIN cause USING (word) "
            "WHERE told = 0 AND failure.pipeline IN (SELECT value FROM json_each(?))",
            among,
        )
        ((recovered,),) = self._ask(
            "SELECT min(gone) FROM cause WHERE open AND gone > 0 AND gone < ? "
            "AND pipeline IN (SELECT value FROM json_each(?))",
            *(settled, among),
        )
        return Pending(fresh=fresh or 0.0, known=known or 0.0, recovered=recovered or 0.0)

    def failures(self, pipelines: Sequence[str]) -> list[Told]:
        """Give the causes that have failures nobody was told of."""
        rows = self._ask(
            "SELECT word, cause.place, cause, sum(told = 0), sum(failure.gone = 0), min(at), max(at), "
            "group_concat(DISTINCT CASE WHEN told = 0 THEN urgency END), sum((told = 0) * held), "
            "sum((told = 0) * of) FROM cause JOIN failure USING (word) WHERE word IN "
            "(SELECT word FROM failure WHERE told = 0 AND pipeline IN (SELECT value FROM json_each(?))) "
            "AND (told = 0 OR failure.gone = 0) GROUP BY word",
            json.dumps(pipelines),
        )
        fields = ("word", "place", "cause", "new", "total", "first", "last", "urgency", "held", "of")
        told = [dict(zip(fields, row, strict=True)) for row in rows]
        return [Told(**one, sample=self._sample(one["word"])) for one in told]

    def _sample(self, word: str) -> str:
        rows = self._ask(
            "SELECT name FROM failure WHERE word = ? ORDER BY gone > 0, told, at DESC, name LIMIT 1", word
        )
        return os.fsdecode(rows[0][0])

    def recovered(self, pipelines: Sequence[str], settled: float) -> list[tuple[str, str, str]]:
        """Give word, place and words of the causes of which nothing is left for long enough."""
        return [
            (word, place, cause)
            for word, place, cause in self._ask(
                "SELECT word, place, cause FROM cause WHERE open AND gone > 0 AND gone < ? "
                "AND pipeline IN (SELECT value FROM json_each(?)) ORDER BY place, cause",
                *(settled, json.dumps(pipelines)),
            )
        ]

    def told_again(self, pipelines: Sequence[str]) -> int:
        """Count the files to be told of that lay there before this memory was made."""
        ((count,),) = self._ask(
            "SELECT count(DISTINCT place || '/' || hex(name)) FROM failure WHERE told = 0 AND at < ? "
            "AND pipeline IN (SELECT value FROM json_each(?))",
            *(self.since - 1, json.dumps(pipelines)),  # reasons tell whole seconds
        )
        return int(count)

    def left(self, pipelines: Sequence[str]) -> int:
        """Count the files that lie in `failed/` now."""
        ((count,),) = self._ask(
            "SELECT count(*) FROM (SELECT DISTINCT place, name FROM failure WHERE gone = 0 "
            "AND pipeline IN (SELECT value FROM json_each(?)))",
            json.dumps(pipelines),
        )
        return int(count)

    def sums(self, pipelines: Sequence[str]) -> Sums:
        """Add up the failures that nobody was told of; one with two causes counts once."""
        ((files, whole, held, of),) = self._ask(
            "SELECT count(*), sum(held = 0), sum(held), sum(of) FROM (SELECT DISTINCT place, name, stamp, held, of "
            "FROM failure WHERE told = 0 AND pipeline IN (SELECT value FROM json_each(?)))",
            json.dumps(pipelines),
        )
        return Sums(files=files, whole=whole or 0, held=held or 0, of=of or 0)

    # --- mails

    def mailed(self, audience: str, since: float) -> tuple[float, int]:
        """Give when somebody was last told, and how often at once since a moment."""
        ((last, at_once),) = self._ask(
            "SELECT max(at), sum(at_once AND at > ?) FROM mail WHERE audience = ?", since, audience
        )
        return last or 0.0, at_once or 0

    def next_number(self) -> int:
        """Give the number of the next mail."""
        ((number,),) = self._ask("SELECT coalesce(max(number), 0) + 1 FROM mail")
        return int(number)

    def tell(self, mail: Mapping[str, Any], pipelines: Sequence[str], recovered: Iterable[str]) -> None:
        """Take down a mail together with all it tells; what is told of these pipelines is told by it."""
        among, number, now = json.dumps(pipelines), mail["number"], mail["at"]
        with self._writing() as to:
            to.execute(
                "INSERT INTO mail(number, audience, at, at_once, items) VALUES (?,?,?,?,?)",
                (number, mail["audience"], now, mail["at_once"], json.dumps(mail["items"])),
            )
            to.executemany(
                "UPDATE cause SET open = 0, gone = 0 WHERE word = ?", [(one,) for one in recovered]
            )
            to.execute(
                "UPDATE cause SET open = 1 WHERE word IN (SELECT word FROM failure WHERE told = 0 "
                "AND gone = 0 AND pipeline IN (SELECT value FROM json_each(?)))",
                (among,),
            )
            to.execute(
                "UPDATE failure SET told = ? WHERE told = 0 AND pipeline IN (SELECT value FROM json_each(?))",
                (number, among),
            )
            to.execute("DELETE FROM failure WHERE told > 0 AND gone > 0 AND gone < ?", (now - KEEP,))
            to.execute("DELETE FROM cause WHERE NOT open AND word NOT IN (SELECT word FROM failure)")
            to.execute("DELETE FROM mail WHERE items = '' AND at < ?", (now - KEEP,))

    def unspooled(self) -> Iterator[tuple[int, Any]]:
        """Give the mails that were taken down and may not be in the spool yet: number and items."""
        for number, items in self._ask("SELECT number, items FROM mail WHERE items <> '' ORDER BY number"):
            yield number, json.loads(items)

    def spooled(self, number: int) -> None:
        """Take down that a mail is in the spool."""
        with self._writing() as to:
            to.execute("UPDATE mail SET items = '' WHERE number = ?", (number,))


def _count_out(to: sqlite3.Connection, place: str, now: float) -> None:
    """Mark the causes of a place of which nothing is left since now, and those of which something is there again."""
    to.execute(
        "UPDATE cause SET gone = ? WHERE place = ? AND gone = 0 "
        "AND word NOT IN (SELECT word FROM failure WHERE place = ? AND gone = 0)",
        (now, place, place),
    )
    to.execute(
        "UPDATE cause SET gone = 0 WHERE place = ? AND gone > 0 "
        "AND word IN (SELECT word FROM failure WHERE place = ? AND gone = 0)",
        (place, place),
    )


@contextmanager
def as_os_error(path: Path) -> Iterator[None]:
    """Have a disk that is full or broken answer as it does everywhere else."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise OSError(f"{path}: {error}") from error
