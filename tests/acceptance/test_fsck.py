"""`etl fsck` sees every kind of damage, alone and with the right words, and mends what can be mended safely.

Each damage is planted into a copy of one real tree: three locations, of which one refuses everything; rows held
back, units held back, a failed file and a pull.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from etl.files import moves, names
from etl.files.layout import REQUESTS
from etl.model import Status
from tests import road as roads
from tests.acceptance.test_rights_and_outages import ordinary
from tests.road import Road

TABLE = """CREATE TABLE books (id INTEGER, price DOUBLE PRECISION CHECK (price >= 0),
    _etl_file TEXT, _etl_generation INTEGER, _etl_line INTEGER)"""
ROWS = 30
SPEC = {
    "extract": {"sources": ["in"]},
    "transform": {
        "read": "csv",
        "schema": {
            "required": ["id", "price"],
            "properties": {"id": {"type": "integer"}, "price": {"type": "number"}},
        },
        "units_per_file": 10,
    },
    "load": {
        "locations": {
            "warehouse": {
                "kind": "sql",
                "url": "sqlite:///warehouse.db",
                "table": "books",
                "lineage": True,
            },
            "lake": {"kind": "files", "path": "lake"},
            "shut": {"kind": "sql", "url": "sqlite:///shut.db", "table": "nobody_made_this"},
        }
    },
}


@pytest.fixture(scope="module")
def beginning(tmp_path_factory: pytest.TempPathFactory) -> Road:
    root = tmp_path_factory.mktemp("fsck") / "project"
    (root / "in").mkdir(parents=True)
    prices = {5: "cheap", 12: "-1"}
    lines = "".join(f"{line},{prices.get(line, line)}\n" for line in range(2, ROWS + 2))
    (root / "in" / "books.csv").write_text("id,price\n" + lines)
    road = Road(root, json.loads(json.dumps(SPEC)))
    roads.query(database(road), TABLE)
    road.ask()
    road.work()
    road.drop("broken.csv", "id\n1\n")
    road.work()
    assert [
        len(road.files("load", *at)) for at in (["resolved"], ["warehouse", "failed"], ["shut", "failed"])
    ] == [
        3,
        1,
        3,
    ]
    return road


@pytest.fixture
def road(beginning: Road, tmp_path: Path) -> Road:
    return roads.copy_of(beginning, tmp_path / "project")


def database(road: Road) -> str:
    return f"sqlite:///{road.root}/warehouse.db"


def loaded(road: Road) -> int:
    return roads.count(database(road), "books")


@dataclass(frozen=True)
class Damage:
    """What is done to a tree, and what must be found."""

    do: Callable[[Road], str]
    check: str
    place: str
    promise: str
    mends: bool = False
    #: words that must be in what is said.
    says: str = ""


def source(road: Road, stage: str = "extract") -> Path:
    return next(path for path in road.files(stage, "resolved") if path.name.startswith("books~"))


def unit(road: Road, ordinal: int = 1) -> Path:
    return next(path for path in road.files("load", "resolved") if path.name.endswith(f"-{ordinal}.jsonl"))


def file_id(path: Path) -> str:
    file = names.parse("books", path.name)
    assert file is not None
    return file.id


def gone(path: Path) -> str:
    path.unlink()
    return path.name


def gone_with_reason(path: Path) -> str:
    path.with_name(f"{path.name}.reason.json").unlink()
    return gone(path)


def folder_gone(road: Road) -> str:
    road.folder("load", "lake", "failed").rmdir()
    return "books/load/lake/failed"


def twin_of_the_same_bytes(road: Road) -> str:
    path = unit(road)
    shutil.copy(path, road.folder("load", "in_process").parent / "failed" / path.name)
    reason = road.files("load", "shut", "failed")[0]
    shutil.copy(
        reason.with_name(f"{reason.name}.reason.json"),
        road.folder("load", "failed", f"{path.name}.reason.json"),
    )
    return path.name


def twin_of_other_bytes(road: Road) -> str:
    name = twin_of_the_same_bytes(road)
    road.folder("load", "failed", name).write_text("something else")
    return name


def orphan(road: Road) -> str:
    path = source(road, "transform")
    os.rename(path, road.folder("transform", "in_process", path.name))
    return path.name


def link_in_process(road: Road) -> str:
    road.folder("extract", "in_process", "a-link").symlink_to("/nowhere")
    return "a-link"


def outbox(road: Road) -> str:
    road.drop("more.csv", "id,price\n100,1\n")
    assert road.crash("release-child:before").returncode == -signal.SIGKILL
    return only(road.folder("extract", ".outbox")).name


def only(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


def damaged_outbox(road: Road) -> str:
    folder = road.folder("load", ".outbox", "x.1")
    folder.mkdir()
    (folder / "commit.json").write_text("{")
    return folder.name


def staging(road: Road) -> str:
    folder = road.folder("transform", ".staging", "x.csv.1")
    folder.mkdir()
    (folder / ".lock").touch()
    return folder.name


def finished_outbox(road: Road) -> str:
    folder = road.folder("transform", ".staging", ".x.csv.1.finished")
    folder.mkdir()
    return folder.name


def no_reason(road: Road) -> str:
    path = next(path for path in road.files("transform", "failed") if path.name.startswith("broken~"))
    gone(path.with_name(f"{path.name}.reason.json"))
    return path.name


def damaged_reason(road: Road) -> str:
    path = next(path for path in road.files("transform", "failed") if path.name.startswith("broken~"))
    path.with_name(f"{path.name}.reason.json").write_text('{"summ')
    return path.name


def stray_reason(road: Road) -> str:
    path = road.folder("load", "failed", "x.jsonl.reason.json")
    path.write_text("{}")
    return path.name


def damaged_note(road: Road) -> str:
    path = road.files("transform", "failed")[0]
    road.folder("transform", ".notes", f"{path.name}.json").write_text("not JSON")
    return path.name


def note_of_the_wrong_shape(road: Road) -> str:
    path = road.files("transform", "failed")[0]
    road.folder("transform", ".notes", f"{path.name}.json").write_text('{"children": "many"}')
    return path.name


def source_note_gone(road: Road) -> str:
    found = file_id(source(road))
    gone(road.layout.source_note("books", found))
    return found


def source_note_damaged(road: Road) -> str:
    found = file_id(source(road))
    road.layout.source_note("books", found).write_text("[")
    return found


def lost_source_of_all(road: Road) -> str:
    waiting = road.ask()
    return gone(road.layout.file(waiting.place, Status.WORKING, waiting.name)) and "request.json"


def lost_request(road: Road) -> str:
    return gone(road.one("extract", REQUESTS, "resolved"))


def held_back_rows_gone(road: Road) -> str:
    path = next(path for path in road.files("transform", "failed") if "-bad" in path.name)
    return gone_with_reason(path)


def never_transformed(road: Road) -> str:
    path = next(path for path in road.files("transform", "failed") if path.name.startswith("broken~"))
    path.with_name(f"{path.name}.reason.json").unlink()
    os.rename(path, road.folder("transform", "resolved", path.name))
    return path.name


def discard_not_noted(road: Road) -> str:
    path = next(path for path in road.files("transform", "failed") if path.name.startswith("broken~"))
    moves.discard(road.layout, road.place("transform"), path.name, "not wanted")
    road.layout.discarded("books", file_id(path)).unlink()
    return path.name


def bytes_changed(road: Road) -> str:
    path = source(road)
    path.write_text("id,price\n1,1\n")
    return path.name


def sql(road: Road, statement: str) -> None:
    roads.query(database(road), statement)


def key_gone(road: Road) -> str:
    found = unit(road, 3)
    lines = [json.loads(line)[0] for line in found.read_text().splitlines()[1:] if line.startswith("[")]
    assert len(lines) == 9
    sql(road, "DELETE FROM _etl_keys WHERE part = '3'")
    sql(road, f"DELETE FROM books WHERE _etl_line IN ({', '.join(map(str, lines))})")
    return found.name


def resolved_by_hand(road: Road) -> str:
    path = road.files("load", "shut", "failed")[0]
    path.with_name(f"{path.name}.reason.json").unlink()
    os.rename(path, road.folder("load", "shut", "resolved", path.name))
    return path.name


def record_gone(road: Road) -> str:
    path = unit(road)
    gone(road.root / "lake" / ".etl" / file_id(path) / "1-1.json")
    return path.name


def count_differs(road: Road) -> str:
    sql(road, "UPDATE _etl_keys SET count = 11 WHERE part = '1'")
    return unit(road).name


def rejected_without_a_file(road: Road) -> str:
    sql(road, """UPDATE _etl_keys SET rejected = '[{"cause": "no", "unit": 1}]' WHERE part = '2'""")
    return unit(road, 2).name.replace("-2.jsonl", "-2-bad.jsonl")


def doubled_rows(road: Road) -> str:
    sql(road, "INSERT INTO books SELECT * FROM books WHERE _etl_line = 3")
    return f"{file_id(unit(road))}.1"


def rows_of_an_older_life(road: Road) -> str:
    sql(road, f"INSERT INTO books VALUES (1, 1, '{file_id(unit(road))}', 0, 1)")
    return f"{file_id(unit(road))}.0"


def database_away(road: Road) -> str:
    (road.root / "warehouse.db").unlink()
    (road.root / "warehouse.db").mkdir()
    return "warehouse"


DAMAGES = {
    "a folder is missing": Damage(folder_gone, "folder-missing", "books/load/lake", "P1", mends=True),
    "a file is in two folders": Damage(twin_of_the_same_bytes, "twins", "books/load", "P4", mends=True),
    "two files of one name": Damage(twin_of_other_bytes, "twins", "books/load", "P4"),
    "a worker died": Damage(orphan, "orphan", "books/transform", "P6", mends=True),
    "a link lies in in_process": Damage(link_in_process, "orphan", "books/extract", "P6", mends=True),
    "an outbox is not finished": Damage(outbox, "outbox", "books/extract", "P11"),
    "an outbox is damaged": Damage(damaged_outbox, "outbox-damaged", "books/load", "P11"),
    "staging was left behind": Damage(staging, "staging", "books/transform", "P6", mends=True),
    "an outbox was not removed": Damage(finished_outbox, "staging", "books/transform", "P6", mends=True),
    "no reason": Damage(no_reason, "no-reason", "books/transform", "P26", mends=True),
    "a damaged reason": Damage(damaged_reason, "reason-damaged", "books/transform", "P26", mends=True),
    "a reason of nothing": Damage(stray_reason, "stray-reason", "books/load", "P26", mends=True),
    "a damaged note": Damage(damaged_note, "note-damaged", "books/transform", "P11", says="backup"),
    "a note of another shape": Damage(note_of_the_wrong_shape, "note-damaged", "books/transform", "P11"),
    "no source note": Damage(source_note_gone, "source-note", "books", "P3", says="backup"),
    "a damaged source note": Damage(source_note_damaged, "source-note", "books", "P3", says="backup"),
    "a source is gone": Damage(
        lambda road: gone(source(road)), "lost", "books/extract", "P1", says="It came from"
    ),
    "a passed on file is gone": Damage(
        lambda road: gone(source(road, "transform")), "lost", "books/transform", "P1", says="copy it from"
    ),
    "a unit file is gone": Damage(
        lambda road: gone(unit(road)), "lost", "books/load", "P1", says="made by transform"
    ),
    "a waiting request is gone": Damage(lost_source_of_all, "lost", "books/extract", "P1"),
    "a request is gone": Damage(lost_request, "lost", f"books/extract/{REQUESTS}", "P1"),
    "held-back rows are gone": Damage(held_back_rows_gone, "lost", "books/transform", "P1", says="1 rows"),
    "resolved by hand": Damage(never_transformed, "unworked", "books/transform", "P26"),
    "a discard is not noted": Damage(discard_not_noted, "discard", "books/transform", "P26", mends=True),
    "other bytes": Damage(bytes_changed, "changed", "books/extract", "P3"),
    "a refused copy is gone": Damage(
        lambda road: gone_with_reason(road.files("load", "shut", "failed")[0]),
        "copy-lost",
        "books/load/shut",
        "P17",
        says="only shut is loaded",
    ),
    "held-back units are gone": Damage(
        lambda road: gone_with_reason(road.one("load", "warehouse", "failed")),
        "lost",
        "books/load/warehouse",
        "P16",
        says="made anew",
    ),
    "a key is gone": Damage(key_gone, "not-there", "books/load/warehouse", "P26"),
    "a copy was resolved by hand": Damage(resolved_by_hand, "not-there", "books/load/shut", "P26"),
    "a record is gone": Damage(record_gone, "not-there", "books/load/lake", "P26"),
    "the counts differ": Damage(count_differs, "count", "books/load/warehouse", "P26", says="11"),
    "refused units have no file": Damage(rejected_without_a_file, "lost", "books/load/warehouse", "P16"),
    "rows are there twice": Damage(doubled_rows, "doubled", "books/load/warehouse", "P16", says="_etl_file"),
    "rows of an older life": Damage(rows_of_an_older_life, "older-rows", "books/load/warehouse", "P11"),
    "a location is away": Damage(database_away, "not-asked", "books/load/warehouse", "P26"),
}


def test_a_tree_that_went_the_whole_road_is_clean(road: Road) -> None:
    assert road.findings() == []


@pytest.mark.parametrize("which", DAMAGES)
def test_each_damage_is_found_alone_and_said_with_what_to_do(road: Road, which: str) -> None:
    damage = DAMAGES[which]
    name = damage.do(road)
    (found,) = road.look()
    assert (found.check, found.place, found.name) == (damage.check, damage.place, name)
    assert found.promise == damage.promise
    assert damage.says in f"{found.what} {found.next}"
    assert found.next


def test_a_lost_id_of_the_data_folder_is_told_before_a_new_one_is_made(road: Road) -> None:
    (road.data / ".etl" / "id").unlink()
    assert "data-id" in {one.check for one in road.look()}
    assert not (road.data / ".etl" / "id").exists()


@pytest.mark.parametrize("which", [which for which, damage in DAMAGES.items() if damage.mends])
def test_what_is_safe_is_mended_and_loses_nothing(road: Road, which: str) -> None:
    def lying() -> set[str]:
        return {path.name for path in road.data.rglob("*~*") if not names.never_work(path.name)}

    DAMAGES[which].do(road)
    before = lying()
    done = road.etl("fsck", "--fix")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "fixed" in done.stdout
    assert "clean: " in done.stdout
    assert lying() >= before
    road.work()
    assert loaded(road) == ROWS - 2
    # the link is refused with a reason, which is no broken promise
    assert road.findings() == []


def test_an_unfinished_outbox_is_finished_and_its_orphan_with_it(road: Road) -> None:
    outbox(road)
    done = road.etl("fsck", "--fix", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {one["check"]: one["did"] for one in json.loads(done.stdout)}["outbox"] == "handed it out"
    road.work()
    assert loaded(road) == ROWS - 2 + 1
    assert road.findings() == []


def test_files_that_were_moved_below_the_archive_are_not_lost(road: Road) -> None:
    kept = road.data / "archive" / "2026"
    kept.mkdir(parents=True)
    for path in [*road.files("extract", "resolved"), *road.files("load", "resolved")]:
        os.rename(path, kept / path.name)
    assert road.findings() == []


def test_a_retry_by_copy_and_a_reason_left_where_it_was_are_fine(road: Road) -> None:
    first, second, _ = road.files("load", "shut", "failed")
    shutil.copy(first, road.folder("load", "shut", "working"))
    road.move_back(second)
    assert road.findings() == []


def test_a_file_killed_before_its_first_claim_is_not_told_as_lost(road: Road) -> None:
    for at in ("note-source:after", "note-attempt:after"):
        road.drop(f"{at[:8]}.csv", "id,price\n100,1\n")
        assert road.crash(at).returncode == -signal.SIGKILL
        assert road.findings() == []
    road.work()
    assert road.findings() == []


def test_what_never_arrived_is_not_told_as_lost(road: Road) -> None:
    assert road.crash("arrive:before", "ask").returncode == -signal.SIGKILL
    assert [one.check for one in road.findings()] == ["staging", "lost"]
    road.mend()
    assert road.findings() == []


def test_another_location_later_does_not_make_old_files_wrong(road: Road) -> None:
    road.spec["load"]["locations"]["later"] = {"kind": "files", "path": "later"}
    road.write()
    assert road.findings() == []


def test_files_at_a_location_that_is_no_longer_configured_are_told(road: Road) -> None:
    del road.spec["load"]["locations"]["shut"]
    road.write()
    (found,) = road.findings()
    assert (found.check, found.place) == ("location-gone", "books/load/shut")
    assert "lie there: 3" in found.what


def test_a_location_pointed_elsewhere_is_told_once_per_unit_file(road: Road) -> None:
    road.spec["load"]["locations"]["lake"]["path"] = "other"
    road.write()
    assert [one.check for one in road.findings()] == ["not-there"] * 3


# --- the command -------------------------------------------------------------------------------------------


def test_clean_is_one_line_that_says_what_was_looked_at(road: Road) -> None:
    done = road.etl("fsck", "books", "--deep")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "clean: 13 files, 16 notes, 6 keys at 3 locations\n"
    done = road.etl("fsck", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, [])


def test_findings_are_grouped_by_place_and_fit_the_screen(road: Road) -> None:
    for path in road.files("load", "shut", "failed"):
        gone_with_reason(path)
    no_reason(road)
    done = road.etl("fsck")
    assert done.returncode == 1
    assert [line for line in done.stdout.splitlines() if len(line) > 80 and " " in line.strip()] == []
    assert done.stdout.count("books/load/shut\n") == 1
    assert done.stdout.count("next: ") == 4
    assert "4 broken promises: " in done.stdout
    assert "`etl fsck --fix` can mend 1 of them" in done.stdout
    facts = json.loads(road.etl("fsck", "--json").stdout)
    assert set(facts[0]) == {"promise", "check", "place", "name", "what", "next", "fixable", "did", "left"}


def test_what_cannot_be_fixed_keeps_the_exit_code(road: Road) -> None:
    no_reason(road)
    gone(source(road))
    done = road.etl("fsck", "--fix", "--json")
    assert done.returncode == 1
    facts = {one["check"]: (bool(one["did"]), one["left"]) for one in json.loads(done.stdout)}
    assert facts == {"no-reason": (True, False), "lost": (False, True)}


def test_many_of_a_kind_are_counted(road: Road) -> None:
    for number in range(25):
        road.folder("load", "failed", f"{number}.csv.reason.json").write_text("{}")
    assert "… and 15 more of stray-reason" in road.etl("fsck").stdout


def test_a_pipeline_that_is_not_there_is_a_matter_of_configuration(road: Road) -> None:
    done = road.etl("fsck", "nobody")
    assert done.returncode == 2
    assert "nobody" in done.stderr


def test_looking_makes_nothing(tmp_path: Path) -> None:
    road = Road(tmp_path, json.loads(json.dumps(SPEC)))
    shutil.rmtree(road.data)
    done = road.etl("fsck")
    assert (done.returncode, done.stdout) == (0, "clean: 0 files, 0 notes, 0 keys at 3 locations\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config"]


def test_a_redis_that_does_not_answer_is_told_and_the_folders_are_looked_at(road: Road) -> None:
    road.settings["redis"] = "redis://127.0.0.1:1/0"
    road.write()
    done = road.etl("fsck")
    assert done.returncode == 0, done.stdout
    assert "the queue is not looked at" in done.stderr


def test_a_pipeline_that_cannot_be_looked_at_is_not_called_clean(road: Road) -> None:
    (road.root / "config" / "pipelines" / "other.yaml").write_text("transfrom: {}\n")
    assert road.etl("fsck").returncode == 2
    assert road.etl("fsck", "books").returncode == 0


def test_a_folder_that_may_not_be_listed_is_told_and_its_files_are_not_called_lost(road: Road) -> None:
    folder = road.folder("load", "resolved")
    folder.chmod(0)
    try:
        done = ordinary(road, "fsck", "--json")
    finally:
        folder.chmod(0o2775)
    assert done.returncode == 1, done.stderr
    assert [one["check"] for one in json.loads(done.stdout)] == ["folder-closed"]
