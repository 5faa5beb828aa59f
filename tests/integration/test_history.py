"""Verbs that look say the same whether the ledger answers or the folders do, and fall back to the folders."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import etl
from etl.cli import edge, running
from etl.files import moves, survey
from etl.ledger import opening, queries
from etl.model import Status
from etl.queues.updates import Heard
from etl.services import history, records, remembered
from etl.services.recorder import Recorder
from tests.queue_helpers import wait_until
from tests.road import Road

VIEWS = [
    ["status"],
    ["status", "books"],
    ["files"],
    ["files", "--today"],
    ["files", "books"],
    ["failed"],
    ["failed", "books"],
    ["failed", "--group"],
]


class Silence:
    """Updates that nobody told: everything is found in the folders."""

    def read(self, position: str, most: int, seconds: float) -> Heard:
        return Heard(updates=(), position=position)


@pytest.fixture
def road(tmp_path: Path) -> Road:
    """A project in which about everything that can be seen has happened."""
    road = Road(
        tmp_path,
        {
            "extract": {"duplicates": "skip", "complete": {"settle": "100ms", "done": "{name}.ok"}},
            "transform": {
                "read": "csv",
                "units_per_file": 2,
                "schema": {"properties": {"price": {"type": "number"}}},
                "bad_rows": {"at_most": "60%"},
            },
            "load": {
                "locations": {
                    "warehouse": {
                        "kind": "sql",
                        "url": "sqlite:///warehouse.db",
                        "table": "books",
                        "create": True,
                    },
                    "lake": {"kind": "files", "path": "lake"},
                    "cellar": {
                        "kind": "sql",
                        "url": "postgresql+psycopg://u:p@127.0.0.1:1/x",
                        "table": "books",
                    },
                }
            },
        },
        settings={"reserve": "0B"},
    )
    good, bad = "sku,price\na,1\nb,2\nc,3\n", "sku,price\na,one\nb,2\nc,3\n"
    for name, text in {
        "plain.csv": good,
        "with two  spaces.csv": good.replace("1", "4"),
        os.fsdecode(b"caf\xe9 \\udcff.csv"): good.replace("1", "5"),
        "some bad.csv": bad,
        "broken.csv": "sku,price\na,one\nb,two\n",
        "thrown away.csv": "sku,price\nx,one\ny,two\n",
    }.items():
        road.drop(name, text)
        road.drop(f"{name}.ok", "")
        road.work(patient=True)
    road.drop("plain.csv", good)
    road.drop("plain.csv.ok", "")
    etl.publish("books", {"sku": "m", "price": 9}, {"priority": "high"}, config=road.root / "config")
    road.work(patient=True)
    for path in road.files("transform", "failed"):
        if path.name.startswith("thrown"):
            moves.discard(road.layout, road.place("transform"), path.name, "not wanted")
    _leave_about(road)
    return road


def _leave_about(road: Road) -> None:
    """Put what nobody has taken yet, and what never is taken."""
    road.drop("waits.csv", "sku,price\n")
    road.drop(os.fsdecode(b"\xff.csv"), "sku,price\n")
    road.drop("half.csv.part", "sku")
    folder = road.folder("extract", "working", "a folder")
    folder.mkdir()
    (folder / "inside.csv").write_text("sku,price\n")
    (road.folder("extract", "failed") / os.fsdecode(b"odd\xfe.csv")).write_text("by hand")


@pytest.fixture(autouse=True)
def unmoved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no clock in what is printed."""
    monkeypatch.setattr(survey, "age", lambda moment: moment)
    monkeypatch.setattr(running, "facts", lambda config: [])


@pytest.fixture
def recorded(road: Road) -> Iterator[Road]:
    """The same, with a recorder that lives and has not begun."""
    with records.held(road.data, "recorder"):
        yield road


def record(road: Road) -> None:
    """Have everything written, as a recorder does."""
    with road.opened() as app:
        recorder = Recorder(app, Silence())  # type: ignore[arg-type]
        try:
            wait_until(lambda: _is_settled(recorder, road), "all deliveries stand")
        finally:
            recorder.close()


