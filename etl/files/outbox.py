"""Staging and outbox: what an attempt publishes, prepared aside and committed as a whole by one rename.

A staging folder is a small data tree: what lies at `load/working/x` in it goes to `load/working/x` of the
pipeline. Renaming it into `.outbox/` is the commit; `finish` then moves everything out, and whoever holds the
folder's lock may finish it, any number of times, from any point at which somebody else died.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from etl import disk, points, process
from etl.errors import AlreadyClaimed, Final
from etl.files import mover, names, notes
from etl.files.layout import Layout
from etl.model import Place, Stage, Status, Waiting
from etl.points import Point

_COMMIT = "commit.json"
_LOCK = ".lock"
#: how often a staging folder is made again when sweeps keep taking it away.
_TRIES = 50

Announce = Callable[[Sequence[Waiting]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A file that this attempt publishes, and the status in which it will lie at its place."""

    place: Place
    status: Status
    name: str


@dataclass(slots=True)
class Staging:
    """The folder of one attempt, locked by its maker; the lock goes with it through the rename.

    Made when the first thing is put in: most loads publish nothing and need none.
    """

    layout: Layout
    place: Place
    name: str
    folder: Path
    lock: disk.Lock | None = None
    children: list[Child] = field(default_factory=list)
    #: our own notes, reasons and records, relative to the pipeline's folder; these may replace older ones.
    own: list[str] = field(default_factory=list)

    def child(self, place: Place, status: Status, name: str) -> Path:
        """Give the path at which to write a child that will lie at `place` once this attempt is committed."""
        self.children.append(Child(place=place, status=status, name=name))
        return self._inside(self.layout.file(place, status, name))

    def drop_child(self, place: Place, status: Status, name: str) -> None:
        """Do not publish this child after all; one that was never staged is fine."""
        self.children = [child for child in self.children if (child.place, child.name) != (place, name)]
        self._inside(self.layout.file(place, status, name)).unlink(missing_ok=True)

    def add(self, target: Path, data: bytes) -> None:
        """Add one of our own small files, to be put at `target`."""
        inside = self._inside(target)
        self.own.append(str(inside.relative_to(self.folder)))
        with points.effect(Point.STAGE_CHILD):
            inside.write_bytes(data)

    def aside(self) -> Path:
        """Give a path for what its maker moves out by itself; what is left of it goes with this folder."""
        if self.lock is None:
            self._make()
        return self.folder / self.name

    def _inside(self, target: Path) -> Path:
        if self.lock is None:
            self._make()
        inside = self.folder / target.relative_to(self._root)
        inside.parent.mkdir(parents=True, exist_ok=True)
        return inside

    def _make(self) -> None:
        """Make the folder and lock it. A sweep that finds it in between takes it for a dead owner's: make it again."""
        for _ in range(_TRIES):
            with suppress(FileNotFoundError):
                disk.make_folder(self.folder)
                self.lock = disk.lock_path(self.folder / _LOCK)
                if self.lock is not None and disk.same_file(self.folder / _LOCK, self.lock.descriptor):
                    return
            if self.lock is not None:
                self.lock.release()
                self.lock = None
            time.sleep(0.001)  # a sweep is removing it
        raise AlreadyClaimed(f"the staging folder of {self.name!r} in {self.place} is held by another")

    @property
    def _root(self) -> Path:
        return self.layout.data / self.place.pipeline

    def commit(self, note: notes.FileNote, announce: Announce) -> None:
        """Commit this attempt and finish it: from here on its children exist, whatever happens."""
        with process.undisturbed():
            if self.children or self.own:
                self._commit(note, announce)
            else:
                # nothing to publish, so nothing could be published twice: an attempt that dies here is run again
                _resolve(self.layout, self.place, self.name, note)

    def _commit(self, note: notes.FileNote, announce: Announce) -> None:
        children = [
            [child.place.stage, child.place.location, child.status, child.name] for child in self.children
        ]
        facts = {"note": json.loads(notes.dump(note)), "children": children, "own": self.own}
        paths = [
            self._inside(self.layout.file(child.place, child.status, child.name)) for child in self.children
        ]
        with points.effect(Point.STAGE_COMMIT):
            (self.folder / _COMMIT).write_bytes(json.dumps(facts).encode())
            # P8: every byte and name inside is on the disk before the rename that makes them count
            disk.sync_tree(
                self.folder, [*paths, *(self.folder / own for own in self.own), self.folder / _COMMIT]
            )
        committed = self.layout.outbox(self.place) / self.folder.name
        with points.effect(Point.COMMIT):
            disk.rename(self.folder, committed)
            disk.sync_folder(committed.parent)
        self.folder = committed
        _finish(self.layout, self.place, self.name, committed, announce)

    def __enter__(self) -> Staging:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.lock is None:
            return
        try:
            if self.folder.parent == self.layout.staging(self.place):
                # not committed: nothing of it ever counted
                _forget_arrival(self.layout, self.place, self.folder)
                disk.remove_folder(self.folder, Point.CLEAR_OUTBOX)
        finally:
            self.lock.release()


