"""Sources: where files are pulled from. A path, a folder, a glob, or any URL that fsspec knows.

Lists, opens and afterwards takes away; never decides what is pulled. Local files are opened without following
links and without ever blocking on a pipe. Called by `pull`.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit, urlunsplit

from etl import disk
from etl.config.schema import MoveTo, Source
from etl.errors import Away, EtlError, Final, Retryable, UnsafeName


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One file at a source, as it was when it was listed."""

    url: str
    given: str
    size: int
    mtime: float
    #: what changes when the file does: its mtime in nanoseconds, or the store's etag.
    mark: str
    local: bool
    after: str | MoveTo = "leave"

    @property
    def shown(self) -> str:
        """The address as it may be shown: without user and password."""
        return shown(self.url)


def key(url: str) -> str:
    """Give the name under which a source's lock and record are kept."""
    return hashlib.sha256(url.encode(errors="surrogateescape")).hexdigest()[:24]


def shown(url: str) -> str:
    """Give an address without what is secret in it."""
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc="…@" + parts.netloc.rpartition("@")[2]))


def listed(source: Source, root: Path) -> list[Found]:
    """List the files of a source; raise `Final` when it is not there, `Away` when it does not answer."""
    if "://" in source.path and not source.path.startswith("file://"):
        return _listed_by_url(source)
    return _listed_here(source, root)


def _listed_here(source: Source, root: Path) -> list[Found]:
    written = source.path.removeprefix("file://")
    path = root / written
    if path.is_dir():
        paths = list(path.iterdir())
    elif os.path.lexists(path):  # asked before it is read as a glob: a name may hold brackets
        paths = [path]
    elif has_magic(written):
        paths = [root / found for found in glob(written, root_dir=root)]
    else:
        raise Final(
            f"the source {source.path!r} is not there ({path})",
            next="check extract.sources, or ask again later",
        )
    found = []
    for one in paths:
        facts = one.lstat()
        if not stat.S_ISDIR(facts.st_mode):
            found.append(
                Found(
                    url=str(one),
                    given=one.name,
                    size=facts.st_size,
                    mtime=facts.st_mtime,
                    mark=str(facts.st_mtime_ns),
                    local=True,
                    after=source.after,
                )
            )
    return found


def _listed_by_url(source: Source) -> list[Found]:
    import fsspec

    try:
        filesystem, path = fsspec.core.url_to_fs(source.path)
        if has_magic(path):
            infos = list(filesystem.glob(path, detail=True).values())
        elif filesystem.isdir(path):
            infos = filesystem.ls(path, detail=True)
        else:
            infos = [filesystem.info(path)]
    except FileNotFoundError as error:
        raise Final(
            f"the source {shown(source.path)!r} is not there", next="check extract.sources"
        ) from error
    except (ValueError, ImportError) as error:
        raise Final(
            f"the source {shown(source.path)!r} cannot be used: {error}", next="check extract.sources"
        ) from error
    except Exception as error:  # the edge: a store's library has errors of its own
        raise Away(
            f"the source {shown(source.path)!r} does not answer: {error}",
            next="check that it is up and lets this user in",
        ) from error
    return [_found(source, filesystem, info) for info in infos if info.get("type") == "file"]


def _found(source: Source, filesystem: Any, info: dict[str, Any]) -> Found:
    changed = info.get("mtime") or info.get("LastModified") or info.get("created") or 0
    mtime = changed.timestamp() if hasattr(changed, "timestamp") else float(changed)
    mark = info.get("ETag") or info.get("etag") or changed
    return Found(
        url=filesystem.unstrip_protocol(info["name"]),
        given=Path(info["name"]).name,
        size=int(info.get("size") or 0),
        mtime=mtime,
        mark=str(mark),
        local=False,
        after=source.after,
    )


@contextmanager
def opened(one: Found) -> Iterator[BinaryIO]:
    """Open a found file for reading, or raise `UnsafeName` when it is not a regular file."""
    if not one.local:
        import fsspec

        try:
            with fsspec.open(one.url, "rb") as stream:
                yield cast(BinaryIO, stream)
        except EtlError:
            raise
        except Exception as error:  # the edge: a store's library has errors of its own
            raise Retryable(
                f"{one.shown} could not be read: {error}", next="check that it is still there"
            ) from error
        return
    try:
        descriptor = disk.open_regular(Path(one.url))
    except OSError as error:
        why = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise UnsafeName(
            f"{one.shown!r} cannot be pulled: {why}",
            next="only regular files with one link, readable by this user, are pulled",
        ) from error
    with os.fdopen(descriptor, "rb") as stream:
        yield stream


def check_unchanged(one: Found, copied: int) -> None:
    """Make sure a file was not written to while it was copied, or raise `Retryable`."""
    changed = copied != one.size if one.size or one.local else False
    if one.local and not changed:
        changed = str(Path(one.url).lstat().st_mtime_ns) != one.mark
    if changed:
        raise Retryable(f"{one.shown!r} changed while it was copied", next="ask again when it is complete")


def finish(one: Found, root: Path) -> None:
    """Delete or move away a file that was pulled."""
    if one.local and not _is_still(one):
        return
    if isinstance(one.after, MoveTo):
        folder = root / one.after.move
        disk.make_folder(folder)
        _move_without_replacing(Path(one.url), folder)
    elif one.local:
        Path(one.url).unlink(missing_ok=True)
    else:
        _remove_by_url(one)


def _remove_by_url(one: Found) -> None:
    """Delete a file at a URL, unless a newer one lies there by now; raise OSError when it cannot be."""
    import fsspec

    try:
        filesystem, path = fsspec.core.url_to_fs(one.url)
        now = _found(Source(path=one.url), filesystem, filesystem.info(path))
        if (now.size, now.mark) == (one.size, one.mark):
            filesystem.rm_file(path)
    except FileNotFoundError:
        return
    except Exception as error:  # the edge: a store's library has errors of its own
        raise OSError(str(error)) from error


def _is_still(one: Found) -> bool:
    try:
        facts = Path(one.url).lstat()
    except FileNotFoundError:
        return False
    return (facts.st_size, str(facts.st_mtime_ns)) == (one.size, one.mark)


def _move_without_replacing(path: Path, folder: Path) -> None:
    for number in range(1_000_000):
        target = folder / (f"{path.name}.{number}" if number else path.name)
        try:
            disk.rename(path, target)
        except FileExistsError:
            continue
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            if os.path.lexists(target):
                continue
            _copy_and_delete(path, target)
        return


def _copy_and_delete(path: Path, target: Path) -> None:
    """Move to another disk. A plain copy will do: the bytes are already safe with us."""
    shutil.copy2(path, target)
    try:
        path.unlink()
    except OSError:
        target.unlink()  # else every later pull would leave one more copy
        raise
