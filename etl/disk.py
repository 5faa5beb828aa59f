"""The bottom: write aside, fsync, rename without replace, lock.

Every effect on the data tree passes through here with a `Point`, so a test can end the process right before
or right after any of them. Knows nothing of stages or statuses; never replaces a file that is not its own note.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import shutil
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from etl.points import Point, effect

#: bytes per read when a file is copied or hashed.
CHUNK = 1 << 20
#: mode of every folder we make: group-writable and setgid, so that the person on call can `mv`.
FOLDER_MODE = 0o2775


#: what a disk without room answers; whoever makes room puts it right, and no file is to blame.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})

_libc = ctypes.CDLL(None, use_errno=True)
_syncfs = getattr(_libc, "syncfs", None) if sys.platform == "linux" else None
#: above this many files in one commit, the whole file system is synced instead of each file.
_MANY = 64

# --- folders -----------------------------------------------------------------------------------------------


def make_folder(path: Path) -> None:
    """Make `path` and what is missing above it, group-writable. Existing folders are left as they are."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        # mkdir's mode is cut by the umask; the person on call must be able to move files here
        folder.chmod(FOLDER_MODE)


def sync_folder(path: Path) -> None:
    """Make the names in `path` survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(root: Path, files: Sequence[Path]) -> None:
    """Make everything written below `root` survive a power loss: its `files`, then the folders they lie in."""
    if len(files) > _MANY and _syncfs is not None:
        # one sync of the file system costs far less than thousands of small ones
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if _syncfs(descriptor) != 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code), str(root))
        finally:
            os.close(descriptor)
        return
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    for folder in sorted(
        {parent for path in files for parent in path.parents if parent.is_relative_to(root)}
    ):
        sync_folder(folder)


def remove_folder(path: Path, point: Point) -> None:
    """Remove a folder of our own with all that is in it; one that is gone already is fine."""
    with effect(point):
        shutil.rmtree(path, ignore_errors=True)


# --- files -------------------------------------------------------------------------------------------------


def open_regular(path: Path, links: int | None = 1) -> int:
    """Open a regular file with so many links for reading, or raise OSError. Never blocks, never follows a link."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode) or (links is not None and facts.st_nlink > links):
        os.close(descriptor)
        kind = "it has a second hard link" if stat.S_ISREG(facts.st_mode) else "not a regular file"
        raise OSError(errno.EINVAL, kind, str(path))
    return descriptor


def write(path: Path, data: bytes, point: Point, *, durable: bool = True) -> None:
    """Write one of our own notes: aside, fsynced, renamed over the older one, the folder synced.

    With `durable` off it is not synced: a power loss may bring the older one back, or leave an empty file.
    """
    aside = path.with_name(f".{path.name[:200]}.{os.getpid()}.writing")
    with effect(point):
        try:
            with aside.open("wb") as handle:
                handle.write(data)
                if durable:
                    sync(handle)
            os.replace(aside, path)
        except OSError:
            # P24: what a full disk cut short is of no use to anybody
            aside.unlink(missing_ok=True)
            raise
        if durable:
            sync_folder(path.parent)


def append(path: Path, line: bytes, point: Point) -> None:
    """Add a line to a file of our own, durably and whole, whoever else adds one; it is made if need be.

    What a full disk cut short is taken off again; what a power loss left of a line stands alone in its own.
    """
    with effect(point):
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o664)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            size = os.fstat(descriptor).st_size
            if not size:
                # open's mode is cut by the umask; others on call add lines too
                os.fchmod(descriptor, 0o664)
            elif os.pread(descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line
            try:
                while line:
                    line = line[os.write(descriptor, line) :]
                os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)
        if not size:
            sync_folder(path.parent)


def write_private(path: Path, data: bytes, point: Point) -> None:
    """Write a secret of our own: never readable for others, not even for a moment."""
    aside = path.with_name(f".{path.name}.writing")
    with effect(point):
        aside.unlink(missing_ok=True)
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as handle:
            handle.write(data)
            sync(handle)
        os.replace(aside, path)
        sync_folder(path.parent)


def sync(handle: BinaryIO) -> None:
    """Make what was written to `handle` survive a power loss."""
    handle.flush()
    os.fsync(handle.fileno())