def stage(layout: Layout, place: Place, name: str, attempt: int) -> Staging:
    """Give one attempt its staging folder."""
    return Staging(layout, place, name, layout.staging(place) / f"{name}.{attempt}")


def pending(layout: Layout, place: Place, name: str | None = None) -> Iterator[tuple[str, Path]]:
    """Give the committed, unfinished outboxes of one file, or of all files at a place."""
    for folder in sorted(layout.outbox(place).iterdir()):
        parent, _, attempt = folder.name.rpartition(".")
        if attempt.isdigit() and name in (None, parent):
            yield parent, folder


def finish_pending(layout: Layout, place: Place, name: str, announce: Announce) -> bool:
    """Finish what was committed for this file, or raise `AlreadyClaimed` while another is at it."""
    finished = [finish(layout, place, name, folder, announce) for _, folder in pending(layout, place, name)]
    return any(finished)


def finish(layout: Layout, place: Place, name: str, folder: Path, announce: Announce) -> bool:
    """Finish one outbox under its lock; False when it was finished meanwhile."""
    try:
        lock = disk.lock_path(folder / _LOCK)
    except FileNotFoundError:
        return False
    if lock is None:
        raise AlreadyClaimed(f"what {name!r} published in {place} is being finished by another")
    with lock:
        if not disk.same_file(folder / _LOCK, lock.descriptor):
            return False
        _finish(layout, place, name, folder, announce)
        return True


def sweep(layout: Layout, place: Place, announce: Announce) -> None:
    """Finish every outbox and throw away every staging folder at a place whose owner died."""
    for name, folder in pending(layout, place):
        with suppress(AlreadyClaimed, Final):  # who finishes it finds out; a damaged one is fsck's to tell
            finish(layout, place, name, folder, announce)
    for folder in layout.staging(place).iterdir():
        # one that was finished is only to be removed, by whoever sees it
        if folder.name.startswith("."):
            disk.remove_folder(folder, Point.CLEAR_OUTBOX)
        else:
            _throw_away(layout, place, folder)


def _throw_away(layout: Layout, place: Place, folder: Path) -> None:
    """Remove a staging folder that nobody has locked: nothing in it ever counted."""
    try:
        lock = disk.lock_path(folder / _LOCK)
    except (FileNotFoundError, NotADirectoryError):
        return
    if lock is not None:
        with lock:
            if disk.same_file(folder / _LOCK, lock.descriptor):
                _forget_arrival(layout, place, folder)
                disk.remove_folder(folder, Point.CLEAR_OUTBOX)


