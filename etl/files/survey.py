"""The survey: what lies where. The folders are the truth, so every question about work starts here.

Reads names only (notes where asked) and changes nothing. Used by `etl status`, `etl run` and whoever looks
for work that has no job or an owner that died.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

from etl import disk
from etl.files import names, notes
from etl.files.layout import Layout
from etl.model import Place, Status, Waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How many files lie in one status folder, since when the oldest has, and how many are not work."""

    files: int
    oldest: float | None
    ignored: int


def listing(layout: Layout, place: Place, status: Status) -> list[str]:
    """Give the names of the files in one status folder, sorted; folders and what is never work are left out."""
    return sorted(name for name, is_work in _names(layout, place, status) if is_work)


def _names(layout: Layout, place: Place, status: Status) -> list[tuple[str, bool]]:
    """Give every name in one status folder and whether it can be work."""
    try:
        with os.scandir(layout.status(place, status)) as entries:
            return [
                (entry.name, not names.never_work(entry.name) and not entry.is_dir(follow_symlinks=False))
                for entry in entries
            ]
    except FileNotFoundError:
        return []


def count(layout: Layout, place: Place, status: Status) -> Count:
    """Count one status folder."""
    oldest: float | None = None
    files = ignored = 0
    for name, is_work in _names(layout, place, status):
        if not is_work:
            ignored += not name.endswith(".reason.json")
            continue
        files += 1
        try:
            moved = os.lstat(layout.status(place, status) / name).st_mtime
        except FileNotFoundError:
            continue
        oldest = moved if oldest is None else min(oldest, moved)
    return Count(files=files, oldest=oldest, ignored=ignored)


def waiting(layout: Layout, place: Place, *, drops: bool) -> Iterator[tuple[Waiting, float]]:
    """Give the files that wait at a place and when each is due (0: now).

    With `drops` off only files that carry an id are given: those were published whole, or moved back by a
    person; a name without one may still be being written.
    """
    for name in listing(layout, place, Status.WORKING):
        file = names.parse(place.pipeline, name)
        if file is None and not drops:
            continue
        note = notes.glance(layout, place, name) if file else notes.FileNote()
        yield Waiting(place=place, name=name), note.not_before if not note.ended else 0.0


def orphans(layout: Layout, place: Place) -> Iterator[str]:
    """Give the files in `in_process/` that nobody has locked right now."""
    for name in listing(layout, place, Status.IN_PROCESS):
        try:
            lock = disk.lock_regular(layout.file(place, Status.IN_PROCESS, name))
        except OSError:
            continue
        if lock is not None:
            lock.release()
            yield name


def age(moment: float | None) -> float | None:
    """Give how long ago a moment was, in seconds."""
    return None if moment is None else max(0.0, time.time() - moment)
