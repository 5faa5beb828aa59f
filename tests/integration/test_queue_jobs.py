"""Jobs on a real server, done by real workers: what runs, what never runs, and who can read them."""

from __future__ import annotations

import json
import os
import pickle
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import rq
from rq.job import Callback
from rq.serializers import JSONSerializer

from etl import errors
from etl.queues import connection, enqueue, keys
from etl.queues.job import Job, JobQueue, describe
from etl.queues.queue import Work
from tests.queue_helpers import DATA_ID, EMBEDDED, provide_jobs, wait_until, work, work_until_empty

QUEUE = keys.queue_name(DATA_ID, "default")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def client(data: Path) -> Iterator[redis.Redis]:
    with connection.connect(EMBEDDED, data) as client:
        yield client


@pytest.fixture
def done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[dict[str, Any]]]:
    """Provide job functions that write down their arguments; give what was written."""
    diary = tmp_path / "diary.jsonl"

    def note(**arguments: Any) -> int:
        with diary.open("a") as handle:
            handle.write(json.dumps(arguments) + "\n")
        return 7

    provide_jobs(monkeypatch, transform=note, load=note)
    return lambda: [json.loads(line) for line in diary.read_text().splitlines()] if diary.exists() else []


def announce(client: redis.Redis, *works: Work) -> list[Job]:
    enqueue.RedisAnnouncer(client, DATA_ID).announce(works)
    ids = JobQueue(QUEUE, client).job_ids
    return [Job.fetch(job_id, connection=client) for job_id in ids]


def failed_because(client: redis.Redis, job_id: str) -> str:
    result = Job.fetch(job_id, connection=client).latest_result()
    assert result is not None and result.exc_string is not None
    return result.exc_string


def test_a_job_runs_in_order_with_its_arguments_and_keeps_its_count(client: redis.Redis, done: Any) -> None:
    first, _ = announce(
        client, work("a.csv", seen={"inode": 1}), work("b.jsonl", function="load", location="lake")
    )
    work_until_empty(client)
    assert done() == [
        {"pipeline": "books", "name": "a.csv", "seen": {"inode": 1}},
        {"pipeline": "books", "name": "b.jsonl", "location": "lake"},
    ]
    first.refresh()
    assert first.return_value() == 7
    assert 0 < client.ttl(first.key) <= 3600


def test_a_waiting_job_never_expires_and_has_its_own_time_limit(client: redis.Redis) -> None:
    [job] = announce(client, work(timeout=1234))
    assert client.ttl(job.key) == -1
    assert job.timeout == 1234


def test_a_name_that_is_not_utf8_survives_the_journey(client: redis.Redis, done: Any) -> None:
    name = os.fsdecode(b"pr\xe9ise\xff.csv")
    announce(client, work(name))
    assert ("etl.jobs.transform", "books", "", name) in enqueue.announced(client, DATA_ID)
    work_until_empty(client)
    assert done()[0]["name"] == name


