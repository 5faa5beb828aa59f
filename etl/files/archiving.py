"""Archiving: builds one archive, written aside, synced, read back, and only then given its name.

Removes nothing but what it wrote itself; what cannot be read as it was chosen is left out. Called by
`stages.cleaning`, which removes the sources of what this gives back.
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from etl import disk, points
from etl.errors import EtlError, Final, Unavailable
from etl.files import archives, cleanings, tarring, verifying
from etl.files.archives import Manifest, Member, NoteMember
from etl.files.cleanings import Chosen, Planned
from etl.points import Point

#: how often an archive is begun again when another data folder, which shares the archive, takes its name.
_TRIES = 20


class NotVerified(EtlError):
    """What was read back of an archive is not what was written: it does not count, and no source is removed."""


class _LeftOutError(Exception):
    """A source cannot be read to its end as it was chosen."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why


@dataclass(slots=True)
class Builder:
    """Builds the archives of one pipeline and day, in one archive folder."""

    data: Path
    root: Path
    pipeline: str
    day: str
    packed: str = "gz"
    #: hears how many more bytes of sources were read.
    heard: Callable[[int], None] = lambda _: None
    #: files that were left out, and why.
    left: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Where its archives lie."""
        return self.root / self.day

    def build(self, planned: Planned, regenerable: tuple[str, ...] = ()) -> Manifest | None:
        """Build an archive, or find the one that was built; None when nothing that was chosen is left for it.

        Raise `NotVerified`, or OSError when a disk refuses; nothing of it is left then.
        """
        if (known := self.committed(planned)) is not None:
            return known
        self._make_folder()
        tries = 0
        while tries < _TRIES:
            self.discard(planned)
            built = None
            try:
                built = self._attempt(planned, regenerable)
                return built
            except _LeftOutError as one:  # what was written has its beginning in it: once more, without it
                self.left[one.path] = one.why
            except FileExistsError:
                tries += 1
            finally:
                if built is None:
                    with suppress(OSError, Final):
                        self.discard(planned)
        raise Unavailable(f"others keep taking the names in {self.folder}", next="try again later")

    def committed(self, planned: Planned) -> Manifest | None:
        """Give the manifest of an archive that was built before; None where none was."""
        found = [one for one in self._manifests(planned) if one.path.exists()]
        return found[0] if found else None

    def discard(self, planned: Planned) -> None:
        """Remove what is left of an archive that never got its name."""
        for manifest in self._manifests(planned):
            if not manifest.path.exists():
                manifest.beside.unlink(missing_ok=True)
        self._aside(planned).unlink(missing_ok=True)
        self._aside(planned, archives.MANIFEST).unlink(missing_ok=True)

    def _manifests(self, planned: Planned) -> list[Manifest]:
        """Give the manifests of this very archive; one that is damaged is another's."""
        found = []
        for path in archives.paths(self.root, self.pipeline, self.day, self.day):
            if archives.starts_with(path, planned.token):
                with suppress(Final):
                    found.append(archives.read(path))
        return [one for one in found if (one.token, one.stage) == (planned.token, planned.stage)]

    def _aside(self, planned: Planned, suffix: str = "") -> Path:
        return self.folder / f".{self.pipeline}-{planned.stage}.{planned.token}{suffix}.writing"

    def require(self) -> None:
        """Make sure that the archive folder is there, or raise `Unavailable`."""
        if not self.root.is_dir() and self.root != self.data / "archive":
            # made here, it would fill the disk below the place where its own should be mounted
            raise Unavailable(
                f"the archive folder {self.root} is not there",
                next="mount its disk or make the folder; until then nothing is archived and nothing removed",
            )

    def _make_folder(self) -> None:
        self.require()
        disk.make_folder(self.folder)
        disk.sync_folder(self.root)

    # --- one attempt

    def _attempt(self, planned: Planned, regenerable: tuple[str, ...]) -> Manifest | None:
        aside = self._aside(planned)
        number = archives.next_number(self.root, self.day, self.pipeline, planned.stage)
        manifest = Manifest(
            archive=archives.name(self.pipeline, planned.stage, number, self.packed),
            pipeline=self.pipeline,
            stage=planned.stage,
            day=self.day,
            made=datetime.now(UTC).isoformat(timespec="seconds"),
            token=planned.token,
            regenerable=regenerable,
            folder=self.folder,
        )
        with points.effect(Point.ARCHIVE_WRITE), aside.open("xb") as handle:
            with tarring.writing(handle, self.packed) as tar:
                members = [one for chosen in planned.files if (one := self._add(tar, chosen)) is not None]
                notes = [note for path, of in planned.notes if (note := self._add_note(tar, path, of))]
                manifest = replace(manifest, members=tuple(members), notes=tuple(notes))
                told = archives.dump(manifest)
                tarring.add_bytes(tar, archives.INSIDE, told)
            disk.sync(handle)
            _forget(handle)
        if not members and not notes:
            return None
        if wrong := verifying.verify(manifest, aside, told):
            raise NotVerified(
                f"{manifest.path} is not what was written: {'; '.join(wrong[:3])}",
                next="check the disk of the archive; no source was removed, and the next clean tries again",
            )
        self._commit(manifest, told, aside, self._aside(planned, archives.MANIFEST))
        return manifest

    def _commit(self, manifest: Manifest, told: bytes, aside: Path, beside: Path) -> None:
        with points.effect(Point.ARCHIVE_MANIFEST):
            with beside.open("wb") as handle:
                handle.write(told)
                disk.sync(handle)
            disk.rename(beside, manifest.beside)
            disk.sync_folder(self.folder)
        with points.effect(Point.ARCHIVE_COMMIT):
            disk.rename(aside, manifest.path)
            disk.sync_folder(self.folder)

    # --- what goes in

    def _add(self, tar: tarfile.TarFile, chosen: Chosen) -> Member | None:
        """Add a file as it was chosen; None, and said, when it is not that any more."""
        member, path = chosen.member, self.data / chosen.member.path
        if member.path in self.left:
            return None
        try:
            lock = disk.lock_regular(path, links=None)
        except OSError as error:
            self.left[member.path] = "it is gone" if not os.path.lexists(path) else f"{error.strerror}"
            return None
        if lock is None:
            self.left[member.path] = "somebody works on it"
            return None
        with lock:
            facts = os.fstat(lock.descriptor)
            if cleanings.stamp(facts) != chosen.stamp:
                self.left[member.path] = "it changed after it was chosen"
                return None
            stream = _Reading(lock.descriptor, member.path, self.heard)
            tarring.add(tar, member.path, stream, facts)
            if cleanings.stamp(os.fstat(lock.descriptor)) != chosen.stamp:
                raise _LeftOutError(member.path, "it changed while it was read")
            return replace(member, sha256=stream.digest.hexdigest())

    def _add_note(self, tar: tarfile.TarFile, path: str, file_id: str) -> NoteMember | None:
        try:
            descriptor = disk.open_regular(self.data / path, links=None)
        except OSError:
            return None  # gone, or nothing of ours: it is not removed then
        with os.fdopen(descriptor, "rb") as handle:
            facts, written = os.fstat(descriptor), handle.read()
        if len(written) != facts.st_size:
            return None  # it is being written to
        tarring.add(tar, path, io.BytesIO(written), facts)
        digest = hashlib.sha256(written).hexdigest()
        return NoteMember(path=path, id=file_id, sha256=digest, size=len(written))


class _Reading:
    """A source that is hashed while it is read."""

    def __init__(self, descriptor: int, path: str, heard: Callable[[int], None]) -> None:
        self._descriptor = descriptor
        self._path = path
        self._heard = heard
        self._offset = 0
        self.digest = hashlib.sha256()

    def read(self, size: int = -1, /) -> bytes:
        """Read on, or raise `_LeftOutError` where the source ends too early or cannot be read."""
        try:
            chunk = os.pread(self._descriptor, size if size >= 0 else disk.CHUNK, self._offset)
        except OSError as error:
            raise _LeftOutError(self._path, f"it cannot be read: {error.strerror}") from error
        if not chunk and size:
            raise _LeftOutError(self._path, "it changed while it was read")
        self._offset += len(chunk)
        self.digest.update(chunk)
        self._heard(len(chunk))
        return chunk


def _forget(handle: BinaryIO) -> None:
    """Have the kernel forget what it keeps of a file, so that reading it back reads the disk."""
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):
            os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
