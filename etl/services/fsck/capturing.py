"""Takes one look at a pipeline's folders and notes and gives it as a `Tree`.

Opens notes and outboxes, tries locks without waiting, and changes nothing. Called once per look.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from etl import disk
from etl.app import App
from etl.errors import Final
from etl.files import archives, names, notes, verdicts
from etl.model import Place, Stage, Status
from etl.services.fsck.finding import Tally
from etl.services.fsck.tree import Box, Tree, piece

#: what `put_away` adds to a name that the archive has already.
_NUMBERED = re.compile(r"\.\d+$")
#: notes between two words to whoever waits.
_OFTEN = 2_000


def capture(app: App, pipeline: str, tally: Tally) -> Tree:
    """Look at everything of one pipeline once."""
    tree = Tree(app, pipeline)
    for place in tree.places:
        tally.doing(str(place))
        _list(tree, place, tally)
        _read_notes(tree, place, tally)
        _look_into_boxes(tree, place)
    _read_sources(tree, tally)
    _look_into_archive(tree)
    _read_manifests(tree, tally)
    return tree


# --- status folders ----------------------------------------------------------------------------------------


def _list(tree: Tree, place: Place, tally: Tally) -> None:
    """List the four folders in the order in which files pass them: one that moves on is seen twice, never missed."""
    lying: dict[str, list[Status]] = defaultdict(list)
    tree.reasons[place] = {status: set() for status in Status}
    for status in Status:
        for entry in _entries(tree, tree.app.layout.status(place, status)):
            if entry.name.endswith(".reason.json") and not entry.name.startswith("."):
                tree.reasons[place][status].add(entry.name.removesuffix(".reason.json"))
            elif not names.never_work(entry.name) and not entry.is_dir(follow_symlinks=False):
                lying[entry.name].append(status)
                tally.files += 1
        if status is Status.IN_PROCESS:
            folder = tree.app.layout.status(place, status)
            tree.orphans += [
                (place, name)
                for name, statuses in lying.items()
                if status in statuses and not _is_held(folder / name)
            ]
    tree.lying[place] = dict(lying)


def _is_held(path: Path) -> bool:
    """Tell whether somebody works on a file; one that moved on meanwhile is fine too."""
    try:
        return disk.is_locked(path)
    except FileNotFoundError:
        return True
    except OSError:  # a link or a pipe, which nobody ever claimed
        return False


def _entries(tree: Tree, folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []
    except OSError:
        tree.unreadable.append(folder)
        return []


# --- notes -------------------------------------------------------------------------------------------------


def _note_names(tree: Tree, folder: Path, tally: Tally) -> Iterator[str]:
    for entry in _entries(tree, folder):
        if entry.name.endswith(".json") and not entry.name.startswith("."):
            tally.notes += 1
            if tally.notes % _OFTEN == 0:
                tally.doing(str(folder.parent.relative_to(tree.app.layout.data)))
            yield entry.name.removesuffix(".json")


def _read_notes(tree: Tree, place: Place, tally: Tally) -> None:
    layout = tree.app.layout
    found: dict[str, notes.FileNote | None] = {}
    for name in _note_names(tree, layout.folder(place) / ".notes", tally):
        try:
            note = notes.read(layout, place, name)
            found[name] = note if _is_sound(note) else None
        except (Final, TypeError, ValueError, AttributeError):
            found[name] = None
    tree.file_notes[place] = found


def _is_sound(note: notes.FileNote) -> bool:
    numbers = (note.attempt, note.generation, note.children, note.held_back, note.not_before)
    return all(isinstance(number, int | float) for number in numbers) and all(
        isinstance(told, dict) for told in note.locations.values()
    )


def _read_sources(tree: Tree, tally: Tally) -> None:
    layout, pipeline = tree.app.layout, tree.pipeline
    by_name = {str(place): place for place in tree.places}
    for name in _note_names(tree, layout.data / pipeline / ".notes", tally):
        try:
            if name.endswith(".discarded"):
                for told in notes.read_discarded(layout, pipeline, name.removesuffix(".discarded")):
                    tree.noted_discards.add(told)
                    place, _, discarded = told.rpartition("/")
                    if place in by_name and (file := tree.file(discarded)):
                        tree.elsewhere[by_name[place]].add(piece(file))
            elif not verdicts.is_verdict(name):
                tree.sources[name] = notes.read_source(layout, pipeline, name)
        except (Final, TypeError, ValueError, AttributeError):
            tree.sources[name] = None


# --- staging, outboxes, archive ----------------------------------------------------------------------------


def _look_into_boxes(tree: Tree, place: Place) -> None:
    layout = tree.app.layout
    for entry in _entries(tree, layout.staging(place)):
        held = _is_box_held(Path(entry.path))
        name = entry.name.rpartition(".")[0].lstrip(".")
        tree.stagings.append(Box(place=place, name=name, folder=Path(entry.path), held=held))
    for entry in _entries(tree, layout.outbox(place)):
        folder = Path(entry.path)
        held = _is_box_held(folder)
        name, damaged = entry.name.rpartition(".")[0], not held and _is_damaged(folder)
        tree.outboxes.append(Box(place=place, name=name, folder=folder, held=held, damaged=damaged))
        _account(tree, folder)


def _is_box_held(folder: Path) -> bool:
    try:
        return disk.is_locked(folder / ".lock")
    except OSError:
        # without its lock it belongs to nobody; gone altogether, somebody has finished it
        return not folder.exists()


def _is_damaged(folder: Path) -> bool:
    try:
        facts = json.loads((folder / "commit.json").read_bytes())
        return not {"note", "children", "own"} <= set(facts)
    except FileNotFoundError:
        return folder.exists()
    except (OSError, ValueError, TypeError):
        return True


def _account(tree: Tree, folder: Path) -> None:
    """Take down the files below a folder that is laid out as a pipeline's own: stage[/location][/status]/name."""
    for where, _, files in os.walk(folder):
        parts = [tree.pipeline, *Path(where).relative_to(folder).parts]
        place = _place(tree, parts)
        for name in files:
            if place and not names.never_work(name) and (file := tree.file(_plain(tree, name))):
                tree.elsewhere[place].add(piece(file))


