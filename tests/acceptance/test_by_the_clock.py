"""`etl up` runs what is due by the clock, shows its dashboard, beats its heart; `etl schedule` tells of it all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx

from etl.config import reading
from etl.services import catalogue, records, supervisor, whereabouts
from tests.listening import free_port, listening
from tests.queue_helpers import wait_until
from tests.road import Road
from tests.supervising import up

SPEC = {
    "extract": {"sources": ["in/*.csv"]},
    "transform": {"read": "csv"},
    "load": {"locations": {"lake": {"kind": "files", "path": "lake"}}},
    "schedule": {"cron": "0 2 * * mon-fri", "zone": "America/Argentina/Buenos_Aires"},
}


def test_up_keeps_the_time_shows_the_dashboard_and_beats(tmp_path: Path) -> None:
    with listening() as listener:
        settings = {
            "reserve": "1MB",
            "workers": 1,
            "clean": "30 2 * * *",
            "dashboard": f"127.0.0.1:{free_port()}",
            "heartbeat": {"url": f"{listener.url}/token-of-ours", "every": "1s"},
        }
        road = Road(tmp_path, dict(SPEC), settings=settings)
        with up(road) as running:
            wait_until(lambda: listener.at("/token-of-ours"), "the heart beats")
            running.pid("scheduler")
            running.pid("dashboard")
            told = running.services()["dashboard"]
            address = wait_until(lambda: whereabouts.of(road.data, told), "the dashboard tells where it is")
            word = (road.data / ".etl" / "web.password").read_text().strip()
            page = httpx.get(f"{address}0/data/queues.json", auth=("etl", word), trust_env=False)
            assert page.status_code == 200
            assert httpx.get(address, trust_env=False).status_code == 401
            facts = json.loads(road.etl("status", "--services", "--json").stdout)
            assert facts["dashboard"]["addresses"] == [address]
            wait_until(lambda: "books begins to run by the clock" in running.text(), "the schedule counts")
            found = json.loads(road.etl("schedule", "--json").stdout)
            assert found["scheduler_runs"]
            assert [one["name"] for one in found["schedules"]] == ["books", "clean"]
            assert running.stop() == 0
            log = running.text()
    assert word not in log and "token-of-ours" not in log


def test_a_reload_switches_the_dashboard_off_and_on_and_touches_no_other(tmp_path: Path) -> None:
    road = Road(tmp_path, dict(SPEC), settings={"dashboard": "127.0.0.1:9181"})
    on = reading.read(tmp_path / "config")
    nobody: Any = None
    one = supervisor.Supervisor(on, {}, nobody, nobody, nobody)
    before = {each.name: each for each in one._children}
    assert list(before) == list(catalogue.SERVICES)
    road.settings["dashboard"] = "off"
    road.write()
    one._switch(reading.read(tmp_path / "config"))
    assert [each.name for each in one._children] == [name for name in before if name != "dashboard"]
    assert [each.name for each in one._leaving] == ["dashboard"]
    one._switch(on)
    assert [each.name for each in one._children] == list(before)
    assert all(each is before[each.name] for each in one._children if each.name != "dashboard")


def test_the_schedule_is_told_while_nothing_runs_and_fits_80_columns(tmp_path: Path) -> None:
    road = Road(tmp_path, dict(SPEC), settings={"clean": "30 2 * * *"})
    done = road.etl("schedule")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "no scheduler runs" in done.stdout
    assert [line.split()[0] for line in lines if line.startswith(("books", "clean"))] == ["books", "clean"]
    assert "America/Argentina/Buenos_Aires" in done.stdout and "0 2 * * mon-fri" in done.stdout
    assert records.living(road.data) == []
    assert "no scheduler runs: what is due by the clock waits" in road.etl("check", "--probe").stdout
