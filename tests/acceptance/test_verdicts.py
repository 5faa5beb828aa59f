"""A delivery gets one verdict for each way it stands, whoever judges, however often, and whatever dies meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections import Counter
from pathlib import Path

import pytest

from etl.files import deliveries, spool, survey, verdicts, walking
from etl.files.verdicts import Record
from etl.points import Point
from tests import road as roads
from tests.road import Road

LINES = "id,price\n1,1\n2,2\n3,wrong\n4,-4\n5,5\n"
TABLE = """CREATE TABLE books (id INTEGER, price DOUBLE PRECISION CHECK (price >= 0),
    _etl_file TEXT, _etl_generation INTEGER, _etl_line INTEGER)"""


@pytest.fixture
def road(tmp_path: Path) -> Road:
    warehouse = {"kind": "sql", "url": "sqlite:///warehouse.db", "table": "books", "mode": "append"}
    road = Road(
        tmp_path,
        {
            "transform": {
                "read": "csv",
                "units_per_file": 2,
                "schema": {"properties": {"id": {"type": "integer"}, "price": {"type": "number"}}},
            },
            "load": {
                "locations": {
                    "warehouse": warehouse | {"lineage": True},
                    "lake": {"kind": "files", "path": "lake"},
                }
            },
            "on_success": [{"notice": "all there"}],
            "on_failure": [{"notice": "look at it"}],
        },
    )
    roads.query(f"sqlite:///{tmp_path}/warehouse.db", TABLE)
    return road


def kept(road: Road) -> list[Record]:
    (file_id,) = road.ids()
    return list(verdicts.read(road.layout, road.pipeline, file_id).records)


def spooled(road: Road) -> list[str]:
    return [path.name.split("~", 2)[2].removesuffix(".json") for path in spool.waiting(road.layout)]


def correct(road: Road, path: Path, wrong: str, right: str) -> None:
    path.write_text(path.read_text().replace(wrong, right))
    road.move_back(path)
    road.work()


def test_nothing_is_said_while_anything_is_open(road: Road) -> None:
    path = road.drop("books.csv", LINES)
    assert road.judge() == []
    road.perform(path)
    assert road.judge() == []
    road.perform(road.one("transform", "working"))
    assert road.judge() == []
    road.work()
    assert [record.verdict for record in road.judge()] == ["partial"]


def test_a_verdict_is_recorded_once_and_counts(road: Road) -> None:
    road.drop("books.csv", LINES)
    road.work()

    (record,) = road.judge()

    assert record.verdict == "partial"
    assert (record.number, record.generation, record.rows, record.units, record.held_back) == (1, 1, 5, 4, 2)
    assert record.loaded == {"warehouse": 3, "lake": 4}
    assert road.judge() == []
    assert kept(road) == [record]
    assert spooled(road) == ["1~on_failure-1"]
    assert road.broken_promises() == []


def test_a_verdict_is_one_line_of_the_log_whatever_a_file_is_called(
    road: Road, caplog: pytest.LogCaptureFixture
) -> None:
    road.drop("books\n2026-11-18 08:00:00 supervisor all is well.csv", LINES)
    road.work()
    caplog.set_level("INFO", "etl.stages.judging")
    assert len(road.judge()) == 1
    (line,) = [one.getMessage() for one in caplog.records if one.name == "etl.stages.judging"]
    assert line == "books: books%0A2026-11-18 08:00:00 supervisor all is well.csv is partial"


def test_a_late_fix_turns_partial_into_resolved_and_says_so(road: Road) -> None:
    road.drop("books.csv", LINES)
    road.work()
    road.judge()
    correct(road, road.one("transform", "failed"), "wrong", "3")
    (second,) = road.judge()
    assert (second.verdict, second.said) == ("partial", "partial before; 1 held back rows were corrected")

    correct(road, road.one("load", "warehouse", "failed"), "-4", "4")
    (third,) = road.judge()

    assert (third.number, third.verdict) == (3, "resolved")
    assert third.said == "partial before; 1 held back rows were corrected"
    assert third.loaded == {"warehouse": 5, "lake": 5}
    assert spooled(road) == ["1~on_failure-1", "2~on_failure-1", "3~on_success-1"]


def test_a_discard_ends_as_partial_and_says_why(road: Road) -> None:
    road.drop("books.csv", LINES)
    road.work()
    road.judge()
    for name in (road.one("transform", "failed").name, road.one("load", "warehouse", "failed").name):
        road.etl("discard", name, "--because", "the vendor withdrew it")

    (record,) = road.judge()

    assert (record.verdict, record.discarded, record.held_back) == ("partial", 2, 0)
    assert record.said == "partial before; discarded: the vendor withdrew it"


def test_a_new_generation_gets_a_verdict_of_its_own(road: Road) -> None:
    road.drop("books.csv", LINES)
    road.work()
    road.judge()
    source = road.one("transform", "resolved")
    correct(road, source, LINES, "id,price\n1,1\n2,2\n")

    (record,) = road.judge()

    assert (record.verdict, record.generation, record.rows) == ("resolved", 2, 2)
    assert record.said == "partial before; generation 2 took the place of generation 1"


def test_a_file_that_failed_as_a_whole_is_failed(road: Road) -> None:
    road.drop("books.csv", "")
    road.work()
    assert [record.verdict for record in road.judge()] == ["failed"]
    road.etl("discard", road.one("transform", "failed").name, "--because", "empty")
    (record,) = road.judge()
    assert (record.verdict, record.said) == ("failed", "failed before; discarded: empty")


def test_what_a_walk_finds_is_what_the_folders_say(road: Road) -> None:
    road.drop("books.csv", LINES)
    for _ in range(3):
        (file_id,) = road.ids() or ("",)
        listed = deliveries.of_pipeline(road.layout, "books", road.locations)
        if listed:
            found = walking.find(road.layout, "books", file_id, road.locations)
            assert found is not None
            assert (found.verdict, found.loaded, found.held_back) == (
                listed[0].verdict,
                listed[0].loaded,
                listed[0].held_back,
            )
            assert {(one.place, one.status, one.name) for one in found.pieces} == {
                (one.place, one.status, one.name) for one in listed[0].pieces
            }
        road.work()


def test_a_source_that_a_person_renamed_is_found(road: Road) -> None:
    road.perform(road.drop("books.csv", "id,price\n1,1\n"))
    source = road.one("transform", "working")
    source.rename(source.with_name(source.name.replace("books", "novels")))
    assert road.judge() == []
    road.work()
    (record,) = road.judge()
    assert (record.verdict, record.units) == ("resolved", 1)


def test_two_who_judge_at_once_record_it_once(road: Road) -> None:
    road.drop("books.csv", LINES)
    road.work()
    found: list[Record] = []
    threads = [threading.Thread(target=lambda: found.extend(road.judge())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 1
    assert kept(road) == found


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("point", [Point.SPOOL, Point.NOTE_VERDICT])
def test_killed_while_it_judges_the_verdict_is_recorded_once(road: Road, point: Point, when: str) -> None:
    road.drop("books.csv", LINES)
    road.work()
    assert road.crash(f"{point}:{when}", "judge").returncode == -signal.SIGKILL
    road.judge()
    assert [record.number for record in kept(road)] == [1]
    assert spooled(road) == ["1~on_failure-1"]
    assert road.judge() == []


def test_a_lost_ledger_or_a_flushed_redis_repeats_no_verdict(road: Road) -> None:
    road.drop("books.csv", LINES)
    road.work()
    road.judge()
    shutil.rmtree(spool.folder(road.layout))
    assert road.judge() == []
    assert spooled(road) == []


def test_what_came_before_verdicts_were_given_is_followed_by_nothing(road: Road) -> None:
    road.drop("books.csv", LINES)
    road.work()
    (road.layout.own / "verdicts-since").unlink()
    (record,) = road.judge()
    assert record.verdict == "partial"
    assert spooled(road) == []
    correct(road, road.one("transform", "failed"), "wrong", "3")
    road.judge()
    assert spooled(road) == ["2~on_failure-1"]


def test_a_delivery_is_walked_by_the_names_of_its_files_and_no_folder_is_listed(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locations = {name: {"kind": "memory"} for name in ("one", "two")}
    road = Road(
        memory_path, {"transform": {"read": "csv", "units_per_file": 1}, "load": {"locations": locations}}
    )
    road.drop("books.csv", "id\n" + "".join(f"{n}\n" for n in range(300)))
    road.work(20_000)
    looks = Counter[str]()
    lexists = os.path.lexists

    def counted(path: str) -> bool:
        looks["one name"] += 1
        return lexists(path)

    with monkeypatch.context() as patched:
        patched.setattr(survey, "listing", lambda *_: looks.update(["a folder"]))
        patched.setattr(os.path, "lexists", counted)
        found = walking.find(road.layout, "books", road.ids()[0], road.locations)
    assert found is not None and found.verdict == "resolved"
    assert looks["a folder"] == 0
    # its cost is that of what came of it: four folders at load and two at each location for each unit file
    assert looks["one name"] <= 8 * (300 + 20)
    (record,) = road.judge()
    assert (record.verdict, record.units, record.loaded) == ("resolved", 300, {"one": 300, "two": 300})
