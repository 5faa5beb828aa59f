"""Updates are lost, doubled and shuffled while the recorder is killed: does the ledger say what the folders do?

Files flow through real services under `etl up`. The short form is a test, the long form `inv chaos --updates N`. Ends
only processes it started, by id, and stops by itself.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etl.config import reading
from etl.files import names, notes, survey, verdicts
from etl.ledger import opening, queries
from etl.ledger.opening import Ledger
from etl.ledger.rows import spelled
from etl.model import Place, Status
from tests import supervising
from tests.road import Road

FAULT = "drop=0.1,double=0.05,shuffle"
#: seconds within which the ledger has to have come to rest once no file moves any more, and for each file: each
#: delivery gets its verdict, which is synced, and a recorder that is killed all the time gets to few before.
CONVERGED_WITHIN, PER_FILE = 180.0, 0.1
#: one file: where it lies and under which name.
Lying = tuple[str, str, str]


@dataclass(slots=True)
class Report:
    """What happened, and where the ledger differs from the folders."""

    files: int
    kills: int = 0
    #: until no file moved any more, and from then on until the ledger had come to rest.
    seconds: float = 0.0
    converged: float = 0.0
    #: seconds of a processor that all recorders used.
    recorder_cpu: float = 0.0
    rows: int = 0
    attempts: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)


def project(root: Path, databases: Mapping[str, str] | None = None, workers: int = 2) -> Road:
    """Make a project with one pipeline into one folder, and into databases by their URLs."""
    locations: dict[str, Any] = {"lake": {"kind": "files", "path": "lake"}}
    for name, url in (databases or {}).items():
        locations[name] = {"kind": "sql", "url": url, "table": "feed", "create": True}
    return Road(
        root,
        {
            "extract": {"complete": {"settle": "200ms"}},
            "transform": {"read": "csv"},
            "load": {"locations": locations},
        },
        pipeline="feed",
        settings={"workers": workers, "scan": "5s", "reserve": "10MB", "stop_grace": "10s"},
    )


def drop(road: Road, files: int, dropbox: int) -> None:
    """Drop all files, each in one piece, while the dropbox is stopped with SIGSTOP; then it goes on."""
    os.kill(dropbox, signal.SIGSTOP)
    try:
        for number in range(files):
            road.drop(f"file{number}.csv", f"id\n{number}\n")
    finally:
        os.kill(dropbox, signal.SIGCONT)


def unleash(road: Road, files: int, *, within: float, seed: int = 0, tell: Callable[[str], None]) -> Report:
    """Have so many files worked while the recorder is killed at random; give what the ledger says afterwards."""
    report, dice = Report(files=files), random.Random(seed)
    os.environ["ETL_UPDATES_FAULT"] = FAULT
    try:
        with supervising.up(road) as up:
            up.pid("recorder")
            begun = time.monotonic()
            drop(road, files, up.pid("dropbox"))
            _kill_until_quiet(road, up, report, dice, begun + within)
            report.seconds = time.monotonic() - begun
            tell(
                f"{files:,} files worked in {report.seconds:.0f} s, the recorder killed {report.kills} times"
            )
            _wait_until_judged(road, up, files)
            report.converged = time.monotonic() - begun - report.seconds
            report.recorder_cpu += _cpu(up.pid("recorder"))
            up.stop()
    finally:
        del os.environ["ETL_UPDATES_FAULT"]
    compare(road, report)
    return report


def _kill_until_quiet(
    road: Road, up: supervising.Up, report: Report, dice: random.Random, until: float
) -> None:
    """Kill the recorder every few seconds; it is started again by its supervisor, later each time."""
    next_kill = time.monotonic() + dice.uniform(0.5, 2.0)
    while resolved(road) < report.files:
        assert time.monotonic() < until, f"{resolved(road)} of {report.files} files: {up.text()[-3000:]}"
        if time.monotonic() > next_kill and (alive := up.services().get("recorder")):
            report.recorder_cpu += _cpu(alive.pid)
            with suppress(ProcessLookupError):
                os.kill(alive.pid, signal.SIGKILL)
                report.kills += 1
            next_kill = time.monotonic() + dice.uniform(2.0, 8.0)
        time.sleep(0.2)


def resolved(road: Road) -> int:
    """Count the unit files that reached the end of the road."""
    return len(survey.listing(road.layout, road.place("load", ""), Status.RESOLVED))


def _cpu(pid: int) -> float:
    with suppress(OSError):
        told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _wait_until_judged(road: Road, up: supervising.Up, files: int) -> None:
    until = time.monotonic() + CONVERGED_WITHIN + files * PER_FILE
    while not _is_at_rest(road):
        assert time.monotonic() < until, f"the ledger does not come to rest: {up.text()[-3000:]}"
        time.sleep(0.5)


def _is_at_rest(road: Road) -> bool:
    """Tell whether the ledger knows every delivery's verdict and nothing is left to look at."""
    with suppress(Exception):  # no recorder has made it yet
        ledger = opened(road)
        try:
            with ledger.reading() as asking:
                known = queries.deliveries(asking, limit=1_000_000)
                stamps = queries.stamps(asking)
        finally:
            ledger.close()
        return (
            len(known) == len(road.ids())
            and all(one.judged and not one.open for one in known)
            and all(stamps.values())
        )
    return False