def _forget_arrival(layout: Layout, place: Place, folder: Path) -> None:
    """Remove the source note of what never arrived, or it would look like a file that was lost (P1)."""
    name, _, attempt = folder.name.rpartition(".")
    file = names.parse(place.pipeline, name)
    # an arrival stages under attempt 0 and moves out by itself: still here, it never did
    if attempt == "0" and file is not None and (folder / name).exists():
        with points.effect(Point.CLEAR_OUTBOX):
            layout.source_note(place.pipeline, file.id).unlink(missing_ok=True)


def _finish(layout: Layout, place: Place, name: str, folder: Path, announce: Announce) -> None:
    """Move everything out, announce it, write the note, resolve the parent. Any step may be done already."""
    facts = _committed(folder)
    children = [_child(place.pipeline, *parts) for parts in facts["children"]]
    _release_own(layout.data / place.pipeline, folder, facts["own"])
    _release_children(layout, folder, children)
    with points.effect(Point.ANNOUNCE):
        announce([_waiting(child) for child in children if _still_waits(layout, child)])
    _resolve(layout, place, name, notes.from_facts(facts["note"]))
    _clear(layout, place, folder)


def _committed(folder: Path) -> dict[str, Any]:
    """Read what an attempt committed, or raise `Final` when that is damaged."""
    try:
        facts: dict[str, Any] = json.loads((folder / _COMMIT).read_bytes())
    except ValueError as error:
        raise Final(
            f"the outbox {folder} is damaged: {error}",
            next="move what lies in it to where it belongs, by hand, and remove it; see `etl fsck`",
        ) from error
    return facts


def _resolve(layout: Layout, place: Place, name: str, note: notes.FileNote) -> None:
    """Write the note of a committed attempt and resolve the parent, if it still lies in `in_process/`."""
    notes.write(layout, place, name, note, Point.NOTE_COMMIT)
    claimed = layout.file(place, Status.IN_PROCESS, name)
    if claimed.exists():
        mover.shift(layout, claimed, place, Status.RESOLVED, Point.RESOLVE)
        disk.sync_folder(layout.status(place, Status.RESOLVED))


def _clear(layout: Layout, place: Place, folder: Path) -> None:
    """Remove a finished outbox: by one rename first, so that nobody ever meets half of one."""
    finished = layout.staging(place) / f".{folder.name}.finished"
    if finished.exists():  # left by a death; a folder cannot be renamed over one that is not empty
        disk.remove_folder(finished, Point.CLEAR_OUTBOX)
    with points.effect(Point.CLEAR_OUTBOX):
        os.rename(folder, finished)
    disk.remove_folder(finished, Point.CLEAR_OUTBOX)


def _release_own(root: Path, folder: Path, own: Sequence[str]) -> None:
    """Put notes, reasons and records in place first, so that no file appears without them."""
    for inside in own:
        disk.make_folder((root / inside).parent)
        with points.effect(Point.RELEASE_CHILD):
            try:
                os.replace(folder / inside, root / inside)
            except FileNotFoundError:
                continue  # moved by whoever died here before
    for parent in {(root / inside).parent for inside in own}:
        disk.sync_folder(parent)


def _release_children(layout: Layout, folder: Path, children: Sequence[Child]) -> None:
    """Rename every child out to its place; never copied, so that none can be there twice."""
    root = layout.data / children[0].place.pipeline if children else layout.data
    for child in children:
        inside = folder / layout.file(child.place, child.status, child.name).relative_to(root)
        if inside.exists():
            mover.publish(layout, inside, child.place, child.status)
    # also where another moved them: it may have been stopped by the very answer to its sync
    for parent in {layout.status(child.place, child.status) for child in children}:
        disk.sync_folder(parent)


def _child(pipeline: str, stage: str, location: str, status: str, name: str) -> Child:
    place = Place(pipeline=pipeline, stage=Stage(stage), location=location)
    return Child(place=place, status=Status(status), name=name)


def _still_waits(layout: Layout, child: Child) -> bool:
    return child.status is Status.WORKING and layout.file(child.place, child.status, child.name).exists()


def _waiting(child: Child) -> Waiting:
    return Waiting(place=child.place, name=child.name)
