"""Lineage the other way round: from a row at a location back to the delivery, the line, and the vendor's own bytes.

Only looks, at the folders, the notes and the archive, and reads no file into memory as a whole. Called by `etl trace`.
"""

from __future__ import annotations

import glob
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import orjson

from etl.app import App
from etl.errors import ConfigError, Final
from etl.files import archived, names, notes, walking
from etl.files.archives import Manifest, Member
from etl.formats import units, unpack
from etl.formats.format import Batch
from etl.model import Place, Stage, Status, Traced
from etl.services import left


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a row came from."""

    row: Traced
    pipeline: str
    #: name as given; "" where nothing is known of the file any more.
    given: str
    #: seconds since 1970; 0 where it is not known.
    arrived: float
    line: int | None
    #: where the file lies now: under the data folder, or the archive that it is in; None when it is gone.
    path: Path | None
    verdict: str
    #: which archive that is, and what the file is called in it.
    held: tuple[Manifest, Member] | None = None

    @property
    def inside(self) -> str:
        """The file's path inside the archive; "" for one that lies in a folder."""
        return self.held[1].path if self.held else ""


def trace(app: App, pipeline: str, location: str, wanted: Mapping[str, str], most: int) -> Iterator[Origin]:
    """Give the origin of every row of a location with these values, or raise what the location answers."""
    known: dict[tuple[str, str], Origin] = {}
    for row in app.locations(pipeline)[location].trace(wanted, most):
        owner = _owner(app, pipeline, row.file)
        if (owner, row.file) not in known:
            known[owner, row.file] = _origin(app, owner, row)
        line = row.line if row.line is not None else _line(app, owner, location, row)
        yield replace(known[owner, row.file], row=row, line=line)


def _origin(app: App, pipeline: str, row: Traced) -> Origin:
    """Find the file that a row came from: in its folders, else in the archives, else put away by its name."""
    source = notes.glance_source(app.layout, pipeline, row.file)
    path = _path(app, pipeline, row.file, source)
    held = None if path else left.of_id(app.config, pipeline, row.file)
    kept = held.source if held else None
    if kept is None and path is None and source is not None:
        path = _put_away(app, str(names.christen(source.given, row.file)))
    given = source.given if source else held.given if held else ""
    return Origin(
        row=row,
        pipeline=pipeline,
        given=given,
        arrived=source.arrived if source else kept[1].arrived if kept else 0.0,
        line=row.line,
        path=kept[0].path if kept else path,
        verdict=_verdict(app, pipeline, row.file) or (kept[1].lineage.verdict if kept else ""),
        held=kept,
    )


def raw(app: App, origin: Origin) -> str:
    """Give the row as the vendor wrote it, or raise `Final` when the file or the line is no longer there."""
    told = f"{names.printable(origin.given) or origin.row.file}, line {origin.line}"
    if origin.path is None or origin.line is None:
        raise Final(
            f"{told}: the file lies neither in its folders nor in the archive", next="look in a backup"
        )
    spec = app.pipeline(origin.pipeline).spec.transform
    with _opened(origin, origin.path) as (name, stream):
        reading = app.format(origin.pipeline).open(unpack.unpack(name, stream, int(spec.read.max_unpacked)))
        for batch in reading.batches():
            if (found := _in(batch, origin.line)) is not None:
                return found
    raise Final(
        f"{told}: {origin.path} has no row there",
        next="the file was changed since, or `transform.read` was; look into it by hand",
    )


@contextmanager
def _opened(origin: Origin, path: Path) -> Iterator[tuple[str, BinaryIO]]:
    """Open the file that a row came from, and give its name; one out of an archive is copied out, and verified."""
    if origin.held is None:
        with path.open("rb") as stream:
            yield path.name, stream
        return
    manifest, member = origin.held
    with tempfile.TemporaryFile() as copy:
        archived.copy_out(manifest, member, copy)
        copy.seek(0)
        yield member.name, copy


def _in(batch: Batch, line: int) -> str | None:
    """Give the text of the row that starts at a line, if it is in this batch."""
    for wrong in batch.wrong:  # held back, corrected and loaded later
        if wrong.trouble.line == line:
            return wrong.raw
    if not batch.lines or not batch.lines[0] <= line <= batch.lines[-1] or line not in batch.lines:
        return None
    index = batch.lines.index(line)
    return batch.raw[index] if batch.raw is not None else orjson.dumps(batch.rows[index]).decode()


def _owner(app: App, pipeline: str, file_id: str) -> str:
    """Tell whose file it is: several pipelines may load one table, and an id knows its own."""
    known = [pipeline, *app.config.pipelines]
    return next((name for name in known if names.is_id(name, file_id)), pipeline)


def _verdict(app: App, pipeline: str, file_id: str) -> str:
    try:
        locations = app.pipeline(pipeline).spec.load.locations
    except ConfigError:
        return ""
    found = walking.find(app.layout, pipeline, file_id, locations)
    return found.verdict if found else ""


def _path(app: App, pipeline: str, file_id: str, source: notes.SourceNote | None) -> Path | None:
    """Find the source file: what was transformed first, then what was extracted, then the archive."""
    if source is None:
        return None
    name = str(names.christen(source.given, file_id))
    for stage in (Stage.TRANSFORM, Stage.EXTRACT):
        for status in Status:
            path = app.layout.file(Place(pipeline=pipeline, stage=stage), status, name)
            if path.is_file():
                return path
    return None


def _put_away(app: App, name: str) -> Path | None:
    """Find what was put away below data/archive, or moved there by hand; the newest day first."""
    return max((app.layout.data / "archive").rglob(glob.escape(name)), default=None)


def _line(app: App, pipeline: str, location: str, row: Traced) -> int | None:
    """Find the source line of a unit in its unit file; None when that is gone."""
    places = [
        Place(pipeline=pipeline, stage=Stage.LOAD),
        Place(pipeline=pipeline, stage=Stage.LOAD, location=location),
    ]
    paths = [app.layout.file(place, Status.RESOLVED, row.unit_file) for place in places]
    paths += sorted((app.layout.data / "archive").rglob(glob.escape(row.unit_file)), reverse=True)
    path = next((path for path in paths if path.is_file()), None)
    if path is not None:
        with path.open("rb") as stream:
            return _line_in(stream, row.unit)
    held = left.of_id(app.config, pipeline, row.file)
    kept = next((one for one in (held.files if held else ()) if one[1].name == row.unit_file), None)
    if kept is None:
        return None
    with tempfile.TemporaryFile() as copy:
        archived.copy_out(*kept, copy)
        copy.seek(0)
        return _line_in(copy, row.unit)


def _line_in(stream: BinaryIO, unit: int) -> int | None:
    start = 0
    for block in units.read_blocks(stream):
        if unit < start + len(block.rows):
            return int(block.rows[unit - start][0])
        start += len(block.rows)
    return None
