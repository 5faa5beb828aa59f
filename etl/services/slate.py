"""The slate of one worker: what it writes and its groom and guard read, in memory that all three share.

Survives the worker, however it ends, and says then what it had in hand. Nothing here waits or decides.
"""

from __future__ import annotations

import json
import mmap
import os
import time

from etl.model import Place, Progress, Stage

#: where the parts lie, in bytes: the deadline, whole numbers, the job, the file.
_NUMBERS, _JOB, _FILE, _SIZE = 8, 64, 1024, 4096
_ROWS, _UNITS, _HELD_BACK, _PID, _STATUS, _OVERRAN, _FILE_LENGTH = range(7)
#: no wait status looks like this one.
_UNKNOWN = -1


class Slate:
    """The job in hand, its deadline, its file, its progress; then how the worker ended."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _SIZE)
        self._deadline = memoryview(self._memory)[:_NUMBERS].cast("d")
        self._numbers = memoryview(self._memory)[_NUMBERS:_JOB].cast("q")
        #: the parent of the worker that writes here; known to the two of them only.
        self.groom = 0

    def wipe(self) -> None:
        """Forget the last worker, but not what was done so far."""
        self.ended()
        self._numbers[_PID], self._numbers[_STATUS], self._numbers[_OVERRAN] = 0, _UNKNOWN, 0

    # --- the worker writes

    def started(self, job: str, timeout: int) -> None:
        """Note the job, then by when it must be over."""
        if os.getppid() != self.groom:
            # where the kernel does not end us together with our groom, we begin nothing without it
            os._exit(1)
        self._numbers[_FILE_LENGTH] = 0
        self._memory[_JOB:_FILE] = job.encode()[: _FILE - _JOB].ljust(_FILE - _JOB, b"\0")
        self._deadline[0] = time.monotonic() + timeout

    def holds(self, place: Place, name: str) -> None:
        """Note the file that the job in hand has claimed."""
        told = json.dumps([place.pipeline, place.stage, place.location, name]).encode()
        if len(told) <= _SIZE - _FILE:  # one that does not fit is brought back by the next scan
            self._memory[_FILE : _FILE + len(told)] = told
            self._numbers[_FILE_LENGTH] = len(told)  # last: only what is whole is ever read

    def ended(self) -> None:
        """Note that there is no job in hand."""
        self._deadline[0] = 0.0
        self._numbers[_FILE_LENGTH] = 0

    def progressed(self, progress: Progress) -> None:
        """Add to what the workers of this slate have done."""
        for index, done in (
            (_ROWS, progress.rows),
            (_UNITS, progress.units),
            (_HELD_BACK, progress.held_back),
        ):
            self._numbers[index] += done

    # --- the groom writes

    def born(self, pid: int) -> None:
        """Note the worker's process."""
        self._numbers[_PID] = pid

    def overran(self) -> None:
        """Note that the worker is ended because its time limit has passed."""
        self._numbers[_OVERRAN] = 1

    def died(self, status: int) -> None:
        """Note the wait status with which the worker ended."""
        self._numbers[_STATUS] = status

    # --- groom and guard read

    def overrun(self) -> float:
        """Give the seconds the job in hand is over its limit; 0 or less when all is well."""
        return time.monotonic() - self._deadline[0] if self._deadline[0] else 0.0

    @property
    def pid(self) -> int:
        """Give the worker's process; 0 for none."""
        return self._numbers[_PID]

    @property
    def status(self) -> int | None:
        """Give the wait status with which the worker ended; None when nobody saw it."""
        status = self._numbers[_STATUS]
        return None if status == _UNKNOWN else status

    @property
    def has_overrun(self) -> bool:
        """Tell whether the worker was ended for its time limit."""
        return bool(self._numbers[_OVERRAN])

    @property
    def job(self) -> str:
        """Say what is in hand, or ""."""
        return self._memory[_JOB:_FILE].rstrip(b"\0").decode(errors="replace") if self._deadline[0] else ""

    @property
    def file(self) -> tuple[Place, str] | None:
        """Give place and name of the claimed file, or None."""
        length = self._numbers[_FILE_LENGTH]
        if not length:
            return None
        pipeline, stage, location, name = json.loads(self._memory[_FILE : _FILE + length])
        return Place(pipeline=pipeline, stage=Stage(stage), location=location), name

    @property
    def progress(self) -> Progress:
        """Give what was done so far."""
        return Progress(
            rows=self._numbers[_ROWS], units=self._numbers[_UNITS], held_back=self._numbers[_HELD_BACK]
        )
