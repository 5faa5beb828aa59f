"""One `recover`, whatever became of the worker that had the file: it died, had to stop, or was over its time."""

from __future__ import annotations

from pathlib import Path

import pytest

from etl.files import moves
from etl.model import Reason
from tests.road import Road

OVERRAN = moves.Overran(reason=Reason(summary="it took too long", next="raise the limit"))
FATES = [moves.Died(why="ended with code 0"), moves.Stopped(), OVERRAN]


@pytest.fixture
def road(tmp_path: Path) -> Road:
    spec = {"transform": {"read": "csv"}, "load": {"locations": {"lake": {"kind": "files", "path": "lake"}}}}
    return Road(tmp_path, spec)


def die(road: Road, at: str) -> str:
    """Have the transform of a file die at a point, and give the file's name."""
    road.perform(road.drop("books.csv", "isbn\n1\n"))
    road.crash(at)
    return road.one("transform", "in_process").name


def recover(road: Road, name: str, fate: moves.Fate) -> bool:
    with road.opened() as app:
        return moves.recover(road.layout, road.place("transform"), name, app.announce, fate) is not None


@pytest.mark.parametrize("fate", FATES)
def test_what_was_committed_is_finished_whatever_became_of_the_worker(road: Road, fate: moves.Fate) -> None:
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
        assert recover(road, name, moves.Stopped())
        note = road.note(road.one("transform", "working"))
        assert (note.deaths, note.tries) == (1, 0)


def test_a_stop_in_the_middle_of_failing_forgets_that_it_had_come_to_rest(road: Road) -> None:
    road.drop("books.csv", "isbn\n1,2,3\n")
    road.crash("note-fail:after")
    name = road.one("transform", "in_process").name
    assert road.note(road.one("transform", "in_process")).ended == "failed"
    assert recover(road, name, moves.Stopped())
    assert road.note(road.one("transform", "working")).ended == ""


def test_over_its_time_it_fails_at_once_with_that_reason(road: Road) -> None:
    name = die(road, "stage-commit:before")
    assert not recover(road, name, OVERRAN)
    reason = road.reason(road.one("transform", "failed"))
    assert (reason["summary"], reason["attempt"]) == ("it took too long", 1)
    road.mend()  # throws its staging folder away
    assert road.broken_promises() == []
