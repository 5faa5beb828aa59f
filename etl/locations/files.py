"""A folder of JSON-lines files, one per unit file, under the unit file's name.

A file appears whole or not at all, once, also when whoever reads the folder has taken it away since: what was
loaded is recorded under `.etl/`, one record per unit file. Opened by `location`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import orjson

from etl import disk, errors, points
from etl.config import strict
from etl.model import Excess, Key, Loaded, Traced, UnitFile

Told = TypeVar("Told")

#: our own corner of the folder: records, files being written, the lock.
OURS = ".etl"
#: what an operator has to change; anything else (a full disk or one mounted read-only, a lost mount) is being away.
_FINAL = frozenset({errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EISDIR})


class Options(strict.Strict):
    """What may be written for a location of kind `files`."""

    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One unit file that was loaded: `staged` is where its units lie until they get their name."""

    path: Path
    name: str
    generation: int
    sha256: str
    count: int

    @property
    def staged(self) -> Path:
        """Give the path where the units are written aside."""
        return self.path.with_suffix(".writing")

    def as_bytes(self) -> bytes:
        """Write the record as it lies on disk."""
        facts = {"name": self.name, "generation": self.generation, "sha256": self.sha256, "count": self.count}
        return orjson.dumps(facts, option=orjson.OPT_INDENT_2)


def open_location(name: str, options: Options, root: Path) -> FilesLocation:
    """Open the location; the folder is made at the first load."""
    return FilesLocation(name, root / options.path)


