"""What the supervisor is told by signals: to stop, to stop at once, to reload, to look after its children.

Only listens. A closed terminal means stop; SIGHUP from anywhere else means reload.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from types import FrameType

Handler = Callable[[int, FrameType | None], object] | int | None


class Orders:
    """Counts what was asked for, and ends a wait when something is. Use it in the main thread."""

    def __init__(self) -> None:
        #: how often somebody asked to stop; the second time means at once.
        self.stops = 0
        self.reload = False
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._before: dict[signal.Signals, Handler] = {}
        self._terminal = _has_terminal()
        # under nohup a closed terminal changes nothing
        self._outlives_terminal = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN

    def __enter__(self) -> Orders:
        handlers = {
            signal.SIGTERM: self._on_stop,
            signal.SIGINT: self._on_stop,
            signal.SIGHUP: self._on_hangup,
            signal.SIGCHLD: self._on_child,
        }
        self._before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)

    def wait(self, seconds: float) -> None:
        """Wait so long, or until the next signal."""
        if select.select([self._read], [], [], seconds)[0]:
            os.read(self._read, 4096)

    def _wake(self) -> None:
        try:
            os.write(self._write, b"!")
        except BlockingIOError:
            pass  # it is awake already

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        self.stops += 1
        self._wake()

    def _on_hangup(self, number: int, frame: FrameType | None) -> None:
        if self._terminal and not _has_terminal():
            self._terminal = False
            self.stops += 0 if self._outlives_terminal else 1
        else:
            self.reload = True
        self._wake()

    def _on_child(self, number: int, frame: FrameType | None) -> None:
        self._wake()


def _has_terminal() -> bool:
    """Tell whether this process has a terminal that could be closed."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
