"""Room on the disk: whether there is enough for what is about to be written, with the operator's reserve left over.

Only asks the file system; frees nothing and pauses nobody. Called before files are copied in, and by `pauses`.
"""

from __future__ import annotations

import os

from etl.errors import NoRoom
from etl.files.layout import Layout

#: bytes that are always kept, whatever the operator allows: notes and reasons must still be written.
LEAST = 256 << 10


def short(layout: Layout, reserve: int, coming: int = 0) -> str:
    """Say that less disk would be free than `reserve` once `coming` bytes are written; "" when there is room (P24)."""
    there = layout.data
    while not there.exists():  # nothing was ever worked here
        there = there.parent
    facts = os.statvfs(there)
    free, wanted = facts.f_bavail * facts.f_frsize, max(reserve, LEAST)
    # some file systems do not count inodes and say 0 of 0
    if facts.f_files and not facts.f_favail:
        return f"no inode is free in {layout.data}; remove small files, and everything goes on by itself"
    if free - coming >= wanted:
        return ""
    asked = f", too few for {_size(coming)} and" if coming else ", less than"
    return (
        f"only {_size(free)} are free in {layout.data}{asked} the reserve of {_size(wanted)}; "
        "make room, and everything goes on by itself"
    )


def require(layout: Layout, reserve: int, coming: int = 0) -> None:
    """Make sure there is room for `coming` bytes, or raise `NoRoom`."""
    if why := short(layout, reserve, coming):
        summary, _, hint = why.rpartition("; ")
        raise NoRoom(summary, next=hint)


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count < 10e6 else f"{count / 1e6:,.0f} MB"
