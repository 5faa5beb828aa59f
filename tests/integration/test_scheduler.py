"""Schedules fire once per tick: any number of schedulers, killed anywhere, with Redis or the ledger lost meanwhile."""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from etl import disk, points
from etl.app import App
from etl.config import reading
from etl.errors import Final, Unavailable
from etl.files import arrivals, paused
from etl.ledger import opening, queries, tables, ticks
from etl.ledger.rows import Tick
from etl.points import Point
from etl.queues import connection, enqueue, keys
from etl.queues.scheduling import Bell
from etl.services import catalogue, plans, scheduler
from etl.stages import clean
from tests.queue_helpers import wait_until
from tests.road import Road, query

#: a moment on the minute.
BEGIN = datetime(2026, 11, 18, 12, 0, tzinfo=UTC).timestamp()
MINUTE = 60
POINTS = (
    Point.SCHEDULE_CLAIM,
    Point.SCHEDULE_EFFECT,
    Point.SCHEDULE_DONE,
    Point.SCHEDULE_REGISTER,
)


class Clock:
    """A clock that several processes read: what a file says."""

    def __init__(self, root: Path, now: float = BEGIN) -> None:
        self.path = root / "now"
        self.path.write_text(str(now))

    def __call__(self) -> float:
        return float(self.path.read_text() or 0)

    def set(self, now: float) -> None:
        aside = self.path.with_suffix(".aside")
        aside.write_text(str(now))
        aside.rename(self.path)

    def pass_(self, seconds: float) -> None:
        self.set(self() + seconds)


def project(root: Path, schedule: Any = "* * * * *", **settings: Any) -> Road:
    (root / "in").mkdir(exist_ok=True)
    spec: dict[str, Any] = {
        "extract": {"sources": ["in/*.csv"]},
        "transform": {"read": "csv"},
        "load": {"locations": {"lake": {"kind": "files", "path": "lake"}}},
    }
    if schedule:
        spec["schedule"] = schedule
    return Road(root, spec, settings={"reserve": "1MB", "clean": "off", **settings})


@contextmanager
def opened(road: Road, clock: Clock) -> Iterator[scheduler.Scheduler]:
    config = reading.read(road.root / "config")
    with connection.connect(config.settings.redis, config.data) as client:
        app = App.open(config, enqueue.RedisAnnouncer(client, road.layout.data_id()))
        one = scheduler.Scheduler(app, Bell(client, app.data_id), clock)
        yield one
        one.close()


def requests(road: Road) -> list[str]:
    """Give the ticks for which an extract was asked, oldest first."""
    folder = road.data / "books" / "extract" / ".requests" / "working"
    names = [path for path in folder.iterdir() if not path.name.startswith(".")]
    return sorted(json.loads(path.read_text())["tick"] for path in names)


def rows(road: Road, schedule: str = "books") -> list[Tick]:
    ledger = opening.for_reading(reading.read(road.root / "config"), road.layout.data_id())
    try:
        with ledger.reading() as asking:
            found = asking.execute(
                tables.ticks.select().where(tables.ticks.c.schedule == schedule).order_by(tables.ticks.c.tick)
            )
            return [Tick(**row._mapping) for row in found]
    finally:
        ledger.close()


def runs(road: Road, schedule: str = "books") -> list[tuple[int, str, int]]:
    """Give minute, how, and how many were missed, of each tick that is done."""
    done = [one for one in rows(road, schedule) if one.state == ticks.DONE]
    return [(round((one.tick - BEGIN) / MINUTE), one.how, one.missed) for one in done]


# --- what fires, and what does not -------------------------------------------------------------------------


def test_a_tick_is_an_extract_request_and_a_schedule_fires_nothing_of_the_past(tmp_path: Path) -> None:
    road, clock = project(tmp_path), Clock(tmp_path)
    with opened(road, clock) as one:
        assert 0 < one.turn() <= scheduler.LOOK_EVERY
        assert requests(road) == []
        clock.pass_(MINUTE)
        one.turn()
        one.turn()
        assert requests(road) == ["2026-11-18 12:01 UTC"]
    assert runs(road) == [(1, "on time", 0)]
    assert [work.count for work in road.work()] == [0]  # type: ignore[union-attr]
    assert road.broken_promises() == []


