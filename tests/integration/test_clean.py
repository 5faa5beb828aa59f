"""Clean takes what has come to rest, archives what cannot be made again, and leaves everything else as it was (P21)."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from etl import app as apps
from etl import jobs, process
from etl.config import reading
from etl.files import archives, names, spool, verdicts, verifying
from etl.ledger import opening, tables
from etl.model import Status
from etl.queues.enqueue import InlineAnnouncer
from etl.queues.queue import Identity
from etl.services import mending, recorder
from etl.stages import clean
from etl.stages.choosing import Chooser
from etl.stages.cleaning import Cleaner
from etl.stages.reporting import Report
from tests import old_tree
from tests import road as roads
from tests.old_tree import lying, named, run
from tests.road import Road

Both = tuple[Road, Road]


# --- ten days, two pipelines, every status ------------------------------------------------------------------


def fill(road: Road) -> None:
    """Ten days of files; on one of them two of one name, one with a row held back, one corrected, one failed."""
    for days in range(10, -1, -1):
        with old_tree.came(days):
            road.drop("daily.csv", f"id\n1\n2\n{days}\n")
            road.work()
            if days == 5:
                for name, text in (
                    ("daily", "id\n55\n"),
                    ("partial", "id\n1\nx\n"),
                    ("corrected", "id\n1\nx\n"),
                    ("failed", "id\nx\n"),
                    ("stuck", "id\n1\n"),
                ):
                    road.drop(f"{name}.csv", text)
                road.work()
                old_tree.correct(road, "corrected")
    stuck = named(road, "load", "resolved", "stuck")
    stuck.rename(road.folder("load", "in_process") / stuck.name)
    old_tree.date_back(road)
    os.utime(road.drop("waiting.csv", "id\n1\n"), (1, 1))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Both:
    root = tmp_path_factory.mktemp("filled") / "project"
    both = old_tree.make(root), old_tree.make(root, "prices")
    for road in both:
        fill(road)
    return both


@pytest.fixture
def both(filled: Both, tmp_path: Path) -> Both:
    first = roads.copy_of(filled[0], tmp_path / "project")
    return first, Road(first.root, filled[1].spec, "prices", fresh=False)


def day(days: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(time.time() - days * 86_400))


def test_ten_days_of_two_pipelines_are_archived_and_what_is_open_or_failed_stays(both: Both) -> None:
    road = both[0]
    before = lying(road.data)
    done = road.etl("clean", "--json")

    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    wanted = {f"{day(days)}/{one.pipeline}-extract.tar.gz" for one in both for days in range(2, 11)}
    wanted |= {f"{day(5)}/{one.pipeline}-transform.tar.gz" for one in both}
    here = {f"{one['day']}/{one['archive']}" for one in told["archives"]}
    # a delivery of a day ago is about to be old enough, and may be by now
    assert {one for one in here if not one.startswith(day(1))} == wanted
    archived = old_tree.archived(road.data / "archive")
    assert archived.keys() == here
    in_archives = {path: digest for one in archived.values() for path, digest in one.items()}
    after = lying(road.data)
    gone = before.keys() - after.keys()
    assert {path for path in gone if "/resolved/" in path} == {
        *(path for path in in_archives if "/resolved/" in path),
        *told["removed"],
    }
    # every source that went is archived as it was; what was not archived can be made of what was
    assert all(before[path] == digest for path, digest in in_archives.items() if path in before)
    assert {path.split("~")[0].partition("/")[2] for path in told["removed"]} == {
        *(f"transform/resolved/{name}" for name in ("daily", "corrected")),
        *(f"load/resolved/{name}" for name in ("daily", "corrected")),
    }
    left = {
        path.partition("/")[2].split("~")[0]
        for path in after
        if path.startswith("books/") and "/.notes/" not in path and "/.logs/" not in path
    }
    assert left - {"extract/resolved/daily", "transform/resolved/daily", "load/resolved/daily"} == {
        "extract/working/waiting.csv",
        "extract/resolved/stuck",
        "transform/resolved/stuck",
        "transform/resolved/partial",
        "transform/failed/partial",
        "transform/failed/failed",
        "load/in_process/stuck",
        "load/resolved/partial",
    }


def test_the_real_tar_and_the_manifest_agree_and_unpacked_it_is_as_before(both: Both) -> None:
    road = both[0]
    before = lying(road.data)
    run(road)
    found = sorted((road.data / "archive").glob("*/*.tar.gz"))
    assert len(found) >= 20
    for path in found:
        manifest = archives.read(path.with_name(f"{path.name}.manifest.json"))
        listed = subprocess.run(["tar", "-tzf", str(path)], capture_output=True, text=True, check=True)
        inside = [one.path for one in (*manifest.members, *manifest.notes)]
        assert listed.stdout.splitlines() == [*inside, "MANIFEST.json"]
        subprocess.run(["tar", "-xzf", str(path), "-C", str(road.data)], check=True)
        assert (road.data / "MANIFEST.json").read_bytes() == manifest.beside.read_bytes()
        for member in manifest.members:
            data = (road.data / member.path).read_bytes()
            assert (hashlib.sha256(data).hexdigest(), len(data)) == (member.sha256, member.size)
            assert archives.day_of(member.id) == path.parent.name == manifest.day
    after = lying(road.data)
    missing = {path for path in before if path not in after}
    # files that are made again from these are not in any archive; nothing else is missing
    assert missing == {
        path for one in found for path in archives.read(Path(f"{one}.manifest.json")).regenerable
    }
    changed = {path for path in before.keys() & after.keys() if before[path] != after[path]}
    assert changed == set()


def test_a_dry_run_lists_exactly_what_is_done_and_changes_nothing(both: Both) -> None:
    road = both[0]
    before = lying(road.data)
    with road.opened() as app:
        planned = clean.plan(app, ["books", "prices"], Report()).as_dict()
    shown = road.etl("clean", "--dry-run").stdout
    assert lying(road.data) == before
    assert not list(road.data.glob("archive/*"))

    assert run(road).as_dict() == planned

    gone = before.keys() - lying(road.data).keys()
    assert gone == {line.rpartition(": ")[2].strip() for line in shown.splitlines()} & before.keys()
    again = run(road).as_dict()
    assert (again["archives"], again["removed"], again["notes"]) == ([], [], [])


def test_a_table_of_it_fits_80_columns_and_another_pipeline_is_left(both: Both) -> None:
    told = both[0].etl("clean", "books")

    assert max(map(len, told.stdout.splitlines())) <= 80
    assert "books-extract.tar.gz" in told.stdout
    assert len(both[1].files("extract", "resolved")) > 10


def test_verdicts_and_the_ledger_are_as_before(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "LISTEN", 0.01)
    road = both[0]
    road.judge()
    with recorder.open(reading.read(road.root / "config")) as one:
        turns(one)
        before = deliveries(road)
        files_before = road.etl("files", "books").stdout

        run(road)

        assert road.judge() == []
        turns(one)
        assert deliveries(road) == before
        assert road.judge() == []
    assert ledger(road) == {
        (str(place), str(status), path.name)
        for each in both
        for place in each.places()
        for status in Status
        for path in each.layout.status(place, status).iterdir()
        if not names.never_work(path.name)
    }
    # of the partial one a part is archived; it is counted as before
    before_it, after_it = (
        next(line.split() for line in told.splitlines() if line.startswith("partial.csv"))
        for told in (files_before, road.etl("files", "books").stdout)
    )
    assert after_it == before_it


def turns(one: recorder.Recorder) -> None:
    for _ in range(8):
        one._next_compare = 0.0
        one.turn()


def _asked(road: Road, table: sa.Table) -> list[sa.Row[tuple[object, ...]]]:
    one = opening.for_reading(reading.read(road.root / "config"), road.layout.data_id())
    try:
        with one.reading() as asking:
            return list(asking.execute(sa.select(table)).all())
    finally:
        one.close()


def ledger(road: Road) -> set[tuple[str, str, str]]:
    return {
        ("/".join(filter(None, (row.pipeline, row.stage, row.location))), row.status, row.name)
        for row in _asked(road, tables.files)
    }


def deliveries(road: Road) -> dict[str, tuple[object, ...]]:
    return {
        row.file_id: (row.verdict, row.verdict_number, row.rows, row.units, row.held_back, row.loaded)
        for row in _asked(road, tables.deliveries)
        if row.verdict != "working"
    }


# --- one delivery -------------------------------------------------------------------------------------------


@pytest.fixture
def road(tmp_path: Path) -> Road:
    return old_tree.make(tmp_path / "project")


def delivered(road: Road, name: str = "good.csv", text: str = "id\n1\n2\n3\n", days: float = 3) -> None:
    with old_tree.came(days):
        road.drop(name, text)
        road.work()
    old_tree.date_back(road)


def held(road: Road) -> list[archives.Manifest]:
    root = road.data / "archive"
    return [one for day in archives.days(root) for one in archives.of_days(root, "books", day, day)]


def members(road: Road) -> list[str]:
    return sorted(member.path.split("~")[0] for one in held(road) for member in one.members)


def test_a_manifest_tells_who_a_file_is_and_what_came_of_it(road: Road) -> None:
    with old_tree.came(3):
        path = road.drop("good.csv", "id\n1\n2\n3\n")
        os.utime(path, (1_000_000_000.5, 1_000_000_000.5))
        road.work()
    old_tree.date_back(road)
    [file_id] = road.ids()
    note = (road.data / "books" / ".notes" / f"{file_id}.json").read_bytes()
    run(road)

    [manifest] = archives.of_id(road.data / "archive", "books", file_id)
    [member] = manifest.members
    assert (member.given, member.id, member.mtime) == ("good.csv", file_id, 1_000_000_000.5)
    assert (member.lineage.verdict, member.lineage.children) == ("resolved", 1)
    told = {one.path: one for one in manifest.notes}
    assert hashlib.sha256(note).hexdigest() == told[f"books/.notes/{file_id}.json"].sha256
    assert f"books/.notes/{file_id}.verdict.json" in told
    assert sorted(one.split("~")[0] for one in manifest.regenerable) == [
        "books/load/resolved/good",
        "books/load/resolved/good",
        "books/transform/resolved/good",
    ]
    contents = {path: stream.read() for path, stream in archives.contents(manifest, [member.path])}
    assert contents == {member.path: b"id\n1\n2\n3\n"}
    assert road.broken_promises() == []
    assert lying(road.data) == {}


def test_what_rests_not_long_enough_stays(road: Road) -> None:
    delivered(road, days=0.9)
    assert run(road).archives == []
    assert run(road, days=0.2).files == 1


def test_a_second_run_of_a_day_overwrites_nothing(road: Road) -> None:
    for text in ("id\n1\n", "id\n2\n", "id\n3\n"):
        delivered(road, text=text)
        run(road)

    assert [one.archive for one in held(road)] == [
        "books-extract.tar.gz",
        "books-extract.2.tar.gz",
        "books-extract.3.tar.gz",
    ]
    assert all(verifying.verify(one) == [] for one in held(road))


def test_with_keep_what_can_be_made_again_stays_so_long_and_then_goes_with_its_notes(tmp_path: Path) -> None:
    road = old_tree.make(tmp_path / "project", keep="7d")
    delivered(road)

    assert run(road).regenerable == 0
    assert road.files("extract", "resolved") == []
    assert len(road.files("load", "resolved")) == 2
    assert road.judge() == []

    report = run(road, days=5)
    assert report.regenerable == 3
    assert lying(road.data) == {}
    assert [(one.archive, len(one.members)) for one in held(road)] == [
        ("books-extract.tar.gz", 1),
        ("books-extract.2.tar.gz", 0),
    ]


def test_what_was_archived_before_is_read_once_and_not_for_each_delivery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    road = old_tree.make(tmp_path / "project", keep="7d")
    for number in range(8):
        delivered(road, f"{number}.csv")
    run(road)
    reads: list[Path] = []
    monkeypatch.setattr(
        archives, "read", lambda path, read=archives.read: (reads.append(path), read(path))[1]
    )

    assert run(road, days=5).regenerable == 24
    assert len(reads) < 8


def test_stages_that_are_named_are_archived_too(tmp_path: Path) -> None:
    road = old_tree.make(tmp_path / "project", archive=["transform", "load"])
    delivered(road)
    run(road)

    assert [one.archive for one in held(road)] == [
        "books-extract.tar.gz",
        "books-transform.tar.gz",
        "books-load.tar.gz",
    ]
    assert lying(road.data) == {}


def test_what_a_location_held_back_is_archived_and_its_copies_are_not(tmp_path: Path) -> None:
    road = old_tree.make(tmp_path / "project")
    url = f"sqlite:///{tmp_path}/shop.db"
    roads.query(url, "CREATE TABLE t (id INTEGER CHECK (id < 100))")
    shop = {"kind": "sql", "url": url, "table": "t", "mode": "append", "lineage": False}
    road.spec["load"]["locations"]["shop"] = shop
    road.write()
    delivered(road, text="id\n1\n500\n3\n")
    bad = road.one("load", "shop", "failed")
    bad.write_text(bad.read_text().replace("500", "50"))
    road.move_back(bad)
    copied = named(road, "load", "resolved", "good")
    shutil.copy(copied, road.folder("load", "lake", "working") / copied.name)
    road.work()
    assert len(road.files("load", "lake", "resolved")) == 1
    old_tree.date_back(road)
    # a location that is no longer configured is cleaned, too
    del road.spec["load"]["locations"]["lake"]
    road.write()
    run(road)

    assert members(road) == ["books/extract/resolved/good", "books/load/shop/resolved/good"]
    [member] = [one for manifest in held(road) for one in manifest.members if one.place.location]
    assert names.parse("books", member.lineage.parent) is not None
    assert member.lineage.parent.endswith("-1.jsonl")
    assert lying(road.data) == {}
    assert road.broken_promises() == []


def test_what_somebody_changed_or_dropped_there_is_archived(road: Road) -> None:
    delivered(road)
    path = named(road, "transform", "resolved", "good")
    path.write_text("id\n4\n")
    road.move_back(path)
    road.work()
    with old_tree.came(3):
        road.drop("direct.csv", "id\n9\n", stage=archives.Stage.TRANSFORM)
        road.work()
    old_tree.date_back(road)
    run(road)

    assert members(road) == [
        "books/extract/resolved/good",
        "books/transform/resolved/direct",
        "books/transform/resolved/good",
    ]
    assert lying(road.data) == {}


def test_unit_files_whose_origin_nobody_knows_are_archived(road: Road) -> None:
    delivered(road)
    for note in (road.data / "books" / "transform" / ".notes").glob("good*"):
        note.unlink()
    named(road, "transform", "resolved", "good").unlink()
    named(road, "extract", "resolved", "good").unlink()
    (road.data / "books" / "extract" / ".notes" / note.name).unlink()
    report = run(road)

    # walking from a source that is nowhere finds nothing: nothing goes, and it is said
    assert report.files == 0
    assert list(report.left.values()) == ["something of it is on its way, or missing: see `etl fsck`"]


def test_a_discarded_file_counts_as_gone_and_the_rest_leaves(road: Road) -> None:
    delivered(road, "partial.csv", "id\n1\nx\n")
    assert run(road).regenerable == 0
    name = named(road, "transform", "failed", "partial").name
    assert road.etl("discard", name, "--because", "not wanted").returncode == 0
    report = run(road)

    assert report.regenerable == 2
    assert lying(road.data) == {}
    assert len(list((road.data / "archive" / "discarded").rglob("*.csv"))) == 1
    assert road.broken_promises() == []


def test_what_fails_before_it_is_worked_and_is_discarded_leaves_its_notes_alone(road: Road) -> None:
    road.spec["extract"] = {"accept": ["*.txt"]}
    road.write()
    delivered(road)
    name = named(road, "extract", "failed", "good").name
    assert road.etl("discard", name, "--because", "not wanted").returncode == 0
    old_tree.date_back(road)
    assert run(road, days=2).notes > 0

    [manifest] = held(road)
    assert (len(manifest.members), len(manifest.notes)) == (0, 4)
    assert lying(road.data) == {}


def test_notes_of_a_file_that_is_lost_stay_so_that_fsck_tells_of_it(road: Road) -> None:
    delivered(road)
    for path in (road.data / "books").glob("*/resolved/*"):
        path.unlink()
    report = run(road)

    assert (report.archives, report.notes) == ([], 0)
    [why] = report.left.values()
    assert "in no folder and no archive" in why
    assert road.broken_promises()


def test_while_something_is_to_be_told_of_it_the_notes_stay(road: Road) -> None:
    road.spec["on_success"] = [{"notice": "all there"}]
    road.write()
    delivered(road)
    run(road)

    assert members(road) == ["books/extract/resolved/good"]
    assert len(road.files("load", "resolved")) == 2
    for path in spool.waiting(road.layout):
        spool.remove(path)
    [file_id] = road.ids()
    assert len(verdicts.read(road.layout, "books", file_id).records) == 1
    run(road)
    assert lying(road.data) == {}


def test_what_changes_between_the_choice_and_its_removal_stays(road: Road) -> None:
    delivered(road)
    delivered(road, "other.csv", "id\n7\n")
    with road.opened() as app:
        [cleaning] = Chooser(app, "books", time.time()).cleanings()
        report = Report()
        named(road, "extract", "resolved", "good").write_text("id\n8\n")
        moved = road.move_back(named(road, "load", "resolved", "other"))
        Cleaner(app, "books", report).clean(cleaning)

    assert moved.exists()
    assert named(road, "extract", "resolved", "good").read_text() == "id\n8\n"
    assert [path.name.split("~")[0] for path in road.files("transform", "resolved")] == ["good"]
    assert members(road) == ["books/extract/resolved/other"]
    assert report.left[f"books/extract/resolved/{named(road, 'extract', 'resolved', 'good').name}"] == (
        "it changed after it was chosen"
    )
    assert len(road.ids()) == 2
    road.work()
    old_tree.date_back(road)
    run(road)
    assert lying(road.data) == {}


def test_names_of_any_bytes_and_any_length_survive(road: Road) -> None:
    given = [
        "new\nline.csv",
        os.fsdecode(b"caf\xe9.csv"),
        "x" * 250 + ".csv",
        "-rf; $(id) {{ 7*7 }}.csv",
        "büro.csv",
    ]
    for name in given:
        delivered(road, name)
    odd = named(road, "extract", "resolved", "büro")
    # a person may call a file what the disk takes
    renamed = odd.with_name(os.fsdecode(b"b\xfcro\n") + odd.name[4:])
    odd.rename(renamed)
    before = {path: digest for path, digest in lying(road.data).items() if "/extract/resolved/" in path}
    report = run(road)

    assert report.errors == {}
    assert sorted(member.given for one in held(road) for member in one.members) == sorted(given)
    shutil.rmtree(road.data / "books")
    for path in (road.data / "archive").glob("*/*.tar.gz"):
        subprocess.run(["tar", "-xzf", str(path), "-C", str(road.data)], check=True, stderr=subprocess.PIPE)
    assert {path: digest for path, digest in lying(road.data).items() if "/resolved/" in path} == before


def test_packed_with_zstd_it_reads_the_same(road: Road) -> None:
    road.settings["archive_format"] = "zst"
    road.write()
    delivered(road)
    assert run(road).errors == {}

    [manifest] = held(road)
    assert manifest.archive == "books-extract.tar.zst"
    assert verifying.verify(manifest) == []
    listed = subprocess.run(["tar", "-tf", str(manifest.path)], capture_output=True, text=True, check=True)
    assert listed.stdout.splitlines()[-1] == "MANIFEST.json"
    data = bytearray(manifest.path.read_bytes())
    data[len(data) // 2] ^= 1
    manifest.path.write_bytes(data)
    assert verifying.verify(manifest) != []


def test_followed_requests_go_and_those_of_beats_stay(road: Road) -> None:
    road.ask()
    road.work()
    from etl.files import arrivals

    arrivals.request(road.layout, "books", {}, "every-0123abcd.json")
    road.work()
    old = time.time() - 3 * 86_400
    for path in road.files("extract", ".requests", "resolved"):
        os.utime(path, (old, old))
    assert run(road).requests == 1

    [path] = road.files("extract", ".requests", "resolved")
    assert path.name.startswith("every-")
    assert len(road.ids()) == 1
    assert road.broken_promises() == []


def test_an_older_archive_goes_when_it_expires_and_what_was_discarded_never(tmp_path: Path) -> None:
    road = old_tree.make(tmp_path / "project", expire_archives_after="30d")
    delivered(road)
    kept = road.data / "archive" / "discarded" / "2020-01-01" / "x"
    kept.mkdir(parents=True)
    run(road)

    assert run(road, days=29).expired == []
    report = run(road, days=31)

    assert [one.partition("/")[2] for one in report.expired] == ["books-extract.tar.gz"]
    assert [path.name for path in (road.data / "archive").iterdir()] == ["discarded"]


def test_the_same_bytes_are_a_duplicate_of_what_was_archived(road: Road) -> None:
    road.spec["extract"] = {"duplicates": "skip"}
    road.write()
    delivered(road)
    run(road)
    assert lying(road.data).keys() == {path for path in lying(road.data) if "/.newest/" in path}

    road.drop("good.csv", "id\n1\n2\n3\n")
    road.work()
    assert "the same bytes as good.csv" in road.note(road.one("extract", "resolved")).said
    assert road.files("transform", "resolved") == []


# --- asked for ----------------------------------------------------------------------------------------------


def test_asked_twice_it_is_one_and_its_lost_job_is_announced_again(road: Road) -> None:
    delivered(road)
    queue, known = InlineAnnouncer(), set[Identity]()
    app = apps.App.open(reading.read(road.root / "config"), queue)
    clean.ask(app)
    clean.ask(app)
    token = clean.asked(road.layout)
    while queue.take():  # flushed
        pass
    mender = mending.Mender(app, lambda: known, drops=False)

    assert mender.scan()
    work = queue.take()
    assert work is not None
    assert (work.function, work.arguments, queue.take()) == ("etl.jobs.clean", {}, None)
    known.add(work.identity)
    assert mender.scan()
    assert queue.take() is None

    with apps.serving(app):
        assert jobs.clean() == 1
    assert token
    assert clean.asked(road.layout) == ""
    known.clear()
    mender.scan()
    assert queue.take() is None


def test_a_worker_of_the_queue_cleans(road: Road) -> None:
    delivered(road)
    with road.opened() as app:
        clean.ask(app)

    assert road.etl("worker", "--burst").returncode == 0

    assert len(held(road)) == 1
    assert clean.asked(road.layout) == ""


def test_asked_to_stop_it_ends_between_archives_and_stays_asked_for(
    road: Road, monkeypatch: pytest.MonkeyPatch
) -> None:
    for days in (3, 4, 5):
        delivered(road, days=days)
    with road.opened() as app:
        clean.ask(app)
        stops = iter([False, True])
        with monkeypatch.context() as patched:
            patched.setattr(process, "is_stopping", lambda: next(stops))
            assert clean.job(app) == 1
        assert clean.asked(road.layout)
        assert clean.job(app) == 2
    assert clean.asked(road.layout) == ""
    assert lying(road.data) == {}


def test_an_error_of_a_job_is_told_to_people_once(road: Road, tmp_path: Path) -> None:
    road.settings["archive"] = str(tmp_path / "disk")
    road.write()
    delivered(road)
    with road.opened() as app:
        clean.ask(app)
        clean.job(app)
        clean.ask(app)
        clean.job(app)

    [path] = spool.waiting(road.layout)
    assert json.loads(path.read_text())["payload"]["subject"] == "books: not cleaned"
    assert clean.asked(road.layout) == ""
