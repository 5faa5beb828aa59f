"""Prometheus asks the supervisor: a real request to a real port."""

from __future__ import annotations

import socket
import time
import urllib.request
from pathlib import Path

import pytest
import sqlalchemy as sa
from prometheus_client import parser

from etl.config import reading
from etl.files import away
from etl.ledger import opening, tables
from etl.services import metrics
from tests import supervising
from tests.queue_helpers import wait_until
from tests.road import Road

LABELS = ("pipeline", "stage", "location", "status", "service", "host")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def road(tmp_path: Path) -> Road:
    return Road(
        tmp_path,
        {
            "extract": {"complete": {"settle": "100ms"}},
            "transform": {"read": "csv"},
            "load": {"locations": {"lake": {"kind": "files", "path": "lake"}}},
        },
        settings={"scan": "1s", "reserve": "0B", "metrics": f"127.0.0.1:{free_port()}"},
    )


def asked(road: Road) -> dict[str, dict[tuple[str, ...], float]]:
    """Ask as Prometheus does: name -> values of the labels -> figure."""
    with urllib.request.urlopen(f"http://{road.settings['metrics']}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in parser.text_string_to_metric_families(text):
        for one in family.samples:
            labels = tuple(one.labels[key] for key in LABELS if key in one.labels)
            found.setdefault(one.name, {})[labels] = one.value
    return found


def test_the_supervisor_tells_files_services_pauses_and_room(road: Road) -> None:
    away.mark(road.layout, road.place("load", "lake"), "no route", asked=time.time(), now=time.time())
    road.etl("pause", "books/transform")
    with supervising.up(road) as up:
        up.pid("workers")
        up.pid("dropbox")
        road.drop("books.csv", "id\n1\n")
        place = ("books", "transform", "")
        # its parent is resolved a moment after it is there
        extracted = ("books", "extract", "", "resolved")
        wait_until(lambda: asked(road)["etl_files"].get(extracted) == 1, f"it is extracted: {up.text()}")
        found = asked(road)
        assert found["etl_files"][(*place, "working")] == 1
        assert found["etl_oldest_waiting_seconds"][place] > 0
        assert {service for service, _ in found["etl_service_up"]} >= {"workers", "dropbox", "supervisor"}
        assert set(found["etl_service_restarts_total"].values()) == {0}
        assert found["etl_location_away"]["books", "load", "lake"] == 1
        assert found["etl_paused"][place] == 1
        assert found["etl_paused"]["books", "load", ""] == 0
        assert found["etl_disk_free_bytes"][()] > 0
        assert up.stop() == 0


def test_a_port_that_is_taken_is_told_and_stops_nothing(road: Road) -> None:
    host, _, port = str(road.settings["metrics"]).partition(":")
    with socket.socket() as taken:
        taken.bind((host, int(port)))
        taken.listen()
        with supervising.up(road) as up:
            up.wait_for("no metrics are served at 127.0.0.1:")
            up.pid("workers")
            assert up.stop() == 0


def test_what_only_the_ledger_knows_is_left_out_without_one_and_given_with_one(road: Road) -> None:
    config = reading.read(road.root / "config")
    collector = metrics.Collector(config)
    assert "etl_attempts" not in {one.name for one in collector.collect()}
    ledger = opening.for_writing(config, road.layout.data_id())
    with ledger.writing() as connection:
        write_totals(connection)
    ledger.close()
    found = {
        (sample.name, sample.labels["stage"]): sample.value
        for family in collector.collect()
        for sample in family.samples
        if "outcome" in sample.labels or family.name in ("etl_rows", "etl_units")
    }
    assert found["etl_attempts_total", "transform"] == 3
    assert found["etl_attempt_seconds_sum", "transform"] == 1.5
    assert found["etl_attempt_seconds_count", "transform"] == 3
    assert found["etl_rows_total", "transform"] == 30
    assert found["etl_units_total", "load"] == 30


def write_totals(connection: sa.Connection) -> None:

    for stage, rows in (("transform", 30), ("load", 0)):
        row = {"pipeline": "books", "stage": stage, "location": "", "outcome": "resolved"}
        connection.execute(sa.insert(tables.totals).values(**row, jobs=3, seconds=1.5, rows=rows, count=30))
