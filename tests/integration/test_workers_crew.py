"""The crew: workers finish what they hold, are held to their limits, are replaced, and outlive nobody."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from etl.model import Place, Stage
from etl.queues import census, connection, enqueue, keys, looking, worker
from etl.queues.queue import Report
from etl.services import workers
from tests.queue_helpers import DATA_ID, EMBEDDED, kill, lives, provide_jobs, wait_until, work

GUARD = """
import os, time
from etl.services import service, workers
def horse(report):
    os.write(1, b"%d\\n" % os.getpid())
    time.sleep(600)
service.keep(workers.Crew(horse, 2))
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def client(data: Path) -> Iterator[redis.Redis]:
    with connection.connect(EMBEDDED, data) as client:
        yield client


@pytest.fixture
def crews() -> Iterator[Callable[..., workers.Crew]]:
    made: list[workers.Crew] = []

    def make(start: Callable[[Report], None], count: int = 1, **options: Any) -> workers.Crew:
        made.append(workers.Crew(start, count, workers.Terms(**options)))
        made[-1].start()
        return made[-1]

    yield make
    for crew in made:
        crew.stop(0)


def works_for(data: Path) -> Callable[[Report], None]:
    """What a worker's process does: a connection of its own, then job after job."""

    def start(report: Report) -> None:
        with connection.connect(EMBEDDED, data) as mine:
            mine.ping()  # it is in use before the worker begins
            worker.run_worker(mine, DATA_ID, ["default"], report=report)

    return start


def announce(client: redis.Redis, *names: str, timeout: int = 30) -> None:
    enqueue.RedisAnnouncer(client, DATA_ID).announce([work(name, timeout=timeout) for name in names])


def wait_tending(crew: workers.Crew, condition: Callable[[], Any], what: str) -> None:
    def tend_and_look() -> Any:
        crew.tend()
        return condition()

    wait_until(tend_and_look, what)


def test_one_worker_process_does_job_after_job(
    client: redis.Redis, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crews: Any
) -> None:
    def note(name: str, **_: Any) -> None:
        (tmp_path / name).write_text(
            f"{os.getpid()} {os.getsid(0)} {os.path.samestat(os.fstat(0), os.stat(os.devnull))}"
        )

    provide_jobs(monkeypatch, transform=note)
    crew = crews(works_for(data))
    [pid] = crew.pids
    announce(client, "a", "b")
    wait_until(lambda: (tmp_path / "b").exists() and (tmp_path / "b").read_text(), "both jobs are done")
    assert {(tmp_path / name).read_text() for name in "ab"} == {f"{pid} {pid} True"}


def test_the_census_counts_living_workers_only(client: redis.Redis, data: Path, crews: Any) -> None:
    crew = crews(works_for(data), 2)
    announce(client)
    client.sadd(keys.QUEUES, keys.queue(DATA_ID, "default"))

    def counted() -> Any:
        return (census.census(EMBEDDED, data, DATA_ID) or {})["workers"]

    wait_until(lambda: counted() == 2, "two workers are counted")
    kill_unburied(crew.pids[0])
    wait_until(lambda: counted() == 1, "the killed one is not counted")


def test_an_idle_worker_is_patient_and_known_again_after_a_flush(
    client: redis.Redis, data: Path, monkeypatch: pytest.MonkeyPatch, crews: Any
) -> None:
    # each wait for a job lasts 1 s, longer than any other command may
    monkeypatch.setattr(connection, "ANSWER_WITHIN", 0.2)
    monkeypatch.setattr(worker, "WORKER_TTL", 16)
    monkeypatch.setattr(worker, "KNOWN_EVERY", 0.0)
    crew = crews(works_for(data))
    here = keys.workers(DATA_ID, "default")

    def served() -> int:
        return looking.living_workers(client, DATA_ID, ["default"])

    [key] = wait_until(lambda: client.smembers(here), "the worker has registered")
    assert served() == 1
    begun = client.hget(key, "last_heartbeat")
    wait_until(lambda: client.hget(key, "last_heartbeat") not in (None, begun), "it waits once more")
    client.flushall()
    # until it says so itself nobody knows which queues it serves
    assert served() == 1
    wait_until(lambda: client.smembers(here) == {key}, "it has registered again")
    assert client.hget(key, "birth") is not None
    assert served() == 1
    assert crew.tend() == []
    assert [keys.worker_name(keys.text(key)).split("-")[-2]] == [str(pid) for pid in crew.pids]


def kill_unburied(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not lives(pid), "it is dead")


