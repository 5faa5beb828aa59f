"""Held: what earlier archives hold of some deliveries, asked for one after the other; each manifest is read once.

Keeps nothing of other deliveries, so that memory stays small however much is archived. Changes nothing. Used by
`departing`, `origins` and `cleaning`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from etl.errors import Final
from etl.files import archives, names
from etl.files.archives import Manifest


@dataclass(slots=True)
class Held:
    """What archives of one pipeline hold of these deliveries; of one day at a time, so ask in the order of days."""

    root: Path
    pipeline: str
    ids: Collection[str]
    _day: str = ""
    _manifests: dict[str, list[Manifest]] = field(default_factory=dict)
    #: manifests of the day that cannot be read, and why.
    _damaged: list[tuple[Path, Final]] = field(default_factory=list)

    def of(self, file_id: str) -> list[Manifest]:
        """Give the manifests of all that hold a file of a delivery or tell of one, with nothing else in them.

        Raise `Final` where one is damaged that speaks of it.
        """
        day = archives.day_of(file_id)
        if day != self._day:
            self._read(day)
        for path, error in self._damaged:
            if archives.speaks_of(path, file_id):
                raise error
        return self._manifests.get(file_id, [])

    def _read(self, day: str) -> None:
        self._day, self._manifests, self._damaged = day, defaultdict(list), []
        for path in archives.paths(self.root, self.pipeline, day, day):
            try:
                manifest = archives.read(path)
            except Final as error:
                self._damaged.append((path, error))
                continue
            for file_id, one in self._parts(manifest).items():
                self._manifests[file_id].append(one)

    def _parts(self, manifest: Manifest) -> dict[str, Manifest]:
        """Take a manifest apart by delivery."""
        members, removed = defaultdict(list), defaultdict(list)
        for member in manifest.members:
            members[member.id].append(member)
        for path in manifest.regenerable:
            if file := names.parse(self.pipeline, PurePosixPath(path).name):
                removed[file.id].append(path)
        wanted = {one for one in (*members, *removed) if one in self.ids}
        return {
            one: replace(manifest, members=tuple(members[one]), notes=(), regenerable=tuple(removed[one]))
            for one in wanted
        }
