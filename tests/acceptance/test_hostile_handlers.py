"""Handlers that die, hang, fork and detach: each file ends with a true reason, nothing of it runs on, others flow.

With real workers, as `etl worker` keeps them, and with `etl run`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from etl.files import arrivals
from tests.queue_helpers import lives, wait_until
from tests.road import REPOSITORY, Road, rows

#: `etl worker`, with less patience than ten seconds.
WORKERS = """
import logging, pathlib, sys
logging.basicConfig(level=logging.INFO, format="%(process)d %(message)s")
from etl.config import reading
from etl.services import horses, service
config = reading.read(pathlib.Path(sys.argv[1]))
service.keep(horses.Workers(config, [], config.settings.workers, overrun=0.5))
"""

#: every handler notes the processes it starts, and does its evil to the rows of `evil.csv` alone.
BEGIN = """
import itertools, multiprocessing, os, pathlib, signal, subprocess, sys, time
HERE = pathlib.Path(__file__).parent

def note(pid):
    with open(HERE / "pids", "a") as pids:
        pids.write(f"{pid}\\n")

def detach():
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(writer, b"%d" % os.getpid())
            os.closerange(3, 256)
            os.execvp("sleep", ["sleep", "1000"])
        os._exit(0)
    note(int(os.read(reader, 20)))

def eat_everything():
    while True:
        try:
            time.sleep(60)
        except BaseException:
            continue

def to_unit(row):
    if row["title"] == "evil":
        note(os.getpid())
        do_evil()
    return row

"""

#: it takes longer than its time limit, and only its end helps.
OVERRUNS = {
    "loops_inside_c": "    sum(itertools.repeat(0))",
    "blocks_every_signal": "    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); time.sleep(1000)",
    "eats_every_exception": "    eat_everything()",
    "hangs_beside_a_detached_process": "    detach(); eat_everything()",
    "hangs_beside_a_child_that_ignores_signals": (
        "    note(subprocess.Popen(['sh', '-c', 'trap \"\" TERM INT HUP; sleep 1000; sleep 1000']).pid)\n"
        "    eat_everything()"
    ),
}
#: it returns, and leaves something running.
LEAVES = {
    "forks_a_child_that_stays": (
        "    pid = os.fork()\n    if pid == 0:\n        time.sleep(1000)\n    note(pid)",
        "1 process running (a fork of the worker itself); it was ended",
    ),
    "starts_a_multiprocessing_child": (
        "    child = multiprocessing.get_context('fork').Process(target=time.sleep, args=(1000,))\n"
        "    child.start(); note(child.pid)",
        "1 process running (a fork of the worker itself); it was ended",
    ),
    "starts_a_session_of_its_own": (
        "    note(subprocess.Popen(['sleep', '1000'], start_new_session=True).pid)",
        "1 process running (sleep 1000); it was ended",
    ),
    "starts_a_detached_process": ("    detach()", "1 process running (sleep 1000); it was ended"),
    "leaves_two": ("    detach(); detach()", "2 processes running (sleep 1000, sleep 1000); they were ended"),
}
#: it ends its worker.
KILLS = {
    "exits": ("    os._exit(0)", "ended with code 0"),
    "crashes": ("    os.kill(os.getpid(), signal.SIGSEGV)", "was ended by SIGSEGV"),
    "is_killed_for_its_memory": (
        "    detach(); os.kill(os.getpid(), signal.SIGKILL)",
        "was ended by SIGKILL",
    ),
}
TIME_LIMIT = "it took longer than the 1 s that transform.timeout allows"


def csv_of(title: str, *isbns: int) -> str:
    return "isbn,title\n" + "".join(f"{isbn},{title}\n" for isbn in isbns)


@pytest.fixture
def road(tmp_path: Path) -> Road:
    location = {"kind": "sql", "url": f"sqlite:///{tmp_path / 'books.db'}", "table": "books", "create": True}
    spec = {
        "transform": {"read": "csv", "handler": "evil:to_unit", "timeout": "1s"},
        "load": {"locations": {"lite": location}},
    }
    return Road(tmp_path, spec, handlers={"evil": BEGIN}, settings={"scan": "1s"})


def write(road: Road, evil: str) -> None:
    road.handle(f"{BEGIN}def do_evil():\n{evil}\n", "evil")


def deliver(road: Road, name: str, text: str) -> None:
    (road.root / name).write_text(text)
    arrivals.deliver(road.layout, road.pipeline, road.root / name)


def loaded(road: Road) -> list[tuple[Any, ...]]:
    return rows(f"sqlite:///{road.root / 'books.db'}", "books", "isbn")


def started(road: Road) -> list[int]:
    """Give every process that had to do with the evil file."""
    pids = road.root / "config/handlers/pids"
    return [int(pid) for pid in pids.read_text().split()] if pids.exists() else []


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(road: Road) -> Iterator[Start]:
    """Start a program in the project's folder; those that still run at the end are ended."""
    begun: list[subprocess.Popen[str]] = []

    def start(*command: str) -> subprocess.Popen[str]:
        environ = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        with (road.root / "log").open("a") as log:
            begun.append(
                subprocess.Popen(
                    [sys.executable, *command], cwd=road.root, env=environ, stdout=log, stderr=log, text=True
                )
            )
        return begun[-1]

    yield start
    for one in begun:
        if one.poll() is None:
            one.terminate()
            one.wait(30)
    for pid in started(road):
        if lives(pid):
            os.kill(pid, signal.SIGKILL)