def test_asked_to_stop_a_worker_finishes_the_job_in_hand_and_takes_no_other(
    client: redis.Redis, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crews: Any
) -> None:
    def wait_for_release(name: str, **_: Any) -> None:
        (tmp_path / f"{name}.begun").touch()
        while not (tmp_path / "release").exists():
            time.sleep(0.01)
        (tmp_path / f"{name}.done").touch()

    provide_jobs(monkeypatch, transform=wait_for_release)
    crew = crews(works_for(data))
    announce(client, "first", "second")
    wait_until((tmp_path / "first.begun").exists, "the first job has begun")
    os.kill(crew.pids[0], signal.SIGTERM)
    (tmp_path / "release").touch()
    crew.stop(30)
    assert crew.pids == []
    assert (tmp_path / "first.done").exists()
    assert not (tmp_path / "second.begun").exists()
    assert client.llen(keys.queue(DATA_ID, "default")) == 1


def is_idle(client: redis.Redis, worker: bytes) -> bool:
    return client.hget(worker, "state") == b"idle"


def test_an_idle_worker_stops_when_asked(client: redis.Redis, data: Path, crews: Any) -> None:
    crew = crews(works_for(data))
    [pid] = crew.pids
    # registered it is before it hears signals; idle it is only after that
    wait_until(
        lambda: [one for one in client.smembers(keys.workers(DATA_ID, "default")) if is_idle(client, one)],
        "the worker is idle",
    )
    os.kill(pid, signal.SIGTERM)
    [death] = wait_until(crew.tend, "it has ended")
    assert death.why == "ended with code 0"
    assert death.job == ""


def never_ends_in_c(**_: Any) -> None:
    sum(itertools.repeat(0))


