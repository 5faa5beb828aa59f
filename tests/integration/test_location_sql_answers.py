"""How the sql location tells away, busy and refusing apart, what it finds, and what it keeps secret."""

from __future__ import annotations

import socket
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from etl import errors
from etl.locations import answers, engines
from tests.location_helpers import opened, query, run, unit_file

UNITS = [{"id": 1}, {"id": 2}]


@pytest.fixture
def nobody_listens() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
    return port


def test_a_server_that_does_not_answer_is_away_and_its_password_stays_secret(
    tmp_path: Path, nobody_listens: int
) -> None:
    url = f"postgresql://me:canary77@127.0.0.1:{nobody_listens}/x"
    location = opened(tmp_path, kind="sql", url=url, table="t", create=True)
    with pytest.raises(errors.Away) as away:
        location.load(unit_file(UNITS))
    (finding,) = location.findings()
    assert "cannot be reached" in str(away.value)
    assert "cannot be reached" in finding
    assert "canary77" not in f"{away.value} {finding} {location!r} {vars(location)!r}"


def test_a_sqlite_folder_that_is_not_there_is_away_and_found(tmp_path: Path) -> None:
    location = opened(tmp_path, kind="sql", url="sqlite:///nowhere/x.db", table="t", create=True)
    with pytest.raises(errors.Away):
        location.load(unit_file(UNITS))
    assert "no folder" in location.findings()[0]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("53100", errors.Away),  # disk full
        ("53300", errors.Away),  # too many connections
        ("57P01", errors.Away),  # shutting down
        ("57P03", errors.Away),  # starting up
        ("25006", errors.Away),  # a read-only standby
        ("53200", errors.Retryable),  # out of memory
        ("42501", errors.Refused),  # no right to do that
    ],
)
def test_what_only_the_database_can_put_right_is_away(code: str, expected: type[errors.EtlError]) -> None:
    import psycopg.errors

    answered = answers.CopyError(psycopg.errors.lookup(code)("said by a test"))
    assert type(answers.whole(answered, "here")) is expected


def test_a_sqlite_file_that_may_not_grow_is_away_and_the_load_is_whole_when_it_may(tmp_path: Path) -> None:
    location = opened(tmp_path, kind="sql", url="sqlite:///x.db", table="t", create=True)
    location.load(unit_file(UNITS, part="0001"))

    def small(connection: Any, _record: Any) -> None:
        connection.execute("PRAGMA max_page_count = 8")

    engine = location._engine  # type: ignore[attr-defined]
    location.close()
    sa.event.listen(engine, "connect", small)
    many = [{"id": number} for number in range(20_000)]
    with pytest.raises(errors.Away, match="full"):
        location.load(unit_file(many, part="0002"))
    location.close()
    sa.event.remove(engine, "connect", small)
    assert location.load(unit_file(many, part="0002")).count == 20_000


def test_a_connection_lost_inside_the_transaction_is_away_and_the_next_load_is_whole(
    tmp_path: Path, postgres: str
) -> None:
    location = opened(tmp_path, kind="sql", url=postgres, table="t", create=True)
    location.load(unit_file(UNITS, part="0001"))
    units = unit_file(UNITS, part="0002")

    def cut_off() -> Any:
        yield from units.blocks()
        run(
            postgres,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND datname = current_database()",
        )

    lost = type(units)(**{name: getattr(units, name) for name in units.__slots__} | {"blocks": cut_off})
    with pytest.raises(errors.Away):
        location.load(lost)
    assert location.load(units).count == 2
    assert query(postgres, "SELECT count(*) FROM t") == [(4,)]
    location.close()


