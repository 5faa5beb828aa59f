"""Records of running services: one small file each, locked by its service for as long as that lives.

Who reads them tells the living from the dead by that lock alone, and removes the records of the dead. Imports
little, because `etl status` reads them. Held by everything that keeps running.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from etl import disk

log = logging.getLogger(__name__)

#: seconds after which a record that was never put in its place belongs to somebody who died over it.
LEFT_BEHIND = 60.0
_LONGEST = 4096


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Record:
    """One service that runs."""

    name: str
    host: str
    pid: int
    #: seconds since 1970.
    started: float
    #: how often the supervisor had to start it again.
    restarts: int = 0


def host() -> str:
    """Give the name by which this host is known."""
    return os.uname().nodename


@contextmanager
def held(data: Path, name: str, *, restarts: int = 0) -> Iterator[Record]:
    """Keep the record of a service of this process while it lives."""
    record = Record(name=name, host=host(), pid=os.getpid(), started=time.time(), restarts=restarts)
    try:
        path, lock = _put(_folder(data), record)
    except OSError as error:  # a full disk is no reason not to run
        log.warning("%s runs and is not shown in `etl status`: %s", name, error, extra={"event": "no_record"})
        yield record
        return
    with lock:
        try:
            yield record
        finally:
            path.unlink(missing_ok=True)


def living(data: Path) -> list[Record]:
    """Give the services that run on this data folder, here and on other hosts; bury the dead."""
    try:
        paths = [Path(entry) for entry in os.scandir(_folder(data))]
    except FileNotFoundError:
        return []
    for path in paths:
        if path.suffix == ".writing":
            _forget_if_left_behind(path)
    found = (_look(path) for path in paths if path.suffix == ".json" and not path.name.startswith("."))
    return sorted(record for record in found if record is not None)


def _folder(data: Path) -> Path:
    return data / ".etl" / "services"


def _put(folder: Path, record: Record) -> tuple[Path, disk.Lock]:
    """Make a record aside, lock it, then rename it into place: nobody ever sees it without its lock."""
    disk.make_folder(folder)
    stem = f"{record.name}.{record.host}.{record.pid}"
    aside = folder / f".{stem}.{secrets.token_hex(4)}.writing"
    lock = disk.lock_path(aside)
    assert lock is not None, "a name of our own"
    os.write(lock.descriptor, json.dumps(asdict(record)).encode())
    # two containers may have one host name and one process id; the record of a dead namesake is removed
    for number in range(1, 1000):
        path = folder / (f"{stem}.json" if number == 1 else f"{stem}-{number}.json")
        _look(path)
        with suppress(FileExistsError):
            disk.rename(aside, path)
            return path, lock
    raise FileExistsError(f"{stem}.json")


def _look(path: Path) -> Record | None:
    """Give a record whose owner lives; remove one whose owner died."""
    try:
        descriptor = _open(path)
    except FileNotFoundError:
        return None
    try:
        # shared, so that two who look at once do not take each other for the owner
        if not _locked(descriptor, fcntl.LOCK_SH):
            return _parsed(os.pread(descriptor, _LONGEST, 0))
        # alone, and only if the name still leads here: a successor may have taken the name
        if _locked(descriptor, fcntl.LOCK_EX) and disk.same_file(path, descriptor):
            with suppress(FileNotFoundError, PermissionError):
                path.unlink()
        return None
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    try:
        # NFS grants an exclusive lock only on a descriptor that may write
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except PermissionError:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _locked(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _parsed(text: bytes) -> Record | None:
    try:
        return Record(**json.loads(text))
    except (ValueError, TypeError):
        return None


def _forget_if_left_behind(path: Path) -> None:
    with suppress(OSError):
        if time.time() - path.stat().st_mtime > LEFT_BEHIND:
            path.unlink()
