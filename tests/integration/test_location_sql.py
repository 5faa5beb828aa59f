"""What the sql location does with a table: makes it, keeps bad units out of it, and is in it exactly once."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from etl import errors
from etl.model import UnitFile
from tests.location_helpers import FILE, LATER_FILE, opened, query, run, start_load, unit_file

BOOKS = [{"isbn": str(number), "price": number} for number in range(50)]


def many(count: int = 1000) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"name {number}", "price": number / 4} for number in range(count)]


def test_a_table_is_made_from_the_schema(tmp_path: Path, database_url: str) -> None:
    schema = {
        "properties": {
            "isbn": {"type": "string"},
            "pages": {"type": ["integer", "null"]},
            "price": {"type": "number"},
            "sold": {"type": "boolean"},
            "published": {"type": "string", "format": "date"},
            "seen": {"type": "string", "format": "date-time"},
            "tags": {"type": "array"},
        }
    }
    unit = {
        "isbn": "1",
        "pages": None,
        "price": 9.5,
        "sold": True,
        "published": "2026-11-18",
        "seen": "2026-11-18T10:00:00+02:00",
        "tags": ["a", {"b": "ü"}],
        "extra": 7,
    }
    location = opened(tmp_path, kind="sql", url=database_url, table="books", create=True, key="isbn")
    assert location.load(unit_file([unit], schema=schema)).count == 1
    engine = sa.create_engine(database_url, poolclass=sa.NullPool)
    table = sa.Table("books", sa.MetaData(), autoload_with=engine)
    with engine.connect() as connection:
        (row,) = connection.execute(sa.select(table))
    found = row._asdict()
    assert (found["isbn"], found["pages"], found["price"], found["sold"], found["extra"]) == (
        "1",
        None,
        9.5,
        True,
        7,
    )
    assert str(found["published"]) == "2026-11-18"
    seen = found["seen"] if found["seen"].tzinfo else found["seen"].replace(tzinfo=UTC)
    assert seen == datetime(2026, 11, 18, 8, tzinfo=UTC)
    assert found["tags"] == ["a", {"b": "ü"}]
    assert (found["_etl_file"], found["_etl_generation"], found["_etl_line"]) == ("01k3f9a2m1qz7hd4", 1, 2)
    assert [column.name for column in table.primary_key] == ["isbn"]
    assert location.findings() == []
    location.close()


def test_a_table_is_made_from_the_first_values_where_there_is_no_schema(
    tmp_path: Path, database_url: str
) -> None:
    units = [
        {"n": 1, "x": 1, "odd 'name'; --%s": "a", "nested": {"k": [1]}, "mixed": 1, "nothing": None},
        {"n": 2, "x": 1.5, "odd 'name'; --%s": "b", "nested": None, "mixed": "two", "nothing": None},
    ]
    location = opened(tmp_path, kind="sql", url=database_url, table="t", create=True)
    assert location.load(unit_file(units)).count == 2
    assert query(database_url, 'SELECT n, x, mixed, "nothing" FROM t ORDER BY n') == [
        (1, 1.0, "1", None),
        (2, 1.5, "two", None),
    ]
    assert query(database_url, "SELECT count(*) FROM t WHERE nested IS NULL") == [(1,)]
    assert location.load(unit_file(units, part="0002")).count == 2
    location.close()


def test_units_of_several_shapes_go_into_one_table(tmp_path: Path, database_url: str) -> None:
    units = [{"a": 1, "b": 2}, {"b": 3}, {"a": 4}, {"b": 5, "a": 6}]
    for options in ({"table": "t"}, {"table": "u", "mode": "upsert", "key": "b"}):
        location = opened(tmp_path, kind="sql", url=database_url, create=True, **options)
        units = [unit for unit in units if "b" in unit or options["table"] == "t"]
        assert location.load(unit_file(units)).count == len(units)
        location.close()
    assert query(database_url, "SELECT a, b FROM t ORDER BY _etl_line") == [
        (1, 2),
        (None, 3),
        (4, None),
        (6, 5),
    ]
    assert query(database_url, "SELECT a, b FROM u ORDER BY _etl_line") == [(1, 2), (None, 3), (6, 5)]


def test_two_locations_of_one_pipeline_share_a_database(tmp_path: Path, database_url: str) -> None:
    for table in ("raw", "copy_of_raw"):
        location = opened(tmp_path, table, kind="sql", url=database_url, table=table, create=True)
        assert location.load(unit_file(BOOKS)).count == 50
        location.close()


BAD: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "check": ("CHECK (price >= 0)", {"price": -1}, None),
    "not null": ("", {"name": None}, "name"),
    "unique": ("", {"id": 5}, None),
    "type": ("", {"day": "not a day"}, None),
}


@pytest.mark.parametrize(
    ("wrong", "mode"),
    # in upsert a second unit of one key is not wrong: it is an update
    [
        (wrong, mode)
        for wrong in BAD
        for mode in ("append", "upsert")
        if (wrong, mode) != ("unique", "upsert")
    ],
)
def test_three_bad_units_of_a_thousand_are_kept_out_in_few_statements(
    tmp_path: Path, database_url: str, wrong: str, mode: str
) -> None:
    check, change, field = BAD[wrong]
    run(
        database_url,
        "CREATE TABLE t (id bigint PRIMARY KEY, name text NOT NULL, price float, day date,"
        f" _etl_file text, _etl_generation integer, _etl_line bigint {',' if check else ''} {check})",
    )
    units = [unit | {"day": "2026-11-18"} for unit in many()]
    for number in (17, 500, 999):
        units[number] = units[number] | change
    location = opened(tmp_path, kind="sql", url=database_url, table="t", lineage=True, mode=mode, key="id")
    savepoints: list[str] = []
    sa.event.listen(location._engine, "savepoint", lambda _connection, name: savepoints.append(name))  # type: ignore[attr-defined]
    loaded = location.load(unit_file(units))
    assert loaded.count == 997
    assert [(trouble.unit, trouble.line) for trouble in loaded.rejected] == [
        (17, 19),
        (500, 502),
        (999, 1001),
    ]
    assert all(
        trouble.cause and "\n" not in trouble.cause and "INSERT" not in trouble.cause
        for trouble in loaded.rejected
    )
    if field:
        assert {trouble.field for trouble in loaded.rejected} == {field}
    assert len(savepoints) < 80
    assert query(database_url, "SELECT count(*) FROM t") == [(997,)]
    again = location.load(unit_file(units))
    assert (again.count, again.before, again.rejected) == (0, True, loaded.rejected)
    location.close()


@pytest.mark.parametrize(
    "value", ["nul \0 inside", 2**70, {"a": 1}, "x" * 20], ids=["nul", "huge", "nested", "long"]
)
def test_a_value_the_database_cannot_hold_costs_its_unit_only(
    tmp_path: Path, postgres: str, value: Any
) -> None:
    run(postgres, "CREATE TABLE t (id bigint, name varchar(10))")
    units: list[dict[str, Any]] = [{"id": number, "name": "short"} for number in range(100)]
    units[40]["name" if isinstance(value, str) else "id"] = value
    location = opened(tmp_path, kind="sql", url=postgres, table="t")
    loaded = location.load(unit_file(units))
    assert (loaded.count, [trouble.unit for trouble in loaded.rejected]) == (99, [40])
    location.close()


def test_a_number_too_large_for_sqlite_costs_its_unit_only(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"
    location = opened(tmp_path, kind="sql", url="sqlite:///x.db", table="t", create=True)
    loaded = location.load(unit_file([{"id": 1}, {"id": 2**70}, {"id": 3}]))
    assert (loaded.count, [trouble.unit for trouble in loaded.rejected]) == (2, [1])
    assert query(url, "SELECT id FROM t ORDER BY id") == [(1,), (3,)]
    location.close()


@pytest.mark.parametrize("bad", [range(0, 1000, 8), range(1000)], ids=["an eighth", "all"])
def test_too_many_bad_units_refuse_the_whole_file(tmp_path: Path, database_url: str, bad: range) -> None:
    run(database_url, "CREATE TABLE t (id bigint, name text, price float CHECK (price >= 0))")
    units = [unit | {"price": -1} if number in bad else unit for number, unit in enumerate(many())]
    location = opened(tmp_path, kind="sql", url=database_url, table="t")
    with pytest.raises(errors.Refused, match="too many") as refused:
        location.load(unit_file(units))
    assert len(refused.value.where) == 10
    assert query(database_url, "SELECT count(*) FROM t") == [(0,)]
    assert query(database_url, "SELECT count(*) FROM _etl_keys") == [(0,)]
    location.close()


def test_a_key_conflict_in_append_holds_the_later_unit_back(tmp_path: Path, database_url: str) -> None:
    location = opened(tmp_path, kind="sql", url=database_url, table="t", create=True, key="id")
    loaded = location.load(unit_file([{"id": 1, "v": "first"}, {"id": 1, "v": "second"}]))
    assert (loaded.count, [trouble.unit for trouble in loaded.rejected]) == (1, [1])
    assert query(database_url, "SELECT v FROM t") == [("first",)]
    location.close()


def test_an_older_file_never_overwrites_a_newer_one(tmp_path: Path, database_url: str) -> None:
    location = opened(tmp_path, kind="sql", url=database_url, table="t", create=True, mode="upsert", key="id")
    location.load(unit_file([{"id": 1, "v": "B"}, {"id": 2, "v": "B"}], file=LATER_FILE))
    location.load(unit_file([{"id": 1, "v": "A"}, {"id": 3, "v": "A"}]))
    assert query(database_url, "SELECT id, v FROM t ORDER BY id") == [(1, "B"), (2, "B"), (3, "A")]
    location.close()


def test_the_later_line_of_one_file_wins(tmp_path: Path, database_url: str) -> None:
    location = opened(tmp_path, kind="sql", url=database_url, table="t", create=True, mode="upsert", key="id")
    units = [{"id": 1, "v": "early"}, {"id": 2, "v": "x"}, {"id": 1, "v": "late"}]
    assert location.load(unit_file(units)).count == 3
    held_back = unit_file([{"id": 1, "v": "held back"}], part="0001-bad", lines=[2])
    location.load(held_back)
    assert query(database_url, "SELECT id, v FROM t ORDER BY id") == [(1, "late"), (2, "x")]
    location.close()


def test_newest_by_a_column_decides_without_lineage(tmp_path: Path, database_url: str) -> None:
    run(
        database_url,
        "CREATE TABLE t (id bigint PRIMARY KEY, v text, changed integer)",
        "INSERT INTO t VALUES (1, 'old', NULL)",
    )
    location = opened(
        tmp_path, kind="sql", url=database_url, table="t", mode="upsert", key="id", newest_by="changed"
    )
    units = [{"id": 1, "v": "new", "changed": 9}, {"id": 1, "v": "older", "changed": 3}]
    location.load(unit_file(units))
    location.load(unit_file([{"id": 1, "v": "oldest", "changed": 1}], file=LATER_FILE))
    assert query(database_url, "SELECT v, changed FROM t") == [("new", 9)]
    location.close()


def test_a_newer_generation_in_upsert_deletes_nothing(tmp_path: Path, database_url: str) -> None:
    location = opened(tmp_path, kind="sql", url=database_url, table="t", create=True, mode="upsert", key="id")
    location.load(unit_file([{"id": 1, "v": "wrong"}, {"id": 2, "v": "kept"}]))
    location.load(unit_file([{"id": 1, "v": "right"}], generation=2))
    assert query(database_url, "SELECT id, v FROM t ORDER BY id") == [(1, "right"), (2, "kept")]
    location.close()


def test_without_lineage_a_second_generation_is_refused(tmp_path: Path, database_url: str) -> None:
    location = opened(tmp_path, kind="sql", url=database_url, table="t", create=True, lineage=False)
    location.load(unit_file(BOOKS))
    with pytest.raises(errors.Refused, match="loaded before under another recipe"):
        location.load(unit_file(BOOKS, generation=2))
    assert query(database_url, "SELECT count(*) FROM t") == [(50,)]
    assert location.load(unit_file(BOOKS)).before
    location.close()


REFUSING: dict[str, tuple[str, dict[str, Any], str]] = {
    "no table": ("CREATE TABLE other (id bigint)", {}, "no table 't'"),
    "no column": ("CREATE TABLE t (id bigint)", {}, "no column 'name', 'price'"),
    "no lineage": ("CREATE TABLE t (id bigint, name text, price float)", {"lineage": True}, "_etl_file"),
}


@pytest.mark.parametrize("case", REFUSING)
def test_a_table_that_does_not_fit_is_refused_and_loads_once_it_does(
    tmp_path: Path, database_url: str, case: str
) -> None:
    statement, options, said = REFUSING[case]
    run(database_url, statement)
    location = opened(tmp_path, kind="sql", url=database_url, table="t", **options)
    with pytest.raises(errors.Refused, match=said) as refused:
        location.load(unit_file(many(10)))
    assert refused.value.next
    run(database_url, "DROP TABLE IF EXISTS t")
    run(
        database_url,
        "CREATE TABLE t (id bigint, name text, price float,"
        " _etl_file text, _etl_generation integer, _etl_line bigint)",
    )
    assert location.load(unit_file(many(10))).count == 10
    location.close()


@pytest.mark.parametrize("point", ["write", "commit"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_around_the_commit_a_retry_gives_each_row_once(
    tmp_path: Path, database_url: str, point: str, when: str
) -> None:
    written = {"kind": "sql", "url": database_url, "table": "books", "create": True}
    killed = start_load(tmp_path, BOOKS, f"location-{point}:{when}", **written)
    _, said = killed.communicate(timeout=60)
    assert killed.returncode == -9, said
    location = opened(tmp_path, **written)
    assert location.load(unit_file(BOOKS)).before is ((point, when) == ("commit", "after"))
    assert query(database_url, "SELECT count(*), count(DISTINCT isbn) FROM books") == [(50, 50)]
    location.close()


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_four_processes_with_one_key_on_a_new_database_load_it_once(
    tmp_path: Path, database_url: str, mode: str
) -> None:
    written = {
        "kind": "sql",
        "url": database_url,
        "table": "books",
        "create": True,
        "mode": mode,
        "key": "isbn",
    }
    workers = [start_load(tmp_path, BOOKS, **written) for _ in range(4)]
    answers = [worker.communicate(timeout=60) for worker in workers]
    assert [said for _, said in answers] == [""] * 4
    assert sorted(int(printed) for printed, _ in answers) == [0, 0, 0, 50]
    assert query(database_url, "SELECT count(*) FROM books") == [(50,)]


def test_parts_of_one_file_load_side_by_side(tmp_path: Path, postgres: str) -> None:
    location = opened(tmp_path, kind="sql", url=postgres, table="t", create=True)
    location.load(unit_file(many(3), part="0001"))
    other = opened(tmp_path, kind="sql", url=postgres, table="t", create=True)
    units = unit_file(many(3), part="0002")

    def while_another_loads() -> Any:
        # runs inside the first one's transaction: waiting for its lock would end in a lock timeout
        assert other.load(unit_file(many(3), part="0003")).count == 3
        yield from units.blocks()

    assert location.load(_with_blocks(units, while_another_loads)).count == 3
    assert query(postgres, "SELECT count(*) FROM t") == [(9,)]
    location.close()
    other.close()


def _with_blocks(units: UnitFile, blocks: Any) -> UnitFile:
    return UnitFile(**{name: getattr(units, name) for name in units.__slots__} | {"blocks": blocks})


def test_keys_are_told_with_what_was_rejected_and_of_this_pipeline_alone(
    tmp_path: Path, database_url: str
) -> None:
    run(database_url, "CREATE TABLE books (isbn TEXT, price INTEGER CHECK (price > 0))")
    location = opened(tmp_path, kind="sql", url=database_url, table="books")
    location.load(unit_file(BOOKS))
    assert [(key.count, key.rejected) for key in location.keys("d1", "books") or ()] == [(49, 1)]
    assert list(location.keys("d1", "orders") or ()) == []
    assert list(location.keys("d2", "books") or ()) == []
    location.close()


def test_rows_that_are_there_twice_and_rows_of_an_older_life_are_told(
    tmp_path: Path, database_url: str
) -> None:
    location = opened(tmp_path, kind="sql", url=database_url, table="books", create=True)
    location.load(unit_file(BOOKS))
    location.load(unit_file(BOOKS, file=LATER_FILE, generation=2))
    row = "'x', 1, '{}', {}, 2"
    run(database_url, f"INSERT INTO books VALUES ({row.format(FILE, 1)})")
    run(database_url, f"INSERT INTO books VALUES ({row.format(LATER_FILE, 1)})")
    # somebody else's rows in a shared table are none of our business
    run(database_url, f"INSERT INTO books VALUES ({row.format('another', 1)})")
    told = {
        (one.file, one.generation, one.rows, one.counted, one.current)
        for one in location.excess("d1", "books")
    }
    assert told == {(FILE, 1, 51, 50, 1), (LATER_FILE, 1, 1, 0, 2)}
    location.close()


def test_a_database_that_is_away_says_so_when_it_is_asked_and_none_is_made(tmp_path: Path) -> None:
    location = opened(tmp_path, kind="sql", url=f"sqlite:///{tmp_path / 'x.db'}", table="books", create=True)
    assert list(location.keys("d1", "books") or ()) == []
    assert list(location.excess("d1", "books")) == []
    assert list(tmp_path.iterdir()) == []
    away = opened(tmp_path, kind="sql", url="postgresql://nobody@127.0.0.1:1/x", table="books")
    with pytest.raises(errors.Away):
        list(away.keys("d1", "books") or ())
