"""How Redis is reached: clear refusals, no password in any of them, and what `etl check` finds."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from pydantic import SecretStr

from etl import errors
from etl.queues import census, connection, enqueue
from tests.queue_helpers import DATA_ID, EMBEDDED, work


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def client(data: Path) -> Iterator[redis.Redis]:
    with connection.connect(EMBEDDED, data) as client:
        yield client


def refusal(url: str, data: Path) -> str:
    with pytest.raises(errors.EtlError) as raised, connection.connect(SecretStr(url), data):
        pass
    return str(raised.value)


def test_an_unreachable_redis_is_named_without_its_password(data: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        said = refusal(f"redis://etl:s3cret@127.0.0.1:{port}/0", data)
    assert f"127.0.0.1:{port}" in said
    assert "settings.yaml" in said
    assert "s3cret" not in said


@pytest.mark.parametrize(
    "url",
    [
        "redis://:s3cret/x@host:6379",
        "redis://:s3cret#x@host",
        "redis://host:s3cret",
        "http://s3cret",
        "s3cret",
        "unix://",
    ],
)
def test_what_is_not_a_redis_url_is_refused_without_repeating_it(data: Path, url: str) -> None:
    said = refusal(url, data)
    assert "redis://" in said
    assert "s3cret" not in said


def test_a_wrong_password_is_told_apart_from_an_absent_server(client: redis.Redis, data: Path) -> None:
    address = connection.url(EMBEDDED, data).get_secret_value()
    client.config_set("requirepass", "right")
    try:
        said = refusal(address.replace("unix://", "unix://:wrong@"), data)
        with connection.connect(SecretStr(address.replace("unix://", "unix://:right@")), data) as other:
            assert other.ping()
    finally:
        client.config_set("requirepass", "")
    assert "password" in said
    assert "wrong" not in said


def test_the_embedded_server_has_no_findings(client: redis.Redis) -> None:
    assert connection.findings(client) == []


def test_a_server_that_may_evict_jobs_is_found(client: redis.Redis) -> None:
    client.config_set("maxmemory-policy", "allkeys-lru")
    [finding] = connection.findings(client)
    assert "allkeys-lru" in finding
    assert "noeviction" in finding


@pytest.mark.parametrize(("shift", "words"), [(90, "90 s ahead of"), (-90, "90 s behind")])
def test_a_clock_that_differs_is_found(client: redis.Redis, shift: int, words: str) -> None:
    [finding] = connection.findings(client, now=lambda: time.time() + shift)
    assert words in finding
    assert "NTP" in finding


def test_no_census_without_a_server_and_none_is_started(data: Path) -> None:
    data.mkdir()
    assert census.census(EMBEDDED, data, DATA_ID) is None
    assert list(data.iterdir()) == []


def test_the_census_counts_our_queues_only(client: redis.Redis, data: Path) -> None:
    enqueue.RedisAnnouncer(client, DATA_ID).announce([work(f"{n}.csv") for n in range(3)])
    enqueue.RedisAnnouncer(client, "other").announce([work()])
    counted = census.census(EMBEDDED, data, DATA_ID)
    assert counted == {"workers": 0, "queues": {"default": {"queued": 3, "started": 0}}}
    assert census.census(connection.url(EMBEDDED, data), data, DATA_ID) == counted


def test_the_census_does_not_import_rq() -> None:
    code = "import sys, etl.queues.census; sys.exit('rq' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
