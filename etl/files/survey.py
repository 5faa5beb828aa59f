"""The survey: what lies where. The folders are the truth, so every question about work starts here.

Reads names only (notes where asked) and changes nothing. Used by `etl status`, `etl run` and whoever looks
for work that has no job or an owner that died.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from etl.files import names
from etl.files.layout import Layout
from etl.model import Place, Stage, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How many files lie in one status folder, since when the oldest has, and how many are not work."""

    files: int
    oldest: float | None
    ignored: int
    #: dropped files that nobody has claimed yet, those in dropped folders among them.
    settling: int = 0
    #: of these: how many wait for their done-file.
    not_done: int = 0


def done_pattern(place: Place, done: str | None) -> str | None:
    """Give the pattern of a place's done-files: only dropped source files have any."""
    return done if place.stage is Stage.EXTRACT and not place.location else None


def listing(layout: Layout, place: Place, status: Status, done: str | None = None) -> list[str]:
    """Give the names of the files in one status folder, sorted; folders and what is never work are left out."""
    work, _, _ = _sorted_out(layout, place, status, done)
    return sorted(work)


def dated(
    layout: Layout, place: Place, status: Status, done: str | None = None
) -> tuple[dict[str, float], int]:
    """Give the files in one status folder and since when each lies there, and how many names are never work."""
    work, dropped, ignored = _sorted_out(layout, place, status, done)
    folder = layout.status(place, status)
    found = {name: moved for name in work if (moved := _moved(folder / name)) is not None}
    return found, ignored + (len(dropped) if status is not Status.WORKING else 0)


def folders(layout: Layout, place: Place) -> list[Path]:
    """Give the folders that were dropped into `working/`; hidden and half-written ones are left out."""
    _, dropped, _ = _sorted_out(layout, place, Status.WORKING, None)
    return [layout.status(place, Status.WORKING) / name for name in sorted(dropped)]


def inside(folder: Path, done: str | None = None) -> Iterator[Path]:
    """Give what can be work in a dropped folder and all below it, links among it; no link is followed."""
    for parent, below, files in os.walk(folder):
        below[:] = sorted(name for name in below if not names.never_work(name))
        links = [name for name in below if Path(parent, name).is_symlink()]
        for name in sorted([*files, *links]):
            if not names.never_work(name) and names.of_done(done, name) is None:
                yield Path(parent, name)


def _sorted_out(
    layout: Layout, place: Place, status: Status, done: str | None
) -> tuple[list[str], list[str], int]:
    """Give the names of files and of folders in one status folder, and how many names are never work."""
    work, dropped, ignored = [], [], 0
    try:
        with os.scandir(layout.status(place, status)) as entries:
            for entry in entries:
                if names.never_work(entry.name) or _is_done_file(place, entry.name, done):
                    ignored += not entry.name.endswith(".reason.json")
                elif entry.is_dir(follow_symlinks=False):
                    dropped.append(entry.name)
                else:
                    work.append(entry.name)
    except FileNotFoundError:
        pass
    return work, dropped, ignored


def _is_done_file(place: Place, name: str, done: str | None) -> bool:
    # what carries an id was delivered as a file of its own
    return names.of_done(done, name) is not None and names.parse(place.pipeline, name) is None


def count(layout: Layout, place: Place, status: Status, done: str | None = None) -> Count:
    """Count one status folder."""
    work, dropped, ignored = _sorted_out(layout, place, status, done)
    folder = layout.status(place, status)
    times = [moved for name in work if (moved := _moved(folder / name)) is not None]
    drops: list[Path] = []
    if status is Status.WORKING:
        drops = [folder / name for name in work if names.parse(place.pipeline, name) is None]
        drops += [path for name in dropped for path in inside(folder / name, done)]
        dropped = []
    return Count(
        files=len(work),
        oldest=min(times, default=None),
        ignored=ignored + len(dropped),
        settling=len(drops),
        not_done=sum(waits_for_done(path, done) for path in drops),
    )


def _moved(path: Path) -> float | None:
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:
        return None


def waits_for_done(path: Path, done: str | None) -> bool:
    """Tell whether a dropped file has no done-file yet."""
    return done is not None and not os.path.lexists(path.with_name(names.done_name(done, path.name)))


def age(moment: float | None) -> float | None:
    """Give how long ago a moment was, in seconds."""
    return None if moment is None else max(0.0, time.time() - moment)
