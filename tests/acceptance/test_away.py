"""A location is away: the others load at once, its files wait for it uncounted, and it is caught up when it is back."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from etl.files import away
from etl.locations import memory
from etl.model import Skipped, Waiting
from etl.stages import pauses, run
from tests.queue_helpers import wait_until
from tests.road import REPOSITORY, Road, count

SECOND = {"kind": "sql", "url": "sqlite:///lite.db", "table": "books", "create": True}


@pytest.fixture
def far() -> Iterator[memory.Store]:
    """A location that can be told to be away."""
    store = memory.store("far")
    store.away = True
    yield store
    memory._stores.pop("far")


@pytest.fixture
def road(tmp_path: Path, far: memory.Store) -> Road:
    locations = {"far": {"kind": "memory"}, "lite": SECOND}
    return Road(tmp_path, {"transform": {"read": "csv"}, "load": {"locations": locations}})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the far location was asked to load."""
    names: list[str] = []
    load = memory.MemoryLocation.load

    def counted(self: memory.MemoryLocation, units: Any) -> Any:
        names.append(units.name)
        return load(self, units)

    monkeypatch.setattr(memory.MemoryLocation, "load", counted)
    return names


def drop(road: Road, *numbers: int) -> None:
    for number in numbers:
        road.drop(f"{number}.csv", f"isbn,title\n{number},Emma\n")


def lite(road: Road) -> int:
    return count(f"sqlite:///{road.root / 'lite.db'}", "books")


def mark(road: Road) -> away.Mark | None:
    return away.read(road.layout, road.place("load", "far"))


def make_due(road: Road) -> None:
    """Let the next probe be due, without waiting for it."""
    path = road.layout.away(road.place("load", "far"))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"next": 0.0}))


def events(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if getattr(record, "event", "") == event]


def test_an_away_location_is_asked_once_and_the_others_load_at_once(
    road: Road, asked: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    drop(road, 1, 2, 3)
    road.work(patient=True)
    assert lite(road) == 3
    assert len(asked) == 1
    waiting = road.files("load", "far", "working")
    assert len(waiting) == 3
    assert road.files("load", "far", "failed") == []
    for path in waiting:
        note, reason = road.note(path), road.reason(path)
        assert (note.tries, note.deaths, note.not_before) == (0, 0, 0.0)
        assert reason["next"] == "nothing: it waits for far and is loaded by itself when that is back"
        assert reason["urgency"] == "info"
    assert len(events(caplog, "location_away")) == 1
    assert [one.check for one in road.findings()] == ["not-asked"]


def test_a_probe_that_is_answered_no_better_leaves_its_file_as_it_was(road: Road, asked: list[str]) -> None:
    drop(road, 1, 2)
    road.work(patient=True)
    make_due(road)
    asked.clear()
    road.work(patient=True)
    assert len(asked) == 1
    known = mark(road)
    assert known and known.tries == 1 and known.next > time.time()
    assert len(road.files("load", "far", "working")) == 2
    for path in road.files("load", "far", "working"):
        assert (road.note(path).tries, road.note(path).deaths) == (0, 0)
        assert "waits for far" in road.reason(path)["next"]


def test_the_file_that_finds_it_back_has_the_others_worked(
    road: Road, far: memory.Store, caplog: pytest.LogCaptureFixture
) -> None:
    drop(road, *range(5))
    road.work(patient=True)
    far.away = False
    make_due(road)
    probe = road.files("load", "far", "working")[0]
    with road.opened(patient=True) as app:
        run.perform(app, Waiting(place=road.place("load", "far"), name=probe.name))
        announced = []
        while work := app.announcer.take():  # type: ignore[attr-defined]
            announced.append(work.arguments["name"])
    assert announced == [path.name for path in road.files("load", "far", "working")]
    assert len(announced) == 4
    road.work(patient=True)
    assert len(far.units) == 5
    assert mark(road) is None
    assert len(events(caplog, "location_back")) == 1
    assert road.files("load", "far", "working") == []
    assert road.broken_promises() == []


def test_a_location_that_answers_no_is_back(road: Road, far: memory.Store) -> None:
    drop(road, 1)
    road.work(patient=True)
    far.away, far.refuse = False, lambda unit: "not wanted"
    make_due(road)
    road.work(patient=True)
    assert mark(road) is None
    assert len(road.files("load", "far", "failed")) == 1


def test_in_the_foreground_nobody_waits_for_a_location_but_hears_that_it_is_back(
    road: Road, far: memory.Store
) -> None:
    drop(road, 1)
    road.work(patient=True)
    road.work()
    assert len(road.files("load", "far", "failed")) == 1
    assert mark(road)
    far.away = False
    drop(road, 2)
    road.work()
    assert mark(road) is None
    assert len(far.units) == 1


def test_the_pause_of_a_location_says_since_when_and_when_it_is_probed(road: Road) -> None:
    place = road.place("load", "far")
    drop(road, 1)
    with road.opened(patient=True) as app:
        assert pauses.why(app, place) == ""
        assert pauses.due(app, place) is None
    road.work(patient=True)
    path = road.one("load", "far", "working")
    known = mark(road)
    with road.opened(patient=True) as app:
        assert pauses.why(app, place).startswith("away since ")
        assert known and pauses.due(app, place) == known.next
        assert pauses.why(app, road.place("load")) == ""
        skipped = run.perform(app, Waiting(place=place, name=path.name))
    assert isinstance(skipped, Skipped) and "away since" in skipped.why
    with road.opened() as app:
        assert pauses.why(app, place) == ""


def test_the_status_tells_that_a_location_is_away(road: Road) -> None:
    drop(road, 1)
    road.work(patient=True)
    known = mark(road)
    told = json.loads(road.etl("status", "--json").stdout)["places"]
    [shown] = [place for place in told if place["place"] == "books/load/far"]
    assert known and shown["away_since"] == known.since
    assert "away since" in shown["paused"]
    assert all(place["paused"] == "" for place in told if place is not shown)
    assert "paused: books/load/far: away since" in road.etl("status").stdout


def test_a_folder_without_room_or_mounted_read_only_is_away_and_one_without_rights_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    from etl import disk, errors
    from tests.location_helpers import opened, unit_file

    location = opened(tmp_path, kind="files", path="lake")
    for code, expected in (
        *((code, errors.Away) for code in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE)),
        *((code, errors.Refused) for code in (errno.EACCES, errno.EPERM)),
    ):

        def refuse(_path: Path, code: int = code) -> disk.Lock:
            raise OSError(code, "said by a test")

        with monkeypatch.context() as patched, pytest.raises(expected):
            patched.setattr(disk, "wait_for_lock", refuse)
            location.load(unit_file([{"isbn": 1}]))


