"""Shows how far a job is while it runs: which file is in work, and how much of it a transform has read.

Changes nothing about the work and never fails it. Called on the road every job takes, and by splitting.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from etl.app import App
from etl.files.moves import Claim
from etl.queues.queue import Board

#: seconds between two looks at how far the reading is.
EVERY = 0.25


@contextmanager
def shown(app: App, claim: Claim) -> Iterator[None]:
    """Keep a claimed file on the board for as long as it is worked."""
    app.board.begin(claim.place, claim.name)
    try:
        yield
    finally:
        app.board.end()


@dataclass(slots=True)
class Watch:
    """Follows the reading of one file by the position of its descriptor."""

    board: Board
    descriptor: int
    size: int
    #: bytes read before the batch in hand, and with it.
    before: int = 0
    after: int = 0
    #: rows before the batch in hand, and in it.
    rows: int = 0
    count: int = 0
    due: float = 0.0

    def batch(self, count: int) -> None:
        """Hear that a batch of so many rows was read."""
        self.rows += self.count
        self.before, self.after = self.after, os.lseek(self.descriptor, 0, os.SEEK_CUR)
        self.count = count
        self.row(0)

    def row(self, index: int) -> None:
        """Hear that the rows of the batch before this one are done; asked for each row, so it answers fast."""
        now = time.monotonic()
        if now < self.due:
            return
        self.due = now + EVERY
        # a small file is read as a whole before its first row is worked
        part = index / self.count if self.count else 1.0
        self.board.read(self.rows + index, self.before + part * (self.after - self.before), self.size)


def watch(app: App, claim: Claim) -> Watch:
    """Follow the reading of a claimed file."""
    return Watch(app.board, claim.descriptor, os.fstat(claim.descriptor).st_size)
