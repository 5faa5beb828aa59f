"""Real workers on the embedded Redis: every row once in every database, whoever works, dies, or is away."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rq.registry import FinishedJobRegistry

from etl.config import reading
from etl.files.layout import Layout
from etl.model import Place, Stage, Waiting
from etl.queues import connection, enqueue, keys
from etl.queues.job import JSON, Job
from tests.road import Road, count, rows

#: a closed port on this host: nobody answers there.
NOBODY = "postgresql+psycopg://nobody@127.0.0.1:1/nothing"


def csv_of(size: int, first: int = 1) -> str:
    return "isbn,title\n" + "".join(f"{number},Book {number}\n" for number in range(first, first + size))


def spec(locations: dict[str, Any], **transform: Any) -> dict[str, Any]:
    return {"transform": {"read": "csv", **transform}, "load": {"locations": locations}}


def sql(url: str) -> dict[str, Any]:
    return {"kind": "sql", "url": url, "table": "books", "create": True}


def wait_until(condition: Callable[[], Any], what: str, within: float = 60.0) -> Any:
    until = time.monotonic() + within
    while time.monotonic() < until:
        if result := condition():
            return result
        time.sleep(0.02)
    raise AssertionError(f"waited in vain: {what}")


def put(road: Road, name: str, text: str) -> str:
    """Write a file beside the project, to be given to `etl run`."""
    (road.root / name).write_text(text)
    return name


def announce(road: Road, waiting: list[Waiting]) -> Any:
    """Announce jobs and let four workers at them until the queue is empty."""
    config = reading.read(road.root / "config")
    with (
        connection.connect(config.settings.redis, config.data) as client,
        road.opened() as app,
    ):
        enqueue.RedisAnnouncer(client, app.data_id).announce([app.work(one) for one in waiting])
        done = road.etl("worker", "--burst", "--workers", "4")
        assert done.returncode == 0, done.stderr
        return done


def finished_jobs(road: Road) -> Counter[str]:
    """Count RQ's own record of finished jobs by function."""
    config = reading.read(road.root / "config")
    with connection.connect(config.settings.redis, config.data) as client:
        name = keys.queue_name(Layout(config.data).data_id(), "default")
        registry = FinishedJobRegistry(name, connection=client, job_class=Job, serializer=JSON)
        jobs = Job.fetch_many(registry.get_job_ids(), connection=client, serializer=JSON)
        return Counter(job.func_name.rpartition(".")[2] for job in jobs if job is not None)


def test_ten_thousand_rows_are_in_both_databases_once_however_often_their_jobs_come(
    tmp_path: Path, postgres: str
) -> None:
    sqlite = f"sqlite:///{tmp_path / 'books.db'}"
    road = Road(tmp_path, spec({"lite": sql(sqlite), "pg": sql(postgres)}, units_per_file=1_000))
    done = road.etl("run", "books", put(road, "books.csv", csv_of(10_000)))
    assert done.returncode == 0, done.stdout + done.stderr
    expected = [(str(number),) for number in range(1, 10_001)]

    def check() -> None:
        for url in (sqlite, postgres):
            assert sorted(rows(url, "books", "isbn"), key=lambda row: int(row[0])) == expected
        assert road.broken_promises() == []

    check()
    loaded = road.files("load", "resolved")
    assert len(loaded) == 10
    jobs = [Waiting(place=Place(pipeline="books", stage=Stage.LOAD), name=path.name) for path in loaded]
    announce(road, jobs)  # the files are done: the jobs find nothing
    check()
    for path in loaded:
        road.move_back(path)
    done = announce(road, [job for job in jobs for _ in range(4)])  # four workers, the same jobs at once
    assert "Traceback" not in done.stderr
    check()
    assert road.files("load", "working") == []
    assert len(road.files("load", "resolved")) == 10


