"""A worker is killed right before and right after everything it does to a disk or a database.

Then the handler and `units_per_file` change, what died is recovered, and all that waits is worked again: the
right rows, each once, of one recipe. The list of points comes from the code; one without a case fails here.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from etl.files import arrivals, key_locks, notes, outbox, paused
from etl.model import Status
from etl.points import Point
from tests import road as roads
from tests.elsewhere import ON_THE_ROAD
from tests.road import Road

ROWS = 50
#: lines of the source file (the header is line 1) whose row the schema refuses, and whose unit the database does.
BAD_ROW, BAD_UNIT = 24, 33
TABLE = """CREATE TABLE books (
    id INTEGER, price DOUBLE PRECISION CHECK (price >= 0), mark TEXT,
    _etl_file TEXT, _etl_generation INTEGER, _etl_line INTEGER)"""
HANDLER = """
from pathlib import Path
from etl.errors import Retryable

def to_unit(row):
    if row["price"] == "later" and not (Path(__file__).parents[2] / "flag").exists():
        raise Retryable("not yet")
    return {"id": row["id"], "price": row["price"].replace("later", "1"), "mark": "old"}
"""
SQLITE = "sqlite:///warehouse.db"


def lines() -> str:
    prices = {BAD_ROW: "cheap", BAD_UNIT: "-1"}
    return "id,price\n" + "".join(f"{line},{prices.get(line, line)}\n" for line in range(2, ROWS + 2))


def begin(root: Path, url: str = SQLITE) -> Road:
    """Make a project in which every point lies on the road of what waits."""
    root.mkdir()
    source = root / "in"
    source.mkdir()
    (source / "books.csv").write_text(lines())
    road = Road(
        root,
        {
            "extract": {"sources": [{"path": "in", "after": "delete"}], "accept": ["*.csv"]},
            "transform": {
                "read": "csv",
                "handler": "handler:to_unit",
                "schema": {
                    "required": ["id", "price"],
                    "properties": {"id": {"type": "integer"}, "price": {"type": "number"}},
                },
                "units_per_file": 10,
                "retry": {"times": 5, "first": "0s"},
            },
            "load": {
                "locations": {
                    "warehouse": {"kind": "sql", "url": url, "table": "books", "mode": "append"},
                    "lake": {"kind": "files", "path": "lake"},
                }
            },
        },
        handlers={"handler": HANDLER},
    )
    road.spec["load"]["locations"]["warehouse"]["lineage"] = True
    road.write()
    roads.query(absolute(road, url), TABLE)
    # one that fails, with an older twin that has to be put away first; one that is put off; the one that is pulled
    road.drop("broken.csv", "id\n1\n")
    road.work()
    failed = road.one("transform", "failed")
    shutil.copy(failed, road.folder("transform", "working"))
    road.drop("later.csv", "id,price\n1000,later\n")
    road.ask()
    return road


def absolute(road: Road, url: str) -> str:
    return url.replace("sqlite:///", f"sqlite:///{road.root}/")


@pytest.fixture(scope="module")
def beginning(tmp_path_factory: pytest.TempPathFactory) -> Road:
    return begin(tmp_path_factory.mktemp("beginning") / "project")


@pytest.fixture
def road(beginning: Road, tmp_path: Path) -> Road:
    return roads.copy_of(beginning, tmp_path / "project")


def kill(road: Road, at: str) -> None:  # noqa: PLR0912, PLR0915 - one case for each point
    """Have a process killed at a point, doing that which passes there."""
    match Point(at.partition(":")[0]):
        case Point.NOTE_REQUEST | Point.ARRIVE:
            killed = road.crash(at, "ask")
        case Point.DISCARD:
            name = road.one("transform", "failed").name
            killed = road.crash(at, "discard", "transform", name)
        case Point.LIFT:
            into_a_folder(road)
            killed = road.crash(at, "lift")
        case Point.USE_UP:
            with_a_done_file(road)
            killed = road.crash(at)
        case Point.NOTE_DEATH | Point.RECOVER:
            road.crash("stage-commit:before")
            killed = road.crash(at, "mend")
        case Point.MARK_AWAY:
            with unreachable(road):
                killed = road.crash(at, "wait")
        case Point.KEY_WAIT:
            with another_of_its_key_is_worked(road):
                killed = road.crash(at)
        case Point.MARK_BACK:
            with unreachable(road):
                road.work(patient=True)
            killed = road.crash(at)
        case Point.MARK_PAUSED:
            killed = road.crash(at, "pause")
            paused.clear(road.layout, road.pipeline)
        case Point.MARK_RESUMED:
            road.crash("", "pause")
            killed = road.crash(at, "resume")
            paused.clear(road.layout, road.pipeline)
        case Point.SPOOL | Point.NOTE_VERDICT:
            ended_with_a_hook(road)
            killed = road.crash(at, "judge")
        case Point.FOLLOW:
            ended_with_a_hook(road)
            road.judge()
            killed = road.crash(at, "follow")
            road.follow()
        case Point.LOG:
            talkative(road)
            killed = road.crash(at)
        case Point.NOTE_UNSERVED:
            killed = road.crash(at, "unserved")
        case Point.UNSERVED_CLEAR:
            road.crash("", "unserved")
            killed = road.crash(at, "served")
            road.crash("", "served")
        case _:
            killed = road.crash(at)
    assert killed.returncode == -signal.SIGKILL, f"{at} is on nobody's road: {killed.stderr}"


def ended_with_a_hook(road: Road) -> None:
    """Have something ended whose verdict is to be told, and has not been given yet."""
    road.spec["on_failure"] = [{"notice": "look at it"}]
    road.write()
    road.work(patient=True)


def talkative(road: Road) -> None:
    """Have the handler print something."""
    road.handlers["handler"] = f"print('hello')\n{road.handlers['handler']}"
    road.write()


def by_an_operator(road: Road, at: str, failing: Callable[[str], AbstractContextManager[None]]) -> None:
    """Meet a fault of the disk while something is paused, resumed, or found to be unserved; and do it again after."""
    verbs = {
        Point.MARK_PAUSED: ("pause", "resume"),
        Point.MARK_RESUMED: ("resume", "resume"),
        Point.NOTE_UNSERVED: ("unserved", "served"),
        Point.UNSERVED_CLEAR: ("served", "served"),
    }
    faulty, after = verbs[Point(at.partition(":")[0])]
    if faulty == after:
        roads.main(road, {"resume": "pause", "served": "unserved"}[after])
    with failing(at):
        roads.main(road, faulty)
    roads.main(road, after)


def into_a_folder(road: Road) -> None:
    """Have one of the drops lie in a folder that was dropped whole, and whose files have settled."""
    folder = road.folder("extract", "working", "folder")
    folder.mkdir()
    os.rename(road.folder("extract", "working") / "later.csv", folder / "later.csv")


def with_a_done_file(road: Road) -> None:
    """Have one of the drops wait with its done-file beside it."""
    road.spec["extract"]["complete"] = {"done": "{name}.ok"}
    road.write()
    (road.folder("extract", "working") / "later.csv.ok").touch()


@contextmanager
def another_of_its_key_is_worked(road: Road) -> Iterator[None]:
    """Have one of the drops be a message instead, whose key somebody else has."""
    drop = road.folder("extract", "working") / "later.csv"
    arrivals.publish(road.layout, "books", io.BytesIO(drop.read_bytes()), drop.name, {"key": "k"})
    drop.unlink()
    lock = key_locks.take(road.layout, "k")
    assert lock is not None
    with lock:
        yield


@contextmanager
def unreachable(road: Road) -> Iterator[None]:
    """Let the warehouse be away."""
    database, elsewhere = road.root / "warehouse.db", road.root / "elsewhere.db"
    database.rename(elsewhere)
    database.mkdir()
    yield
    database.rmdir()
    elsewhere.rename(database)


def carry_on(road: Road, units_per_file: int = 7) -> None:
    """Change the recipe, let what was put off succeed, recover, and work all that waits."""
    (road.root / "flag").touch()
    road.lift()
    road.handlers["handler"] = road.handlers["handler"].replace('"old"', '"new"')
    road.transform(units_per_file=units_per_file)
    road.work()
    # a pull that died after its commit has not taken the source away; the next one does
    road.ask()
    road.work()


def committed(road: Road, given: str) -> bool:
    """Tell whether a file was transformed for good."""
    place = road.place("transform")
    found = {path.name for status in Status for path in road.files("transform", status)}
    found |= {name for name, _ in outbox.pending(road.layout, place)}
    return any(
        notes.read(road.layout, place, name).recipe or any(outbox.pending(road.layout, place, name))
        for name in found
        if name.startswith(f"{given}~") and "-bad" not in name
    )


def lake(road: Road) -> Iterator[dict[str, object]]:
    for path in road.root.glob("lake/*.jsonl"):
        yield from map(json.loads, path.read_text().splitlines())


def check(road: Road, url: str, *, books: str, later: str) -> None:
    """Check that all is there once, from the recipe it has to be, and that nothing is left half done."""
    good = [line for line in range(2, ROWS + 2) if line != BAD_ROW]
    loaded = [(line, books) for line in good if line != BAD_UNIT]
    assert roads.rows(url, "books", "id, mark") == [*loaded, (1000, later)]
    assert Counter((row["id"], row["mark"]) for row in lake(road)) == Counter(
        [*((line, books) for line in good), (1000, later)]
    )
    wrong_lines = roads.query(url, "SELECT id, _etl_line FROM books WHERE id < 1000 AND id <> _etl_line")
    assert wrong_lines == []
    assert road.broken_promises() == []
    assert sorted(path.name.partition("~")[0] for path in road.files("extract", "resolved")) == [
        "books",
        "broken",
        "later",
    ]
    assert list((road.root / "in").iterdir()) == []
    check_held_back(road, url)


def check_held_back(road: Road, url: str) -> None:
    """Check that what was kept out can be put right and is then there too, once."""
    rows = [path for path in road.files("transform", "failed") if "-bad" in path.name]
    units = road.files("load", "warehouse", "failed")
    assert [road.reason(path)["where"][0]["line"] for path in (*rows, *units)] == [BAD_ROW, BAD_UNIT]
    rows[0].write_text(rows[0].read_text().replace("cheap", "24"))
    units[0].write_text(units[0].read_text().replace("-1.0", "33.0").replace("-1,", "33,"))
    for path in (*rows, *units):
        road.move_back(path)
    road.work()
    found = roads.rows(url, "books", "id, price, _etl_line")
    assert found[:-1] == [(line, line, line) for line in range(2, ROWS + 2)]
    assert road.broken_promises() == []


def every_case() -> Iterator[str]:
    for point in ON_THE_ROAD:
        yield f"{point}:before"
        yield f"{point}:after"
    # the first time is the pull; these are later on the road
    for point in (Point.STAGE_CHILD, Point.RELEASE_CHILD):
        yield from (f"{point}:after#{times}" for times in (6, 12))
    for point in (Point.COMMIT, Point.ANNOUNCE, Point.CLAIM, Point.RESOLVE, Point.CLEAR_OUTBOX):
        yield from (f"{point}:after#{times}" for times in (2, 4))
    yield from (f"{Point.LOCATION_COMMIT}:{when}#{times}" for when in ("before", "after") for times in (2, 9))


@pytest.mark.parametrize("at", list(every_case()))
def test_killed_at_any_point_under_another_recipe_the_rows_are_right(road: Road, at: str) -> None:
    kill(road, at)
    books, later = ("old" if committed(road, given) else "new" for given in ("books", "later"))

    carry_on(road)

    check(road, absolute(road, SQLITE), books=books, later=later)


@pytest.mark.parametrize(
    "at",
    [f"{Point.RELEASE_CHILD}:after#{times}" for times in (3, 5, 8, 12)]
    + [f"{point}:after#{times}" for point in (Point.ANNOUNCE, Point.NOTE_COMMIT) for times in (1, 3, 5)],
)
def test_killed_while_its_files_are_handed_out_no_second_attempt_adds_other_ones(road: Road, at: str) -> None:
    kill(road, at)
    books, later = ("old" if committed(road, given) else "new" for given in ("books", "later"))

    # fewer and larger unit files than before: those of a first attempt would be left over
    carry_on(road, units_per_file=40)

    check(road, absolute(road, SQLITE), books=books, later=later)


@pytest.mark.parametrize("point", ["location-write", "location-commit", "commit", "announce"])
@pytest.mark.parametrize("when", ["before", "after", "after#5"])
def test_killed_while_loading_into_postgresql_the_rows_are_right(
    postgres: str, tmp_path: Path, point: str, when: str
) -> None:
    road = begin(tmp_path / "project", postgres)
    kill(road, f"{point}:{when}")
    books, later = ("old" if committed(road, given) else "new" for given in ("books", "later"))

    carry_on(road)

    check(road, postgres, books=books, later=later)
