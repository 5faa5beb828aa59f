"""Tar files, packed with gzip or zstd, written and read as a stream: names of any bytes, and bounded memory.

Knows nothing of manifests; believes no path, link or mode that it reads. Used by `archives` and `archiving`.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, Protocol, cast

from etl.errors import ConfigError, Final

#: bytes of a block that is handed to the packer at once.
_BLOCK = 1 << 18
#: how every zstd file begins.
_ZSTD = b"\x28\xb5\x2f\xfd"


@contextmanager
def writing(handle: BinaryIO, packed: str) -> Iterator[tarfile.TarFile]:
    """Write a tar to an open file; what was added is in it whole once the context is left."""
    with ExitStack() as stack:
        if packed == "zst":
            stream = stack.enter_context(_zstandard().ZstdCompressor().stream_writer(handle, closefd=False))
        else:
            # no name and no time in its head: the same files make the same bytes
            stream = stack.enter_context(gzip.GzipFile("", "wb", 6, handle, mtime=0))
        yield stack.enter_context(
            tarfile.open(
                fileobj=stream,
                mode="w|",
                bufsize=_BLOCK,
                format=tarfile.PAX_FORMAT,
                encoding="utf-8",
                errors="surrogateescape",
            )
        )


class Readable(Protocol):
    """What can be read on."""

    def read(self, size: int = -1, /) -> bytes:
        """Give at most so many bytes; none at the end."""


def add(tar: tarfile.TarFile, path: str, stream: Readable, facts: os.stat_result) -> None:
    """Add one file of exactly the size that its facts say, or raise OSError when the stream has fewer bytes."""
    entry = tarfile.TarInfo(path)
    entry.size, entry.mtime, entry.mode = facts.st_size, facts.st_mtime, stat.S_IMODE(facts.st_mode)
    entry.uid, entry.gid = facts.st_uid, facts.st_gid
    _add(tar, entry, stream)


def add_bytes(tar: tarfile.TarFile, path: str, data: bytes) -> None:
    """Add a file that is on no disk."""
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode = len(data), 0o664
    _add(tar, entry, io.BytesIO(data))


def _add(tar: tarfile.TarFile, entry: tarfile.TarInfo, stream: Readable) -> None:
    tar.addfile(entry, cast(IO[bytes], stream))
    _forget(tar)


def _forget(tar: tarfile.TarFile) -> None:
    """Keep nothing of what was passed: it is never asked for again, and there may be much of it."""
    tar.members = []  # type: ignore[attr-defined]


class Inside:
    """The bytes of one file in a tar, for reading once, before the next is asked for."""

    __slots__ = ("_path", "_stream")

    def __init__(self, path: Path, stream: IO[bytes]) -> None:
        self._path = path
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        """Read on, or raise `Final` where the archive is damaged."""
        with _whole(self._path):
            return self._stream.read(size)


def files(path: Path) -> Iterator[tuple[str, Inside]]:
    """Give the regular files in a tar from its beginning on, or raise `Final` when it is not there or damaged."""
    with ExitStack() as stack:
        with _whole(path):
            tar = _opened(path, stack)
        while True:
            with _whole(path):
                entry = tar.next()
                stream = tar.extractfile(entry) if entry is not None and entry.isreg() else None
            if entry is None:
                return
            _forget(tar)
            if stream is not None:
                yield entry.name, Inside(path, stream)


def _opened(path: Path, stack: ExitStack) -> tarfile.TarFile:
    try:
        handle = stack.enter_context(path.open("rb"))
    except FileNotFoundError as error:
        raise Final(
            f"the archive {path} is not there", next="see that its disk is mounted, or put it back"
        ) from error
    begins = handle.peek(len(_ZSTD))[
        : len(_ZSTD)
    ]  # by its bytes: one that is being written has no suffix yet
    unpacked: Any = (
        _zstandard().ZstdDecompressor().stream_reader(handle)
        if begins == _ZSTD
        else gzip.GzipFile(fileobj=handle)
    )
    stack.enter_context(unpacked)
    return stack.enter_context(
        tarfile.open(fileobj=unpacked, mode="r|", bufsize=_BLOCK, encoding="utf-8", errors="surrogateescape")
    )


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Turn what a library says of a damaged archive into a word of ours."""
    try:
        yield
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError) as error:
        raise Final(f"the archive {path} is damaged: {error}", next="put back a copy of it") from error
    except Exception as error:
        # zstandard's own, which is none of Python's and may not be imported here
        if type(error).__module__.partition(".")[0] != "zstandard":
            raise
        raise Final(f"the archive {path} is damaged: {error}", next="put back a copy of it") from error


def require(packed: str) -> None:
    """Make sure that archives can be packed so, or raise ConfigError."""
    if packed == "zst":
        _zstandard()


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError as error:
        raise ConfigError(
            "archives are to be packed as zst, and the library for that is not installed",
            next="install it: pip install 'rq-etl[zst]'; or write `archive_format: gz`",
        ) from error
    return zstandard
