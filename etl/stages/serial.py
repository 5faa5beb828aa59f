"""One after the other: of the files that share the header `key`, over all pipelines and stages, one is worked.

Blocks nobody: a job that finds its key taken leaves word and ends, and whoever gives the key back announces the
oldest who wait. Called by `run`, and by whoever looks for files without a job.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from etl.app import App
from etl.errors import KeyTaken
from etl.files import key_locks
from etl.model import Status, Waiting


def key_of(app: App, waiting: Waiting) -> str:
    """Give the key of a file; "" for most."""
    return app.headers(waiting.place.pipeline, waiting.name).get("key", "")


@contextmanager
def turn(app: App, waiting: Waiting) -> Iterator[None]:
    """Have the file's key to oneself, if it has one, or raise `KeyTaken` with word left that it waits."""
    key = key_of(app, waiting)
    if not key:
        yield
        return
    lock = key_locks.take(app.layout, key)
    if lock is None:
        key_locks.leave_word(app.layout, key, waiting)
        # once more: who had it may have looked for those who wait just before we said so
        lock = key_locks.take(app.layout, key)
    if lock is None:
        raise KeyTaken(f"another file of its key is being worked; {waiting.name!r} is announced after it")
    try:
        key_locks.forget(app.layout, key, waiting)
        yield
    finally:
        key_locks.give_back(app.layout, key, lock)
        with suppress(OSError):  # the scan finds them
            _announce_next(app, key)


def _announce_next(app: App, key: str) -> None:
    """Announce the oldest of those who wait for a key; word of files that wait no longer is forgotten."""
    for one in key_locks.in_line(app.layout, key):
        known = one.place.pipeline in app.config.pipelines and one.place in app.places(one.place.pipeline)
        if known and os.path.lexists(app.layout.file(one.place, Status.WORKING, one.name)):
            return app.announce([one])
        key_locks.forget(app.layout, key, one)
    return None


def line_of(app: App, waiting: Waiting) -> Iterator[Waiting]:
    """Give who waits for the key that a file waits for; nobody when it waits for none."""
    key = key_of(app, waiting)
    if not key or not key_locks.has_left_word(app.layout, key, waiting):
        return
    for one in key_locks.in_line(app.layout, key):
        if one.place.pipeline in app.config.pipelines:
            yield one


def waits(app: App, waiting: Waiting) -> bool:
    """Tell whether a file without a job has one coming: its key is taken, and whoever has it announces the next."""
    key = key_of(app, waiting)
    return (
        bool(key)
        and key_locks.has_left_word(app.layout, key, waiting)
        and key_locks.is_taken(app.layout, key)
    )
