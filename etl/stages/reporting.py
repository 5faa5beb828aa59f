"""Reporting: what a clean did or would do, counted while it goes on; in detail where somebody asked.

Holds values only. Filled by `cleaning` and `clean`, shown by `etl clean`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from etl.files.archives import Manifest
from etl.files.cleanings import Cleaning
from etl.model import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """One archive that was built, or would be."""

    day: str
    archive: str
    pipeline: str
    stage: Stage
    files: int
    #: bytes of its files, before they were packed.
    size: int
    notes: int
    members: tuple[str, ...] = ()
    note_members: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Give the facts."""
        facts = {key: getattr(self, key) for key in ("day", "archive", "pipeline", "stage", "size")}
        return {**facts, "members": list(self.members), "notes": sorted(self.note_members)}


@dataclass(slots=True)
class Report:
    """What was done so far."""

    #: off: paths are only counted, however many there are.
    detailed: bool = True
    archives: list[Built] = field(default_factory=list)
    #: how many files left archived, how many unarchived, how many notes and followed requests.
    files: int = 0
    regenerable: int = 0
    notes: int = 0
    requests: int = 0
    expired: list[str] = field(default_factory=list)
    #: what stays though it is old enough, by path or `pipeline/id`, and why.
    left: dict[str, str] = field(default_factory=dict)
    #: pipelines that could not be cleaned, and why.
    errors: dict[str, str] = field(default_factory=dict)
    paths: dict[str, list[str]] = field(default_factory=lambda: {"removed": [], "notes": [], "requests": []})
    stopped: bool = False
    #: another clean was at it, and nothing was done.
    busy: bool = False

    def built(self, manifest: Manifest) -> None:
        """Count an archive that has its name."""
        members = tuple(one.path for one in manifest.members)
        notes = tuple(one.path for one in manifest.notes)
        self.archives.append(
            Built(
                day=manifest.day,
                archive=manifest.archive,
                pipeline=manifest.pipeline,
                stage=manifest.stage,
                files=len(members),
                size=sum(one.size for one in manifest.members),
                notes=len(notes),
                members=members if self.detailed else (),
                note_members=notes if self.detailed else (),
            )
        )

    def archived(self, path: str) -> None:
        """Count a file that left and is in an archive."""
        self.files += 1

    def removed(self, path: str) -> None:
        """Count a file that left and can be made again."""
        self.regenerable += 1
        self._keep("removed", path)

    def noted(self, path: str) -> None:
        """Count a note that left."""
        self.notes += 1
        self._keep("notes", path)

    def forgot(self, path: str) -> None:
        """Count a request that left."""
        self.requests += 1
        self._keep("requests", path)

    def planned(self, cleaning: Cleaning, names: list[str]) -> None:
        """Count what a cleaning would do, its archives under these names."""
        for one, archive in zip(cleaning.archives, names, strict=True):
            members = tuple(chosen.member.path for chosen in one.files)
            self.archives.append(
                Built(
                    day=cleaning.day,
                    archive=archive,
                    pipeline=cleaning.pipeline,
                    stage=one.stage,
                    files=len(members),
                    size=sum(chosen.member.size for chosen in one.files),
                    notes=len(one.notes),
                    members=members,
                    note_members=tuple(path for path, _ in one.notes),
                )
            )
            self.files += len(members)
            for path, _ in one.notes:
                self.noted(path)
        for regenerable in cleaning.regenerable:
            self.removed(regenerable.path)

    def _keep(self, what: str, path: str) -> None:
        if self.detailed:
            self.paths[what].append(path)

    def as_dict(self) -> dict[str, Any]:
        """Give the facts for programs."""
        return {
            "archives": [one.as_dict() for one in self.archives],
            "files": self.files,
            "removed": self.paths["removed"],
            "notes": sorted(self.paths["notes"]),
            "requests": self.paths["requests"],
            "expired": self.expired,
            "left": self.left,
            "errors": self.errors,
        }