def test_a_locked_table_is_tried_again(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "LOCK_TIMEOUT", 1)
    monkeypatch.setitem(engines._CONNECT["pysqlite"], "timeout", 0.1)
    location = opened(tmp_path, kind="sql", url=database_url, table="t", create=True)
    location.load(unit_file(UNITS, part="0001"))
    engine = sa.create_engine(database_url, poolclass=sa.NullPool)
    with engine.connect() as holder:
        if engine.dialect.name == "sqlite":
            holder.connection.driver_connection.isolation_level = None  # type: ignore[union-attr]
            holder.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            holder.exec_driver_sql("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(errors.Retryable, match="tried again") as busy:
            location.load(unit_file(UNITS, part="0002"))
        assert not isinstance(busy.value, errors.Away)
        holder.rollback()
    assert location.load(unit_file(UNITS, part="0002")).count == 2
    location.close()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("this is not a database, " * 100)
    location = opened(tmp_path, kind="sql", url="sqlite:///x.db", table="t", create=True)
    with pytest.raises(errors.Refused, match="not a database"):
        location.load(unit_file(UNITS))
    assert "not a database" in location.findings()[0]


def test_missing_rights_are_refused_and_found(tmp_path: Path, postgres: str) -> None:
    run(
        postgres,
        "CREATE TABLE t (id bigint)",
        "DROP ROLE IF EXISTS reader",
        "CREATE ROLE reader LOGIN",
        "GRANT CREATE ON SCHEMA public TO reader",
        "GRANT SELECT ON t TO reader",
    )
    url = sa.make_url(postgres).set(username="reader").render_as_string(hide_password=False)
    location = opened(tmp_path, kind="sql", url=url, table="t")
    with pytest.raises(errors.Refused, match="permission denied"):
        location.load(unit_file(UNITS))
    assert any("no right to INSERT" in finding for finding in location.findings())
    location.close()
    run(postgres, "DROP OWNED BY reader", "DROP ROLE reader")


def test_findings_name_each_thing_to_fix(tmp_path: Path, database_url: str) -> None:
    run(database_url, "CREATE TABLE t (id bigint, v text)")
    missing = opened(tmp_path, kind="sql", url=database_url, table="nowhere")
    assert "no table 'nowhere'" in missing.findings()[0]
    upsert = opened(
        tmp_path, kind="sql", url=database_url, table="t", mode="upsert", key=["id", "code"], lineage=True
    )
    said = " ".join(upsert.findings())
    assert "no column 'code'" in said
    assert "_etl_file" in said
    assert "unique index on (id, code)" in said
    missing.close()
    upsert.close()


def test_looking_makes_no_database_file(tmp_path: Path) -> None:
    assert opened(tmp_path, kind="sql", url="sqlite:///x.db", table="t", create=True).findings() == []
    assert opened(tmp_path, kind="sql", url="sqlite:///x.db", table="t").findings()
    assert not (tmp_path / "x.db").exists()


def test_a_table_in_a_schema_has_its_bookkeeping_there(tmp_path: Path, postgres: str) -> None:
    run(postgres, "CREATE SCHEMA shop")
    for options in ({}, {"mode": "upsert"}):
        table = f"shop.books_{len(options)}"
        location = opened(tmp_path, kind="sql", url=postgres, table=table, create=True, key="id", **options)
        assert location.load(unit_file(UNITS)).count == 2
        assert location.findings() == []
        location.close()
    assert query(postgres, "SELECT count(*) FROM shop._etl_keys") == [(2,)]


UPSERT = {"url": "sqlite:///x.db", "table": "t", "mode": "upsert"}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no key": (UPSERT | {"lineage": True}, "needs `key`"),
    "no age": (UPSERT | {"key": "id"}, "newest_by"),
    "no url": ({"url": "what", "table": "t"}, "not a database URL"),
    "no driver": ({"url": "oracle://x/y", "table": "t"}, "no driver"),
    "in memory": ({"url": "sqlite://", "table": "t"}, "name a file"),
    "our table": ({"url": "sqlite:///x.db", "table": "_etl_keys"}, "_etl_"),
}


@pytest.mark.parametrize("case", WRONG)
def test_options_that_cannot_work_are_told_at_open(tmp_path: Path, case: str) -> None:
    written, said = WRONG[case]
    with pytest.raises(errors.ConfigError, match=said):
        opened(tmp_path, kind="sql", **written)


def test_relative_sqlite_paths_start_at_the_root(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    location = opened(tmp_path, kind="sql", url="sqlite:///data/x.db", table="t", create=True)
    location.load(unit_file(UNITS))
    location.close()
    with sqlite3.connect(tmp_path / "data/x.db") as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (2,)
    connection.close()
