"""The courier: sends what is spooled, tries again what did not go through, and records what became of each.

1. What follows a verdict is done only once that verdict is written. 2. One courier is at a thing at a time. 3. What
became of it is written into the verdict note first, then the spooled file goes: told twice is possible after a crash,
under one idempotency key; forgotten is not. 4. Between two of them it has the watch look for failures. Judges nothing,
and nobody waits for it (P22).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from etl import disk
from etl.app import App
from etl.config.reading import Config
from etl.errors import EtlError, Final
from etl.files import layout as layouts
from etl.files import spool, verdicts
from etl.files.verdicts import Followed, Record
from etl.notify import answer
from etl.notify.answer import Answer
from etl.queues import connection, enqueue, updates
from etl.services import calendar, noticing, service
from etl.stages import following, judging, telling
from etl.stages.following import Follower

log = logging.getLogger(__name__)

#: seconds between two looks at the spool.
EVERY = 0.5
#: seconds until the second try, at most between two tries, and at most for which a host that is away is left alone.
FIRST, MOST, AWAY = 10.0, 600.0, 120.0
#: tries, and seconds since the verdict, after which it is given up.
TRIES, DAY = 20, 86_400.0
#: seconds for which a notice is tried, however often: a mail server may be away over a long week-end.
WEEK = 7 * DAY
#: seconds until what is spooled of a verdict that is not written yet is looked at again.
UNWRITTEN = 1.0


@contextmanager
def open(config: Config) -> Iterator[Courier]:  # noqa: A001
    """Open everything a courier needs, for as long as the context lasts."""
    data_id = layouts.Layout(config.data).data_id()
    with connection.connect(config.settings.redis, config.data) as client:
        app = App.open(config, enqueue.RedisAnnouncer(client, data_id))
        app.tell = updates.Teller(client, data_id)
        yield Courier(app)


class Courier:
    """A service; see `service.Service`."""

    name = "courier"

    def __init__(
        self, app: App, follower: Follower | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._app = app
        self._posts = following.poster(app)
        self._follower = follower or Follower(app, self._posts)
        self._clock = clock
        self._calendar = calendar.Calendar(app, clock)
        self._watch = noticing.Watch(app, clock)
        #: by file in the spool: when it is due; by target: until when it is left alone, and for how long.
        self._later: dict[str, float] = {}
        self._away: dict[str, tuple[float, float]] = {}
        #: by file in the spool: what came of it, until that is recorded.
        self._unrecorded: dict[str, Followed] = {}

    def turn(self) -> float:
        """Send what is due; give the seconds until the next turn is wanted."""
        self._calendar.turn()
        self._watch.turn()
        paths = list(spool.waiting(self._app.layout))
        there = {path.name for path in paths}
        self._later = {name: due for name, due in self._later.items() if name in there}
        for path in paths:
            if service.asked():
                break
            if self._later.get(path.name, 0.0) <= self._clock():
                self._send_alone(path)
                self._watch.turn()  # also while somebody is slow to take what he is sent
        return EVERY

    def _send_alone(self, path: Path) -> None:
        """Try one spooled file; what is wrong with it, or with the disk, keeps no other waiting."""
        try:
            self.send(path)
        except (EtlError, OSError) as error:
            log.warning("%s: %s", self.name, error, extra={"event": "follow_put_off"})
            damaged = isinstance(error, Final)
            self._later[path.name] = self._clock() + (MOST if damaged else FIRST)

    def close(self) -> None:
        """Close what was opened."""
        self._watch.close()
        self._posts.close()

    def send(self, path: Path) -> Followed | None:
        """Try one spooled file, if it is due and nobody else is at it; None when nothing was tried."""
        taken = spool.take(path)
        if taken is None:
            return None
        item, lock = taken
        with lock:
            if (known := self._unrecorded.get(path.name)) is not None:
                return self._recorded(path, item, known)
            if item.not_before > self._clock():
                self._later[path.name] = item.not_before
                return None
            target = self._follower.target(item)
            if self._away.get(target, (0.0, 0.0))[0] > self._clock():
                return self._left_alone(path, item, target)
            if item.is_notice:
                return self._ended(path, item, self._follower.notice(item))
            record = self._due(path, item, lock)
            return self._ended(path, item, self._follower.follow(item, record)) if record else None

    def _due(self, path: Path, item: spool.Item, lock: disk.Lock) -> Record | None:
        """Give the verdict that is to be followed; None when it is not written yet, or was followed already."""
        try:
            told = verdicts.read(self._app.layout, item.pipeline, item.file_id)
        except Final as error:
            log.warning("%s", error, extra={"event": "verdict_unreadable"})
            self._later[path.name] = self._clock() + MOST
            return None
        record, before = told.numbered(item.number), told.followed.get(_key(item))
        if record is None:
            self._later[path.name] = self._clock() + UNWRITTEN
            return None
        if record.verdict != item.payload.get("verdict") or (before and before.state != answer.WAITING):
            # another verdict was written in its place, or whoever told it died before the file was gone
            if disk.same_file(
                path, lock.descriptor
            ):  # who judges may just have spooled what follows that verdict
                spool.remove(path)
            return None
        return record

    def _left_alone(self, path: Path, item: spool.Item, target: str) -> Followed | None:
        """Wait with the others for a host that is away, but not for ever."""
        if not self._is_over(item, 0):
            self._later[path.name] = self._away[target][0]
            return None
        given_up = Answer(state=answer.FAILED, said=f"given up: {target} is away for too long", target=target)
        return self._ended(path, item, given_up)

    # --- what became of it

    def _ended(self, path: Path, item: spool.Item, said: Answer) -> Followed:
        tries, now = item.tries + 1, self._clock()
        if said.state == answer.WAITING and self._is_over(item, tries):
            said = replace(said, state=answer.FAILED, said=f"given up after {tries} tries: {said.said}")
        followed = Followed(state=said.state, tries=tries, said=said.said, at=now, target=said.target)
        if said.state == answer.WAITING:
            self._put_off(path, replace(item, tries=tries), said.target)
            self._record(item, followed)
            return followed
        self._away.pop(said.target, None)
        return self._recorded(path, item, followed)

    def _recorded(self, path: Path, item: spool.Item, followed: Followed) -> Followed:
        """Record the end of one thing; where the disk refuses that, it is remembered and not told once more."""
        self._unrecorded[path.name] = followed
        self._record(item, followed)
        spool.remove(path)
        del self._unrecorded[path.name]
        return followed

    def _is_over(self, item: spool.Item, tries: int) -> bool:
        """Tell what was tried often or long enough."""
        age = self._clock() - item.at
        return age > WEEK if item.is_notice else tries >= TRIES or age > DAY

    def _put_off(self, path: Path, item: spool.Item, target: str) -> None:
        due = self._clock() + min(MOST, FIRST * 2 ** min(item.tries - 1, 30))
        if target:  # the others of that host would wait for its silence one after the other
            pause = min(AWAY, max(FIRST, 2 * self._away.get(target, (0.0, 0.0))[1]))
            self._away[target] = (self._clock() + pause, pause)
        self._later[path.name] = due
        spool.put(self._app.layout, replace(item, not_before=due))

    def _record(self, item: spool.Item, followed: Followed) -> None:
        level = logging.INFO if followed.state == answer.TOLD else logging.WARNING
        about = f"{item.pipeline}/{item.file_id} verdict {item.number}" if item.number else "a notice"
        log.log(
            level,
            "%s: %s %s: %s",
            *(about, item.what, followed.state, followed.said),
            extra={"event": f"follow_{followed.state}"},
        )
        if item.is_notice:
            return
        verdicts.follow(self._app.layout, item.pipeline, item.file_id, _key(item), followed)
        telling.followed(self._app, item.pipeline, item.file_id)


def _key(item: spool.Item) -> str:
    return f"{item.number}/{item.what}"


def at_once(app: App, pipeline: str, ids: Iterable[str]) -> list[tuple[str, Followed]]:
    """Judge deliveries and try once what follows; give what and how. What did not go through stays spooled."""
    found: list[tuple[str, Followed]] = []
    courier: Courier | None = None
    for file_id in sorted(ids):
        try:
            judging.judge(app, pipeline, file_id)
            paths = spool.of(app.layout, pipeline, file_id)
            for path in paths:
                courier = courier or Courier(app)
                if followed := courier.send(path):
                    found.append((path.name.split("~")[-1].removesuffix(".json"), followed))
        except (EtlError, OSError) as error:
            failed = Followed(state=answer.WAITING, said=str(error))
            found.append((f"the verdict of {file_id}", failed))
    if courier is not None:
        courier.close()
    return found
