"""Folders that were dropped whole: once their files are lifted out, they are left a while and then removed.

Only ever removes a folder that has nothing in it. Called by the scan.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from etl import points
from etl.points import Point

#: seconds an empty folder is left for its uploader, who may make folders first and fill them later.
EMPTY_FOR = 3600.0


class Emptied:
    """Remembers since when a folder has been empty, by our own clock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: time of the last change in an empty folder, and when it was first seen so.
        self._since: dict[Path, tuple[int, float]] = {}

    def tidy(self, folder: Path) -> None:
        """Remove a folder, or those below it, once they have been empty for `EMPTY_FOR`."""
        for parent, _, _ in os.walk(folder, topdown=False):
            with suppress(OSError):  # gone, or somebody just put something in
                self._tidy(Path(parent))

    def _tidy(self, folder: Path) -> None:
        if any(folder.iterdir()):
            self._since.pop(folder, None)
            return
        changed = folder.stat().st_mtime_ns
        before, since = self._since.get(folder, (None, 0.0))
        if before != changed:
            self._since[folder] = (changed, self._clock())
        elif self._clock() - since >= EMPTY_FOR:
            del self._since[folder]
            with points.effect(Point.LIFT):
                folder.rmdir()
