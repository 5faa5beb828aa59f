"""Triage: which failed files are meant, fixed at one moment, and what is then done to them, one by one.

1. What is meant is fixed when it is chosen. A file that fails again, or that another moved meanwhile, is left alone.
2. Each act is kept before it is done (`files.acts`). 3. A file is moved as a whole or not at all.
Asks the folders, never the ledger. Called by `etl retry` and `etl discard`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path, PurePath
from typing import Any

from etl.config.reading import Config
from etl.errors import Final, NotClaimed, UnsafeName
from etl.files import acts, causes, names, notes, reasons, survey
from etl.files import layout as layouts
from etl.files.acts import Act
from etl.files.gate import seen
from etl.files.layout import Layout
from etl.model import Place, Seen, Stage, Status

#: files that one line of the acts tells of, where they are moved at once.
TOGETHER = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedFile:
    """A file in a `failed/` folder, as it was when it was chosen."""

    place: Place
    name: str
    reason: dict[str, Any] = field(default_factory=dict)
    seen: Seen | None = None

    @property
    def summary(self) -> str:
        """Why, in one line."""
        return reasons.summary(self.reason)

    @property
    def since(self) -> float:
        """Since when it lies there, seconds since 1970."""
        return self.seen.mtime_ns / 1e9 if self.seen else 0.0

    def __str__(self) -> str:
        return f"{self.place}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which failed files somebody means: those that match all of it."""

    files: tuple[str, ...] = ()
    pipeline: str | None = None
    stage: str | None = None
    location: str | None = None
    #: the word of a cause, or a text in what is said of it.
    cause: str | None = None
    #: the start of a recipe's fingerprint.
    recipe: str | None = None
    #: seconds that it has lain there, at least and at most.
    older_than: float | None = None
    newer_than: float | None = None

    def __bool__(self) -> bool:
        return self != Wanted()


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What became of one chosen file."""

    file: FailedFile
    #: where it went; None when it was left alone.
    to: Path | None = None
    #: why it was left alone, and whether that has to be seen to.
    left: str = ""
    trouble: bool = False


# --- choosing ----------------------------------------------------------------------------------------------


def choose(config: Config, layout: Layout, wanted: Wanted, now: float) -> list[FailedFile]:
    """Give what is meant, as it lies there now; raise `Final` for a FILE that matches nothing."""
    pipelines = [config.pipeline(wanted.pipeline).name] if wanted.pipeline else sorted(config.pipelines)
    found = [
        (place, name)
        for pipeline in pipelines
        for place in layouts.places(pipeline, config.pipelines[pipeline].spec.load.locations)
        for name in survey.listing(layout, place, Status.FAILED)
    ]
    named = _named(found, wanted.files) if wanted.files else found
    return [one for place, name in named if (one := _meant(layout, place, name, wanted, now)) is not None]


def _named(found: Sequence[tuple[Place, str]], files: Sequence[str]) -> list[tuple[Place, str]]:
    """Keep the files that are named; each is looked at once, however many names there are."""
    lasts: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for given in files:
        lasts.setdefault(given.rstrip("/").rpartition("/")[2], []).append((given, _folders(given)))
    lengths = {len(last) for last in lasts if 4 <= len(last) <= 16}
    kept, used = [], set()
    for place, name in found:
        spellings = {name}
        if (file := names.parse(place.pipeline, name)) is not None:
            spellings |= {file.given, *(file.id[:length] for length in lengths)}
        wanted = (one for last in spellings & lasts.keys() for one in lasts[last])
        if meant := {given for given, folders in wanted if _may_lie(folders, place)}:
            kept.append((place, name))
            used |= meant
    for given in files:
        if given not in used:
            raise Final(f"no failed file matches {given!r}", next="see them with: etl failed")
    return kept


def _folders(given: str) -> tuple[str, ...]:
    """Give the folders of a path, from the top where the file is there: `X` typed in a folder is the X in there."""
    # a linked folder keeps its own neighbours
    return PurePath(os.path.abspath(given) if os.path.lexists(given) else given).parts[:-1]  # noqa: PTH100


def _may_lie(folders: Sequence[str], place: Place) -> bool:
    """Tell whether a path can be one of this place: who names a `failed/` folder means no other location's copy."""
    own = (*str(place).split("/"), str(Status.FAILED))
    if not folders or folders[-1] != Status.FAILED:
        return True
    return tuple(folders[-len(own) :]) == own[-len(folders) :]


