"""What the kernel does for our processes: time limits, children that end with their parent, and who is whose child.

Standard library only, like the rest of the bottom row; decides nothing about files. Used by the outbox, the
stages and the services. Where it is not Linux, orphans cannot be adopted: a process that detached itself by
forking twice is out of reach there, everything else is not.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from etl.errors import TimeUp

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
#: seconds between two looks at processes that are about to end.
_LOOK_EVERY = 0.005


#: what struck while nothing may strike, and how many are inside such a block.
_waiting: list[BaseException] = []
_blocks = 0


def strike(error: BaseException) -> None:
    """Raise `error`, from a signal's handler, in whatever runs; where nothing may strike, at the end of that."""
    if not _blocks:
        raise error
    _waiting.append(error)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let no time limit and no request to stop strike inside: a commit, once begun, is carried through.

    A signal mask would not do: with a second thread in this process the kernel gives the signal to that one, and
    Python runs its handler here all the same.
    """
    global _blocks  # noqa: PLW0603 - one main thread, one place where signals strike
    _blocks += 1
    try:
        yield
    finally:
        _blocks -= 1
        if not _blocks and _waiting:
            error = _waiting[0]
            _waiting.clear()
            raise error


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise `TimeUp` inside when `seconds` have passed."""
    before = signal.signal(signal.SIGALRM, lambda *_: strike(time_up(seconds)))
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def time_up(seconds: int) -> TimeUp:
    """Give what a job is told when its time is up."""
    return TimeUp(f"the time limit of {seconds} seconds has passed")


_stops = False


def stop_soon() -> None:
    """Have a long job know that its process was asked to stop, from a signal's handler."""
    global _stops  # noqa: PLW0603 - one process, one answer
    _stops = True


def is_stopping() -> bool:
    """Tell whether this process was asked to stop: what comes in parts ends after the one in hand."""
    return _stops


# --- parents -----------------------------------------------------------------------------------------------


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel send us `number` when our parent ends (Linux), so that no worker outlives its guard."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:  # it died between fork and prctl
        os.kill(os.getpid(), number)


def end_if_forked(owner: int) -> None:
    """End right here if we are not process `owner` but a copy that a user's code forked and let return to us.

    Nothing is flushed or closed: whatever is half written belongs to the owner.
    """
    if os.getpid() != owner:
        os._exit(0)


# --- children ----------------------------------------------------------------------------------------------


def adopt_orphans(*, wanted: bool = True) -> bool:
    """Become the parent of whatever our descendants leave behind, so that nothing hides by detaching itself.

    False where the kernel cannot do that (it is not Linux).
    """
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0) == 0)


@contextmanager
def adopting_orphans() -> Iterator[None]:
    """Adopt orphans inside, for a process that has other things to do afterwards."""
    adopt_orphans()
    try:
        yield
    finally:
        adopt_orphans(wanted=False)


def children(pid: int) -> set[int]:
    """Give the children of a process, dead ones that nobody has buried included; none if it is gone itself.

    A look while some of them end may miss one: whoever must be sure looks again.
    """
    if not _kernel_lists_children():
        return {child for child, parent in _everybody() if parent == pid}
    found: set[int] = set()
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                found.update(map(int, (task / "children").read_text().split()))
    return found


def descendants(pid: int) -> set[int]:
    """Give the children of a process, their children, and so on."""
    found: set[int] = set()
    unseen = [pid]
    while unseen:
        new = children(unseen.pop()) - found
        found |= new
        unseen += new
    return found


@cache
def _kernel_lists_children() -> bool:
    return Path(f"/proc/self/task/{os.getpid()}/children").exists()


def _everybody() -> Iterator[tuple[int, int]]:
    """Give every process with its parent, by the command that every Unix has."""
    asked = subprocess.Popen(["/bin/ps", "-A", "-o", "pid=,ppid="], stdout=subprocess.PIPE, text=True)
    told, _ = asked.communicate()
    for line in told.splitlines():
        pid, parent = map(int, line.split())
        if pid != asked.pid:
            yield pid, parent


def lives(pid: int) -> bool:
    """Tell whether a process of ours runs; one that is dead and not buried yet does not."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def command(pid: int) -> str:
    """Give the command line of a process, in one line; "" when it cannot be told."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return ""
    return " ".join(os.fsdecode(word) for word in words)


# --- ends --------------------------------------------------------------------------------------------------


def end_strays(keep: Collection[int] = (), within: float = 5.0) -> bool:
    """Kill and bury every child of ours but those in `keep`, and all that those leave to us, until none is left.

    False when some did not go `within` so many seconds: what hangs in the kernel ends when that lets it.
    """

    def strays() -> set[int]:
        found = children(os.getpid()) - set(keep)
        return found.union(*map(descendants, found))

    return _end(strays, within)


def started_since(before: Collection[int]) -> set[int]:
    """Give what descends from us, was not there `before` (a set of `descendants`), and has not ended.

    The helpers that Python itself starts for `multiprocessing` do not count: they live as long as we do.
    """
    if not _has_children():
        return set()
    _bury(children(os.getpid()) - set(before))
    return descendants(os.getpid()) - set(before) - _helpers()


def end_started_since(before: Collection[int], within: float = 5.0) -> bool:
    """Kill and bury what descends from us and was not there `before`; False when some did not go."""
    return _end(lambda: started_since(before), within)


def _end(look: Callable[[], set[int]], within: float) -> bool:
    until = time.monotonic() + within
    while left := look():
        if time.monotonic() > until:
            return False
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_EVERY)
        _bury(left)
    return True


def _bury(pids: Collection[int]) -> None:
    """Take the dead among our children off the kernel's list; who is not our child is buried by its parent."""
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _has_children() -> bool:
    """Tell whether we have any child: one call to the kernel, as this is asked for every file."""
    if not hasattr(os, "waitid"):
        return True
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _helpers() -> set[int]:
    """Give the helpers of `multiprocessing`, if a user's code ever used them."""
    tracker = getattr(sys.modules.get("multiprocessing.resource_tracker"), "_resource_tracker", None)
    server = getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None)
    pids = (getattr(tracker, "_pid", None), getattr(server, "_forkserver_pid", None))
    return {pid for pid in pids if pid is not None}
