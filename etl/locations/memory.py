"""A location that keeps units in this process: for tests, and for trying a pipeline without a database.

Keeps the whole contract (once per key, generations, refused units) and forgets everything with the process.
Opened by `location`; tests look into it through `store`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etl import errors
from etl.config import strict
from etl.model import Excess, Key, Loaded, Traced, Trouble, UnitFile, UnitKey

Source = tuple[str, str, str]


class Options(strict.Strict):
    """There is nothing to write for a location of kind `memory`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One unit file that was loaded."""

    sha256: str
    units: tuple[dict[str, Any], ...]
    rejected: tuple[Trouble, ...]


@dataclass(slots=True)
class Store:
    """What the location of one name holds, and how it is told to behave."""

    loaded: dict[UnitKey, Kept] = field(default_factory=dict)
    generations: dict[Source, int] = field(default_factory=dict)
    away: bool = False
    #: gives the cause for which a unit is refused, or nothing.
    refuse: Callable[[dict[str, Any]], str | None] = lambda _unit: None
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def units(self) -> list[dict[str, Any]]:
        """Give all units, in the order they came."""
        return [unit for kept in self.loaded.values() for unit in kept.units]


_stores: dict[str, Store] = {}


def store(name: str) -> Store:
    """Give what the location `name` holds; all locations of one name share it."""
    return _stores.setdefault(name, Store())


def open_location(name: str, options: Options, root: Path) -> MemoryLocation:
    """Open the location; two of one name are one."""
    return MemoryLocation(name)


class MemoryLocation:
    """Loads unit files into a `Store`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def load(self, units: UnitFile) -> Loaded:
        """Keep the units, or raise `Away` or `Refused` with nothing kept."""
        kept_here = store(self.name)
        with kept_here.lock:
            if kept_here.away:
                raise errors.Away(f"location {self.name!r} is away", next="Tell it to be back")
            return _load(kept_here, units)

    def findings(self) -> list[str]:
        """Say whether the location was told to be away."""
        return [f"location {self.name!r} is away: tell it to be back"] if store(self.name).away else []

    def keys(self, data: str, pipeline: str) -> Iterator[Key] | None:
        """Tell what this process loaded; None in one that loaded nothing, which cannot know."""
        if self.name not in _stores:
            return None
        if store(self.name).away:
            raise errors.Away(f"location {self.name!r} is away", next="Tell it to be back")
        return (
            Key(
                file=key.file,
                generation=key.generation,
                part=key.part,
                count=len(kept.units),
                rejected=len(kept.rejected),
            )
            for key, kept in list(store(self.name).loaded.items())
            if (key.data, key.pipeline) == (data, pipeline)
        )

    def excess(self, data: str, pipeline: str) -> Iterator[Excess]:
        """Tell nothing: a key and its units are one thing here."""
        return iter(())

    def trace(self, wanted: Mapping[str, str], most: int) -> Iterator[Traced]:
        """Tell nothing of lines: raise `Refused`, because none are kept."""
        raise errors.Refused(
            f"location {self.name!r} keeps units in memory and no lineage", next="Trace another location"
        )

    def close(self) -> None:
        """Keep everything: there is nothing to let go of."""


def _load(here: Store, units: UnitFile) -> Loaded:
    key = units.key
    source = (key.data, key.pipeline, key.file)
    if here.generations.get(source, 0) > key.generation:
        return Loaded(count=0, superseded=True)
    before = here.loaded.get(key)
    if before and before.sha256 != units.sha256:
        raise errors.Refused(
            f"{units.name}: already loaded, and its bytes have changed since",
            next="Drop corrected units as a new file",
        )
    if before:
        return Loaded(count=0, before=True, rejected=before.rejected)
    kept = _sort_out(here, units)
    here.loaded = {
        other: found
        for other, found in here.loaded.items()
        if (other.data, other.pipeline, other.file) != source or other.generation >= key.generation
    }
    here.generations[source] = key.generation
    here.loaded[key] = kept
    return Loaded(count=len(kept.units), rejected=kept.rejected)


def _sort_out(here: Store, units: UnitFile) -> Kept:
    good: list[dict[str, Any]] = []
    bad: list[Trouble] = []
    for block in units.blocks():
        for line, *values in block.rows:
            unit = dict(zip(block.fields, values, strict=True))
            if cause := here.refuse(unit):
                bad.append(Trouble(cause=cause, line=line, unit=len(good) + len(bad)))
            else:
                good.append(unit)
    return Kept(sha256=units.sha256, units=tuple(good), rejected=tuple(bad))
