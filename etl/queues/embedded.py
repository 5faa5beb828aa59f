"""A real Valkey server of our own: one per data folder whoever starts it, ended by the last who leaves.

The server listens on a Unix socket in a private folder and never on a port. It holds a lock of its own for as
long as it lives, so nobody has to guess from process ids. Called by `connection` and `census`.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import redis

from etl import disk, errors
from etl.queues import launch, private
from etl.queues.private import USE_A_URL

#: seconds a server may take to write everything down and end.
END_WITHIN = 30.0


@contextmanager
def serve(data: Path) -> Iterator[Path]:
    """Give the socket of this data folder's server, started if need be; end it if nobody else needs it."""
    home = _home(data)
    with _exclusive(data):
        socket = _ensure(data, home)
        users = _join(data)
    try:
        yield socket
    finally:
        with _exclusive(data):
            if _is_last(users):
                _end(data, home, socket)
            users.release()


def revive(data: Path) -> None:
    """Start the server again if it was killed; whoever calls this is inside `serve`."""
    with _exclusive(data):
        _ensure(data, _home(data))


def running(data: Path) -> Path | None:
    """Give the socket of a server that runs, or None; never starts one."""
    socket = _pointed(data)
    return socket if socket and _answers_for(data / ".etl" / "redis", socket) else None


def process_id(data: Path) -> int | None:
    """Give the process of the server that was last started, or None; whoever ends processes spares it."""
    told = _process_id(data / ".etl" / "redis")
    return int(told) if told.isdigit() else None


@contextmanager
def undisturbed(data: Path) -> Iterator[int | None]:
    """Give the process id of the server (0: none is known) while nobody may start or end one.

    None, at once, when somebody does just that.
    """
    lock = disk.lock_path(data / ".etl" / "redis.lock")
    if lock is None:
        yield None
        return
    with lock:
        yield process_id(data) or 0


# --- who needs it ------------------------------------------------------------------------------------------


def _home(data: Path) -> Path:
    home = data.resolve() / ".etl" / "redis"
    try:
        disk.make_folder(home)
    except OSError as error:
        raise _refused(data, error) from error
    return home


def _exclusive(data: Path) -> disk.Lock:
    """Let one process at a time start or end the server."""
    try:
        return disk.wait_for_lock(data / ".etl" / "redis.lock")
    except OSError as error:
        raise _refused(data, error) from error


def _refused(data: Path, error: OSError) -> errors.Unavailable:
    return errors.Unavailable(
        f"The embedded Redis server needs to write in {data / '.etl'}: {error.strerror}",
        next=f"Run as the user who owns that folder, or correct its permissions. {USE_A_URL}",
    )


def _join(data: Path) -> disk.Lock:
    """Say that we need the server, in a way the kernel takes back when we die."""
    descriptor = os.open(data / ".etl" / "redis.users", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o664)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return disk.Lock(descriptor)


def _is_last(users: disk.Lock) -> bool:
    try:
        fcntl.flock(users.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# --- start and end -----------------------------------------------------------------------------------------


def _ensure(data: Path, home: Path) -> Path:
    """Give the socket of a server that answers: the one that runs, or a new one."""
    until = time.monotonic() + launch.ANSWER_WITHIN
    while True:
        # the server inherits this lock: while anybody has it, a server lives on this append-only file
        try:
            alive = disk.lock_path(home / "server.lock")
        except OSError as error:
            raise _refused(data, error) from error
        if alive is not None:
            return _start(data, home, alive)
        if socket := _survivor(data, home):
            return socket
        if time.monotonic() > until:
            raise _silent(data, home)
        time.sleep(launch.TRY_EVERY)  # one that was killed just now takes a moment to be gone


def _start(data: Path, home: Path, alive: disk.Lock) -> Path:
    with alive:
        socket = private.socket_path(data, last=_pointed(data))
        socket.unlink(missing_ok=True)
        launch.launch(home, socket, alive.descriptor)
    try:
        launch.wait_until_it_answers(home, socket)
    except errors.Unavailable:
        _clear_if_ended(data, home, socket)
        raise
    (data / ".etl" / "redis.socket").write_text(f"{socket}\n")
    return socket


def _survivor(data: Path, home: Path) -> Path | None:
    """Give the socket of a server that runs and answers, also if whoever started it crashed."""
    # killed before the pointer was written, the server still listens where we would have put it
    places = filter(None, (_pointed(data), private.socket_path(data)))
    return next((socket for socket in places if _answers_for(home, socket)), None)


def _silent(data: Path, home: Path) -> errors.Unavailable:
    return errors.Unavailable(
        f"The embedded Redis server of {data} runs (process {_process_id(home)}) but does not answer here",
        next=f"It may belong to another user or host; otherwise end that process. {USE_A_URL}",
    )


def _pointed(data: Path) -> Path | None:
    try:
        return Path((data / ".etl" / "redis.socket").read_text().strip())
    except OSError:
        return None


def _answers_for(home: Path, socket: Path) -> bool:
    """Tell whether the server at `socket` is this data folder's, not the one of a copied folder."""
    with suppress(redis.RedisError, OSError), launch.client(socket) as client:
        return Path(client.config_get("dir")["dir"]).samefile(home)
    return False


def _process_id(home: Path) -> str:
    with suppress(OSError):
        return (home / "server.pid").read_text().strip()
    return "unknown"


def _end(data: Path, home: Path, socket: Path) -> None:
    """Have the server write everything down and end, and leave nothing of it outside its folder."""
    with suppress(redis.RedisError, OSError), launch.client(socket) as client:
        client.shutdown()
    until = time.monotonic() + END_WITHIN
    while not _clear_if_ended(data, home, socket) and time.monotonic() < until:
        time.sleep(launch.TRY_EVERY)


def _clear_if_ended(data: Path, home: Path, socket: Path) -> bool:
    """Remove pointer, socket and private folder once no server has the lock; tell whether that is so."""
    ended = disk.lock_path(home / "server.lock")
    if ended is None:
        return False
    with ended, suppress(OSError):
        (data / ".etl" / "redis.socket").unlink(missing_ok=True)
        socket.unlink(missing_ok=True)
        socket.parent.rmdir()
    return True
