"""Arrivals: how a file gets its id and its source note, once, before it is first claimed or published.

Copies in from outside go through staging with their hash taken while reading and checked again on what was
written. Never looks into a file's content.
"""

from __future__ import annotations

import io
import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from etl import disk, points
from etl.errors import InvalidFile, UnsafeName
from etl.files import gate, headers, names, notes, outbox
from etl.files.layout import REQUESTS, Layout
from etl.model import Place, Seen, Stage, Status, Waiting
from etl.points import Point


def register(
    layout: Layout, place: Place, given: str, descriptor: int, known: names.FileName | None = None
) -> names.FileName:
    """Give a dropped file its id and source note; a file whose note was lost keeps the id in its name."""
    facts = os.fstat(descriptor)
    # the file's own ctime, not now: two workers cannot reverse the order of two drops
    file_id = known.id if known else names.new_id(place.pipeline, facts.st_ctime_ns // 1_000_000)
    note = notes.SourceNote(
        id=file_id,
        pipeline=place.pipeline,
        given=known.given if known else given,
        sha256=disk.sha256(descriptor),
        size=facts.st_size,
        mtime=facts.st_mtime,
        arrived=time.time(),
    )
    notes.write_source(layout, note)
    return known or names.christen(given, file_id)


def register_unread(layout: Layout, place: Place, path: Path) -> names.FileName:
    """Give an id to something that may not be opened, so that it can be refused without touching a namesake."""
    facts = path.lstat()
    file_id = names.new_id(place.pipeline, facts.st_ctime_ns // 1_000_000)
    note = notes.SourceNote(
        id=file_id,
        pipeline=place.pipeline,
        given=path.name,
        sha256="",
        size=0,
        mtime=facts.st_mtime,
        arrived=time.time(),
    )
    notes.write_source(layout, note)
    return names.christen(path.name, file_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A file outside the data tree, open for reading, about to be copied in under an id of its own."""

    given: str
    file_id: str
    mtime: float
    origin: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


def copy_in(stream: BinaryIO, incoming: Incoming, pipeline: str, target: Path) -> notes.SourceNote:
    """Copy a stream to the new file `target`, verify what was written, and give its source note (not yet written)."""
    with points.effect(Point.STAGE_CHILD):
        digest = disk.copy(stream, target)
    if disk.sha256(target) != digest:
        raise InvalidFile(
            f"the copy of {incoming.given!r} differs from what was read", next="check the disk, try again"
        )
    return notes.SourceNote(
        id=incoming.file_id,
        pipeline=pipeline,
        given=incoming.given,
        sha256=digest,
        size=target.stat().st_size,
        mtime=incoming.mtime,
        arrived=time.time(),
        origin=incoming.origin,
        headers=incoming.headers,
    )


def deliver(layout: Layout, pipeline: str, path: Path) -> Waiting:
    """Copy one file of the operator's into `extract/working/` as a new delivery."""
    place = Place(pipeline=pipeline, stage=Stage.EXTRACT)
    with open_outside(path) as stream:
        mtime = os.fstat(stream.fileno()).st_mtime
        file_id = names.new_id(pipeline, time.time_ns() // 1_000_000)
        file = names.christen(path.name, file_id)
        incoming = Incoming(given=path.name, file_id=file_id, mtime=mtime, origin=str(path))
        with outbox.stage(layout, place, str(file), 0) as staging:
            note = copy_in(stream, incoming, pipeline, staging.aside())
            return _arrive(layout, place, staging.aside(), str(file), note)


#: the origin of a message.
PUBLISHED = "published"


def publish(layout: Layout, pipeline: str, body: BinaryIO, given: str, told: Mapping[str, str]) -> Waiting:
    """Put a message into `extract/working/`, its headers as `headers.read` gave them in its source note.

    All of it survives a power loss before this returns (P8), the time before which it may not be begun first of all.
    """
    place, now = Place(pipeline=pipeline, stage=Stage.EXTRACT), time.time()
    file = names.christen(given, names.new_id(pipeline, int(now * 1000)))
    incoming = Incoming(given=given, file_id=file.id, mtime=now, origin=PUBLISHED, headers=told)
    with outbox.stage(layout, place, str(file), 0) as staging:
        note = copy_in(body, incoming, pipeline, staging.aside())
        if later := headers.not_before(told):
            delayed = notes.FileNote(not_before=later)
            notes.write(layout, place, str(file), delayed, Point.NOTE_PUT_OFF)
        return _arrive(layout, place, staging.aside(), str(file), note)


def start(layout: Layout, pipeline: str, incoming: Incoming, data: bytes) -> Waiting | None:
    """Bring in a file whose id was derived, exactly once; None when it came before, wherever it is by now."""
    place = Place(pipeline=pipeline, stage=Stage.EXTRACT)

    def written(aside: Path) -> notes.SourceNote:
        return copy_in(io.BytesIO(data), incoming, pipeline, aside)

    return _once(layout, place, names.christen(incoming.given, incoming.file_id), written)


def request_once(
    layout: Layout, pipeline: str, wish: Mapping[str, Any], given: str, file_id: str
) -> Waiting | None:
    """Write a request for an extract whose id was derived, exactly once; None when it was written before."""
    place = Place(pipeline=pipeline, stage=Stage.EXTRACT, location=REQUESTS)
    file = names.christen(given, file_id)
    return _once(layout, place, file, lambda aside: _wish(aside, pipeline, wish, file))


def _once(
    layout: Layout, place: Place, file: names.FileName, written: Callable[[Path], notes.SourceNote]
) -> Waiting | None:
    noted = layout.source_note(place.pipeline, file.id)
    with outbox.stage(layout, place, str(file), 0) as staging:
        aside = staging.aside()
        if aside.exists():
            # whoever tried died before it left this folder; the note first: without it the file counts for nothing
            with points.effect(Point.CLEAR_OUTBOX):
                noted.unlink(missing_ok=True)
                aside.unlink()
        elif noted.exists():
            return None
        return _arrive(layout, place, aside, str(file), written(aside))


def request(layout: Layout, pipeline: str, wish: Mapping[str, Any], given: str = "request.json") -> Waiting:
    """Write a durable request for an extract, to be claimed like any file."""
    place = Place(pipeline=pipeline, stage=Stage.EXTRACT, location=REQUESTS)
    file = names.christen(given, names.new_id(pipeline, time.time_ns() // 1_000_000))
    with outbox.stage(layout, place, str(file), 0) as staging:
        aside = staging.aside()
        return _arrive(layout, place, aside, str(file), _wish(aside, pipeline, wish, file))


def _wish(aside: Path, pipeline: str, wish: Mapping[str, Any], file: names.FileName) -> notes.SourceNote:
    """Write a request aside, and give its source note (not yet written)."""
    data, now = json.dumps(wish, indent=1).encode() + b"\n", time.time()
    disk.write(aside, data, Point.NOTE_REQUEST)
    return notes.SourceNote(
        id=file.id,
        pipeline=pipeline,
        given=file.given,
        sha256=disk.sha256(aside),
        size=len(data),
        mtime=now,
        arrived=now,
        is_request=True,
    )


def _arrive(layout: Layout, place: Place, aside: Path, name: str, note: notes.SourceNote) -> Waiting:
    notes.write_source(layout, note)
    target = layout.file(place, Status.WORKING, name)
    try:
        disk.move(aside, target, Point.ARRIVE)
        disk.sync_folder(target.parent)
    except OSError:
        # whoever is told that it did not arrive brings it again: it must not be there as well
        with suppress(OSError):
            disk.rename(target, aside)
        raise
    return Waiting(place=place, name=name)


# --- out of folders that were dropped whole -----------------------------------------------------------------


def lift(layout: Layout, place: Place, path: Path, seen: Seen | None) -> Waiting | None:
    """Take a settled file out of a folder that was dropped whole, to `working/` under its id.

    None when it is no longer what was `seen`, when another is at it, or while its namesake waits in `working/`.
    """
    try:
        lock = disk.lock_regular(path)
    except FileNotFoundError:
        return None
    except OSError:  # a link, a pipe, not ours to read: the claim refuses it with a reason
        known = names.parse(place.pipeline, path.name)
        return _lift(layout, place, path, known or register_unread(layout, place, path))
    if lock is None:
        return None
    with lock:
        if not disk.same_file(path, lock.descriptor) or gate.seen(os.fstat(lock.descriptor)) != seen:
            return None
        file = names.parse(place.pipeline, path.name)
        if file is None or notes.read_source(layout, place.pipeline, file.id) is None:
            file = register(layout, place, path.name, lock.descriptor, file)
        return _lift(layout, place, path, file)


def _lift(layout: Layout, place: Place, path: Path, file: names.FileName) -> Waiting | None:
    target = layout.file(place, Status.WORKING, str(file))
    try:
        disk.move(path, target, Point.LIFT)
    except (FileExistsError, FileNotFoundError):
        return None
    except OSError:
        if names.parse(place.pipeline, path.name) is None and not os.path.lexists(target):
            # it stays without its id: the note would tell of a file that is nowhere
            layout.source_note(place.pipeline, file.id).unlink(missing_ok=True)
        raise
    disk.sync_folder(target.parent)
    with suppress(OSError):  # a reason that came along is about an attempt that is over
        path.with_name(f"{path.name}.reason.json").unlink(missing_ok=True)
    return Waiting(place=place, name=target.name)


def use_up(folder: Path, given: str, pattern: str, taken_ns: int) -> None:
    """Remove the done-file of a file that was taken out of `folder` at `taken_ns` by the file system's clock.

    One that came later, or whose file lies there again, speaks of the next delivery and is left.
    """
    done = folder / names.done_name(pattern, given)
    with suppress(OSError):
        facts = done.lstat()
        if facts.st_ctime_ns <= taken_ns and not os.path.lexists(folder / given):
            with points.effect(Point.USE_UP):
                done.unlink()


@contextmanager
def open_outside(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file outside the tree for reading, or raise `UnsafeName`; never blocks on a pipe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UnsafeName(
            f"cannot read {str(path)!r}: {error.strerror}", next="check the path and its permissions"
        ) from error
    # before it becomes a stream, which refuses a folder in words of its own
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnsafeName(
            f"{str(path)!r} is not a regular file", next="name files, not folders, pipes or devices"
        )
    with os.fdopen(descriptor, "rb") as stream:
        yield stream
