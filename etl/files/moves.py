"""Claim, fail, put off, retry, discard: the arrows between the status folders, one verb each.

The only code that moves a waiting file. Who owns a claimed file is a lock the kernel frees; resolving is the
last step of an outbox. Called by the stages, by recovery and by the command line.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from etl import disk
from etl.errors import AlreadyClaimed, NotSettled, UnsafeName, Vanished
from etl.files import arrivals, mover, names, notes, outbox, reasons
from etl.files.gate import seen
from etl.files.layout import Layout
from etl.model import Place, Reason, Seen, Status, Waiting
from etl.points import Point

#: mtime of a file in `in_process/` that a living worker could not move back; no real file is that old to the digit.
_LET_GO_NS = 24_000_024


@dataclass(slots=True)
class Claim:
    """A file that is ours: locked, lying in `in_process/`, with its note."""

    layout: Layout
    place: Place
    file: names.FileName
    path: Path
    lock: disk.Lock
    note: notes.FileNote
    #: how it looked right after it was claimed; a file that changes while it is read is not complete.
    seen: Seen

    @property
    def name(self) -> str:
        """The file's name, with its id."""
        return self.path.name

    @property
    def descriptor(self) -> int:
        """The open file itself: what was claimed, whatever happens to the path."""
        return self.lock.descriptor

    def check_there(self) -> None:
        """Make sure the path still leads to what was claimed, or raise `Vanished`: it is no longer ours to move."""
        if not disk.same_file(self.path, self.descriptor):
            raise Vanished(f"{self.name!r} was taken out of {self.place}/in_process while it was worked")

    def check_unchanged(self) -> None:
        """Make sure the path still leads to what was claimed and that nobody wrote to it, or raise `NotClaimed`."""
        self.check_there()
        now = seen(os.fstat(self.descriptor))
        if (now.size, now.mtime_ns) != (self.seen.size, self.seen.mtime_ns):
            raise NotSettled(f"{self.name!r} in {self.place} changed while it was read")


@contextmanager
def claim(layout: Layout, waiting: Waiting, announce: outbox.Announce) -> Iterator[Claim]:
    """Claim a waiting file, or raise `NotClaimed`; `UnsafeName` when it is nothing that may be opened."""
    place = waiting.place
    path = layout.file(place, Status.WORKING, waiting.name)
    with _lock_waiting(path, place) as lock:
        if not disk.same_file(path, lock.descriptor):
            raise Vanished(f"{path.name!r} is no longer in {place}/working")
        facts = os.fstat(lock.descriptor)
        if waiting.seen is not None and waiting.seen != seen(facts):
            raise NotSettled(f"{path.name!r} in {place} changed after its job was made")
        file = names.parse(place.pipeline, path.name)
        if file is not None and os.path.lexists(layout.file(place, Status.IN_PROCESS, path.name)):
            # asked before anything else of that file is read: its owner may be about to commit
            raise AlreadyClaimed(f"an older {path.name!r} is still in {place}/in_process")
        if file is None or notes.read_source(layout, place.pipeline, file.id) is None:
            file = arrivals.register(layout, place, path.name, lock.descriptor, file)
        # what an earlier attempt committed comes first: it is never run again
        outbox.finish_pending(layout, place, str(file), announce)
        note = notes.read(layout, place, str(file))
        if note.not_before > time.time():
            raise NotSettled(f"{path.name!r} in {place} is to be tried again later")
        yield _take(Claim(layout, place, file, path, lock, note, seen(facts)))


def _take(waiting: Claim) -> Claim:
    """Move a locked file into `in_process/` with one more attempt in its note."""
    layout, place, name = waiting.layout, waiting.place, str(waiting.file)
    target = layout.file(place, Status.IN_PROCESS, name)
    mover.put_twins_away(layout, place, name)
    reasons.forget(layout, place, name)
    note = waiting.note.begun()
    notes.write(layout, place, name, note, Point.NOTE_ATTEMPT)
    try:
        disk.move(waiting.path, target, Point.CLAIM)
    except FileNotFoundError as error:
        raise Vanished(f"{name!r} was taken out of {place}/working while it was claimed") from error
    except FileExistsError as error:
        raise AlreadyClaimed(f"another {name!r} is in {place}/in_process") from error
    except OSError:  # it may have been moved all the same
        let_go(replace(waiting, path=target))
        raise
    if not disk.same_file(target, waiting.descriptor):  # a newer one took its place between lock and rename
        with suppress(FileNotFoundError):
            mover.shift(layout, target, place, Status.WORKING, Point.PUT_OFF)
        raise Vanished(f"{name!r} in {place}/working was replaced while it was claimed")
    return replace(waiting, path=target, note=note, seen=seen(os.fstat(waiting.descriptor)))


def _lock_waiting(path: Path, place: Place) -> disk.Lock:
    try:
        lock = disk.lock_regular(path)
    except FileNotFoundError as error:
        raise Vanished(f"{path.name!r} is no longer in {place}/working") from error
    except PermissionError as error:
        raise UnsafeName(
            f"{names.printable(path.name)!r} in {place} may not be read by this user",
            next=f"allow reading it (chmod), then move it from {place}/failed to {place}/working",
        ) from error
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ELOOP, errno.ENXIO, errno.ENODEV):
            raise UnsafeName(
                f"{names.printable(path.name)!r} in {place} is not a plain file of its own ({_kind(path)})",
                next="copy the file itself into working/ instead of a link, pipe or device",
            ) from error
        raise
    if lock is None:
        raise AlreadyClaimed(f"{path.name!r} in {place} is being worked by another")
    return lock


