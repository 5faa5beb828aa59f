"""A disk that is really full, in every stage: nothing half-written, nobody to blame, all goes on when there is room.

The disk is a small tmpfs, which only root may mount.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from etl.files import notes, room
from etl.formats import units
from etl.model import Skipped, Stage, Status, Waiting
from etl.stages import pauses, run
from tests.queue_helpers import wait_until
from tests.road import REPOSITORY, Road, count, rows

ROWS = 8_000
TITLE = "a title that takes some room on a disk that has little of it"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of twelve megabytes."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root may mount a disk")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"a disk cannot be mounted here: {mounted.stderr.decode()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def road(disk: Path) -> Road:
    source = disk.parent / "in"
    source.mkdir()
    (source / "books.csv").write_text("isbn,title\n" + "".join(f"{n},{TITLE}\n" for n in range(ROWS)))
    return Road(
        disk / "site",
        {
            "extract": {"sources": [str(source)]},
            "transform": {"read": "csv", "units_per_file": ROWS // 4},
            "load": {
                "locations": {
                    "lite": {"kind": "sql", "url": "sqlite:///lite.db", "table": "books", "create": True},
                    "lake": {"kind": "files", "path": "lake"},
                }
            },
        },
        settings={"reserve": "1MB"},
    )


class Ballast:
    """A file that takes the room."""

    def __init__(self, disk: Path) -> None:
        self._path = disk / "ballast"

    def fill(self, *, leave: int) -> None:
        """Leave so many bytes."""
        facts = os.statvfs(self._path.parent)
        # somebody else may take the last bytes meanwhile
        with suppress(OSError), self._path.open("wb", buffering=0) as handle:
            handle.write(b"\0" * (facts.f_bavail * facts.f_frsize - leave))

    def drop(self) -> None:
        self._path.unlink()


def bring_to(road: Road, stage: str) -> None:
    """Let the file come as far as the `working/` of a stage, and no further."""
    road.ask()
    places = {
        "pull": [],
        "extract": [road.place("extract", ".requests")],
        "transform": [road.place("extract", ".requests"), road.place("extract")],
        "load": [road.place("extract", ".requests"), road.place("extract"), road.place("transform")],
    }[stage]
    with road.opened(patient=True) as app:
        for place in places:
            for path in road.layout.status(place, Status.WORKING).iterdir():
                run.perform(app, Waiting(place=place, name=path.name))


def check_whole(road: Road) -> None:
    """Check that every file in a status folder, and every note, is whole."""
    for place in road.places():
        for status in Status:
            for path in road.layout.status(place, status).iterdir():
                assert not path.name.startswith("."), f"half-written: {path}"
                if path.name.endswith(".json"):
                    json.loads(path.read_bytes())
                elif place.stage is Stage.LOAD:
                    with path.open("rb") as stream:
                        units.read_recipe(stream)
                        assert sum(len(block.rows) for block in units.read_blocks(stream)) == ROWS // 4
                else:
                    assert path.read_text().endswith(f"{ROWS - 1},{TITLE}\n")
    for note in road.data.glob("books/**/.notes/*.json"):
        json.loads(note.read_bytes())
    assert list(road.data.rglob("*.writing")) == []


def charged(road: Road) -> int:
    """Count the tries and deaths that any file was charged for."""
    found = list(road.data.glob("books/*/**/.notes/*.json"))
    facts = [notes.from_facts(json.loads(path.read_bytes())) for path in found]
    return sum(note.tries + note.deaths for note in facts)


@pytest.mark.parametrize("leave", [0, 8 << 10, 200 << 10])
@pytest.mark.parametrize("stage", ["pull", "extract", "transform", "load"])
def test_a_disk_that_is_full_in_any_stage_loses_and_charges_nothing(
    road: Road, disk: Path, stage: str, leave: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring_to(road, stage)
    ballast = Ballast(disk)
    ballast.fill(leave=leave)
    with monkeypatch.context() as patched:
        # nobody looks ahead: everything meets the kernel's own answer
        patched.setattr(room, "short", lambda *_: "")
        for _ in range(4):  # more often than a file may be tried, or its worker may die
            outcomes = road.work(patient=True)
    assert outcomes, "nothing was even begun"
    check_whole(road)
    assert [path for path in road.data.rglob("failed/*") if path.is_file()] == []

    ballast.drop()
    make_probes_due(road)
    road.work(patient=True)
    road.work(patient=True)

    assert count(f"sqlite:///{road.root / 'lite.db'}", "books") == ROWS
    assert sum(path.read_text().count("\n") for path in road.root.glob("lake/*.jsonl")) == ROWS
    assert charged(road) == 0
    assert road.broken_promises() == []
    check_whole(road)


def make_probes_due(road: Road) -> None:
    for path in road.data.glob("books/load/*/.away.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"next": 0.0}))


def test_all_stages_pause_below_the_reserve_and_say_so(road: Road, disk: Path) -> None:
    bring_to(road, "extract")
    ballast = Ballast(disk)
    ballast.fill(leave=900 << 10)
    assert road.work() == []  # nothing is even announced
    outcome = road.perform(road.one("extract", "working"))
    assert isinstance(outcome, Skipped)
    assert "less than the reserve of 1.0 MB" in outcome.why
    assert len(road.files("extract", "working")) == 1
    with road.opened() as app:
        assert all(pauses.why(app, place) for place in road.places())
    assert "paused: everything: only" in road.etl("status").stdout
    ballast.drop()
    with road.opened() as app:
        assert not any(pauses.why(app, place) for place in road.places())


def test_below_the_reserve_nothing_is_taken_in(road: Road, disk: Path) -> None:
    Ballast(disk).fill(leave=1200 << 10)
    source = disk.parent / "in" / "books.csv"
    assert source.stat().st_size > 500 << 10
    refused = road.etl("run", "books", str(source), "--inline")
    assert refused.returncode == 2
    assert "are free" in refused.stderr and "make room" in refused.stderr.lower()
    assert road.files("extract", "working") == []
    Ballast(disk).drop()
    Ballast(disk).fill(leave=900 << 10)
    asked = road.etl("extract", "books")
    assert asked.returncode == 2, asked.stderr
    assert road.files("extract", ".requests", "working") == []


def test_a_run_says_why_nothing_moves_and_goes_on_by_itself(road: Road, disk: Path) -> None:
    bring_to(road, "extract")
    ballast = Ballast(disk)
    ballast.fill(leave=900 << 10)
    told = disk.parent / "told"
    command = [sys.executable, "-m", "etl", "--config", str(road.root / "config"), "run", "books", "--inline"]
    with told.open("w") as log, subprocess.Popen(command, stderr=log, stdout=log, cwd=REPOSITORY) as process:
        try:
            wait_until(lambda: "paused: only" in told.read_text(), "the pause is told")
            assert rows(f"sqlite:///{road.root / 'lite.db'}", "books") == []
            ballast.drop()
            assert process.wait(30) == 0, told.read_text()
        finally:
            process.kill()
    assert count(f"sqlite:///{road.root / 'lite.db'}", "books") == ROWS
    assert told.read_text().count("paused: only") == 1


def test_workers_live_through_a_full_disk_and_go_on_when_there_is_room(road: Road, disk: Path) -> None:
    road.settings |= {"scan": "300ms", "workers": 1}
    road.write()
    road.ask()
    log, ballast = disk.parent / "worker.log", Ballast(disk)
    command = [sys.executable, "-m", "etl", "--config", str(road.root / "config"), "worker"]
    with log.open("w") as told, subprocess.Popen(command, stderr=told, cwd=REPOSITORY) as process:
        try:
            wait_until(lambda: road.files("extract", "resolved"), "the first files move")
            # whatever it is doing right now, and the embedded Redis beside it, has no byte left
            ballast.fill(leave=0)
            wait_until(lambda: full(log.read_text()), "somebody meets the full disk")
            ballast.drop()
            wait_until(
                lambda: count(f"sqlite:///{road.root / 'lite.db'}", "books") == ROWS, "all rows are there", 60
            )
            wait_until(lambda: len(road.files("load", "resolved")) == 4, "all is resolved", 60)
            # an outbox that was handed out while the disk was full may not be cleared yet: the next scan does
            wait_until(lambda: road.broken_promises() == [], "no promise is broken", 60)
            assert process.poll() is None
        finally:
            process.terminate()
    assert "Traceback" not in log.read_text()
    assert road.broken_promises() == []
    check_whole(road)


def full(told: str) -> bool:
    return any(word in told for word in ("No space left", "paused: only", "is full"))
