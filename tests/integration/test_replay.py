"""Replay: the files of a day come back out of the archive or out of `resolved/`, each once, and never over anything.

SQLite and PostgreSQL, append and upsert; the handler mended in between, archives damaged, killed at each point.
"""

from __future__ import annotations

import io
import json
import signal
import subprocess
import tarfile
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from etl import points
from etl.cli import edge
from etl.files import acts, archives, cleanings, moves, notes, tarring
from etl.model import Resolved
from etl.points import Point
from etl.stages import clean, replaying
from etl.stages.reporting import Report
from tests import archived
from tests import road as roads
from tests.road import Road

BOOKS = "id,title\n" + "".join(f"{number},Book {number}\n" for number in range(1, 26))
MARKED = 'def to_unit(row):\n    return {{"id": int(row["id"]), "title": row["title"], "mark": {mark!r}}}\n'
COLUMNS = "id, mark, _etl_generation, _etl_line"


def make(tmp_path: Path, url: str, **location: Any) -> Road:
    warehouse = {"kind": "sql", "url": url, "table": "books", "create": True} | location
    schema = {"properties": {"id": {"type": "integer"}}}
    return Road(
        tmp_path / "project",
        {
            "transform": {
                "read": "csv",
                "handler": "handler:to_unit",
                "schema": schema,
                "units_per_file": 10,
            },
            "load": {"locations": {"warehouse": warehouse}},
        },
        handlers={"handler": MARKED.format(mark="wrong")},
    )


def replay(road: Road, *arguments: str, code: int = 0) -> dict[str, Any]:
    """Call the real command, and give what it tells."""
    done = road.etl("replay", *arguments, "--json")
    assert done.returncode == code, done.stderr + done.stdout
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def of_generation(mark: str, generation: int, numbers: range = range(1, 26)) -> list[tuple[Any, ...]]:
    return [(number, mark, generation, number - numbers.start + 2) for number in numbers]


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_day_out_of_the_archive_adds_nothing_and_says_so_and_a_mended_handler_replaces_its_rows_alone(
    tmp_path: Path, database_url: str, mode: str
) -> None:
    road = make(tmp_path, database_url, mode=mode, **({"key": ["id"]} if mode == "upsert" else {}))
    day = archived.day_before(5)
    archived.drop(road, "books.csv", BOOKS, 5)
    road.work()
    # a newer day: some rows of its own, and where they are told apart by key, some of the same books
    road.handle(MARKED.format(mark="newer"))
    archived.drop(road, "books.csv", "id,title\n25,Newer\n100,More\n", 2)
    road.work()
    road.judge()
    archived.cleaned(road)
    assert road.files("extract", "resolved") == road.files("transform", "resolved") == []
    before = roads.rows(database_url, "books", COLUMNS)
    assert len(before) == (27 if mode == "append" else 26)

    road.handle(MARKED.format(mark="wrong"))
    told = replay(road, day, "books")
    assert [one["moved"] for one in told["files"]] == [True]
    outcomes = road.work()
    assert outcomes == [
        Resolved(
            count=0, said="0 rows, all present: transformed before; 3 of 3 unit files loaded at warehouse"
        )
    ]
    assert roads.rows(database_url, "books", COLUMNS) == before
    assert road.judge() == []

    road.handle(MARKED.format(mark="right"))
    replay(road, day, "books")
    road.work()
    newer = [(25, "newer", 1, 2), (100, "newer", 1, 3)]
    old = of_generation("right", 2)
    expected = [*old, *newer] if mode == "append" else [*old[:-1], *newer]
    assert roads.rows(database_url, "books", COLUMNS) == sorted(expected)
    assert road.broken_promises() == []


# --- one project, tried in many ways ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def beginning(tmp_path_factory: pytest.TempPathFactory) -> Road:
    """Three files of one day in the archive, of which two have one name, and one of that day still in the folders."""
    road = make(tmp_path_factory.mktemp("beginning"), "sqlite:///warehouse.db")
    for given in ("books.csv", "books.csv", "more.csv"):
        archived.drop(road, given, BOOKS if given == "books.csv" else "id,title\n100,More\n", 5)
    road.work()
    archived.cleaned(road)
    archived.drop(road, "late.csv", "id,title\n200,Late\n", 5)
    road.work()
    return road


