"""A clean is killed or meets a faulty disk at each of its points, or two are at it: it ends as if nothing had been."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from etl import disk, points
from etl.files import archives, archiving, verifying
from etl.files.cleanings import Planned
from etl.model import Stage
from etl.points import Point
from etl.stages import clean
from tests import old_tree
from tests import road as roads
from tests.old_tree import State, run, state
from tests.road import Road

#: every point of a clean; the marks of one that was asked for are tried below.
POINTS = [
    Point.CLEAN_PLAN,
    Point.ARCHIVE_WRITE,
    Point.ARCHIVE_MANIFEST,
    Point.ARCHIVE_COMMIT,
    Point.CLEAN_REMOVE,
    Point.CLEAN_NOTE,
    Point.CLEAN_END,
    Point.ARCHIVE_EXPIRE,
]


@pytest.fixture(scope="module")
def beginning(tmp_path_factory: pytest.TempPathFactory) -> Road:
    return old_tree.small(tmp_path_factory.mktemp("beginning") / "project")


@pytest.fixture
def road(beginning: Road, tmp_path: Path) -> Road:
    return roads.copy_of(beginning, tmp_path / "project")


@pytest.fixture(scope="module")
def end(beginning: Road, tmp_path_factory: pytest.TempPathFactory) -> State:
    """How an undisturbed clean ends."""
    road = roads.copy_of(beginning, tmp_path_factory.mktemp("end") / "project")
    assert run(road).errors == {}
    return state(road)


@contextmanager
def failing(at: str) -> Iterator[None]:
    points.crash_at = at
    points.reached.clear()
    try:
        yield
    finally:
        points.crash_at = ""


def in_a_child(work: Callable[[], object]) -> int:
    """Do something in a process of its own and give its process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
    finally:
        os._exit(0)


def killed(at: str, work: Callable[[], object]) -> None:
    """Have a process killed at a point."""

    def until_killed() -> None:
        with failing(at):
            work()

    _, status = os.waitpid(in_a_child(until_killed), 0)
    assert os.WIFSIGNALED(status), f"{at} is on no road"
    assert os.WTERMSIG(status) == signal.SIGKILL


def cases() -> Iterator[str]:
    for point in POINTS:
        yield from (f"{point}:before", f"{point}:after")
    # the second archive, a file and a note in the middle
    yield from (f"{point}:{when}#2" for point in POINTS[1:4] for when in ("before", "after"))
    yield from (f"{Point.CLEAN_REMOVE}:after#{times}" for times in (3, 6, 9))
    yield from (f"{Point.CLEAN_NOTE}:after#{times}" for times in (4, 7, 11))


def test_the_end_is_the_right_one(end: State) -> None:
    lying, archived, half_done = end
    left = sorted({path.split("~")[0] for path in lying if ".notes/" not in path and ".logs/" not in path})
    assert left == [
        "books/load/resolved/partial",
        "books/transform/failed/failed",
        "books/transform/failed/partial",
        "books/transform/resolved/partial",
    ]
    [extract, transform] = archived
    assert (extract[11:], transform[11:]) == ("books-extract.tar.gz", "books-transform.tar.gz")
    assert sorted(path.split("~")[0] for path in archived[extract] if "/resolved/" in path) == [
        f"books/extract/resolved/{name}" for name in ("corrected", "failed", "good", "partial")
    ]
    assert half_done == []


@pytest.mark.parametrize("at", list(cases()))
def test_killed_and_run_again_it_ends_the_same(road: Road, end: State, at: str) -> None:
    killed(at, lambda: run(road))

    assert run(road).errors == {}

    assert state(road) == end


@pytest.mark.parametrize("at", [f"{Point.ARCHIVE_COMMIT}:after#2", f"{Point.CLEAN_REMOVE}:after#3"])
def test_killed_twice_it_ends_the_same(road: Road, end: State, at: str) -> None:
    killed(at, lambda: run(road))
    killed(f"{Point.CLEAN_REMOVE}:after", lambda: run(road))
    killed(f"{Point.CLEAN_NOTE}:after#2", lambda: run(road))

    run(road)

    assert state(road) == end


