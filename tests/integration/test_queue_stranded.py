"""Stranded entries: what killed workers left in Redis goes; what lives and what others own stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from etl.queues import connection, enqueue, keys
from etl.queues.stranded import EVERY, Stranded
from tests.queue_helpers import DATA_ID, EMBEDDED, work

QUEUE = keys.queue(DATA_ID, "default")


@pytest.fixture
def client(tmp_path: Path) -> Iterator[redis.Redis]:
    with connection.connect(EMBEDDED, tmp_path / "data") as client:
        yield client


@pytest.fixture
def stranded(client: redis.Redis) -> Stranded:
    return Stranded(client, DATA_ID, ["default"])


def announce(client: redis.Redis, name: str) -> str:
    """Enqueue one job and give its id."""
    enqueue.RedisAnnouncer(client, DATA_ID).announce([work(name)])
    return keys.text(client.lindex(QUEUE, -1))


def begin(client: redis.Redis, job_id: str, worker: str) -> None:
    """Leave what a worker writes when it begins a job."""
    entry = f"{job_id}:e1"
    client.lrem(QUEUE, 0, job_id)
    client.zadd(keys.started(DATA_ID, "default"), {entry: 4e9})
    client.zadd(keys.executions(job_id), {entry: 4e9})
    client.hset(keys.execution(entry), "worker_name", worker)
    client.hset(keys.job(job_id), "status", "started")


def test_jobs_that_gone_workers_began_are_cleared_with_the_second_look(
    client: redis.Redis, stranded: Stranded
) -> None:
    client.client_setname("lives")
    gone, lives, waits = (announce(client, name) for name in ("gone", "lives", "waits"))
    begin(client, gone, "nobody")
    begin(client, lives, "lives")
    assert stranded.clear() == 0
    assert stranded.clear() == 1
    assert [keys.text(one) for one in client.zrange(keys.started(DATA_ID, "default"), 0, -1)] == [
        f"{lives}:e1"
    ]
    assert not any(gone in keys.text(key) for key in client.scan_iter())
    assert client.exists(keys.job(lives), keys.job(waits)) == 2
    assert stranded.clear() == 0


def test_jobs_that_were_taken_and_never_begun_are_cleared_with_the_second_look(
    client: redis.Redis, stranded: Stranded
) -> None:
    job_id = announce(client, "x")
    client.lmove(QUEUE, keys.intermediate(DATA_ID, "default"))
    assert stranded.clear() == 0
    assert stranded.clear() == 1
    assert not any(job_id in keys.text(key) for key in client.scan_iter())
    assert client.llen(keys.intermediate(DATA_ID, "default")) == 0


def test_jobs_that_say_they_are_queued_and_are_in_no_list_are_cleared_in_time(
    client: redis.Redis, stranded: Stranded
) -> None:
    lost, waits = (announce(client, name) for name in ("lost", "waits"))
    client.lrem(QUEUE, 0, lost)
    client.hset(keys.job("theirs"), mapping={"status": "queued", "origin": "their-queue"})
    cleared = [stranded.clear() for _ in range(EVERY + 1)]
    assert cleared == [0] * EVERY + [1]
    assert not client.exists(keys.job(lost))
    assert client.exists(keys.job(waits), keys.job("theirs")) == 2


def test_a_worker_that_takes_its_job_up_between_two_looks_keeps_it(
    client: redis.Redis, stranded: Stranded
) -> None:
    job_id = announce(client, "x")
    client.lmove(QUEUE, keys.intermediate(DATA_ID, "default"))
    stranded.clear()
    client.lrem(keys.intermediate(DATA_ID, "default"), 0, job_id)
    client.client_setname("lives")
    begin(client, job_id, "lives")
    assert stranded.clear() == 0
    assert client.exists(keys.job(job_id))
