"""How a database is connected to: the URL as written, its driver, time limits, and when a transaction begins.

Makes engines and opens no connection; tables are nothing to this module. Called by the sql location.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

#: seconds to wait for a connection.
CONNECT_TIMEOUT = 5
#: seconds to wait for a lock that another transaction holds.
LOCK_TIMEOUT = 30
#: execution option of a connection that only looks: on SQLite it takes no write lock.
LOOKING = "etl_looking"

#: a host that vanished without a word must not hold a job for the quarter of an hour that TCP is patient.
_LIBPQ: dict[str, Any] = {
    "connect_timeout": CONNECT_TIMEOUT,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
_CONNECT: dict[str, dict[str, Any]] = {
    # server-side prepared statements break behind connection poolers
    "psycopg": {**_LIBPQ, "prepare_threshold": None},
    "psycopg2": _LIBPQ,
    "pymysql": {"connect_timeout": CONNECT_TIMEOUT},
    "mysqldb": {"connect_timeout": CONNECT_TIMEOUT},
    "pysqlite": {"timeout": LOCK_TIMEOUT},
}


def address(written: str) -> URL:
    """Read a database URL, or raise ValueError saying what is wrong with it, never repeating a password."""
    try:
        url = make_url(written)
    except (ArgumentError, ValueError):
        raise ValueError(
            "not a database URL: write it like postgresql+psycopg://user:password@host/name"
        ) from None
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise ValueError(
            "a SQLite database in memory is gone with its process: name a file, sqlite:///data/name.db"
        )
    try:
        url.get_dialect().import_dbapi()
    except (ImportError, sa.exc.NoSuchModuleError):
        raise ValueError(f"no driver for {url.drivername!r} is installed: `pip install` it") from None
    return url


def placed(url: URL, root: Path) -> URL:
    """Let a relative SQLite path start at `root`."""
    database = url.database or ""
    if url.get_backend_name() != "sqlite" or database.startswith("file:"):
        return url
    return url.set(database=str(root / database))


def open_engine(url: URL) -> sa.Engine:
    """Make an engine for `url`; the first use connects."""
    engine = sa.create_engine(
        url,
        pool_size=1,
        max_overflow=1,
        pool_pre_ping=True,
        hide_parameters=True,
        connect_args=_CONNECT.get(url.get_driver_name(), {}),
        json_serializer=lambda value: orjson.dumps(value).decode(),
    )
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", _prepare_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
    elif engine.dialect.name == "postgresql":
        sa.event.listen(engine, "begin", _begin_postgres)
    return engine


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # transactions begin where we say, so that SAVEPOINT and CREATE TABLE are part of them
    connection.isolation_level = None
    try:
        connection.execute("PRAGMA journal_mode=WAL")
    except sqlite3.OperationalError:
        # another process is switching it right now, or the file is read-only: either way it can be used
        pass


def _begin_sqlite(connection: sa.Connection) -> None:
    # a transaction that reads first and writes later cannot wait for the lock: it fails as busy at once
    looking = connection.get_execution_options().get(LOOKING)
    connection.exec_driver_sql("BEGIN" if looking else "BEGIN IMMEDIATE")


def _begin_postgres(connection: sa.Connection) -> None:
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}s'")
