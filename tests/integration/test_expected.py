"""What is expected and does not come, or not as usual, is told once each, whatever happens while it is told."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from etl import points
from etl.cli import edge
from etl.files import arrivals, expected, names, news, notes, paused
from etl.points import Point
from etl.services import calendar, came, courier, records
from tests import road as roads
from tests.listening import Inbox, free_port, mailing
from tests.road import Road

FOUR = ["books", "prices", "stock", "orders"]


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def at(text: str) -> float:
    """Give a moment of November 2026, for example `18 05:50`."""
    day, _, hour = text.partition(" ")
    return datetime.fromisoformat(f"2026-11-{int(day):02} {hour}").replace(tzinfo=UTC).timestamp()


def project(root: Path, *stems: str, settings: dict[str, Any] | None = None, **options: Any) -> Road:
    root.mkdir(exist_ok=True)
    return Road(
        root,
        {
            "about": {"contact": "feeds@acme.example"},
            "transform": {"read": "csv"},
            "load": {"locations": {"lake": {"kind": "files", "path": "lake"}}},
            "expect": [
                {
                    "name": f"{stem}-*.csv",
                    "by": "06:00",
                    "zone": "UTC",
                    "rows": {"at_least": "50%"},
                    **options,
                }
                for stem in stems or ("books",)
            ],
        },
        settings={"reserve": "0B", **(settings or {})},
    )


def deliver(road: Road, given: str, when: str, rows: int | str = 10, header: str = "sku,price") -> str:
    """Have a file come at a moment, and give its id: a name that carries one says when that was."""
    file_id = names.new_id(road.pipeline, int(at(when) * 1000))
    lines = rows if isinstance(rows, str) else "".join(f"{file_id}{n},{n}\n" for n in range(rows))
    road.drop(str(names.christen(given, file_id)), f"{header}\n{lines}" if header else lines)
    return file_id


def turn(road: Road, when: str | float, begun: str | float | None = None) -> None:
    """Give a calendar that was started a while ago one turn."""
    now = at(when) if isinstance(when, str) else when
    with road.opened() as app:
        clock = Clock(now - 3600)
        one = calendar.Calendar(app, clock)
        clock.now = now
        one.turn()


def told(road: Road) -> list[tuple[str, str]]:
    return sorted((one.kind, one.text) for one in news.waiting(road.layout))


def kinds(road: Road) -> list[str]:
    return [kind for kind, _ in told(road)]


def usual_days(road: Road, *stems: str, header: str = "sku,price") -> None:
    """Have a calendar begin on the 9th, and a usual file come on each of the next four days."""
    turn(road, "9 12:00")
    for day in range(10, 14):
        for stem in stems or ("books",):
            deliver(road, f"{stem}-{day}.csv", f"{day} 05:50", header=header)
        road.work()
        turn(road, f"{day} 06:01")
    assert told(road) == []


# --- what is told ------------------------------------------------------------------------------------------


def test_missing_small_doubled_and_renamed_are_one_line_each(tmp_path: Path) -> None:
    road = project(tmp_path, *FOUR)
    usual_days(road, *FOUR)
    (last,) = (path for path in road.files("extract", "resolved") if path.name.startswith("stock-13"))

    deliver(road, "prices-14.csv", "14 05:45", rows=4)
    deliver(road, "stock-14.csv", "14 05:45", rows=last.read_text(), header="")
    deliver(road, "orders-14.csv", "14 05:45", header="sku,preis")
    road.work()
    turn(road, "14 05:59")
    assert kinds(road) == ["changed header", "duplicate", "unusually small"]
    turn(road, "14 06:00")

    assert told(road) == [
        (
            "changed header",
            "orders-14.csv has another header than before: column 'price' is now called 'preis'",
        ),
        ("duplicate", "stock-14.csv has the same bytes as stock-13.csv, which came Fri 2026-11-13 05:50"),
        ("missing", "books-*.csv did not come by 06:00 UTC on Sat 2026-11-14"),
        (
            "unusually small",
            "prices-14.csv is unusually small: 4 rows, where 10 are usual and at least 50% of that are expected",
        ),
    ]
    assert {one.next for one in news.waiting(road.layout) if one.kind == "missing"} == {
        "ask feeds@acme.example; see: etl files books --today"
    }


def test_a_courier_sends_one_digest_with_a_line_for_each(tmp_path: Path) -> None:
    inbox = Inbox(port=free_port())
    road = project(tmp_path, *FOUR, settings={"mail": inbox.settings})
    usual_days(road, *FOUR)
    (last,) = (path for path in road.files("extract", "resolved") if path.name.startswith("stock-13"))
    clock = Clock(at("14 05:00"))
    with mailing(inbox), road.opened() as app:
        one = courier.Courier(app, clock=clock)
        one.turn()
        deliver(road, "prices-14.csv", "14 05:45", rows=4)
        deliver(road, "stock-14.csv", "14 05:45", rows=last.read_text(), header="")
        deliver(road, "orders-14.csv", "14 05:45", header="sku,preis")
        road.work()
        for hour in ("05:59", "06:00", "06:14", "06:15", "06:40"):
            clock.now = at(f"14 {hour}")
            one._watch._rest = 0.0  # a slow machine must not make the watch rest for longer
            one.turn()
        one.close()

    (mail,) = inbox.mails
    subject = str(mail["Subject"])
    assert subject.startswith("[etl] books: 1 ") and subject.endswith(", can wait until morning")
    (text,) = inbox.texts()
    assert sorted(line.partition(": ")[0] for line in text.splitlines() if line.startswith("- ")) == [
        "- books changed header",
        "- books duplicate",
        "- books missing",
        "- books unusually small",
    ]


def test_what_was_told_is_not_told_again_and_survives_all_but_its_record(tmp_path: Path) -> None:
    road = project(tmp_path)
    usual_days(road)
    deliver(road, "books-14.csv", "14 05:45", rows=1)
    road.work()
    turn(road, "14 06:01")
    (one,) = news.waiting(road.layout)
    news.remove(road.layout, one)
    # all that other parts may take away: cleaned folders, their notes, the ledger
    for folder in ("extract", "transform", "load", ".notes"):
        shutil.rmtree(road.data / "books" / folder)
    road.write()

    for when in ("14 06:02", "14 23:00"):
        turn(road, when)
    assert told(road) == []
    deliver(road, "books-15.csv", "15 05:45", rows=1)
    road.work()
    turn(road, "15 06:01")
    assert kinds(road) == ["unusually small"], "what is usual is remembered"


def test_one_that_comes_after_its_hour_is_told_to_be_late_once(tmp_path: Path) -> None:
    road = project(tmp_path)
    usual_days(road)
    turn(road, "14 06:00")
    deliver(road, "books-14.csv", "14 08:05")
    deliver(road, "books-14b.csv", "14 08:10")
    road.work()
    for when in ("14 08:11", "14 09:00"):
        turn(road, when)

    assert told(road) == [
        ("late", "books-14.csv came at Sat 2026-11-14 08:05, 2 h 5 min after 06:00 UTC of Sat 2026-11-14"),
        ("missing", "books-*.csv did not come by 06:00 UTC on Sat 2026-11-14"),
    ]


def test_an_empty_file_is_told_with_and_without_a_header(tmp_path: Path) -> None:
    road = project(tmp_path)
    usual_days(road)
    deliver(road, "books-14.csv", "14 05:00", rows="", header="")
    deliver(road, "books-14b.csv", "14 05:01", rows=0)
    road.work()
    turn(road, "14 06:01")

    assert told(road) == [
        ("empty", "books-14.csv is empty: 0 bytes"),
        ("empty", "books-14b.csv is empty: it has no rows"),
    ]


def test_what_came_before_is_history_and_tells_nothing(tmp_path: Path) -> None:
    road = project(tmp_path)
    for day in (3, 4, 6, 7):
        deliver(road, f"books-{day}.csv", f"{day} 09:00", rows=10 if day < 7 else 0)
    deliver(road, "books-7b.csv", "7 09:30", rows=0)
    road.work()
    turn(road, "9 12:00")
    assert told(road) == []

    deliver(road, "books-10.csv", "10 05:00", rows=2)
    road.work()
    turn(road, "10 06:01")

    assert kinds(road) == ["unusually small"], "held against the history"


def test_after_a_long_stop_only_the_last_days_are_told(tmp_path: Path) -> None:
    road = project(tmp_path)
    turn(road, "1 12:00")
    turn(road, "20 12:00")
    assert {text[-14:] for _, text in told(road)} == {"Wed 2026-11-18", "Thu 2026-11-19", "Fri 2026-11-20"}


def test_right_after_a_start_nothing_that_was_due_before_is_missed(tmp_path: Path) -> None:
    road = project(tmp_path)
    turn(road, "9 12:00")
    with road.opened() as app:
        clock = Clock(at("10 07:00"))
        one = calendar.Calendar(app, clock)
        one.turn()
        assert told(road) == []
        clock.now += calendar.GRACE
        one.turn()
    assert kinds(road) == ["missing"]


def test_a_file_that_lies_there_and_waits_is_not_missing(tmp_path: Path) -> None:
    road = project(tmp_path, by="00:00")
    midnight = time.time() // 86_400 * 86_400
    turn(road, midnight - 1)
    paused.write(road.layout, paused.Mark(pipeline="books", who="anna", since=1.0))
    drop = road.drop("books-1.csv", "sku,price\n")
    turn(road, time.time())
    assert told(road) == []

    drop.unlink()
    turn(road, time.time())

    assert kinds(road) == ["missing"]


def test_what_is_asked_for_by_the_clock_is_no_file_that_came(tmp_path: Path) -> None:
    road = project(tmp_path)
    road.spec["expect"] = [{"name": "*", "by": "06:00", "zone": "UTC"}]
    road.write()
    turn(road, "9 12:00")
    with road.opened() as app:
        for given in ("scheduled.json", "request.json"):
            file_id = names.new_id("books", int(at("10 05:00") * 1000))
            assert arrivals.request_once(app.layout, "books", {"tick": "x"}, given, file_id) is not None
    turn(road, "10 06:01")
    assert told(road) == [("missing", "* did not come by 06:00 UTC on Tue 2026-11-10")]


def test_names_with_odd_characters_stay_on_their_line(tmp_path: Path) -> None:
    road = project(tmp_path)
    turn(road, "9 12:00")
    deliver(road, "books-\r\nBcc: x {{ 7*7 }}<b>.csv", "10 05:00", rows="", header="")
    road.work()
    turn(road, "10 06:01")
    ((_, text),) = told(road)
    assert "\n" not in text and "{{ 7*7 }}<b>" in text


# --- headers -----------------------------------------------------------------------------------------------


def test_where_drift_fails_nothing_is_published_until_the_new_name_is_known(tmp_path: Path) -> None:
    road = project(tmp_path, drift="fail")
    usual_days(road)
    deliver(road, "books-14.csv", "14 05:00", header="sku,preis")
    deliver(road, "books-14b.csv", "14 05:01", header="sku,price,note", rows="a,1,x\n" * 10)
    road.work()  # the two may be worked in any order: each is held against what came before it
    failed = road.one("transform", "failed")
    reason = road.reason(failed)
    assert reason["summary"] == (
        "the header is not that of the last delivery, 'books-13.csv': column 'price' is now called 'preis'"
    )
    assert "transform.columns" in reason["next"] and "drift: warn" in reason["next"]
    assert len(list((tmp_path / "lake").glob("*.jsonl"))) == 5
    turn(road, "14 06:01")
    assert told(road) == [("changed header", "books-14b.csv has another header than before: added: 'note'")]

    road.transform(columns={"price": ["price", "preis"]})
    road.move_back(failed)
    road.work()

    assert road.files("transform", "failed") == [] and len(list((tmp_path / "lake").glob("*.jsonl"))) == 6
    assert road.broken_promises() == []
    note = road.note(next(path for path in road.files("transform", "resolved") if "14~" in path.name))
    assert note.header == ("sku", "preis")


@pytest.mark.parametrize(
    "where", ["commit:after", "release-child:before", "release-child:after", "commit:before"]
)
def test_killed_in_a_commit_the_header_is_kept_with_it_or_not_at_all(tmp_path: Path, where: str) -> None:
    road = project(tmp_path)
    deliver(road, "books-1.csv", "1 05:00")
    times = "#2" if where.startswith("commit") else "#3"
    assert road.crash(f"{where}{times}").returncode == -signal.SIGKILL
    road.work()
    (key,) = {path.name for path in expected.folder(road.layout, "books").glob("*.headers.json")}
    (header,) = expected.read_headers(road.layout, "books", key.partition(".")[0])
    assert header.columns == ("sku", "price")
    assert road.broken_promises() == []


def test_a_header_too_long_to_keep_is_not_compared(tmp_path: Path) -> None:
    road = project(tmp_path, drift="fail")
    for number in (1, 2):
        header = ",".join(f"{number}c{column}" for column in range(expected.MOST_COLUMNS + 1))
        deliver(road, f"books-{number}.csv", f"{number} 05:00", rows="", header=header)
        road.work()
    assert road.files("transform", "failed") == []
    assert all(road.note(path).header == () for path in road.files("transform", "resolved"))


# --- once, whatever happens --------------------------------------------------------------------------------

TURN = "import sys; from tests.integration import test_expected as t; t.again(sys.argv[1])"


def again(root: str) -> None:
    """Look once more; called in a process of its own."""
    turn(roads.reopen(Path(root), "books"), "14 06:01")


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Road:
    """A day of which two things are to be told."""
    road = project(tmp_path_factory.mktemp("before") / "project", "books", "prices")
    usual_days(road, "books", "prices")
    deliver(road, "books-14.csv", "14 05:45", rows=1)
    road.work()
    return road


def end(road: Road) -> tuple[Any, Any]:
    """Give what is told and what is remembered in the end."""
    records = [
        expected.read(road.layout, "books", path.stem)
        for path in sorted(expected.folder(road.layout, "books").glob("*.json"))
        if ".headers" not in path.name
    ]
    # another copy of the project has notes that were written at another time
    return told(road), [{**json.loads(json.dumps(_facts(one))), "looked": 0} for one in records]


def _facts(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in ("name", "since", "came", "missing")} | {
        "deliveries": [(one.id, one.rows, dict(one.wrong)) for one in record.deliveries]
    }


@pytest.mark.parametrize(
    "at_point",
    [
        f"{point}:{when}{times}"
        for point in (Point.NEWS, Point.EXPECTED)
        for when in ("before", "after")
        for times in ("", "#2")
    ],
)
def test_killed_while_it_is_told_and_looked_at_again_the_end_is_the_same(
    before: Road, tmp_path: Path, at_point: str
) -> None:
    expected_end = roads.copy_of(before, tmp_path / "undisturbed")
    turn(expected_end, "14 06:01")
    road = roads.copy_of(before, tmp_path / "project")
    killed = subprocess.run(
        [sys.executable, "-c", TURN, str(road.root)],
        env={**os.environ, "ETL_CRASH_AT": at_point},
        cwd=Path(__file__).resolve().parents[2],
    )
    assert killed.returncode == -signal.SIGKILL

    turn(road, "14 06:01")

    assert end(road) == end(expected_end)
    assert kinds(road) == ["missing", "unusually small"]


@pytest.fixture
def _no_faults() -> Iterator[None]:
    yield
    points.crash_at = ""
    points.reached.clear()


@pytest.mark.usefixtures("_no_faults")
@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
@pytest.mark.parametrize("point", [Point.NEWS, Point.EXPECTED])
def test_a_disk_that_fails_stops_no_courier_and_loses_no_line(
    before: Road, tmp_path: Path, point: Point, error: str
) -> None:
    road = roads.copy_of(before, tmp_path / "project")
    points.reached.clear()
    points.crash_at = f"{point}:before={error}#*"
    turn(road, "14 06:01")
    points.crash_at = ""
    turn(road, "14 06:01")
    turn(road, "14 06:02")
    assert kinds(road) == ["missing", "unusually small"]


def test_two_calendars_tell_it_once(before: Road, tmp_path: Path) -> None:
    road = roads.copy_of(before, tmp_path / "project")
    lock = expected.lock(road.layout, "books")
    assert lock is not None
    with lock:
        turn(road, "14 06:01")
    assert told(road) == [], "another is at it"
    with road.opened() as app:
        clocks = [Clock(at("14 05:00")), Clock(at("14 05:00"))]
        both = [calendar.Calendar(app, clock) for clock in clocks]
        for when in ("14 06:01", "14 06:02"):
            for one, clock in zip(both, clocks, strict=True):
                clock.now = at(when)
                one.turn()
                for line in news.waiting(road.layout):
                    news.remove(road.layout, line)
                    told_lines.append(line.kind)
    assert sorted(told_lines) == ["missing", "unusually small"]
    told_lines.clear()


told_lines: list[str] = []


def test_a_courier_gives_it_its_turn_without_a_recorder(tmp_path: Path) -> None:
    road = project(tmp_path)
    clock = Clock(at("9 12:00"))
    with road.opened() as app:
        one = courier.Courier(app, clock=clock)
        one.turn()
        clock.now = at("10 06:00")
        one.turn()
        one.close()
    assert kinds(road) == ["missing"]


def test_a_record_that_nobody_understands_stops_no_courier(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    road = project(tmp_path)
    clock = Clock(at("9 12:00"))
    with road.opened() as app:
        one = courier.Courier(app, clock=clock)
        one.turn()
        (path,) = (road.data / "books" / ".expected").glob("*.json")
        path.write_text(json.dumps(json.loads(path.read_text()) | {"since": "noon"}))
        clock.now = at("10 06:00")
        assert one.turn() == courier.EVERY
        one.close()
    assert "what is expected is not looked at" in caplog.text


def test_while_nothing_changes_no_note_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    road = project(tmp_path)
    usual_days(road)
    folder = road.data / "books" / ".notes"
    os.utime(folder, (time.time() - 60, time.time() - 60))
    with road.opened() as app:
        clock = Clock(at("13 07:00"))
        one = calendar.Calendar(app, clock)
        one.turn()
        monkeypatch.setattr(os, "scandir", None)
        monkeypatch.setattr(notes, "glance_source", None)
        for _ in range(3):
            clock.now += calendar.EVERY
            one.turn()


def test_of_a_busy_expectation_a_bounded_number_is_remembered(tmp_path: Path) -> None:
    road = project(tmp_path)
    turn(road, "9 12:00")
    ids = []
    for number in range(expected.MOST + 5):
        ids.append(names.new_id("books", int((at("10 05:00") + number) * 1000)))
        note = notes.SourceNote(
            id=ids[-1],
            pipeline="books",
            given=f"books-{number}.csv",
            sha256=str(number),
            size=1,
            mtime=0,
            arrived=1,
        )
        notes.write_source(road.layout, note)
    for _ in range(2):  # a second calendar reads them all again
        turn(road, "10 06:01")
    record = next(
        record
        for path in expected.folder(road.layout, "books").glob("*.json")
        if (record := expected.read(road.layout, "books", path.stem)) is not None
    )
    assert [one.id for one in record.deliveries] == ids[5:]
    assert told(road) == []


# --- what is shown -----------------------------------------------------------------------------------------


def etl(road: Road, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert edge.run(["--config", str(road.root / "config"), *words]) == 0
    return capsys.readouterr().out


def test_the_morning_screen_says_what_was_expected_and_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    road = project(tmp_path, *FOUR)
    usual_days(road, *FOUR)
    road.spec["expect"][3]["by"] = "23:59"
    road.write()
    deliver(road, "books-14.csv", "14 05:45", rows=4)
    deliver(road, "prices-14.csv", "14 07:00", rows=9)
    road.work()
    monkeypatch.setattr(time, "time", lambda: at("14 12:00"))

    listed = json.loads(etl(road, capsys, "files", "--today", "--json"))
    out = etl(road, capsys, "files", "--today")

    found = {one["expected"]: one for one in listed if "expected" in one}
    assert {name: one["state"] for name, one in found.items()} == {
        "books-*.csv": "came",
        "prices-*.csv": "late",
        "stock-*.csv": "missing",
        "orders-*.csv": "awaited",
    }
    assert [one["kind"] for one in found["books-*.csv"]["wrong"]] == ["small"]
    assert found["books-*.csv"]["came"][0]["rows"] == 4
    assert "2 of 4 expected files came" in out
    assert "books-14.csv is unusually small" in out and "stock-*.csv did not come by 06:00 UTC" in out
    assert max(map(len, out.splitlines())) <= 80
    # nothing was told or written by looking
    assert told(road) == []
    assert "expected" not in etl(road, capsys, "files")
    with records.held(road.data, "courier"):  # it keeps the records, and nobody looks again
        assert "0 of 4 expected files came" in etl(road, capsys, "files", "--today")
        turn(road, "14 12:00")
        assert "2 of 4 expected files came" in etl(road, capsys, "files", "--today")


def test_check_warns_of_what_extract_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    road = project(tmp_path, "books", "prices")
    road.spec["extract"] = {"accept": ["books-2*"]}
    road.write()
    out = etl(road, capsys, "check")
    assert "expects books-*.csv\n" in out
    assert "expect[1].name: extract.accept refuses every such name; it has: books-2*" in out


def test_a_file_that_is_taken_while_it_is_looked_for_is_not_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    road = project(tmp_path, by="00:00")
    midnight = time.time() // 86_400 * 86_400
    turn(road, midnight - 1)
    road.drop("books-1.csv", "sku,price\n")
    waiting = came.waiting

    def and_then_taken(*arguments: Any) -> Iterator[float]:
        yield from list(waiting(*arguments))
        road.work()

    def taken_and_then(*arguments: Any) -> Iterator[float]:
        road.work()
        yield from waiting(*arguments)

    for one in (and_then_taken, taken_and_then):
        monkeypatch.setattr(came, "waiting", one)
        turn(road, time.time())
    assert "missing" not in kinds(road)
