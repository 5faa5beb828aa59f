"""How a contender is measured: one process tree, its wall time, its largest process; and on what machine.

Reads /proc and nothing else. Called by the benchmarks in this folder.
"""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

#: seconds between two looks at the processes.
LOOK_EVERY = 0.05
#: in the environment of everything one run starts, so that also what left the process tree is found.
_MARK = "BENCHMARK_RUN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How one command went."""

    exit_code: int
    seconds: float
    output: str
    #: command -> largest resident size in MB, for every process the command started.
    resident: Mapping[str, float]


def run(argv: Sequence[str], *, cwd: Path, extra: Mapping[str, str] | None = None) -> Run:
    """Run a command to its end and say how long it took, what it printed and how large its processes grew."""
    mark = uuid.uuid4().hex
    environment = {**os.environ, **(extra or {}), _MARK: mark}
    watcher = _Watcher(mark)
    with tempfile.TemporaryFile("w+") as output:
        began = time.perf_counter()
        process = subprocess.Popen(
            argv, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        exit_code = None
        while exit_code is None:
            watcher.look()
            try:
                exit_code = process.wait(LOOK_EVERY)
            except subprocess.TimeoutExpired:
                continue
        seconds = time.perf_counter() - began
        output.seek(0)
        return Run(exit_code=exit_code, seconds=seconds, output=output.read(), resident=watcher.resident)


def _processes() -> set[str]:
    return {entry for entry in os.listdir("/proc") if entry.isdigit()}


class _Watcher:
    """Knows which processes carry the mark and the largest size each command reached."""

    def __init__(self, mark: str) -> None:
        self._mark = f"{_MARK}={mark}".encode()
        self._strangers = _processes()
        self.resident: dict[str, float] = {}

    def look(self) -> None:
        """Note the largest size so far of every process that carries the mark."""
        for pid in _processes() - self._strangers:
            try:
                self._look_at(Path("/proc", pid))
            except OSError:  # it ended while we looked
                continue

    def _look_at(self, folder: Path) -> None:
        if self._mark not in (folder / "environ").read_bytes().split(b"\0"):
            return
        command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        for line in (folder / "status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                megabytes = int(line.split()[1]) / 1024
                self.resident[command] = max(megabytes, self.resident.get(command, 0))


def machine() -> dict[str, str]:
    """Name processor, cores, memory and system."""
    processor = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            processor = line.partition(":")[2].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": processor,
        "cores": str(os.cpu_count()),
        "memory": f"{memory:.0f} GB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
