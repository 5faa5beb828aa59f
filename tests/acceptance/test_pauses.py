"""Pause, resume and drain: by pipeline or stage, kept on disk, shown everywhere, and no job in hand is touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etl.files import paused
from etl.model import Skipped
from tests import supervising
from tests.queue_helpers import wait_until
from tests.road import Road


@pytest.fixture
def road(tmp_path: Path) -> Road:
    return Road(
        tmp_path,
        {
            "extract": {"complete": {"settle": "100ms"}},
            "transform": {"read": "csv"},
            "load": {"locations": {"lake": {"kind": "files", "path": "lake"}}},
        },
        settings={"scan": "1s", "reserve": "0B"},
    )


def test_a_paused_pipeline_begins_nothing_until_it_is_resumed(road: Road) -> None:
    road.drop("books.csv", "id\n1\n")
    assert road.etl("pause", "books", "--because", "month end").returncode == 0
    assert road.work() == []
    assert road.one("extract", "working").name == "books.csv"
    assert road.etl("resume", "books").returncode == 0
    road.work()
    assert road.one("load", "resolved")


def test_a_paused_stage_holds_its_files_and_the_stages_before_it_go_on(road: Road) -> None:
    assert road.etl("pause", "books/load").returncode == 0
    road.drop("books.csv", "id\n1\n")
    road.work()
    assert road.one("transform", "resolved")
    assert road.one("load", "working")
    road.etl("resume", "books/load")
    road.work()
    assert road.one("load", "resolved")


def test_a_job_that_was_made_before_the_pause_changes_nothing(road: Road) -> None:
    path = road.drop("books.csv", "id\n1\n")
    road.etl("pause", "books")
    outcome = road.perform(path)
    assert isinstance(outcome, Skipped)
    assert "paused" in outcome.why
    assert path.exists()


def test_a_pause_is_shown_by_status_files_and_show_with_who_and_why(road: Road) -> None:
    road.drop("books.csv", "id\n1\n")
    road.work()
    done = road.etl("pause", "books/extract", "--because", "month end", LOGNAME="anna")
    assert "by anna since" in done.stdout
    for verb in (["status"], ["files"], ["show", "books.csv"]):
        told = road.etl(*verb).stdout
        assert "month end" in told, verb
        assert "etl resume books/extract" in told, verb
    places = json.loads(road.etl("status", "--json").stdout)["places"]
    assert [one["place"] for one in places if one["paused"]] == ["books/extract/.requests", "books/extract"]
    assert json.loads(road.etl("show", "books.csv", "--json").stdout)[0]["paused"]


def test_a_run_of_a_paused_pipeline_says_so_and_copies_nothing_in(road: Road, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("id\n1\n")
    road.etl("pause", "books/load", "--because", "month end")
    done = road.etl("run", "books", "new.csv", "--inline")
    assert done.returncode == 1
    assert "books/load is paused" in done.stderr
    assert "etl resume books/load" in done.stderr
    assert not road.files("extract", "working")


def test_pausing_twice_names_who_paused_first_and_resuming_twice_is_fine(road: Road) -> None:
    road.etl("pause", "books", LOGNAME="anna")
    assert "already by anna" in road.etl("pause", "books", LOGNAME="bert").stdout
    assert "goes on" in road.etl("resume", "books").stdout
    assert "was not paused" in road.etl("resume", "books").stdout


def test_a_stage_that_does_not_exist_is_a_usage_error(road: Road) -> None:
    done = road.etl("pause", "books/loading")
    assert done.returncode == 2
    assert "there are: extract, transform, load" in done.stderr


def test_a_mark_that_was_touched_by_hand_pauses_all_the_same(road: Road) -> None:
    road.layout.paused("books").write_text("")
    known = paused.read(road.layout, "books")
    assert known is not None
    assert known.who == "somebody"
    road.drop("books.csv", "id\n1\n")
    assert road.work() == []


def test_a_paused_pipeline_breaks_no_promise(road: Road) -> None:
    road.drop("books.csv", "id\n1\n")
    road.etl("pause", "books/transform")
    road.work()
    assert road.broken_promises() == []


def test_drain_says_what_is_left_when_nobody_works(road: Road) -> None:
    road.etl("pause", "books/transform")
    road.drop("books.csv", "id\n1\n")
    road.work()
    refused = road.etl("drain", "books", "--timeout", "1s")
    assert refused.returncode == 1
    assert "books/transform is paused" in refused.stderr
    road.etl("resume", "books/transform")
    done = road.etl("drain", "books", "--timeout", "300ms")
    assert done.returncode == 1
    assert "1 file left in books/transform" in done.stdout


def test_under_etl_up_a_resumed_pipeline_goes_on_within_seconds_and_can_be_drained(road: Road) -> None:
    road.etl("pause", "books")
    with supervising.up(road) as up:
        up.pid("workers")
        up.pid("dropbox")
        road.drop("books.csv", "id\n1\n")
        up.wait_for("books/extract pauses: by ")
        assert road.files("extract", "working")
        road.etl("resume", "books")
        wait_until(lambda: road.files("load", "resolved"), f"loaded: {up.text()}", within=15)
        done = road.etl("drain", "books", "--timeout", "20s", "--json")
        assert json.loads(done.stdout) == {"pipeline": "books", "drained": True, "left": {}}
        road.drop("more.csv", "id\n2\n")
        assert up.stop() == 0
    assert [path.name for path in road.files("extract", "working")] == ["more.csv"]
