"""`etl fsck` and the queue: beside workers it tells nothing that is not so, and it sees what has no job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from etl.queues import connection, enqueue, keys, looking
from etl.services import fsck
from etl.services.fsck import queue
from tests import road as roads
from tests.queue_helpers import EMBEDDED, wait_until
from tests.road import REPOSITORY, Road

FILES = 200


@pytest.fixture
def road(tmp_path: Path) -> Road:
    source = tmp_path / "in"
    source.mkdir()
    location = {"kind": "sql", "url": "sqlite:///books.db", "table": "books", "create": True}
    return Road(
        tmp_path,
        {
            "extract": {"sources": ["in"]},
            "transform": {"read": "csv", "units_per_file": 1},
            "load": {"locations": {"lite": location, "lake": {"kind": "files", "path": "lake"}}},
        },
        settings={"scan": "1s"},
    )


@contextmanager
def worker(road: Road, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "etl", "--config", str(road.root / "config"), "worker"]
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY), **environment}
    with subprocess.Popen(command, cwd=road.root, env=environ, stderr=subprocess.DEVNULL) as running:
        try:
            yield running
        finally:
            running.terminate()


def look(road: Road, client: Any, pause: float = 0.5) -> list[fsck.Finding]:
    with road.opened() as app:
        app.announcer = enqueue.RedisAnnouncer(client, app.data_id)
        return list(fsck.walk(app, client, fsck.Scope(pause=pause)))


def test_beside_workers_it_gives_no_false_alarm(road: Road) -> None:
    for number in range(FILES):
        (road.root / "in" / f"{number}.csv").write_text(f"id,name\n{number},a\n{number},b\n")
    road.ask()
    told: list[str] = []
    looks = 0

    def done() -> bool:
        nonlocal looks
        looks += 1
        told.extend(str(finding) for finding in look(road, client))
        return len(road.files("load", "resolved")) == 2 * FILES

    with connection.connect(EMBEDDED, road.data) as client, worker(road):
        wait_until(done, "all files are loaded", within=120)
    assert told == []
    assert looks > 3
    assert roads.count(f"sqlite:///{road.root}/books.db", "books") == 2 * FILES
    assert road.findings() == []


def test_a_waiting_file_without_a_job_is_told_only_while_workers_run(
    road: Road, monkeypatch: pytest.MonkeyPatch
) -> None:
    (road.root / "in" / "books.csv").write_text("id\n1\n")
    road.ask()
    road.work()
    waiting = road.move_back(road.one("transform", "resolved"))
    with connection.connect(EMBEDDED, road.data) as client:
        assert look(road, client, pause=0) == []
        with listening(road, client):
            assert look(road, client, pause=0) == []  # a scan may still be to come
            monkeypatch.setattr(queue, "SLACK", -3600.0)
            (found,) = look(road, client, pause=0)
            assert (found.check, found.place, found.name) == ("no-job", "books/transform", waiting.name)
            road.drop("still-being-written.csv", "id\n")
            assert len(look(road, client, pause=0)) == 1
            assert found.fix is not None
            assert found.fix() == "announced it"
            assert look(road, client, pause=0) == []


@contextmanager
def listening(road: Road, client: Any) -> Iterator[None]:
    """Be a worker that is connected and takes nothing."""
    name = "etl-test-worker"
    data_id = road.layout.data_id()
    client.sadd(keys.workers(data_id, "default"), f"rq:worker:{name}")
    with connection.open_socket(Path(client.connection_pool.connection_kwargs["path"])) as other:
        other.connection_pool.connection_kwargs["client_name"] = name
        other.ping()
        yield


def test_a_job_whose_worker_was_killed_is_told_and_cleared(road: Road) -> None:
    (road.root / "in" / "books.csv").write_text("id\n1\n")
    road.ask()
    data_id = road.layout.data_id()
    with connection.connect(EMBEDDED, road.data) as client:
        with worker(road, ETL_CRASH_AT="claim:after") as running:
            wait_until(
                lambda: looking.stranded_jobs(client, data_id, "default"), "a worker was killed in a job"
            )
            os.kill(running.pid, signal.SIGKILL)
        wait_until(
            lambda: not looking.living_workers(client, data_id, ["default"]),
            "the workers end with their guard",
        )
        found = look(road, client, pause=0)
        assert {one.check for one in found} == {"orphan", "stranded-job"}
        for one in found:
            assert one.fix is not None
            assert one.fix()
        assert look(road, client, pause=0) == []
    road.work()
    assert roads.count(f"sqlite:///{road.root}/books.db", "books") == 1
