"""Duplicates are told by the newest delivery of their given name: skipped, failed or loaded, as configured."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from etl.files import arrivals, newest
from etl.model import Failed, Resolved, Skipped, Status, Waiting
from etl.queues.enqueue import InlineAnnouncer
from etl.stages import run
from tests import road as roads
from tests.queue_helpers import wait_until
from tests.road import Road

V1, V2 = "id,price\n1,10\n", "id,price\n1,20\n"


def project(root: Path, rule: str, **settings: Any) -> Road:
    warehouse = {"kind": "sql", "url": "sqlite:///w.db", "table": "books", "create": True}
    warehouse |= {"mode": "upsert", "key": ["id"]}
    return Road(
        root,
        {
            "extract": {"duplicates": rule, "complete": {"settle": "100ms"}},
            "transform": {"read": "csv"},
            "load": {"locations": {"warehouse": warehouse}},
        },
        settings={"reserve": "0B", **settings},
    )


@pytest.fixture
def road(tmp_path: Path) -> Road:
    return project(tmp_path, "skip")


def prices(road: Road) -> list[Any]:
    return [one[0] for one in roads.rows(f"sqlite:///{road.root / 'w.db'}", "books", "price")]


def arrive(road: Road, text: str, name: str = "books.csv") -> Path:
    """Have a file come in under an id of its own, and give where it waits."""
    path = road.root / name
    path.write_text(text)
    begun = time.time_ns() // 1_000_000
    wait_until(lambda: time.time_ns() // 1_000_000 > begun, "the next id is a later one")
    waiting = arrivals.deliver(road.layout, road.pipeline, path)
    return road.layout.file(waiting.place, Status.WORKING, waiting.name)


def deliver(road: Road, text: str, name: str = "books.csv") -> Any:
    """Drop a file, work it, and give how its extract ended."""
    road.drop(name, text)
    return road.work()[0]


def listed(road: Road) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(road.etl("files", "--json").stdout)
    return found


def test_the_same_bytes_again_are_skipped_and_that_is_said(road: Road) -> None:
    deliver(road, V1)
    again = deliver(road, V1)
    assert isinstance(again, Resolved)
    assert again.count == 0
    assert again.said.startswith("the same bytes as books.csv delivered ")
    first, second = listed(road)
    assert first["id"] in second["said"]
    assert (second["verdict"], second["rows"]) == ("resolved", 0)
    assert len(road.files("transform", "resolved")) == 1
    assert road.broken_promises() == []


def test_v1_v2_v1_ends_with_the_rows_of_v1(road: Road) -> None:
    for text in (V1, V2, V1):
        deliver(road, text)
    assert [str(price) for price in prices(road)] == ["10"]
    assert len(road.files("transform", "resolved")) == 3


def test_other_names_and_other_pipelines_are_not_compared(road: Road) -> None:
    deliver(road, V1)
    assert deliver(road, V1, "others.csv").count == 1


def test_a_file_that_is_moved_back_is_never_its_own_duplicate(road: Road) -> None:
    deliver(road, V1)
    road.move_back(road.one("extract", "resolved"))
    [again] = road.work()
    assert again == Resolved(count=0, said="extracted before, the same bytes")
    # also the older of two: it passed once, and what is moved back is meant
    deliver(road, V2)
    road.move_back(road.files("extract", "resolved")[0])
    assert road.work()[0] == Resolved(count=0, said="extracted before, the same bytes")


def test_a_duplicate_fails_where_that_is_configured(tmp_path: Path) -> None:
    road = project(tmp_path, "fail")
    deliver(road, V1)
    again = deliver(road, V1)
    assert isinstance(again, Failed)
    assert "a duplicate: the same bytes as books.csv" in again.reason.summary
    third = deliver(road, V1)
    assert isinstance(third, Failed), "a duplicate that failed does not make the next one no duplicate"
    # with the rule changed, it is loaded when it is moved back
    road.spec["extract"]["duplicates"] = "load"
    road.write()
    road.move_back(road.files("extract", "failed")[0])
    assert road.work()[0].count == 1  # type: ignore[union-attr]


def test_without_a_word_everything_is_loaded_and_no_index_is_kept(tmp_path: Path) -> None:
    road = project(tmp_path, "load")
    assert [deliver(road, V1).count, deliver(road, V1).count] == [1, 1]
    assert not newest.is_kept(road.layout, "books")


def test_an_index_that_was_kept_once_stays_true_while_nobody_asks_it(road: Road) -> None:
    deliver(road, V1)
    road.spec["extract"]["duplicates"] = "load"
    road.write()
    deliver(road, V2)
    road.spec["extract"]["duplicates"] = "skip"
    road.write()
    assert deliver(road, V1).count == 1
    assert [str(price) for price in prices(road)] == ["10"]


def test_a_duplicate_waits_while_an_older_delivery_could_still_come_between(road: Road) -> None:
    deliver(road, V1)
    second, third = arrive(road, V2), arrive(road, V1)
    waits = road.perform(third)
    assert isinstance(waits, Skipped)
    assert f"waits until books/extract/working/{second.name} has passed" in waits.why
    assert road.note(third).tries == 0
    assert road.perform(second) == Resolved(count=1)
    assert road.perform(third) == Resolved(count=1)
    road.work()
    assert [str(price) for price in prices(road)] == ["10"]


def test_a_drop_without_an_id_that_came_before_is_waited_for_too(road: Road) -> None:
    deliver(road, V1)
    second = road.drop("books.csv", V2)
    third = arrive(road, V1)
    assert isinstance(road.perform(third), Skipped)
    assert road.perform(second) == Resolved(count=1)
    assert road.perform(third) == Resolved(count=1)


def test_one_that_waited_is_announced_by_the_one_it_waited_for(road: Road) -> None:
    deliver(road, V1)
    second, third = arrive(road, V2), arrive(road, V1)
    road.perform(third)
    with road.opened() as app:
        run.perform(app, Waiting(place=road.place("extract"), name=second.name))
        assert isinstance(app.announcer, InlineAnnouncer)
        names = [str(work.arguments["name"]) for work in iter(app.announcer.take, None)]
    assert third.name in names


def test_a_worker_that_dies_after_its_commit_does_not_hide_a_newer_delivery(road: Road) -> None:
    arrive(road, V1)
    killed = road.crash("commit:after")
    assert killed.returncode == -signal.SIGKILL
    assert road.perform(arrive(road, V2)) == Resolved(count=1)
    road.work()  # finishes what the dead worker committed
    assert deliver(road, V2).count == 0
    assert len(list(road.layout.newest("books").glob("*/*.json"))) == 1


def test_one_that_failed_in_between_has_the_later_one_loaded(road: Road) -> None:
    deliver(road, V1)
    road.spec["extract"]["accept"] = ["nothing"]
    road.write()
    assert isinstance(deliver(road, V2), Failed)
    del road.spec["extract"]["accept"]
    road.write()
    assert deliver(road, V1).count == 1
    road.move_back(road.one("extract", "failed"))
    road.work()
    assert [str(price) for price in prices(road)] == ["10"]


def test_with_many_workers_v1_v2_v1_ends_with_v1_every_time(memory_path: Path) -> None:
    road = project(memory_path, "skip", scan="1s")
    for text in (V1, V2, V1):
        for number in range(25):
            arrive(road, text.replace("\n1,", f"\n{number},"), f"books{number}.csv")
    roads.wait_for_empty(road, lambda: road.etl("worker", "--burst", "--workers", "4"), turns=20)
    assert [str(price) for price in prices(road)] == ["10"] * 25
    assert road.broken_promises() == []
