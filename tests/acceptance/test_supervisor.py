"""`etl up`: what dies comes back, what is asked to stop stops in order, and nothing is left behind (P15, P23)."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from etl.config import reading
from etl.queues import connection, embedded
from etl.services import catalogue, records
from tests.queue_helpers import EMBEDDED, kill, lives, wait_until
from tests.road import Road, count
from tests.supervising import Up, environment, status, up

#: ends as soon as it is opened, with a code of its own.
ENDS_AT_ONCE = "def open(config):\n    raise SystemExit(3)\n"
SLOW = """
import time
from pathlib import Path

def to_unit(row):
    (Path(__file__).parents[2] / "begun").touch()
    time.sleep(1.5)
    return row
"""
#: starts a process that nobody waits for, in a session of its own, and hangs.
DETACHES = """
import subprocess, time
from pathlib import Path

def to_unit(row):
    stray = subprocess.Popen(["sleep", "600"], start_new_session=True)
    (Path(__file__).parents[2] / "stray").write_text(str(stray.pid))
    time.sleep(600)
"""


def project(root: Path, *, handler: str = "", **settings: Any) -> Road:
    transform = {"read": "csv", **({"handler": "handler:to_unit"} if handler else {})}
    location = {"kind": "sql", "url": "sqlite:///books.db", "table": "books", "create": True}
    spec = {"transform": transform, "load": {"locations": {"lite": location}}}
    handlers = {"handler": handler} if handler else {}
    return Road(root, spec, handlers=handlers, settings={"workers": 1, "scan": "1s", **settings})


@pytest.fixture
def road(tmp_path: Path) -> Road:
    return project(tmp_path)


def deliver(road: Road, name: str = "books.csv") -> None:
    """Have a file of one row pulled."""
    (road.root / name).write_text("isbn\n1\n")
    done = road.etl("extract", "books", name)
    assert done.returncode == 0, done.stderr


def rows(road: Road) -> int:
    return count(f"sqlite:///{road.root / 'books.db'}", "books")


def started(running: Up) -> dict[str, int]:
    """Wait until every service shows, and give their process ids."""
    wanted = catalogue.wanted(reading.read(running.road.root / "config"))
    return {name: running.pid(name) for name in ("supervisor", *wanted)}


# --- starting and seeing ------------------------------------------------------------------------------------


def test_services_are_started_do_their_work_and_are_shown(road: Road) -> None:
    with up(road) as running:
        pids = started(running)
        shown = {one["name"]: one for one in status(road)["services"]}
        assert {name: one["pid"] for name, one in shown.items()} == pids
        assert all(one["host"] == records.host() and one["restarts"] == 0 for one in shown.values())
        assert all(0 <= one["uptime"] < 60 for one in shown.values())
        assert "workers" in road.etl("status").stdout
        deliver(road)
        wait_until(lambda: rows(road) == 1, "the row is loaded")
        assert running.stop() == 0
    assert status(road)["services"] == []
    assert "no services run: start them with `etl up`" in road.etl("status").stdout


def test_as_many_workers_as_the_command_line_says(road: Road) -> None:
    with up(road, "--workers", "3") as running:
        guard = running.pid("workers")
        running.wait_for("3 workers on default")
        wait_until(lambda: status(road)["redis"]["workers"] == 3, "three workers are connected")
        assert guard in running.below()


def test_a_second_supervisor_names_the_holder_and_exits_2(road: Road) -> None:
    with up(road) as running:
        pids = started(running)
        second = road.etl("up")
        assert second.returncode == 2
        assert f"process {running.process.pid} on host {records.host()}, since 20" in second.stderr
        assert started(running) == pids


def test_a_redis_that_is_not_there_at_the_start_is_told(road: Road) -> None:
    done = road.etl("up", ETL_REDIS="redis://127.0.0.1:1/0")
    assert done.returncode == 2
    assert "127.0.0.1:1 does not answer" in done.stderr


def test_a_broken_pipeline_is_told_and_held_alone(road: Road) -> None:
    (road.root / "config" / "pipelines" / "broken.yaml").write_text("transform: {rread: csv}\n")
    with up(road) as running:
        started(running)
        assert "held: config/pipelines/broken.yaml" in running.text()
        deliver(road)
        wait_until(lambda: rows(road) == 1, "the row is loaded")


@pytest.mark.parametrize(
    ("name", "hint"), [("droppbox", "did you mean 'dropbox'?"), ("x", "there are: workers")]
)
def test_a_service_that_does_not_exist_is_a_usage_error(road: Road, name: str, hint: str) -> None:
    done = road.etl("service", name)
    assert done.returncode == 2
    assert hint in done.stderr


def test_a_service_alone_shows_and_stops_cleanly(road: Road) -> None:
    command = [sys.executable, "-m", "etl", "--config", str(road.root / "config"), "service", "workers"]
    with subprocess.Popen(command, env=environment(road), stderr=subprocess.PIPE, text=True) as alone:
        wait_until(
            lambda: [one.pid for one in records.living(road.data)] == [alone.pid], "its record is there"
        )
        wait_until(lambda: (status(road)["redis"] or {}).get("workers") == 1, "its worker is connected")
        alone.terminate()
        assert alone.wait(20) == 0
        assert alone.stderr and " workers    1 worker on default" in alone.stderr.read()
    assert records.living(road.data) == []


def test_workers_that_run_without_a_supervisor_are_shown_too(road: Road) -> None:
    command = [sys.executable, "-m", "etl", "--config", str(road.root / "config"), "worker"]
    with subprocess.Popen(command, env=environment(road), stderr=subprocess.DEVNULL) as worker:
        wait_until(lambda: [one["pid"] for one in status(road)["services"]] == [worker.pid], "it is shown")
        worker.terminate()
        assert worker.wait(20) == 0
    assert status(road)["services"] == []


# --- dying ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["workers", "dropbox"])
def test_a_killed_service_is_started_again_at_once_with_its_restarts_counted(road: Road, name: str) -> None:
    with up(road) as running:
        before = started(running)
        for restarts in (1, 2):
            old = running.pid(name)
            os.kill(old, signal.SIGKILL)
            running.pid(name, other_than=old)
            # at once, however soon it died: `test_respawn` shows the seconds, with a clock of its own
            assert f"{name} (process {old}) was ended by SIGKILL; it is started again\n" in running.text()
            assert running.services()[name].restarts == restarts
        others = {"supervisor", "workers", "dropbox"} - {name}
        assert {other: running.pid(other) for other in others} == {other: before[other] for other in others}
        deliver(road)
        wait_until(lambda: rows(road) == 1, "the row is loaded")


def test_a_service_that_keeps_ending_is_started_ever_later_and_told(road: Road) -> None:
    with up(road, dropbox=ENDS_AT_ONCE) as running:
        text = running.wait_for("started again in 2 s")
        # one that is slow to end, on a busy machine, did not end at once
        assert text.count("dropbox started") >= 4
        assert "ended with code 3; it keeps ending and is started again in 1 s" in text
        assert running.services()["workers"].restarts == 0
        assert running.stop() == 0


def test_what_a_killed_guard_leaves_behind_is_ended(tmp_path: Path) -> None:
    road = project(tmp_path, handler=DETACHES)
    with up(road) as running:
        guard = running.pid("workers")
        deliver(road)
        stray = int(
            wait_until(lambda: (road.root / "stray").exists() and (road.root / "stray").read_text(), "x")
        )
        os.kill(guard, signal.SIGKILL)
        wait_until(lambda: not lives(stray), "the stray is gone")


def test_a_killed_supervisor_leaves_nothing_behind_and_its_successor_starts(road: Road) -> None:
    with up(road) as running:
        started(running)
        wait_until(lambda: (status(road)["redis"] or {}).get("workers") == 1, "the worker is connected")
        assert len(running.below()) >= 3  # workers, a worker, dropbox
        kill(running.process.pid)
        running.process.wait()
        running.nothing_runs()
        assert status(road)["services"] == []
    with up(road) as running:
        started(running)


def test_a_killed_embedded_server_is_back_and_the_services_go_on(road: Road) -> None:
    with up(road) as running:
        pids = started(running)
        socket = wait_until(lambda: embedded.running(road.data), "the server runs")
        server = int((road.data / ".etl" / "redis" / "server.pid").read_text())
        kill(server)
        running.wait_for("the embedded Redis had ended and was started again")
        assert embedded.running(road.data) == socket
        deliver(road)
        wait_until(lambda: rows(road) == 1, "the row is loaded")
        assert started(running) == pids


def test_a_redis_that_goes_away_ends_no_service(tmp_path: Path) -> None:
    other = tmp_path / "other"
    with connection.connect(EMBEDDED, other):
        url = connection.url(EMBEDDED, other)
        road = project(tmp_path / "project", redis=url.get_secret_value())
        with up(road) as running:
            pids = started(running)
            kill(int((other / ".etl" / "redis" / "server.pid").read_text()))
            # one that is started while Redis is away waits for it
            os.kill(pids["workers"], signal.SIGKILL)
            workers = running.pid("workers", other_than=pids["workers"])
            running.wait_for("waits: Redis at")
            connection.revive(EMBEDDED, other)
            running.wait_for("1 worker on default")
            deliver(road)
            wait_until(lambda: rows(road) == 1, "the row is loaded")
            assert started(running) == {**pids, "workers": workers}
            assert running.stop() == 0
        assert connection.url(EMBEDDED, other) == SecretStr(url.get_secret_value())


# --- stopping ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_is_in_order_finishes_what_is_in_hand_and_leaves_nothing(tmp_path: Path, number: int) -> None:
    road = project(tmp_path, handler=SLOW)
    with up(road) as running:
        started(running)
        deliver(road)
        wait_until((road.root / "begun").exists, "the job has begun")
        running.below()
        running.signal(number)
        assert running.process.wait(20) == 0
        running.nothing_runs()
        text = running.text()
        assert (
            text.index("dropbox stopped") < text.index("workers stopped") < text.rindex("supervisor stopped")
        )
        assert len(road.files("transform", "resolved")) == 1
        assert embedded.running(road.data) is None


def test_a_second_signal_ends_everything_at_once(tmp_path: Path) -> None:
    road = project(tmp_path, handler=DETACHES)
    with up(road) as running:
        started(running)
        deliver(road)
        wait_until((road.root / "stray").exists, "the job has begun")
        running.below()
        running.signal(signal.SIGTERM)
        running.wait_for("dropbox stopped")
        running.signal(signal.SIGTERM)
        assert running.process.wait(10) == 0
        running.nothing_runs()


def test_a_closed_terminal_stops_everything(road: Road) -> None:
    command = [sys.executable, "-m", "etl", "--config", str(road.root / "config"), "up"]
    variables = environment(road)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(road.root)
        os.execve(sys.executable, command, variables)
    wait_until(lambda: len(records.living(road.data)) == 3, "the services run")
    os.close(terminal)
    _, code = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(code) == 0
    assert records.living(road.data) == []


# --- reload --------------------------------------------------------------------------------------------------


def test_a_reload_starts_every_service_anew_with_the_new_configuration(road: Road) -> None:
    with up(road) as running:
        before = started(running)
        road.settings["workers"] = 2
        road.write()
        done = road.etl("reload")
        assert done.returncode == 0, done.stderr
        after = started(running)
        assert after["supervisor"] == before["supervisor"]
        for name in ("workers", "dropbox"):
            assert after[name] != before[name]
            assert f"{name}: process {before[name]} -> {after[name]}" in done.stdout
            assert running.services()[name].restarts == 0
        running.wait_for("2 workers on default")


def test_a_configuration_that_cannot_be_followed_is_not_reloaded(road: Road) -> None:
    settings = road.root / "config" / "settings.yaml"
    with up(road) as running:
        before = started(running)
        good = settings.read_text()
        settings.write_text("workers: many\n")
        done = road.etl("reload")
        assert done.returncode == 2
        assert "'many' is not a whole number" in done.stderr
        # and who signals it by hand learns it from the log
        running.signal(signal.SIGHUP)
        running.wait_for("not reloaded, the services go on as they are: config/settings.yaml:1: workers")
        settings.write_text(f"{good}\nredis: redis://localhost:1/0\n")
        running.signal(signal.SIGHUP)
        running.wait_for("`redis` has changed")
        settings.write_text(good)
        road.handlers["handler"] = "def to_unit(row) return row"
        road.transform(handler="handler:to_unit")
        done = road.etl("reload")
        assert done.returncode == 2
        assert "handler" in done.stderr
        assert started(running) == before


def test_a_reload_without_a_supervisor_says_what_to_do(road: Road) -> None:
    done = road.etl("reload")
    assert done.returncode == 2
    assert "no supervisor runs" in done.stderr
    assert "systemctl restart etl-workers etl-dropbox" in done.stderr
