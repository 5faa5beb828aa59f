"""Work whose queue nobody serves: a worker is started for it and leaves again, or people are told; nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from etl.services import unserved
from tests import road as roads
from tests import supervising
from tests.queue_helpers import wait_until
from tests.road import REPOSITORY, Road


def project(root: Path, **rules: Any) -> Road:
    return Road(
        root,
        {
            "extract": {"complete": {"settle": "100ms"}},
            "transform": {"read": "csv", "queue": "heavy"},
            "load": {
                "locations": {"w": {"kind": "sql", "url": "sqlite:///w.db", "table": "books", "create": True}}
            },
        },
        settings={
            "scan": "1s",
            "reserve": "0B",
            "queues": ["default"],
            "catch_all": {"every": "300ms", "max_checks": 3, "idle": "2s", **rules},
        },
    )


def loaded(road: Road) -> int:
    return roads.count(f"sqlite:///{road.root / 'w.db'}", "books")


def reasons(road: Road) -> list[Path]:
    return sorted(road.folder("transform", "working").glob("*.reason.json"))


@contextmanager
def a_worker(road: Road, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "etl", "--config", str(road.root / "config"), "worker", *arguments]
    process = subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def test_a_worker_is_started_after_max_checks_does_the_work_and_leaves_when_idle(tmp_path: Path) -> None:
    road = project(tmp_path)
    with supervising.up(road) as up:
        up.pid("workers")
        up.pid("dropbox")
        road.drop("books.csv", "id\n1\n2\n")
        up.wait_for("no worker serves it: one is started")
        pid = up.pid("catch_all")
        wait_until(lambda: loaded(road) == 2, f"loaded: {up.text()}")
        wait_until(lambda: "catch_all" not in up.services(), f"the worker leaves: {up.text()}")
        up.wait_for(f"worker for heavy (process {pid}) ended with code 0")
        # and once more, when there is work again
        road.drop("more.csv", "id\n3\n")
        up.wait_for("no worker serves it: one is started", times=2)
        wait_until(lambda: loaded(road) == 3, f"loaded: {up.text()}")
        assert reasons(road) == []
        assert up.stop() == 0
    up.nothing_runs()
    assert "service_ended" not in up.text()
    assert road.broken_promises() == []


def test_where_none_may_be_started_people_are_told_and_the_files_wait_until_a_worker_comes(
    tmp_path: Path,
) -> None:
    road = project(tmp_path, max_workers=0)
    with supervising.up(road) as up:
        up.pid("workers")
        up.pid("dropbox")
        for number in range(3):
            road.drop(f"{number}.csv", f"id\n{number}\n")
        wait_until(lambda: len(reasons(road)) == 3, f"reasons: {up.text()}")
        told = road.reason(road.files("transform", "working")[0])
        assert told["summary"] == (
            "no worker serves the queue heavy, and no worker may be started for it: catch_all.max_workers is 0"
        )
        assert told["urgency"] == "now"
        assert "etl worker heavy" in told["next"]
        [facts] = supervising.status(road)["unserved"]
        assert (facts["queue"], facts["state"], facts["waiting"]) == ("heavy", "refused", 3)
        assert "queue heavy: 3 wait and no worker serves it" in road.etl("status").stdout
        assert road.etl("check", "--probe").returncode == 2
        # one notice for all of them, however long it lasts
        checks = facts["checks"]
        wait_until(lambda: unserved.read(road.data)["heavy"].checks > checks + 2, "more checks")
        assert up.text().count("start a worker on any host") == 1
        assert len(road.files("transform", "working")) == 3
        with a_worker(road, "heavy", "--workers", "1"):
            wait_until(lambda: loaded(road) == 3, f"loaded: {up.text()}")
            wait_until(lambda: not reasons(road) and not unserved.read(road.data), f"cleared: {up.text()}")
            assert supervising.status(road)["unserved"] == []
        assert up.stop() == 0
    assert road.broken_promises() == []


def test_no_more_workers_are_started_than_max_workers_over_all_queues(tmp_path: Path) -> None:
    road = project(tmp_path, max_workers=1, idle="60s")
    road.spec["load"]["queue"] = "other"
    road.write()
    with supervising.up(road) as up:
        up.pid("workers")
        road.drop("books.csv", "id\n1\n")
        up.wait_for("no worker serves the queue other")
        assert [path.name.count("~") for path in road.folder("load", "working").glob("*.reason.json")] == [1]
        with a_worker(road, "other"):
            wait_until(lambda: loaded(road) == 1, f"loaded: {up.text()}")
        assert up.stop() == 0


def test_what_is_paused_or_not_due_wants_no_worker(tmp_path: Path) -> None:
    road = project(tmp_path)
    road.etl("pause", "books/transform")
    road.drop("books.csv", "id\n1\n")
    road.work()
    from etl.services.catch_all import CatchAll

    with road.opened() as app:
        assert CatchAll(app.config)._due("heavy") == 0
        road.etl("resume", "books/transform")
        assert CatchAll(app.config)._due("heavy") == 1


def test_workers_of_etl_up_serve_the_queues_they_are_told_to(tmp_path: Path) -> None:
    road = project(tmp_path, every="1h")
    with supervising.up(road) as up:
        up.wait_for("2 workers on default")
        assert up.stop() == 0
    checked = road.etl("check", "--json")
    assert checked.returncode == 0
    hints = {one["about"]: one["hint"] for one in json.loads(checked.stdout) if one["hint"]}
    assert list(hints) == ["queues"]
    assert "heavy" in hints["queues"]


def test_a_worker_ends_by_itself_when_nothing_was_worked_for_a_while(tmp_path: Path) -> None:
    road = project(tmp_path)
    road.drop("books.csv", "id\n1\n")
    with supervising.up(road) as up:
        up.pid("dropbox")
        done = road.etl("worker", "heavy", "--workers", "1", "--idle", "1s")
        assert done.returncode == 0, done.stderr
        assert up.stop() == 0
    assert road.etl("worker", "--idle", "soon").returncode == 2


@pytest.mark.parametrize("text", ["", "{", "[{}]"])
def test_a_damaged_record_of_unserved_queues_is_counted_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / ".etl").mkdir()
    (tmp_path / ".etl" / "catch_all.json").write_text(text)
    assert unserved.read(tmp_path) == {}