def copy(source: BinaryIO, target: Path) -> str:
    """Copy an open file to the new file `target`, fsynced, and return the sha256 of what was read."""
    digest = hashlib.sha256()
    with target.open("xb") as handle:
        while chunk := source.read(CHUNK):
            digest.update(chunk)
            handle.write(chunk)
        sync(handle)
    return digest.hexdigest()


def sha256(path_or_descriptor: Path | int) -> str:
    """Hash a whole file from its beginning; a descriptor's position is left where it was."""
    if isinstance(path_or_descriptor, int):
        digest, offset = hashlib.sha256(), 0
        while chunk := os.pread(path_or_descriptor, CHUNK, offset):
            digest.update(chunk)
            offset += len(chunk)
        return digest.hexdigest()
    with path_or_descriptor.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


# --- moves -------------------------------------------------------------------------------------------------

_RENAME_NOREPLACE = 1
_AT_FDCWD = -100
_renameat2 = getattr(_libc, "renameat2", None) if sys.platform == "linux" else None


def rename(source: Path, target: Path) -> None:
    """Rename without ever replacing: raise FileExistsError when `target` is there."""
    if _renameat2 is not None:
        source_name, target_name = os.fsencode(source), os.fsencode(target)
        if _renameat2(_AT_FDCWD, source_name, _AT_FDCWD, target_name, _RENAME_NOREPLACE) == 0:
            return
        code = ctypes.get_errno()
        if code not in (errno.ENOSYS, errno.EINVAL):
            raise OSError(code, os.strerror(code), str(source), None, str(target))
    _rename_by_link(source, target)


def _rename_by_link(source: Path, target: Path) -> None:
    """Rename where the kernel or file system has no RENAME_NOREPLACE (NFS, macOS)."""
    if source.is_dir():
        # folders cannot be linked; rename refuses a folder that is not empty, and ours never are
        os.rename(source, target)
        return
    os.link(source, target, follow_symlinks=False)
    os.unlink(source)


def move(source: Path, target: Path, point: Point, *, touch: bool = True) -> None:
    """Move a file to a name that must be free, with its mtime set to now so that `ls -l` shows since when."""
    with effect(point):
        rename(source, target)
        if touch:
            # another user's file may be moved where the folder allows it, but not touched; and whoever waited for it
            # may have moved it on by now, which is no failure of this move
            with suppress(PermissionError, FileNotFoundError):
                os.utime(target, follow_symlinks=False)


# --- locks -------------------------------------------------------------------------------------------------

#: descriptors that hold a lock; a forked child must not keep its parent's locks alive after the parent dies.
_held: set[int] = set()


def _drop_inherited_locks() -> None:
    for descriptor in list(_held):
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_drop_inherited_locks)


class Lock:
    """An exclusive `flock` on an open file: the kernel frees it the moment its owner ends, however it ends."""

    __slots__ = ("descriptor",)

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        _held.add(descriptor)

    def release(self) -> None:
        """Give the lock back; doing it twice is fine."""
        if self.descriptor in _held:
            _held.discard(self.descriptor)
            os.close(self.descriptor)

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def lock_regular(path: Path, links: int | None = 1) -> Lock | None:
    """Open and lock a regular file, or return None when another has it; raise OSError as `open_regular` does."""
    try:
        return _try_lock(open_regular(path, links))
    except OSError as error:
        if error.errno != errno.EBADF:
            raise
    # NFS grants an exclusive lock only on a descriptor that may write
    return _try_lock(os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC))


def is_locked(path: Path) -> bool:
    """Tell whether somebody has locked a regular file, or raise OSError; makes nothing and waits for nobody."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def lock_path(path: Path) -> Lock | None:
    """Lock a lock file of our own, made if need be; None when another has it."""
    return _try_lock(_open_lock_file(path))


def _try_lock(descriptor: int) -> Lock | None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
    return Lock(descriptor)


def wait_for_lock(path: Path) -> Lock:
    """Lock a lock file of our own, made if need be, once nobody else has it."""
    descriptor = _open_lock_file(path)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return Lock(descriptor)


def _open_lock_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o664)


def same_file(path: Path, descriptor: int) -> bool:
    """Tell whether `path` still leads to the open file."""
    try:
        there = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    here = os.fstat(descriptor)
    return (there.st_ino, there.st_dev) == (here.st_ino, here.st_dev)
