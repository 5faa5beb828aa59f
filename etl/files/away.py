"""Away: the mark of a location that cannot be reached, `.away.json` beside its status folders.

Made once when it goes and removed once when it is back, so that one of many workers tells each. Between the two it
says when a file may go through as the probe. Moves no file and talks to no location. Called by load and by pauses.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace

from etl import disk, points
from etl.files.layout import Layout
from etl.model import Place
from etl.points import Point

#: seconds until the first probe; the wait doubles with each that is answered no better, up to `MOST`.
FIRST = 1.0
MOST = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Since when a location is away, what was last heard, and when one file may go through as the next probe."""

    since: float
    said: str
    #: probes so far.
    tries: int = 0
    next: float = 0.0


def read(layout: Layout, place: Place) -> Mark | None:
    """Give the mark of a location; None while it is not away."""
    path = layout.away(place)
    try:
        return Mark(**json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):  # cut short by a power loss: away all the same, and to be probed at once
        with suppress(FileNotFoundError):
            return Mark(since=path.stat().st_mtime, said="it could not be reached")
        return None


def mark(layout: Layout, place: Place, said: str, *, asked: float, now: float) -> bool:
    """Mark a location as away; False when it is marked already, and another has told it.

    False too when it came back after it was `asked`: a time-out that ends later is old news.
    """
    with _alone(layout, place) as lock:
        if layout.away(place).exists() or os.fstat(lock.descriptor).st_mtime >= asked:
            return False
        _write(layout, place, Mark(since=now, said=said, next=now + FIRST))
        return True


def probe(layout: Layout, place: Place, now: float) -> bool:
    """Tell whether the caller may be the probe now; whoever asks after it has to wait longer."""
    with _alone(layout, place):
        known = read(layout, place)
        if known is None or known.next > now:
            return False
        wait = min(MOST, FIRST * 2 ** min(known.tries, 10))
        _write(layout, place, replace(known, tries=known.tries + 1, next=now + wait))
        return True


def clear(layout: Layout, place: Place, now: float) -> Mark | None:
    """Take the mark away and give it; None when there is none, or another was first and has told it."""
    path = layout.away(place)
    if not path.exists():  # the answer to nearly every load: no lock for it
        return None
    with _alone(layout, place) as lock:
        known = read(layout, place)
        os.utime(lock.descriptor, (now, now))
        with points.effect(Point.MARK_BACK):
            path.unlink(missing_ok=True)
        return known


@contextmanager
def _alone(layout: Layout, place: Place) -> Iterator[disk.Lock]:
    """Hold the lock of the mark; the time of the lock's file is when the location was last back."""
    path = layout.folder(place) / ".away.lock"
    new = not path.exists()
    with disk.wait_for_lock(path) as lock:
        if new:
            os.utime(lock.descriptor, (0, 0))
        yield lock


def _write(layout: Layout, place: Place, known: Mark) -> None:
    facts = json.dumps(asdict(known), indent=1).encode() + b"\n"
    # a mark lost in a power loss is made again by the next file
    disk.write(layout.away(place), facts, Point.MARK_AWAY, durable=False)
