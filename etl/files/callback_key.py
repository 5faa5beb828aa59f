"""The key with which we sign what we post, where the operator gave none: made once, readable for us alone.

Never shown, logged or put on a queue. Asked by whoever posts.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from etl import disk
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
                disk.write_private(where, secrets.token_hex(32).encode() + b"\n", Point.FOLLOW)
    return where.read_bytes().strip()
