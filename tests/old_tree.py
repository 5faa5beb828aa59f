"""Trees that look as if their files had come days ago, for tests of what happens to files at rest."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from etl.files import archives, names, tarring, verifying
from etl.stages import clean
from etl.stages.reporting import Report
from tests.road import Road

_REAL = names.new_id
_ID = re.compile(rf"(?:^|~)([{names.ALPHABET}]{{16}})")

SPEC = {
    "transform": {
        "read": "csv",
        "units_per_file": 2,
        "schema": {"properties": {"id": {"type": "integer"}}},
    },
    "load": {"locations": {"lake": {"kind": "files", "path": "lake"}}},
}


def make(root: Path, pipeline: str = "books", **section: object) -> Road:
    """Make a project with a pipeline that has this `clean:` section; several may share one folder."""
    spec = json.loads(json.dumps(SPEC)) | {"clean": section}
    return Road(root, spec, pipeline, settings={"reserve": "1MB"})


def run(road: Road, *, days: float = 0.0, pipelines: tuple[str, ...] = ()) -> Report:
    """Clean in this process, as if so many days had gone by."""
    with road.opened() as app:
        wanted = list(pipelines) or sorted(app.config.pipelines)
        return clean.run(app, wanted, Report(), clock=lambda: time.time() + days * 86_400)


def named(road: Road, stage: str, status: str, stem: str) -> Path:
    """Give the first file in a status folder that was given this name, without its suffix."""
    return next(path for path in road.files(stage, status) if path.name.startswith(f"{stem}~"))


def correct(road: Road, stem: str) -> None:
    """Correct what is held back from a file, move it back and work it."""
    path = named(road, "transform", "failed", stem)
    path.write_text(path.read_text().replace("x", "7"))
    road.move_back(path)
    road.work()


def small(root: Path) -> Road:
    """One day: resolved, corrected, partial and failed, a followed request; and an archive that has expired."""
    road = make(root, expire_archives_after="365d")
    with came(400):
        road.drop("ancient.csv", "id\n1\n")
        road.work()
    date_back(road)
    road.judge()
    run(road)
    beside = next((road.data / "archive").glob("*/*.json"))
    facts = json.loads(beside.read_text())
    beside.write_text(json.dumps(facts | {"made": "2020-01-01T00:00:00+00:00"}))
    with came(3):
        for name, text in (
            ("corrected", "id\n1\nx\n"),
            ("good", "id\n1\n2\n3\n"),
            ("partial", "id\n1\nx\n"),
            ("failed", "id\nx\n"),
        ):
            road.drop(f"{name}.csv", text)
        road.ask()
        road.work()
        correct(road, "corrected")
    date_back(road)
    road.judge()
    return road


@contextmanager
def came(days: float) -> Iterator[None]:
    """Have what arrives inside have come so many days ago, by its id."""
    names.new_id = lambda pipeline, now: _REAL(pipeline, now - int(days * 86_400_000))  # type: ignore[assignment]
    try:
        yield
    finally:
        names.new_id = _REAL


def date_back(road: Road) -> None:
    """Set the mtime of every file and note of a pipeline to when its delivery came."""
    for path in (road.data / road.pipeline).rglob("*"):
        for file_id in _ID.findall(path.name):
            if path.is_file() and names.is_id(road.pipeline, file_id):
                came_at = names.milliseconds(file_id) / 1000
                os.utime(path, (came_at, came_at))


def lying(root: Path) -> dict[str, str]:
    """Give what lies in a data folder, with hashes: files, notes and logs, without archives and our own things."""
    found = {}
    for path in root.rglob("*"):
        inside = path.relative_to(root)
        if path.is_file() and inside.parts[0] not in (".etl", "archive") and not path.name.startswith("."):
            found[str(inside)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def archived(root: Path) -> dict[str, dict[str, str]]:
    """Give what archives hold, by `day/name`: path and hash of everything but the manifest, as the tar has it."""
    found = {}
    for path in sorted(root.glob("????-??-??/*.tar.*")):
        if not path.name.endswith(archives.MANIFEST):
            found[f"{path.parent.name}/{path.name}"] = {
                name: verifying.digest(stream)[0]
                for name, stream in tarring.files(path)
                if name != archives.INSIDE
            }
    return found


def half_done(root: Path) -> list[str]:
    """Give what a clean that was cut short may leave, in archives and among our own things."""
    left = [path for path in root.rglob("*.writing") if path.is_file()]
    left += [path for path in (root / ".etl" / "clean").glob("*") if path.name not in ("lock", "asked")]
    return sorted(str(path.relative_to(root)) for path in left)


State = tuple[dict[str, str], dict[str, dict[str, str]], list[str]]


def state(road: Road) -> State:
    """Give how a tree stands: what lies in it, what is archived, and what is half done; all archives are sound."""
    for path in (road.data / "archive").glob("*/*.manifest.json"):
        assert verifying.verify(archives.read(path)) == []
    return lying(road.data), archived(road.data / "archive"), half_done(road.data)
