"""Recovery: a file that its worker no longer has is finished, brought back, or given up. The one way to do so.

Changes nothing that a living worker holds; killed at any moment, it is carried on by the next who comes. Called by
the scan, by the guard of the workers and by `etl fsck`.
"""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

from etl import disk
from etl.errors import AlreadyClaimed
from etl.files import fates, mover, moves, names, notes, outbox
from etl.files.fates import Died, Fate, Overran
from etl.files.gate import seen
from etl.files.layout import Layout
from etl.files.moves import Claim
from etl.model import Place, Reason, Status, Waiting
from etl.points import Point

#: deaths of its worker after which a file is given up, so that the rest keeps flowing.
MOST_DEATHS = 3


def recover(
    layout: Layout, place: Place, name: str, announce: outbox.Announce, fate: Fate | None = None
) -> Waiting | None:
    """Bring back one file that its worker no longer has; None when it is not to be worked again.

    That is: its worker lives, it was committed, or it failed: for the time limit, or as poison. With no `fate`,
    the one that was foretold counts; where none was, its worker died.
    """
    path = layout.file(place, Status.IN_PROCESS, name)
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            # a link or a pipe: nothing that we ever claimed, and the claim will refuse it with a reason
            mover.shift(layout, path, place, Status.WORKING, Point.RECOVER)
            return Waiting(place=place, name=name)
        # with as many links as it has: one more is somebody's backup, or a rename that was cut in two
        lock = disk.lock_regular(path, links=None)
    except FileNotFoundError:
        fates.forget(layout, place, name)
        return None
    if lock is None:
        return None
    with lock:
        try:
            outbox.finish_pending(layout, place, name, announce)
        except AlreadyClaimed:
            return None
        back = None
        if disk.same_file(path, lock.descriptor):  # else resolved, by us or by another who finished it
            back = _bring_back(layout, place, lock, path, fate)
        # last: whoever is killed on the way leaves the word to the next
        fates.forget(layout, place, name)
        return back


def _bring_back(
    layout: Layout, place: Place, lock: disk.Lock, path: Path, fate: Fate | None
) -> Waiting | None:
    """Move an orphan that we have locked back to `working/`, or to `failed/` if it is given up."""
    name = path.name
    if disk.same_file(layout.file(place, Status.WORKING, name), lock.descriptor):
        # a rename by link and unlink (NFS, macOS) that was cut in two: the claim never came to be
        path.unlink()
        return Waiting(place=place, name=name)
    if moves.was_let_go(lock):  # its worker lives and could not move it: nobody died (P24)
        mover.shift(layout, path, place, Status.WORKING, Point.RECOVER)
        return Waiting(place=place, name=name)
    note = notes.glance(layout, place, name)
    fate = fate or fates.foretold(layout, place, name, note.attempt)
    note = _charge(layout, place, name, note, fate)
    if reason := _given_up(note, fate):
        file = names.parse(place.pipeline, name) or names.FileName(stem=name, id="")
        orphan = Claim(layout, place, file, path, lock, note, seen(os.fstat(lock.descriptor)))
        moves.fail(orphan, reason)
        return None
    mover.shift(layout, path, place, Status.WORKING, Point.RECOVER)
    return Waiting(place=place, name=name)


def _charge(layout: Layout, place: Place, name: str, note: notes.FileNote, fate: Fate) -> notes.FileNote:
    """Charge a death to the attempt that died, once, however often recovery itself is interrupted."""
    # whatever it noted before it ended, it did not come to rest: only a person's move starts the counts anew
    charged = replace(note, ended="")
    if isinstance(fate, Died) and note.death_charged != note.attempt:
        charged = replace(charged, deaths=note.deaths + 1, death_charged=note.attempt)
    if charged != note:
        notes.write(layout, place, name, charged, Point.NOTE_DEATH)
    return charged


def _given_up(note: notes.FileNote, fate: Fate) -> Reason | None:
    """Give the reason for which a file is not worked again, or None."""
    match fate:
        case Overran(reason=reason):
            return reason
        case Died(why=why) if note.deaths >= MOST_DEATHS:
            return _poison(note, why)
    return None


def _poison(note: notes.FileNote, why: str = "") -> Reason:
    return Reason(
        summary=f"its worker died {note.deaths} times while working this file",
        impact="nothing of this file was published; all other files go on",
        next="look for what kills the worker (memory, a crashing library, os._exit in a handler), then move it back",
        cause=f"the last time its worker {why}" if why else "the worker process ended without a word",
    )
