"""The nemesis: files flow through real services while processes are killed, Redis is killed and emptied.

Afterwards every file and row is counted, in SQLite and PostgreSQL, and `etl fsck` has the last word. The short form
is a test, the long form is `inv chaos`. Ends only processes it started, by id, and stops by itself.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
import yaml

from etl.files import layout as layouts
from etl.files import names, reasons, survey
from etl.files.layout import Layout
from etl.model import Place, Status
from tests import road as roads

REPOSITORY = Path(__file__).resolve().parents[2]
PIPELINE = "feed"
#: points that a file passes on its way through three stages and two locations, roughly.
POINTS_PASSED = 130
HANDLER = 'def to_unit(row, file):\n    return {"id": row["id"], "file": file.name}\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much of everything."""

    files: int = 300
    rows: int = 3
    #: kill -9 of a service, a worker or a work-horse.
    kills: int = 8
    supervisor_kills: int = 1
    redis_kills: int = 1
    flushes: int = 1
    #: the dropbox is stopped with SIGSTOP while files come, then goes on.
    pauses: int = 1
    #: about how many processes are killed, and how often the disk answers with an error, at named points.
    kills_at_points: int = 6
    errors_at_points: int = 10
    #: seconds within which all files are dropped and all faults happen, and until all must be quiet after that.
    during: float = 15.0
    quiet_within: float = 120.0
    workers: int = 2
    seed: int = 0

    @property
    def crash_at(self) -> str:
        """Say what happens at the points by chance: a file passes about so many on its road."""
        passed = self.files * POINTS_PASSED
        kills, errors = self.kills_at_points / passed, self.errors_at_points / passed / 2
        if not kills and not errors:
            return ""
        return f"*%{kills:.9f},*=ENOSPC%{errors:.9f},*=EIO%{errors:.9f}"

    def faults(self) -> list[str]:
        """Give every fault by kind, shuffled."""
        kinds = {
            "kill": self.kills,
            "kill supervisor": self.supervisor_kills,
            "kill redis": self.redis_kills,
            "flushall": self.flushes,
            "stop dropbox": self.pauses,
        }
        faults = [kind for kind, times in kinds.items() for _ in range(times)]
        random.Random(self.seed).shuffle(faults)
        return faults


@dataclass(slots=True)
class Report:
    """What happened, and what came of it."""

    files: int
    rows: int
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    #: "SIGKILL claim:after" -> how often.
    at_points: Counter[str] = field(default_factory=Counter)
    capped: int = 0
    #: files that failed for another reason: there should be none.
    failed: list[str] = field(default_factory=list)
    lost: dict[str, int] = field(default_factory=dict)
    doubled: dict[str, int] = field(default_factory=dict)
    unaccounted: int = 0
    fsck: str = ""

    @property
    def is_clean(self) -> bool:
        """Tell whether every promise was kept."""
        return not (
            self.failed
            or self.unaccounted
            or any(self.lost.values())
            or any(self.doubled.values())
            or self.fsck
        )

    def facts(self) -> dict[str, Any]:
        """Give it for programs."""
        return {
            "files": self.files,
            "rows": self.rows,
            "seconds": round(self.seconds, 1),
            "faults": dict(sorted(self.faults.items())),
            "faults_at_points": dict(sorted(self.at_points.items())),
            "capped_as_poison": self.capped,
            "failed_otherwise": self.failed,
            "unaccounted": self.unaccounted,
            "lost_rows": self.lost,
            "doubled_rows": self.doubled,
            "fsck": self.fsck or "clean",
        }