@pytest.fixture
def road(beginning: Road, tmp_path: Path) -> Road:
    return roads.copy_of(beginning, tmp_path / "project")


@pytest.fixture
def day() -> str:
    return archived.day_before(5)


def url(road: Road) -> str:
    found: str = road.spec["load"]["locations"]["warehouse"]["url"]
    return found.replace("sqlite:///warehouse", f"sqlite:///{road.root}/warehouse")


def here(road: Road, *arguments: str, code: int = 0) -> dict[str, Any]:
    """Call the command in this process, and give what it tells."""
    told = io.StringIO()
    with redirect_stdout(told):
        ended = edge.run(["--config", str(road.root / "config"), "replay", *arguments, "--json"])
    assert ended == code, told.getvalue()
    facts: dict[str, Any] = json.loads(told.getvalue())
    return facts


def names_of(told: dict[str, Any]) -> list[str]:
    return [one["file"] for one in told["files"] if one["moved"]]


def everything(road: Road) -> dict[str, bytes]:
    """Give every file of the data folder with its bytes, but for locks."""
    return {
        str(path.relative_to(road.data)): path.read_bytes()
        for path in sorted(road.data.rglob("*"))
        if path.is_file() and not path.name.endswith("lock")
    }


def test_a_dry_run_lists_what_a_replay_then_does_oldest_first_and_moves_nothing(road: Road, day: str) -> None:
    before = everything(road)
    shown = road.etl("replay", day, "books", "--dry-run")
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert shown.stdout.count(f"archive/{day}/books-extract.tar.gz") == 3
    assert "would move 4 files to transform/working" in shown.stdout
    planned = here(road, day, "books", "--dry-run")
    assert everything(road) == before

    done = here(road, day, "books")
    assert [one["name"] for one in done["files"]] == [one["name"] for one in planned["files"]]
    assert names_of(done) == names_of(planned) == ["books.csv", "books.csv", "more.csv", "late.csv"]
    assert [path.name for path in road.files("transform", "working")] == sorted(
        one["name"] for one in done["files"]
    )
    assert names_of(here(road, day, "books")) == []  # they wait, and are left alone
    road.work()
    assert roads.count(url(road), "books") == 52
    assert road.broken_promises() == []


def test_only_what_is_named_comes_back_and_a_name_that_nothing_has_is_an_error(road: Road, day: str) -> None:
    assert names_of(here(road, day, "books", "--only", "more.csv")) == ["more.csv"]
    assert names_of(here(road, day, "books", "--only", "b*.csv", "--only", "late.csv", "--dry-run")) == [
        "books.csv",
        "books.csv",
        "late.csv",
    ]
    assert road.etl("replay", f"{day}..{day}", "books", "--only", "nobody.csv").returncode == 1
    assert road.etl("replay", "yesterday", "books").stdout == "nothing to replay\n"
    wrong = road.etl("replay", "2026-11-07..2026-11-01", "books")
    assert wrong.returncode == 2
    assert "before the first" in wrong.stderr


def test_again_loads_all_anew_once_out_of_the_archive_and_out_of_the_folders(road: Road, day: str) -> None:
    before = roads.rows(url(road), "books", "id, mark")
    here(road, day, "books", "--again")
    road.work()
    assert roads.rows(url(road), "books", "id, mark") == before
    assert {one for (one,) in roads.rows(url(road), "books", "_etl_generation")} == {2}
    # the wish is used up: the same once more, without it, adds nothing
    here(road, day, "books")
    assert all(one == Resolved(count=0, said=getattr(one, "said", "")) for one in road.work())
    assert {one for (one,) in roads.rows(url(road), "books", "_etl_generation")} == {2}
    assert road.broken_promises() == []


def test_what_is_missing_where_is_said_with_the_command_that_loads_it(road: Road, day: str) -> None:
    unit = road.one("load", "resolved")
    note = replace(road.note(unit), locations={"warehouse": {"refused": "no"}})
    notes.write(road.layout, road.place("load"), unit.name, note, Point.NOTE_COMMIT)
    road.move_back(road.one("transform", "resolved"))
    said = (
        "0 rows, missing unit files: 1 at warehouse; transformed before; 0 of 1 unit files loaded at warehouse; "
        f"etl replay {day} books --again loads all of it anew"
    )
    assert road.work() == [Resolved(count=0, said=said)]

    here(road, day, "books", "--again", "--only", "late.csv")
    road.work()
    assert (200, "wrong", 2, 2) in roads.rows(url(road), "books", COLUMNS)


