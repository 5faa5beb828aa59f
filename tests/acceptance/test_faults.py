"""A disk is full, or answers with an error, right before and right after everything that is done to it.

Nothing half-written may lie in a status folder, nobody is charged for it, and once the disk answers again all is
worked by itself: the right rows, each once. The list of points comes from the code.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from etl import points
from etl.errors import EtlError
from etl.files import moves, notes
from etl.model import Status
from etl.points import Point
from tests import road as roads
from tests.acceptance import test_crash_points as crash_points
from tests.elsewhere import ON_THE_ROAD
from tests.road import Road

URL = crash_points.SQLITE


@pytest.fixture(scope="module")
def beginning(tmp_path_factory: pytest.TempPathFactory) -> Road:
    road = crash_points.begin(tmp_path_factory.mktemp("beginning") / "project")
    for section in ("extract", "load"):
        road.spec[section]["retry"] = {"times": 5, "first": "0s"}
    road.write()
    return road


@pytest.fixture
def road(beginning: Road, tmp_path: Path) -> Road:
    return roads.copy_of(beginning, tmp_path / "project")


@contextmanager
def failing(at: str) -> Iterator[None]:
    """Let the disk answer with an error at a point: `claim:before=ENOSPC`, `commit:after=EIO#*`, …"""
    points.crash_at = at
    points.reached.clear()
    try:
        # a command says what happened and ends; the tree is what counts here
        with suppress(OSError, EtlError):
            yield
        assert points.reached, f"{at} is on nobody's road"
    finally:
        points.crash_at = ""


def meet(road: Road, at: str) -> None:  # noqa: PLR0912, PLR0915 - one case for each point
    """Meet the fault, doing that which passes there."""
    match Point(at.partition(":")[0]):
        case Point.NOTE_REQUEST | Point.ARRIVE:
            with failing(at):
                road.ask()
        case Point.DISCARD:
            with failing(at):
                name = road.one("transform", "failed").name
                moves.discard(road.layout, road.place("transform"), name, "not wanted")
        case Point.LIFT:
            crash_points.into_a_folder(road)
            with failing(at):
                road.lift()
            road.lift()
        case Point.USE_UP:
            crash_points.with_a_done_file(road)
            with failing(at):
                road.work(patient=True)
        case Point.NOTE_DEATH | Point.RECOVER:
            road.crash("stage-commit:before")
            with failing(at):
                road.mend()
        case Point.MARK_AWAY:
            with crash_points.unreachable(road), failing(at):
                road.work(patient=True)
        case Point.KEY_WAIT:
            with crash_points.another_of_its_key_is_worked(road), failing(at):
                road.work(patient=True)
        case Point.SPOOL | Point.NOTE_VERDICT:
            crash_points.ended_with_a_hook(road)
            with failing(at):
                road.judge()
            road.judge()
        case Point.FOLLOW:
            crash_points.ended_with_a_hook(road)
            road.judge()
            with failing(at):
                road.follow()
            road.follow()
        case Point.LOG:
            crash_points.talkative(road)
            with failing(at):
                road.work(patient=True)
        case Point.MARK_PAUSED | Point.MARK_RESUMED | Point.NOTE_UNSERVED | Point.UNSERVED_CLEAR:
            crash_points.by_an_operator(road, at, failing)
        case Point.MARK_BACK:
            with crash_points.unreachable(road):
                road.work(patient=True)
            with failing(at):
                road.work()
        case _:
            with failing(at):
                road.work(patient=True)


def half_written(road: Road) -> list[str]:
    """Give what lies in a status folder and is neither a whole file nor a reason."""
    folders = [road.layout.status(place, status) for place in road.places() for status in Status]
    return [str(path) for folder in folders for path in folder.iterdir() if path.name.startswith(".")]


def deaths(road: Road) -> int:
    """Count the deaths that were charged to any file."""
    found = [
        path for path in road.data.glob("books/**/.notes/*.json") if path.parent.parent != road.data / "books"
    ]
    return sum(notes.from_facts(notes._load(path) or {}).deaths for path in found)


def every_case() -> Iterator[str]:
    for point in ON_THE_ROAD:
        yield f"{point}:before=ENOSPC#*"
        yield f"{point}:after=ENOSPC"
        yield f"{point}:before=EIO"
        yield f"{point}:after=EIO#*"
    # the first time is the pull; these are later on the road
    for point in (Point.STAGE_CHILD, Point.COMMIT, Point.RELEASE_CHILD, Point.RESOLVE, Point.CLAIM):
        yield from (f"{point}:{when}=ENOSPC#{times}" for when in ("before", "after") for times in (3, 6))


@pytest.mark.parametrize("at", list(every_case()))
def test_a_disk_that_fails_at_any_point_costs_nothing_but_time(road: Road, at: str) -> None:
    meet(road, at)
    assert half_written(road) == []

    (road.root / "flag").touch()
    road.work()
    # a pull that could not say that it was done has not taken the source away; the next one does
    road.ask()
    road.work()

    if Point(at.partition(":")[0]) not in (Point.NOTE_DEATH, Point.RECOVER):
        assert deaths(road) == 0
    crash_points.check(road, crash_points.absolute(road, URL), books="old", later="old")