def _is_settled(recorder: Recorder, road: Road) -> bool:
    recorder.turn()
    with road.opened() as app:
        ledger = opening.for_reading(app.config, app.data_id)
        with ledger.reading() as connection:
            left = [one for one in queries.touched(connection) if not one.open]
        ledger.close()
    return not left


def said(road: Road, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    capsys.readouterr()
    assert edge.run(["--config", str(road.root / "config"), *arguments]) == 0
    told = capsys.readouterr()
    return told.out, told.err


def forbid_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("the folders were read")

    for name in ("_counts", "_arrived", "_failed", "_causes", "_find"):
        monkeypatch.setattr(history, name, never)


def test_the_ledger_and_the_folders_give_the_same_answers(
    recorded: Road, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [[*view, *more] for view in VIEWS for more in ([], ["--json"])]
    facts = json.loads(said(recorded, capsys, "files", "--json")[0])
    assert {one["verdict"] for one in facts} >= {"working", "failed"} and len(facts) == 8
    for one in facts:
        asked += [["show", one["id"]], ["show", one["id"][:14], "--json"], ["show", one["name"]]]
    before = {tuple(words): said(recorded, capsys, *words) for words in asked}
    assert all("no ledger" in err and err.count("\n") == 1 for _, err in before.values())
    record(recorded)
    forbid_folders(monkeypatch)
    for words, (out, _) in before.items():
        assert said(recorded, capsys, *words) == (out, ""), words


def test_the_morning_screen_fits_80_columns(recorded: Road, capsys: pytest.CaptureFixture[str]) -> None:
    record(recorded)
    out, _ = said(recorded, capsys, "files", "--today")
    assert max(map(len, out.splitlines())) <= 80
    assert "plain.csv" in out and "working" in out and "held back" in out


def test_without_a_recorder_the_ledger_is_not_asked(
    road: Road, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record(road)
    monkeypatch.setattr(remembered, "opened", None)
    assert said(road, capsys, "failed")[1] == ""


def test_a_ledger_that_is_behind_is_told_and_the_folders_are_read(
    recorded: Road, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record(recorded)
    (recorded.folder("extract", "failed") / "late.csv").write_text("by hand")
    assert "late.csv" not in said(recorded, capsys, "failed")[0], "within its time the ledger is believed"
    monkeypatch.setattr(remembered, "BEHIND", 0.0)
    out, err = said(recorded, capsys, "failed")
    assert "late.csv" in out and "is behind" in err and err.count("\n") == 1


def test_a_damaged_ledger_is_told_and_the_folders_are_read(
    recorded: Road, capsys: pytest.CaptureFixture[str]
) -> None:
    record(recorded)
    expected = said(recorded, capsys, "status", "--json")[0]
    for path in (recorded.data / ".etl").glob("ledger.db*"):
        path.write_bytes(b"no database at all" * 100)
    out, err = said(recorded, capsys, "status", "--json")
    assert out == expected and "does not answer" in err and err.count("\n") == 1


def test_what_the_ledger_has_not_heard_of_is_shown_all_the_same(
    recorded: Road, capsys: pytest.CaptureFixture[str]
) -> None:
    record(recorded)
    recorded.drop("new.csv", "sku,price\nz,1\n")
    recorded.drop("new.csv.ok", "")
    recorded.work(patient=True)
    assert "new.csv" in said(recorded, capsys, "show", "new.csv")[0]


def test_what_an_operator_moves_back_is_found_at_once(
    recorded: Road, capsys: pytest.CaptureFixture[str]
) -> None:
    record(recorded)
    name = next(one.name for one in recorded.files("transform", "failed") if one.name.startswith("broken"))
    recorded.move_back(recorded.folder("transform", "failed") / name)
    assert edge.run(["--config", str(recorded.root / "config"), "retry", name]) == 1
    assert "no failed file matches" in capsys.readouterr().err
    assert name in survey.listing(recorded.layout, recorded.place("transform"), Status.WORKING)
