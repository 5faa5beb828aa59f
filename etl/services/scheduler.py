"""The scheduler: has what is to run by the clock asked for at its moment, once, however many schedulers there are.

1. Each plan has an entry in Redis that rings when it is due; a lost one is put again. 2. A tick is claimed in the
ledger, asked for, and marked as done there; a claim whose owner died is carried on. 3. Of several ticks that were
missed the newest is made up for. Pulls and cleans nothing itself; any number may run (P20).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from etl import disk, points
from etl.app import App
from etl.config.reading import Config
from etl.errors import EtlError, Unavailable
from etl.files import arrivals, names, room
from etl.files import layout as layouts
from etl.ledger import opening, ticks
from etl.ledger.opening import Ledger
from etl.ledger.queries import Connection
from etl.ledger.rows import Tick
from etl.model import Place, Stage, Waiting
from etl.points import Point
from etl.queues import connection, enqueue
from etl.queues.queue import Work
from etl.queues.scheduling import Bell, Entry
from etl.services import plans, records
from etl.services.plans import Plan
from etl.stages import clean

log = logging.getLogger(__name__)

#: seconds between two times that all entries are put again, and at most between two looks at what is due.
REGISTER_EVERY, LOOK_EVERY = 30.0, 5.0
#: seconds until what was in the way is tried again.
AWAY = 5.0
#: seconds after its moment up to which a tick counts as on time.
ON_TIME_WITHIN = 60.0
ON_TIME, CAUGHT_UP = "on time", "caught up"


@contextmanager
def open(config: Config) -> Iterator[Scheduler]:  # noqa: A001
    """Open everything a scheduler needs, for as long as the context lasts; the ledger itself is opened in a turn."""
    data_id = layouts.Layout(config.data).data_id()
    with connection.connect(config.settings.redis, config.data) as client:
        app = App.open(config, enqueue.RedisAnnouncer(client, data_id))
        yield Scheduler(app, Bell(client, data_id))


class Scheduler:
    """A service; see `service.Service`."""

    name = "scheduler"

    def __init__(self, app: App, bell: Bell, clock: Callable[[], float] = time.time) -> None:
        self._app = app
        self._bell = bell
        self._clock = clock
        self._plans = {plan.name: plan for plan in plans.of(app.config)}
        disk.make_folder(plans.folder(app.config.data))
        self._ledger: Ledger | None = None
        #: when each plan is next due, as far as we know, and when all entries are put again.
        self._due: dict[str, int] = {}
        self._register_at = 0.0
        #: what is in the way, as it was told, by plan; "" stands for all of them.
        self._told: dict[str, str] = {}

    def turn(self) -> float:
        """Have asked for what is due; give the seconds until the next turn is wanted."""
        try:
            ledger = self._opened()
            self._ring(ledger, self._clock())
        except Unavailable as error:
            self._leave()
            self._tell("", f"{error}")
            return AWAY
        self._tell("", "")
        soonest = min(self._due.values(), default=0) - self._clock()
        return min(LOOK_EVERY, soonest) if soonest > 0 else LOOK_EVERY

    def close(self) -> None:
        """Close the ledger; whoever comes next carries on what is not done."""
        self._leave()

    def _ring(self, ledger: Ledger, now: float) -> None:
        """Fire what is due; put the entries first where it is time, or where one that should ring does not."""
        due = self._bell.due(now)
        silent = {name for name, tick in self._due.items() if tick <= now} - {*due}
        if silent or time.monotonic() >= self._register_at:
            self._register(ledger, now)
            due = self._bell.due(now)
        for name in due:
            if name in self._plans:
                self._try(ledger, self._plans[name], now)

    def _try(self, ledger: Ledger, plan: Plan, now: float) -> None:
        """Fire what is due; what is in the way of one plan stops no other, and is tried again."""
        try:
            self._fire(ledger, plan, now)
        except Unavailable:
            raise  # it is in the way of all of them
        except (EtlError, OSError) as error:
            self._tell(plan.name, f"{error}")
        else:
            self._tell(plan.name, "")

    # --- what stands in the ledger and in Redis

    def _opened(self) -> Ledger:
        if self._ledger is not None and not self._ledger.is_there():
            self._leave()
        if self._ledger is None:
            self._ledger = opening.for_writing(self._app.config, self._app.data_id)
            self._register_at = 0.0
        return self._ledger

    def _leave(self) -> None:
        if self._ledger is not None:
            self._ledger.close()
            self._ledger = None

    def _tell(self, name: str, said: str) -> None:
        """Tell what is in the way once, and once that it is over; of one plan, or of all."""
        before, whose = self._told.get(name, ""), f"{name}: " if name else ""
        if said and said != before:
            log.warning("%swhat is due waits: %s", whose, said, extra={"event": "schedule_waits"})
        elif before and not said:
            log.info("%sgoes on; what was missed is caught up", whose, extra={"event": "schedule_back"})
        self._told[name] = said

    def _register(self, ledger: Ledger, now: float) -> None:
        """Have one entry for each plan, at the first of its ticks that is not done; a new plan counts from now on."""
        with ledger.reading() as asking:
            gone = [
                name for name in ticks.open_schedules(asking, now, self._plans) if not self._is_held(name)
            ]
            new = [plan for plan in self._plans.values() if not self._counts(asking, plan, now)]
        if gone or new:
            with ledger.writing() as writing:
                for name in gone:
                    self._mark(writing, name, "", ticks.ENDED, now)
                for plan in new:
                    self._mark(writing, plan.name, plan.text, ticks.BEGUN, now)
        with ledger.reading() as asking:
            entries = [self._entry(asking, plan, now) for plan in self._plans.values()]
        self._bell.put(entries)
        self._due = {entry.name: entry.due for entry in entries}
        self._register_at = time.monotonic() + REGISTER_EVERY

    def _is_held(self, name: str) -> bool:
        """Tell whether a plan is only out because its pipeline's file cannot be followed just now."""
        return plans.pipeline_of(name) in self._app.config.broken

    @staticmethod
    def _counts(asking: Connection, plan: Plan, now: float) -> bool:
        last = ticks.last(asking, plan.name, now)
        return last is not None and last.state != ticks.ENDED and last.plan == plan.text

    @staticmethod
    def _mark(writing: Connection, name: str, plan: str, state: str, now: float) -> None:
        ticks.mark(writing, Tick(schedule=name, tick=int(now), plan=plan, state=state, claimed=now))
        what = f"begins to run by the clock: {plan}" if plan else "runs by the clock no longer"
        log.info("%s %s", name, what, extra={"event": f"schedule_{state}"})

    def _entry(self, asking: Connection, plan: Plan, now: float) -> Entry:
        open_one, last = ticks.unfinished(asking, plan.name), ticks.last(asking, plan.name, now)
        due = open_one.tick if open_one else plan.next(last.tick if last else now)
        return Entry(name=plan.name, due=due, work=self._work(plan, due))

    # --- a tick: claim, ask, done

    def _fire(self, ledger: Ledger, plan: Plan, now: float) -> None:
        # alone, where locks are to be had; where they are not, the claim still gives one run
        lock = disk.lock_path(plans.folder(self._app.config.data) / f"{plan.name}.lock")
        if lock is None:
            return
        with lock:
            tick = self._claimed(ledger, plan, now)
            if tick is not None:
                with points.effect(Point.SCHEDULE_EFFECT):
                    self._ask(plan, tick.tick)
                with points.effect(Point.SCHEDULE_DONE), ledger.writing() as writing:
                    ticks.finish(writing, tick, self._clock())
            with ledger.reading() as asking:
                entry = self._entry(asking, plan, now)
            self._bell.move(entry)
            self._due[plan.name] = entry.due

    def _claimed(self, ledger: Ledger, plan: Plan, now: float) -> Tick | None:
        """Claim the newest tick that is due, or give the one whose owner died over it; None: others did it all."""
        with points.effect(Point.SCHEDULE_CLAIM), ledger.writing() as writing:
            if left := ticks.unfinished(writing, plan.name):
                self._say(plan, left, "is carried on")
                return left
            last = ticks.last(writing, plan.name, now)
            newest = plan.newest(now, last.tick) if last else None
            if last is None or newest is None:
                return None
            tick = Tick(
                schedule=plan.name,
                tick=newest,
                plan=plan.text,
                state=ticks.CLAIMED,
                how=ON_TIME if now - newest <= ON_TIME_WITHIN else CAUGHT_UP,
                missed=plan.between(last.tick, newest),
                owner=f"{records.host()}:{os.getpid()}",
                claimed=now,
            )
            if not ticks.claim(writing, tick):
                return None
        self._say(plan, tick, tick.how)
        return tick

    @staticmethod
    def _say(plan: Plan, tick: Tick, how: str) -> None:
        missed = f"; {tick.missed} before it were missed" if tick.missed else ""
        log.info(
            "%s: what is due at %s is asked for (%s%s)",
            *(plan.name, plan.shown(tick.tick), how, missed),
            extra={"event": "schedule_fired", "schedule": plan.name, "tick": tick.tick},
        )

    def _ask(self, plan: Plan, tick: int) -> None:
        """Have done what a tick is for; asked again for the same tick, it is there once."""
        if not plan.pipeline:
            clean.ask(self._app)
            return
        room.require(self._app.layout, self._app.config.settings.reserve)
        given, file_id = self._request(plan, tick)
        wish = {"schedule": plan.name, "tick": plan.shown(tick)}
        waiting = arrivals.request_once(self._app.layout, plan.pipeline, wish, given, file_id)
        if waiting is not None:
            self._app.announce([waiting])

    @staticmethod
    def _request(plan: Plan, tick: int) -> tuple[str, str]:
        """Give name and id of the request of a tick: always the same for one tick."""
        key = f"schedule/{plan.name}/{tick}"
        return "scheduled.json", names.derived_id(plan.pipeline, tick * 1000, key)

    def _work(self, plan: Plan, tick: int) -> Work:
        """Give the job that will be wanted at a tick, for people who look into Redis."""
        if not plan.pipeline:
            return clean.work(self._app)
        place = Place(pipeline=plan.pipeline, stage=Stage.EXTRACT, location=layouts.REQUESTS)
        name = str(names.christen(*self._request(plan, tick)))
        return self._app.work(Waiting(place=place, name=name))
