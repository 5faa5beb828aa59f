"""What the kernel does for our processes: time limits, and a child that ends with its parent.

Standard library only, like the rest of the bottom row. Used by the outbox, the stages and the services.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from etl.errors import TimeUp

_PR_SET_PDEATHSIG = 1


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let no time limit strike inside: a commit, once begun, is carried through."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise `TimeUp` inside when `seconds` have passed."""

    def strike(number: int, frame: FrameType | None) -> None:
        raise TimeUp(f"the time limit of {seconds} seconds has passed")

    before = signal.signal(signal.SIGALRM, strike)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def die_with_parent(parent: int) -> None:
    """Have the kernel end this process when its parent ends (Linux), so that no worker outlives its guard."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died between fork and prctl
        os.kill(os.getpid(), signal.SIGKILL)
