"""What an ordinary user may not do, and servers that go away: said with a reason, and nothing else is stopped."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from etl.queues import connection
from tests.queue_helpers import EMBEDDED, kill, wait_until
from tests.road import REPOSITORY, Road, count, query

ROW = "isbn,title\n1,Emma\n"
#: gives up what root may do to other users' files, then becomes the command; changes nothing for others.
ORDINARY = """
import ctypes, os, sys
for right in range(5):
    ctypes.CDLL(None).prctl(24, right, 0, 0, 0)
os.execv(sys.executable, [sys.executable, "-m", "etl", *sys.argv[1:]])
"""
NOBODY = 65534


def project(root: Path, **sections: Any) -> Road:
    locations = {"lite": {"kind": "sql", "url": "sqlite:///books.db", "table": "books", "create": True}}
    return Road(root, {"transform": {"read": "csv"}, "load": {"locations": locations}, **sections})


def loaded(road: Road) -> int:
    return count(f"sqlite:///{road.root / 'books.db'}", "books")


def ordinary(road: Road, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the real command as somebody who owns nothing but their own files."""
    return subprocess.run(
        [sys.executable, "-c", ORDINARY, *arguments],
        cwd=road.root,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root can make another user's file"
)
def test_a_file_that_belongs_to_somebody_else_is_worked_like_any_other(tmp_path: Path) -> None:
    road = project(tmp_path)
    for stage in ("extract", "transform"):
        path = road.drop(f"{stage}.csv", ROW, stage=stage)  # type: ignore[arg-type]
        os.chown(path, NOBODY, NOBODY)
    done = ordinary(road, "run", "books", "--inline")
    assert done.returncode == 0, done.stderr
    assert loaded(road) == 2
    assert road.broken_promises() == []


def test_a_file_that_may_not_be_read_fails_with_a_reason_and_is_loaded_once_it_may(tmp_path: Path) -> None:
    road = project(tmp_path)
    path = road.drop("secret.csv", ROW)
    path.chmod(0)
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)
    road.drop("good.csv", ROW)
    done = ordinary(road, "run", "books", "--inline")
    assert done.returncode == 1, done.stderr
    assert loaded(road) == 1
    failed = road.one("extract", "failed")
    assert "may not be read by this user" in road.reason(failed)["summary"]
    failed.chmod(0o644)
    road.move_back(failed)
    assert ordinary(road, "run", "books", "--inline").returncode == 0
    assert loaded(road) == 2
    assert road.broken_promises() == []


def test_a_source_that_may_not_be_moved_away_is_copied_nowhere_however_often_it_is_pulled(
    tmp_path: Path,
) -> None:
    road = project(tmp_path, extract={"sources": [{"path": "incoming/*.csv", "after": {"move": "done"}}]})
    incoming = tmp_path / "incoming"
    incoming.mkdir()
    (incoming / "a.csv").write_text(ROW)
    incoming.chmod(0o555)
    for _ in range(2):
        road.ask()
        assert ordinary(road, "run", "books", "--inline").returncode == 0
    incoming.chmod(0o755)
    assert loaded(road) == 1
    assert list((tmp_path / "done").iterdir()) == []


def test_the_check_names_a_source_it_may_not_read_and_goes_on(tmp_path: Path) -> None:
    road = project(tmp_path, extract={"sources": ["incoming"]})
    (tmp_path / "incoming").mkdir(mode=0)
    done = ordinary(road, "check")
    (tmp_path / "incoming").chmod(0o755)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "source incoming" in done.stdout
    assert "cannot be read" in done.stdout
    assert "location lite" in done.stdout


def test_the_check_is_not_ended_by_a_handler_that_leaves_when_it_is_imported(tmp_path: Path) -> None:
    road = project(tmp_path)
    road.handle("import sys\nsys.exit(0)\n")
    road.transform(handler="handler:to_unit")
    done = road.etl("check")
    assert done.returncode == 2
    assert "handler.py cannot be imported: SystemExit" in done.stdout