class FilesLocation:
    """Loads unit files into a folder."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder

    def load(self, units: UnitFile) -> Loaded:
        """Write the units to a file of their own, or raise `Away` or `Refused` with nothing to be seen."""
        with self._problems_explained():
            records = self._folder / OURS / units.key.file
            disk.make_folder(records)
            with disk.wait_for_lock(self._folder / OURS / "lock"):
                return self._load(units, records)

    def findings(self) -> list[str]:
        """Say whether the folder can be written to, or made."""
        nearest = self._folder
        while not nearest.exists():
            nearest = nearest.parent
        if not nearest.is_dir():
            return [
                f"location {self.name!r}: {nearest} is not a folder: correct `path`, or move that file away"
            ]
        if not os.access(nearest, os.W_OK | os.X_OK):
            return [
                f"location {self.name!r}: folder {nearest} is not writable: allow writing, or correct `path`"
            ]
        return []

    def keys(self, data: str, pipeline: str) -> Iterator[Key] | None:
        """Tell what the records say, of every pipeline: a record carries no more than the file's id."""
        return self._records(lambda file, records: (_key(file, record) for record in records))

    def excess(self, data: str, pipeline: str) -> Iterator[Excess]:
        """Tell the records of older generations that were not taken away."""
        return self._records(_older)

    def trace(self, wanted: Mapping[str, str], most: int) -> Iterator[Traced]:
        """Read through the files, the newest first; where each unit stands in its unit file is told.

        A file that its reader took away cannot be looked into.
        """
        found = 0
        for file, record in sorted(
            self._records(lambda file, records: [(file, one) for one in records]),
            key=lambda one: (one[0], one[1].generation, one[1].name),
            reverse=True,
        ):
            with self._problems_explained():
                for ordinal, unit in _matching(self._folder / record.name, wanted):
                    yield Traced(
                        values=unit,
                        file=file,
                        generation=record.generation,
                        unit_file=record.name,
                        unit=ordinal,
                    )
                    if (found := found + 1) >= most:
                        return

    def _records(self, tell: Callable[[str, list[Record]], Iterable[Told]]) -> Iterator[Told]:
        """Tell something of every source file's records, or raise `Away` or `Refused`."""
        with self._problems_explained():
            ours = self._folder / OURS
            folders = sorted(path for path in ours.iterdir() if path.is_dir()) if ours.is_dir() else []
            for folder in folders:
                try:
                    records = list(_read(folder).values())
                except (ValueError, TypeError) as error:
                    raise errors.Refused(
                        f"location {self.name!r}: a record in {folder} is damaged: {error}",
                        next="Bring it back from a backup",
                    ) from error
                yield from tell(folder.name, records)

    def close(self) -> None:
        """Do nothing: no file is kept open."""

    def _load(self, units: UnitFile, records: Path) -> Loaded:
        there = _read(records)
        if any(record.generation > units.key.generation for record in there.values()):
            return Loaded(count=0, superseded=True)
        path = records / f"{units.key.generation}-{units.key.part}.json"
        before = there.get(path)
        if before and before.sha256 != units.sha256:
            raise errors.Refused(
                f"{units.name}: already loaded, and its bytes have changed since",
                next="Drop corrected units as a new file, or correct the source file and move that one back",
            )
        record = before or self._stage(units, path)
        self._publish(record)
        for older in there.values():
            if older.generation < record.generation:
                self._remove(older)
        return Loaded(count=0, before=True) if before else Loaded(count=record.count)

    def _stage(self, units: UnitFile, path: Path) -> Record:
        """Write units aside, then their record: that is the commit, after it the file only needs its name."""
        if (self._folder / units.name).exists():
            raise errors.Refused(
                f"location {self.name!r}: a file {units.name} is there that was not loaded here",
                next=f"Move it out of {self._folder}, then move the unit file back",
            )
        count = 0
        with points.effect(points.Point.LOCATION_WRITE), path.with_suffix(".writing").open("wb") as handle:
            for block in units.blocks():
                for row in block.rows:
                    handle.write(orjson.dumps(dict(zip(block.fields, row[1:], strict=True))) + b"\n")
                count += len(block.rows)
            disk.sync(handle)
        record = Record(
            path=path, name=units.name, generation=units.key.generation, sha256=units.sha256, count=count
        )
        disk.write(path, record.as_bytes(), points.Point.LOCATION_COMMIT)
        return record

    def _publish(self, record: Record) -> None:
        """Give staged units their name; done before, it is done."""
        if record.staged.exists():
            disk.move(record.staged, self._folder / record.name, points.Point.LOCATION_COMMIT)
            disk.sync_folder(self._folder)

    def _remove(self, older: Record) -> None:
        # the record goes last: while it is there, a killed removal is done again
        (self._folder / older.name).unlink(missing_ok=True)
        older.staged.unlink(missing_ok=True)
        older.path.unlink(missing_ok=True)

    @contextmanager
    def _problems_explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            said = f"location {self.name!r}: folder {self._folder}: {error.strerror or error}"
            if error.errno in _FINAL:
                raise errors.Refused(
                    said, next="Allow writing there or correct `path`, then move the file back"
                ) from error
            raise errors.Away(
                said, next="Make room or bring the folder back; nothing was published"
            ) from error


def _read(records: Path) -> dict[Path, Record]:
    found = {}
    for path in records.glob("*.json"):
        found[path] = Record(path=path, **orjson.loads(path.read_bytes()))
    return found


def _matching(path: Path, wanted: Mapping[str, str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Give the units with these values and their ordinals; none of a file that is no longer there."""
    try:
        lines = path.open("rb")
    except FileNotFoundError:
        return
    with lines:
        for ordinal, line in enumerate(lines):
            unit = orjson.loads(line)
            if all(field in unit and _text(unit[field]) == value for field, value in wanted.items()):
                yield ordinal, unit


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _key(file: str, record: Record) -> Key:
    part = record.path.stem.partition("-")[2]
    return Key(file=file, generation=record.generation, part=part, count=record.count)


def _older(file: str, records: list[Record]) -> Iterator[Excess]:
    current = max((record.generation for record in records), default=0)
    for record in records:
        if record.generation < current:
            yield Excess(
                file=file,
                generation=record.generation,
                rows=record.count,
                counted=record.count,
                current=current,
            )
