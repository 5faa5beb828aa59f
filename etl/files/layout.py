"""The data tree: which folder stands for which status, and where our own things lie beside them.

Only computes paths and makes folders; no file is moved here. Everybody who needs a path asks this room.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from etl import disk, points
from etl.errors import UnsafeName
from etl.files import names
from etl.model import Place, Stage, Status

#: the place of requests for an extract: the same status folders, so that one claim and one finish serve them too.
REQUESTS = ".requests"


@dataclass(frozen=True, slots=True)
class Layout:
    """Every path under one data folder."""

    data: Path

    # --- status folders

    def folder(self, place: Place) -> Path:
        """The folder that holds one place's status folders."""
        return self.data.joinpath(place.pipeline, place.stage, *filter(None, [place.location]))

    def status(self, place: Place, status: Status) -> Path:
        """One status folder."""
        return self.folder(place) / status

    def file(self, place: Place, status: Status, name: str) -> Path:
        """The path of a file, or raise `UnsafeName` when the name would lead out of its folder."""
        if "/" in name or "\0" in name or name in ("", ".", "..") or not names.fits(name):
            raise UnsafeName(f"{names.printable(name)[:200]!r} is not a file name in {place}")
        return self.status(place, status) / name

    def reason(self, place: Place, name: str, status: Status = Status.FAILED) -> Path:
        """Where the reason of a file lies: beside it."""
        return self.status(place, status) / f"{name}.reason.json"

    # --- what lies beside them

    def note(self, place: Place, name: str) -> Path:
        """The note of one file at one place: what changes, written by whoever holds the file's lock."""
        return self.folder(place) / ".notes" / f"{name}.json"

    def log(self, place: Place, name: str) -> Path:
        """What was logged and printed while one file was worked at one place; there once something was."""
        return self.folder(place) / ".logs" / f"{name}.log"

    def source_note(self, pipeline: str, file_id: str) -> Path:
        """The note of a source file: made once."""
        return self.data / pipeline / ".notes" / f"{file_id}.json"

    def discarded(self, pipeline: str, file_id: str) -> Path:
        """What of a source file an operator discarded; there once something was."""
        return self.data / pipeline / ".notes" / f"{file_id}.discarded.json"

    def staging(self, place: Place) -> Path:
        """Where an attempt prepares what it will publish."""
        return self.folder(place) / ".staging"

    def outbox(self, place: Place) -> Path:
        """Where a committed attempt lies until it is finished."""
        return self.folder(place) / ".outbox"

    def away(self, place: Place) -> Path:
        """The mark of a location that is away."""
        return self.folder(place) / ".away.json"

    def paused(self, pipeline: str, stage: Stage | None = None) -> Path:
        """The mark of a pipeline, or of one stage, that an operator paused."""
        return self.data.joinpath(pipeline, *([stage] if stage else []), ".paused.json")

    def newest(self, pipeline: str) -> Path:
        """Which delivery of each given name is the newest, where duplicates are looked for."""
        return self.data / pipeline / Stage.EXTRACT / ".newest"

    def pulled(self, pipeline: str) -> Path:
        """What was pulled from which source."""
        return self.data / pipeline / Stage.EXTRACT / ".pulled"

    @property
    def own(self) -> Path:
        """Our own things: id, locks, the embedded server's socket pointer."""
        return self.data / ".etl"

    def put_away(self, place: Place, why: str) -> Path:
        """The dated archive folder for files taken out of the road: superseded or discarded."""
        return self.data / "archive" / why / datetime.now(UTC).date().isoformat() / str(place)

    # --- making and knowing

    def make(self, pipeline: str, locations: Iterable[str]) -> None:
        """Make every folder of one pipeline."""
        for place in places(pipeline, locations):
            for status in Status:
                disk.make_folder(self.status(place, status))
            for own in (self.staging(place), self.outbox(place), self.folder(place) / ".notes"):
                disk.make_folder(own)
        disk.make_folder(self.data / pipeline / ".notes")
        disk.make_folder(self.pulled(pipeline))

    def data_id(self) -> str:
        """The id of this data folder, made once: two installations can share a Redis and a database."""
        path = self.own / "id"
        disk.make_folder(self.own)
        if not path.exists():
            with disk.wait_for_lock(self.own / "id.lock"):
                if not path.exists():
                    disk.write(path, secrets.token_hex(4).encode(), points.Point.NOTE_SOURCE)
        return path.read_text().strip()


def places(pipeline: str, locations: Iterable[str]) -> Iterator[Place]:
    """Give every place of one pipeline in the order in which a file passes them."""
    yield Place(pipeline=pipeline, stage=Stage.EXTRACT, location=REQUESTS)
    yield Place(pipeline=pipeline, stage=Stage.EXTRACT)
    yield Place(pipeline=pipeline, stage=Stage.TRANSFORM)
    yield Place(pipeline=pipeline, stage=Stage.LOAD)
    for location in locations:
        yield Place(pipeline=pipeline, stage=Stage.LOAD, location=location)
