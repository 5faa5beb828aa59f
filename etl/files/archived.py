"""Archived deliveries: what the archives of a day hold of one delivery, put together over all of them.

Reads manifests, and of tars only what is asked for. Changes nothing. Called by replay, fsck, and whoever shows or
traces a file that has left the folders.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from etl import disk
from etl.errors import Final
from etl.files import archives, names
from etl.files.archives import Manifest, Member, NoteMember
from etl.model import Stage

#: characters of an id that tell its time, and that somebody has to write of one at least.
_TIME, LEAST = 9, 4


@dataclass(slots=True, kw_only=True)
class Archived:
    """Everything that archives hold of one delivery, oldest archive first."""

    pipeline: str
    id: str
    files: list[tuple[Manifest, Member]] = field(default_factory=list)
    #: its notes and logs by path; of each the newest.
    notes: dict[str, tuple[Manifest, NoteMember]] = field(default_factory=dict)

    @property
    def given(self) -> str:
        """The name as it was given; of what was archived without any file, its id."""
        return self.files[-1][1].given if self.files else self.id

    @property
    def source(self) -> tuple[Manifest, Member] | None:
        """The newest life of its source file: what transform had, else what extract passed on.

        A file that was corrected in transform is newer than what extract has, unless extract passed on other bytes
        after that.
        """
        extracted = [one for one in self._sources(Stage.EXTRACT) if one[1].lineage.recipe]
        transformed = self._sources(Stage.TRANSFORM)
        if transformed and len({member.sha256 for _, member in extracted}) <= 1:
            return transformed[-1]
        return max([*extracted, *transformed], key=lambda one: _made(one[0]), default=None)

    def _sources(self, stage: Stage) -> list[tuple[Manifest, Member]]:
        found = []
        for manifest, member in self.files:
            file = names.parse(self.pipeline, member.name)
            if member.place.stage is stage and not member.place.location and file and file.is_source:
                found.append((manifest, member))
        return found


def _made(one: Manifest) -> tuple[str, int, int]:
    """Sort archives of one day by age; in one run extract's is made first."""
    return one.made, archives.number(one.archive, one.pipeline, one.stage) or 0, list(Stage).index(one.stage)


def of_day(root: Path, pipeline: str, day: str) -> dict[str, Archived]:
    """Give the deliveries in the archives of one day by id, or raise `Final` where one of these cannot be read.

    An archive whose manifest is missing may hold a newer life of any of them: then nothing is said of that day.
    """
    manifests = list(archives.of_days(root, pipeline, day, day))
    known = {one.archive for one in manifests}
    for path in tars(root / day, pipeline):
        if path.name not in known:
            raise Final(
                f"the archive {path} has no manifest",
                next=f"take it out of it: tar -xOf {path.name} {archives.INSIDE} > {path.name}{archives.MANIFEST}",
            )
    return _together(pipeline, manifests)


def of_id(root: Path, pipeline: str, file_id: str) -> Archived | None:
    """Give what archives hold of one delivery, or None; raise `Final` where one of its day cannot be read."""
    return _together(pipeline, archives.of_id(root, pipeline, file_id)).get(file_id)


def _together(pipeline: str, manifests: Iterable[Manifest]) -> dict[str, Archived]:
    found: dict[str, Archived] = {}
    for manifest in sorted(manifests, key=_made):
        for member in manifest.members:
            one = found.setdefault(member.id, Archived(pipeline=pipeline, id=member.id))
            one.files.append((manifest, member))
        for note in manifest.notes:
            one = found.setdefault(note.id, Archived(pipeline=pipeline, id=note.id))
            one.notes[note.path] = (manifest, note)
    return found


def tars(folder: Path, pipeline: str) -> list[Path]:
    """Give the archives of a pipeline that lie in the folder of a day, with or without their manifests."""
    try:
        found = sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [path for path in found if any(archives.number(path.name, pipeline, one) for one in Stage)]


