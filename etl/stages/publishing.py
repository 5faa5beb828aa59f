"""What a transform writes into its staging folder: unit files that rotate, and the file of held-back rows.

Nothing here counts until the staging folder is committed. Called by transform.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import orjson

from etl import points
from etl.files import names, outbox, reasons
from etl.formats.format import Reading
from etl.formats.units import UnitWriter
from etl.model import Place, Stage, Status, Trouble
from etl.points import Point


class UnitFiles:
    """Writes units into files of at most `per_file`, each a child in `load/working`."""

    def __init__(
        self, staging: outbox.Staging, parent: names.FileName, recipe: str, *, generation: int, per_file: int
    ) -> None:
        self._staging = staging
        self._parent = parent
        self._recipe = recipe
        self._generation = generation
        self._per_file = per_file
        self._handle: BinaryIO | None = None
        self._writer: UnitWriter | None = None
        self.files = 0
        self.units = 0

    def write(self, fields: tuple[str, ...], rows: Sequence[Sequence[Any]]) -> None:
        """Write units of one shape, starting new files as they fill."""
        start = 0
        while start < len(rows):
            writer = self._open()
            room = self._per_file - writer.count
            part = rows if start == 0 and len(rows) <= room else rows[start : start + room]
            writer.write(fields, part)
            start += len(part)
            self.units += len(part)
            if writer.count >= self._per_file:
                self.close()

    def write_empty(self) -> None:
        """Publish one file without units, so that a new generation that makes none is known to the locations."""
        self._open().write((), ())
        self.close()

    def _open(self) -> UnitWriter:
        if self._writer is None:
            self.files += 1
            child = self._parent.child(self.files, self._generation)
            place = Place(pipeline=self._staging.place.pipeline, stage=Stage.LOAD)
            with points.effect(Point.STAGE_CHILD):
                self._handle = self._staging.child(place, Status.WORKING, str(child)).open(
                    "xb", buffering=1 << 18
                )
            self._writer = UnitWriter(self._handle, self._recipe)
        return self._writer

    def close(self) -> None:
        """Close the file being written."""
        if self._handle is not None:
            self._handle.close()
        self._handle = self._writer = None


@dataclass(slots=True)
class HeldBack:
    """Rows kept out of a file, written so that they can be corrected and moved back."""

    staging: outbox.Staging
    name: str
    reading: Reading
    raw_rows: bool
    count: int = 0
    #: the first of what is wrong; a reason tells no more of it, and a file may be wrong in every row.
    troubles: list[Trouble] = field(default_factory=list)
    lines: array[int] = field(default_factory=lambda: array("q"))
    _handle: BinaryIO | None = None

    def add(self, trouble: Trouble, line: int, raw: str | dict[str, Any]) -> None:
        """Keep one row out, for this reason."""
        handle = self._handle or self._open()
        text = raw if isinstance(raw, str) else orjson.dumps(raw, default=str).decode()
        handle.write((text + "\n").encode(self.reading.encoding if self.raw_rows else "utf-8"))
        self.count += 1
        if len(self.troubles) < reasons.MOST_TROUBLES:
            self.troubles.append(trouble)
        self.lines.append(line)

    def _open(self) -> BinaryIO:
        with points.effect(Point.STAGE_CHILD):
            path = self.staging.child(self.staging.place, Status.FAILED, self.name)
            self._handle = path.open("xb")
        if self.raw_rows:
            self._handle.write(self.reading.head.encode(self.reading.encoding))
        return self._handle

    def close(self) -> None:
        """Close the file."""
        if self._handle is not None:
            self._handle.close()
