"""The dashboard lets in who has the password and comes from its own pages, and nobody else; asked over real HTTP."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from etl.config import reading
from etl.config.operating import Dashboard as Written
from etl.errors import ConfigError, Unavailable
from etl.files.layout import Layout
from etl.points import Point
from etl.queues import connection, enqueue, keys
from etl.queues.job import Job, JobQueue
from etl.services import records, whereabouts
from etl.web import auth, dashboard
from tests.listening import free_port
from tests.queue_helpers import work
from tests.road import REPOSITORY, Road

SPEC = {"transform": {"read": "csv"}, "load": {"locations": {"lake": {"kind": "files", "path": "lake"}}}}
PASSWORD = "correct-horse"
EVIL = "<img src=x onerror=alert(1)>\"'"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Road, str, Any]]:
    """A dashboard on a real Redis with three jobs in it: one that waits, one that failed, one with a hostile name."""
    root = tmp_path_factory.mktemp("dashboard")
    at = f"127.0.0.1:{free_port()}"
    road = Road(
        root, dict(SPEC), settings={"dashboard": {"at": at, "password": PASSWORD, "hosts": ["etl.example"]}}
    )
    config = reading.read(root / "config")
    with connection.connect(config.settings.redis, config.data) as client:
        data_id = road.layout.data_id()
        enqueue.RedisAnnouncer(client, data_id).announce([work("one.csv"), work("two.csv")])
        queue = JobQueue(keys.queue_name(data_id, "default"), connection=client)
        failed = Job.fetch(queue.job_ids[1], connection=client)
        queue.failed_job_registry.add(failed, ttl=100)
        client.hset(keys.job(failed.id), mapping={"description": EVIL, "status": "failed"})
        with dashboard.open(config) as one:
            try:
                yield road, one.address.rstrip("/"), client
            finally:
                one.close()


def get(url: str, **options: Any) -> httpx.Response:
    return httpx.get(url, **{"auth": ("etl", PASSWORD), "trust_env": False, **options})


def queue_of(road: Road) -> str:
    return keys.queue_name(road.layout.data_id(), "default")


def test_its_pages_are_rq_dashboards(served: tuple[Road, str, Any]) -> None:
    road, url, _ = served
    page = get(f"{url}/")
    assert page.status_code == 200 and "RQ dashboard" in page.text
    for path in ("/0/view/workers", "/0/view/jobs", "/0/data/workers.json", "/static/css/main.css"):
        assert get(url + path).status_code == 200, path
    (queue,) = [
        one for one in get(f"{url}/0/data/queues.json").json()["queues"] if one["name"] == queue_of(road)
    ]
    assert queue["failed_job_registry_count"] == 1
    jobs = get(f"{url}/0/data/jobs/{queue_of(road)}/queued/8/asc/1.json").json()["jobs"]
    assert jobs[0]["description"] == "transform books/one.csv"
    assert get(f"{url}/0/data/job/{jobs[0]['id']}.json").json()["status"] == "queued"
    assert get(f"{url}/0/view/job/{jobs[0]['id']}").status_code == 200
    assert get(f"{url}/0/view/job/none").status_code == 404


@pytest.mark.parametrize(
    "given",
    [None, ("etl", "wrong"), ("root", PASSWORD), ("etl", ""), ("etl", PASSWORD + "x")],
)
def test_without_the_password_nobody_sees_anything(
    served: tuple[Road, str, Any], given: tuple[str, str] | None
) -> None:
    _, url, _ = served
    for path in ("/", "/0/data/queues.json", "/static/css/main.css", "/nowhere"):
        answer = get(url + path, auth=given)
        assert answer.status_code == 401 and "etl-" not in answer.text
        assert "set-cookie" not in answer.headers
    assert httpx.post(f"{url}/requeue/x", auth=given, headers={"Origin": url}).status_code == 401


@pytest.mark.parametrize("header", ["Basic", "Basic %%%", "Bearer abc", "Basic " + "A" * 3000, "basic ZXRs"])
def test_what_is_no_password_at_all_is_refused_the_same_way(
    served: tuple[Road, str, Any], header: str
) -> None:
    assert get(served[1], auth=None, headers={"Authorization": header}).status_code == 401


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "0.0.0.0", "[", "localhost@evil", ""]
)
def test_a_foreign_name_that_leads_here_is_refused(served: tuple[Road, str, Any], host: str) -> None:
    assert get(served[1], headers={"Host": host}).status_code in (400, 421)


@pytest.mark.parametrize(
    "host", ["localhost:9999", "127.0.0.1", "[::1]:80", "etl.example", "ETL.example:443"]
)
def test_names_of_this_machine_and_those_of_the_operator_are_ours(
    served: tuple[Road, str, Any], host: str
) -> None:
    assert get(served[1], headers={"Host": host}).status_code == 200


def changes(road: Road, client: Any) -> list[str]:
    queue = JobQueue(queue_of(road), connection=client)
    job_id = queue.job_ids[0]
    registry = "/".join(("queue", queue.name, "queued", "empty"))
    return [f"/requeue/{queue.name}", f"/{registry}", f"/job/{job_id}/delete", f"/queue/{queue.name}/compact"]


def test_no_get_changes_anything(served: tuple[Road, str, Any]) -> None:
    road, url, client = served
    before = sorted(client.keys("rq:*"))
    for path in changes(road, client):
        for method in ("GET", "HEAD"):
            assert httpx.request(method, url + path, auth=("etl", PASSWORD)).status_code == 404
    assert sorted(client.keys("rq:*")) == before
    assert JobQueue(queue_of(road), connection=client).failed_job_registry.count == 1


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Referer": "http://evil.example/127.0.0.1"},
        {},
        {"Origin": "{url}", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "{url}", "Cookie": "etl_token=wrong"},
        {"Origin": "{url}", "Cookie": "etl_token="},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://[::1"},
    ],
)
def test_another_site_changes_nothing(served: tuple[Road, str, Any], headers: dict[str, str]) -> None:
    road, url, client = served
    cookie = {"Cookie": get(url).headers["set-cookie"].partition(";")[0]}
    told = {**cookie, **{name: value.format(url=url) for name, value in headers.items()}}
    before = sorted(client.keys("rq:*"))
    for path in changes(road, client):
        assert httpx.post(url + path, auth=("etl", PASSWORD), headers=told).status_code == 403
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
        answer = httpx.request(method, url, auth=("etl", PASSWORD), headers={**cookie, "Origin": url})
        assert answer.status_code == 403
    assert sorted(client.keys("rq:*")) == before


def test_its_own_pages_may_change_jobs(served: tuple[Road, str, Any]) -> None:
    road, url, client = served
    queue = JobQueue(queue_of(road), connection=client)
    enqueue.RedisAnnouncer(client, road.layout.data_id()).announce([work("three.csv"), work("four.csv")])
    third, fourth = queue.job_ids[-2:]
    queue.failed_job_registry.add(Job.fetch(fourth, connection=client), ttl=100)
    queue.remove(fourth)
    with httpx.Client(base_url=url, auth=("etl", PASSWORD), headers={"Origin": url}) as browser:
        cookie = browser.get("/").headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
        assert browser.post(f"/job/{third}/delete").json() == {"status": "OK"}
        assert browser.post(f"/job/{fourth}/requeue").json() == {"status": "OK"}
        assert browser.post("/job/x/../../delete").status_code in (403, 404)
    assert third not in queue.job_ids and fourth in queue.job_ids
    assert Job.fetch(fourth, connection=client).func_name == "etl.jobs.transform"


def test_hostile_text_in_redis_becomes_no_markup(served: tuple[Road, str, Any]) -> None:
    road, url, client = served
    client.hset("rq:job:evil", mapping={"description": EVIL, "data": b"x", "timeout": "5"})
    jobs = get(f"{url}/0/data/jobs/{queue_of(road)}/failed/8/asc/1.json")
    assert not set("<>'") & set(jobs.text)
    assert "_img src=x onerror=alert_1__" in jobs.text
    # the script of that page has the name of the queue in it as it is
    for name in ("x');alert(1)//", "x'+alert(1)+'", "%3Cscript%3E", "a b"):
        assert get(f"{url}/0/view/jobs/{name}/queued/8/asc/1").status_code == 404
    assert get(f"{url}/1/view/queues").status_code == 404
    policy = get(url).headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy and "default-src 'self'" in policy


def test_what_lies_in_redis_is_never_unpickled(served: tuple[Road, str, Any], tmp_path: Path) -> None:
    import pickle
    import zlib

    road, url, client = served

    class Bomb:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "ran",))

    data = zlib.compress(pickle.dumps(Bomb()))
    client.hset(
        "rq:job:bomb", mapping={"data": data, "timeout": "5", "status": "failed", "origin": queue_of(road)}
    )
    client.zadd(f"rq:failed:{queue_of(road)}", {"bomb": 9e12})
    worker = f"rq:worker:{queue_of(road)}-w"
    client.sadd("rq:workers", worker)
    client.hset(
        worker, mapping={"birth": "2026-01-01T00:00:00Z", "queues": queue_of(road), "current_job": "bomb"}
    )
    for path in (
        f"/0/data/jobs/{queue_of(road)}/failed/8/asc/1.json",
        "/0/data/job/bomb.json",
        "/0/data/workers.json",
    ):
        get(url + path)
    client.srem("rq:workers", worker)
    client.zrem(f"rq:failed:{queue_of(road)}", "bomb")
    assert not (tmp_path / "ran").exists()


# --- password and address ----------------------------------------------------------------------------------


def test_a_password_is_made_once_and_only_we_can_read_it(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    first = auth.password(layout, Written())
    assert auth.password(layout, Written()) == first and len(first) >= 20
    assert stat.S_IMODE(auth.password_path(layout).stat().st_mode) == 0o600
    assert auth.password(layout, Written(password=SecretStr("of-my-own"))) == "of-my-own"
    auth.password_path(layout).write_text(" \n")  # nobody gets in with an empty one
    with pytest.raises(ConfigError, match="Remove it, and one is made"):
        auth.password(layout, Written())


MAKES = """
import sys; from pathlib import Path
from etl.config.operating import Dashboard; from etl.files.layout import Layout
from etl.web import auth; from etl.services import whereabouts
auth.password(Layout(Path(sys.argv[1])), Dashboard())
whereabouts.tell(Path(sys.argv[1]), "dashboard", 1, "http://127.0.0.1:1/")
"""


@pytest.mark.parametrize("at", ["before", "after", "before#2", "after#2"])
def test_killed_while_it_begins_the_next_one_begins(tmp_path: Path, at: str) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", MAKES, str(tmp_path)],
        env={**os.environ, "ETL_CRASH_AT": f"{Point.DASHBOARD}:{at}", "PYTHONPATH": str(REPOSITORY)},
    )
    assert killed.returncode == -signal.SIGKILL
    assert auth.password(Layout(tmp_path), Written())
    record = records.Record(name="dashboard", host=records.host(), pid=7, started=1.0)
    assert whereabouts.of(tmp_path, record) == ""
    whereabouts.tell(tmp_path, "dashboard", 7, "http://127.0.0.1:2/")
    assert whereabouts.of(tmp_path, record) == "http://127.0.0.1:2/"


def test_a_full_disk_leaves_no_half_a_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from etl import points

    monkeypatch.setattr(points, "crash_at", f"{Point.DASHBOARD}:before=ENOSPC")
    points.reached.clear()
    with pytest.raises(OSError, match="No space"):
        auth.password(Layout(tmp_path), Written())
    assert not auth.password_path(Layout(tmp_path)).exists()
    assert auth.password(Layout(tmp_path), Written())


def test_where_its_port_is_taken_it_is_at_another_and_tells_where(tmp_path: Path) -> None:
    port = free_port()
    road = Road(tmp_path, dict(SPEC), settings={"dashboard": f"127.0.0.1:{port}"})
    config = reading.read(road.root / "config")
    with dashboard.open(config) as first, closing(first), dashboard.open(config) as second, closing(second):
        assert first.address.endswith(f":{port}/") and second.address != first.address
        with records.held(config.data, "dashboard") as record:
            assert whereabouts.of(config.data, record) == second.address
            shown = road.etl("status", "--services")
            assert second.address in shown.stdout and "web.password" in shown.stdout
            assert "dashboard" in shown.stdout and "restarts" in shown.stdout
        assert get(second.address, auth=None).status_code == 401
        # nobody looked, so nothing was opened
        assert not (config.data / ".etl" / "redis.socket").exists()
    assert "dashboard: does not run" in road.etl("status", "--services").stdout


def test_what_cannot_be_bound_or_is_off_is_said(tmp_path: Path) -> None:
    road = Road(tmp_path, dict(SPEC), settings={"dashboard": "192.0.2.1:9181"})
    with (
        pytest.raises(Unavailable, match=r"cannot listen at 192\.0\.2\.1:9181"),
        dashboard.open(reading.read(road.root / "config")),
    ):
        pass
    road.settings["dashboard"] = False
    road.write()
    with pytest.raises(ConfigError, match="`off`"), dashboard.open(reading.read(road.root / "config")):
        pass
    assert "dashboard: off" in road.etl("status", "--services").stdout
