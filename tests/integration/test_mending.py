"""The scan: orphans back, work without a job announced, pauses kept, people's files through the gate."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from etl import disk, points
from etl.app import App
from etl.config import reading
from etl.files import arrivals, folders, names, notes
from etl.model import Place, Status
from etl.queues.queue import Work
from etl.services import mending
from etl.services.beats import Beats
from etl.services.doorkeeper import Doorkeeper
from etl.stages import pauses
from tests.road import Road


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Heard:
    """An announcer that only remembers."""

    def __init__(self) -> None:
        self.works: list[Work] = []

    def announce(self, works: Any) -> None:
        self.works.extend(works)

    def names(self) -> list[str]:
        """Give what was announced since the last time."""
        heard, self.works = self.works, []
        return [str(work.arguments["name"]) for work in heard]


class Scene:
    """A project, one who scans it, and a clock."""

    def __init__(self, root: Path, **extract: Any) -> None:
        spec = {
            "extract": extract,
            "transform": {"read": "csv"},
            "load": {"locations": {"lake": {"kind": "files", "path": "lake"}}},
        }
        self.road = Road(root, spec, settings={"reserve": "0B"})
        self.clock, self.heard = Clock(), Heard()
        self.app = App.open(reading.read(root / "config"), self.heard)
        self.known: set[Any] = set()
        self.door = Doorkeeper(self.app, drops=True, clock=self.clock)
        self.mender = mending.Mender(self.app, lambda: self.known, drops=True, door=self.door)
        self.working = self.road.folder("extract", "working")

    def scan(self) -> list[str]:
        self.mender.mend(["books"])
        return self.heard.names()

    def turn(self) -> list[str]:
        self.app.announce(self.mender.go_on(self.door.turn()))
        return self.heard.names()


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_drop_is_announced_with_what_it_looked_like_once_it_has_settled(scene: Scene) -> None:
    path = scene.working / "books.csv"
    path.write_text("id\n")
    assert scene.scan() == []
    assert scene.door.wanted() == pytest.approx(2.0)
    scene.clock.now += 2
    scene.mender.mend(["books"])
    [work] = scene.heard.works
    facts = path.stat()
    assert work.arguments["seen"] == [facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns]


def test_what_has_a_job_is_not_announced_again(scene: Scene) -> None:
    waiting = arrivals.request(scene.road.layout, "books", {})
    assert scene.scan() == [waiting.name]
    scene.known.add(scene.app.work(waiting).identity)
    assert scene.scan() == []
    scene.known.clear()
    assert scene.scan() == [waiting.name]


def test_a_file_with_an_id_that_a_person_copied_back_has_to_settle(scene: Scene) -> None:
    scene.road.drop("books.csv", "id\n1\n")
    scene.road.work()
    resolved = scene.road.one("extract", "resolved")
    shutil.copy(resolved, scene.working)
    assert scene.scan() == []
    scene.door.touched(scene.road.place("extract"), resolved.name, made=True)
    assert scene.turn() == []
    scene.clock.now += 2
    assert scene.turn() == [resolved.name]


def test_a_file_that_was_put_off_is_due_when_its_note_says_so(scene: Scene) -> None:
    waiting = arrivals.request(scene.road.layout, "books", {})
    note = notes.FileNote(attempt=1, not_before=4e9)
    path = scene.road.layout.note(waiting.place, waiting.name)
    path.write_bytes(notes.dump(note))
    assert scene.scan() == []
    assert scene.mender.due == 4e9


def test_a_paused_place_is_told_once_and_goes_on_by_itself(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "etl")
    why = ["too little room"]
    monkeypatch.setattr(pauses, "why", lambda app, place: why[0] if place.location else "")
    waiting = arrivals.request(scene.road.layout, "books", {})
    assert scene.scan() == []
    assert scene.scan() == []
    why[0] = ""
    assert scene.scan() == [waiting.name]
    assert scene.scan() == [waiting.name]
    told = [message for message in caplog.messages if ".requests" in message]
    assert told == ["books/extract/.requests pauses: too little room", "books/extract/.requests goes on"]


def test_a_paused_place_lets_its_first_file_through_when_it_may_be_tried(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    due: list[float | None] = [None]
    monkeypatch.setattr(pauses, "why", lambda app, place: "away")
    monkeypatch.setattr(pauses, "due", lambda app, place: due[0] if place.location == ".requests" else None)
    asked = [arrivals.request(scene.road.layout, "books", {}) for _ in range(3)]
    first = min(asked, key=lambda one: one.name)
    assert scene.scan() == []
    due[0] = 4e9
    assert scene.scan() == []
    # looked at again soon, whatever it was told: nobody tells when a pause is over
    assert scene.mender.due <= time.time() + mending.PAUSE_LOOK
    due[0] = 1.0
    assert scene.scan() == [first.name]
    scene.known.add(scene.app.work(first).identity)
    assert scene.scan() == []


def test_what_is_touched_in_a_paused_place_is_left_to_the_scan(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pauses, "why", lambda app, place: "too little room")
    scene.road.drop("books.csv", "id\n")
    scene.door.touched(scene.road.place("extract"), "books.csv", renamed=True)
    assert scene.turn() == []
    monkeypatch.undo()
    assert scene.scan() == ["books.csv"]


def test_folders_that_are_gone_are_made_again(scene: Scene) -> None:
    shutil.rmtree(scene.road.data / "books" / "load")
    scene.scan()
    assert scene.road.folder("load", "lake", "working").is_dir()


def test_a_name_that_is_published_by_us_is_left_to_whoever_announces_it(scene: Scene) -> None:
    waiting = arrivals.request(scene.road.layout, "books", {})
    scene.door.touched(waiting.place, waiting.name, renamed=True)
    assert scene.turn() == []


def test_an_emptied_folder_is_left_an_hour_and_then_removed(scene: Scene) -> None:
    deep = scene.working / "delivery" / "deep"
    deep.mkdir(parents=True)
    scene.scan()
    scene.clock.now += folders.EMPTY_FOR - 1
    scene.scan()
    assert deep.is_dir()
    (deep / "late.csv").write_text("id\n")
    scene.clock.now += 2
    scene.scan()
    assert deep.is_dir()
    scene.clock.now += 2
    assert len(scene.scan()) == 1
    for _ in range(3):
        scene.scan()
        scene.clock.now += folders.EMPTY_FOR
    assert not (scene.working / "delivery").exists()


def test_a_file_that_changed_since_it_was_looked_at_is_not_lifted(scene: Scene) -> None:
    folder = scene.working / "delivery"
    folder.mkdir()
    (folder / "books.csv").write_text("id\n")
    scene.scan()
    scene.clock.now += 2
    (folder / "books.csv").write_text("id\n1\n")
    assert scene.scan() == []
    scene.clock.now += 2
    [name] = scene.scan()
    assert os.listdir(folder) == []
    assert (scene.working / name).read_text() == "id\n1\n"


def test_done_files_in_a_dropped_folder_tell_of_the_files_beside_them(tmp_path: Path) -> None:
    scene = Scene(tmp_path, complete={"done": "{name}.ok"})
    folder = scene.working / "delivery"
    folder.mkdir()
    for name in ("told.csv", "told.csv.ok", "waits.csv"):
        (folder / name).write_text("id\n")
    [name] = scene.scan()
    assert name.startswith("told~")
    assert os.listdir(folder) == ["waits.csv"]


# --- beats


@pytest.fixture
def beating(tmp_path: Path) -> Iterator[tuple[Scene, Callable[[], list[str]]]]:
    scene = Scene(tmp_path, sources=[{"path": "in", "every": "1m"}, {"path": "never"}])
    (tmp_path / "in").mkdir()
    beats = Beats(scene.app, scene.clock)

    def turn() -> list[str]:
        beats.turn()
        return scene.heard.names()

    yield scene, turn


def rest(scene: Scene, name: str, status: Status, ago: float) -> None:
    place = Place(pipeline="books", stage=scene.road.place("extract").stage, location=".requests")
    lying = next(path for one in Status if (path := scene.road.layout.file(place, one, name)).exists())
    target = scene.road.layout.file(place, status, name)
    os.rename(lying, target)
    then = target.stat().st_mtime - ago
    os.utime(target, (then, then))


def test_a_source_is_asked_for_at_once_and_then_on_its_beat(beating: Any) -> None:
    scene, turn = beating
    [name] = turn()
    assert turn() == []
    for status in (Status.RESOLVED, Status.FAILED):
        rest(scene, name, status, ago=60)
        assert turn() == []
        scene.clock.now += 60
        assert turn() == [name]


@pytest.mark.parametrize("status", [Status.WORKING, Status.IN_PROCESS])
def test_while_a_request_is_followed_its_beat_is_skipped(beating: Any, status: Status) -> None:
    scene, turn = beating
    [name] = turn()
    rest(scene, name, status, ago=0)
    scene.clock.now += 60
    assert turn() == []
    rest(scene, name, Status.RESOLVED, ago=60)
    scene.clock.now += 60
    assert turn() == [name]


def test_a_second_dropbox_keeps_the_same_beat(beating: Any) -> None:
    scene, turn = beating
    [name] = turn()
    rest(scene, name, Status.RESOLVED, ago=10)
    other = Beats(scene.app, scene.clock)
    other.turn()
    assert scene.heard.names() == []
    assert other.wanted() == pytest.approx(50, abs=5)


def test_a_request_never_holds_what_may_be_secret(tmp_path: Path) -> None:
    scene = Scene(tmp_path, sources=[{"path": "sftp://me:canary@host/in", "every": "1m"}])
    Beats(scene.app, scene.clock).turn()
    written = [path for path in scene.road.data.rglob("*") if path.is_file()]
    assert written
    assert not any(b"canary" in path.read_bytes() for path in written)


def test_a_beat_that_meets_the_same_unreadable_file_again_tells_it_once(tmp_path: Path) -> None:
    road = Road(
        tmp_path,
        {
            "extract": {"sources": [{"path": "in", "every": "1m"}]},
            "transform": {"read": "csv"},
            "load": {"locations": {"lake": {"kind": "files", "path": "lake"}}},
        },
    )
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link.csv").symlink_to("/etc/passwd")
    (tmp_path / "in" / "books.csv").write_text("id\n1\n")
    with road.opened() as app:
        Beats(app).turn()
    road.work()
    for _ in range(3):
        road.move_back(road.one("extract", ".requests", "resolved"))
        road.work()
    assert len(road.files("extract", ".requests", "failed")) == 1
    assert not (road.data / "archive").exists()


def test_a_copy_with_an_id_and_no_note_of_ours_has_to_settle_however_it_is_found(scene: Scene) -> None:
    name = f"books~{names.new_id('books', 1)}-1.jsonl"
    path = scene.road.folder("load", "lake", "working") / name
    path.write_text("half of it")
    place = scene.road.place("load", "lake")
    scene.door.touched(place, name, made=True)
    assert scene.turn() == []
    assert scene.scan() == []
    with path.open("a") as still_written:
        scene.clock.now += 10
        assert scene.turn() == []
        still_written.write("the other half")
    scene.clock.now += 10
    assert scene.turn() == []  # it has changed since the last look
    scene.clock.now += 3
    assert scene.turn() == [name]


def test_a_file_that_changed_while_it_was_read_settles_once_more(scene: Scene) -> None:
    name = f"books~{names.new_id('books', 1)}.csv"
    (scene.road.folder("transform", "working") / name).write_text("id\n")
    note = notes.FileNote(attempt=1, unsettled=True)
    notes.write(scene.road.layout, scene.road.place("transform"), name, note, points.Point.NOTE_PUT_OFF)
    assert scene.scan() == []
    scene.clock.now += 3
    assert scene.turn() == [name]


def test_one_damaged_outbox_stops_the_scan_of_nothing_else(scene: Scene) -> None:
    outbox = scene.road.folder("transform", ".outbox", "books.csv.1")
    outbox.mkdir()
    (outbox / "commit.json").write_text("")
    waiting = arrivals.request(scene.road.layout, "books", {})
    assert scene.scan() == [waiting.name]


def test_a_file_that_cannot_be_taken_out_of_its_folder_leaves_no_note_and_holds_up_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = scene.working / "of somebody else"
    folder.mkdir()
    (folder / "a.csv").write_text("id\n")

    def refuse(source: Path, target: Path) -> None:
        raise PermissionError(errno.EACCES, "not yours", str(source))

    monkeypatch.setattr(disk, "rename", refuse)
    scene.scan()
    scene.clock.now += 3
    assert scene.scan() == []
    assert "cannot be taken out of its folder" in caplog.text
    assert list(scene.road.layout.source_note("books", "x").parent.glob("*.json")) == []