def test_of_ticks_that_were_missed_the_newest_is_caught_up(tmp_path: Path) -> None:
    road, clock = project(tmp_path, "*/10 * * * *"), Clock(tmp_path)
    with opened(road, clock) as one:
        one.turn()
    clock.pass_(55 * MINUTE)
    for _ in range(2):
        with opened(road, clock) as one:
            one.turn()
    assert requests(road) == ["2026-11-18 12:50 UTC"]
    assert runs(road) == [(50, "caught up", 4)]


@pytest.mark.parametrize("jump", [10, -10])
def test_a_clock_that_jumps_fires_nothing_twice(tmp_path: Path, jump: int) -> None:
    road, clock = project(tmp_path, "*/5 * * * *"), Clock(tmp_path)
    with opened(road, clock) as one:
        for step in (0, 5, 5, jump, 5, 5, -jump, 5, 5, 5, 5):
            clock.pass_(step * MINUTE)
            one.turn()
            one.turn()
    found = requests(road)
    assert len(found) == len(set(found)) >= 6
    assert len(runs(road)) == len(found)


def test_a_changed_or_removed_schedule_counts_from_then_on(tmp_path: Path) -> None:
    road, clock = project(tmp_path, "*/5 * * * *"), Clock(tmp_path)
    for schedule in ("*/5 * * * *", "*/7 * * * *", "", "*/7 * * * *"):
        road.spec["schedule"] = schedule
        if not schedule:
            del road.spec["schedule"]
        road.write()
        with opened(road, clock) as one:
            one.turn()
            assert requests(road) == []
            assert one._bell.due(BEGIN + 3600) == (["books"] if schedule else [])
        clock.pass_(8 * MINUTE)


def test_a_held_pipeline_is_caught_up_once_it_is_mended(tmp_path: Path) -> None:
    road, clock = project(tmp_path, "*/5 * * * *"), Clock(tmp_path)
    pipeline = tmp_path / "config" / "pipelines" / "books.yaml"
    whole = pipeline.read_text()
    for text, expected in ((whole, 0), (whole + "nonsense: 1\n", 0), (whole, 1)):
        pipeline.write_text(text)
        with opened(road, clock) as one:
            one.turn()
        assert len(requests(road)) == expected
        clock.pass_(6 * MINUTE)


def test_several_schedules_of_one_pipeline_each_in_their_zone(tmp_path: Path) -> None:
    lines = [{"cron": "30 1 * * *", "zone": "Europe/London"}, {"cron": "0 2 * * mon", "zone": "Asia/Tokyo"}]
    road, clock = (
        project(tmp_path, lines),
        Clock(tmp_path, datetime(2026, 10, 24, 12, tzinfo=UTC).timestamp()),
    )
    with opened(road, clock) as one:
        for _ in range(48):
            one.turn()
            clock.pass_(3600)
    # clocks went back in that night: 01:30 was there twice
    assert requests(road) == ["2026-10-25 01:30 BST", "2026-10-26 01:30 GMT", "2026-10-26 02:00 JST"]


def test_what_is_in_the_way_of_one_schedule_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    road, clock = project(tmp_path, clean={"cron": "* * * * *"}), Clock(tmp_path)

    def refuse(*_: Any) -> None:
        raise Final("it is in the way")

    with opened(road, clock) as one:
        one.turn()
        clock.pass_(MINUTE)
        with monkeypatch.context() as patch:
            patch.setattr(arrivals, "request_once", refuse)
            one.turn()
        assert runs(road, "books") == [] and runs(road, "clean") == [(1, "on time", 0)]
        one.turn()
    assert runs(road, "books") == [(1, "on time", 0)]
    assert "books: what is due waits: it is in the way" in caplog.text


def test_ticks_of_long_ago_are_not_kept(tmp_path: Path) -> None:
    road, clock = project(tmp_path, "0 0 1 * *"), Clock(tmp_path)
    with opened(road, clock) as one:
        for _ in range(12):
            one.turn()
            clock.pass_(31 * 86_400)
    assert len(requests(road)) == 11
    assert 3 <= len(rows(road)) <= 5