def _place(tree: Tree, parts: list[str]) -> Place | None:
    """Read a place out of the parts of a path, wherever in it the pipeline's name stands."""
    for at, part in enumerate(parts[:-1]):
        if part == tree.pipeline and parts[at + 1] in set(Stage):
            stage = Stage(parts[at + 1])
            location = parts[at + 2] if len(parts) > at + 2 else ""
            return tree.place(stage, "" if location in set(Status) else location)
    return None


def _plain(tree: Tree, name: str) -> str:
    """Take off the number that tells apart namesakes in the archive."""
    without = _NUMBERED.sub("", name)
    return without if tree.file(without) else name


def _look_into_archive(tree: Tree) -> None:
    """Take down what lies in the archive: at its place where the path names one, else for any."""
    archive = tree.app.layout.data / "archive"
    for where, _, files in os.walk(archive):
        parts = list(Path(where).relative_to(archive).parts)
        place = _place(tree, parts)
        for name in files:
            plain = _plain(tree, name)
            file = None if names.never_work(name) else tree.file(plain)
            if file is None:
                continue
            if place is None:
                tree.archived.add(piece(file))
                continue
            tree.elsewhere[place].add(piece(file))
            if parts[:1] == ["discarded"]:
                tree.thrown_out.add((place, plain))


def _read_manifests(tree: Tree, tally: Tally) -> None:
    """Take down what the archives of clean hold of deliveries of which anything is left in the tree."""
    root, known = tree.app.config.archive, tree.known_ids()
    days = {archives.day_of(one) for one in known if names.is_id(tree.pipeline, one)}
    for path in archives.paths(root, tree.pipeline, "", "9"):
        if path.parent.name not in days:
            # years of it are of no delivery that is here; deep, all are read
            tree.archives.append(path.with_name(path.name.removesuffix(archives.MANIFEST)))
            continue
        tally.doing(f"{tree.pipeline}: {path.parent.name}/{path.name}")
        try:
            manifest = archives.read(path)
        except (Final, OSError) as error:
            tree.damaged_manifests.append((path, error))
            continue
        tree.archives.append(path.with_name(manifest.archive))
        for member in manifest.members:
            if member.id in known and (file := tree.file(member.name)):
                tree.elsewhere[member.place].add(piece(file))
        for made in manifest.regenerable:
            _take_down_removed(tree, made, known)


def _take_down_removed(tree: Tree, path: str, known: set[str]) -> None:
    """Take down a file that clean removed, as it can be made again out of what is archived."""
    *parts, _, name = path.split("/")
    place, file = _place(tree, parts), tree.file(name)
    if place is not None and file is not None and file.id in known:
        tree.elsewhere[place].add(piece(file))