def work_both(road: Road, start: Start) -> dict[str, Any]:
    """Have workers work an evil file and a good one after it, and give the reason of the evil one."""
    guard = start("-c", WORKERS, "config")
    deliver(road, "evil.csv", csv_of("evil", 666))
    wait_until(lambda: road.files("transform", "failed"), f"the evil file failed: {road.tree()}")
    assert [pid for pid in started(road)[1:] if lives(pid)] == []
    deliver(road, "good.csv", csv_of("good", 1, 2))
    wait_until(lambda: road.files("load", "resolved"), "the next file flows")
    guard.send_signal(signal.SIGTERM)
    assert guard.wait(30) == 0
    assert started(road)
    assert [pid for pid in started(road) if lives(pid)] == []
    assert loaded(road) == [("1",), ("2",)]
    assert road.broken_promises() == []
    assert list(road.data.rglob("*.fate")) == []
    return road.reason(road.one("transform", "failed"))


@pytest.mark.parametrize("evil", OVERRUNS)
def test_a_handler_that_does_not_stop_at_its_time_limit_is_ended_and_its_file_says_so(
    road: Road, start: Start, evil: str
) -> None:
    write(road, OVERRUNS[evil])
    reason = work_both(road, start)
    assert reason["summary"] == TIME_LIMIT
    assert "`timeout` under `transform:`" in reason["next"]
    assert "its worker was ended" in reason["cause"]
    assert reason["attempt"] == 1


@pytest.mark.parametrize("evil", LEAVES)
def test_what_a_handler_leaves_running_is_ended_before_anything_is_committed(
    road: Road, start: Start, evil: str
) -> None:
    code, left = LEAVES[evil]
    write(road, code)
    reason = work_both(road, start)
    assert reason["summary"] == f"the handler left {left}"
    assert reason["next"].startswith("a handler must end what it starts")
    assert reason["attempt"] == 1


@pytest.mark.parametrize("evil", KILLS)
def test_a_handler_that_ends_its_worker_costs_its_own_file_and_the_cause_says_how(
    road: Road, start: Start, evil: str
) -> None:
    code, why = KILLS[evil]
    road.settings["scan"] = "1h"  # nobody but the guard brings it back
    write(road, code)
    deliver(road, "evil.csv", csv_of("evil", 666))
    guard = start("-c", WORKERS, "config")
    wait_until(lambda: road.files("transform", "failed"), "the evil file failed")
    reason = road.reason(road.one("transform", "failed"))
    assert reason["summary"] == "its worker died 3 times while working this file"
    assert reason["cause"] == f"the last time its worker {why}"
    assert reason["attempt"] == 3
    wait_until(lambda: not [pid for pid in started(road) if lives(pid)], "nothing of it runs")
    guard.terminate()
    assert guard.wait(30) == 0
    assert road.broken_promises() == []


