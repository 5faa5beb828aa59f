"""P8: what counts is on the disk before it counts. Shown on the recorded order of effects, since a killed process
leaves the page cache behind and cannot show a missing sync: every rename is preceded by the syncs it needs.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from etl import disk, points
from tests.road import Road

CSV = "id,price\n" + "".join(f"{number},{number}\n" for number in range(20)) + "x,1\n"
SPEC: dict[str, Any] = {
    "extract": {"sources": ["in"]},
    "transform": {
        "read": "csv",
        "schema": {
            "required": ["id"],
            "properties": {"id": {"type": "integer"}, "price": {"type": "number"}},
        },
        "units_per_file": 5,
    },
    "load": {"locations": {"lake": {"kind": "files", "path": "lake"}}},
}


@dataclass(slots=True)
class Recorder:
    """Every sync and rename of this process, and what each rename was allowed to rely on."""

    #: inode -> its modification time when it was last synced.
    synced: dict[int, int] = field(default_factory=dict)
    #: folders in which a name appeared that is not yet synced.
    unsynced: set[Path] = field(default_factory=set)
    renames: list[tuple[Path, Path]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def sync(self, descriptor: int) -> None:
        facts = os.fstat(descriptor)
        self.synced[facts.st_ino] = facts.st_mtime_ns
        if stat.S_ISDIR(facts.st_mode):
            self.unsynced.discard(Path(os.readlink(f"/proc/self/fd/{descriptor}")))

    def sync_all(self, descriptor: int) -> None:
        """A file system's sync covers everything on it: here, all that lies below the data folder."""
        root = next(
            parent
            for parent in Path(os.readlink(f"/proc/self/fd/{descriptor}")).parents
            if parent.name == "data"
        )
        for path in (root, *root.rglob("*")):
            facts = path.lstat()
            self.synced[facts.st_ino] = facts.st_mtime_ns
            self.unsynced.discard(path)

    def rename(self, source: Path, target: Path) -> None:
        self.renames.append((source, target))
        if ".staging" in source.parts and target.parent.name == ".outbox":
            self._whole_folder(source)
        elif ".outbox" in source.parts and "resolved" not in target.parts:
            self._committed_name(source)
        elif target.parent.name == "resolved":
            self._nothing_hangs_in_the_air(target)
        if source.parent.name in (".staging", ".outbox") or ".outbox" in source.parts:
            self.unsynced.add(target.parent)

    def _whole_folder(self, folder: Path) -> None:
        for path in (folder, *folder.rglob("*")):
            facts = path.lstat()
            if path.name != ".lock" and self.synced.get(facts.st_ino) != facts.st_mtime_ns:
                self.faults.append(f"{path} was not synced before the commit")

    def _committed_name(self, source: Path) -> None:
        outbox = next(parent for parent in source.parents if parent.name == ".outbox")
        if outbox in self.unsynced:
            self.faults.append(f"{source} was released before the commit's name was synced")

    def _nothing_hangs_in_the_air(self, target: Path) -> None:
        for folder in self.unsynced:
            self.faults.append(f"{target} was resolved before the names in {folder} were synced")


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    recorder = Recorder()
    fsync, rename, replace, syncfs = os.fsync, disk.rename, os.replace, disk._syncfs

    def recorded_fsync(descriptor: int) -> None:
        fsync(descriptor)
        recorder.sync(descriptor)

    def recorded_syncfs(descriptor: int) -> int:
        answer: int = syncfs(descriptor)
        recorder.sync_all(descriptor)
        return answer

    def recorded_rename(source: Path, target: Path) -> None:
        recorder.rename(Path(source), Path(target))
        rename(source, target)

    def recorded_replace(source: Path, target: Path) -> None:
        recorder.rename(Path(source), Path(target))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    monkeypatch.setattr(disk, "rename", recorded_rename)
    monkeypatch.setattr(disk, "_syncfs", recorded_syncfs)
    yield recorder


@pytest.mark.parametrize("units_per_file", [5, 1], ids=["few files", "one by one"])
@pytest.mark.parametrize("most", [64, 3], ids=["file by file", "the whole file system"])
def test_nothing_counts_before_it_is_on_the_disk(
    tmp_path: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, units_per_file: int, most: int
) -> None:
    monkeypatch.setattr(disk, "_MANY", most)
    road = Road(tmp_path, {**SPEC, "transform": {**SPEC["transform"], "units_per_file": units_per_file}})
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "books.csv").write_text(CSV)
    road.ask()
    road.work()
    assert len(road.files("load", "resolved")) == 20 // units_per_file
    commits = [target for _, target in recorder.renames if target.parent.name == ".outbox"]
    assert len(commits) == 3, "pull, extract and transform commit once each"
    assert recorder.faults == []


def test_a_delivery_is_on_the_disk_before_it_waits(tmp_path: Path, recorder: Recorder) -> None:
    from etl.files import arrivals

    road = Road(tmp_path, SPEC)
    (tmp_path / "books.csv").write_text(CSV)
    arrivals.deliver(road.layout, road.pipeline, tmp_path / "books.csv")
    waiting = road.one("extract", "working")
    assert recorder.synced[waiting.lstat().st_ino]
    folder = waiting.parent.lstat()
    assert recorder.synced[folder.st_ino] == folder.st_mtime_ns


def test_a_note_that_decides_is_on_the_disk_before_it_replaces_the_older(
    tmp_path: Path, recorder: Recorder
) -> None:
    note = tmp_path / "note.json"
    for text in (b"1", b"2"):
        disk.write(note, text, points.Point.NOTE_COMMIT)
        facts = note.lstat()
        assert recorder.synced[facts.st_ino] == facts.st_mtime_ns
        assert recorder.synced[tmp_path.lstat().st_ino] == tmp_path.lstat().st_mtime_ns
