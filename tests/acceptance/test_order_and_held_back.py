"""Older never overwrites newer, what is held back comes in once it is mended, and poison is put aside.

Also the races between people and workers: namesakes, copies, files taken away in the middle of the work.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from etl import disk
from etl.errors import NotClaimed, Vanished
from etl.files import deliveries, moves, names, notes, outbox, recovery
from etl.files.recovery import MOST_DEATHS
from etl.model import Failed, Resolved, Skipped, Status, Waiting
from tests import road as roads
from tests.queue_helpers import wait_until
from tests.road import Road

SCHEMA = {
    "required": ["id", "price"],
    "properties": {"id": {"type": "integer"}, "price": {"type": "number"}},
}
CHECKED = """CREATE TABLE prices (
    id INTEGER, price DOUBLE PRECISION CHECK (price >= 0),
    _etl_file TEXT, _etl_generation INTEGER, _etl_line INTEGER)"""


def make(tmp_path: Path, url: str, handler: str = "", **location: Any) -> Road:
    warehouse = {"kind": "sql", "url": url, "table": "prices", "create": True} | location
    transform: dict[str, Any] = {"read": "csv", "schema": SCHEMA, "units_per_file": 250}
    if handler:
        transform["handler"] = "handler:to_unit"
    return Road(
        tmp_path / "project",
        {"transform": transform, "load": {"locations": {"warehouse": warehouse}}},
        pipeline="prices",
        handlers={"handler": handler} if handler else {},
    )


@pytest.fixture
def plain(tmp_path: Path) -> Road:
    """A pipeline for what has nothing to do with the kind of database."""
    return make(tmp_path, "sqlite:///prices.db")


def prices(count: int, wrong: dict[int, str] | None = None) -> str:
    """Give a file of `count` rows; the price of line n is n, or what is said to be wrong there."""
    wrong = wrong or {}
    return "id,price\n" + "".join(f"{line},{wrong.get(line, line)}\n" for line in range(2, count + 2))


def all_lines(count: int) -> list[tuple[int, float, int]]:
    return [(line, float(line), line) for line in range(2, count + 2)]


def loaded(url: str) -> list[tuple[Any, ...]]:
    return roads.rows(url, "prices", "id, price, _etl_line")


# --- order


def drop_after(road: Road, first: Path, name: str, text: str) -> Path:
    """Drop a file that the file system itself dates later, by a millisecond at least."""

    def dropped() -> Path | None:
        path = road.drop(name, text)
        later = path.stat().st_ctime_ns // 1_000_000 > first.stat().st_ctime_ns // 1_000_000
        return path if later else path.unlink()

    return wait_until(dropped, "the clock of the file system moves on")


def test_the_later_of_two_drops_stands_whichever_is_loaded_first(tmp_path: Path, database_url: str) -> None:
    road = make(tmp_path, database_url, mode="upsert", key=["id"])
    first = road.drop("a.csv", "id,price\n1,10\n2,10\n")
    second = drop_after(road, first, "b.csv", "id,price\n1,20\n3,20\n")
    for dropped in (second, first):
        road.perform(dropped)
        road.perform(road.one("transform", "working"))
        road.perform(road.one("load", "working"))

    assert roads.rows(database_url, "prices", "id, price") == [(1, 20), (2, 10), (3, 20)]
    assert road.broken_promises() == []


def test_two_files_dropped_under_one_name_are_both_loaded(plain: Road, tmp_path: Path) -> None:
    for text in ("id,price\n1,10\n", "id,price\n2,20\n"):
        plain.drop("same.csv", text)
        plain.perform(plain.one("extract", "working"))
    plain.work()

    url = f"sqlite:///{plain.root}/prices.db"
    assert roads.rows(url, "prices", "id, price") == [(1, 10), (2, 20)]
    assert len(plain.files("extract", "resolved")) == 2


# --- held-back rows


def test_three_bad_rows_of_a_thousand_are_held_back_and_come_in_when_mended(
    tmp_path: Path, database_url: str
) -> None:
    road = make(tmp_path, database_url)
    incoming = tmp_path / "prices.csv"
    incoming.write_text(prices(1_000, {5: "cheap", 400: "", 1_001: "n/a"}))

    ran = road.etl("run", "prices", str(incoming), "--inline", "--json")

    assert ran.returncode == 1, ran.stderr
    assert json.loads(ran.stdout)["files"][0]["held_back"] == 3
    assert roads.count(database_url, "prices") == 997
    held = road.one("transform", "failed")
    where = road.reason(held)["where"]
    assert [(trouble["line"], trouble["field"]) for trouble in where] == [
        (5, "price"),
        (400, "price"),
        (1_001, "price"),
    ]
    assert all(trouble["cause"] for trouble in where)

    fixed = held.read_text().replace("cheap", "5").replace("400,\n", "400,400\n").replace("n/a", "1001")
    held.write_text(fixed)
    road.move_back(held)
    road.work()

    assert loaded(database_url) == all_lines(1_000)
    assert road.broken_promises() == []


def test_a_held_back_file_mended_in_two_goes_brings_every_row_once_with_its_line(
    tmp_path: Path, database_url: str
) -> None:
    road = make(tmp_path, database_url)
    road.drop("prices.csv", prices(30, {5: "one", 11: "two", 23: "three"}))
    road.work()
    held = road.one("transform", "failed")
    held.write_text(held.read_text().replace("one", "5").replace("three", "23"))
    road.move_back(held)
    road.work()
    assert roads.count(database_url, "prices") == 29

    again = road.one("transform", "failed")
    assert [trouble["line"] for trouble in road.reason(again)["where"]] == [11]
    again.write_text(again.read_text().replace("two", "11"))
    road.move_back(again)
    road.work()

    assert loaded(database_url) == all_lines(30)
    assert road.broken_promises() == []


def test_a_held_back_file_edited_after_it_was_loaded_is_refused(tmp_path: Path, database_url: str) -> None:
    road = make(tmp_path, database_url)
    road.drop("prices.csv", prices(30, {5: "one"}))
    road.work()
    held = road.one("transform", "failed")
    held.write_text(held.read_text().replace("one", "5"))
    road.move_back(held)
    road.work()
    done = next(path for path in road.files("transform", "resolved") if "-bad" in path.name)
    done.write_text(done.read_text().replace("5,5", "5,6"))

    outcome = road.perform(road.move_back(done))

    assert isinstance(outcome, Failed)
    assert "already loaded" in road.reason(road.one("transform", "failed"))["summary"]
    assert loaded(database_url) == all_lines(30)
    assert road.broken_promises() == []


# --- held-back units


@pytest.fixture
def checked(tmp_path: Path, database_url: str) -> Road:
    """A table made beforehand whose constraint refuses 3 of 1,000 units."""
    roads.query(database_url, CHECKED)
    road = make(tmp_path, database_url, create=False, lineage=True)
    incoming = tmp_path / "prices.csv"
    incoming.write_text(prices(1_000, {5: "-5", 6: "-6", 900: "-900"}))
    ran = road.etl("run", "prices", str(incoming), "--inline", "--json")
    assert ran.returncode == 1, ran.stderr
    return road


def mend_units(road: Road) -> None:
    for path in road.files("load", "warehouse", "failed"):
        path.write_text(path.read_text().replace("-", ""))
        road.move_back(path)
    road.work()


def test_three_units_of_a_thousand_refused_by_a_constraint_come_in_when_mended(
    checked: Road, database_url: str
) -> None:
    assert roads.count(database_url, "prices") == 997
    where = [
        trouble
        for path in checked.files("load", "warehouse", "failed")
        for trouble in checked.reason(path)["where"]
    ]
    assert [trouble["line"] for trouble in where] == [5, 6, 900]
    assert all("check" in trouble["cause"].lower() for trouble in where)

    mend_units(checked)

    assert loaded(database_url) == all_lines(1_000)
    assert checked.broken_promises() == []


def test_a_mended_unit_edited_and_moved_back_once_more_is_refused(checked: Road, database_url: str) -> None:
    mend_units(checked)
    done = checked.files("load", "warehouse", "resolved")[0]
    done.write_text(done.read_text().replace("5.0", "50.0"))

    assert isinstance(checked.perform(checked.move_back(done)), Failed)
    assert "already loaded" in checked.reason(checked.one("load", "warehouse", "failed"))["summary"]
    assert loaded(database_url) == all_lines(1_000)
    assert checked.broken_promises() == []


def test_a_unit_file_moved_back_does_not_bring_back_what_was_mended(checked: Road, database_url: str) -> None:
    mend_units(checked)
    for path in checked.files("load", "resolved"):
        checked.move_back(path)
    checked.work()

    assert checked.files("load", "warehouse", "failed") == []
    assert loaded(database_url) == all_lines(1_000)
    assert checked.broken_promises() == []


# --- poison


DEADLY = "import os, signal\n\ndef to_unit(row):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
HARMLESS = "def to_unit(row):\n    return row\n"


def die(road: Road) -> None:
    """Have a worker die at whatever kills it."""
    assert road.crash("").returncode == -signal.SIGKILL


def test_a_file_that_kills_its_worker_three_times_is_put_aside_and_the_rest_flows(tmp_path: Path) -> None:
    road = make(tmp_path, "sqlite:///prices.db", DEADLY)
    road.drop("poison.csv", prices(3))
    for _ in range(MOST_DEATHS):
        die(road)
    road.handle(HARMLESS)
    road.drop("good.csv", prices(2))
    road.work()

    poison = road.one("transform", "failed")
    assert poison.name.startswith("poison~")
    assert road.reason(poison)["summary"] == "its worker died 3 times while working this file"
    assert roads.count(f"sqlite:///{road.root}/prices.db", "prices") == 2

    road.move_back(poison)
    road.work()

    assert roads.count(f"sqlite:///{road.root}/prices.db", "prices") == 5
    assert road.broken_promises() == []


@pytest.mark.parametrize("rested", [Status.FAILED, Status.RESOLVED])
def test_moving_a_file_back_starts_the_count_of_deaths_anew(tmp_path: Path, rested: Status) -> None:
    road = make(tmp_path, "sqlite:///prices.db", DEADLY)
    road.drop("poison.csv", prices(3))
    for _ in range(MOST_DEATHS - 1):
        die(road)
    road.mend()
    road.handle(HARMLESS if rested is Status.RESOLVED else "raise ValueError\n")
    road.work()
    road.handle(DEADLY)
    road.move_back(road.one("transform", rested))
    die(road)
    road.mend()

    assert road.note(road.one("transform", "working")).deaths == 1


@pytest.mark.parametrize("at", ["note-death:after", "recover:before", "recover:after"])
def test_a_recovery_that_is_killed_charges_a_death_once(tmp_path: Path, at: str) -> None:
    road = make(tmp_path, "sqlite:///prices.db", DEADLY)
    road.drop("poison.csv", prices(3))
    die(road)
    for _ in range(2):
        road.crash(at, "mend")
    road.mend()

    assert road.note(road.one("transform", "working")).deaths == 1


@pytest.mark.parametrize("at", ["reason:after", "note-fail:after", "fail:before"])
def test_a_recovery_killed_while_it_gives_up_on_poison_is_carried_through(tmp_path: Path, at: str) -> None:
    road = make(tmp_path, "sqlite:///prices.db", DEADLY)
    road.drop("poison.csv", prices(3))
    for _ in range(MOST_DEATHS):
        die(road)
    assert road.crash(at, "mend").returncode == -signal.SIGKILL
    road.mend()

    assert road.note(road.one("transform", "failed")).deaths == MOST_DEATHS
    assert road.broken_promises() == []


# --- people and workers at one file


def _race(root: Path, barrier: Any, results: Any) -> None:
    road = roads.reopen(root, "prices")
    barrier.wait()
    results.put([type(outcome).__name__ for outcome in road.work()])


def test_many_workers_on_the_same_files_load_every_row_once(tmp_path: Path, database_url: str) -> None:
    road = make(tmp_path, database_url)
    road.transform(units_per_file=5)
    for number in range(4):
        road.drop(f"prices{number}.csv", prices(20))
    context = get_context("spawn")
    barrier, results = context.Barrier(4), context.Queue()
    racers = [context.Process(target=_race, args=(road.root, barrier, results)) for _ in range(4)]
    for racer in racers:
        racer.start()
    endings = [results.get(timeout=60) for _ in racers]
    for racer in racers:
        racer.join(60)

    road.work()

    assert [racer.exitcode for racer in racers] == [0] * 4, endings
    assert loaded(database_url) == sorted(all_lines(20) * 4)
    assert road.broken_promises() == []


def test_a_namesake_waits_while_the_older_one_is_worked(plain: Road) -> None:
    plain.drop("prices.csv", prices(3))
    plain.work()
    done = plain.one("transform", "resolved")
    waiting = plain.move_back(done)
    with plain.opened() as app:
        place = plain.place("transform")
        with moves.claim(plain.layout, Waiting(place=place, name=waiting.name), app.announce) as claim:
            shutil.copy(claim.path, waiting)
            assert isinstance(plain.perform(waiting), Skipped)
        plain.work()

    assert plain.broken_promises() == []


def test_a_file_taken_away_while_it_is_worked_is_left_where_it_is(plain: Road, tmp_path: Path) -> None:
    plain.drop("prices.csv", "id\n1\n")
    plain.perform(plain.one("extract", "working"))
    waiting = plain.one("transform", "working")
    with plain.opened() as app:
        place = plain.place("transform")
        with moves.claim(plain.layout, Waiting(place=place, name=waiting.name), app.announce) as claim:
            os.rename(claim.path, tmp_path / "taken")
            reason = recovery._poison(claim.note)
            with pytest.raises(Vanished):
                moves.fail(claim, reason)
            with pytest.raises(Vanished):
                moves.put_off(claim, reason, 0.0)

    assert (tmp_path / "taken").exists()
    assert [(one.check, one.place, one.name) for one in plain.findings()] == [
        ("lost", "prices/transform", waiting.name)
    ]


def test_recovery_leaves_an_outbox_alone_that_another_is_finishing(plain: Road) -> None:
    plain.drop("prices.csv", prices(3))
    assert plain.crash("release-child:before").returncode == -signal.SIGKILL
    place = plain.place("extract")
    ((name, folder),) = outbox.pending(plain.layout, place)
    lock = disk.lock_path(folder / ".lock")
    assert lock is not None
    with lock:
        plain.mend()
        assert plain.one("extract", "in_process").name == name
    plain.work()

    assert roads.count(f"sqlite:///{plain.root}/prices.db", "prices") == 3
    assert plain.broken_promises() == []


def test_something_strange_in_in_process_does_not_stop_recovery(plain: Road) -> None:
    plain.folder("extract", "in_process", "a-link").symlink_to("/nowhere")
    plain.drop("prices.csv", prices(3))
    plain.work()

    assert roads.count(f"sqlite:///{plain.root}/prices.db", "prices") == 3


def test_a_living_claim_is_never_recovered(plain: Road) -> None:
    dropped = plain.drop("prices.csv", prices(3))
    with plain.opened() as app:
        place = plain.place("extract")
        with moves.claim(plain.layout, Waiting(place=place, name=dropped.name), app.announce) as claim:
            plain.mend()
            assert claim.path.exists()
            with (
                pytest.raises(NotClaimed),
                moves.claim(plain.layout, Waiting(place=place, name=claim.name), app.announce),
            ):
                pass


def test_a_second_pull_knows_what_a_dead_one_committed(plain: Road) -> None:
    source = plain.root / "in"
    source.mkdir()
    (source / "prices.csv").write_text(prices(3))
    plain.spec["extract"] = {"sources": [{"path": "in"}]}
    plain.write()
    plain.ask()
    assert plain.crash("commit:after").returncode == -signal.SIGKILL
    asked = plain.ask()

    outcome = plain.perform(plain.layout.file(asked.place, Status.WORKING, asked.name))

    assert isinstance(outcome, Resolved)
    assert outcome.count == 0
    plain.work()
    assert roads.count(f"sqlite:///{plain.root}/prices.db", "prices") == 3
    assert plain.broken_promises() == []


def test_a_lost_note_of_a_waiting_file_costs_nothing(plain: Road) -> None:
    plain.drop("prices.csv", prices(3))
    plain.perform(plain.one("extract", "working"))
    waiting = plain.one("transform", "working")
    file = names.parse("prices", waiting.name)
    assert file is not None
    plain.layout.source_note("prices", file.id).unlink()
    plain.work()

    assert roads.count(f"sqlite:///{plain.root}/prices.db", "prices") == 3
    source = notes.read_source(plain.layout, "prices", file.id)
    assert source is not None
    assert source.given == "prices.csv"


def test_a_row_taken_out_of_a_held_back_file_is_asked_for_and_lines_are_never_guessed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'prices.db'}"
    road = make(tmp_path, url)
    road.drop("a.csv", "id,price\n1,1\n2,x\n3,3\n4,y\n5,5\n")
    road.work()
    held = road.one("transform", "failed")
    whole = held.read_text()
    held.write_text("id,price\n4,4\n")
    road.move_back(held)
    road.work()
    held = road.one("transform", "failed")
    assert "2 rows were held back (lines 3, 5), and this file has 1" in road.reason(held)["summary"]
    held.write_text(whole.replace("y", "4"))
    road.move_back(held)
    road.work()
    assert (4, 4.0, 5) in roads.rows(url, "prices", "id, price, _etl_line")
    assert road.one("transform", "failed").name.endswith("-bad-bad.csv")


def test_what_is_discarded_of_an_older_generation_changes_no_verdict(tmp_path: Path) -> None:
    road = make(tmp_path, f"sqlite:///{tmp_path / 'prices.db'}")
    road.drop("a.csv", "id,price\n1,1\n2,x\n")
    road.work()
    source = road.one("transform", "resolved")
    source.write_text("id,price\n1,1\n2,2\n")
    road.move_back(source)
    road.work()
    place = road.place("transform")
    moves.discard(road.layout, place, road.one("transform", "failed").name, "superseded")
    found = deliveries.of_pipeline(road.layout, "prices", road.locations)
    assert [one.verdict for one in found] == ["resolved"]
