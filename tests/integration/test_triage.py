"""Failed files are chosen at one moment and moved one by one, each act kept before it is done; nothing goes round."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etl import disk, points
from etl.cli import bulk, edge
from etl.files import acts, arrivals, causes, moves
from etl.files.acts import Act
from etl.points import Point
from etl.services import triage
from tests import road as roads
from tests.road import Road

HANDLER = """
from pathlib import Path

def to_unit(row):
    if row["n"] in (Path(__file__).parents[2] / "wrong").read_text().split():
        raise ValueError("not yet")
    return row
"""


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> Road:
    """Five files that failed, two of them for want of a column."""
    root = tmp_path_factory.mktemp("failures")
    (root / "wrong").write_text("0 1 2")
    road = Road(
        root,
        {
            "transform": {"read": "csv", "handler": "handler:to_unit", "columns": {"n": "n"}},
            "load": {"locations": {"lake": {"kind": "files", "path": "lake"}}},
        },
        handlers={"handler": HANDLER},
        # nobody answers: jobs are left to the scan
        settings={"reserve": "0B", "redis": "redis://127.0.0.1:1"},
    )
    for number in range(3):
        road.drop(f"value{number}.csv", f"n\n{number}\n")
    for number in range(2):
        road.drop(f"column{number}.csv", f"m\n{number}\n")
    road.work()
    return road


@pytest.fixture
def road(failures: Road, tmp_path: Path) -> Road:
    return roads.copy_of(failures, tmp_path / "project")


def etl(road: Road, *words: str) -> int:
    """Run a command in this process."""
    return edge.run(["--config", str(road.root / "config"), *words])


def facts(road: Road, capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    etl(road, *words, "--json")
    return json.loads(capsys.readouterr().out)


def stems(road: Road, *folder: str) -> list[str]:
    return [path.name.partition("~")[0] for path in road.files(*folder)]


def failed(road: Road) -> list[str]:
    return stems(road, "transform", "failed")


def chosen(road: Road, **wanted: Any) -> list[triage.FailedFile]:
    with road.opened() as app:
        return triage.choose(app.config, road.layout, triage.Wanted(**wanted), time.time())


# --- choosing ----------------------------------------------------------------------------------------------


def test_the_word_of_a_cause_can_be_pasted_into_retry(road: Road, capsys: pytest.CaptureFixture[str]) -> None:
    groups = {one["why"]: one for one in facts(road, capsys, "failed", "--group")}
    assert {why: one["files"] for why, one in groups.items()} == {
        "n: missing column": 2,
        "ValueError: not yet (handler.py:…)": 3,
    }
    assert all(one["first"] <= one["last"] <= time.time() for one in groups.values())
    word = groups["n: missing column"]["cause"]
    etl(road, "failed", "--group")
    assert word in capsys.readouterr().out
    assert all(word in one["causes"] for one in facts(road, capsys, "failed") if "column" in one["name"])

    assert etl(road, "retry", "--cause", word) == 0

    assert "2 files waiting" in capsys.readouterr().out
    assert stems(road, "transform", "working") == ["column0", "column1"]
    assert etl(road, "retry", "--cause", "not yet (handler.py:…)") == 0
    assert failed(road) == []


def test_age_recipe_and_names_narrow_it_down(road: Road) -> None:
    old = road.files("transform", "failed")[0]
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    (recipe,) = {road.reason(path)["recipe"] for path in (old,)}

    assert [one.name for one in chosen(road, older_than=3600.0)] == [old.name]
    assert len(chosen(road, newer_than=3600.0)) == 4
    assert [one.name for one in chosen(road, recipe=recipe[:10])] == [old.name]
    assert chosen(road, recipe="f" * 64) == []
    first, last = (path.name for path in road.files("transform", "failed")[::4])
    file_id = last.partition("~")[2].partition(".")[0]
    assert {one.name for one in chosen(road, files=(f"x/{first}", file_id[:12]))} == {first, last}
    assert [one.name for one in chosen(road, files=("value1.csv",), stage="transform")] != []
    assert chosen(road, stage="load") == chosen(road, location="lake") == []
    with pytest.raises(Exception, match="no failed file matches 'nothing'"):
        chosen(road, files=("nothing",))


def test_a_recipe_is_found_by_what_a_location_refused(tmp_path: Path) -> None:
    road = Road(
        tmp_path,
        {
            "transform": {"read": "csv"},
            "load": {
                "locations": {
                    "shop": {"kind": "sql", "url": "sqlite:///no/folder/x.db", "table": "t", "create": True}
                },
                "retry": {"times": 0},
            },
        },
    )
    road.drop("a.csv", "n\n1\n")
    road.work()
    road.one("load", "shop", "failed")
    recipe = road.note(road.one("transform", "resolved")).recipe

    assert [one.place.location for one in chosen(road, recipe=recipe[:8])] == ["shop"]
    assert chosen(road, recipe="0" * 64) == []


def test_a_path_into_one_folder_means_no_copy_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = {"kind": "sql", "url": "sqlite:///no/folder/x.db", "table": "t", "create": True}
    road = Road(
        tmp_path,
        {
            "transform": {"read": "csv"},
            "load": {"locations": {"shop": nowhere, "hall": nowhere | {"table": "u"}}, "retry": {"times": 0}},
        },
    )
    road.drop("a.csv", "n\n1\n")
    road.work()
    path = road.one("load", "shop", "failed")
    both = ["hall", "shop"]

    def meant(*files: str) -> list[str]:
        return sorted(str(one.place.location) for one in chosen(road, files=files))

    assert meant(path.name) == meant(f"books/load/{path.name}") == both
    assert meant(str(path)) == meant(f"shop/failed/{path.name}") == ["shop"]
    assert meant(str(path), f"books/load/hall/failed/{path.name}") == both
    monkeypatch.chdir(path.parent)
    assert meant(path.name) == meant(f"../failed/{path.name}") == ["shop"]
    for wrong in (f"books/transform/failed/{path.name}", f"other/load/shop/failed/{path.name}"):
        with pytest.raises(Exception, match="no failed file matches"):
            meant(str(path), wrong)


# --- bounded by a snapshot ---------------------------------------------------------------------------------


def test_what_others_do_meanwhile_is_left_alone_and_said(road: Road) -> None:
    found = chosen(road, pipeline="books")
    gone, again, corrected, *rest = found
    moves.retry(road.layout, gone.place, gone.name)
    moves.retry(road.layout, again.place, again.name)
    road.perform(road.folder("transform", "working") / again.name)
    path = road.folder("transform", "failed") / corrected.name
    path.write_text("n\n7\n")

    tally = bulk.carry_out(
        triage.act(road.layout, found, bulk.act("retry"), lambda one: _retry(road, one)),
        len(found),
        lambda done: "",
        quiet=True,
    )

    assert {one.file.name: one.left for one in tally.done if one.left} == {
        gone.name: "it was moved by somebody else meanwhile",
        again.name: "it was tried again or changed meanwhile",
        corrected.name: "it was tried again or changed meanwhile",
    }
    assert (tally.moved, tally.left, tally.code) == (2, 3, 0)
    (act,) = acts.read(road.layout)
    assert sorted(act.files) == sorted(map(str, rest))


def _retry(road: Road, one: triage.FailedFile) -> Path:
    moves.retry(road.layout, one.place, one.name)
    return road.folder("transform", "working") / one.name


def test_one_that_is_taken_in_the_last_instant_is_said_too(road: Road) -> None:
    found = chosen(road, pipeline="books")[:2]

    def late(one: triage.FailedFile) -> Path:
        os.rename(road.folder("transform", "failed") / one.name, road.root / one.name)
        return _retry(road, one)

    done = list(triage.act(road.layout, found, bulk.act("retry"), late))

    assert [one.left for one in done] == ["it was moved by somebody else meanwhile"] * 2
    assert acts.read(road.layout) == [], "it was not done after all"


def test_one_that_a_worker_takes_at_once_was_moved_all_the_same(
    road: Road, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = chosen(road, pipeline="books")[:1]
    rename = disk.rename

    def taken_at_once(source: Path, target: Path) -> None:
        rename(source, target)
        if target.parent.name == "working":
            rename(target, target.parent.with_name("in_process") / target.name)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "rename", taken_at_once)
        acting = triage.act(road.layout, found, bulk.act("retry"), lambda one: _retry(road, one))
        (done,) = acting
        with road.opened() as app:
            waiting = arrivals.request(app.layout, "books", {})

    assert done.to is not None and done.left == ""
    assert [act.files for act in acts.read(road.layout)] == [(str(found[0]),)]
    assert [path.name for path in road.files("extract", ".requests", "in_process")] == [waiting.name]


def test_of_a_hundred_files_of_which_twenty_fail_again_each_is_tried_once(tmp_path: Path) -> None:
    (tmp_path / "wrong").write_text(" ".join(map(str, range(100))))
    road = Road(
        tmp_path,
        {
            "transform": {"read": "csv", "handler": "handler:to_unit"},
            "load": {"locations": {"lake": {"kind": "files", "path": "lake"}}},
        },
        handlers={"handler": HANDLER},
        settings={"reserve": "0B"},
    )
    for number in range(100):
        road.drop(f"{number}.csv", f"n\n{number}\n", stage="transform")  # type: ignore[arg-type]
    road.work()
    assert len(failed(road)) == 100
    (tmp_path / "wrong").write_text(" ".join(map(str, range(20))))
    found = chosen(road, cause=_word(road))
    assert len(found) == 100

    def move(one: triage.FailedFile) -> Path:
        target = _retry(road, one)
        road.perform(target)  # it fails again while others still wait for their turn
        return target

    tally = bulk.carry_out(
        triage.act(road.layout, found, bulk.act("retry"), move, together=1),
        len(found),
        lambda done: "",
        pause=0.0001,
        quiet=True,
    )

    assert tally.moved == 100 and len(failed(road)) == 20
    attempts = [
        road.note(path).attempt
        for folder in ("failed", "resolved")
        for path in road.files("transform", folder)
    ]
    assert sorted(attempts) == [2] * 100, "100 attempts, not more"
    assert len(acts.read(road.layout)) == 100


def _word(road: Road) -> str:
    path = road.files("transform", "failed")[0]
    (cause,) = causes.of(road.reason(path))
    return causes.word(road.place("transform"), cause)


@pytest.mark.parametrize("together", [1, 100])
def test_stopped_in_between_it_says_what_was_done_and_keeps_no_more_than_that(
    road: Road, together: int
) -> None:
    found = chosen(road, pipeline="books")

    def move(one: triage.FailedFile) -> Path:
        if one is found[1]:
            os.kill(os.getpid(), signal.SIGINT)
        return _retry(road, one)

    doing = triage.act(road.layout, found, bulk.act("retry"), move, together=together)
    began = time.monotonic()
    tally = bulk.carry_out(doing, len(found), lambda done: "", pause=0.05, quiet=True)

    assert (tally.moved, tally.stopped, tally.code) == (2, True, 130)
    assert bulk.summed_up(tally, "waiting") == "2 files waiting, 3 not come to: stopped"
    assert time.monotonic() - began < 5 and len(failed(road)) == 3
    told = [one for act in acts.read(road.layout) for one in act.files]
    assert told == [str(one) for one in found[:2]]


# --- discarding --------------------------------------------------------------------------------------------


def test_discard_needs_a_reason_and_deletes_nothing(road: Road, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name: path.read_bytes() for path in road.files("transform", "failed")}
    assert etl(road, "discard", "-p", "books", "--because", "  ") == 2
    assert "say why" in capsys.readouterr().err
    assert etl(road, "discard", "-p", "books", "--because", "x", "--dry-run") == 0
    assert "5 files; nothing was done" in capsys.readouterr().out

    assert etl(road, "discard", "-p", "books", "--because", "the sender\nwithdrew them ") == 0

    archive = road.data / "archive" / "discarded"
    kept = {path.name: path for path in archive.rglob("*") if path.is_file()}
    assert {name: kept[name].read_bytes() for name in before} == before
    whys = [json.loads(kept[f"{name}.reason.json"].read_text()) for name in before]
    assert {why["discarded"] for why in whys} == {"the sender withdrew them"}
    assert all(why["summary"] and why["recipe"] for why in whys)
    assert failed(road) == [] and road.broken_promises() == []


# --- acts --------------------------------------------------------------------------------------------------


def test_each_act_is_shown_with_who_and_when(
    road: Road, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_USER", "anna\nBcc: x")
    etl(road, "retry", "value0.csv", "value1.csv")
    etl(road, "discard", "column0.csv", "--because", "old\x1b[31m")
    etl(road, "pause", "books/load", "--because", "a new table")
    etl(road, "resume", "books/load")

    told = facts(road, capsys, "acts")

    assert [(one["what"], one["about"], len(one["files"]), one["because"]) for one in told] == [
        ("retry", "", 2, ""),
        ("discard", "", 1, "old%1B[31m"),
        ("pause", "books/load", 0, "a new table"),
        ("resume", "books/load", 0, ""),
    ]
    assert all(one["who"].startswith("anna%0ABcc: x@") and "(as " in one["who"] for one in told)
    assert all(abs(one["at"] - time.time()) < 60 for one in told)
    for words in (["acts", "books"], ["show", "column0.csv"], ["show", "column0.csv", "--tree"]):
        capsys.readouterr()
        etl(road, *words)
        out = capsys.readouterr().out
        assert "discard by anna" in out and "\x1b[31m" not in out, words
    assert [one["what"] for one in facts(road, capsys, "show", "value0.csv")[0]["acts"]] == ["retry"]
    assert [one["what"] for one in facts(road, capsys, "show", "value0.csv", "--tree")[0]["acts"]] == [
        "retry"
    ]
    assert facts(road, capsys, "acts", "--since", "1ms") == []


def test_a_line_that_was_cut_short_spoils_no_other(road: Road) -> None:
    act = Act(what="retry", who="anna@host", at=time.time(), files=("books/transform/a",))
    acts.record(road.layout, act)
    (path,) = acts.folder(road.layout).glob("*.jsonl")
    with path.open("ab") as lines:
        lines.write(b'{"what": "ret')
    acts.record(road.layout, act)

    assert len(acts.read(road.layout)) == 2
    assert path.stat().st_mode & 0o060 == 0o060, "others on call add lines too"


@pytest.mark.parametrize("at", ["before", "after"])
def test_killed_at_the_line_of_an_act_and_done_again_it_is_done_once(road: Road, at: str) -> None:
    assert road.etl("retry", "-p", "books", ETL_CRASH_AT=f"{Point.ACT}:{at}").returncode == -signal.SIGKILL
    assert len(failed(road)) == 5, "nothing is done before its line"

    assert etl(road, "retry", "-p", "books") == 0

    assert failed(road) == [] and len(road.files("transform", "working")) == 5
    assert len(acts.read(road.layout)) == (1 if at == "before" else 2)


@pytest.fixture
def _no_faults() -> Iterator[None]:
    yield
    points.crash_at = ""
    points.reached.clear()


@pytest.mark.usefixtures("_no_faults")
@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
def test_where_an_act_cannot_be_kept_nothing_is_done(
    road: Road, capsys: pytest.CaptureFixture[str], error: str
) -> None:
    points.crash_at = f"{Point.ACT}:before={error}"

    assert etl(road, "discard", "-p", "books", "--because", "x") in (1, 2)

    assert "etl: " in capsys.readouterr().err
    assert len(failed(road)) == 5 and acts.read(road.layout) == []
