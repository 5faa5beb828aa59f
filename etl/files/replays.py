"""Replays: a source file goes back to `transform/working`, out of `resolved/` or out of the archives of its day.

What comes out of an archive is written aside and held against its manifest first; then its notes are put where none
are, then the file itself. Replaces nothing. Killed at any moment and done again, it comes to the same end. Called by
`stages.replaying`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from etl import disk, points
from etl.errors import AlreadyClaimed, EtlError, Final, Vanished
from etl.files import archived, archives, names, notes, outbox, tarring
from etl.files.archived import Archived
from etl.files.archives import Manifest, Member, NoteMember
from etl.files.layout import Layout
from etl.model import Place, Stage, Status, Waiting
from etl.points import Point


def send_back(layout: Layout, place: Place, name: str, announce: outbox.Announce, *, again: bool) -> Waiting:
    """Move a resolved source file back to `working/`, or raise `NotClaimed` when it is not free to be moved."""
    path = layout.file(place, Status.RESOLVED, name)
    with _locked(path, place) as lock:
        if not disk.same_file(path, lock.descriptor):
            raise Vanished(f"{name!r} is no longer in {place}/resolved")
        # else its note would be written anew by whoever finishes it, and the wish be lost
        outbox.finish_pending(layout, place, name, announce)
        return _begin(layout, place, path, name, again=again)


def _locked(path: Path, place: Place) -> disk.Lock:
    try:
        lock = disk.lock_regular(path)
    except FileNotFoundError as error:
        raise Vanished(f"{path.name!r} is no longer in {place}/resolved") from error
    if lock is None:
        raise AlreadyClaimed(f"{path.name!r} in {place} is in use by another")
    return lock


def _begin(layout: Layout, place: Place, path: Path, name: str, *, again: bool) -> Waiting:
    """Note the wish, if there is one, and move a locked file into `working/`."""
    if again:
        note = notes.read(layout, place, name)
        if note.recipe and not note.again:
            notes.write(layout, place, name, replace(note, again=True), Point.NOTE_AGAIN)
    target = layout.file(place, Status.WORKING, name)
    try:
        disk.move(path, target, Point.REPLAY)
    except FileExistsError as error:
        raise AlreadyClaimed(f"another {name!r} waits in {place}/working") from error
    except FileNotFoundError as error:
        raise Vanished(f"{name!r} is no longer in {place}") from error
    disk.sync_folder(target.parent)
    return Waiting(place=place, name=name)


# --- out of the archives of one day ------------------------------------------------------------------------


@dataclass(slots=True)
class Unpacked:
    """What was written aside of some deliveries, and why some of them cannot be put back."""

    root: Path
    wrong: dict[str, EtlError] = field(default_factory=dict)

    def path(self, inside: str) -> Path:
        """Give where a file of an archive was written aside."""
        return self.root / inside


@contextmanager
def unpacked(
    layout: Layout, place: Place, day: str, wanted: Sequence[Archived], announce: outbox.Announce
) -> Iterator[Unpacked]:
    """Write the sources and notes of deliveries of one day aside, each held against its manifest.

    The folder is locked and goes with this context; of one whose owner died the next scan, or we, make an end.
    """
    outbox.sweep(layout, place, announce)
    folder = layout.staging(place) / f"{day}.replay"
    with outbox.Staging(layout, place, day, folder) as staging:
        aside = Unpacked(staging.aside().parent)
        parts: list[tuple[Manifest, Member | NoteMember]] = []
        for one in wanted:
            assert one.source is not None, "asked by whoever wants it"
            parts += [one.source, *(one.notes[path] for path in one.notes if _is_missing(layout, path))]
        for manifest, due in archived.by_archive(parts):
            _unpack(aside, manifest, dict(due))
        disk.sync_tree(aside.root, [path for path in aside.root.rglob("*") if path.is_file()])
        yield aside


def _is_missing(layout: Layout, note: str) -> bool:
    return not os.path.lexists(layout.data / note)


def _unpack(aside: Unpacked, manifest: Manifest, due: dict[str, Member | NoteMember]) -> None:
    """Write aside what is due of one archive; what is wrong with it is told of the deliveries it concerns."""
    try:
        for path, stream in _read(manifest, archives.contents(manifest, set(due))):
            if (one := due.get(path)) is None:
                continue  # it is in there twice, which no archive of ours is
            if _write(manifest, stream, aside.path(path)) != (one.sha256, one.size):
                aside.wrong[one.id] = archived.differs(manifest, path)
            del due[path]
            if not due:
                return
    except Final as error:
        aside.wrong |= {one.id: error for one in due.values()}
        return
    for path, one in due.items():
        aside.wrong[one.id] = Final(
            f"{names.printable(path)} is not in {manifest.path}", next="put back a copy of the archive"
        )


def _read(
    manifest: Manifest, inside: Iterator[tuple[str, tarring.Inside]]
) -> Iterator[tuple[str, tarring.Inside]]:
    while True:
        try:
            one = next(inside, None)
        except OSError as error:
            raise _unreadable(manifest, error) from error
        if one is None:
            return
        yield one


def _write(manifest: Manifest, stream: tarring.Inside, target: Path) -> tuple[str, int]:
    """Write a file of an archive aside, and give the sha256 and size of what was read."""
    target.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with points.effect(Point.REPLAY_STAGE), target.open("xb") as handle:
        while True:
            try:
                chunk = stream.read(disk.CHUNK)
            except OSError as error:  # the archive's disk, which may be another than ours
                raise _unreadable(manifest, error) from error
            if not chunk:
                return digest.hexdigest(), size
            handle.write(chunk)
            digest.update(chunk)
            size += len(chunk)


def _unreadable(manifest: Manifest, error: OSError) -> Final:
    return Final(f"the archive {manifest.path} cannot be read: {error}", next="see that its disk is there")


def put_back(layout: Layout, place: Place, one: Archived, aside: Unpacked, *, again: bool) -> Waiting:
    """Put a delivery's notes back where none are, then its source into `working/`.

    Raise `Final` when it is not what was archived, `NotClaimed` when a file of its name is there by now.
    """
    if one.id in aside.wrong:
        raise aside.wrong[one.id]
    assert one.source is not None, "it was written aside"
    member = one.source[1]
    for status in Status:
        if os.path.lexists(layout.file(place, status, member.name)):
            raise AlreadyClaimed(f"{member.name!r} lies in {place}/{status}")
    with _locked(aside.path(member.path), place):
        _put_notes_back(layout, one, aside)
        return _begin(layout, place, aside.path(member.path), member.name, again=again)


def _put_notes_back(layout: Layout, one: Archived, aside: Unpacked) -> None:
    """Put back every note of which there is none: one that is there is newer. Those of children come first.

    So a parent never tells of children of which nobody knows. The source's own is last: without it nobody judges the
    delivery, and with it but without its verdict it would be judged anew, and its hooks be called once more.
    """
    order = [Stage.LOAD, Stage.TRANSFORM, Stage.EXTRACT]
    parts = {path: [part for part in path.split("/")[1:2] if part in order] for path in one.notes}
    source = str(layout.source_note(one.pipeline, one.id).relative_to(layout.data))
    folders = set()
    for path in sorted(
        parts, key=lambda path: order.index(Stage(parts[path][0])) if parts[path] else 3 + (path == source)
    ):
        target = layout.data / path
        if not os.path.lexists(target) and aside.path(path).exists():
            disk.make_folder(target.parent)
            with points.effect(Point.REPLAY_NOTE):
                disk.rename(aside.path(path), target)
            folders.add(target.parent)
    for folder in folders:
        disk.sync_folder(folder)
