"""The memory of notices is opened: by one process at a time, and made anew where it is lost or damaged.

What it holds is `noticed`'s. Called by the watch.
"""

from __future__ import annotations

import logging
import secrets
import sqlite3
from contextlib import suppress
from pathlib import Path

from etl import disk, points
from etl.files.layout import Layout
from etl.files.noticed import Noticed, as_os_error
from etl.points import Point

log = logging.getLogger(__name__)

#: of the tables; a memory of another version is made anew.
_VERSION = 1
_TABLES = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE failure(
    pipeline TEXT NOT NULL, place TEXT NOT NULL, name BLOB NOT NULL, stamp TEXT NOT NULL, word TEXT NOT NULL,
    moved REAL NOT NULL, at REAL NOT NULL, seen REAL NOT NULL, gone REAL NOT NULL DEFAULT 0,
    told INTEGER NOT NULL DEFAULT 0, urgency TEXT NOT NULL, held INTEGER NOT NULL, of INTEGER NOT NULL,
    PRIMARY KEY (place, name, stamp, word)) WITHOUT ROWID;
CREATE INDEX untold ON failure(pipeline, word) WHERE told = 0;
CREATE INDEX of_word ON failure(word, gone);
CREATE TABLE cause(
    word TEXT PRIMARY KEY, pipeline TEXT NOT NULL, place TEXT NOT NULL, cause TEXT NOT NULL,
    open INTEGER NOT NULL DEFAULT 0, gone REAL NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE TABLE mail(
    number INTEGER PRIMARY KEY, audience TEXT NOT NULL, at REAL NOT NULL, at_once INTEGER NOT NULL,
    items TEXT NOT NULL);
CREATE TABLE away(place TEXT PRIMARY KEY, since REAL NOT NULL) WITHOUT ROWID;
"""


def folder(layout: Layout) -> Path:
    """Where the memory and its lock lie."""
    return layout.own / "notices"


def lock(layout: Layout) -> disk.Lock | None:
    """Become the one who watches; None while another does."""
    disk.make_folder(folder(layout))
    return disk.lock_path(folder(layout) / "lock")


def load(layout: Layout, now: float) -> Noticed:
    """Open the memory, made anew where it is lost or damaged; the caller holds the lock."""
    path = folder(layout) / "noticed.db"
    with suppress(sqlite3.DatabaseError):
        return _opened(path, now)
    log.warning("%s is damaged: it is made anew", path, extra={"event": "notices_anew"})
    with points.effect(Point.NOTICED):
        # whoever wants to know how it broke finds it; its journal would be played into the new one
        path.replace(path.with_suffix(".damaged"))
        path.with_name(f"{path.name}-journal").unlink(missing_ok=True)
    return _opened(path, now)


def _opened(path: Path, now: float) -> Noticed:
    with as_os_error(path):
        connection = sqlite3.connect(path, isolation_level=None, timeout=10)
        try:
            connection.execute("PRAGMA synchronous = FULL")
            (check,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if check != "ok":
                raise sqlite3.DatabaseError(check)  # noqa: TRY301
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version not in (0, _VERSION):
                raise sqlite3.DatabaseError(f"version {version}")  # noqa: TRY301
            if not version:
                _make(connection, now)
            return Noticed(path, connection)
        except BaseException:
            connection.close()
            raise


def _make(connection: sqlite3.Connection, now: float) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for table in _TABLES.split(";"):
        connection.execute(table)
    facts = [("token", secrets.token_hex(4)), ("since", repr(now))]
    connection.executemany("INSERT INTO meta VALUES (?,?)", facts)
    connection.execute(f"PRAGMA user_version = {_VERSION}")
    with points.effect(Point.NOTICED):
        connection.execute("COMMIT")