POINTS = [Point.REPLAY_STAGE, Point.REPLAY_NOTE, Point.NOTE_AGAIN, Point.REPLAY]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_any_point_and_done_again_a_replay_comes_to_the_same_end(
    road: Road, day: str, point: Point, when: str
) -> None:
    times = "#2" if when == "after" else ""
    killed = road.etl("replay", day, "books", "--again", ETL_CRASH_AT=f"{point}:{when}{times}")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    # what it prepared is the only trace; notes that are back already are of what is in the archive
    assert {one.check for one in road.findings()} <= {"staging"}
    here(road, day, "books", "--again")
    road.work()

    assert len(roads.rows(url(road), "books")) == 52
    assert {one for (one,) in roads.rows(url(road), "books", "_etl_generation")} == {2}
    assert len(road.files("transform", "resolved")) == 4
    assert road.broken_promises() == []


@pytest.mark.parametrize("times", [5, 6, 7])
def test_killed_while_notes_come_back_nobody_gives_the_verdict_a_second_time(
    road: Road, day: str, times: int
) -> None:
    road.judge()
    killed = road.etl("replay", day, "books", ETL_CRASH_AT=f"{Point.REPLAY_NOTE}:after#{times}")
    assert killed.returncode == -signal.SIGKILL, killed.stderr

    assert road.judge() == []


