"""Replay: the files of a day come back out of the archive or out of `resolved/`, each once, and never over anything.

SQLite and PostgreSQL, append and upsert; the handler mended in between, archives damaged, killed at each point.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from etl.model import Resolved
from tests import archived
from tests import road as roads
from tests.road import Road

BOOKS = "id,title\n" + "".join(f"{number},Book {number}\n" for number in range(1, 26))
MARKED = 'def to_unit(row):\n    return {{"id": int(row["id"]), "title": row["title"], "mark": {mark!r}}}\n'
COLUMNS = "id, mark, _etl_generation, _etl_line"


def make(tmp_path: Path, url: str, **location: Any) -> Road:
    warehouse = {"kind": "sql", "url": url, "table": "books", "create": True} | location
    schema = {"properties": {"id": {"type": "integer"}}}
    return Road(
        tmp_path / "project",
        {
            "transform": {
                "read": "csv",
                "handler": "handler:to_unit",
                "schema": schema,
                "units_per_file": 10,
            },
            "load": {"locations": {"warehouse": warehouse}},
        },
        handlers={"handler": MARKED.format(mark="wrong")},
    )


def replay(road: Road, *arguments: str, code: int = 0) -> dict[str, Any]:
    """Call the real command, and give what it tells."""
    done = road.etl("replay", *arguments, "--json")
    assert done.returncode == code, done.stderr + done.stdout
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def of_generation(mark: str, generation: int, numbers: range = range(1, 26)) -> list[tuple[Any, ...]]:
    return [(number, mark, generation, number - numbers.start + 2) for number in numbers]


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_day_out_of_the_archive_adds_nothing_and_says_so_and_a_mended_handler_replaces_its_rows_alone(
    tmp_path: Path, database_url: str, mode: str
) -> None:
    road = make(tmp_path, database_url, mode=mode, **({"key": ["id"]} if mode == "upsert" else {}))
    day = archived.day_before(5)
    archived.drop(road, "books.csv", BOOKS, 5)
    road.work()
    # a newer day: some rows of its own, and where they are told apart by key, some of the same books
    road.handle(MARKED.format(mark="newer"))
    archived.drop(road, "books.csv", "id,title\n25,Newer\n100,More\n", 2)
    road.work()
    road.judge()
    archived.archive(road)
    assert road.files("extract", "resolved") == road.files("transform", "resolved") == []
    before = roads.rows(database_url, "books", COLUMNS)
    assert len(before) == (27 if mode == "append" else 26)

    road.handle(MARKED.format(mark="wrong"))
    told = replay(road, day, "books")
    assert [one["moved"] for one in told["files"]] == [True]
    outcomes = road.work()
    assert outcomes == [
        Resolved(
            count=0, said="0 rows, all present: transformed before; 3 of 3 unit files loaded at warehouse"
        )
    ]
    assert roads.rows(database_url, "books", COLUMNS) == before
    assert road.judge() == []

    road.handle(MARKED.format(mark="right"))
    replay(road, day, "books")
    road.work()
    newer = [(25, "newer", 1, 2), (100, "newer", 1, 3)]
    old = of_generation("right", 2)
    expected = [*old, *newer] if mode == "append" else [*old[:-1], *newer]
    assert roads.rows(database_url, "books", COLUMNS) == sorted(expected)
    assert road.broken_promises() == []
