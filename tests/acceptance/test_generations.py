"""A file moved back under another recipe is a new generation: its rows replace the old ones and never mix.

A handler is mended, a file edited, a unit file of the older life comes late; each on SQLite and PostgreSQL.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from etl.model import Resolved
from tests import road as roads
from tests.road import Road

BOOKS = "id,title\n" + "".join(f"{number},Book {number}\n" for number in range(1, 26))
MARKED = 'def to_unit(row):\n    return {{"id": int(row["id"]), "title": row["title"], "mark": {mark!r}}}\n'
NOTHING = "def to_unit(row):\n    return None\n"
TABLE = "CREATE TABLE books (id INTEGER, title TEXT, mark TEXT)"
COLUMNS = "id, mark, _etl_generation, _etl_line"


def make(tmp_path: Path, url: str, **location: Any) -> Road:
    warehouse = {"kind": "sql", "url": url, "table": "books", "create": True} | location
    return Road(
        tmp_path / "project",
        {
            "transform": {"read": "csv", "handler": "handler:to_unit", "units_per_file": 10},
            "load": {"locations": {"warehouse": warehouse}},
        },
        handlers={"handler": MARKED.format(mark="wrong")},
    )


def of_generation(mark: str, generation: int, count: int = 25) -> list[tuple[Any, ...]]:
    return [(number, mark, generation, number + 1) for number in range(1, count + 1)]


@pytest.fixture
def loaded(tmp_path: Path, database_url: str) -> Road:
    """A file whose wrong rows are in an append table with lineage."""
    road = make(tmp_path, database_url)
    road.drop("books.csv", BOOKS)
    road.work()
    assert roads.rows(database_url, "books", COLUMNS) == of_generation("wrong", 1)
    return road


def test_a_handler_mended_after_a_wrong_load_puts_the_new_rows_in_place_of_the_old(
    loaded: Road, database_url: str
) -> None:
    loaded.handle(MARKED.format(mark="right"))
    loaded.move_back(loaded.one("transform", "resolved"))
    loaded.work()

    assert roads.rows(database_url, "books", COLUMNS) == of_generation("right", 2)
    assert loaded.broken_promises() == []


def test_other_files_keep_their_rows_when_one_is_loaded_anew(loaded: Road, database_url: str) -> None:
    loaded.drop("more.csv", "id,title\n100,More\n")
    loaded.work()
    loaded.handle(MARKED.format(mark="right"))
    first = next(path for path in loaded.files("transform", "resolved") if path.name.startswith("books"))
    loaded.move_back(first)
    loaded.work()

    assert roads.rows(database_url, "books", COLUMNS) == [*of_generation("right", 2), (100, "wrong", 1, 2)]


def test_a_mended_handler_that_makes_no_units_leaves_no_rows(loaded: Road, database_url: str) -> None:
    loaded.handle(NOTHING)
    loaded.move_back(loaded.one("transform", "resolved"))
    loaded.work()

    assert roads.count(database_url, "books") == 0
    assert loaded.broken_promises() == []


def test_a_third_generation_replaces_a_second_that_had_no_units(loaded: Road, database_url: str) -> None:
    for handler in (NOTHING, MARKED.format(mark="right")):
        loaded.handle(handler)
        loaded.move_back(loaded.one("transform", "resolved"))
        loaded.work()

    assert roads.rows(database_url, "books", COLUMNS) == of_generation("right", 3)


def test_an_edited_source_file_is_a_new_generation(loaded: Road, database_url: str) -> None:
    source = loaded.one("transform", "resolved")
    source.write_text("id,title\n1,Book 1\n2,Book 2\n")
    loaded.move_back(source)
    loaded.work()

    assert roads.rows(database_url, "books", COLUMNS) == of_generation("wrong", 2, count=2)


def test_moved_back_under_the_same_recipe_nothing_is_made_and_that_is_said(
    loaded: Road, database_url: str
) -> None:
    loaded.move_back(loaded.one("transform", "resolved"))

    assert loaded.work() == [
        Resolved(
            count=0, said="0 rows, all present: transformed before; 3 of 3 unit files loaded at warehouse"
        )
    ]
    assert roads.rows(database_url, "books", COLUMNS) == of_generation("wrong", 1)
    assert loaded.broken_promises() == []


def test_unit_files_moved_back_add_nothing(loaded: Road, database_url: str) -> None:
    for path in loaded.files("load", "resolved"):
        loaded.move_back(path)
    outcomes = loaded.work()

    assert outcomes == [Resolved(count=0, said="warehouse: loaded before")] * 3
    assert roads.rows(database_url, "books", COLUMNS) == of_generation("wrong", 1)


def refuse_second_unit_file(road: Road, url: str) -> Path:
    """Load a file whose second unit file the location refuses, and give the copy that failed there."""
    road.drop("books.csv", BOOKS)
    road.perform(road.one("extract", "working"))
    road.perform(road.one("transform", "working"))
    first, second, third = road.files("load", "working")
    road.perform(first)
    roads.query(url, "ALTER TABLE books RENAME TO books_away")
    road.spec["load"]["locations"]["warehouse"]["create"] = False
    road.spec["load"]["locations"]["warehouse"]["lineage"] = True
    road.write()
    road.perform(second)
    roads.query(url, "ALTER TABLE books_away RENAME TO books")
    road.perform(third)
    return road.one("load", "warehouse", "failed")


@pytest.mark.parametrize("handler", [MARKED.format(mark="right"), NOTHING], ids=["rows", "no-rows"])
def test_an_old_unit_file_moved_back_after_a_new_generation_changes_nothing(
    tmp_path: Path, database_url: str, handler: str
) -> None:
    road = make(tmp_path, database_url)
    late = refuse_second_unit_file(road, database_url)
    assert roads.count(database_url, "books") == 15
    road.handle(handler)
    road.move_back(road.one("transform", "resolved"))
    road.work()
    expected = of_generation("right", 2) if "right" in handler else []
    assert roads.rows(database_url, "books", COLUMNS) == expected

    outcome = road.perform(road.move_back(late))

    assert outcome == Resolved(count=0, said="warehouse: superseded by a newer generation")
    assert roads.rows(database_url, "books", COLUMNS) == expected
    assert road.broken_promises() == []


def test_held_back_rows_of_an_older_generation_change_nothing_once_a_newer_is_loaded(
    tmp_path: Path, database_url: str
) -> None:
    road = make(tmp_path, database_url)
    road.drop("books.csv", BOOKS.replace("7,Book 7", "seven,Book 7"))
    road.work()
    assert roads.count(database_url, "books") == 24
    held = road.one("transform", "failed")
    road.handle(
        'NUMBERS = {"seven": "7"}\n'
        + MARKED.format(mark="right").replace('int(row["id"])', 'int(NUMBERS.get(row["id"], row["id"]))')
    )
    road.move_back(road.one("transform", "resolved"))
    road.work()
    assert roads.rows(database_url, "books", COLUMNS) == of_generation("right", 2)

    held.write_text(held.read_text().replace("seven", "7"))
    road.move_back(held)
    road.work()

    assert roads.rows(database_url, "books", COLUMNS) == of_generation("right", 2)
    assert road.broken_promises() == []


def test_a_newer_generation_that_is_loaded_first_stands(tmp_path: Path, database_url: str) -> None:
    road = make(tmp_path, database_url)
    road.drop("books.csv", BOOKS)
    road.perform(road.one("extract", "working"))
    road.perform(road.one("transform", "working"))
    old = road.files("load", "working")
    road.perform(old[0])
    road.handle(MARKED.format(mark="right"))
    road.perform(road.move_back(road.one("transform", "resolved")))
    for path in [path for path in road.files("load", "working") if path not in old]:
        road.perform(path)
    road.work()

    assert roads.rows(database_url, "books", COLUMNS) == of_generation("right", 2)


def test_a_location_without_lineage_gets_its_copy_and_the_reason(tmp_path: Path, database_url: str) -> None:
    roads.query(database_url, TABLE)
    road = make(tmp_path, database_url, create=False)
    road.drop("books.csv", BOOKS)
    road.work()
    road.handle(MARKED.format(mark="right"))
    road.move_back(road.one("transform", "resolved"))
    road.work()

    refused = road.files("load", "warehouse", "failed")
    assert len(refused) == 3
    assert all("loaded before under another recipe" in road.reason(path)["summary"] for path in refused)
    assert {mark for (mark,) in roads.rows(database_url, "books", "mark")} == {"wrong"}
    assert roads.count(database_url, "books") == 25
    assert road.broken_promises() == []


def test_an_upsert_overwrites_by_key_and_deletes_nothing(tmp_path: Path, database_url: str) -> None:
    road = make(tmp_path, database_url, mode="upsert", key=["id"])
    road.transform(schema={"properties": {"id": {"type": "integer"}}})
    road.drop("books.csv", BOOKS)
    road.work()
    source = road.one("transform", "resolved")
    source.write_text("id,title\n1,Book 1\n2,Book 2\n")
    road.handle(MARKED.format(mark="right"))
    road.move_back(source)
    road.work()

    found = roads.rows(database_url, "books", COLUMNS)
    assert found == [*of_generation("right", 2, count=2), *of_generation("wrong", 1)[2:]]


def test_an_edited_file_moved_back_to_extract_overtakes_the_one_that_waits(
    tmp_path: Path, database_url: str
) -> None:
    road = make(tmp_path, database_url)
    road.drop("books.csv", BOOKS)
    road.perform(road.one("extract", "working"))
    source = road.one("extract", "resolved")
    source.write_text("id,title\n1,Book 1\n")
    road.perform(road.move_back(source))
    road.work()

    assert roads.rows(database_url, "books", COLUMNS) == of_generation("wrong", 1, count=1)
    assert road.broken_promises() == []


def test_rows_loaded_without_lineage_are_never_mixed_with_newer_ones_and_the_advice_works(
    tmp_path: Path, database_url: str
) -> None:
    roads.query(database_url, TABLE)
    road = make(tmp_path, database_url, create=False)
    road.drop("books.csv", BOOKS)
    road.work()
    road.handle(MARKED.format(mark="right"))
    roads.query(database_url, "ALTER TABLE books ADD _etl_file TEXT")
    roads.query(database_url, "ALTER TABLE books ADD _etl_generation INTEGER")
    roads.query(database_url, "ALTER TABLE books ADD _etl_line INTEGER")
    road.spec["load"]["locations"]["warehouse"]["lineage"] = True
    road.write()
    source = road.one("transform", "resolved")
    road.move_back(source)
    road.work()

    assert roads.rows(database_url, "books", "DISTINCT mark") == [("wrong",)]
    refused = road.files("load", "warehouse", "failed")
    assert "in the table _etl_keys, the rows of file" in road.reason(refused[0])["next"]

    roads.query(database_url, "DELETE FROM books")
    roads.query(
        database_url, "DELETE FROM _etl_keys WHERE file = :file", file=source.name.partition("~")[2][:16]
    )
    for path in refused:
        road.move_back(path)
    road.work()
    assert roads.rows(database_url, "books", COLUMNS) == of_generation("right", 2)