# --- a real server -----------------------------------------------------------------------------------------


@contextmanager
def workers(road: Road, log: Path) -> Iterator[None]:
    """Have real workers at work."""
    command = [sys.executable, "-m", "etl", "--config", str(road.root / "config"), "worker"]
    with log.open("w") as told, subprocess.Popen(command, stderr=told, cwd=REPOSITORY) as process:
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


def test_postgresql_is_stopped_in_the_middle_and_everything_is_loaded_when_it_is_back(
    server: Any, tmp_path: Path
) -> None:
    files = 30
    postgres = server.get_uri(driver="psycopg")
    there = {"kind": "sql", "url": postgres, "table": "books", "create": True}
    road = Road(
        tmp_path / "site",
        {"transform": {"read": "csv"}, "load": {"locations": {"warehouse": there, "lite": SECOND}}},
        settings={"scan": "300ms", "workers": 2},
    )
    source = tmp_path / "in"
    source.mkdir()
    for number in range(files):
        (source / f"{number}.csv").write_text(f"isbn,title\n{number},Emma\n")
    names = sorted(source.iterdir())
    log = tmp_path / "worker.log"
    with workers(road, log):
        bring(road, names[: files // 3])
        wait_until(lambda: count(postgres, "books") == files // 3, "the first files are loaded")
        server.stop()
        bring(road, names[files // 3 :])
        wait_until(lambda: lite(road) == files, "the other location has all rows while this one is away")
        down = away.read(road.layout, road.place("load", "warehouse"))
        wait_until(lambda: probes(road) >= 2, "it is probed")
        server.start()
        wait_until(lambda: count(postgres, "books") == files, "all is loaded when it is back")
        wait_until(lambda: road.files("load", "warehouse", "working") == [], "nothing waits any more")
    assert down is not None
    assert [path for path in road.data.rglob("failed/*") if path.is_file()] == []
    for path in road.files("load", "warehouse", "resolved"):
        assert (road.note(path).tries, road.note(path).deaths) == (0, 0)
    said = log.read_text()
    assert said.count("warehouse: away:") == 1
    assert said.count("warehouse: back after") == 1
    assert "Traceback" not in said
    assert road.broken_promises() == []


def bring(road: Road, paths: list[Path]) -> None:
    """Have files pulled."""
    for path in paths:
        road.ask(sources=[str(path)])


def probes(road: Road) -> int:
    known = away.read(road.layout, road.place("load", "warehouse"))
    return known.tries if known else 0
