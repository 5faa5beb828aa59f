"""Makes archives by hand, as their format is documented: what a test wants to be gone from the folders."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from etl import disk
from etl.files import archives, names, notes, tarring
from etl.files.archives import Lineage, Manifest, Member, NoteMember
from etl.model import Place, Stage, Status
from tests.road import Road


def day_before(days: int) -> str:
    """Give the UTC day so many days ago."""
    return archives.day_of(id_of("books", days))


def id_of(pipeline: str, days: int) -> str:
    """Make an id of so many days ago."""
    now = datetime.now(UTC).timestamp()
    return names.new_id(pipeline, int((now - days * 86400) * 1000))


def drop(road: Road, given: str, text: str, days: int) -> str:
    """Drop a file as if it had come so many days ago, and give its id."""
    file_id = id_of(road.pipeline, days)
    road.drop(str(names.christen(given, file_id)), text)
    return file_id


def archive(road: Road, *, number: int = 1) -> Path:
    """Archive whatever is resolved of deliveries of which all is; give the folder of the last day."""
    folder = Path()
    for day in sorted({archives.day_of(one) for one in road.ids()}):
        of_day = [one for one in road.ids() if archives.day_of(one) == day]
        folder = road.data / "archive" / day
        folder.mkdir(parents=True, exist_ok=True)
        for stage in ("transform", "extract"):  # notes go with the last
            _archive(road, folder, [one for one in of_day if _rests(road, one)], stage, number)
    return folder


def _rests(road: Road, file_id: str) -> bool:
    return all("/resolved/" in str(path) for path in _files(road, file_id))


def _files(road: Road, file_id: str) -> list[Path]:
    return [
        path
        for path in sorted((road.data / road.pipeline).rglob(f"*~{file_id}*"))
        if path.parent.name in set(Status) and not names.never_work(path.name)
    ]


def _archive(road: Road, folder: Path, ids: list[str], stage: str, number: int) -> None:
    kept, paths, removed = [], [], []
    for file_id in ids:
        for path in _files(road, file_id):
            file = names.parse(road.pipeline, path.name)
            assert file is not None
            of_stage = path.parent.parent.name == stage and path.parent.parent.parent.name == road.pipeline
            if of_stage and (stage == "extract" or file.is_held_back or _differs(road, path)):
                kept.append(_member(road, path))
                paths.append(path)
            elif stage == "extract" and not of_stage:
                path.unlink()
                removed.append(str(path.relative_to(road.data)))
    noted = _notes(road, ids) if stage == "extract" else []
    if not kept and not noted:
        return
    manifest = Manifest(
        archive=archives.name(road.pipeline, Stage(stage), number, "gz"),
        pipeline=road.pipeline,
        stage=Stage(stage),
        day=folder.name,
        made=datetime.now(UTC).isoformat(),
        members=kept,
        regenerable=removed,
        notes=[_note(road, path, file_id) for path, file_id in noted],
        folder=folder,
    )
    parts = [(str(path.relative_to(road.data)), path.read_bytes()) for path in [*paths, *dict(noted)]]
    write_tar(manifest, [*parts, (archives.INSIDE, archives.dump(manifest))])
    for path in [*paths, *dict(noted)]:
        os.unlink(path)


def write_tar(manifest: Manifest, parts: Iterable[tuple[str, bytes]]) -> None:
    """Write an archive and its manifest."""
    with manifest.path.open("xb") as handle, tarring.writing(handle, "gz") as tar:
        for path, data in parts:
            tarring.add(tar, path, io.BytesIO(data), len(data), 0)
    manifest.beside.write_bytes(archives.dump(manifest))


def _differs(road: Road, path: Path) -> bool:
    """Tell whether transform has other bytes than extract passed on."""
    if path.parent.parent.name != "transform":
        return False
    passed = notes.read(road.layout, road.place("extract"), path.name).recipe
    return disk.sha256(path) != passed


def _member(road: Road, path: Path) -> Member:
    parts = path.relative_to(road.data).parts
    place = Place(
        pipeline=parts[0], stage=Stage(parts[1]), location=parts[2] if parts[2] != "resolved" else ""
    )
    file = names.parse(road.pipeline, path.name)
    assert file is not None
    source = notes.read_source(road.layout, road.pipeline, file.id)
    note = notes.read(road.layout, place, path.name)
    assert source is not None
    sha256, size = disk.sha256(path), path.stat().st_size
    return Member(
        path="/".join(parts),
        place=place,
        name=path.name,
        given=source.given,
        id=file.id,
        sha256=sha256,
        size=size,
        mtime=source.mtime,
        arrived=source.arrived,
        lineage=Lineage(generation=note.generation, recipe=note.recipe, verdict="resolved"),
    )


def _notes(road: Road, ids: Iterable[str]) -> list[tuple[Path, str]]:
    base = road.data / road.pipeline
    return [
        (path, file_id)
        for file_id in ids
        for path in sorted(base.rglob(f"*{file_id}*"))
        if path.parent.name in (".notes", ".logs") and path.is_file()
    ]


def _note(road: Road, path: Path, file_id: str) -> NoteMember:
    sha256, size = disk.sha256(path), path.stat().st_size
    return NoteMember(path=str(path.relative_to(road.data)), id=file_id, sha256=sha256, size=size)


def manifest_of(path: Path) -> dict[str, object]:
    """Read the manifest beside an archive as plain facts."""
    facts: dict[str, object] = json.loads(path.with_name(path.name + archives.MANIFEST).read_bytes())
    return facts
