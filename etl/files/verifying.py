"""Verifying: whether a tar holds what its manifest says, byte for byte.

Reads all of it, in bounded memory. Changes nothing. Called by `archiving` for what was just written, by clean before it
leans on an older archive, and by fsck.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from etl import disk
from etl.errors import Final
from etl.files import archives, names, tarring
from etl.files.archives import Manifest, Member, NoteMember


def verify(manifest: Manifest, path: Path | None = None, told: bytes | None = None) -> list[str]:
    """Read the whole tar and say what in it is not as the manifest has it; an empty list when all is right.

    With `path`, a tar that does not have its name yet; `told` is its manifest then, which does not lie beside it.
    """
    due: dict[str, Member | NoteMember] = {one.path: one for one in manifest.members}
    due |= {one.path: one for one in manifest.notes}
    wrong: list[str] = []
    inside = False
    try:
        # its bytes, whichever version of ours wrote them (P27)
        told = manifest.beside.read_bytes() if told is None else told
        for name, stream in tarring.files(path or manifest.path):
            if name == archives.INSIDE:
                inside = stream.read() == told
                continue
            one = due.pop(name, None)
            if one is None:
                wrong.append(f"{names.printable(name)} is not in the manifest")
            elif digest(stream) != (one.sha256, one.size):
                wrong.append(f"{names.printable(name)} is not what was archived")
    except Final as error:
        return [*wrong, error.summary]
    except OSError as error:
        return [*wrong, f"it cannot be read: {error}"]
    if not inside:
        wrong.append(f"{archives.INSIDE} is missing or differs from the manifest beside the archive")
    return wrong + [f"{names.printable(name)} is missing" for name in due]


def digest(stream: tarring.Inside) -> tuple[str, int]:
    """Read a stream to its end and give its sha256 and size."""
    found, size = hashlib.sha256(), 0
    while chunk := stream.read(disk.CHUNK):
        found.update(chunk)
        size += len(chunk)
    return found.hexdigest(), size
