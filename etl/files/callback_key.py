"""The key with which we sign what we post, where the operator gave none: made once, readable for us alone.

Never shown, logged or put on a queue. Asked by whoever posts.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from etl import disk, points
from etl.files.layout import Layout
from etl.points import Point


def path(layout: Layout) -> Path:
    """Where it lies."""
    return layout.own / "callback.key"


def read(layout: Layout) -> bytes:
    """Give the key, made if need be."""
    disk.make_folder(layout.own)
    where = path(layout)
    if not where.exists():
        with disk.wait_for_lock(layout.own / "callback.key.lock"):
            if not where.exists():
                _make(where)
    return where.read_bytes().strip()


def _make(where: Path) -> None:
    aside = where.with_name(f".{where.name}.writing")
    with points.effect(Point.FOLLOW):
        aside.unlink(missing_ok=True)
        # never readable for others, not even for a moment
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as handle:
            handle.write(secrets.token_hex(32).encode() + b"\n")
            disk.sync(handle)
        os.replace(aside, where)
        disk.sync_folder(where.parent)
