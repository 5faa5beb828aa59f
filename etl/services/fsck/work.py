"""Is every file in one folder, and everything half done in somebody's hands?

A fix goes the way recovery goes: the one `recover` and the one `finish`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from etl import disk
from etl.errors import AlreadyClaimed
from etl.files import mover, outbox, recovery
from etl.model import Place, Status
from etl.services.fsck.finding import Finding
from etl.services.fsck.tree import Box, Tree

_Fix = Callable[[], str]


def twins(tree: Tree) -> Iterator[Finding]:
    """P4: one name lies in one folder of a place; a copy in `working/` is a retry and puts the older one away."""
    for place in tree.places:
        for name, statuses in tree.lying[place].items():
            if len(statuses) > 1 and Status.WORKING not in statuses:
                where = " and ".join(f"{status}/" for status in statuses)
                yield Finding(
                    promise="P4",
                    check="twins",
                    place=str(place),
                    name=name,
                    what=f"lies in {where} at once",
                    next="compare the two and move the one that is wrong below data/archive/",
                    fix=_put_copy_away(tree, place, name, statuses),
                )


def _put_copy_away(tree: Tree, place: Place, name: str, statuses: list[Status]) -> _Fix | None:
    """Of two with the same bytes the one where its note does not say it came to rest is the copy."""
    note = tree.file_notes[place].get(name)
    if note is None or note.ended not in statuses or len(statuses) != 2 or Status.IN_PROCESS in statuses:
        return None
    layout = tree.app.layout
    copy = layout.file(place, next(status for status in statuses if status != note.ended), name)
    kept = layout.file(place, Status(note.ended), name)

    def fix() -> str:
        try:
            if disk.sha256(copy) != disk.sha256(kept):
                return ""
        except OSError:
            return ""
        if not mover.put_away(layout, place, copy):
            return ""
        mover.put_away(layout, place, copy.with_name(f"{name}.reason.json"))
        return f"put the copy in {copy.parent.name}/ away"

    return fix


def orphans(tree: Tree) -> Iterator[Finding]:
    """P6: whoever has a file in `in_process/` has locked it."""
    committed = {(box.place, box.name) for box in tree.outboxes}
    for place, name in tree.orphans:
        if (place, name) in committed:
            continue  # its work is done: whoever finishes its outbox resolves it
        yield Finding(
            promise="P6",
            check="orphan",
            place=str(place),
            name=name,
            what="lies in in_process/ and nobody works on it",
            next="workers bring it back with their next scan; `etl fsck --fix` does so now",
            fix=lambda place=place, name=name: _recover(tree, place, name),  # type: ignore[misc]
        )


def _recover(tree: Tree, place: Place, name: str) -> str:
    app = tree.app
    if back := recovery.recover(app.layout, place, name, app.announce):
        app.announce([back])
        return "moved it back to working/"
    for status in (Status.RESOLVED, Status.FAILED):
        if app.layout.file(place, status, name).exists():
            return f"its work was done: it lies in {status}/"
    return ""


def unfinished(tree: Tree) -> Iterator[Finding]:
    """P11: what an attempt committed is handed out whole."""
    for box in tree.outboxes:
        if box.held:
            continue
        if box.damaged:
            yield Finding(
                promise="P11",
                check="outbox-damaged",
                place=str(box.place),
                name=box.folder.name,
                what="is an outbox whose commit.json is missing or damaged: nobody can finish it",
                next="move what lies in it to the folders of the same names, then remove it",
            )
        else:
            yield Finding(
                promise="P11",
                check="outbox",
                place=str(box.place),
                name=box.folder.name,
                what="was committed and is not handed out, and nobody is at it",
                next="workers finish it with their next scan; `etl fsck --fix` does so now",
                fix=lambda box=box: _finish(tree, box),  # type: ignore[misc]
            )


def _finish(tree: Tree, box: Box) -> str:
    app = tree.app
    with suppress(AlreadyClaimed):
        if outbox.finish(app.layout, box.place, box.name, box.folder, app.announce):
            return "handed it out"
    return ""


def left_behind(tree: Tree) -> Iterator[Finding]:
    """P6: what an attempt prepared is gone when its worker is; nothing of it ever counted."""
    for box in tree.stagings:
        if not box.held:
            yield Finding(
                promise="P6",
                check="staging",
                place=str(box.place),
                name=box.folder.name,
                what="was prepared by a worker that died; nothing of it counts",
                next="workers throw it away with their next scan; `etl fsck --fix` does so now",
                fix=lambda box=box: _throw_away(tree, box),  # type: ignore[misc]
            )


def _throw_away(tree: Tree, box: Box) -> str:
    outbox.sweep(tree.app.layout, box.place, tree.app.announce)
    return "" if box.folder.exists() else "threw it away"
