"""What handlers log and print is kept with the file, and shown by the real command."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import threading
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from etl.files import attempt_logs
from etl.model import Failed
from tests.queue_helpers import wait_until
from tests.road import REPOSITORY, Road

TALKS = """
import logging, sys
from pathlib import Path
from etl.errors import Retryable
log = logging.getLogger(__name__)

def to_unit(row):
    log.info("row %s", row["id"])
    log.debug("not this")
    logging.getLogger("etl.stages").info("ours")
    print("printed\\twith", "a tab")
    print("two\\nlines", file=sys.stderr)
    try:
        1 / 0
    except ZeroDivisionError:
        log.exception("divided")
    sys.stdout.write("no end of line")
    if not (Path(__file__).parents[2] / "flag").exists():
        raise Retryable("not yet")
    return row
"""
SILENT = "def to_unit(row):\n    return row\n"


@pytest.fixture
def road(tmp_path: Path) -> Road:
    spec = {
        "transform": {
            "read": "csv",
            "handler": "handler:to_unit",
            "retry": {"times": 3, "first": "0s"},
        },
        "load": {"locations": {"lake": {"kind": "files", "path": "lake"}}},
    }
    return Road(tmp_path, spec, handlers={"handler": TALKS})


@pytest.fixture(autouse=True)
def _as_in_a_worker(caplog: pytest.LogCaptureFixture) -> None:
    """A worker's log takes records from INFO on."""
    caplog.set_level(logging.INFO)


def logs(road: Road) -> list[Path]:
    return sorted(road.data.glob("**/.logs/*"))


def lines(road: Road) -> list[tuple[str, str, str]]:
    """Give attempt, level and text of the lines of the only log."""
    (path,) = logs(road)
    name = path.name.removesuffix(".log")
    found, end = attempt_logs.read(road.layout, road.place("transform"), name)
    assert end == path.stat().st_size
    assert [line.at for line in found] == sorted(line.at for line in found)
    return [(line.attempt, line.level, line.text) for line in found]


def test_what_a_handler_logs_and_prints_is_kept_for_each_attempt_and_still_goes_on(road: Road) -> None:
    path, out = road.drop("books.csv", "id\n7\n"), io.StringIO()
    with redirect_stdout(out):
        road.perform(path)
        road.perform(road.one("transform", "working"))
        road.perform(road.one("transform", "working"))
        (road.root / "flag").touch()
        road.perform(road.one("transform", "working"))
    told = lines(road)
    for attempt in ("1", "2", "3"):
        mine = [(level, text) for number, level, text in told if number == attempt]
        assert mine[:5] == [
            ("INFO", "row 7"),
            ("STDOUT", "printed with a tab"),
            ("STDERR", "two"),
            ("STDERR", "lines"),
            ("ERROR", "divided"),
        ]
        assert ("ERROR", "ZeroDivisionError: division by zero") in mine
        assert mine[-2] == ("STDOUT", "no end of line")
        assert not [text for _, text in mine if text in ("ours", "not this")]
    ends = [text for _, level, text in told if level == "END"]
    assert [text.split(" in ")[0] for text in ends] == ["put off", "put off", "resolved"]
    assert "not yet" in ends[0]
    assert out.getvalue().count("printed\twith a tab\n") == 3
    assert road.broken_promises() == []
    assert logs(road)[0].parent == road.folder("transform", ".logs")


def test_a_file_that_logs_nothing_has_no_log_and_one_that_failed_says_how_it_ended(road: Road) -> None:
    road.handle(SILENT)
    road.drop("books.csv", "id\n7\n")
    road.work()
    assert logs(road) == []
    road.handle("def to_unit(row):\n    raise KeyError('x')\n")
    road.drop("worse.csv", "id\n8\n")
    assert [one for one in road.work() if isinstance(one, Failed)]
    ((attempt, level, text),) = lines(road)
    assert (attempt, level) == ("1", "END")
    assert text.startswith("failed in ")


