"""The heartbeat: as long as every service runs, somebody outside hears of it once a minute.

In a thread of its own, with a limit on each try: whoever does not answer harms nobody, and is told of once. Says
nothing while a service is missing, so that the silence is heard. Run by the supervisor.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from etl.config.operating import Heartbeat

log = logging.getLogger(__name__)

#: seconds until the first beat: services need a moment to start.
_FIRST_AFTER = 5.0
#: seconds that a try in hand is waited for at the end.
_STOP_WITHIN = 2.0


@contextmanager
def beating(heartbeat: Heartbeat | None, all_run: Callable[[], bool]) -> Iterator[None]:
    """Beat in a thread for as long as the context lasts; without a heartbeat do nothing."""
    if heartbeat is None:
        yield
        return
    over = threading.Event()
    thread = threading.Thread(target=_beat, args=(heartbeat, all_run, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(_STOP_WITHIN)


def _beat(heartbeat: Heartbeat, all_run: Callable[[], bool], over: threading.Event) -> None:
    from etl.notify import ping

    told, silent, pause = "", False, min(_FIRST_AFTER, heartbeat.every)
    while not over.wait(pause):
        pause = heartbeat.every
        try:
            if all_run():
                silent, told = False, _said(ping.ping(heartbeat.url), told)
            elif not silent:
                silent = True
                log.warning("no heartbeat: not every service runs", extra={"event": "heartbeat_silent"})
        except Exception:  # the edge: the next beat tries again
            log.exception("no heartbeat", extra={"event": "heartbeat_failed"})


def _said(problem: str, told: str) -> str:
    """Tell once that nobody hears the heartbeat, and once that somebody does again."""
    if problem and not told:
        log.warning("the heartbeat is not heard: %s", problem, extra={"event": "heartbeat_failed"})
    elif told and not problem:
        log.info("the heartbeat is heard again", extra={"event": "heartbeat_back"})
    return problem
