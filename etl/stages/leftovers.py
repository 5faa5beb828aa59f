"""What a handler starts it must end: nothing it started runs any more when its file is committed or fails.

Looks only at what was started meanwhile, never at other children of this process. Called by transform, around
everything in which a user's code runs.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from etl import process
from etl.errors import Final
from etl.files import names

log = logging.getLogger(__name__)

#: seconds given to processes that are just ending.
GRACE = 0.5
_LOOK_EVERY = 0.01
#: characters of a command line, and commands, that a reason shows.
_LONGEST, _MOST = 60, 5


@contextmanager
def none_left(*, discreet: bool) -> Iterator[None]:
    """Raise `Final` if processes started inside still run at its end; they are ended in any case.

    With `discreet`, programs are named without their arguments, which may hold what the pipeline redacts.
    """
    before = process.descendants(os.getpid())
    try:
        yield
    except BaseException:  # it ends for another reason, and what it left ends all the same
        with process.undisturbed():
            process.end_started_since(before)
        raise
    with process.undisturbed():
        left = _commands(_lasting(before), discreet)
        process.end_started_since(before)
    if left:
        raise _left_running(left)


def _lasting(before: Collection[int]) -> set[int]:
    """Give what was started and is not just about to end."""
    until = time.monotonic() + GRACE
    while (left := process.started_since(before)) and time.monotonic() < until:
        time.sleep(_LOOK_EVERY)
    return left


def _commands(pids: Collection[int], discreet: bool) -> list[str]:
    own = process.command(os.getpid())
    told = []
    for pid in sorted(pids):
        command = process.command(pid)
        if command and command == own:
            command = "a fork of the worker itself"
        elif discreet:
            command = command.partition(" ")[0]
        told.append(names.printable(command)[:_LONGEST] or "a process")
    return told


def _left_running(commands: list[str]) -> Final:
    shown = ", ".join(commands[:_MOST]) + (", …" if len(commands) > _MOST else "")
    count, ended = ("1 process", "it was ended") if len(commands) == 1 else (
        f"{len(commands)} processes", "they were ended"
    )  # fmt: skip
    log.warning("the handler left %s running (%s); %s", count, shown, ended, extra={"event": "left_running"})
    return Final(
        f"the handler left {count} running ({shown}); {ended}",
        next="a handler must end what it starts: wait for it (subprocess.run, join) before it returns, "
        "then move the file back",
    )