def test_brackets_in_a_name_or_in_the_projects_folder_mean_themselves(tmp_path: Path) -> None:
    road = project(tmp_path / "site [1]", extract={"sources": ["a[1].csv", "incoming/*.csv"]})
    (road.root / "incoming").mkdir()
    for name in ("a[1].csv", "incoming/b.csv"):
        (road.root / name).write_text(ROW)
    road.ask()
    road.work()
    assert loaded(road) == 2


def test_what_cannot_be_claimed_puts_its_older_twin_away(tmp_path: Path) -> None:
    road = project(tmp_path)
    road.drop("wrong.csv", "")
    road.work()
    failed = road.one("transform", "failed")
    shutil.copy(failed, road.folder("transform", "working"))
    note = road.folder("transform", ".notes", f"{failed.name}.json")
    note.write_text("not JSON")
    road.work()
    assert "is damaged" in road.reason(road.one("transform", "failed"))["summary"]
    assert [one.check for one in road.findings()] == ["note-damaged"]
    assert len([path for path in (road.data / "archive/superseded").rglob("*") if path.is_file()]) == 1


def test_a_reason_tells_the_first_of_very_many_wrong_rows_and_counts_the_others(tmp_path: Path) -> None:
    road = project(tmp_path)
    road.transform(schema={"properties": {"isbn": {"type": "integer"}}})
    road.drop("many.csv", ROW + "x,Ulysses\n" * 10_500)
    road.work()
    held = road.one("transform", "failed")
    where = road.reason(held)["where"]
    assert len(where) == 10_001
    assert where[-1] == {"cause": "… and 500 more"}
    assert road.note(held).rows == len(road.note(held).lines) == 10_500


def test_a_location_that_refuses_everything_quotes_no_value_of_a_pipeline_that_redacts(
    tmp_path: Path,
) -> None:
    road = project(tmp_path, redact=["title"])
    url = f"sqlite:///{tmp_path / 'books.db'}"
    query(
        url, "CREATE TABLE books (isbn TEXT, title TEXT, _etl_file TEXT, _etl_generation INT, _etl_line INT)"
    )
    query(
        url,
        "CREATE TRIGGER no BEFORE INSERT ON books BEGIN SELECT RAISE(ABORT, 'canary 4711 is refused'); END",
    )
    road.drop("a.csv", ROW)
    road.work()
    failed = road.one("load", "lite", "failed")
    assert "redacts" in road.reason(failed)["summary"]
    road.work()
    road.move_back(failed)
    road.work()
    assert [path for path in road.data.rglob("*.json") if "canary" in path.read_text()] == []


def test_workers_wait_for_a_redis_that_is_away_and_go_on_when_it_is_back(tmp_path: Path) -> None:
    server, log = tmp_path / "server", tmp_path / "worker.log"
    server.mkdir()
    with connection.connect(EMBEDDED, server) as client:
        url = connection.url(EMBEDDED, server).get_secret_value()
        road = project(tmp_path / "site", extract={"sources": ["a.csv"]})
        road.settings = {"redis": url, "scan": "200ms", "workers": 1}
        road.write()
        (road.root / "a.csv").write_text(ROW)
        command = [sys.executable, "-m", "etl", "--config", str(road.root / "config"), "worker"]
        with log.open("w") as told, subprocess.Popen(command, stderr=told, cwd=REPOSITORY) as worker:
            try:
                wait_until(lambda: "1 worker on" in log.read_text(), "the worker has started")
                kill(int(client.info("server")["process_id"]))
                wait_until(lambda: "the scan is put off" in log.read_text(), "the outage is told")
                road.ask()
                connection.revive(EMBEDDED, server)
                wait_until(lambda: loaded(road) == 1, "the request is followed")
                assert worker.poll() is None
            finally:
                worker.terminate()
        assert worker.returncode == 0
        assert "Traceback" not in log.read_text()