class Installation:
    """A project folder with one pipeline and `etl up` running on it."""

    def __init__(self, root: Path, postgres: str, plan: Plan) -> None:
        self.root = root
        self.plan = plan
        self.urls = {"lite": f"sqlite:///{root / 'lite.db'}", "post": postgres}
        self.log = (root / "up.log").open("ab")
        self._write()
        self.up = self._start()

    def _write(self) -> None:
        config = self.root / "config"
        for folder in ("pipelines", "handlers"):
            (config / folder).mkdir(parents=True)
        settings = {"workers": self.plan.workers, "scan": "2s", "reserve": "10MB", "stop_grace": "10s"}
        (config / "settings.yaml").write_text(yaml.safe_dump(settings))
        (config / "handlers" / "feed.py").write_text(HANDLER)
        sql = {"kind": "sql", "table": "feed", "create": True}
        spec = {
            "extract": {"complete": {"settle": "500ms"}},
            "transform": {
                "read": "csv",
                "handler": "feed:to_unit",
                "schema": {"required": ["id"], "properties": {"id": {"type": "integer"}}},
                "retry": {"times": 20, "first": "200ms", "most": "2s"},
            },
            "load": {
                "locations": {name: {**sql, "url": url} for name, url in self.urls.items()},
                "retry": {"times": 20, "first": "200ms", "most": "2s"},
            },
        }
        (config / "pipelines" / f"{PIPELINE}.yaml").write_text(yaml.safe_dump(spec))

    def command(self, *arguments: str) -> list[str]:
        """Give the argv of one `etl` command here."""
        return [sys.executable, "-m", "etl", "--config", str(self.root / "config"), *arguments]

    @property
    def environment(self) -> dict[str, str]:
        """Give the environment of every command started here."""
        return {**os.environ, "PYTHONPATH": str(REPOSITORY)}

    @property
    def struck(self) -> Path:
        """Where faults at points are written down."""
        return self.root / "struck.log"

    def _start(self) -> subprocess.Popen[bytes]:
        by_chance = {"ETL_CRASH_AT": self.plan.crash_at, "ETL_CRASH_LOG": str(self.struck)}
        return subprocess.Popen(
            self.command("up"),
            cwd=self.root,
            env={**self.environment, **by_chance},
            stdout=self.log,
            stderr=self.log,
        )

    def etl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one command to its end."""
        return subprocess.run(
            self.command(*arguments),
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
        )

    # --- who runs

    def services(self) -> dict[str, int]:
        """Give the process ids of the services by name."""
        told = self.etl("status", "--json")
        assert told.returncode == 0, told.stderr
        return {one["name"]: one["pid"] for one in json.loads(told.stdout)["services"]}

    def victims(self) -> list[tuple[str, int]]:
        """Give every process that may be killed, with what it is; the supervisor and Redis are kinds of their own."""
        found = [(name, pid) for name, pid in self.services().items() if name != "supervisor"]
        grooms = children(dict(found).get("workers"))
        found += [("groom", pid) for pid in grooms]
        return found + [("work-horse", pid) for groom in grooms for pid in children(groom)]

    def redis_pid(self) -> int:
        """Give the embedded server's process id."""
        return int((self.root / "data/.etl/redis/server.pid").read_text())

    def restart(self) -> None:
        """Start the supervisor again after it was killed."""
        self.up.wait(timeout=30)
        self.up = self._start()

    def stop(self) -> None:
        """Stop everything cleanly."""
        if self.up.poll() is None:
            self.up.terminate()
            self.up.wait(timeout=60)
        self.log.close()

    # --- what lies where

    @property
    def layout(self) -> Layout:
        """Give the data tree."""
        return Layout(self.root / "data")

    def places(self) -> list[Place]:
        """Give every place of the pipeline."""
        return list(layouts.places(PIPELINE, self.urls))

    def rows(self, location: str) -> int:
        """Count the rows that are at a location."""
        return roads.count(self.urls[location], "feed")

    def moving(self) -> int:
        """Count what waits or is in process."""
        return sum(
            len(survey.listing(self.layout, place, status))
            for place in self.places()
            for status in (Status.WORKING, Status.IN_PROCESS)
        ) + sum(len(list(self.layout.outbox(place).iterdir())) for place in self.places())

    def failed(self) -> list[tuple[Place, str]]:
        """Give every failed file."""
        return [
            (place, name)
            for place in self.places()
            for name in survey.listing(self.layout, place, Status.FAILED)
        ]

    def accepted(self) -> set[str]:
        """Give the given names of what extract has resolved."""
        place = Place(pipeline=PIPELINE, stage=layouts.Stage.EXTRACT)
        parsed = (names.parse(PIPELINE, name) for name in survey.listing(self.layout, place, Status.RESOLVED))
        return {file.given for file in parsed if file}


