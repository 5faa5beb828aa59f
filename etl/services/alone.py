"""One service alone in this process: its record, its signals, its turns. What `etl service` does.

Waits for a Redis that is away instead of ending; knows of a supervisor only whose child it is.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from contextlib import ExitStack
from dataclasses import dataclass
from types import FrameType

from etl import process
from etl.config.reading import Config
from etl.errors import Unavailable
from etl.services import catalogue, records
from etl.services.service import STOP_SIGNALS, Service, keep

log = logging.getLogger(__name__)

#: tells a service whose child it is, and how often it was started again: `<pid>:<restarts>`.
SUPERVISED = "ETL_SUPERVISED"
#: the longest wait in seconds before something that is away is tried again, and between two lines about it.
LONGEST_WAIT, TELL_EVERY = 5.0, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Origins:
    """Who started this service."""

    supervised: bool = False
    restarts: int = 0


def bind() -> Origins:
    """End together with the supervisor that started this process, if one did. Call it first of all (P23)."""
    told = os.environ.pop(SUPERVISED, "")  # what a handler starts is nobody's service
    if not told:
        return Origins()
    parent, _, restarts = told.partition(":")
    process.die_with_parent(int(parent))
    return Origins(supervised=True, restarts=int(restarts))


def run(name: str, config: Config, origins: Origins) -> None:
    """Run one service until SIGTERM, SIGINT or SIGHUP."""
    for number in STOP_SIGNALS:  # until the service is open; from then on `keep` hears them
        signal.signal(number, _leave)
    with records.held(config.data, name, restarts=origins.restarts), ExitStack() as stack:
        keep(_opened(stack, name, config))


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


def _opened(stack: ExitStack, name: str, config: Config) -> Service:
    """Open a service as soon as what it needs is there."""
    pause, told, again = 0.5, "", 0.0
    while True:
        try:
            return stack.enter_context(catalogue.opened(name, config))
        except Unavailable as error:
            if str(error) != told or time.monotonic() > again:
                log.warning("waits: %s", error, extra={"event": "service_waits"})
                told, again = str(error), time.monotonic() + TELL_EVERY
        pause = min(2 * pause, LONGEST_WAIT)
        time.sleep(pause)
