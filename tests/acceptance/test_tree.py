"""From a file to all that came of it: `etl show --tree`, with the real command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from etl.files import verdicts
from etl.ledger.rows import Attempt
from etl.services import lineage
from tests.road import Road

HEAD = "sku;price\n"


@pytest.fixture
def road(tmp_path: Path) -> Road:
    warehouse = {"kind": "sql", "url": f"sqlite:///{tmp_path}/w.db", "table": "prices", "create": True}
    return Road(
        tmp_path,
        {
            "transform": {
                "read": {"format": "csv", "delimiter": ";"},
                "schema": {"properties": {"sku": {"type": "string"}, "price": {"type": "number"}}},
                "bad_rows": {"at_most": "50%"},
                "units_per_file": 2,
            },
            "load": {"locations": {"warehouse": warehouse, "lake": {"kind": "files", "path": "lake"}}},
        },
    )


def drop(road: Road, rows: int, bad: int = 0) -> str:
    """Drop and work a file, and give its id."""
    text = "".join(f"{number};{'x' if number < bad else number}\n" for number in range(rows))
    road.drop("prices with a rather long name of the kind that vendors like to give.csv", HEAD + text)
    road.work()
    return road.ids()[-1]


def tree(road: Road, *arguments: str) -> str:
    done = road.etl("show", *arguments, "--tree")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    return done.stdout


def facts(road: Road, *arguments: str) -> dict[str, Any]:
    done = road.etl("show", *arguments, "--tree", "--json")
    assert done.returncode == 0, done.stderr
    (one,) = json.loads(done.stdout)
    assert isinstance(one, dict)
    return one


def test_the_tree_leads_from_the_source_to_rows_and_verdicts(road: Road) -> None:
    file_id = drop(road, 6, bad=1)
    road.judge()
    followed = verdicts.Followed(state="told", tries=1, target="shop.example")
    verdicts.follow(road.layout, "books", file_id, "1/callback", followed)
    shown = tree(road, file_id)
    for word in ("extract", "transform", "generation 1", "-bad.csv", "warehouse: 5 of 5 units", "partial"):
        assert word in shown
    assert "callback to shop.example: told (1 try)" in shown
    one = facts(road, file_id)
    assert [step["status"] for step in one["transform"]] == ["resolved", "failed"]
    assert one["transform"][1]["reason"]["summary"].startswith("1 of 6 rows held back")
    assert len(one["load"]) == 3
    assert one["loaded"] == {"warehouse": 5, "lake": 5}
    assert [record["verdict"] for record in one["verdicts"]] == ["partial"]


def test_many_unit_files_are_counted_and_those_not_resolved_told_one_by_one(road: Road) -> None:
    file_id = drop(road, 40)
    late = road.files("load", "resolved")[3]
    late.rename(road.folder("load", "failed") / late.name)
    assert "19 unit files  resolved" in tree(road, file_id)
    one = facts(road, file_id)
    assert one["unit_files_folded"] == 19
    assert [(step["name"], step["status"]) for step in one["load"]] == [(late.name, "failed")]


def test_a_file_is_found_by_id_by_its_start_by_path_and_by_given_name(road: Road) -> None:
    file_id = drop(road, 2)
    path = road.one("transform", "resolved")
    for wanted in (file_id, file_id[:12], str(path), path.name, path.name.replace(f"~{file_id}", "")):
        assert facts(road, wanted)["source"]["id"] == file_id


def test_what_left_the_folders_is_archived(road: Road) -> None:
    file_id = drop(road, 2)
    road.one("extract", "resolved").unlink()
    assert facts(road, file_id)["extract"][0]["status"] == lineage.ARCHIVED


def test_attempts_of_the_ledger_have_their_time_and_worker(road: Road) -> None:
    file_id = drop(road, 2)
    name = road.one("transform", "resolved").name
    known = [
        Attempt(
            place=road.place("transform"), name=name, attempt=number, begun=1.0, seconds=0.5, worker="h:1"
        )
        for number in (2, 1)
    ]
    told = lineage.of(road.layout, "books", file_id, road.locations, known)
    assert told is not None
    assert [one["attempt"] for one in told.as_dict()["transform"][0]["attempts"]] == [1, 2]
    assert told.as_dict()["transform"][0]["attempts"][0]["worker"] == "h:1"


def test_what_matches_nothing_is_said(road: Road) -> None:
    done = road.etl("show", "nothing.csv", "--tree")
    assert done.returncode == 1
    assert "no file matches 'nothing.csv'" in done.stderr