@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
@pytest.mark.parametrize("point", POINTS)
def test_a_faulty_disk_is_told_and_nothing_is_lost(road: Road, end: State, point: Point, error: str) -> None:
    for when in ("before", "after"):
        before = old_tree.lying(road.data)
        with failing(f"{point}:{when}={error}"):
            report = run(road)

        if points.reached:  # what is after the last of its kind may be done by now
            assert list(report.errors) == ["books"]
        archived = {path for one in old_tree.archived(road.data / "archive").values() for path in one}
        gone = before.keys() - old_tree.lying(road.data).keys()
        assert {path for path in gone if "/extract/resolved/" in path} <= archived
        assert not list((road.data / "archive").rglob("*.writing"))

    assert run(road).errors == {}
    assert state(road) == end


def test_two_at_once_end_the_same(road: Road, end: State) -> None:
    children = [in_a_child(lambda: run(road)) for _ in range(2)]
    for child in children:
        os.waitpid(child, 0)

    assert state(road) == end


def test_while_one_is_at_it_another_says_so_and_does_nothing(road: Road) -> None:
    before = old_tree.lying(road.data)
    (road.data / ".etl" / "clean").mkdir(exist_ok=True)
    lock = disk.lock_path(road.data / ".etl" / "clean" / "lock")
    assert lock is not None
    with lock:
        report = run(road)
        told = road.etl("clean")

    assert report.busy
    assert (told.returncode, told.stdout) == (0, "another clean is at it; nothing was done\n")
    assert old_tree.lying(road.data) == before


def test_a_byte_that_the_disk_turned_removes_nothing(
    road: Road, end: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, sync = old_tree.lying(road.data), disk.sync

    def turning(handle: object) -> None:
        sync(handle)  # type: ignore[arg-type]
        path = Path(handle.name)  # type: ignore[attr-defined]
        if path.name.startswith(".books-"):
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)

    with monkeypatch.context() as patched:
        patched.setattr(archiving.disk, "sync", turning)
        report = run(road)

    assert "is not what was written" in report.errors["books"]
    assert "no source was removed" in report.errors["books"]
    assert old_tree.lying(road.data) == before
    assert not list((road.data / "archive").rglob(".*"))
    run(road)
    assert state(road) == end


def test_one_pipeline_that_cannot_be_archived_holds_up_no_other(road: Road) -> None:
    other = old_tree.make(road.root, "prices")
    with old_tree.came(3):
        other.drop("good.csv", "id\n1\n")
        other.work()
    old_tree.date_back(other)
    before = old_tree.lying(road.data / "books")

    with failing(f"{Point.ARCHIVE_WRITE}:after=ENOSPC"):
        report = run(road)

    assert list(report.errors) == ["books"]
    assert "No space left" in report.errors["books"]
    assert old_tree.lying(road.data / "books") == before
    assert [one.pipeline for one in report.archives] == ["prices"]
    assert other.files("extract", "resolved") == []


def test_an_archive_folder_that_is_not_there_is_not_made(road: Road, tmp_path: Path, end: State) -> None:
    road.settings["archive"] = str(tmp_path / "disk")
    road.write()
    before = old_tree.lying(road.data)

    told = road.etl("clean")

    assert told.returncode == 1
    assert told.stderr.count("is not there. Mount its disk or make the folder") == 1
    assert old_tree.lying(road.data) == before
    assert not (tmp_path / "disk").exists()

    (tmp_path / "disk").mkdir()
    assert run(road).errors == {}
    assert old_tree.archived(tmp_path / "disk").keys() == end[1].keys()
    assert old_tree.lying(road.data) == end[0]


def test_a_clean_that_was_cut_short_is_carried_on_once_the_disk_of_its_archive_is_back(
    road: Road, tmp_path: Path, end: State
) -> None:
    disk_, away = tmp_path / "disk", tmp_path / "away"
    disk_.mkdir()
    road.settings["archive"] = str(disk_)
    road.write()
    killed(f"{Point.ARCHIVE_COMMIT}:after#2", lambda: run(road))
    disk_.rename(away)

    assert "is not there" in run(road).errors["books"]

    away.rename(disk_)
    assert run(road).errors == {}
    assert old_tree.archived(disk_).keys() == end[1].keys()  # and none a second time
    assert old_tree.lying(road.data) == end[0]


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_while_it_is_asked_for_or_answered_it_is_asked_for_or_done(road: Road, when: str) -> None:
    def asking() -> None:
        with road.opened() as app:
            clean.ask(app)

    def working() -> None:
        with road.opened() as app:
            clean.job(app)

    killed(f"{Point.CLEAN_ASK}:{when}", asking)
    asking()
    assert clean.asked(road.layout)

    killed(f"{Point.CLEAN_ASK}:{when}", working)
    working()
    assert not clean.asked(road.layout)
    assert old_tree.half_done(road.data) == []