def test_an_enqueued_os_system_is_refused_and_does_not_run(client: redis.Redis, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    queue = rq.Queue(QUEUE, connection=client, serializer=JSONSerializer)
    job = queue.enqueue("os.system", f"touch {proof}")
    work_until_empty(client)
    assert not proof.exists()
    assert "os.system" in failed_because(client, job.id)


def test_a_module_is_not_imported_to_find_out_that_it_is_refused(
    client: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trap.py").write_text(f"open({str(tmp_path / 'proof')!r}, 'w')\ndef spring(): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    rq.Queue(QUEUE, connection=client, serializer=JSONSerializer).enqueue("trap.spring")
    work_until_empty(client)
    assert not (tmp_path / "proof").exists()


class Exploit:
    """Runs a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (self.command,)


def test_a_pickled_job_is_refused_and_not_unpickled(client: redis.Redis, done: Any, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    job = rq.Queue(QUEUE, connection=client).enqueue("etl.jobs.transform", name="x")
    client.hset(job.key, mapping={"data": pickle.dumps(Exploit(f"touch {proof}")), "meta": pickle.dumps(1)})
    work_until_empty(client)
    assert not proof.exists()
    assert done() == []
    assert "DeserializationError" in failed_because(client, job.id)


def test_callbacks_dependents_and_repeats_are_never_followed(
    client: redis.Redis, done: Any, tmp_path: Path
) -> None:
    proof = tmp_path / "proof"
    queue = rq.Queue(QUEUE, connection=client, serializer=JSONSerializer)
    callback = Callback("os.system")
    job = queue.enqueue(
        "etl.jobs.transform",
        kwargs={"name": "x"},
        on_success=callback,
        on_failure=callback,
        on_stopped=callback,
        repeat=rq.Repeat(times=3),
        retry=rq.Retry(max=3),
    )
    later = queue.enqueue("os.system", f"touch {proof}", depends_on=job)
    work_until_empty(client)
    assert done() == [{"name": "x"}]
    assert not proof.exists()
    assert later.get_status() == "deferred"
    assert Job.fetch(job.id, connection=client).get_status() == "finished"


def test_a_job_nobody_of_us_wrote_does_not_stop_the_next(client: redis.Redis, done: Any) -> None:
    client.hset(keys.job("forged"), mapping={"data": b"\xff", "description": b"\xff", "timeout": "soon"})
    client.rpush(keys.queue(DATA_ID, "default"), "forged")
    enqueue.RedisAnnouncer(client, DATA_ID).announce([work("good.csv")])
    work_until_empty(client)
    assert [one["name"] for one in done()] == ["good.csv"]


def test_a_job_that_raises_fails_and_the_next_runs(
    client: redis.Redis, done: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**_: Any) -> None:
        raise RuntimeError("no luck")

    monkeypatch.setattr(sys.modules["etl.jobs"], "load", broken)
    job, _ = announce(client, work(function="load"), work("next.csv"))
    work_until_empty(client)
    assert "no luck" in failed_because(client, job.id)
    assert [one["name"] for one in done()] == ["next.csv"]
    assert 0 < client.ttl(job.key) <= 24 * 3600


def test_one_worker_can_serve_two_queues(client: redis.Redis, done: Any) -> None:
    heavy = Work(function="etl.jobs.load", arguments={"name": "h"}, queue="heavy", timeout=5)
    enqueue.RedisAnnouncer(client, DATA_ID).announce([heavy, work("d")])
    work_until_empty(client, "default", "heavy")
    assert [one["name"] for one in done()] == ["d", "h"]


def test_work_for_a_function_that_is_not_allowed_is_not_even_announced(client: redis.Redis) -> None:
    with pytest.raises(ValueError, match=r"os\.system"):
        announce(client, Work(function="os.system", arguments={}, timeout=1))


def test_ten_thousand_jobs_are_announced_and_known(client: redis.Redis) -> None:
    enqueue.RedisAnnouncer(client, DATA_ID).announce([work(f"{n}.csv") for n in range(10_000)])
    known = enqueue.announced(client, DATA_ID)
    assert len(known) == 10_000
    assert ("etl.jobs.transform", "books", "", "9999.csv") in known


def test_announcing_to_a_redis_that_is_gone_says_that_nothing_is_lost(data: Path) -> None:
    with connection.connect(EMBEDDED, data) as client:
        pass
    with pytest.raises(errors.Unavailable, match="Nothing is lost"):
        enqueue.RedisAnnouncer(client, DATA_ID).announce([work()])
    client.close()


def test_inline_work_comes_back_in_order() -> None:
    inline = enqueue.InlineAnnouncer()
    inline.announce([work("a"), work("b")])
    inline.announce([work("c")])
    taken = [inline.take() for _ in range(4)]
    assert [one and one.arguments["name"] for one in taken] == ["a", "b", "c", None]


def test_a_description_is_short_and_harmless() -> None:
    said = describe("etl.jobs.load", {"pipeline": "books", "location": "lake", "name": "a~01k.jsonl"})
    assert said == "load books/lake/a~01k.jsonl"
    hostile = describe("etl.jobs.load", {"pipeline": "books", "name": "<script>\x1b[2J\udcff\n" + "x" * 300})
    assert len(hostile) == 120
    assert not set(hostile) & set("<>\x1b\udcff\n")


def test_plain_rq_info_lists_the_queue(client: redis.Redis, data: Path) -> None:
    announce(client, work(), work("other.csv"))
    rq_command = Path(sys.executable).with_name("rq")
    address = connection.url(EMBEDDED, data).get_secret_value()
    shown = subprocess.run([rq_command, "info", "--url", address], capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0, shown.stderr
    assert QUEUE in shown.stdout
    assert "2 jobs total" in shown.stdout


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def read_json(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)
    except (urllib.error.URLError, ConnectionError) as error:
        if isinstance(error, urllib.error.HTTPError):
            with error:
                raise AssertionError(error.read().decode()) from error
        return None


def test_rq_dashboard_shows_a_waiting_and_a_finished_job(client: redis.Redis, data: Path, done: Any) -> None:
    [finished] = announce(client, work("finished.csv"))
    work_until_empty(client)
    [waiting] = announce(client, work(os.fsdecode(b"w\xff.csv")))
    site = f"http://127.0.0.1:{(port := free_port())}/0/data"
    address = connection.url(EMBEDDED, data).get_secret_value()
    argv = [
        Path(sys.executable).with_name("rq-dashboard"),
        "-b",
        "127.0.0.1",
        "-p",
        str(port),
        "-u",
        address,
        "--json",
    ]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as dashboard:
        try:
            queues = wait_until(lambda: read_json(f"{site}/queues.json"), "the dashboard answers")
            shown = read_json(f"{site}/jobs/{QUEUE}/queued/8/asc/1.json")
            ended = read_json(f"{site}/job/{finished.id}.json")
        finally:
            dashboard.kill()
    assert QUEUE in [queue["name"] for queue in queues["queues"]]
    assert [job["id"] for job in shown["jobs"]] == [waiting.id]
    assert "transform" in shown["jobs"][0]["description"]
    assert ended["result"] == 7
