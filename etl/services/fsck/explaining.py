"""Does every failure explain itself, and is every note there and readable?

Reads reasons; notes were read with the tree. A fix puts away what explains nothing and never removes a note.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from etl.files import mover, reasons
from etl.model import Place, Reason, Status
from etl.services.fsck.finding import Finding
from etl.services.fsck.tree import Tree


def unexplained(tree: Tree) -> Iterator[Finding]:
    """P26: a file in `failed/` has its reason beside it."""
    for place in tree.places:
        for name, statuses in tree.lying[place].items():
            if Status.FAILED in statuses and name not in tree.reasons[place][Status.FAILED]:
                yield _no_reason(tree, place, name, "no-reason", "lies in failed/ without a reason")


def damaged_reasons(tree: Tree) -> Iterator[Finding]:
    """P26: a reason can be read."""
    for place in tree.places:
        for name in tree.reasons[place][Status.FAILED] & set(tree.lying[place]):
            if not _is_readable(tree.app.layout.reason(place, name)):
                yield _no_reason(tree, place, name, "reason-damaged", "failed, and its reason is damaged")


def _is_readable(path: Path) -> bool:
    try:
        facts = json.loads(path.read_bytes())
    except FileNotFoundError:
        return True  # it was moved back meanwhile
    except (OSError, ValueError):
        return False
    return isinstance(facts, dict) and bool(facts.get("summary"))


def _no_reason(tree: Tree, place: Place, name: str, check: str, what: str) -> Finding:
    return Finding(
        promise="P26",
        check=check,
        place=str(place),
        name=name,
        what=what,
        next=f"move it to {place}/working: it is tried again, and if it fails it says why",
        fix=lambda: _explain(tree, place, name),
    )


def _explain(tree: Tree, place: Place, name: str) -> str:
    """Say what is still known; a damaged reason is kept in the archive."""
    layout = tree.app.layout
    mover.put_away(layout, place, layout.reason(place, name))
    note = tree.file_notes[place].get(name)
    known = f"the last that is known: {note.said}" if note and note.said else "nothing is known of it"
    reason = Reason(
        summary=f"why it failed was lost; {known}",
        impact="this file is not worked until somebody moves it back",
        next=f"move it from {place}/failed to {place}/working: it is tried again",
        attempt=note.attempt if note else 0,
    )
    reasons.write(layout, place, name, reason)
    return "wrote a reason with what is still known"


def stray_reasons(tree: Tree) -> Iterator[Finding]:
    """P26: a reason lies beside its file; one that is being tried again may still have it where it failed."""
    for place in tree.places:
        for status, explained in tree.reasons[place].items():
            for name in explained:
                lies = tree.lying[place].get(name, [])
                if status in lies or {Status.WORKING, Status.IN_PROCESS} & set(lies):
                    continue
                yield Finding(
                    promise="P26",
                    check="stray-reason",
                    place=str(place),
                    name=f"{name}.reason.json",
                    what=f"lies in {status}/ and explains a file that is not there",
                    next="`etl fsck --fix` puts it away below data/archive/superseded/",
                    fix=lambda place=place, status=status, name=name: _put_away(  # type: ignore[misc]
                        tree, place, status, name
                    ),
                )


def _put_away(tree: Tree, place: Place, status: Status, name: str) -> str:
    layout = tree.app.layout
    return "put it away" if mover.put_away(layout, place, layout.reason(place, name, status)) else ""


def damaged_notes(tree: Tree) -> Iterator[Finding]:
    """P11: a file's note can be read; it decides what another attempt does."""
    for place in tree.places:
        for name, note in tree.file_notes[place].items():
            if note is None:
                path = tree.app.layout.note(place, name)
                yield Finding(
                    promise="P11",
                    check="note-damaged",
                    place=str(place),
                    name=name,
                    what="has a damaged note; nothing can be said of what came of it",
                    next=f"bring {path} back from a backup, or move it out of the folder: the file then counts "
                    "as one that was never worked",
                )


def damaged_sources(tree: Tree) -> Iterator[Finding]:
    """P3: a source note can be read; it holds the hash of acceptance."""
    for file_id, source in tree.sources.items():
        if source is None:
            path = tree.app.layout.source_note(tree.pipeline, file_id)
            yield Finding(
                promise="P3",
                check="source-note",
                place=tree.pipeline,
                name=file_id,
                what="has a damaged source note: given name and hash of acceptance cannot be read",
                next=f"bring {path} back from a backup, or move it away: the file is noted anew when next worked",
            )


def missing_sources(tree: Tree) -> Iterator[Finding]:
    """P3: every name with an id has its source note."""
    told: set[str] = set()
    for place in tree.places:
        for name in tree.lying[place]:
            file = tree.file(name)
            if file is None or file.id in tree.sources or file.id in told:
                continue
            told.add(file.id)
            path = tree.app.layout.source_note(tree.pipeline, file.id)
            yield Finding(
                promise="P3",
                check="source-note",
                place=tree.pipeline,
                name=file.id,
                what=f"has no source note, and {place} has {name} of it",
                next=f"bring {path} back from a backup; without it the file is noted anew when next worked",
            )
