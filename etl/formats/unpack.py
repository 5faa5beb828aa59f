"""gz and zip, recognised by the name's suffix, unpacked as they are read.

Never writes to disk, never uses a name from inside an archive as a path, and stops at a limit before memory
or disk does. Called by the transform stage between the claimed file and its format.
"""

from __future__ import annotations

import io
import os
import stat
import zipfile
import zlib
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

from etl.errors import InvalidFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import WriteableBuffer

#: bytes read from an archive at a time.
CHUNK = 64 << 10
#: unpacked bytes per packed byte; data compresses ten times, seldom a hundred times.
MAX_RATIO = 1000
#: unpacked bytes below which no ratio is looked at.
RATIO_FROM = 10 << 20
#: bytes of a zip's list of members; every member takes 46 and its name.
MAX_LIST = 1 << 20

_ARCHIVES = frozenset({".gz", ".zip", ".tar", ".tgz", ".bz2", ".xz", ".zst", ".7z"})
_GZIP = zlib.MAX_WBITS | 16
_ENCRYPTED = 0x1
_AGAIN = "Ask the sender for the file again."
_ONE_FILE = "Put exactly one regular file into each zip, or unpack it and drop what was in it."


def unpack(name: str, stream: BinaryIO, max_unpacked: int) -> BinaryIO:
    """Give what is packed in `name` as a stream, or the stream itself; raise InvalidFile when unsafe."""
    path = PurePosixPath(name.lower())
    if path.suffix == ".gz":
        _refuse_nested(path.stem)
        return _reader(_Gunzip(stream), max_unpacked, stream.tell)
    if path.suffix == ".zip":
        size = stream.seek(0, os.SEEK_END)
        return _reader(_open_zip(stream), max_unpacked, lambda: size)
    return stream


def _reader(source: io.RawIOBase, max_unpacked: int, packed: Callable[[], int]) -> BinaryIO:
    return io.BufferedReader(_Limited(source, max_unpacked, packed), buffer_size=4 * CHUNK)


def _refuse_nested(inner: str) -> None:
    if PurePosixPath(inner.lower()).suffix in _ARCHIVES:
        raise InvalidFile(
            f"an archive in an archive: {inner[:80]!r}", next="Unpack the outer one and drop what is in it."
        )


class _Limited(io.RawIOBase):
    """Hands on what is unpacked until it is more than can be meant."""

    def __init__(self, source: io.RawIOBase, max_unpacked: int, packed: Callable[[], int]) -> None:
        self._source = source
        self._max = max_unpacked
        self._packed = packed
        self._total = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        data = self._source.read(min(len(view), CHUNK)) or b""
        self._total += len(data)
        if self._total > self._max:
            raise InvalidFile(
                f"the file unpacks to more than {self._max:,} bytes",
                next="If that is right, raise read: {max_unpacked: …}.",
            )
        if self._total > RATIO_FROM and self._total > MAX_RATIO * self._packed():
            raise InvalidFile(
                f"the file unpacks to more than {MAX_RATIO} times its size; it looks like a trap",
                next="If it is not, unpack it and drop what was in it.",
            )
        view[: len(data)] = data
        return len(data)


class _Gunzip(io.RawIOBase):
    """Unpacks gzip, one member after another; zeros after a member are padding."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._packed = b""
        self._inflate = zlib.decompressobj(_GZIP)
        self._members = 0

    def read(self, size: int = -1) -> bytes:
        """Give up to `size` bytes, none at the end; raise InvalidFile for what is cut off or no gzip."""
        while True:
            packed = self._packed or self._stream.read(CHUNK)
            if self._inflate.eof:
                if not packed:
                    return b""
                self._packed = packed.lstrip(b"\0")
                if self._packed:
                    self._inflate = zlib.decompressobj(_GZIP)
                continue
            data = self._unpacked(packed, size)
            # with no bytes left to read, the decompressor may still hold some that it has not given
            if not (data or packed or self._inflate.eof):
                raise InvalidFile("the gzip file is cut off", next=_AGAIN)
            if data:
                return data

    def _unpacked(self, packed: bytes, size: int) -> bytes:
        try:
            data = self._inflate.decompress(packed, size)
        except zlib.error as error:
            what = (
                "something that is no gzip follows its end" if self._members else f"not valid gzip ({error})"
            )
            raise InvalidFile(f"the gzip file is damaged: {what}", next=_AGAIN) from error
        self._packed = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
        self._members += self._inflate.eof
        return data


class _Sparing(io.RawIOBase):
    """An archive of which little may be read at once: a list of a million members is never loaded."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def read(self, size: int = -1) -> bytes:
        if size > MAX_LIST:
            raise InvalidFile("the zip file holds too many members", next=_ONE_FILE)
        return self._stream.read(size)


class _Member(io.RawIOBase):
    """The one file of a zip."""

    def __init__(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
        self._archive = archive
        self._file = archive.open(member)

    def read(self, size: int = -1) -> bytes:
        """Give up to `size` bytes, none at the end; raise InvalidFile when they are not what was packed."""
        try:
            return self._file.read(size)
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise _damaged_zip(error) from error


def _open_zip(stream: BinaryIO) -> _Member:
    """Open the only file in a zip, or raise InvalidFile saying why there is no such one."""
    try:
        archive = zipfile.ZipFile(_Sparing(stream))
        member = _only_file(archive)
        return _Member(archive, member)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError) as error:
        raise _damaged_zip(error) from error


def _only_file(archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    files = [
        one for one in archive.infolist() if not one.is_dir() and not one.filename.startswith("__MACOSX/")
    ]
    if len(files) != 1:
        raise InvalidFile(f"the zip file holds {len(files):,} files, not one", next=_ONE_FILE)
    member = files[0]
    shown = repr(member.filename[:80])
    mode = member.external_attr >> 16
    if stat.S_IFMT(mode) and not stat.S_ISREG(mode):
        raise InvalidFile(f"{shown} in the zip file is not a regular file", next=_ONE_FILE)
    if member.flag_bits & _ENCRYPTED:
        raise InvalidFile(f"{shown} in the zip file is encrypted", next="Ask for it without a password.")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        # the others may ask for any amount of memory
        raise InvalidFile(f"{shown} is packed in an unusual way", next="Ask for an ordinary (deflate) zip.")
    _refuse_nested(member.filename)
    return member


def _damaged_zip(error: Exception) -> InvalidFile:
    return InvalidFile(f"the zip file is damaged: {error}", next=_AGAIN)