def test_the_nightly_clean_is_asked_for(tmp_path: Path) -> None:
    road, clock = project(tmp_path, "", clean={"cron": "1 12 * * *"}), Clock(tmp_path)
    with opened(road, clock) as one:
        one.turn()
        assert clean.asked(road.layout) == ""
        clock.pass_(MINUTE)
        one.turn()
    assert clean.asked(road.layout)
    assert runs(road, "clean") == [(1, "on time", 0)]


def test_the_request_of_a_paused_pipeline_waits(tmp_path: Path) -> None:
    road, clock = project(tmp_path), Clock(tmp_path)
    paused.write(road.layout, paused.Mark(pipeline="books", who="anna", since=1.0))
    with opened(road, clock) as one:
        one.turn()
        clock.pass_(MINUTE)
        one.turn()
    road.work()
    assert len(requests(road)) == 1


def test_without_anything_to_run_by_the_clock_no_scheduler_is_started(tmp_path: Path) -> None:
    road, clock = project(tmp_path, ""), Clock(tmp_path)
    config = reading.read(road.root / "config")
    assert "scheduler" not in catalogue.wanted(config)
    road.settings["clean"] = "0 5 * * *"
    road.write()
    assert "scheduler" in catalogue.wanted(reading.read(road.root / "config"))
    with opened(road, clock) as one:
        one.turn()
    # it was there, and that it no longer is has to be written down
    assert "scheduler" in catalogue.wanted(config)


# --- what is in the way ------------------------------------------------------------------------------------


def test_an_entry_that_is_lost_comes_back_by_itself(tmp_path: Path) -> None:
    road, clock = project(tmp_path), Clock(tmp_path)
    config = reading.read(road.root / "config")
    with connection.connect(config.settings.redis, config.data) as client, opened(road, clock) as one:
        one.turn()
        client.flushall()
        clock.pass_(MINUTE)
        one.turn()  # an expected entry does not ring: all are put again
        assert len(requests(road)) == 1
        key = keys.schedules(road.layout.data_id())
        (entry,) = client.zrange(key, 0, -1, withscores=True)
        assert entry[1] == BEGIN + 2 * MINUTE
        client.delete(keys.job(entry[0].decode()))  # half of it is lost, or was spoilt by somebody
        client.hset(keys.job(entry[0].decode()), "data", "no job")
        clock.pass_(MINUTE)
        one.turn()
        assert len(requests(road)) == 2


def test_an_entry_holds_our_job_as_json_and_never_expires(tmp_path: Path) -> None:
    road, clock = project(tmp_path), Clock(tmp_path)
    config = reading.read(road.root / "config")
    with connection.connect(config.settings.redis, config.data) as client, opened(road, clock) as one:
        for _ in range(3):
            one.turn()
            clock.pass_(MINUTE)
        name = keys.schedule(road.layout.data_id(), "books")
        assert road.layout.data_id() in name
        assert client.zcard(keys.schedules(road.layout.data_id())) == 1
        assert client.ttl(keys.job(name)) == -1
        facts = client.hgetall(keys.job(name))
        assert b"result_ttl" not in facts
        assert facts[b"description"].startswith(b"pull books/scheduled~")


def test_while_the_ledger_is_away_ticks_wait_and_it_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    road, clock = project(tmp_path), Clock(tmp_path)

    def away(*_: Any) -> Any:
        raise Unavailable("the ledger does not answer")

    with opened(road, clock) as one:
        one.turn()
        one.close()
        with monkeypatch.context() as patch:
            patch.setattr(opening, "for_writing", away)
            for _ in range(3):
                clock.pass_(MINUTE)
                assert one.turn() == scheduler.AWAY
        assert requests(road) == []
        with caplog.at_level(logging.INFO):
            one.turn()
    assert runs(road) == [(3, "caught up", 2)] or runs(road) == [(3, "on time", 2)]
    assert caplog.text.count("what is due waits: the ledger does not answer") == 1
    assert caplog.text.count("goes on") == 1


