"""One service's place under the supervisor: the process that fills it now, and when it may be filled again.

Starts it by name, buries it, tells of it. Reads no configuration and decides nothing about the others.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import etl
from etl.services.alone import SUPERVISED
from etl.services.respawn import Respawn

log = logging.getLogger(__name__)


def command(config: Path, *arguments: str) -> list[str]:
    """Give the command that runs a verb, such as one service, with the same code as this process."""
    code = Path(etl.__file__).parents[1]
    # a folder called `etl` where the operator happens to stand must not be taken for ours
    safe = [] if code == Path.cwd() else ["-P"]
    return [sys.executable, *safe, "-m", "etl", "--config", str(config), *arguments]


class Child:
    """A service that is to run, whatever happens to its processes; with `once`, until it ends by itself."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        grace: float,
        *,
        once: bool = False,
    ) -> None:
        self.name = name
        self._once = once
        self.restarts = 0
        #: seconds it may take to stop.
        self.grace = grace
        self._command = command
        self._environment = environment
        self._respawn = Respawn()
        self._process: subprocess.Popen[bytes] | None = None
        #: by when it has to be gone since it was asked to; 0 when nobody asked.
        self._leaves_by = 0.0

    @property
    def pid(self) -> int:
        """Give its process id; 0 while nothing runs."""
        return self._process.pid if self._process else 0

    def tend(self) -> None:
        """Bury it if it ended, and start it if it does not run and may be started."""
        self.bury()
        if not self._process and self._respawn.due:
            self._start()

    def bury(self) -> bool:
        """Bury it if it ended, and end it if it was asked to leave and did not; tell whether nothing runs."""
        if self._process is None:
            return True
        if self._leaves_by and time.monotonic() > self._leaves_by:
            log.warning("%s (process %d) does not stop: it is ended", self.name, self.pid)
            self.kill()
        code = self._process.poll()
        if code is None:
            return False
        pid, self._process = self.pid, None
        if self._leaves_by:
            log.info("%s stopped", self.name, extra={"event": "service_stopped", "service": self.name})
            self._leaves_by = 0.0
            self._respawn = Respawn()
            return True
        if self._once:
            level = logging.INFO if code == 0 else logging.WARNING
            log.log(
                level, "%s (process %d) %s", self.name, pid, _said_of(code), extra={"event": "worker_left"}
            )
            return True
        self.restarts += 1
        pause = self._respawn.ended(killed=code == -signal.SIGKILL)
        log.error(
            "%s (process %d) %s; %s",
            *(self.name, pid, _said_of(code), _next(pause)),
            extra={"event": "service_ended", "service": self.name, "pause": pause},
        )
        return True

    def _start(self) -> None:
        self._respawn.started()
        environment = {**os.environ, **self._environment, SUPERVISED: f"{os.getpid()}:{self.restarts}"}
        try:
            self._process = subprocess.Popen(
                self._command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno(),
                # a session of its own: Ctrl-C at the terminal reaches the supervisor alone
                start_new_session=True,
            )
        except OSError as error:  # no memory or no process left; both come back
            pause = self._respawn.ended(killed=False)
            log.warning("%s cannot be started: %s; %s", self.name, error, _next(pause))
            return
        log.info(
            "%s started (process %d)",
            *(self.name, self.pid),
            extra={"event": "service_started", "service": self.name},
        )

    def ask_to_leave(self) -> None:
        """Ask it to finish what it has in hand and end; that it then ends is no crash."""
        if self._process is None:
            self._respawn = Respawn()
        elif not self._leaves_by:
            self._leaves_by = time.monotonic() + self.grace
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def hurry(self, within: float) -> None:
        """Ask it a second time, which it takes for at once, and end it if it takes longer than so many seconds."""
        if self._process is not None:
            self._leaves_by = time.monotonic() + within
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End it at once; what it started ends with it."""
        if self._process is not None:
            self._process.kill()


def _said_of(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


def _next(pause: float) -> str:
    return f"it keeps ending and is started again in {pause:.0f} s" if pause else "it is started again"