def catches_everything(**_: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        try:
            time.sleep(60)
        except BaseException:
            continue


@pytest.mark.parametrize("job", [never_ends_in_c, catches_everything])
def test_a_job_that_overruns_is_ended_whatever_it_does_and_the_next_runs(
    client: redis.Redis, data: Path, monkeypatch: pytest.MonkeyPatch, crews: Any, job: Any
) -> None:
    tmp_path = data.parent

    def one_hangs(name: str, **_: Any) -> None:
        if name == "hangs":
            child = subprocess.Popen(["sleep", "600"])
            (tmp_path / "child").write_text(str(child.pid))
            job()
        (tmp_path / name).touch()

    provide_jobs(monkeypatch, transform=one_hangs)
    crew = crews(works_for(data), overrun=0.3)
    announce(client, "hangs", timeout=1)
    announce(client, "next")
    [death] = wait_until(crew.tend, "the overrunning worker has been ended")
    assert death.why == "was ended by SIGKILL"
    assert death.job == "transform books/hangs"
    wait_until(lambda: not lives(int((tmp_path / "child").read_text())), "what it started is gone too")
    wait_tending(crew, (tmp_path / "next").exists, "the next job is done")
    assert not (tmp_path / "hangs").exists()


def test_a_guard_that_is_busy_delays_no_deadline(
    client: redis.Redis, data: Path, monkeypatch: pytest.MonkeyPatch, crews: Any
) -> None:
    provide_jobs(monkeypatch, transform=never_ends_in_c)
    [pid] = crews(works_for(data), overrun=0.3).pids
    announce(client, "hangs", timeout=1)
    wait_until(lambda: not lives(pid), "the worker is ended though nobody tends it")


def test_the_guard_learns_which_file_a_dead_worker_had_once_nothing_of_it_runs(
    crews: Any, tmp_path: Path
) -> None:
    place = Place(pipeline="books", stage=Stage.LOAD, location="lite")
    name = os.fsdecode(b"caf\xe9 \xc3\xa9.csv")

    def holds(report: Report) -> None:
        report.started("load books/x", 60)
        report.holds(place, name)
        (tmp_path / "child").write_text(str(subprocess.Popen(["sleep", "600"], start_new_session=True).pid))
        os.kill(os.getpid(), signal.SIGUSR2)

    seen: list[tuple[workers.Death, bool]] = []
    crew = crews(
        holds, mourn=lambda death: seen.append((death, lives(int((tmp_path / "child").read_text()))))
    )
    wait_tending(crew, lambda: seen, "the death is seen")
    death, child_lives = seen[0]
    assert death.file == (place, name)
    assert death.why == "was ended by SIGUSR2"
    assert (death.job, death.overran, death.stopped, child_lives) == ("load books/x", False, False, False)


def test_a_worker_that_had_its_file_ended_before_it_died_holds_none(crews: Any) -> None:
    def done(report: Report) -> None:
        report.started("load books/x", 60)
        report.holds(Place(pipeline="books", stage=Stage.LOAD), "x")
        report.ended()
        os._exit(3)

    [death] = wait_until(crews(done).tend, "the death is seen")
    assert (death.file, death.job, death.why) == (None, "", "ended with code 3")


def test_what_may_outlive_a_worker_does(crews: Any, tmp_path: Path) -> None:
    def server() -> set[int]:
        told = tmp_path / "server"
        return {int(told.read_text())} if told.exists() else set()

    def starts_a_server(report: Report) -> None:
        started = subprocess.Popen(["sleep", "600"], start_new_session=True)
        (tmp_path / "server").write_text(str(started.pid))
        time.sleep(600)

    crew = crews(starts_a_server, kept=server)
    [pid] = crew.pids
    wait_until(server, "there is a server")
    os.kill(pid, signal.SIGKILL)
    wait_until(crew.tend, "the death is seen")
    [outlived] = server()
    assert lives(outlived)
    os.kill(outlived, signal.SIGKILL)


def test_a_time_limit_reaches_well_behaved_code_as_an_exception(
    client: redis.Redis, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crews: Any
) -> None:
    def tidy(**_: Any) -> None:
        try:
            time.sleep(600)
        finally:
            (tmp_path / "tidied").touch()

    provide_jobs(monkeypatch, transform=tidy)
    crew = crews(works_for(data))
    before = crew.pids
    announce(client, "slow", timeout=1)
    wait_tending(crew, (tmp_path / "tidied").exists, "the job was told")
    assert crew.pids == before


def test_the_job_of_a_killed_worker_no_longer_counts_as_announced(
    client: redis.Redis, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crews: Any
) -> None:
    def hang(**_: Any) -> None:
        (tmp_path / "begun").touch()
        time.sleep(600)

    provide_jobs(monkeypatch, transform=hang)
    crew = crews(works_for(data))
    announce(client, "x")
    wait_until((tmp_path / "begun").exists, "the job has begun")
    assert enqueue.announced(client, DATA_ID) == {("etl.jobs.transform", "books", "", "x")}
    kill_unburied(crew.pids[0])
    wait_until(lambda: not enqueue.announced(client, DATA_ID), "its job does not count")
    [death] = wait_until(crew.tend, "the death is seen")
    assert death.job == "transform books/x"


def test_a_worker_goes_on_when_redis_was_killed_and_came_back(
    client: redis.Redis, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crews: Any
) -> None:
    provide_jobs(monkeypatch, transform=lambda name, **_: (tmp_path / name).touch())
    crew = crews(works_for(data))
    wait_until(lambda: client.scard(keys.workers(DATA_ID, "default")), "the worker has registered")
    kill(int(client.info("server")["process_id"]))
    connection.revive(EMBEDDED, data)
    announce(client, "after")
    wait_tending(crew, (tmp_path / "after").exists, "the job is done")


def test_a_dead_worker_is_replaced(crews: Any) -> None:
    crew = crews(lambda report: time.sleep(600), 2)
    first, second = crew.pids
    os.kill(first, signal.SIGKILL)
    [death] = wait_until(crew.tend, "the death is seen")
    assert death.pid == first
    replaced, kept = crew.pids
    assert kept == second
    assert lives(replaced)


def test_a_worker_that_keeps_ending_at_once_is_given_a_pause(crews: Any) -> None:
    crew = crews(lambda report: None)
    deaths: list[workers.Death] = []
    wait_until(lambda: deaths.extend(crew.tend()) or len(deaths) >= 3, "it has ended three times")
    assert crew.pids == []
    assert crew.tend() == []
    wait_tending(crew, lambda: crew.pids, "it is tried again")


def test_a_worker_that_does_not_listen_is_ended_after_the_grace(crews: Any, tmp_path: Path) -> None:
    def deaf(report: Report) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        (tmp_path / "deaf").touch()
        catches_everything()

    crew = crews(deaf)
    [pid] = crew.pids
    wait_until((tmp_path / "deaf").exists, "it does not listen")
    crew.stop(0.2)
    assert not lives(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux only")
def test_a_killed_guard_leaves_no_worker() -> None:
    with subprocess.Popen([sys.executable, "-c", GUARD], stdout=subprocess.PIPE, text=True) as guard:
        assert guard.stdout
        pids = [int(guard.stdout.readline()) for _ in range(2)]
        assert all(lives(pid) for pid in pids)
        guard.kill()
    for pid in pids:
        wait_until(lambda pid=pid: not lives(pid), f"worker {pid} is gone")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_watching_guard_ends_its_workers_and_then_itself(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", GUARD], stdout=subprocess.PIPE, text=True) as guard:
        assert guard.stdout
        pids = [int(guard.stdout.readline()) for _ in range(2)]
        guard.send_signal(number)
        code = guard.wait(30)
    assert code == 0
    assert not any(lives(pid) for pid in pids)