def test_a_ledger_that_is_removed_is_made_anew_and_fires_nothing_again(tmp_path: Path) -> None:
    road, clock = project(tmp_path), Clock(tmp_path)
    with opened(road, clock) as one:
        one.turn()
        clock.pass_(MINUTE)
        one.turn()
        for path in (road.data / ".etl").glob("ledger.db*"):
            path.unlink()
        one.turn()
        assert len(requests(road)) == 1
        clock.pass_(MINUTE)
        one.turn()
        assert len(requests(road)) == 2


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("fault", ["ENOSPC", "EIO"])
def test_a_disk_that_refuses_delays_a_tick_and_doubles_nothing(
    tmp_path: Path, point: Point, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    road, clock = project(tmp_path), Clock(tmp_path)
    with opened(road, clock) as one:
        one.turn()
        clock.pass_(MINUTE)
        for when in ("before", "after"):
            points.crash_at, points.reached = f"{point}:{when}={fault}", {}
            try:
                one.turn()
            finally:
                points.crash_at = ""
        one.turn()
        clock.pass_(MINUTE)
        one.turn()
    assert len(requests(road)) == 2
    assert [minute for minute, _, _ in runs(road)] == [1, 2]
    assert os.strerror(getattr(errno, fault)) in caplog.text


# --- many schedulers, killed -------------------------------------------------------------------------------


def run_apart(road: Road, clock: Clock, crash_at: str = "") -> int:
    """Run a scheduler in a process of its own, killed at a point where one is named; give its process id."""
    pid = os.fork()
    if pid:
        wait_until(lambda: (road.root / f"ready-{pid}").exists() or _stat(pid) == "Z", "it has begun")
        return pid
    try:
        points.crash_at, points.reached = crash_at, {}
        config = reading.read(road.root / "config")
        # not as one who may end the server: a process that is stopped must hold up nobody
        with connection.open_url(connection.url(config.settings.redis, config.data)) as client:
            app = App.open(config, enqueue.RedisAnnouncer(client, road.layout.data_id()))
            one = scheduler.Scheduler(app, Bell(client, app.data_id), clock)
            while True:
                one.turn()
                (road.root / f"ready-{os.getpid()}").touch()
                time.sleep(0.01)
    finally:
        os._exit(1)


def test_three_schedulers_and_a_kill_at_each_point_give_one_run_per_tick(
    tmp_path: Path, database_url: str
) -> None:
    road, clock = project(tmp_path, ledger=database_url), Clock(tmp_path)
    config = reading.read(road.root / "config")
    kills = [f"{point}:{when}" for point in POINTS for when in ("before", "after")]
    with connection.connect(config.settings.redis, config.data), opened(road, clock) as one:
        one.turn()  # the schedule counts from now on
        one.close()
        pids = [run_apart(road, clock) for _ in range(3)]
        try:
            for number in range(1, 21):
                kill = kills.pop() if number % 2 and kills else ""
                if kill:  # the two others are held back, so that it is this one who gets the tick
                    _end(pids[0])
                    wait_until(lambda: _held_back(road, pids[1:]), "two are held back")
                clock.pass_(MINUTE)
                if kill:
                    armed = run_apart(road, clock, kill)
                    wait_until(lambda: _stat(armed) == "Z", f"it dies at {kill}")  # noqa: B023
                    assert os.waitstatus_to_exitcode(os.waitpid(armed, 0)[1]) == -signal.SIGKILL, kill
                    for pid in pids[1:]:
                        os.kill(pid, signal.SIGCONT)
                    pids[0] = run_apart(road, clock)
                wait_until(
                    lambda: len(runs(road)) == number,  # noqa: B023 - asked before the next number
                    f"tick {number} is done after {kill or 'no kill'}",
                )
        finally:
            for pid in pids:
                _end(pid)
    assert not kills
    assert len(requests(road)) == len(set(requests(road))) == 20
    assert [minute for minute, _, _ in runs(road)] == list(range(1, 21))
    assert sum(missed for _, _, missed in runs(road)) == 0


def _end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _stat(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _held_back(road: Road, pids: Sequence[int]) -> bool:
    """Stop processes, unless one of them has a schedule in its hands."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: all(_stat(pid) == "T" for pid in pids), "they are stopped")
    lock = disk.lock_path(plans.folder(road.data) / "books.lock")
    if lock is not None:
        lock.release()
        return True
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    return False


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "point", [Point.NOTE_REQUEST, Point.NOTE_SOURCE, Point.ARRIVE, Point.CLEAR_OUTBOX, Point.CLEAN_ASK]
)
def test_killed_while_it_asks_for_a_tick_that_is_asked_for_once(
    tmp_path: Path, point: Point, when: str
) -> None:
    asks_for_clean = point is Point.CLEAN_ASK
    settings = {"clean": "* * * * *"} if asks_for_clean else {}
    road, clock = project(tmp_path, "" if asks_for_clean else "* * * * *", **settings), Clock(tmp_path)
    config = reading.read(road.root / "config")
    with connection.connect(config.settings.redis, config.data), opened(road, clock) as one:
        one.turn()
        clock.pass_(MINUTE)
        pid = run_apart(road, clock, f"{point}:{when}")
        wait_until(lambda: _stat(pid) == "Z", "it dies")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        clock.pass_(1)
        one.turn()
        one.turn()
    assert [minute for minute, _, _ in runs(road, "clean" if asks_for_clean else "books")] == [1]
    assert len(requests(road)) == (not asks_for_clean)
    assert bool(clean.asked(road.layout)) == asks_for_clean
    road.work()
    assert road.broken_promises() == []


def test_of_many_who_claim_one_tick_at_once_one_gets_it(tmp_path: Path, database_url: str) -> None:
    road = project(tmp_path, ledger=database_url)
    config, data_id = reading.read(road.root / "config"), road.layout.data_id()
    opening.for_writing(config, data_id).close()
    go = time.time() + 0.3
    children = []
    for _ in range(6):
        if (pid := os.fork()) == 0:
            won = 0
            try:
                ledger = opening.for_writing(config, data_id)
                time.sleep(max(0.0, go - time.time()))
                for number in range(10):
                    tick = Tick(
                        schedule="books", tick=number, plan="p", state=ticks.CLAIMED, owner=str(os.getpid())
                    )
                    with ledger.writing() as writing:
                        won += ticks.claim(writing, tick)
            finally:
                os._exit(won)
        children.append(pid)
    assert sum(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children) == 10


# --- an older ledger ---------------------------------------------------------------------------------------


def test_a_ledger_of_version_1_gets_its_table_and_keeps_what_it_has(
    tmp_path: Path, database_url: str
) -> None:
    road = project(tmp_path, ledger=database_url)
    config, data_id = reading.read(road.root / "config"), road.layout.data_id()
    ledger = opening.for_writing(config, data_id)
    with ledger.writing() as writing:
        tables.ticks.drop(writing)
        writing.execute(tables.about.update().where(tables.about.c.key == "version").values(value="1"))
        writing.execute(tables.about.insert().values(key="position", value="17-0"))
    ledger.close()
    with pytest.raises(Unavailable, match="has version 1, this program wants"):
        opening.for_reading(config, data_id)
    ledger = opening.for_writing(config, data_id)
    with ledger.reading() as asking:
        assert queries.position(asking) == "17-0"
        assert ticks.last(asking, "books", 1.0) is None
    ledger.close()
    assert query(database_url, "SELECT value FROM etl_about WHERE key = 'version'") == [
        (str(tables.VERSION),)
    ]


def test_redis_that_goes_away_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    road, clock = project(tmp_path), Clock(tmp_path)
    app = App.open(reading.read(road.root / "config"), enqueue.InlineAnnouncer())
    nobody = connection.open_socket(tmp_path / "none")
    one = scheduler.Scheduler(app, Bell(nobody, "k3f9"), clock)
    assert one.turn() == one.turn() == scheduler.AWAY
    one.close()
    assert caplog.text.count("what is due waits: Redis does not tell what is due") == 1
