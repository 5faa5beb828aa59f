"""Fates: what became of the worker that had a file, and the word left for whoever finds the file first.

Whoever must end a worker says why before it does, in `.notes/.<file>.fate`, because others look for orphans too
and would take it for a death. Moves nothing. Called by the workers' grooms, and by recovery.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from etl import disk, points
from etl.files import notes
from etl.files.layout import Layout
from etl.model import Place, Reason
from etl.points import Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Died:
    """A file's worker died while it had it: a death is charged. `why`: "ended with code 0", …; "" if unknown."""

    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """A file's worker had to stop before it was done: nothing is charged (P15)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overran:
    """A file's worker was ended because the time limit had passed: the file fails with this reason (P14)."""

    reason: Reason


Fate = Died | Stopped | Overran


def foretell(layout: Layout, place: Place, name: str, fate: Stopped | Overran) -> None:
    """Say why the worker that has this file is about to be ended. It counts for the attempt in hand only."""
    facts: dict[str, object] = {"attempt": notes.glance(layout, place, name).attempt}
    if isinstance(fate, Overran):
        facts["overran"] = {key: getattr(fate.reason, key) for key in ("summary", "next", "impact", "cause")}
        facts["about"] = dict(fate.reason.about)
    disk.write(_path(layout, place, name), notes.dump(facts), Point.NOTE_DEATH, durable=False)


def foretold(layout: Layout, place: Place, name: str, attempt: int) -> Fate:
    """Give the fate that was foretold for this attempt; where nothing was, its worker died."""
    try:
        facts = json.loads(_path(layout, place, name).read_bytes())
        if facts["attempt"] != attempt:  # of an attempt that came to its end all the same
            return Died()
        if "overran" not in facts:
            return Stopped()
        return Overran(reason=Reason(**facts["overran"], about=facts.get("about", {})))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return Died()


def forget(layout: Layout, place: Place, name: str) -> None:
    """Remove what was foretold: it has come to pass."""
    path = _path(layout, place, name)
    if path.exists():
        with points.effect(Point.NOTE_DEATH):
            path.unlink(missing_ok=True)


def _path(layout: Layout, place: Place, name: str) -> Path:
    return layout.note(place, name).with_name(f".{name}.fate")