def opened(road: Road) -> Ledger:
    """Open the ledger of a project to ask it."""
    return opening.for_reading(reading.read(road.root / "config"), road.layout.data_id())


# --- the oracle ----------------------------------------------------------------------------------------------


def compare(road: Road, report: Report) -> None:
    """Hold the ledger against the folders: every file, every attempt, every verdict, every count."""
    ledger = opened(road)
    with ledger.reading() as asking:
        told = {
            (str(place), str(status), name): since
            for place in road.places()
            for status in Status
            for name, since in queries.names_in(asking, place, status).items()
        }
        counts = {(str(one.place), str(one.status)): one.files for one in queries.folders(asking)}
        known = queries.deliveries(asking, limit=1_000_000)
        attempts = {
            (str(one.place), one.name, one.attempt): one
            for delivery in known
            for one in queries.attempts(asking, delivery.pipeline, delivery.file_id)
        }
        jobs = sum(one.jobs for one in queries.totals(asking))
    ledger.close()
    lying = dict(_lying(road))
    report.rows, report.attempts = len(told), len(attempts)
    report.verdicts.update(one.verdict for one in known)
    report.differences += _differ("lies there, not in the ledger", lying.keys() - told.keys())
    report.differences += _differ("in the ledger, not there", told.keys() - lying.keys())
    report.differences += _differ(
        "another mtime", {key for key, since in told.items() if lying.get(key, since) != since}
    )
    lie = Counter((place, status) for place, status, _ in lying)
    report.differences += _differ(
        "counted wrong", {key for key in counts.keys() | lie.keys() if counts.get(key, 0) != lie[key]}
    )
    noted = set(_noted(road))
    report.differences += _differ("noted, no attempt in the ledger", noted - attempts.keys())
    report.differences += _differ("an attempt without a note", attempts.keys() - noted)
    report.differences += _differ(
        "no outcome", {key for key, one in attempts.items() if key in noted and not one.outcome}
    )
    if jobs != len(attempts):
        report.differences.append(f"totals count {jobs} jobs of {len(attempts)} attempts")
    report.differences += _differ("not judged", {one.file_id for one in known if not one.judged})
    told_once = {
        one.file_id: len(verdicts.read(road.layout, road.pipeline, one.file_id).records) for one in known
    }
    report.differences += _differ("judged twice", {key for key, times in told_once.items() if times != 1})


def _lying(road: Road) -> Iterator[tuple[Lying, float]]:
    for place in road.places():
        for status in Status:
            for name, since in survey.dated(road.layout, place, status)[0].items():
                yield (str(place), str(status), spelled(name)), since


def _noted(road: Road) -> Iterator[tuple[str, str, int]]:
    """Give every attempt that the notes of files tell of."""
    for place, name in _names(road):
        for number in range(1, notes.read(road.layout, place, name).attempt + 1):
            yield str(place), spelled(name), number


def _names(road: Road) -> Iterator[tuple[Place, str]]:
    for place in road.places():
        for status in Status:
            for name in survey.listing(road.layout, place, status):
                if names.parse(place.pipeline, name) is not None:
                    yield place, name


def _differ(what: str, found: set[object] | set[Lying] | set[str]) -> list[str]:  # type: ignore[type-arg]
    return [f"{what}: {len(found):,}, such as {sorted(map(str, found))[:3]}"] if found else []
