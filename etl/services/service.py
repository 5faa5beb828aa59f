"""A service is a program that keeps running: the contract all of them keep, and the loop that runs one.

One turn after the other until a signal comes; what a turn raises is told, and the next one tries again.
Called by `etl service` and whoever else keeps something running.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Protocol

from etl.errors import EtlError

log = logging.getLogger(__name__)

#: seconds to wait after a turn that went wrong.
AFTER_TROUBLE = 1.0
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Service(Protocol):
    """What keeps running. After reading one of them you can read them all."""

    name: str

    def turn(self) -> float:
        """Do what is due, and give the seconds until the next turn is wanted."""

    def close(self) -> None:
        """End what was begun; called once, after the last turn."""


def keep(service: Service) -> None:
    """Give a service its turns until SIGTERM, SIGINT or SIGHUP, then close it. Call it from the main thread."""
    with Stop() as stop:
        try:
            while not stop.asked:
                stop.wait(_turn(service))
        finally:
            service.close()


def _turn(service: Service) -> float:
    try:
        return service.turn()
    except EtlError as error:
        log.warning("%s: %s", service.name, error, extra={"event": "turn_failed"})
    except OSError as error:
        log.warning("%s: %s; it is tried again", service.name, error, extra={"event": "turn_failed"})
    except Exception:  # the edge: a service outlives whatever one turn of it meets
        log.exception("%s: a turn failed; it is tried again", service.name, extra={"event": "turn_failed"})
    return AFTER_TROUBLE


def asked() -> int:
    """Tell how often the service that runs here was asked to stop; who is asked twice does not finish anything."""
    return sum(stop.asked for stop in _kept)


def wake() -> None:
    """Have the service that is kept in this process take its next turn now; from any thread."""
    for stop in _kept:
        stop.wake()


class Stop:
    """Waits that end at once when somebody asks to stop: a signal, or `wake` from another thread."""

    def __init__(self) -> None:
        self.asked = 0
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def __enter__(self) -> Stop:
        self._before = {number: signal.signal(number, self._ask) for number in STOP_SIGNALS}
        _kept.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _kept.remove(self)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked += 1
        self.wake()

    def wake(self) -> None:
        """End a wait; from any thread or signal handler."""
        with suppress(OSError):  # it is awake already, or has ended
            os.write(self._write, b"!")

    def wait(self, seconds: float) -> None:
        """Wait so long, or until somebody wakes us."""
        until = time.monotonic() + seconds
        while not self.asked and (left := until - time.monotonic()) > 0:
            if select.select([self._read], [], [], left)[0]:
                os.read(self._read, 4096)
                return


#: those that wait in this process.
_kept: list[Stop] = []