FORKED = """    pid = os.fork()
    note(pid or os.getpid())
    if pid == 0 and {raises}:
        raise {error}
"""


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("error", ["", "ValueError('in the child')", "SystemExit(3)", "KeyboardInterrupt"])
def test_a_forked_child_that_returns_from_the_handler_goes_no_further(
    road: Road, start: Start, error: str, inline: bool
) -> None:
    write(road, FORKED.format(raises=bool(error), error=error or "None"))
    (road.root / "both.csv").write_text(csv_of("good", *range(50)) + csv_of("evil", 50, 51).split("\n", 1)[1])
    done = road.etl("run", "books", "both.csv", *(["--inline"] if inline else []))
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(int(isbn) for (isbn,) in loaded(road)) == list(range(52))
    assert len(started(road)) == 6
    assert [pid for pid in started(road) if lives(pid)] == []
    assert road.broken_promises() == []


@pytest.mark.parametrize("evil", ["starts_a_detached_process", "forks_a_child_that_stays"])
def test_inline_too_a_handler_must_end_what_it_starts(road: Road, evil: str) -> None:
    code, left = LEAVES[evil]
    write(road, code)
    (road.root / "evil.csv").write_text(csv_of("evil", 666))
    done = road.etl("run", "books", "evil.csv", "--inline")
    assert done.returncode == 1, done.stdout + done.stderr
    assert road.reason(road.one("transform", "failed"))["summary"] == f"the handler left {left}"
    assert [pid for pid in started(road) if lives(pid)] == []


def test_other_children_of_the_process_that_works_are_left_alone(road: Road) -> None:
    with subprocess.Popen(["sleep", "1000"]) as other:
        write(road, LEAVES["forks_a_child_that_stays"][0])
        road.drop("evil.csv", csv_of("evil", 666))
        road.work()
        assert "left 1 process running" in road.reason(road.one("transform", "failed"))["summary"]
        assert other.poll() is None
        assert not lives(started(road)[1])
        other.kill()


def test_a_handler_may_start_what_it_waits_for(road: Road) -> None:
    write(
        road,
        "    subprocess.run(['true'], check=True); subprocess.Popen(['true'])\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        assert pool.map(abs, [-1]) == [1]",
    )
    road.transform(timeout="60s")
    (road.root / "fine.csv").write_text(csv_of("evil", 1))
    done = road.etl("run", "books", "fine.csv")
    assert done.returncode == 0, (done.stdout, done.stderr, road.tree())
    assert loaded(road) == [("1",)]


def test_a_redacting_pipeline_names_programs_without_their_arguments(road: Road) -> None:
    road.spec["redact"] = ["title"]
    write(road, LEAVES["starts_a_session_of_its_own"][0])
    (road.root / "evil.csv").write_text(csv_of("evil", 666))
    assert road.etl("run", "books", "evil.csv", "--inline").returncode == 1
    assert "(sleep)" in road.reason(road.one("transform", "failed"))["summary"]


def test_a_hundred_files_are_worked_beside_one_that_kills_its_worker(road: Road) -> None:
    write(road, KILLS["exits"][0])
    (road.root / "many").mkdir()
    for number in range(100):
        (road.root / f"many/good{number}.csv").write_text(csv_of("good", number))
    (road.root / "many/evil.csv").write_text(csv_of("evil", 666))
    done = road.etl("run", "books", "many")
    assert done.returncode == 1, done.stdout + done.stderr
    assert len(road.files("transform", "resolved")) == 100
    assert len(road.files("load", "resolved")) == 100
    failed = road.one("transform", "failed")
    assert failed.name.startswith("evil~")
    assert road.reason(failed)["cause"] == "the last time its worker ended with code 0"
    assert len(loaded(road)) == 100
    assert road.broken_promises() == []


# --- a clean stop ------------------------------------------------------------------------------------------

LONG = """    detach()
    until = time.monotonic() + 60
    while not (HERE / "go").exists() and time.monotonic() < until:
        time.sleep(0.02)
    pid = [int(pid) for pid in (HERE / "pids").read_text().split()][-1]
    os.kill(pid, signal.SIGKILL)
"""


