"""How Redis is reached: the embedded server or a URL, with short timeouts, and what `etl check` asks of it.

Never shows a password and never imports rq. Called by `app`, by `census`, and by whoever starts a dashboard.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import redis
from pydantic import SecretStr
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from etl import errors
from etl.queues import embedded

#: what `redis:` says when the server is our own.
EMBEDDED = "embedded"
#: seconds until a host that says nothing counts as away; seconds one command may take.
CONNECT_WITHIN, ANSWER_WITHIN = 2.0, 15.0
#: seconds; RQ gives up other workers' jobs by the clock, so clocks must agree.
CLOCK_MAY_DIFFER = 5.0
OLDEST_VERSION = (6, 2)
_EXPECTED = "redis://host:6379/0, rediss://…, unix:///path/to/socket, or the word embedded"


def connect(redis: SecretStr, data: Path) -> AbstractContextManager[redis.Redis]:
    """Open Redis for as long as the context lasts, or raise `Unavailable`; the embedded server is started."""
    if redis.get_secret_value() == EMBEDDED:
        return _connect_embedded(data)
    return _connect_url(redis)


def revive(redis: SecretStr, data: Path) -> None:
    """Bring a killed embedded server back for those who are connected; do nothing for a URL."""
    if redis.get_secret_value() == EMBEDDED:
        embedded.revive(data)


def own_server(redis: SecretStr, data: Path) -> set[int]:
    """Give the process of the embedded server, which may be anybody's child and ends with nobody; {} for a URL."""
    pid = embedded.process_id(data) if redis.get_secret_value() == EMBEDDED else None
    return set() if pid is None else {pid}


@contextmanager
def standing_server(redis: SecretStr, data: Path) -> Iterator[int | None]:
    """Give the process id of the embedded server (0: there is none) while nobody may start or end one, else None.

    For whoever ends processes that nobody looks after: this one is meant to have no parent.
    """
    if redis.get_secret_value() != EMBEDDED:
        yield 0
        return
    with embedded.undisturbed(data) as process:
        yield process


def url(redis: SecretStr, data: Path) -> SecretStr:
    """Give the URL another program (a dashboard, `rq info`) can use while `connect` is open."""
    if redis.get_secret_value() != EMBEDDED:
        return redis
    socket = embedded.running(data)
    if socket is None:
        raise errors.Unavailable(f"No embedded Redis server runs for {data}", next="Start `etl worker` first")
    return SecretStr(f"unix://{socket}")


def findings(connection: redis.Redis, now: Callable[[], float] = time.time) -> list[str]:
    """Name everything about this Redis that would harm us, each with what to do; an empty list is good."""
    found = (_version(connection), _eviction(connection), _clock(connection, now))
    return [finding for finding in found if finding]


def require_fit(connection: redis.Redis) -> None:
    """Make sure this Redis does us no harm before work begins, or raise `Unavailable` with what to do."""
    if problems := findings(connection):
        raise errors.Unavailable("; ".join(problems), next="See `etl check`")


@contextmanager
def _connect_embedded(data: Path) -> Iterator[redis.Redis]:
    with embedded.serve(data) as socket, open_socket(socket) as connection:
        yield connection


@contextmanager
def _connect_url(secret: SecretStr) -> Iterator[redis.Redis]:
    with open_url(secret) as connection:
        _must_answer(connection, _where(secret))
        yield connection


def open_socket(socket: Path) -> redis.Redis:
    """Make a client for the embedded server's socket; nothing is sent yet."""
    return redis.Redis(unix_socket_path=str(socket), **_patience())


def open_url(secret: SecretStr) -> redis.Redis:
    """Make a client for a URL; nothing is sent yet. Refuses what is not a Redis URL without repeating it."""
    _where(secret)
    try:
        return redis.Redis.from_url(secret.get_secret_value(), **_patience())
    except (ValueError, TypeError):
        # the text of that error may hold a piece of the password
        raise _not_a_url() from None


def _patience() -> dict[str, Any]:
    return {
        "socket_connect_timeout": CONNECT_WITHIN,
        "socket_timeout": ANSWER_WITHIN,
        # a command sent twice is harmless here, and waiting long is not
        "retry": Retry(ExponentialBackoff(cap=0.5, base=0.05), 2),
        "health_check_interval": 30,
    }


def _where(secret: SecretStr) -> str:
    """Name host or socket, never user or password."""
    try:
        parts = urlsplit(secret.get_secret_value())
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _not_a_url() from None
    # an unescaped / or # in a password moves the rest of it behind the host
    misread = "@" in parts.path + parts.query + parts.fragment
    if parts.scheme == "unix" and parts.path and not misread:
        return parts.path
    if parts.scheme in ("redis", "rediss") and host and not misread:
        return f"{host}:{port or 6379}"
    raise _not_a_url()


def _not_a_url() -> errors.ConfigError:
    return errors.ConfigError(
        "`redis:` in settings.yaml is not an address we can follow",
        next=f"Write {_EXPECTED}; in a password write @ / # : as %40 %2F %23 %3A",
    )


def _must_answer(connection: redis.Redis, where: str) -> None:
    try:
        connection.ping()
    except redis.exceptions.AuthenticationError as error:
        raise errors.Unavailable(
            f"Redis at {where} does not accept our user or password", next="Correct `redis:` in settings.yaml"
        ) from error
    except (redis.RedisError, OSError) as error:
        raise errors.Unavailable(
            f"Redis at {where} does not answer ({error})",
            next="Start it, correct `redis:` in settings.yaml, or write `redis: embedded` there",
        ) from error


def _version(connection: redis.Redis) -> str:
    text = str(connection.info("server")["redis_version"])
    version = tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
    if version >= OLDEST_VERSION:
        return ""
    return f"Redis {text} is too old: use 6.2 or newer, or any Valkey"


def _eviction(connection: redis.Redis) -> str:
    policy = str(connection.info("memory").get("maxmemory_policy", "noeviction"))
    if policy == "noeviction":
        return ""
    return f"Redis may throw jobs away when memory is short (maxmemory-policy {policy}): set it to noeviction"


def _clock(connection: redis.Redis, now: Callable[[], float]) -> str:
    before = now()
    seconds, microseconds = connection.time()
    ahead = (before + now()) / 2 - (seconds + microseconds / 1e6)
    if abs(ahead) < CLOCK_MAY_DIFFER:
        return ""
    way = "ahead of" if ahead > 0 else "behind"
    return f"This host's clock is {abs(ahead):.0f} s {way} Redis: synchronise both with NTP"