def _meant(layout: Layout, place: Place, name: str, wanted: Wanted, now: float) -> FailedFile | None:
    """Give a file as it lies there, if it is meant; its reason is read only where the rest matches."""
    if (wanted.stage and place.stage != wanted.stage) or (
        wanted.location and place.location != wanted.location
    ):
        return None
    try:
        looked = seen(layout.file(place, Status.FAILED, name).lstat())
    except (FileNotFoundError, UnsafeName):
        return None
    age = now - looked.mtime_ns / 1e9
    if (wanted.older_than is not None and age < wanted.older_than) or (
        wanted.newer_than is not None and age > wanted.newer_than
    ):
        return None
    one = FailedFile(place=place, name=name, reason=reasons.read(layout, place, name), seen=looked)
    meant = _has_cause(one, wanted.cause) and _has_recipe(layout, one, wanted.recipe)
    return one if meant else None


def _has_cause(one: FailedFile, wanted: str | None) -> bool:
    if not wanted:
        return True
    known, text = causes.of(one.reason), wanted.lower()
    if any(causes.word(one.place, cause) == text for cause in known):
        return True
    return any(text in said.lower() for said in (one.summary, str(one.reason.get("cause", "")), *known))


def _has_recipe(layout: Layout, one: FailedFile, wanted: str | None) -> bool:
    return not wanted or any(recipe.startswith(wanted.lower()) for recipe in _recipes(layout, one))


def _recipes(layout: Layout, one: FailedFile) -> Iterator[str]:
    """Give under which recipe a file failed: its reason says it, its own note, or that of the file it came of."""
    yield str(one.reason.get("recipe", ""))
    file = names.parse(one.place.pipeline, one.name)
    if one.place.stage is Stage.TRANSFORM:
        yield notes.glance(layout, one.place, one.name).recipe
    elif one.place.stage is Stage.LOAD and file is not None:
        source = notes.glance_source(layout, one.place.pipeline, file.id)
        name = names.christen(source.given if source else file.given, file.id)
        transform = Place(pipeline=one.place.pipeline, stage=Stage.TRANSFORM)
        parent = notes.glance(layout, transform, str(name))
        if parent.generation == file.generation:
            yield parent.recipe


# --- acting ------------------------------------------------------------------------------------------------


def act(
    layout: Layout,
    chosen: Sequence[FailedFile],
    what: Act,
    move: Callable[[FailedFile], Path],
    *,
    together: int = TOGETHER,
) -> Iterator[Done]:
    """Do one thing to each chosen file and give what became of it; to stop, close this.

    Files are told in the acts `together`, right before the first of them is moved.
    """
    rest = iter(chosen)
    while some := list(islice(rest, together)):
        there = [one for one in some if _is_as_chosen(layout, one)]
        told = replace(what, files=tuple(map(str, there)))
        if there:
            acts.record(layout, told)
        moved: set[str] = set()
        try:
            for one in some:
                done = _one(layout, one, move)
                if done.to is not None:
                    moved.add(str(one))
                yield done
        finally:
            if undone := tuple(one for one in told.files if one not in moved):
                acts.record(layout, replace(told, files=undone, undone=True))


def _one(layout: Layout, one: FailedFile, move: Callable[[FailedFile], Path]) -> Done:
    if not _is_as_chosen(layout, one):
        return Done(file=one, left=_why_left(layout, one))
    try:
        return Done(file=one, to=move(one))
    except NotClaimed:
        return Done(file=one, left=_why_left(layout, one))
    except (PermissionError, Final) as error:
        said = error.strerror if isinstance(error, PermissionError) else str(error)
        return Done(file=one, left=f"it cannot be moved: {said}", trouble=True)


def _is_as_chosen(layout: Layout, one: FailedFile) -> bool:
    try:
        return seen(layout.file(one.place, Status.FAILED, one.name).lstat()) == one.seen
    except (FileNotFoundError, UnsafeName):
        return False


def _why_left(layout: Layout, one: FailedFile) -> str:
    if os.path.lexists(layout.file(one.place, Status.FAILED, one.name)):
        return "it was tried again or changed meanwhile"
    return "it was moved by somebody else meanwhile"
