"""Where the embedded server's socket lies: a short path in a folder that only this user can enter.

Makes that folder and nothing else, and refuses one that somebody else prepared. Called by `embedded`.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from etl import errors

#: bytes; the kernel ends socket paths at 107 (Linux) or 103 (macOS).
LONGEST_SOCKET = 100
USE_A_URL = "Set `redis:` in settings.yaml to a redis://, rediss:// or unix:// URL instead"


def socket_path(data: Path, last: Path | None = None) -> Path:
    """Give the path for the socket, in a folder that is ours alone, or raise `Unavailable`.

    A server that was killed is given its `last` path again: whoever is connected looks for it there.
    """
    digest = hashlib.sha256(os.fsencode(data.resolve())).hexdigest()[:12]
    name = f"etl-{os.geteuid()}-{digest}"
    if last and last.parent.name == name and _is_private(last.parent):
        return last
    bases = (os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), "/tmp")  # noqa: S108
    for base in bases:
        socket = Path(base, name, "s")
        if base and os.access(base, os.W_OK | os.X_OK) and len(os.fsencode(socket)) <= LONGEST_SOCKET:
            _make_private(socket.parent)
            return socket
    raise errors.Unavailable("No folder for temporary files has a short path we may write to", next=USE_A_URL)


def _make_private(folder: Path) -> None:
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if not _is_private(folder):
        raise errors.Unavailable(
            f"{folder} should be a folder that only this user can enter, and it is not",
            next=f"Remove it if nobody needs it. {USE_A_URL}",
        )


def _is_private(folder: Path) -> bool:
    try:
        facts = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & 0o077
