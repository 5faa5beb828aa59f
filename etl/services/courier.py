"""The courier: takes what is spooled to whom it is meant for, and writes down what came of it.

1. Acts only on a verdict that was recorded; what was spooled for one that never was is dropped. 2. What came of it is
in the verdict note before it leaves the spool, so that it may happen twice after a crash and is never forgotten.
3. Whoever does not answer is tried again later and later, for a day; nobody else waits for that.
Called as a service, and once at the end of `etl run`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from etl import disk
from etl.app import App
from etl.config.reading import Config
from etl.errors import Final
from etl.files import spool, verdicts
from etl.files.verdicts import Followed
from etl.notify import answer
from etl.notify.answer import Answer
from etl.queues.enqueue import InlineAnnouncer
from etl.services.following import Follower

log = logging.getLogger(__name__)

#: seconds between two looks at the spool.
LOOK_EVERY = 0.5
#: seconds before the second try, which double, up to these; tries and seconds after which nothing more is tried.
FIRST, MOST = 10.0, 600.0
TRIES, GIVE_UP = 20, 86_400.0
#: seconds that one turn takes at most, give or take one try.
TURN = 5.0


@contextmanager
def open(config: Config) -> Iterator[Courier]:  # noqa: A001
    """Open everything a courier needs. It makes no job: the dropbox hears of what a hook starts."""
    app = App.open(config, InlineAnnouncer())
    yield Courier(app, Follower(app))


class Courier:
    """A service; see `service.Service`."""

    name = "courier"

    def __init__(self, app: App, follower: Follower, clock: Callable[[], float] = time.time) -> None:
        self._app = app
        self._follower = follower
        self._clock = clock
        #: who did not answer, and until when others wait that go there too.
        self._silent: dict[str, float] = {}

    def turn(self) -> float:
        """Take away what is due; give the seconds until the next look."""
        until = time.monotonic() + TURN
        for path in spool.waiting(self._app.layout):
            self.deliver(path)
            if time.monotonic() > until:
                return 0.0
        return LOOK_EVERY

    def close(self) -> None:
        """Close what was opened."""
        self._follower.close()

    def deliver(self, path: Path) -> None:
        """Try one thing that is spooled, if it is due and nobody else has it."""
        taken = spool.take(path)
        if taken is None:
            return
        item, lock = taken
        with lock:
            now = self._clock()
            if item.not_before > now or self._silent.get(self._follower.where(item), 0.0) > now:
                return
            if item.what == spool.NOTICE:
                self._ended(path, item, self._follower.notice(item))
            else:
                self._follow(path, item, lock)

    def _follow(self, path: Path, item: spool.Item, lock: disk.Lock) -> None:
        try:
            # whoever judges spools and records under this lock: what is not there now was given up
            with verdicts.lock(self._app.layout, item.pipeline, item.file_id):
                told = verdicts.read(self._app.layout, item.pipeline, item.file_id)
                record = told.numbered(item.number)
                known = told.followed.get(_key(item))
                over = known is not None and known.state != answer.WAITING
                if record is None or record.verdict != item.payload.get("verdict") or over:
                    if disk.same_file(path, lock.descriptor):
                        spool.remove(path)
                    return
        except Final as error:
            log.warning("%s", error, extra={"event": "not_followed"})
            return
        self._ended(path, item, self._follower.follow(item, record))

    def _ended(self, path: Path, item: spool.Item, came: Answer) -> None:
        """Write down what came of it; then it leaves the spool, or waits there for its next try."""
        now, tries = self._clock(), item.tries + 1
        if came.state == answer.WAITING and (tries >= TRIES or now - item.at > GIVE_UP):
            came = replace(came, state=answer.FAILED, said=f"given up after {tries} tries: {came.said}")
        self._log(item, came)
        if item.what != spool.NOTICE:
            followed = Followed(state=came.state, tries=tries, said=came.said, at=now, target=came.target)
            verdicts.follow(self._app.layout, item.pipeline, item.file_id, _key(item), followed)
        if came.state != answer.WAITING:
            spool.remove(path)
            return
        pause = min(MOST, FIRST * 2 ** (tries - 1))
        self._silent[self._follower.where(item)] = now + FIRST
        spool.put(self._app.layout, replace(item, tries=tries, not_before=now + pause))

    def _log(self, item: spool.Item, came: Answer) -> None:
        about = f"{item.pipeline}/{item.file_id}: {item.what}" if item.file_id else item.what
        level = logging.INFO if came.state == answer.TOLD else logging.WARNING
        log.log(level, "%s: %s: %s", about, came.state, came.said, extra={"event": f"followed_{came.state}"})


def _key(item: spool.Item) -> str:
    return f"{item.number}/{item.what}"
