"""Mutation proof: take one safety away at a time and see the suite go red; the report says which test noticed.

Works on a copy of the tree. A mutation is a piece of text that must stand exactly once where it says, so it cannot
go stale in silence. Called by `inv chaos --mutate`; a unit test checks that every mutation still fits.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One safety taken away: in `file`, `old` becomes `new`."""

    name: str
    file: str
    old: str
    new: str
    #: what is run; the whole suite would notice too, later.
    tests: tuple[str, ...] = ("tests/unit", "tests/integration", "tests/acceptance")

    def apply(self, root: Path) -> None:
        """Change the file below `root`, or raise ValueError when the text is not there exactly once."""
        path = root / self.file
        text = path.read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.file} has {text.count(self.old)} times: {self.old!r}")
        path.write_text(text.replace(self.old, self.new))


MUTATIONS = (
    Mutation(
        name="no fsync of files",
        file="etl/disk.py",
        old="        descriptor = os.open(path, os.O_RDONLY)\n        try:\n            os.fsync(descriptor)",
        new="        descriptor = os.open(path, os.O_RDONLY)\n        try:\n            pass",
        tests=("tests/acceptance/test_durability.py",),
    ),
    Mutation(
        name="no fsync of folders",
        file="etl/disk.py",
        old="    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)\n    try:\n        os.fsync(descriptor)",
        new="    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)\n    try:\n        pass",
        tests=("tests/acceptance/test_durability.py",),
    ),
    Mutation(
        name="no lock",
        file="etl/disk.py",
        old="        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)\n    except BlockingIOError:",
        new="        pass\n    except BlockingIOError:",
        tests=("tests/acceptance/test_many_workers.py", "tests/acceptance/test_state_machine.py"),
    ),
    Mutation(
        name="no outbox: children are handed out before anything is committed",
        file="etl/files/outbox.py",
        old="            disk.rename(self.folder, committed)\n            disk.sync_folder(committed.parent)\n"
        "        self.folder = committed\n",
        new="            committed = self.folder\n",
        tests=("tests/acceptance/test_crash_points.py",),
    ),
    Mutation(
        name="no scan: what has no job gets none",
        file="etl/services/mending.py",
        old="        self._app.announce(lost)\n",
        new="",
        tests=("tests/acceptance",),
    ),
    Mutation(
        name="the key in a transaction of its own",
        file="etl/locations/sql.py",
        old="        kept = self._books.claim(connection, units)\n",
        new="        kept = self._books.claim(connection, units)\n        connection.commit()\n",
        tests=("tests/acceptance/test_crash_points.py",),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed:
    """What one mutation did to the suite."""

    mutation: Mutation
    seconds: float
    #: the first test that failed; "" when none did.
    by: str


def prove(tell: Callable[[str], None] = lambda _: None) -> list[Noticed]:
    """Try every mutation on a copy of the tree, one after the other."""
    results = []
    for mutation in MUTATIONS:
        tell(f"{mutation.name} …")
        with tempfile.TemporaryDirectory(prefix="etl-mutant-") as folder:
            results.append(_try(mutation, copy(Path(folder))))
        tell(f"  noticed by {results[-1].by or 'NOBODY'} after {results[-1].seconds:.0f} s")
    return results


def copy(folder: Path) -> Path:
    """Copy what git knows of the tree into a folder."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (REPOSITORY / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, folder / name)
    return folder


def _try(mutation: Mutation, root: Path) -> Noticed:
    mutation.apply(root)
    begun = time.monotonic()
    # from the copy's own folder, first on the path: the installed package is the real tree's
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-n", "2", *mutation.tests],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=900,
    )
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    by = found[1] if found else ("" if done.returncode == 0 else f"pytest (exit {done.returncode})")
    return Noticed(mutation=mutation, seconds=time.monotonic() - begun, by=by)
