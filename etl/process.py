"""What the kernel does for our processes: time limits, a child that ends with its parent, no orphan that gets away.

Standard library only, like the rest of the bottom row. Used by the outbox, the stages and the services.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from etl.errors import TimeUp

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


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


def adopt_orphans() -> None:
    """Have whatever loses its parent below this process become its child (Linux), so that nothing gets away."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_strays(keep: Collection[int], within: float = 5.0) -> bool:
    """Kill and bury every child of ours but those in `keep`, and all that those leave to us, until none is left.

    False when some did not go `within` so many seconds.
    """
    until = time.monotonic() + within
    while strays := [pid for pid in _children() if pid not in keep]:
        for pid in strays:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def _children() -> Iterator[int]:
    """Give the process id of every child, dead ones that are not buried yet included (Linux)."""
    if sys.platform != "linux":
        return
    own = str(os.getpid())
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):
                # the name in brackets may hold anything
                parent = Path(entry.path, "stat").read_text().rpartition(")")[2].split()[1]
                if parent == own:
                    yield int(entry.name)
