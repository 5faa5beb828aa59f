"""What the kernel does for our processes: a time limit held off during a commit, a child that ends with its parent.

Standard library only, like the rest of the bottom row. Used by the stages, the outbox and the workers' guard.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_PR_SET_PDEATHSIG = 1


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let no time limit strike inside: a commit, once begun, is carried through."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def die_with_parent(parent: int) -> None:
    """Have the kernel end this process when its parent ends (Linux), so that no worker outlives its guard."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died between fork and prctl
        os.kill(os.getpid(), signal.SIGKILL)