def begin_long_job(road: Road, start: Start, *command: str, grace: str = "60s") -> subprocess.Popen[str]:
    road.settings["stop_grace"] = grace
    road.transform(timeout="60s")
    write(road, LONG)
    deliver(road, "evil.csv", csv_of("evil", 1))
    program = start("-m", "etl", *command)
    wait_until(lambda: len(started(road)) == 2, "the job is in hand")
    return program


def check_given_back(road: Road) -> None:
    note = road.note(road.one("transform", "working"))
    assert (note.tries, note.deaths, note.attempt) == (0, 0, 1)
    assert [pid for pid in started(road) if lives(pid)] == []
    (road.root / "config/handlers/go").touch()
    assert road.etl("run", "books", "--inline").returncode == 0
    assert loaded(road) == [("1",)]
    assert road.broken_promises() == []


@pytest.mark.parametrize("signals", [1, 2], ids=["the grace passes", "a second signal comes"])
def test_asked_to_stop_in_the_middle_of_a_long_job_its_file_waits_again_and_nothing_is_counted(
    road: Road, start: Start, signals: int
) -> None:
    worker = begin_long_job(road, start, "worker", grace="1s" if signals == 1 else "60s")
    for _ in range(signals):
        worker.send_signal(signal.SIGTERM)
        time.sleep(0.2)  # two at once are one to the kernel
    assert worker.wait(20) == 0
    check_given_back(road)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_asked_to_stop_a_job_that_ends_within_the_grace_is_finished(
    road: Road, start: Start, number: signal.Signals
) -> None:
    worker = begin_long_job(road, start, "worker")
    worker.send_signal(number)
    (road.root / "config/handlers/go").touch()
    assert worker.wait(20) == 0
    assert len(road.files("transform", "resolved")) == 1
    assert road.files("transform", "in_process") == []


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_under_etl_run_gives_the_file_back(
    road: Road, start: Start, number: signal.Signals, inline: bool
) -> None:
    run = begin_long_job(road, start, "run", "books", *(["--inline"] if inline else []))
    run.send_signal(number)
    assert run.wait(20) == 130
    check_given_back(road)


@pytest.mark.skipif(sys.platform != "linux", reason="orphans can be adopted on Linux only")
@pytest.mark.parametrize("command", [("worker",), ("run", "books")], ids=["etl worker", "etl run"])
def test_a_killed_guard_leaves_nothing_of_a_job(road: Road, start: Start, command: tuple[str, ...]) -> None:
    program = begin_long_job(road, start, *command)
    program.kill()
    program.wait(10)
    wait_until(lambda: not [pid for pid in started(road) if lives(pid)], "nothing of the job runs", 10)
    road.mend()
    # no file is to blame for the end of its worker's guard
    assert road.note(road.one("transform", "working")).deaths == 0


@pytest.mark.skipif(sys.platform != "linux", reason="orphans can be adopted on Linux only")
@pytest.mark.parametrize("whom", ["the worker", "its groom"])
def test_a_killed_worker_leaves_nothing_and_its_file_is_back_at_once(
    road: Road, start: Start, whom: str
) -> None:
    road.settings["scan"] = "1h"
    worker = begin_long_job(road, start, "worker")
    first = started(road)
    os.kill(first[0] if whom == "the worker" else parent_of(first[0]), signal.SIGKILL)
    wait_until(lambda: len(started(road)) == 4, "it is worked again, by another")
    assert [pid for pid in first if lives(pid)] == []
    assert road.note(road.one("transform", "in_process")).deaths == 1
    (road.root / "config/handlers/go").touch()
    wait_until(lambda: road.files("load", "resolved"), "it is done")
    worker.terminate()
    assert worker.wait(20) == 0
    assert loaded(road) == [("1",)]


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_working_until_the_queues_are_empty_includes_what_a_dead_worker_had(road: Road) -> None:
    write(road, KILLS["exits"][0])
    deliver(road, "evil.csv", csv_of("evil", 666))
    deliver(road, "good.csv", csv_of("good", 1))
    done = road.etl("worker", "--burst", "--workers", "1")
    assert done.returncode == 0, done.stderr
    assert "died 3 times" in road.reason(road.one("transform", "failed"))["summary"]
    assert loaded(road) == [("1",)]
    assert road.broken_promises() == []