def children(pid: int | None) -> list[int]:
    """Give the ids of a process's children."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


class Nemesis:
    """Drops the files, does the damage, waits for quiet, and counts."""

    def __init__(self, here: Installation, plan: Plan, tell: Callable[[str], None]) -> None:
        self.here = here
        self.plan = plan
        self.tell = tell
        self.random = random.Random(plan.seed)
        self.report = Report(files=plan.files, rows=plan.files * plan.rows)

    def run(self) -> Report:
        """Do all of it and give the report; always stops what it started."""
        begun = time.monotonic()
        try:
            self.wait_for(lambda: {"dropbox", "workers"} <= set(self.here.services()), 60, "services")
            self._flow()
            self._quiet()
            self._retry_the_capped()
        finally:
            self.here.stop()
        self._count()
        self.report.seconds = time.monotonic() - begun
        return self.report

    def _flow(self) -> None:
        """Drop files all the time, and do a fault every few of them, so that each meets work in hand."""
        faults = self.plan.faults()
        steps = len(faults) + 1
        due = {
            round((number + self.random.random()) * self.plan.files / steps): one
            for number, one in enumerate(faults)
        }
        begun = time.monotonic()
        for number in range(self.plan.files):
            self.drop(number)
            if number in due:
                self._do(due.pop(number))
            ahead = begun + number * self.plan.during / self.plan.files - time.monotonic()
            time.sleep(max(0.0, ahead))  # as fast as they come, not as fast as they can be written
        for fault in due.values():
            self._do(fault)

    def drop(self, number: int) -> None:
        """Drop one file, in one piece or written where it lies."""
        folder = self.here.layout.data / PIPELINE / "extract" / "working"
        first = number * self.plan.rows
        text = "id\n" + "".join(f"{first + row}\n" for row in range(self.plan.rows))
        path = folder / f"file{number}.csv"
        if self.random.random() < 0.5:
            path.write_text(text)
        else:
            aside = folder / f".file{number}.csv"
            aside.write_text(text)
            aside.rename(path)

    def _do(self, fault: str) -> None:
        match fault:
            case "kill":
                # all of them may be gone just now
                self.wait_for(self.here.victims, 60, "anybody to kill")
                if victims := self.here.victims():
                    name, pid = self.random.choice(victims)
                    self._kill(pid, f"kill -9 {name}")
                else:
                    self.report.faults["kill -9 of nobody"] += 1
            case "kill supervisor":
                self._kill(self.here.up.pid, "kill -9 supervisor")
                self.here.restart()
            case "kill redis":
                self._kill(self.here.redis_pid(), "kill -9 redis")
            case "flushall":
                self._flush()
            case "stop dropbox":
                self._pause()
        self.tell(f"{fault}: {self.here.moving()} on the way")

    def _kill(self, pid: int, what: str) -> None:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            what = f"{what} (gone already)"
        self.report.faults[what] += 1

    def _flush(self) -> None:
        socket = (self.here.root / "data/.etl/redis.socket").read_text().strip()
        try:
            redis.Redis(unix_socket_path=socket).flushall()
            self.report.faults["FLUSHALL"] += 1
        except redis.RedisError:
            self.report.faults["FLUSHALL (redis was away)"] += 1

    def _pause(self) -> None:
        self.wait_for(lambda: "dropbox" in self.here.services(), 60, "the dropbox")
        with suppress(ProcessLookupError, KeyError):  # killed at a point meanwhile
            pid = self.here.services()["dropbox"]
            os.kill(pid, signal.SIGSTOP)
            time.sleep(1)
            os.kill(pid, signal.SIGCONT)
        self.report.faults["SIGSTOP dropbox"] += 1

    def wait_for(self, condition: Callable[[], object], seconds: float, what: str) -> None:
        """Wait until something is so, or fail saying what was waited for."""
        until = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > until:
                lying = [
                    f"{place}/{name}"
                    for place in self.here.places()
                    for name in survey.listing(self.here.layout, place, Status.WORKING)
                ]
                raise AssertionError(f"waited {seconds:.0f} s in vain for {what}; waiting: {lying[:5]}")
            time.sleep(0.2)

    def _quiet(self) -> None:
        self.wait_for(
            lambda: not self.here.moving() and not self.here.moving(), self.plan.quiet_within, "quiet"
        )

    def _retry_the_capped(self) -> None:
        for place, name in self.here.failed():
            summary = reasons.read(self.here.layout, place, name).get("summary", "no reason")
            if "died" in summary:
                self.report.capped += 1
            else:
                self.report.failed.append(f"{place}/{name}: {summary}")
        if self.report.capped:
            self.here.etl("retry", "--pipeline", PIPELINE)
            self._quiet()

    def _count(self) -> None:
        if self.here.struck.exists():
            self.report.at_points.update(self.here.struck.read_text().splitlines())
        wanted = set(range(self.plan.files * self.plan.rows))
        for name, url in self.here.urls.items():
            found = Counter(row[0] for row in roads.rows(url, "feed", "id"))
            self.report.lost[name] = len(wanted - set(found))
            self.report.doubled[name] = sum(found.values()) - len(found)
        given = {f"file{number}.csv" for number in range(self.plan.files)}
        self.report.unaccounted = len(given - self.here.accepted())
        checked = self.here.etl("fsck")
        self.report.fsck = checked.stdout + checked.stderr if checked.returncode else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """What became of files that came while the dropbox stood still."""

    files: int
    rows: int
    seconds: float


def come_while_it_stands(root: Path, postgres: str, files: int, within: float) -> Stopped:
    """Copy files in while the dropbox is stopped with SIGSTOP, let it go on, and count the rows of all of them."""
    plan = Plan(files=files, rows=1, kills_at_points=0, errors_at_points=0)
    here = Installation(root, postgres, plan)
    nemesis = Nemesis(here, plan, lambda _: None)
    begun = time.monotonic()
    try:
        nemesis.wait_for(lambda: {"dropbox", "workers"} <= set(here.services()), 60, "services")
        pid = here.services()["dropbox"]
        os.kill(pid, signal.SIGSTOP)
        try:
            for number in range(files):
                nemesis.drop(number)
        finally:
            os.kill(pid, signal.SIGCONT)
        nemesis.wait_for(lambda: not here.moving() and not here.moving(), within, "quiet")
    finally:
        here.stop()
    rows = {len(set(roads.rows(url, "feed", "id"))) for url in here.urls.values()}
    return Stopped(files=len(here.accepted()), rows=min(rows), seconds=time.monotonic() - begun)


def unleash(root: Path, postgres: str, plan: Plan, tell: Callable[[str], None] = lambda _: None) -> Report:
    """Run the nemesis in a new folder and give its report."""
    return Nemesis(Installation(root, postgres, plan), plan, tell).run()