def find(root: Path, pipeline: str, wanted: str) -> list[Archived]:
    """Give the deliveries that are meant by an id, the start of one, a full name or a given name, oldest first.

    A day of which a manifest cannot be read says nothing here; fsck tells of it.
    """
    last = wanted.rstrip("/").rpartition("/")[2]
    every, near = archives.days(root), _days_of(pipeline, last)
    found = [one for day in every if day in near for one in _meant(root, pipeline, day, last)]
    if found or names.parse(pipeline, last) or names.is_id(pipeline, last):
        return found
    return [one for day in every for one in _meant(root, pipeline, day, last)]


def _meant(root: Path, pipeline: str, day: str, wanted: str) -> list[Archived]:
    known = names.parse(pipeline, wanted)
    told = json.dumps(known.id if known else names.split(wanted)[0])[1:-1].encode()
    try:
        # most days are about others, and to read a manifest takes far longer than to look through it
        if not any(told in path.read_bytes() for path in archives.paths(root, pipeline, day, day)):
            return []
        found = of_day(root, pipeline, day)
    except (Final, OSError):
        return []
    return [found[file_id] for file_id in sorted(found) if means(found[file_id], wanted)]


class _Days:
    """The days on which something may have come whose id, or the start of it, is written: ids begin with their time."""

    def __init__(self, start: str) -> None:
        self._first, self._last = (archives.day_of(start[:_TIME].ljust(_TIME, fill)) for fill in "0z")

    def __contains__(self, day: str) -> bool:
        return self._first <= day <= self._last


def _days_of(pipeline: str, wanted: str) -> _Days | tuple[()]:
    known = names.parse(pipeline, wanted)
    start = known.id if known else wanted
    return _Days(start) if len(start) >= LEAST and set(start) <= set(names.ALPHABET) else ()


def means(one: Archived, wanted: str) -> bool:
    """Tell whether a delivery is meant by an id or its start, a full name, or its given name."""
    if len(wanted) >= LEAST and one.id.startswith(wanted):
        return True
    known = names.parse(one.pipeline, wanted)
    if known is not None:
        return known.id == one.id
    return one.given == wanted or any(
        wanted == file.given for _, member in one.files if (file := names.parse(one.pipeline, member.name))
    )


# --- what is inside ----------------------------------------------------------------------------------------


def by_archive(
    wanted: Iterable[tuple[Manifest, Member | NoteMember]],
) -> list[tuple[Manifest, Mapping[str, Member | NoteMember]]]:
    """Sort what is wanted by the archive it lies in, so that each is read once."""
    manifests: dict[Path, Manifest] = {}
    sorted_: dict[Path, dict[str, Member | NoteMember]] = defaultdict(dict)
    for manifest, one in wanted:
        manifests[manifest.path] = manifest
        sorted_[manifest.path][one.path] = one
    return [(manifests[path], sorted_[path]) for path in manifests]


def read_notes(one: Archived, wanted: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Give the bytes of some notes of a delivery by path, or raise `Final` where they are not what was archived."""
    for manifest, due in by_archive(one.notes[path] for path in wanted):
        left = set(due)
        for path, stream in archives.contents(manifest, due):
            data = stream.read()
            if (hashlib.sha256(data).hexdigest(), len(data)) != (due[path].sha256, due[path].size):
                raise differs(manifest, path)
            yield path, data
            left.discard(path)
            if not left:
                break


def differs(manifest: Manifest, path: str) -> Final:
    """Give the error for what an archive holds and its manifest does not know so."""
    return Final(
        f"{names.printable(path)} in {manifest.path} is not what was archived: its sha256 or size differs",
        next="put back a copy of the archive, then try again",
    )


def copy_out(manifest: Manifest, member: Member, target: BinaryIO) -> None:
    """Copy the bytes of a member to an open file, or raise `Final` when they are not what was archived."""
    digest, size = hashlib.sha256(), 0
    for _, stream in archives.contents(manifest, [member.path]):
        while chunk := stream.read(disk.CHUNK):
            digest.update(chunk)
            size += len(chunk)
            target.write(chunk)
        break
    if (digest.hexdigest(), size) != (member.sha256, member.size):
        raise differs(manifest, member.path)
