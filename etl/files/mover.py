"""The one mover: every change of a file's status is a call of `shift`, and nothing is ever replaced.

Of two namesakes at one place one goes to `archive/superseded/`: the one in `working/` is the newer.
Called by claims and outboxes; decides nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

from etl import disk
from etl.files.layout import Layout
from etl.model import Place, Status
from etl.points import Point


def shift(layout: Layout, path: Path, place: Place, status: Status, point: Point) -> Path:
    """Move a file into a status folder of `place`, putting an older namesake away, and give its new path."""
    target = layout.status(place, status) / path.name
    while True:
        try:
            disk.move(path, target, point)
        except FileExistsError:
            older = path if status is Status.WORKING else target
            put_away(layout, place, older)
            if older is path:
                return target
        else:
            return target


def publish(layout: Layout, path: Path, place: Place, status: Status) -> Path:
    """Move what was just made to where it is to lie and give its new path; a namesake there is the older one."""
    if status is Status.FAILED:
        put_twins_away(layout, place, path.name)
    target = layout.status(place, status) / path.name
    while True:
        try:
            disk.move(path, target, Point.RELEASE_CHILD)
        except FileExistsError:
            put_away(layout, place, target)
        else:
            return target


def put_away(layout: Layout, place: Place, path: Path, why: str = "superseded") -> Path | None:
    """Move a file that is no longer wanted on the road into the archive; None when it is gone already."""
    folder = layout.put_away(place, why)
    disk.make_folder(folder)
    number = 0
    while True:
        target = folder / (f"{path.name}.{number}" if number else path.name)
        try:
            disk.move(path, target, Point.SUPERSEDE, touch=False)
        except FileExistsError:
            number += 1
        except FileNotFoundError:
            return None
        else:
            return target


def put_twins_away(layout: Layout, place: Place, name: str) -> None:
    """Put away the older namesakes of a file that is being claimed (rule 7)."""
    for status in (Status.RESOLVED, Status.FAILED):
        twin = layout.file(place, status, name)
        if os.path.lexists(twin):
            put_away(layout, place, twin)