@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
def test_a_full_disk_leaves_no_half_of_a_mark(road: Road, error: str) -> None:
    with (
        road.opened() as app,
        failing(f"{Point.CLEAN_ASK}:before={error}"),
        pytest.raises(OSError, match=error[0]),
    ):
        clean.ask(app)

    assert not clean.asked(road.layout)


def test_what_never_got_its_name_is_thrown_away(road: Road) -> None:
    killed(f"{Point.ARCHIVE_MANIFEST}:after", lambda: run(road))
    folder = next(path for path in (road.data / "archive").iterdir() if any(path.glob(".*")))
    assert [path.name[:6] for path in folder.glob("*")].count("books-") == 1  # a manifest without its archive

    builder = archiving.Builder(road.data, road.data / "archive", "books", folder.name)
    other = Planned(stage=Stage.EXTRACT, token="another")
    builder.discard(other)
    assert any(folder.glob(".*"))  # somebody else's is left alone

    run(road)
    assert not any(folder.glob(".*"))


def test_two_data_folders_share_an_archive_and_take_no_name_from_each_other(tmp_path: Path) -> None:
    both = [old_tree.make(tmp_path / name) for name in ("one", "two")]
    (tmp_path / "archive").mkdir()
    for road in both:
        road.settings["archive"] = str(tmp_path / "archive")
        road.write()
        with old_tree.came(3):
            road.drop("good.csv", f"id\n{road.root.name}\n")
            road.work()
        old_tree.date_back(road)

    children = [in_a_child(lambda road=road: run(road)) for road in both]  # type: ignore[misc]
    for child in children:
        os.waitpid(child, 0)

    [day] = archives.days(tmp_path / "archive")
    found = list(archives.of_days(tmp_path / "archive", "books", day, day))
    assert [one.archive for one in found] == ["books-extract.tar.gz", "books-extract.2.tar.gz"]
    assert len({member.id for one in found for member in one.members}) == 2
    assert all(verifying.verify(one) == [] for one in found)


def test_beside_a_worker_cleans_that_are_killed_at_random_lose_and_double_nothing(tmp_path: Path) -> None:
    road, files = old_tree.make(tmp_path / "project", archive_after="0s"), 24
    worker = in_a_child(lambda: _work(road, files))
    while not os.waitpid(worker, os.WNOHANG)[0]:
        at = random.choice(["", "*%0.003", "*%0.02"])
        os.waitpid(in_a_child(lambda at=at: _run_with(road, at)), 0)  # type: ignore[misc]
    for _ in range(2):
        assert run(road).errors == {}

    assert state(road)[0] == {}
    assert old_tree.half_done(road.data) == []
    loaded = [
        json.loads(line)["id"]
        for path in road.root.glob("lake/*.jsonl")
        for line in path.read_text().splitlines()
    ]
    wanted = [*range(files), *range(1000, 1000 + files), *[7] * (files // 4)]
    assert sorted(loaded) == sorted(wanted)
    there = [
        path
        for one in old_tree.archived(road.data / "archive").values()
        for path in one
        if "/resolved/" in path
    ]
    assert len(there) == len(set(there)) == files + files // 4
    assert road.broken_promises() == []


def _work(road: Road, files: int) -> None:
    """Drop and work files, and correct what is held back of some."""
    for number in range(files):
        held_back = "x\n" if number % 4 == 0 else ""
        road.drop(f"f{number}.csv", f"id\n{number}\n{number + 1000}\n{held_back}")
        if number % 3 == 0:
            road.work()
    road.work()
    for path in road.files("transform", "failed"):
        path.write_text(path.read_text().replace("x", "7"))
        road.move_back(path)
    road.work()


def _run_with(road: Road, at: str) -> None:
    with failing(at):
        run(road)
