"""When a process that ended may be started again: at once as a rule, ever later if it keeps ending at once.

Arithmetic on a clock only. Used by the guard of the workers and by the supervisor (P23).
"""

from __future__ import annotations

import time
from collections.abc import Callable

#: seconds: one that ends sooner than this ended at once; one that lives longer than that is well.
AT_ONCE, WELL_AFTER = 5.0, 30.0
#: seconds between two starts of one that keeps ending at once; the same after SIGKILL.
LONGEST_PAUSE, LONGEST_PAUSE_KILLED = 60.0, 5.0
#: how many times in a row it may end at once before it has to wait.
FREE_DEATHS = 3


class Respawn:
    """The starts and ends of one process after the other in one place."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._born = 0.0
        self._ended_at_once = 0
        self._not_before = 0.0

    @property
    def due(self) -> bool:
        """Tell whether it may be started now."""
        return self._clock() >= self._not_before

    def started(self) -> None:
        """Note that it was started."""
        self._born = self._clock()

    def ended(self, *, killed: bool) -> float:
        """Note that it ended, `killed` by SIGKILL or not, and give the seconds to wait: 0, or 1, 2, 4 …"""
        lived = self._clock() - self._born
        if lived >= WELL_AFTER:
            self._ended_at_once = 0
        if lived < AT_ONCE:
            self._ended_at_once += 1
        pause = 2.0 ** (self._ended_at_once - FREE_DEATHS) if self._ended_at_once >= FREE_DEATHS else 0.0
        pause = min(pause, LONGEST_PAUSE_KILLED if killed else LONGEST_PAUSE)
        self._not_before = self._clock() + pause
        return pause