def test_one_unit_per_file_makes_as_many_unit_files_and_load_jobs_as_units(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'books.db'}"
    road = Road(tmp_path, spec({"lite": sql(url)}, units_per_file=1))
    done = road.etl("run", "books", put(road, "books.csv", csv_of(200)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(road.files("load", "resolved")) == 200
    assert count(url, "books") == 200
    assert finished_jobs(road) == {"extract": 1, "transform": 1, "load": 200}


def test_a_location_that_is_down_costs_only_itself_and_a_rename_makes_it_good(
    tmp_path: Path, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sqlite = f"sqlite:///{tmp_path / 'books.db'}"
    monkeypatch.setenv("WAREHOUSE", NOBODY)
    road = Road(tmp_path, spec({"warehouse": sql("${WAREHOUSE}"), "lite": sql(sqlite)}, units_per_file=400))
    done = road.etl("run", "books", put(road, "books.csv", csv_of(1_000)))
    assert done.returncode == 1
    assert count(sqlite, "books") == 1_000
    copies = road.files("load", "warehouse", "failed")
    assert len(copies) == 3
    for copy in copies:
        reason = road.reason(copy)
        assert "location 'warehouse'" in reason["summary"]
        assert "cannot be reached" in reason["summary"]
        assert "load/warehouse/working" in reason["next"]
        assert "other locations are not affected" in reason["impact"]
    assert len(road.files("load", "resolved")) == 3

    monkeypatch.setenv("WAREHOUSE", postgres)
    untouched = (tmp_path / "books.db").read_bytes()
    for copy in copies:
        os.rename(copy, road.folder("load", "warehouse", "working") / copy.name)
    done = road.etl("run", "books")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (count(postgres, "books"), count(sqlite, "books")) == (1_000, 1_000)
    assert road.files("load", "warehouse", "failed") == []
    assert len(road.files("load", "warehouse", "resolved")) == 3
    assert (tmp_path / "books.db").read_bytes() == untouched
    assert road.broken_promises() == []


# --- two files of one name ---------------------------------------------------------------------------------


def test_a_second_file_of_a_name_dropped_after_the_first_was_worked_is_a_file_of_its_own(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path / 'books.db'}"
    road = Road(tmp_path, spec({"lite": sql(url)}))
    for first in (1, 11):
        road.drop("books.csv", csv_of(10, first))
        done = road.etl("run", "books")
        assert done.returncode == 0, done.stdout + done.stderr
    assert count(url, "books") == 20
    for stage in ("extract", "transform", "load"):
        assert len(road.files(stage, "resolved")) == 2
    assert road.broken_promises() == []


def test_a_second_file_of_a_name_dropped_while_the_first_waits_under_its_id_replaces_nothing(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path / 'books.db'}"
    road = Road(tmp_path, spec({"lite": sql(url)}))
    for first in (1, 11):
        road.perform(road.drop("books.csv", csv_of(10, first)))
    waiting = road.files("transform", "working")
    assert len(waiting) == 2
    assert waiting[0].read_text() == csv_of(10, 1)
    road.work()
    assert count(url, "books") == 20
    assert road.broken_promises() == []


HOLDS_ON = """
import pathlib, time
HERE = pathlib.Path(__file__).parent
def to_unit(row):
    if row["isbn"] == "1":
        (HERE / "begun").touch()
        until = time.monotonic() + 60
        while not (HERE / "go").exists() and time.monotonic() < until:
            time.sleep(0.02)
    return row
"""


@pytest.fixture
def running() -> Iterator[list[subprocess.Popen[str]]]:
    """Programs a test starts; those that still run at its end are ended."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for one in started:
        if one.poll() is None:
            one.kill()
        one.communicate()


def test_a_second_file_of_a_name_dropped_while_the_first_is_in_process_replaces_nothing(
    tmp_path: Path, running: list[subprocess.Popen[str]]
) -> None:
    url = f"sqlite:///{tmp_path / 'books.db'}"
    handlers = {"slow": HOLDS_ON}
    road = Road(tmp_path, spec({"lite": sql(url)}, handler="slow:to_unit"), handlers=handlers)
    road.drop("books.csv", csv_of(10), Stage.TRANSFORM)
    run = subprocess.Popen(
        [sys.executable, "-m", "etl", "run", "books"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    running.append(run)
    wait_until((tmp_path / "config/handlers/begun").exists, "the first file is being worked")
    assert len(road.files("transform", "in_process")) == 1
    road.drop("books.csv", csv_of(10, 11), Stage.TRANSFORM)
    wait_until(lambda: len(road.files("transform", "resolved")) == 1, "the second file is done")
    (tmp_path / "config/handlers/go").touch()
    told, _ = run.communicate(timeout=60)
    assert run.returncode == 0, told
    assert count(url, "books") == 20
    assert len(road.files("transform", "resolved")) == 2
    assert road.broken_promises() == []


# --- handlers that do not behave ---------------------------------------------------------------------------


def test_a_file_that_kills_its_worker_three_times_is_given_up_and_the_others_are_loaded(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path / 'books.db'}"
    code = "import os\ndef to_unit(row):\n    return os._exit(0) if row['isbn'] == '666' else row\n"
    road = Road(tmp_path, spec({"lite": sql(url)}, handler="evil:to_unit"), handlers={"evil": code})
    done = road.etl("run", "books", put(road, "bad.csv", csv_of(1, 666)), put(road, "good.csv", csv_of(10)))
    assert done.returncode == 1, done.stdout + done.stderr
    failed = road.one("transform", "failed")
    assert failed.name.startswith("bad~")
    reason = road.reason(failed)
    assert "died 3 times" in reason["summary"]
    assert reason["attempt"] == 3
    assert count(url, "books") == 10
    assert "Traceback" not in done.stderr


def test_a_handler_that_takes_longer_than_its_time_limit_fails_the_file_with_that_reason(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path / 'books.db'}"
    # a handler that catches everything it is thrown must not get away with it
    code = (
        "import time\ndef to_unit(row):\n    try:\n        time.sleep(60)\n"
        "    except Exception:\n        pass\n    return row\n"
    )
    road = Road(
        tmp_path, spec({"lite": sql(url)}, handler="slow:to_unit", timeout="1s"), handlers={"slow": code}
    )
    done = road.etl("run", "books", put(road, "books.csv", csv_of(3)))
    assert done.returncode == 1, done.stdout + done.stderr
    reason = road.reason(road.one("transform", "failed"))
    assert reason["summary"] == "it took longer than the 1 s that transform.timeout allows"
    assert "`timeout` under `transform:`" in reason["next"]
    assert count(url, "books") == 0
