"""`etl check --probe`: one line and one of four codes for a monitor."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest

from etl.files import away
from tests import supervising
from tests.road import Road


@pytest.fixture
def road(tmp_path: Path) -> Road:
    return Road(
        tmp_path,
        {
            "extract": {"accept": ["*.csv"]},
            "transform": {"read": "csv"},
            "load": {"locations": {"lake": {"kind": "files", "path": "lake"}}},
        },
        settings={"reserve": "0B"},
    )


def probe(road: Road) -> tuple[int, str]:
    done = road.etl("check", "--probe")
    assert done.stderr == ""
    [line] = done.stdout.splitlines()
    return done.returncode, line


def test_nothing_runs_is_critical_and_nothing_is_started_to_find_out(road: Road) -> None:
    code, line = probe(road)
    assert code == 2
    assert line.startswith(
        "ETL CRITICAL - no workers and no dropbox run (etl up); the embedded Redis does not run"
    )
    assert not (road.data / ".etl" / "redis" / "server.pid").exists()


def test_what_runs_and_has_nothing_to_say_is_ok_and_the_rest_are_warnings(road: Road) -> None:
    with supervising.up(road) as up:
        up.pid("workers")
        up.pid("dropbox")
        code, line = probe(road)
        assert (code, line) == (0, "ETL OK - all is well | failed=0 waiting=0 oldest=0s")
        (road.folder("load", "lake", "failed") / "x.jsonl").touch()
        road.etl("pause", "books/extract")
        away.mark(road.layout, road.place("load", "lake"), "no route", asked=time.time(), now=time.time())
        old = road.drop("old.csv", "id\n1\n")
        os.utime(old, (time.time() - 3 * 3600, time.time() - 3 * 3600))
        (road.root / "config" / "pipelines" / "broken.yaml").write_text("transform: {read: csv\n")
        code, line = probe(road)
        assert code == 1
        for said in (
            "ETL WARNING - held because of their configuration: broken (etl check)",
            "books/extract is paused by ",
            "books/load/lake is away since ",
            "1 failed (etl failed)",
            "something waits since 3 h",
        ):
            assert said in line
        assert re.search(r"\| failed=1 waiting=1 oldest=10\d\d\ds$", line)
        assert up.stop() == 0


def test_no_room_is_critical(road: Road) -> None:
    road.settings["reserve"] = "900000GB"
    road.write()
    code, line = probe(road)
    assert code == 2
    assert "less than the reserve" in line


def test_a_redis_that_does_not_answer_is_critical(road: Road) -> None:
    road.settings["redis"] = "redis://127.0.0.1:1"
    road.write()
    code, line = probe(road)
    assert code == 2
    assert "Redis" in line


def test_a_configuration_that_cannot_be_read_is_unknown(road: Road) -> None:
    (road.root / "config" / "settings.yaml").write_text("wokers: 2\n")
    code, line = probe(road)
    assert code == 3
    assert line.startswith("ETL UNKNOWN - ")


def test_the_facts_are_there_as_json(road: Road) -> None:
    done = road.etl("check", "--probe", "--json")
    facts = json.loads(done.stdout)
    assert (facts["level"], facts["failed"], facts["waiting"], facts["oldest"]) == ("CRITICAL", 0, 0, 0.0)
    assert {one["level"] for one in facts["signs"]} == {"CRITICAL"}
