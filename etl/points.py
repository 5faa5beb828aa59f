"""The named points: every effect on the data tree or a location passes one, so that a test can strike right there.

Ends the process or has the disk answer with an error, as `ETL_CRASH_AT` says; without it, it does nothing.
Standard library only. Passed by `disk` and by whoever makes an effect of its own.
"""

from __future__ import annotations

import errno
import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import cache


class Point(StrEnum):
    """Every place where a crash could leave something half done. `tests/` kills a process at each of them."""

    NOTE_SOURCE = "note-source"
    NOTE_ATTEMPT = "note-attempt"
    NOTE_COMMIT = "note-commit"
    NOTE_FAIL = "note-fail"
    NOTE_PUT_OFF = "note-put-off"
    NOTE_DEATH = "note-death"
    NOTE_REQUEST = "note-request"
    CLAIM = "claim"
    SUPERSEDE = "supersede"
    STAGE_CHILD = "stage-child"
    STAGE_COMMIT = "stage-commit"
    COMMIT = "commit"
    RELEASE_CHILD = "release-child"
    ANNOUNCE = "announce"
    RESOLVE = "resolve"
    CLEAR_OUTBOX = "clear-outbox"
    REASON = "reason"
    FAIL = "fail"
    PUT_OFF = "put-off"
    RECOVER = "recover"
    ARRIVE = "arrive"
    AFTER = "after"
    DISCARD = "discard"
    LIFT = "lift"
    USE_UP = "use-up"
    LOCATION_WRITE = "location-write"
    LOCATION_COMMIT = "location-commit"
    MARK_AWAY = "mark-away"
    MARK_BACK = "mark-back"
    KEY_WAIT = "key-wait"
    MARK_PAUSED = "mark-paused"
    MARK_RESUMED = "mark-resumed"
    NOTE_UNSERVED = "note-unserved"
    UNSERVED_CLEAR = "unserved-clear"
    SPOOL = "spool"
    NOTE_VERDICT = "note-verdict"
    FOLLOW = "follow"
    LOG = "log"
    NEWS = "news"
    ACT = "act"
    EXPECTED = "expected"
    NOTE_AGAIN = "note-again"
    REPLAY_STAGE = "replay-stage"
    REPLAY_NOTE = "replay-note"
    REPLAY = "replay"
    SCHEDULE_CLAIM = "schedule-claim"
    SCHEDULE_EFFECT = "schedule-effect"
    SCHEDULE_DONE = "schedule-done"
    SCHEDULE_REGISTER = "schedule-register"
    DASHBOARD = "dashboard"
    NOTICED = "noticed"
    CLEAN_ASK = "clean-ask"
    CLEAN_PLAN = "clean-plan"
    CLEAN_REMOVE = "clean-remove"
    CLEAN_NOTE = "clean-note"
    CLEAN_END = "clean-end"
    ARCHIVE_WRITE = "archive-write"
    ARCHIVE_MANIFEST = "archive-manifest"
    ARCHIVE_COMMIT = "archive-commit"
    ARCHIVE_EXPIRE = "archive-expire"


#: what to do where, set by tests only: `claim:before` or `claim:after` ends the process there, `*` stands for every
#: point; with `=ENOSPC` the disk answers so instead; with `#3` the third time, `#*` every time, `%0.001` by chance.
#: Several are separated by commas.
crash_at = os.environ.get("ETL_CRASH_AT", "")
#: a file to which each fault is added before it strikes.
_log = os.environ.get("ETL_CRASH_LOG", "")
#: how often each point that is wanted was passed.
reached: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class _Fault:
    where: str
    error: str
    times: str
    chance: float

    def strikes(self, here: str) -> bool:
        """Tell whether it is to strike now, at a point that is its own."""
        if self.chance:
            return random.random() < self.chance  # noqa: S311 - a die, not a secret
        return self.times == "*" or reached[here] == int(self.times or 1)


@cache
def _faults(text: str) -> tuple[_Fault, ...]:
    faults = []
    for one in text.split(","):
        rest, _, chance = one.partition("%")
        rest, _, times = rest.partition("#")
        where, _, error = rest.partition("=")
        faults.append(_Fault(where, error, times, float(chance or 0)))
    return tuple(faults)


def _reach(here: str) -> None:
    faults = [fault for fault in _faults(crash_at) if fault.where in (here, "*")]
    if faults:
        reached[here] = reached.get(here, 0) + 1
    for fault in faults:
        if fault.strikes(here):
            _strike(here, fault.error)


def _strike(here: str, error: str) -> None:
    if _log:
        with open(_log, "a", encoding="ascii") as log:  # noqa: PTH123 - as early and as little as can be
            log.write(f"{error or 'SIGKILL'} {here}\n")
    if not error:
        os.kill(os.getpid(), signal.SIGKILL)
    code = getattr(errno, error)
    raise OSError(code, os.strerror(code), here)


@contextmanager
def effect(point: Point) -> Iterator[None]:
    """Mark the effect made inside as `point`, so that a crash right before and right after it can be tried."""
    if not crash_at:
        yield
        return
    _reach(f"{point}:before")
    yield
    _reach(f"{point}:after")
