"""One `recover`, whatever became of the worker that had the file: it died, had to stop, or was over its time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from etl import disk
from etl.files import fates, recovery
from etl.model import Reason
from tests.road import Road

OVERRAN = fates.Overran(reason=Reason(summary="it took too long", next="raise the limit"))
FATES = [fates.Died(why="ended with code 0"), fates.Stopped(), OVERRAN]


@pytest.fixture
def road(tmp_path: Path) -> Road:
    spec = {"transform": {"read": "csv"}, "load": {"locations": {"lake": {"kind": "files", "path": "lake"}}}}
    return Road(tmp_path, spec)


def die(road: Road, at: str) -> str:
    """Have the transform of a file die at a point, and give the file's name."""
    road.perform(road.drop("books.csv", "isbn\n1\n"))
    road.crash(at)
    return road.one("transform", "in_process").name


def recover(road: Road, name: str, fate: fates.Fate | None) -> bool:
    with road.opened() as app:
        return recovery.recover(road.layout, road.place("transform"), name, app.announce, fate) is not None


@pytest.mark.parametrize("fate", FATES)
def test_what_was_committed_is_finished_whatever_became_of_the_worker(road: Road, fate: fates.Fate) -> None:
    name = die(road, "commit:after")
    assert not recover(road, name, fate)
    assert road.one("transform", "resolved").name == name
    assert len(road.files("load", "working")) == 1
    assert road.note(road.one("transform", "resolved")).deaths == 0


def test_a_death_is_charged_and_the_third_says_how_it_came(road: Road) -> None:
    name = die(road, "stage-commit:before")
    for deaths in (1, 2):
        assert recover(road, name, FATES[0])
        assert road.note(road.one("transform", "working")).deaths == deaths
        road.crash("stage-commit:before")
    assert not recover(road, name, FATES[0])
    reason = road.reason(road.one("transform", "failed"))
    assert reason["cause"] == "the last time its worker ended with code 0"
    assert reason["attempt"] == 3


def test_a_stop_is_charged_to_nobody_and_forgives_nothing(road: Road) -> None:
    name = die(road, "stage-commit:before")
    recover(road, name, FATES[0])
    for _ in range(4):
        road.crash("stage-commit:before")
        assert recover(road, name, fates.Stopped())
        note = road.note(road.one("transform", "working"))
        assert (note.deaths, note.tries) == (1, 0)


def test_a_stop_in_the_middle_of_failing_forgets_that_it_had_come_to_rest(road: Road) -> None:
    road.drop("books.csv", "isbn\n1,2,3\n")
    road.crash("note-fail:after")
    name = road.one("transform", "in_process").name
    assert road.note(road.one("transform", "in_process")).ended == "failed"
    assert recover(road, name, fates.Stopped())
    assert road.note(road.one("transform", "working")).ended == ""


def test_over_its_time_it_fails_at_once_with_that_reason(road: Road) -> None:
    name = die(road, "stage-commit:before")
    assert not recover(road, name, OVERRAN)
    reason = road.reason(road.one("transform", "failed"))
    assert (reason["summary"], reason["attempt"]) == ("it took too long", 1)
    road.mend()  # throws its staging folder away
    assert road.broken_promises() == []


@pytest.mark.parametrize("fate", FATES[1:])
def test_who_finds_the_file_first_acts_on_what_was_foretold(road: Road, fate: Any) -> None:
    name = die(road, "stage-commit:before")
    fates.foretell(road.layout, road.place("transform"), name, fate)
    assert recover(road, name, None) is (fate == fates.Stopped())
    if fate == fates.Stopped():
        assert road.note(road.one("transform", "working")).deaths == 0
    else:
        assert road.reason(road.one("transform", "failed"))["summary"] == "it took too long"
    assert words(road) == []


def test_what_was_foretold_counts_for_the_attempt_in_hand_alone(road: Road) -> None:
    name = die(road, "stage-commit:before")
    fates.foretell(road.layout, road.place("transform"), name, OVERRAN)
    [word] = words(road)
    told = word.read_bytes()
    recover(road, name, fates.Stopped())
    road.crash("stage-commit:before")
    word.write_bytes(told)  # as if nobody had removed it
    assert recover(road, name, None)
    assert road.note(road.one("transform", "working")).deaths == 1


def test_what_was_foretold_of_a_file_that_was_done_all_the_same_is_forgotten(road: Road) -> None:
    name = die(road, "commit:after")
    fates.foretell(road.layout, road.place("transform"), name, fates.Stopped())
    road.mend()  # another was faster
    assert not recover(road, name, fates.Stopped())
    assert road.one("transform", "resolved").name == name
    assert words(road) == []


def words(road: Road) -> list[Path]:
    """Give what was foretold and not forgotten."""
    return list(road.folder("transform", ".notes").glob(".*.fate"))


def test_a_second_link_on_a_file_in_work_takes_it_from_nobody(road: Road, tmp_path: Path) -> None:
    name = die(road, "stage-commit:before")
    path = road.one("transform", "in_process")
    os.link(path, tmp_path / "backup")
    held = disk.lock_regular(path, links=None)
    assert held is not None
    with held:
        assert not recover(road, name, None)
        assert path.exists()
    assert recover(road, name, None)
    assert road.one("transform", "working").name == name


def test_a_rename_by_link_that_was_cut_in_two_never_was_a_claim(road: Road) -> None:
    name = die(road, "stage-commit:before")
    path = road.one("transform", "in_process")
    os.link(path, road.folder("transform", "working") / name)
    assert recover(road, name, None)
    assert not path.exists()
    assert road.note(road.one("transform", "working")).deaths == 0
    road.work()
    assert road.one("transform", "resolved").name == name
