"""Transform waits while load is behind, and goes on by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from etl.model import Skipped, Waiting
from etl.stages import pauses, run
from tests.road import Road, count


@pytest.fixture
def road(tmp_path: Path) -> Road:
    locations = {"lite": {"kind": "sql", "url": "sqlite:///lite.db", "table": "books", "create": True}}
    return Road(
        tmp_path,
        {
            "transform": {"read": "csv", "units_per_file": 1},
            "load": {"locations": locations, "max_waiting": 2},
        },
    )


def test_transform_waits_while_more_unit_files_wait_than_allowed(
    road: Road, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pauses, "_COUNT_HOLDS", -1.0)
    transform = road.place("transform")
    for number in (1, 2):
        road.drop(f"{number}.csv", f"isbn\n{number}\n{number}0\n{number}00\n", stage=transform.stage)
    first, second = road.files("transform", "working")
    with road.opened() as app:
        run.perform(app, Waiting(place=transform, name=first.name))
        waits = run.perform(app, Waiting(place=transform, name=second.name))
        assert isinstance(waits, Skipped)
        assert "3 unit files wait in books/load/working, more than the 2 of load.max_waiting" in waits.why
        assert pauses.why(app, road.place("load")) == pauses.why(app, road.place("extract")) == ""
        run.perform(app, Waiting(place=road.place("load"), name=road.files("load", "working")[0].name))
        assert pauses.why(app, transform) == ""
    road.work()
    assert road.files("transform", "working") == []


def test_a_reason_beside_a_waiting_file_is_not_counted(road: Road) -> None:
    for name in ("a~1.jsonl", "a~2.jsonl", "a~1.jsonl.reason.json", ".a.writing"):
        (road.folder("load", "working") / name).touch()
    with road.opened() as app:
        assert pauses.why(app, road.place("transform")) == ""
        (road.folder("load", "working") / "a~3.jsonl").touch()
        pauses._counted.clear()
        assert "3 unit files wait" in pauses.why(app, road.place("transform"))


def test_a_run_with_many_more_files_than_may_wait_ends_by_itself(road: Road, tmp_path: Path) -> None:
    road.spec["load"]["max_waiting"] = 1
    road.write()
    for number in range(4):
        (tmp_path / f"{number}.csv").write_text(f"isbn\n{number}\n{number}0\n{number}00\n")
    done = road.etl("run", "books", *(str(tmp_path / f"{number}.csv") for number in range(4)), "--inline")
    assert done.returncode == 0, done.stderr
    assert count(f"sqlite:///{road.root / 'lite.db'}", "books") == 12
