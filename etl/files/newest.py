"""Newest: which delivery of a given name passed extract last, and with which bytes. A small index on disk.

Tells duplicates; decides nothing about them and moves no file. One small file per given name, in 256 folders with
a lock each; its name holds the delivery's id, so that one that is put there late never hides a newer one. Called
by extract.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from etl import disk, points
from etl.files import names, notes, survey
from etl.files.layout import Layout
from etl.model import Place, Stage, Status, Waiting
from etl.points import Point

_WAITS = ".waits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """The newest delivery of a given name that passed extract."""

    id: str
    sha256: str
    given: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One given name's place in the index; locked by whoever decides about a delivery of that name."""

    layout: Layout
    pipeline: str
    given: str

    @property
    def _stem(self) -> str:
        return hashlib.sha256(self.given.encode(errors="surrogateescape")).hexdigest()[:32]

    @property
    def _folder(self) -> Path:
        return self.layout.newest(self.pipeline) / self._stem[:2]

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock of the entry: from the decision until the commit that follows from it."""
        disk.make_folder(self._folder)
        with disk.wait_for_lock(self._folder / ".lock"):
            yield

    def read(self) -> Newest | None:
        """Give the newest delivery; None where none is known."""
        for path in reversed(self._paths()):
            with suppress(FileNotFoundError, ValueError, TypeError):  # damaged: as good as none
                return Newest(**json.loads(path.read_bytes()))
        return None

    def record(self, newest: Newest) -> tuple[Path, bytes]:
        """Give where a delivery is recorded and as what, to be committed together with what it makes."""
        facts = json.dumps(asdict(newest), indent=1).encode() + b"\n"
        return self._folder / f"{self._stem}.{newest.id}.json", facts

    def tidy(self) -> None:
        """Remove what is older than the newest; under the lock."""
        for path in self._paths()[:-1]:
            with points.effect(Point.CLEAR_OUTBOX):
                path.unlink(missing_ok=True)

    def _paths(self) -> list[Path]:
        # an id sorts by arrival, and so do these names
        return sorted(self._folder.glob(f"{self._stem}.*.json"))

    # --- those that wait for an older one

    def older(self, file_id: str, sha256: str) -> str:
        """Name a delivery of this name that is older, has other bytes and has not passed extract; "" for none.

        One that failed there counts too: it may yet be moved back.
        """
        place = Place(pipeline=self.pipeline, stage=Stage.EXTRACT)
        for status in (Status.WORKING, Status.IN_PROCESS, Status.FAILED):
            for name in survey.listing(self.layout, place, status):
                if self._is_older(place, status, name, file_id, sha256):
                    return f"{place}/{status}/{name}"
        return ""

    def _is_older(self, place: Place, status: Status, name: str, file_id: str, sha256: str) -> bool:
        file = names.parse(self.pipeline, name)
        if file is None:
            try:
                changed = self.layout.file(place, status, name).lstat().st_ctime_ns // 1_000_000
            except OSError:
                return name == self.given  # it is being claimed right now
            return name == self.given and changed <= names.milliseconds(file_id)
        if file.id >= file_id or not self._is_ours(file):
            return False
        note = notes.glance_source(self.layout, self.pipeline, file.id)
        return note is None or (note.given == self.given and note.sha256 != sha256)

    def _is_ours(self, file: names.FileName) -> bool:
        return file.given == names.christen(self.given, file.id).given

    def wait(self) -> None:
        """Have whoever commits an older delivery of this name look for those that wait for it; under the lock."""
        with points.effect(Point.PUT_OFF):
            (self._folder / f"{self._stem}{_WAITS}").touch()

    def waiting(self) -> list[Waiting]:
        """Give those that wait for an older delivery, once; under the lock."""
        mark = self._folder / f"{self._stem}{_WAITS}"
        if not mark.exists():
            return []
        with points.effect(Point.PUT_OFF):
            mark.unlink(missing_ok=True)
        place = Place(pipeline=self.pipeline, stage=Stage.EXTRACT)
        return [
            Waiting(place=place, name=name)
            for name in survey.listing(self.layout, place, Status.WORKING)
            if (file := names.parse(self.pipeline, name)) and self._is_ours(file)
        ]


def is_kept(layout: Layout, pipeline: str) -> bool:
    """Tell whether the index was ever kept: then it must go on being true, whatever is configured now."""
    return os.path.lexists(layout.newest(pipeline))
