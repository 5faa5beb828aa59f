"""How the ledger is opened: SQLite beside the data or PostgreSQL by URL, its schema made or brought up to date.

Whatever the database answers with becomes `Unavailable`, never with a password in it. Recorder and scheduler open it
for writing, verbs and metrics for reading; workers never do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from pydantic import SecretStr
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from etl.config.reading import Config
from etl.errors import ConfigError, Unavailable
from etl.ledger import tables

#: seconds to wait for a connection, and for a lock that another holds.
CONNECT_TIMEOUT, LOCK_TIMEOUT = 5, 15
#: execution option of a connection that only looks: on SQLite it takes no write lock.
_LOOKING = "etl_looking"
#: what PostgreSQL is asked to lock while the schema is made: any number nobody else uses.
_MIGRATING = 0x65746C01
_CONNECT: dict[str, dict[str, Any]] = {
    "psycopg": {
        "connect_timeout": CONNECT_TIMEOUT,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 20_000,
        "prepare_threshold": None,  # prepared statements break behind connection poolers
    },
    "pysqlite": {"timeout": LOCK_TIMEOUT},
}


@dataclass(frozen=True, slots=True)
class Ledger:
    """An open ledger: connections for as long as a question or a batch takes."""

    engine: sa.Engine
    #: what messages call it; no password.
    where: str
    secret: str = ""
    #: the file of a SQLite ledger, and which one that was.
    path: Path | None = None
    inode: int = 0

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Give a connection to ask with, or raise `Unavailable`."""
        with self._answered(), self.engine.connect() as connection:
            yield connection.execution_options(**{_LOOKING: True})

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Give a connection whose writes are all made at its end or none is, or raise `Unavailable`."""
        with self._answered(), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def _answered(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            raise _unavailable(error, self) from error

    def is_there(self) -> bool:
        """Tell whether the file that was opened is still the one at its path; a person may have removed it."""
        if self.path is None:
            return True
        try:
            return self.path.stat().st_ino == self.inode
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()


def _unavailable(error: SQLAlchemyError, ledger: Ledger) -> Unavailable:
    original = getattr(error, "orig", None) or error
    said = (str(original).strip() or type(original).__name__).splitlines()[0][:300]
    if ledger.secret:
        said = said.replace(ledger.secret, "***")
    name = str(getattr(original, "sqlite_errorname", ""))
    if name in ("SQLITE_CORRUPT", "SQLITE_NOTADB"):
        todo = f"move {ledger.path} and what begins with its name away: the recorder makes it anew from the folders"
    else:
        todo = "check that the database is up and `ledger:` is right; the pipelines go on without it"
    return Unavailable(f"the ledger {ledger.where} does not answer: {said}", next=todo)


# --- opening -----------------------------------------------------------------------------------------------


def for_reading(config: Config, data_id: str) -> Ledger:
    """Open the ledger to ask it, or raise `Unavailable`: away, never made, another folder's, of a newer version."""
    ledger = _open(config)
    if ledger.path is not None and not ledger.path.exists():
        raise Unavailable(f"there is no ledger {ledger.where} yet", next="start the recorder with: etl up")
    with _closed_if_refused(ledger), ledger.reading() as connection:
        version = _version(connection)
        _must_fit(version, connection, ledger, data_id)
    if version != tables.VERSION:
        ledger.close()
        raise Unavailable(
            f"the ledger {ledger.where} has version {version or 'none'}, this program wants {tables.VERSION}",
            next="start the recorder of this version, with: etl up",
        )
    return ledger


def problem(config: Config, data_id: str) -> str:
    """Say why the recorder could not open the ledger, or "": it answers, or is still to be made; makes nothing."""
    try:
        ledger = _open(config)
        if ledger.path is not None and not ledger.path.exists():
            return ""
        with _closed_if_refused(ledger), ledger.reading() as connection:
            _must_fit(_version(connection), connection, ledger, data_id)
        ledger.close()
    except (ConfigError, Unavailable) as error:
        return str(error)
    return ""


def for_writing(config: Config, data_id: str) -> Ledger:
    """Open the ledger for one who writes it, made or brought up to date first, or raise `Unavailable`."""
    ledger = _open(config)
    if ledger.path is not None:
        try:
            ledger.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Unavailable(f"the folder of the ledger {ledger.where} cannot be made: {error}") from error
    with _closed_if_refused(ledger), ledger.writing() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATING)))
        version = _version(connection)
        _must_fit(version, connection, ledger, data_id)
        for step in STEPS[version:]:
            step(connection)
        if version != tables.VERSION:
            _remember(connection, {"version": str(tables.VERSION), "data": data_id})
    if ledger.path is None:
        return ledger
    return Ledger(ledger.engine, ledger.where, ledger.secret, ledger.path, ledger.path.stat().st_ino)


