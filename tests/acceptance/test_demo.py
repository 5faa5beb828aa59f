"""The demo as a visitor runs it: from a folder with `config/` and `data.example/`, any number of times."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from etl.queues import embedded

ROOT = Path(__file__).resolve().parents[2]
DEMO = [sys.executable, "-m", "etl.cli.demo"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder as a fresh clone has it, as far as the demo looks at it."""
    for name in ("config", "data.example"):
        shutil.copytree(ROOT / name, tmp_path / name)
    return tmp_path


def demo(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        DEMO, cwd=folder, capture_output=True, text=True, env={**os.environ, **environment}, timeout=60
    )


def wait_until(condition: object, *, within: float = 30.0) -> None:
    until = time.monotonic() + within
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)


def test_the_demo_shows_every_stage_a_failure_and_its_retry_and_runs_twice(checkout: Path) -> None:
    for _ in range(2):
        ran = demo(checkout)
        assert (ran.returncode, ran.stderr) == (0, "")
        for pipeline in ("books", "orders", "sensors", "suppliers"):
            assert re.search(
                rf"^{pipeline}  \w+ -> .*\n  pull .*\n  extract .*\n  transform .*\n  load ", ran.stdout, re.M
            )
        assert re.search(r"^  summary +1 of 80 rows held back", ran.stdout, re.M)
        assert re.search(r"^  where +line 42, quantity: 0 is less than the minimum of 1$", ran.stdout, re.M)
        assert "319 rows before, 321 now, none of them twice" in ran.stdout
        assert "\x1b" not in ran.stdout
        assert [line for line in ran.stdout.splitlines() if len(line) > 80] == []
    fsck = subprocess.run(
        [sys.executable, "-m", "etl", "fsck"], cwd=checkout / "demo", capture_output=True, text=True
    )
    assert (fsck.returncode, fsck.stderr) == (0, "")
    assert re.match(r"clean: \d+ files, \d+ notes, \d+ keys at 5 locations$", fsck.stdout)


def test_the_move_it_prints_is_the_move_it_made(checkout: Path) -> None:
    told = demo(checkout).stdout
    folder = checkout / re.search(r"\$ cd (demo/\S+)", told)[1]  # type: ignore[index]
    moved = re.search(r"\$ mv failed/(\S+) working/", told)[1]  # type: ignore[index]
    assert (folder / "resolved" / moved).is_file()
    assert not (folder / "failed" / moved).exists()
    with closing(sqlite3.connect(checkout / "demo" / "data" / "warehouse.db")) as database:
        query = "SELECT line_no, quantity, _etl_line FROM order_items WHERE order_no = 'SO-10272' ORDER BY 1"
        # the row stood on line 42 of the file it came from, whatever file brought it here
        assert database.execute(query).fetchall() == [(1, 1, 42), (2, 3, 42)]


def test_the_demo_leaves_no_server_running_and_a_visitors_installation_alone(checkout: Path) -> None:
    ran = demo(checkout, ETL_DATA=str(checkout / "precious"), ETL_REDIS="redis://nowhere.invalid")
    assert ran.returncode == 0, ran.stderr
    assert not (checkout / "precious").exists()
    assert embedded.running(checkout / "demo" / "data") is None


def test_a_killed_demo_is_cleared_away_by_the_next(checkout: Path) -> None:
    data = checkout / "demo" / "data"
    with subprocess.Popen(DEMO, cwd=checkout, stdout=subprocess.DEVNULL) as killed:
        wait_until(lambda: embedded.running(data))
        os.kill(killed.pid, signal.SIGKILL)
    server = int((data / ".etl" / "redis" / "server.pid").read_text())
    # its workers end with it, and free its lock
    ran = demo(checkout)
    assert ran.returncode == 0, ran.stderr
    wait_until(lambda: not Path(f"/proc/{server}").exists())
    assert embedded.running(data) is None


def test_a_folder_of_that_name_that_is_not_the_demos_is_left_alone(checkout: Path) -> None:
    (checkout / "demo").mkdir()
    (checkout / "demo" / "thesis.txt").write_text("years of work")
    ran = demo(checkout)
    assert ran.returncode == 1
    assert ran.stderr == "demo: demo/ is not from an earlier demo. Move it away, then run this again\n"
    assert (checkout / "demo" / "thesis.txt").read_text() == "years of work"


def test_away_from_the_examples_it_says_where_to_go(tmp_path: Path) -> None:
    ran = demo(tmp_path)
    assert ran.returncode == 1
    assert "README.md" in ran.stderr
    assert list(tmp_path.iterdir()) == []