def _kind(path: Path) -> str:
    facts = path.lstat()
    kinds = {
        0o120000: "a symbolic link",
        0o010000: "a named pipe",
        0o140000: "a socket",
        0o040000: "a folder",
    }
    return kinds.get(facts.st_mode & 0o170000, "a hard link" if facts.st_nlink > 1 else "a device")


# --- endings -----------------------------------------------------------------------------------------------


def fail(claim: Claim, reason: Reason) -> None:
    """Move a claimed file to `failed/`, its reason beside it first."""
    claim.check_there()
    layout, place, name = claim.layout, claim.place, claim.name
    reasons.write(layout, place, name, replace(reason, attempt=claim.note.attempt))
    note = replace(claim.note, ended=Status.FAILED, said=reason.summary)
    notes.write(layout, place, name, note, Point.NOTE_FAIL)
    mover.shift(layout, claim.path, place, Status.FAILED, Point.FAIL)
    disk.sync_folder(layout.status(place, Status.FAILED))


def put_off(claim: Claim, reason: Reason, not_before: float) -> None:
    """Move a claimed file back to `working/` to be tried again after `not_before`; its reason says when."""
    claim.check_there()
    layout, place, name = claim.layout, claim.place, claim.name
    note = replace(claim.note, tries=claim.note.tries + 1, not_before=not_before, said=reason.summary)
    notes.write(layout, place, name, note, Point.NOTE_PUT_OFF)
    reasons.write(layout, place, name, replace(reason, attempt=claim.note.attempt), Status.WORKING)
    mover.shift(layout, claim.path, place, Status.WORKING, Point.PUT_OFF)


def give_back(claim: Claim) -> None:
    """Move a claimed file back to `working/` as if it had not been claimed: it changed, or we must stop."""
    if disk.same_file(claim.path, claim.descriptor):
        mover.shift(claim.layout, claim.path, claim.place, Status.WORKING, Point.PUT_OFF)


def unsettle(claim: Claim) -> None:
    """Give back a file that changed while it was read: it goes through its gate again (P2)."""
    if disk.same_file(claim.path, claim.descriptor):
        note = replace(claim.note, unsettled=True)
        notes.write(claim.layout, claim.place, claim.name, note, Point.NOTE_PUT_OFF)
    give_back(claim)


def let_go(claim: Claim) -> None:
    """Give a claimed file back while the disk refuses us something: by a rename, which needs no room, or else leave it.

    What has to be left in `in_process/` is marked, so that recovery does not take it for a worker's death.
    """
    try:
        give_back(claim)
    except OSError:
        with suppress(OSError):
            os.utime(claim.descriptor, ns=(_LET_GO_NS, _LET_GO_NS))


def was_let_go(lock: disk.Lock) -> bool:
    """Tell whether a file in `in_process/` was left there by a worker that lives."""
    return os.fstat(lock.descriptor).st_mtime_ns == _LET_GO_NS


def refuse(layout: Layout, waiting: Waiting, reason: Reason) -> str:
    """Move something that may not be opened (a link, a pipe) to `failed/` under an id, and give its name there.

    Raise `Vanished` when another did so, or a person took it away.
    """
    place = waiting.place
    path = layout.file(place, Status.WORKING, waiting.name)
    if not os.path.lexists(path):
        raise Vanished(f"{path.name!r} is no longer in {place}/working")
    file = names.parse(place.pipeline, path.name) or arrivals.register_unread(layout, place, path)
    target = layout.file(place, Status.FAILED, str(file))
    reasons.write(layout, place, target.name, reason)
    while True:
        try:
            # not touched: a FIFO or device stays as it is
            disk.move(path, target, Point.FAIL, touch=False)
        except FileExistsError:
            mover.put_away(layout, place, target)
        except FileNotFoundError as error:
            if not os.path.lexists(target):
                reasons.forget(layout, place, target.name)
            raise Vanished(f"{path.name!r} was taken out of {place}/working") from error
        else:
            return target.name


def retry(layout: Layout, place: Place, name: str, status: Status = Status.FAILED) -> Waiting:
    """Move a failed file, or one at rest elsewhere, back to `working/`: the same as a person's `mv`.

    Raise `Vanished` when another was faster.
    """
    path = layout.file(place, status, name)
    try:
        mover.shift(layout, path, place, Status.WORKING, Point.PUT_OFF)
    except FileNotFoundError as error:
        if os.path.lexists(path):
            raise
        raise Vanished(f"{name!r} is no longer in {place}/{status}") from error
    return Waiting(place=place, name=name)


def discard(layout: Layout, place: Place, name: str, because: str) -> Path:
    """Move a failed file to `archive/discarded/` with its reason and the operator's."""
    reason = reasons.read(layout, place, name) | {"discarded": because}
    path = layout.file(place, Status.FAILED, name)
    if not os.path.lexists(path):
        raise Vanished(f"{name!r} is not in {place}/failed")
    # first: a delivery must never look whole without it, and while the file lies there the note says nothing
    if file := names.parse(place.pipeline, name):
        notes.add_discarded(layout, place, file.id, name, because)
    target = mover.put_away(layout, place, path, "discarded")
    if target is None:
        raise Vanished(f"{name!r} is no longer in {place}/failed")
    disk.write(target.with_name(f"{target.name}.reason.json"), notes.dump(reason), Point.DISCARD)
    reasons.forget(layout, place, name)
    return target
