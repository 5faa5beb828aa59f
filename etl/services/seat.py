"""The supervisor's seat: one per data folder, a lock whose file says who holds it and how its last reload went.

Starts and signals nobody. Taken by the supervisor; read by a second one and by `etl reload`.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from etl import disk
from etl.errors import Unavailable
from etl.services import records

#: how often the lock is tried, and the seconds between: somebody may only be looking at it.
_TRIES, _TRY_EVERY = 10, 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who supervises a data folder."""

    host: str
    pid: int
    #: when it was taken, in ISO format.
    since: str
    #: how many reloads were carried out or refused so far, and why the last one was not carried out ("": it was).
    reloads: int = 0
    said: str = ""
    #: the last reload was refused, and no service was touched.
    refused: bool = False
    #: the services the last reload started anew: name, and the process ids before and after.
    renewed: list[dict[str, str | int]] = field(default_factory=list)

    def __str__(self) -> str:
        return f"process {self.pid} on host {self.host}, since {self.since}"


class Seat:
    """The seat while we hold it."""

    def __init__(self, lock: disk.Lock) -> None:
        self._lock = lock
        since = datetime.now(UTC).isoformat(timespec="seconds")
        self._holder = Holder(host=records.host(), pid=os.getpid(), since=since)
        self._write()

    def reloaded(self, said: str, renewed: Sequence[dict[str, str | int]]) -> None:
        """Tell what a reload started anew, and what went wrong with it ("": nothing)."""
        self._tell(said=said, renewed=list(renewed), refused=False)

    def refused(self, why: str) -> None:
        """Tell that a reload touched nothing, and why."""
        self._tell(said=why, renewed=[], refused=True)

    def _tell(self, *, said: str, renewed: list[dict[str, str | int]], refused: bool) -> None:
        self._holder = replace(
            self._holder, reloads=self._holder.reloads + 1, said=said, renewed=renewed, refused=refused
        )
        self._write()

    def _write(self) -> None:
        text = json.dumps(asdict(self._holder)).encode() + b"\n"
        os.pwrite(self._lock.descriptor, text, 0)
        os.ftruncate(self._lock.descriptor, len(text))

    def __enter__(self) -> Seat:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


def take(data: Path) -> Seat:
    """Take the seat of a data folder, or raise `Unavailable` with who holds it."""
    disk.make_folder(data / ".etl")
    for _ in range(_TRIES):
        if lock := disk.lock_path(_path(data)):
            return Seat(lock)
        time.sleep(_TRY_EVERY)
    who = holder(data)
    raise Unavailable(
        f"A supervisor runs on {data} already: {who or 'its lock is held'}",
        next="Stop that one first, or see what it does with: etl status. More workers for the same folder are "
        "started with: etl service workers",
    )


def holder(data: Path) -> Holder | None:
    """Tell who supervises a data folder; None when nobody does."""
    try:
        descriptor = os.open(_path(data), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        for _ in range(_TRIES):
            with suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return None
            # it may be being written right now
            with suppress(ValueError, TypeError):
                return Holder(**json.loads(os.pread(descriptor, 1 << 20, 0)))
            time.sleep(_TRY_EVERY)
        return None
    finally:
        os.close(descriptor)


def _path(data: Path) -> Path:
    return data / ".etl" / "supervisor.lock"