@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
@pytest.mark.parametrize("point", POINTS[:3])  # the last one writes nothing
def test_a_disk_that_refuses_is_told_and_the_same_command_later_does_the_rest(
    road: Road, day: str, point: Point, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(points, "crash_at", f"{point}:before={error}")
    monkeypatch.setattr(points, "reached", {})
    told = here(road, day, "books", "--again", code=1)
    monkeypatch.setattr(points, "crash_at", "")
    assert told["wrong"] or any(one["wrong"] for one in told["files"])
    assert list(road.folder("transform", ".staging").iterdir()) == []

    here(road, day, "books", "--again")
    road.work()
    assert {one for (one,) in roads.rows(url(road), "books", "_etl_generation")} == {2}
    assert len(roads.rows(url(road), "books")) == 52
    assert road.broken_promises() == []


# --- what is wrong, and what is left alone ------------------------------------------------------------------


def rebuilt(path: Path, change: dict[str, bytes]) -> None:
    """Write a tar anew with other bytes in some of its files; its manifest stays as it is."""
    with tarfile.open(path) as tar:
        parts = {one.name: tar.extractfile(one).read() for one in tar.getmembers()}  # type: ignore[union-attr]
    path.unlink()
    with path.open("xb") as handle, tarring.writing(handle, "gz") as tar:
        for name, data in (parts | change).items():
            tarring.add_bytes(tar, name, data)


def test_a_damaged_file_in_an_archive_is_told_nothing_of_it_is_put_back_and_the_others_go_on(
    road: Road, day: str
) -> None:
    (manifest,) = archived.manifests(road)
    member = next(one for one in manifest.members if one.given == "more.csv")
    rebuilt(manifest.path, {member.path: b"id,title\n666,Forged\n"})

    told = here(road, day, "books", code=1)
    assert names_of(told) == ["books.csv", "books.csv", "late.csv"]
    (wrong,) = [one for one in told["files"] if one["wrong"]]
    assert "is not what was archived" in wrong["why"]
    assert [path for path in road.tree() if member.id in path] == []
    assert list(road.folder("transform", ".staging").iterdir()) == []
    assert any("is not what was archived" in one for one in road.broken_promises())


def test_an_archive_cut_short_gives_what_is_whole_in_it_and_fsck_tells_of_it(road: Road, day: str) -> None:
    path = archived.tar(road, day)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    told = here(road, day, "books", code=1)
    assert "late.csv" in names_of(told)
    assert all("is damaged" in one["why"] for one in told["files"] if one["wrong"])
    moved = {one["id"] for one in told["files"] if one["moved"]}
    assert set(road.ids()) == moved  # notes of nothing else were put back
    assert "archive-damaged" in {one.check for one in road.findings()}


def test_a_day_whose_manifest_is_damaged_or_gone_is_not_replayed_out_of_the_archive(
    road: Road, day: str
) -> None:
    path = archived.tar(road, day)
    beside = path.with_name(path.name + archives.MANIFEST)
    whole = beside.read_bytes()
    for damage, check in ((whole[:-20], "manifest-damaged"), (None, "no-manifest")):
        beside.unlink() if damage is None else beside.write_bytes(damage)
        told = here(road, day, "books", "--dry-run", code=1)
        assert names_of(told) == ["late.csv"]
        assert str(path.parent) in told["wrong"][0]
        assert check in {one.check for one in road.findings()}
    # the advice works
    beside.write_bytes(subprocess.run(["tar", "-xOf", path, archives.INSIDE], capture_output=True).stdout)
    assert beside.read_bytes() == whole
    path.rename(path.with_suffix(".away"))
    assert {one.check for one in road.findings()} == {"archive-gone"}


def test_what_failed_or_was_discarded_or_is_a_duplicate_is_left_alone_and_said(
    tmp_path: Path, day: str
) -> None:
    road = make(tmp_path, f"sqlite:///{tmp_path}/warehouse.db")
    road.spec["extract"] = {"duplicates": "skip"}
    road.write()
    for number in (1, 2):
        archived.drop(road, "books.csv", BOOKS, 5)
        road.work()
        assert len(road.files("extract", "resolved")) == number
    archived.drop(road, "gone.csv", "id\n1,2,3\n", 5)
    road.work()
    discarded = road.one("transform", "failed")
    with road.opened() as app:
        moves.discard(app.layout, road.place("transform"), discarded.name, "not wanted")
    archived.cleaned(road)
    archived.drop(road, "broken.csv", "id\n1,2,3\n", 5)
    road.work()

    told = here(road, day, "books", "--again")
    why = {one["file"]: one["why"] for one in told["files"] if not one["moved"]}
    assert names_of(told) == ["books.csv"]
    assert "failed" in why["broken.csv"]
    assert why["gone.csv"] == "was discarded: not wanted"
    assert "duplicate" in why["books.csv"]
    road.work()
    assert len(roads.rows(url(road), "books")) == 25


# --- lives --------------------------------------------------------------------------------------------------


def archived_files(road: Road) -> list[str]:
    return sorted(one.path for manifest in archived.manifests(road) for one in manifest.members)


def test_a_file_corrected_in_transform_comes_back_corrected_and_nothing_is_archived_twice(
    road: Road, day: str
) -> None:
    source = road.one("transform", "resolved")
    source.write_text("id,title\n201,Corrected\n")
    road.move_back(source)
    road.work()
    archived.cleaned(road)
    before = archived_files(road)
    assert len(before) == 5  # four of extract, and the corrected one of transform
    here(road, day, "books", "--again")
    road.work()
    assert (201, "wrong", 3, 2) in roads.rows(url(road), "books", COLUMNS)
    assert 200 not in {number for (number,) in roads.rows(url(road), "books", "id")}

    archived.cleaned(road)
    assert archived_files(road) == before
    assert road.files("transform", "resolved") == []
    # the newest notes are those that come back: the third generation is known to be loaded
    here(road, day, "books")
    assert {one.said.partition(":")[0] for one in road.work()} == {"0 rows, all present"}  # type: ignore[union-attr]
    assert road.broken_promises() == []


def test_extract_that_passes_on_other_bytes_later_is_the_newer_life(road: Road, day: str) -> None:
    source = road.one("transform", "resolved")
    source.write_text("id,title\n201,Corrected\n")
    road.move_back(source)
    road.work()
    extracted = road.one("extract", "resolved")
    archived.cleaned(road)
    extracted.with_name("x").write_text("id,title\n202,Delivered anew\n")
    here(road, day, "books", "--only", "late.csv")  # its notes are there again
    road.work()
    extracted.with_name("x").rename(road.folder("extract", "working") / extracted.name)
    road.work()
    archived.cleaned(road)
    here(road, day, "books", "--only", "late.csv", "--again")
    road.work()
    assert {number for (number,) in roads.rows(url(road), "books", "id")} >= {202}
    assert not {number for (number,) in roads.rows(url(road), "books", "id")} & {200, 201}


def test_a_note_that_is_there_is_newer_and_stays(road: Road, day: str) -> None:
    (manifest,) = archived.manifests(road)
    note = next(one for one in manifest.notes if one.path.endswith(f"{one.id}.json"))
    newer = road.data / note.path
    facts = {"id": note.id, "pipeline": "books", "given": "newer.csv", "size": 1, "arrived": 1}
    newer.write_text(json.dumps(facts))
    told = newer.read_bytes()
    here(road, day, "books")
    assert newer.read_bytes() == told


def test_rows_that_were_held_back_and_corrected_are_held_back_again_by_a_new_generation(
    tmp_path: Path, day: str
) -> None:
    road = make(tmp_path, f"sqlite:///{tmp_path}/warehouse.db")
    archived.drop(road, "books.csv", "id,title\n1,One\ntwo,Two\n3,Three\n", 5)
    road.work()
    bad = road.one("transform", "failed")
    bad.write_text(bad.read_text().replace("two", "2"))
    road.move_back(bad)
    road.work()
    archived.cleaned(road)
    here(road, day, "books")
    road.work()
    assert roads.rows(url(road), "books", "id") == [(1,), (2,), (3,)]

    road.handle(MARKED.format(mark="right"))
    here(road, day, "books")
    road.work()
    assert roads.rows(url(road), "books", "id, mark") == [(1, "right"), (3, "right")]
    again = road.one("transform", "failed")
    assert again.name.endswith(".2-bad.csv")
    assert road.broken_promises() == []


def test_archives_that_lie_elsewhere_are_replayed_and_seen_from_there(tmp_path: Path, day: str) -> None:
    (tmp_path / "disk").mkdir()
    road = make(tmp_path, f"sqlite:///{tmp_path}/warehouse.db")
    road.settings["archive"] = str(tmp_path / "disk")
    road.write()
    archived.drop(road, "books.csv", BOOKS, 5)
    road.work()
    archived.cleaned(road)
    told = here(road, day, "books")
    assert told["files"][0]["from"] == str(tmp_path / "disk" / day / "books-extract.tar.gz")
    road.work()
    assert road.broken_promises() == []
    (tmp_path / "disk").rename(tmp_path / "unplugged")
    assert "is not there" in road.etl("replay", day, "books").stderr
    assert "archive-away" in {one.check for one in road.findings()}


def test_fsck_tells_of_a_clean_that_was_cut_short_and_of_damaged_archives_of_days_long_gone(
    road: Road, day: str
) -> None:
    cut_short = cleanings.folder(road.layout) / f"{day}-books.json"
    cut_short.write_text("{}")
    assert {one.check for one in road.findings()} == {"clean-unfinished"}
    cut_short.unlink()
    archived.cleaned(road)
    assert road.ids() == []
    archived.tar(road, day).write_bytes(b"?")
    assert {one.check for one in road.findings()} == {"archive-damaged"}
    beside = archived.tar(road, day).with_name(f"books-extract.tar.gz{archives.MANIFEST}")
    beside.write_bytes(b"?")
    assert {one.check for one in road.findings()} == {"archive-damaged"}


def test_who_replayed_is_recorded_and_what_was_not_moved_after_all_is_not(road: Road, day: str) -> None:
    (manifest,) = archived.manifests(road)
    member = next(one for one in manifest.members if one.given == "more.csv")
    rebuilt(manifest.path, {member.path: b"id,title\n666,Forged\n"})
    told = here(road, day, "books", "--again", code=1)
    (act,) = acts.read(road.layout)
    assert (act.what, act.who, act.because) == ("replay", acts.who(), replaying.AGAIN)
    assert set(act.files) == {f"books/transform/{one['name']}" for one in told["files"] if one["moved"]}


def test_while_a_clean_is_at_work_a_replay_waits_and_the_other_way_round(road: Road) -> None:
    lock = clean.alone(road.layout)
    assert lock is not None
    waited: list[bool] = []

    def ends() -> None:
        waited.append(True)
        lock.release()

    with road.opened() as app, replaying.alone(app, ends):
        assert waited == [True]
        assert clean.run(app, ["books"], Report()).busy
