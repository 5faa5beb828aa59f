"""What is in work shows in `etl status` while real workers work it, and no longer than that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.queue_helpers import wait_until
from tests.road import Road
from tests.supervising import Up, status, up

#: works until somebody says `go`; tells how far it is for one of the files alone.
SLOW = """
import time
from pathlib import Path
import etl

GO = Path(__file__).with_name("go")

def to_unit(row, file):
    number = int(row["isbn"])
    until = time.monotonic() + (60 if number == 2 and file.name == "talks.csv" else 0.2)
    while time.monotonic() < until and not GO.exists():
        if file.name == "talks.csv":
            etl.progress(number, 8, f"looking up book {number} at a library that is far away")
        time.sleep(0.02)
    return row
"""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Up]:
    spec = {
        "extract": {"complete": {"settle": "0.1s"}},
        "transform": {"read": "csv", "handler": "slow:to_unit"},
        "load": {"locations": {"lake": {"kind": "files", "path": "lake"}}},
    }
    with up(Road(tmp_path, spec, handlers={"slow": SLOW}, settings={"scan": "1s"})) as running:
        running.pid("workers")
        yield running


def csv_of(size: int) -> str:
    return "isbn,title\n" + "".join(f"{number},Book {number:09}\n" for number in range(1, size + 1))


def test_status_shows_what_is_in_work_and_how_far_it_is(running: Up) -> None:
    road = running.road
    road.drop("talks.csv", csv_of(4))
    road.drop("silent.csv", csv_of(200))

    def both() -> list[dict[str, Any]] | None:
        found = sorted(status(road)["in_work"], key=lambda one: bool(one["text"]))
        ready = len(found) == 2 and found[0]["rows"] > 2 and found[1]["done"] == 2
        return found if ready else None

    silent, talks = wait_until(both, f"both show: {running.text()}", within=40)
    assert (talks["place"], talks["percent"], talks["total"]) == ("books/transform", 25.0, 8)
    assert talks["text"].startswith("looking up book 2 ")
    assert talks["time_left"] is not None and talks["begun"] <= talks["at"]
    assert int(talks["worker"].rpartition(":")[2]) in running.below()
    size = len(csv_of(200))
    assert (silent["total"], silent["text"]) == (size, "")
    assert silent["done"] == pytest.approx(size * silent["rows"] / 200, rel=0.01)
    assert silent["time_left"] > 1

    table = road.etl("status").stdout
    assert "in work" in table and "time left" in table and "looking up" in table
    assert max(map(len, table.splitlines())) <= 80
    assert [one["name"] for one in status(road)["in_work"]] == [
        one["name"] for one in sorted((silent, talks), key=lambda one: one["begun"])
    ]

    (road.root / "config/handlers/go").touch()
    wait_until(lambda: len(road.files("load", "resolved")) == 2, f"loaded: {running.text()}", within=40)
    assert status(road)["in_work"] == []
    assert "in work" not in road.etl("status").stdout
