"""Lineage the other way round: from a row at a location back to the delivery, the line, and the vendor's own bytes.

Only looks, at the folders, the notes and the archive, and reads no file into memory as a whole. Called by `etl trace`.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

from etl.app import App
from etl.errors import ConfigError, Final
from etl.files import names, notes, walking
from etl.formats import units, unpack
from etl.formats.format import Batch
from etl.model import Place, Stage, Status, Traced


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
    #: where the file lies now, under the data folder or in the archive; None when it is gone.
    path: Path | None
    verdict: str


def trace(app: App, pipeline: str, location: str, wanted: Mapping[str, str], most: int) -> Iterator[Origin]:
    """Give the origin of every row of a location with these values, or raise what the location answers."""
    verdicts: dict[tuple[str, str], str] = {}
    for row in app.locations(pipeline)[location].trace(wanted, most):
        owner = _owner(app, pipeline, row.file)
        if (owner, row.file) not in verdicts:
            verdicts[owner, row.file] = _verdict(app, owner, row.file)
        source = notes.glance_source(app.layout, owner, row.file)
        yield Origin(
            row=row,
            pipeline=owner,
            given=source.given if source else "",
            arrived=source.arrived if source else 0.0,
            line=row.line if row.line is not None else _line(app, owner, location, row),
            path=_path(app, owner, row.file, source),
            verdict=verdicts[owner, row.file],
        )


def raw(app: App, origin: Origin) -> str:
    """Give the row as the vendor wrote it, or raise `Final` when the file or the line is no longer there."""
    told = f"{names.printable(origin.given) or origin.row.file}, line {origin.line}"
    if origin.path is None or origin.line is None:
        raise Final(
            f"{told}: the file lies neither in its folders nor in the archive", next="look in a backup"
        )
    spec = app.pipeline(origin.pipeline).spec.transform
    with origin.path.open("rb") as stream:
        reading = app.format(origin.pipeline).open(
            unpack.unpack(origin.path.name, stream, int(spec.read.max_unpacked))
        )
        for batch in reading.batches():
            if (found := _in(batch, origin.line)) is not None:
                return found
    raise Final(
        f"{told}: {origin.path} has no row there",
        next="the file was changed since, or `transform.read` was; look into it by hand",
    )


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
    # the newest day first
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
    if path is None:
        return None
    start = 0
    with path.open("rb") as stream:
        for block in units.read_blocks(stream):
            if row.unit < start + len(block.rows):
                return int(block.rows[row.unit - start][0])
            start += len(block.rows)
    return None
