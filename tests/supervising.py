"""`etl up` for tests: a real supervisor on a project folder, its log, its services and all their processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etl.config import reading
from etl.queues import connection
from etl.services import records
from tests.queue_helpers import lives, wait_until
from tests.road import REPOSITORY, Road

#: put before the package's own folder of services in every process of a test.
SHIM = """
import os
import etl.services
etl.services.__path__.insert(0, os.path.dirname(__file__))
"""
#: stands in for a service that is not there.
QUIET_SERVICE = """
from contextlib import contextmanager


class Quiet:
    name = "dropbox"

    def turn(self):
        return 60.0

    def close(self):
        pass


@contextmanager
def open(config):
    yield Quiet()
"""


@dataclass(slots=True)
class Up:
    """A supervisor that runs, or ran."""

    road: Road
    process: subprocess.Popen[bytes]
    log: Path
    #: every process that was ever seen below it.
    seen: set[int] = field(default_factory=set)

    def services(self) -> dict[str, records.Record]:
        """Give the services that run now, by name."""
        return {one.name: one for one in records.living(self.road.data)}

    def pid(self, name: str, *, other_than: int = 0, within: float = 60.0) -> int:
        """Wait for a service and give its process id."""

        def shows() -> int:
            found = self.services().get(name)
            return found.pid if found and found.pid != other_than else 0

        return int(wait_until(shows, f"{name} shows: {self.text()}", within))

    def below(self) -> set[int]:
        """Give every process below the supervisor now."""
        found = _descendants(self.process.pid)
        self.seen |= found
        return found

    def text(self) -> str:
        return self.log.read_text()

    def wait_for(self, text: str, times: int = 1, within: float = 60.0) -> str:
        """Wait until the log says something so often."""
        wait_until(lambda: self.text().count(text) >= times, f"{text!r} in {self.text()}", within)
        return self.text()

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def stop(self) -> int:
        """Ask it to stop and give its exit code."""
        self.below()
        self.signal(signal.SIGTERM)
        return self.process.wait(60)

    def nothing_runs(self) -> None:
        """Wait until no process that was seen below it lives."""
        wait_until(
            lambda: not [pid for pid in self.seen if lives(pid)], f"all of {self.seen} are gone", within=20.0
        )


def _descendants(root: int) -> set[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name, _, rest = (entry / "stat").read_text().rpartition(")")
                if "valkey" not in name:  # the embedded server is meant to outlive a killed supervisor
                    parents[int(entry.name)] = int(rest.split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
    found, wave = set(), {root}
    while wave := {pid for pid, parent in parents.items() if parent in wave} - found:
        found |= wave
    return found


def environment(road: Road, **services: str) -> dict[str, str]:
    """Give the environment in which services of a test stand in for ours: their code by name."""
    path = str(REPOSITORY)
    if not (REPOSITORY / "etl" / "services" / "dropbox.py").exists():
        services = {"dropbox": QUIET_SERVICE, **services}
    if services:
        shim = road.root / "shim"
        shim.mkdir(exist_ok=True)
        (shim / "sitecustomize.py").write_text(SHIM)
        for name, code in services.items():
            (shim / f"{name}.py").write_text(code)
        path = f"{shim}:{path}"
    return {**os.environ, "PYTHONPATH": path}


@contextmanager
def up(road: Road, *arguments: str, **services: str) -> Iterator[Up]:
    """Run `etl up` until the context ends."""
    log = road.root / "up.log"
    command = [sys.executable, "-m", "etl", "--config", str(road.root / "config"), "up", *arguments]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command, cwd=road.root, env=environment(road, **services), stderr=stream, start_new_session=True
        )
    running = Up(road, process, log)
    try:
        yield running
    finally:
        running.below()
        if process.poll() is None:
            process.kill()
            process.wait()
        running.nothing_runs()
        config = reading.read(road.root / "config")
        with connection.connect(config.settings.redis, config.data):
            pass  # and leave: that ends a server that survived


def status(road: Road) -> dict[str, Any]:
    """Give what `etl status --json` prints."""
    done = road.etl("status", "--json")
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts
