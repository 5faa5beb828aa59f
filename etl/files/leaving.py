"""Leaving: how files and notes leave the tree for good, once what they held is in a verified archive.

The only code that removes a file of the road. Each is locked and looked at once more; what is not as it was chosen
stays. Decides nothing. Called by `stages.cleaning`.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from etl import disk, points
from etl.config.strict import NAME
from etl.files import cleanings, layout, names, spool, survey, verdicts
from etl.files.cleanings import Stamp
from etl.files.layout import Layout
from etl.model import Place, Stage, Status
from etl.points import Point

#: what is said of a file that somebody has, or had meanwhile.
CHANGED = "it changed after it was chosen"
WORKED = "somebody works on it"


def take(path: Path, stamp: Stamp) -> tuple[bool, str]:
    """Remove a file that is as it was chosen; tell whether it was removed, and else why not, "" when it was gone."""
    try:
        lock = disk.lock_regular(path, links=None)
    except FileNotFoundError:
        return False, ""
    except OSError as error:
        return False, error.strerror or str(error)
    if lock is None:
        return False, WORKED
    with lock:
        if cleanings.stamp(os.fstat(lock.descriptor)) != stamp or not disk.same_file(path, lock.descriptor):
            return False, CHANGED
        with points.effect(Point.CLEAN_REMOVE):
            try:
                path.unlink()
            except FileNotFoundError:
                return False, ""
    return True, ""


# --- what there is of a delivery ---------------------------------------------------------------------------


def places(tree: Layout, pipeline: str, locations: Iterable[str]) -> list[Place]:
    """Give every place of a pipeline, with the locations that have a folder and are no longer configured."""
    load = tree.folder(Place(pipeline=pipeline, stage=Stage.LOAD))
    found = set(locations)
    with suppress(OSError):
        found |= {
            entry.name
            for entry in load.iterdir()
            if NAME.fullmatch(entry.name) and entry.name not in set(Status) and (entry / "resolved").is_dir()
        }
    return list(layout.places(pipeline, sorted(found)))


def ids(tree: Layout, pipeline: str, among: Iterable[Place]) -> set[str]:
    """Give the ids of all that lies in any folder of these places, prepared and committed things included."""
    found: set[str] = set()
    for place in among:
        for name in _names_at(tree, place):
            if file := names.parse(pipeline, name):
                found.add(file.id)
    return found


def _names_at(tree: Layout, place: Place) -> Iterator[str]:
    # in the order in which a file passes them: one that moves on is seen twice, never missed
    for folder in (tree.staging(place), tree.outbox(place)):
        for entry in listed(folder):
            yield entry.rpartition(".")[0].lstrip(".")
    for status in Status:
        yield from listed(tree.status(place, status))
    for folder in survey.folders(tree, place):
        for path in survey.inside(folder):
            yield path.name


def listed(folder: Path) -> list[str]:
    """Give the names in a folder; none where there is no such folder."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []


# --- notes -------------------------------------------------------------------------------------------------


def noted(
    tree: Layout, pipeline: str, among: Iterable[Place], wanted: Collection[str]
) -> dict[str, list[str]]:
    """Give all notes and attempt logs of some deliveries, as paths below the data folder, each source's own first."""
    found: dict[str, list[str]] = defaultdict(list)
    own = tree.data / pipeline / ".notes"
    for name in sorted(listed(own)):
        if (file_id := of_source(name)) in wanted:
            found[file_id].append(f"{pipeline}/.notes/{name}")
    for place in among:
        for kept, suffix in ((".notes", ".json"), (".logs", ".log")):
            for name in sorted(listed(tree.folder(place) / kept)):
                file = names.parse(pipeline, name.removesuffix(suffix))
                if file is not None and file.id in wanted and name.endswith(suffix):
                    found[file.id].append(f"{place}/{kept}/{name}")
    return found


def of_source(note: str) -> str:
    """Give the id of a delivery by the name of its source, verdict or discard note; "" for any other name."""
    file_id, _, kind = note.partition(".")
    return file_id if kind in ("json", "verdict.json", "discarded.json") else ""


def take_notes(
    tree: Layout, pipeline: str, file_id: str, archived: Mapping[str, str], paths: list[str]
) -> str:
    """Remove the notes of a delivery of which nothing is left, if they are as archived; else say why they stay.

    The source's first: without it nobody judges the delivery. The verdict's last: without it, it would be judged anew.
    """
    with verdicts.lock(tree, pipeline, file_id):
        if spool.of(tree, pipeline, file_id):
            return "something is still to be told of it"
        for path in paths:
            with suppress(FileNotFoundError):
                if disk.sha256(tree.data / path) != archived.get(path):
                    return "its notes changed after they were archived"
        last = str(verdicts.path(tree, pipeline, file_id).relative_to(tree.data))
        for path in sorted(paths, key=lambda one: one == last):
            with points.effect(Point.CLEAN_NOTE):
                (tree.data / path).unlink(missing_ok=True)
    return ""


def sync(folders: Iterable[Path]) -> None:
    """Make what left these folders be gone after a power loss, too; a folder that is not there is fine."""
    for folder in sorted(set(folders)):
        with suppress(FileNotFoundError):
            disk.sync_folder(folder)
