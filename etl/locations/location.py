"""A location is a named place units are written to: the contract all kinds keep, and how one is opened.

Never reads a unit file and never moves anything; a kind's module is imported only when it is used.
Called by the load stage, by `etl check`, `etl fsck` and `etl trace`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from etl import model
from etl.config import reading, schema, wording

#: kind -> the module that has `Options` and `open_location`.
KINDS = {
    "files": "etl.locations.files",
    "memory": "etl.locations.memory",
    "sql": "etl.locations.sql",
}


class Location(Protocol):
    """A place for units. What it does with one unit file it does wholly or not at all, and once."""

    name: str

    def load(self, units: model.UnitFile) -> model.Loaded:
        """Write the units, or raise `Away` (unreachable), `Retryable` (busy) or `Refused` (no to all)."""

    def findings(self) -> list[str]:
        """Say what an operator has to fix, and how. Changes nothing and never raises."""

    def keys(self, data: str, pipeline: str) -> Iterator[model.Key] | None:
        """Tell every unit file of a pipeline that is here, in a stream; None where nothing is remembered.

        Writes nothing. Raises `Away` or another `EtlError` when it cannot be asked.
        """

    def excess(self, data: str, pipeline: str) -> Iterator[model.Excess]:
        """Tell where more is here than was loaded, or what an older generation left; raises as `keys` does."""

    def trace(self, wanted: Mapping[str, str], most: int) -> Iterator[model.Traced]:
        """Tell where the rows with these values came from, the newest first, `most` of them at most.

        Writes nothing. Raises `Refused` where lineage is not kept or a field is unknown, else as `keys` does.
        """

    def close(self) -> None:
        """Let go of connections; a closed location connects again when it is used."""


def open_location(name: str, written: schema.LocationOptions, origin: reading.Origin, root: Path) -> Location:
    """Open the location `name` as configured, without connecting, or raise `ConfigError`."""
    at = ("load", "locations", name)
    if written.kind not in KINDS:
        near = wording.near_word(written.kind, list(KINDS))
        hint = f"did you mean {near!r}?" if near else f"kinds are {', '.join(sorted(KINDS))}"
        raise origin.error((*at, "kind"), f"there is no kind of location called {written.kind!r}; {hint}")
    module = import_module(KINDS[written.kind])
    options = reading.options(module.Options, written.options, origin, at)
    opened = cast(Callable[[str, object, Path], Location], module.open_location)
    return opened(name, options, root)
