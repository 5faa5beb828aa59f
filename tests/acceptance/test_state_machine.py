"""Whatever order things happen in: drops, deaths at any point, recoveries, moves by hand, changed handlers, races.

A state machine chooses what happens next. At every instant each dropped file lies somewhere (P1); once everybody
has come to rest, each of its rows is in the table once, of one recipe, and nothing is left half done.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from etl import points
from etl.files import names, survey
from etl.model import Place, Stage, Status
from etl.points import Point
from tests import road as roads
from tests.road import Road

ROWS = 5
HANDLER = 'def to_unit(row):\n    return {"id": row["id"], "mark": "mark-0"}\n'
SPEC = {
    "extract": {"accept": ["*.csv"]},
    "transform": {
        "read": "csv",
        "handler": "handler:to_unit",
        "schema": {"required": ["id"], "properties": {"id": {"type": "integer"}}},
        "units_per_file": 2,
    },
    "load": {
        "locations": {
            "warehouse": {"kind": "sql", "url": "sqlite:///warehouse.db", "table": "books", "create": True},
            "lake": {"kind": "files", "path": "lake"},
        }
    },
}
#: where a worker, or whoever recovers, may be killed.
MOMENTS = [f"{point}:{when}" for point in Point for when in ("before", "after")]


def in_a_process(*works: Callable[[], object], crash_at: str = "") -> None:
    """Do each work in a forked process of its own, all at once, killed at a point if they pass it."""
    pids = []
    for work in works:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                points.crash_at = crash_at
                work()
                code = 0
            finally:
                os._exit(code)
        pids.append(pid)
    for pid in pids:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert code in (0, -signal.SIGKILL), f"a worker ended with {code}"


class Tree(RuleBasedStateMachine):
    """A pipeline, and everything that may happen to it."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="etl-machine-"))
        self.road = Road(self.root, SPEC, handlers={"handler": HANDLER})
        self.dropped: list[str] = []
        self.mark = 0

    def teardown(self) -> None:
        try:
            self.come_to_rest()
        finally:
            shutil.rmtree(self.root)

    # --- what happens

    @initialize()
    def begin(self) -> None:
        self.drop(bad=False)

    @rule(bad=st.booleans())
    def drop(self, bad: bool) -> None:
        given = f"file{len(self.dropped)}.csv"
        first = len(self.dropped) * ROWS
        wrong = "x\n" if bad else ""
        self.dropped.append(given)
        self.road.drop(given, "id\n" + "".join(f"{first + row}\n" for row in range(ROWS)) + wrong)

    @rule(which=st.integers(0, 99), at=st.sampled_from(["", *MOMENTS]))
    def work_one(self, which: int, at: str) -> None:
        if waiting := self.lying(Status.WORKING):
            path = waiting[which % len(waiting)]
            in_a_process(lambda: self.road.perform(path), crash_at=at)

    @rule(which=st.integers(0, 99))
    def two_work_the_same(self, which: int) -> None:
        if waiting := self.lying(Status.WORKING):
            path = waiting[which % len(waiting)]
            in_a_process(lambda: self.road.perform(path), lambda: self.road.perform(path))

    @rule(at=st.sampled_from(["", *MOMENTS]))
    def work_all(self, at: str) -> None:
        in_a_process(self.road.work, crash_at=at)

    @rule(at=st.sampled_from(["", *MOMENTS]))
    def recover(self, at: str) -> None:
        in_a_process(self.road.mend, crash_at=at)

    @rule(which=st.integers(0, 99))
    def work_while_another_recovers(self, which: int) -> None:
        if waiting := self.lying(Status.WORKING):
            path = waiting[which % len(waiting)]
            in_a_process(lambda: self.road.perform(path), self.road.mend, self.road.mend)

    @rule(
        which=st.integers(0, 99), status=st.sampled_from([Status.FAILED, Status.RESOLVED]), copy=st.booleans()
    )
    def move_back(self, which: int, status: Status, copy: bool) -> None:
        if rested := self.lying(status):
            path = rested[which % len(rested)]
            target = path.parent.parent / Status.WORKING / path.name
            shutil.copy(path, target) if copy else os.replace(path, target)

    @precondition(lambda self: self.mark < 3)
    @rule(units_per_file=st.integers(1, 4))
    def change_the_recipe(self, units_per_file: int) -> None:
        self.mark += 1
        self.road.handlers["handler"] = HANDLER.replace("mark-0", f"mark-{self.mark}")
        self.road.transform(units_per_file=units_per_file)

    # --- what must hold

    @invariant()
    def every_file_lies_somewhere(self) -> None:
        here = {self.given(path.name) for status in Status for path in self.lying(status, Stage.EXTRACT)}
        here |= {
            self.given(path.name.rpartition(".")[0])
            for path in self.road.folder("extract", ".outbox").iterdir()
        }
        assert set(self.dropped) <= here, f"{set(self.dropped) - here} are nowhere: {self.road.tree()}"

    def come_to_rest(self) -> None:
        """Let everybody finish, correct what was held back, and look at everything."""
        for _ in range(2):
            self.road.work()
        for path in self.lying(Status.FAILED):
            if path.name.endswith("-bad.csv"):
                number = self.dropped.index(self.given(path.name))
                path.write_text(path.read_text().replace("x", str(-1 - number)))
            self.road.move_back(path)
        self.road.work()
        assert not self.lying(Status.WORKING), f"still waiting: {self.road.tree()}"
        assert self.road.broken_promises() == []
        self.check_rows()

    def check_rows(self) -> None:
        url = f"sqlite:///{self.root / 'warehouse.db'}"
        rows = roads.rows(url, "books", "id, mark, _etl_file, _etl_generation")
        count = Counter(row[0] for row in rows if row[0] >= 0)
        wanted = dict.fromkeys(range(len(self.dropped) * ROWS), 1)
        assert count == wanted, (
            f"{[one for one in {**wanted, **count} if count[one] != 1]}: {self.road.tree()}"
        )
        recipes = defaultdict(set)
        for row, mark, file, generation in rows:
            if row >= 0:  # a row that was corrected after a change of the recipe is made by the new one
                recipes[file].add((mark, generation))
        assert all(len(mixed) == 1 for mixed in recipes.values()), f"recipes are mixed: {recipes}"

    def lying(self, status: Status, *stages: Stage) -> Sequence[Path]:
        layout, found = self.road.layout, []
        places = [Place(pipeline="books", stage=stage) for stage in stages or Stage]
        if not stages:
            places += [
                Place(pipeline="books", stage=Stage.LOAD, location=name) for name in self.road.locations
            ]
        for place in places:
            found += [layout.file(place, status, name) for name in survey.listing(layout, place, status)]
        return found

    def given(self, name: str) -> str:
        file = names.parse("books", name)
        return file.given if file else name


TestTree = Tree.TestCase
TestTree.settings = settings(
    max_examples=int(os.environ.get("ETL_MACHINE_EXAMPLES", "12")),
    stateful_step_count=25,
    # the same walks every time where a red light must mean a changed line; `inv chaos` takes others
    derandomize="ETL_MACHINE_EXAMPLES" not in os.environ,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
