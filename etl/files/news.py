"""News: small durable files in `data/.etl/news/`, each a line that people are to read in the next digest.

Its key makes it one thing: put twice, it is there once. Put by whoever notices something that is no failed file;
taken up by whoever writes digests. Tells nobody itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from etl import disk, points
from etl.files.layout import Layout
from etl.model import Urgency
from etl.points import Point


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """One line for people."""

    pipeline: str
    #: what makes it this one and no other, for example `expected/books-*.csv/2026-11-18/missing`.
    key: str
    #: late, missing, empty, …: what lines of one kind are grouped by.
    kind: str
    #: a sentence that says what is wrong, with the file's name.
    text: str
    #: what to do about it.
    next: str = ""
    urgency: Urgency = Urgency.MORNING
    #: seconds since 1970.
    at: float = 0.0

    @property
    def name(self) -> str:
        """The name of its file: the same for the same news."""
        return f"{hashlib.sha256(f'{self.pipeline}/{self.key}'.encode()).hexdigest()[:24]}.json"


def folder(layout: Layout) -> Path:
    """Where all of them lie."""
    return layout.own / "news"


def put(layout: Layout, one: News) -> None:
    """Keep one line until it is told. Whoever puts it remembers that it did: told ones leave no trace here."""
    disk.make_folder(folder(layout))
    disk.write(folder(layout) / one.name, json.dumps(asdict(one), indent=1).encode() + b"\n", Point.NEWS)


def waiting(layout: Layout) -> Iterator[News]:
    """Give what is to be told, oldest first; what cannot be read is left where it is."""
    known, found = {one.name for one in fields(News)}, []
    for path in folder(layout).glob("*.json"):
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            facts = json.loads(path.read_bytes())
            kept = {key: value for key, value in facts.items() if key in known}
            found.append(News(**kept | {"urgency": Urgency(facts["urgency"])}))
    yield from sorted(found, key=lambda one: (one.at, one.key))


def remove(layout: Layout, one: News) -> None:
    """Take away what was told."""
    with points.effect(Point.NEWS):
        (folder(layout) / one.name).unlink(missing_ok=True)
