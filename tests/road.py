"""The whole road of a file for tests: a project folder, files dropped into it, and somebody who works them.

Works in this process, in one that is killed at a named point, or with the real command; then looks at folders
and tables. `Road.broken_promises` is the oracle. Run as a program it works what waits and ends.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import yaml

from etl import app as apps
from etl.app import App
from etl.config import reading
from etl.files import arrivals, gate, moves, names, notes, paused, survey, verdicts
from etl.files.layout import Layout
from etl.model import Outcome, Place, Stage, Status, Waiting
from etl.queues.enqueue import InlineAnnouncer
from etl.services import complaints, courier, fsck, mending, unserved
from etl.stages import judging, run

REPOSITORY = Path(__file__).resolve().parent.parent


@dataclass(slots=True)
class Road:
    """A project folder with one pipeline, and all that a test does to it."""

    root: Path
    spec: dict[str, Any]
    pipeline: str = "books"
    #: handler modules by name: their code.
    handlers: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    #: off for a folder that is there already.
    fresh: bool = True

    def __post_init__(self) -> None:
        if self.fresh:
            self.write()

    # --- what an operator writes and drops

    def write(self) -> None:
        """Write the configuration as it stands now."""
        config = self.root / "config"
        for folder in ("pipelines", "handlers"):
            (config / folder).mkdir(parents=True, exist_ok=True)
        (config / "settings.yaml").write_text(
            yaml.safe_dump({"workers": 2, "dashboard": "off", "clean": "off", **self.settings})
        )
        (config / "pipelines" / f"{self.pipeline}.yaml").write_text(yaml.safe_dump(self.spec))
        for name, code in self.handlers.items():
            (config / "handlers" / f"{name}.py").write_text(code)
        with self.opened():
            pass  # makes the folders

    def handle(self, code: str, module: str = "handler") -> None:
        """Write another handler."""
        self.handlers[module] = code
        self.write()

    def transform(self, **options: Any) -> None:
        """Change options of the `transform:` section."""
        self.spec["transform"] |= options
        self.write()

    def drop(self, name: str, text: str | bytes, stage: Stage = Stage.EXTRACT) -> Path:
        """Drop a file under a name without an id."""
        path = self.folder(stage, "working") / name
        aside = path.with_name(f".{name}")
        aside.write_bytes(text.encode() if isinstance(text, str) else text)
        aside.rename(path)
        return path

    def ask(self, **wish: Any) -> Waiting:
        """Ask for an extract."""
        return arrivals.request(self.layout, self.pipeline, wish)

    # --- where things lie

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def layout(self) -> Layout:
        return Layout(self.data)

    @property
    def locations(self) -> list[str]:
        return list(self.spec["load"]["locations"])

    def place(self, stage: str, location: str = "") -> Place:
        return Place(pipeline=self.pipeline, stage=Stage(stage), location=location)

    def places(self) -> list[Place]:
        """Give every place a file of the pipeline may lie at."""
        with self.opened() as app:
            return app.places(self.pipeline)

    def folder(self, stage: str, *parts: str) -> Path:
        """Give `data/<pipeline>/<stage>/<parts…>`."""
        return self.data.joinpath(self.pipeline, stage, *parts)

    def files(self, stage: str, *parts: str) -> list[Path]:
        """Give the files in one status folder, sorted; reasons and hidden files are left out."""
        found = self.folder(stage, *parts).iterdir()
        return sorted(path for path in found if not names.never_work(path.name))

    def one(self, stage: str, *parts: str) -> Path:
        """Give the only file in one status folder."""
        found = self.files(stage, *parts)
        assert len(found) == 1, f"{len(found)} files in {'/'.join((stage, *parts))}: {self.tree()}"
        return found[0]

    def reason(self, path: Path) -> dict[str, Any]:
        """Read the reason beside a file."""
        facts: dict[str, Any] = json.loads(path.with_name(f"{path.name}.reason.json").read_text())
        return facts

    def note(self, path: Path) -> notes.FileNote:
        """Read the note of the file at a path in a status folder."""
        own = path.parent.parent
        parts = own.relative_to(self.data).parts
        return notes.read(self.layout, self.place(parts[1], parts[2] if len(parts) > 2 else ""), path.name)

    def move_back(self, path: Path) -> Path:
        """Move a file from any status folder to the `working/` beside it, as a person does with `mv`."""
        target = path.parent.parent / Status.WORKING / path.name
        os.rename(path, target)
        return target

    def tree(self) -> list[str]:
        """Give every file of the pipeline, relative to its folder; for messages."""
        base = self.data / self.pipeline
        return sorted(str(path.relative_to(base)) for path in base.rglob("*") if path.is_file())

    # --- who works

    @contextmanager
    def opened(self, *, patient: bool = False) -> Iterator[App]:
        """Open the project in this process with the configuration as it stands.

        With `patient`, locations that are away are waited for, as workers do.
        """
        app = App.open(reading.read(self.root / "config"), InlineAnnouncer())
        app.waits_for_away = patient
        with apps.serving(app):
            yield app

    def work(self, most: int = 10_000, *, patient: bool = False) -> list[Outcome]:
        """Recover what died and work all that waits and is due, in this process, until nothing is left."""
        outcomes: list[Outcome] = []
        with self.opened(patient=patient) as app:
            assert isinstance(app.announcer, InlineAnnouncer)
            mending.Mender(app, set, drops=True).mend([self.pipeline])
            while work := app.announcer.take():
                outcomes.append(run.perform(app, _waiting(work.function, work.arguments)))
                assert len(outcomes) <= most, f"work without end: {self.tree()}"
        return outcomes

    def perform(self, path: Path) -> Outcome:
        """Work one file that lies in a `working/` folder, in this process; nothing else moves."""
        parts = path.parent.parent.relative_to(self.data).parts
        place = self.place(parts[1], parts[2] if len(parts) > 2 else "")
        with self.opened() as app:
            return run.perform(app, Waiting(place=place, name=path.name))

    def mend(self) -> None:
        """Recover what died, and work nothing."""
        with self.opened() as app:
            mending.Mender(app, set, drops=True).mend([self.pipeline])

    def lift(self) -> None:
        """Take what lies in dropped folders out of them, settled or not."""
        with self.opened() as app:
            for place in app.places(self.pipeline):
                for folder in survey.folders(self.layout, place):
                    for path in survey.inside(folder):
                        arrivals.lift(self.layout, place, path, gate.seen(path.stat()))

    def judge(self) -> list[verdicts.Record]:
        """Judge every delivery there is, and give the verdicts that are news."""
        with self.opened() as app:
            found = [judging.judge(app, self.pipeline, file_id) for file_id in self.ids()]
        return [record for record in found if record is not None]

    def follow(self) -> None:
        """Try once what follows the verdicts there are."""
        with self.opened() as app:
            one = courier.Courier(app)
            one.turn()
            one.close()

    def ids(self) -> list[str]:
        """Give the ids of all that ever came, oldest first."""
        folder = self.data / self.pipeline / ".notes"
        return sorted(path.stem for path in folder.glob("*.json") if "." not in path.stem)

    def crash(self, at: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Work all that waits in a process that is killed at a point: `commit:before`, `claim:after#2`, …"""
        return self._python(["-m", "tests.road", *(arguments or ("work",))], at)

    def etl(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the real command in the project's folder."""
        command = ["-m", "etl", "--config", str(self.root / "config"), *arguments]
        return self._python(command, "", **environment)

    def _python(
        self, command: Sequence[str], at: str, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "ETL_CRASH_AT": at, "PYTHONPATH": str(REPOSITORY), **environment}
        environ["ROAD"] = json.dumps([str(self.root), self.pipeline])
        return subprocess.run(
            [sys.executable, *command],
            cwd=self.root,
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
        )

    # --- the oracle

    def broken_promises(self) -> list[str]:
        """Look for whatever may never be once nobody works: lost, doubled and half-done things."""
        return [str(finding) for finding in self.findings()]

    def look(self) -> list[fsck.Finding]:
        """Give what `etl fsck` finds in the folders as they are; none is made first."""
        app = fsck.open_app(reading.read(self.root / "config"), InlineAnnouncer())
        return list(fsck.walk(app, scope=fsck.Scope(pause=0, deep=True)))

    def fix(self) -> list[str]:
        """Do what `etl fsck --fix` does, and give what it says it did."""
        return [did for one in self.findings() if one.fix and (did := one.fix())]

    def findings(self, **scope: Any) -> list[fsck.Finding]:
        """Give what `etl fsck` finds; nobody works, so one look is enough."""
        with self.opened() as app:
            return list(fsck.walk(app, scope=fsck.Scope(pause=0, deep=True, **scope)))


def _waiting(function: str, arguments: Mapping[str, Any]) -> Waiting:
    verb = function.rpartition(".")[2]
    location = ".requests" if verb == "pull" else str(arguments.get("location", ""))
    stage = Stage.EXTRACT if verb == "pull" else Stage(verb)
    place = Place(pipeline=str(arguments["pipeline"]), stage=stage, location=location)
    return Waiting(place=place, name=str(arguments["name"]))


# --- databases ---------------------------------------------------------------------------------------------


def query(url: str, statement: str, **values: Any) -> list[tuple[Any, ...]]:
    """Ask a database and give the rows as plain tuples."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    try:
        with engine.begin() as connection:
            result = connection.execute(sa.text(statement), values)
            return [tuple(row) for row in result] if result.returns_rows else []
    finally:
        engine.dispose()


def count(url: str, table: str) -> int:
    """Count the rows of a table; one that is not there has none."""
    return len(rows(url, table, "1"))


def rows(url: str, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
    """Give the rows of a table, sorted; one that is not there has none."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    try:
        with engine.connect() as connection:
            if not sa.inspect(connection).has_table(table):
                return []
            found = connection.execute(sa.text(f"SELECT {columns} FROM {table}"))
            return sorted(tuple(row) for row in found)
    finally:
        engine.dispose()


def wait_for_empty(road: Road, work: Callable[[], object], turns: int = 100) -> None:
    """Have work done until nothing waits or is in process, or fail."""
    for _ in range(turns):
        if not any(
            survey.listing(road.layout, place, status)
            for place in road.places()
            for status in (Status.WORKING, Status.IN_PROCESS)
        ):
            return
        work()
    raise AssertionError(f"not worked off: {road.tree()}")


# --- as a program ------------------------------------------------------------------------------------------


def reopen(root: Path, pipeline: str) -> Road:
    """Open a project folder that another process made."""
    spec = yaml.safe_load((root / "config" / "pipelines" / f"{pipeline}.yaml").read_text())
    return Road(root, spec, pipeline, fresh=False)


def copy_of(road: Road, root: Path) -> Road:
    """Copy a whole project, to try many things from one beginning."""
    shutil.copytree(road.root, root, symlinks=True)
    spec = json.loads(json.dumps(road.spec))
    return Road(root, spec, road.pipeline, dict(road.handlers), dict(road.settings), fresh=False)


def main(road: Road, verb: str, *arguments: str) -> None:  # noqa: PLR0912 - one case for each verb
    """Do one thing to a project that another process made."""
    match verb:
        case "work":
            road.work()
        case "wait":
            road.work(patient=True)
        case "mend":
            road.mend()
        case "lift":
            road.lift()
        case "ask":
            road.ask()
        case "judge":
            road.judge()
        case "follow":
            road.follow()
        case "deliver":
            arrivals.deliver(road.layout, road.pipeline, Path(arguments[0]))
        case "pause":
            mark = paused.Mark(pipeline=road.pipeline, who="anna", since=1.0)
            paused.write(road.layout, mark)
        case "resume":
            paused.clear(road.layout, road.pipeline)
        case "unserved" | "served":
            one = unserved.Unserved(queue="default", since=1.0, state=unserved.REFUSED, why="none may be")
            if verb == "unserved":
                unserved.write(road.data, {"default": one})
                complaints.put(road.layout, road.place("extract"), one)
            else:
                complaints.remove(road.layout, road.place("extract"), "default")
        case "discard":
            stage, name = arguments
            moves.discard(road.layout, road.place(stage), name, "not wanted")


if __name__ == "__main__":
    folder, pipeline_name = json.loads(os.environ["ROAD"])
    main(reopen(Path(folder), pipeline_name), *sys.argv[1:])