def test_a_log_is_full_at_one_megabyte_and_says_so_once(road: Road) -> None:
    road.handle("def to_unit(row):\n    for _ in range(300):\n        print('x' * 9000)\n    return row\n")
    road.drop("books.csv", "id\n7\n")
    road.work()
    (path,) = logs(road)
    assert 900_000 < path.stat().st_size <= attempt_logs.MOST
    assert "the log is full at 1 MB" in lines(road)[-1][2]
    size = path.stat().st_size
    road.perform(road.move_back(road.one("transform", "resolved")))
    assert path.stat().st_size == size


def test_a_log_that_cannot_be_written_costs_nothing_but_itself(road: Road) -> None:
    (road.root / "flag").touch()
    road.folder("transform", ".logs").write_text("in the way")
    road.drop("books.csv", "id\n7\n")
    road.work()
    assert road.one("transform", "resolved")
    assert road.broken_promises() == []


def test_a_stream_that_a_handler_keeps_only_passes_on_afterwards(road: Road) -> None:
    road.handle(
        "import logging, sys\nlog = logging.getLogger('kept')\nlog.propagate = False\n"
        "log.addHandler(logging.StreamHandler(sys.stdout))\n"
        "def to_unit(row):\n    log.warning('hello')\n    return row\n"
    )
    before, level = list(logging.getLogger().handlers), logging.getLogger().level
    road.drop("one.csv", "id\n7\n")
    road.work()
    assert [text for _, level, text in lines(road) if level == "STDOUT"] == ["hello"]
    logging.getLogger("kept").warning("later")
    assert "later" not in logs(road)[0].read_text()
    assert (list(logging.getLogger().handlers), logging.getLogger().level) == (before, level)
    logging.getLogger("kept").handlers.clear()


def test_show_log_prints_all_pieces_in_order_of_time(road: Road) -> None:
    (road.root / "flag").touch()
    road.drop("books.csv", "id\n7\n")
    road.work()
    done = road.etl("show", "books.csv", "--log")
    assert done.returncode == 0, done.stderr
    assert " transform 1 INFO row 7\n" in done.stdout
    assert done.stdout.splitlines()[-1].split(" ", 3)[1:3] == ["transform", "1"]
    facts: list[dict[str, Any]] = json.loads(road.etl("show", "books.csv", "--log", "--json").stdout)
    assert {"place", "name", "at", "attempt", "level", "text"} == set(facts[0])
    assert facts[0]["attempt"] == 1
    assert [one["at"] for one in facts] == sorted(one["at"] for one in facts)
    unit_file = road.one("load", "resolved").name
    assert road.etl("show", unit_file, "--log").stderr == "nothing was logged\n"
    assert road.etl("show", "books.csv", "--follow").returncode == 2
    assert road.etl("show", "nothing.csv", "--log").returncode == 1


def test_etl_run_keeps_what_is_logged_from_info_on(road: Road) -> None:
    (road.root / "flag").touch()
    (road.root / "books.csv").write_text("id\n7\n")
    done = road.etl("run", "books", str(road.root / "books.csv"))
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert ("1", "INFO", "row 7") in lines(road)


def test_follow_goes_on_while_the_file_is_worked_and_ends_with_its_attempt(road: Road) -> None:
    road.handle(
        "import time\nfrom pathlib import Path\nROOT = Path(__file__).parents[2]\n"
        "def to_unit(row):\n    print('begun')\n    until = time.monotonic() + 60\n"
        "    while not (ROOT / 'go').exists() and time.monotonic() < until:\n        time.sleep(0.01)\n"
        "    print('done')\n    return row\n"
    )
    road.drop("books.csv", "id\n7\n")
    # in a process of its own: what a job's process has started when it ends is ended with it
    worker = threading.Thread(target=road.crash, args=("",))
    worker.start()
    try:
        wait_until(lambda: logs(road), "it is worked")
        command = [sys.executable, "-m", "etl", "--config", str(road.root / "config")]
        follower = subprocess.Popen(
            [*command, "show", "books.csv", "--log", "--follow"],
            cwd=road.root,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert follower.stdout is not None
        assert follower.stdout.readline().endswith("transform 1 STDOUT begun\n")
        assert follower.poll() is None
    finally:
        (road.root / "go").touch()
        worker.join()
    rest, _ = follower.communicate(timeout=30)
    assert follower.returncode == 0
    assert rest.splitlines()[0].endswith("transform 1 STDOUT done")
    assert " transform 1 END resolved in " in rest.splitlines()[-1]