@contextmanager
def _closed_if_refused(ledger: Ledger) -> Iterator[None]:
    """Leave no connection open to a ledger that is not handed out: who tries again all day would use them up."""
    try:
        yield
    except BaseException:
        ledger.close()
        raise


#: one step from each version to the next; the first makes everything there is by now.
STEPS: Sequence[Callable[[sa.Connection], None]] = (
    tables.metadata.create_all,
    lambda connection: tables.ticks.create(connection, checkfirst=True),
)


def _version(connection: sa.Connection) -> int:
    if not sa.inspect(connection).has_table(tables.about.name):
        return 0
    return int(_about(connection, "version") or 0)


def _about(connection: sa.Connection, key: str) -> str | None:
    found = connection.execute(sa.select(tables.about.c.value).where(tables.about.c.key == key))
    return found.scalar_one_or_none()


def _must_fit(version: int, connection: sa.Connection, ledger: Ledger, data_id: str) -> None:
    if version > tables.VERSION:
        raise Unavailable(
            f"the ledger {ledger.where} was made by a newer version of this program "
            f"({version}, this one knows {tables.VERSION})",
            next="update this host, or name another database in `ledger:`",
        )
    if version and (whose := _about(connection, "data")) != data_id:
        raise Unavailable(
            f"the ledger {ledger.where} belongs to another data folder (its id is {whose}, ours {data_id})",
            next="name another database in `ledger:` of settings.yaml",
        )


def _remember(connection: sa.Connection, facts: dict[str, str]) -> None:
    for key, value in facts.items():
        connection.execute(sa.delete(tables.about).where(tables.about.c.key == key))
        connection.execute(sa.insert(tables.about).values(key=key, value=value))


# --- engines -----------------------------------------------------------------------------------------------


def _open(config: Config) -> Ledger:
    url = _address(config)
    engine = sa.create_engine(
        url,
        pool_size=1,
        max_overflow=1,
        pool_pre_ping=url.get_backend_name() != "sqlite",
        hide_parameters=True,
        connect_args=_CONNECT.get(url.get_driver_name(), {}),
    )
    if url.get_backend_name() != "sqlite":
        sa.event.listen(engine, "begin", _begin_postgres)
        shown = f"{url.host or 'PostgreSQL'}/{url.database or ''}"
        return Ledger(engine, shown, url.password or "")
    sa.event.listen(engine, "connect", _prepare_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    path = Path(str(url.database))
    return Ledger(engine, str(path), path=path)


def _address(config: Config) -> URL:
    written: SecretStr | None = config.settings.ledger
    if written is None:
        return URL.create("sqlite", database=str(config.data / ".etl" / "ledger.db"))
    try:
        url = make_url(written.get_secret_value())
        if url.drivername == "postgresql":
            url = url.set(drivername="postgresql+psycopg")
        url.get_dialect().import_dbapi()
    except (ArgumentError, ValueError, ImportError, sa.exc.NoSuchModuleError):
        # the text of that error may hold a piece of the password
        raise ConfigError(
            "`ledger:` in settings.yaml is not a database we can open",
            next="write sqlite:///data/ledger.db or postgresql+psycopg://user:password@host/name",
        ) from None
    if url.get_backend_name() == "sqlite":
        if url.database in (None, "", ":memory:"):
            raise ConfigError(
                "`ledger:` names a database in memory, which is gone with its process",
                next="name a file: sqlite:///data/ledger.db",
            )
        url = url.set(database=str(config.root / str(url.database)))
    return url


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # transactions begin where we say
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode=WAL")
    # a power loss may take the last batches: they are read again, or seen in the folders
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA cache_size=-32000")


def _begin_sqlite(connection: sa.Connection) -> None:
    # a transaction that reads first and writes later cannot wait for the lock: it fails as busy at once
    looking = connection.get_execution_options().get(_LOOKING)
    connection.exec_driver_sql("BEGIN" if looking else "BEGIN IMMEDIATE")


def _begin_postgres(connection: sa.Connection) -> None:
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}s'")
