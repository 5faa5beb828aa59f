"""The locks of keys: who works a message of a key has its lock, and who finds it taken leaves word.

A lock is the kernel's, so it ends with its owner. Never waits and announces nobody. Called by `stages.serial`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from etl import disk, points
from etl.files import names
from etl.files.layout import Layout
from etl.model import Place, Stage, Waiting
from etl.points import Point


def take(layout: Layout, key: str) -> disk.Lock | None:
    """Take the lock of a key; None when another has it."""
    path = _path(layout, key)
    disk.make_folder(path.parent)
    while True:
        lock = disk.lock_path(path)
        # its last owner may have removed the file between our open and our lock
        if lock is None or disk.same_file(path, lock.descriptor):
            return lock
        lock.release()


def is_taken(layout: Layout, key: str) -> bool:
    """Tell whether somebody has the lock of a key."""
    try:
        return disk.is_locked(_path(layout, key))
    except FileNotFoundError:
        return False


def give_back(layout: Layout, key: str, lock: disk.Lock) -> None:
    """Give the lock of a key back; where nobody waits for it, nothing of it is left on the disk."""
    with lock, suppress(OSError):
        folder = _folder(layout, key)
        if folder.exists():
            folder.rmdir()  # refused while somebody waits
        _path(layout, key).unlink()


def leave_word(layout: Layout, key: str, waiting: Waiting) -> None:
    """Say that a file waits for a key."""
    place = waiting.place
    facts = [place.pipeline, place.stage, place.location, waiting.name]
    while True:
        path = _entry(layout, key, waiting)
        disk.make_folder(path.parent)
        try:
            # not durable: after a power loss nobody has the key, and the scan announces all who wait
            disk.write(path, json.dumps(facts).encode(), Point.KEY_WAIT, durable=False)
        except FileNotFoundError:  # who gave the key back has just removed the empty folder
            continue
        return


def forget(layout: Layout, key: str, waiting: Waiting) -> None:
    """Take back that a file waits for a key."""
    path = _entry(layout, key, waiting)
    if path.exists():
        with points.effect(Point.KEY_WAIT):
            path.unlink(missing_ok=True)


def has_left_word(layout: Layout, key: str, waiting: Waiting) -> bool:
    """Tell whether a file waits for a key by its own word."""
    return _entry(layout, key, waiting).exists()


def in_line(layout: Layout, key: str) -> Iterator[Waiting]:
    """Give who waits for a key, the oldest first, by id."""
    try:
        entries = sorted(one for one in _folder(layout, key).iterdir() if not names.never_work(one.name))
    except FileNotFoundError:
        return
    for entry in entries:
        try:
            pipeline, stage, location, name = json.loads(entry.read_bytes())
            place = Place(pipeline=pipeline, stage=Stage(stage), location=location)
        except (OSError, ValueError, TypeError):
            continue  # gone, or cut short: the scan knows its file
        yield Waiting(place=place, name=name)


def _path(layout: Layout, key: str) -> Path:
    return layout.own / "keys" / hashlib.sha256(key.encode()).hexdigest()[:32]


def _folder(layout: Layout, key: str) -> Path:
    return _path(layout, key).with_suffix(".waiting")


def _entry(layout: Layout, key: str, waiting: Waiting) -> Path:
    file = names.parse(waiting.place.pipeline, waiting.name)
    whole = hashlib.sha256(f"{waiting.place}/{waiting.name}".encode(errors="surrogateescape")).hexdigest()
    return _folder(layout, key) / f"{file.id if file else ''}-{whole[:16]}"
