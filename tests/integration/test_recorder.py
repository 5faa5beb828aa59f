"""The recorder brings the ledger in step with the folders, whatever it missed; the folder wins (P18)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
import sqlalchemy as sa

from etl import disk
from etl.config import reading
from etl.files import names, spool, verdicts
from etl.ledger import opening, queries, tables
from etl.ledger.rows import spelled
from etl.model import Place, Status
from etl.queues import connection, keys
from etl.services import courier, recorder
from tests.road import Road

Lying = set[tuple[str, str, str]]


@pytest.fixture
def road(tmp_path: Path) -> Road:
    road = Road(
        tmp_path,
        {
            "transform": {
                "read": "csv",
                "units_per_file": 2,
                "schema": {"properties": {"id": {"type": "integer"}}},
            },
            "load": {"locations": {"lake": {"kind": "files", "path": "lake"}}},
            "on_success": [{"notice": "all there"}],
            "on_failure": [{"notice": "look at it"}],
        },
        settings={"reserve": "1MB"},
    )
    road.drop("good.csv", "id\n1\n2\n3\n")
    road.drop("bad.csv", "id\n1\nx\n")
    road.drop("worse.csv", "id\nx\n")
    road.work()
    return road


@contextmanager
def recording(road: Road) -> Iterator[Callable[..., None]]:
    """Open a recorder, and give what lets it have its turns until it has nothing left to do."""
    with recorder.open(reading.read(road.root / "config")) as one:

        def turns(until: Callable[[], bool] = lambda: in_step(road)) -> None:
            for _ in range(40):
                one._next_compare = 0.0
                one.turn()
                if until():
                    return
            raise AssertionError(f"{folders(road) ^ ledger(road)}")

        try:
            yield turns
        finally:
            one.close()


def folders(road: Road) -> Lying:
    return {
        (str(place), str(status), spelled(path.name))
        for place in road.places()
        for status in Status
        for path in road.layout.status(place, status).iterdir()
        if not names.never_work(path.name)
    }


def asked(road: Road) -> opening.Ledger:
    return opening.for_reading(reading.read(road.root / "config"), road.layout.data_id())


def ledger(road: Road) -> Lying:
    one = asked(road)
    try:
        with one.reading() as asking:
            rows = asking.execute(sa.select(tables.files)).all()
    finally:
        one.close()
    return {(str(_place(row)), row.status, row.name) for row in rows}


def _place(row: sa.Row[tuple[object, ...]]) -> Place:
    return Place(pipeline=row.pipeline, stage=row.stage, location=row.location)


def standing(road: Road) -> dict[str, str]:
    """Give the verdict of each delivery that the ledger takes for judged."""
    one = asked(road)
    try:
        with one.reading() as asking:
            rows = asking.execute(sa.select(tables.deliveries).where(tables.deliveries.c.judged)).all()
    finally:
        one.close()
    return {row.given: row.verdict for row in rows}


def in_step(road: Road) -> bool:
    return folders(road) == ledger(road) and len(standing(road)) == len(road.ids())


VERDICTS = {"good.csv": "resolved", "bad.csv": "partial", "worse.csv": "failed"}


def records(road: Road) -> dict[str, int]:
    return {one: len(verdicts.read(road.layout, "books", one).records) for one in road.ids()}


def test_a_tree_that_nobody_recorded_is_recorded_and_judged(road: Road) -> None:
    with recording(road) as turns:
        turns()
    assert standing(road) == VERDICTS
    assert set(records(road).values()) == {1}
    assert sorted(path.name.rpartition("~")[2] for path in spool.waiting(road.layout)) == [
        "on_failure-1.json",
        "on_failure-1.json",
        "on_success-1.json",
    ]


def test_a_ledger_that_was_deleted_is_made_anew_and_nothing_follows_twice(road: Road) -> None:
    with recording(road) as turns:
        turns()
    for path in spool.waiting(road.layout):
        path.unlink()
    for path in (road.data / ".etl").glob("ledger.db*"):
        path.unlink()

    with recording(road) as turns:
        turns()

    assert standing(road) == VERDICTS
    assert set(records(road).values()) == {1}
    assert list(spool.waiting(road.layout)) == []


def test_deleted_while_it_is_open_it_is_made_anew_too(road: Road) -> None:
    with recording(road) as turns:
        turns()
        for path in (road.data / ".etl").glob("ledger.db*"):
            path.unlink()
        turns(lambda: (road.data / ".etl" / "ledger.db").exists() and in_step(road))
    assert standing(road) == VERDICTS


def test_what_a_person_moves_is_seen(road: Road) -> None:
    with recording(road) as turns:
        turns()
        path = next(one for one in road.files("transform", "failed") if one.name.startswith("worse~"))
        os.rename(path, road.folder("transform", "working") / path.name)
        turns(lambda: folders(road) == ledger(road))
        path = next(one for one in road.files("load", "resolved"))
        path.unlink()
        turns(lambda: folders(road) == ledger(road))
        road.work()
        turns()
    assert standing(road) == VERDICTS


def test_what_followed_a_verdict_comes_into_the_ledger(road: Road) -> None:
    def followed() -> list[str]:
        one = asked(road)
        try:
            with one.reading() as asking:
                return list(asking.execute(sa.select(tables.followups.c.state)).scalars())
        finally:
            one.close()

    with recording(road) as turns:
        turns()
        assert followed() == []
        with courier.open(reading.read(road.root / "config")) as sending:
            sending.turn()
        turns(lambda: followed() == ["told"] * 3)


def test_a_delivery_that_waits_is_looked_at_once(road: Road) -> None:
    def touched() -> list[str]:
        one = asked(road)
        try:
            with one.reading() as asking:
                return [delivery.given for delivery in queries.touched(asking)]
        finally:
            one.close()

    with recording(road) as turns:
        turns()
        path = next(one for one in road.files("transform", "failed") if one.name.startswith("worse~"))
        road.move_back(path)
        turns(lambda: folders(road) == ledger(road) and touched() == [])
        assert standing(road) == {**VERDICTS, "worse.csv": "working"}
        assert touched() == []
        road.work()
        turns()
    assert standing(road) == VERDICTS


def test_a_pipeline_that_is_gone_leaves_nothing_to_be_judged(
    road: Road, caplog: pytest.LogCaptureFixture
) -> None:
    with recording(road) as turns:
        turns()
    (road.root / "config" / "pipelines" / "books.yaml").rename(road.root / "books.yaml")
    with recording(road) as turns:
        turns(lambda: ledger(road) == set() and len(standing(road)) == 3)
    assert "not judged" not in caplog.text
    (road.root / "books.yaml").rename(road.root / "config" / "pipelines" / "books.yaml")
    with recording(road) as turns:
        turns()
    assert standing(road) == VERDICTS
    assert set(records(road).values()) == {1}


def test_an_emptied_redis_changes_nothing(road: Road) -> None:
    with recording(road) as turns:
        turns()
        config = reading.read(road.root / "config")
        with connection.connect(config.settings.redis, config.data) as client:
            client.xadd(keys.updates(road.layout.data_id()), {"u": b"not an update"})
            turns()
            client.flushall()
        road.drop("more.csv", "id\n7\n")
        road.work()
        turns()
    assert standing(road) == {**VERDICTS, "more.csv": "resolved"}


def test_while_one_recorder_writes_another_stands_by(road: Road) -> None:
    with (
        disk.wait_for_lock(road.data / ".etl" / "recorder.lock"),
        recorder.open(reading.read(road.root / "config")) as one,
    ):
        assert one.turn() == recorder.STAND_BY
        assert not (road.data / ".etl" / "ledger.db").exists()
        one.close()
    with recording(road) as turns:
        turns()
    assert standing(road) == VERDICTS


def test_a_ledger_of_a_newer_version_is_left_alone_and_said_so(
    road: Road, caplog: pytest.LogCaptureFixture
) -> None:
    with recording(road) as turns:
        turns()
    one = opening.for_writing(reading.read(road.root / "config"), road.layout.data_id())
    with one.writing() as writing:
        writing.execute(sa.update(tables.about).where(tables.about.c.key == "version").values(value="99"))
    one.close()
    with recorder.open(reading.read(road.root / "config")) as late:
        assert late.turn() == recorder.AWAY
        assert late.turn() == recorder.AWAY
        late.close()
    said = [one for one in caplog.records if "newer version" in one.message]
    assert len(said) == 1


def test_a_ledger_that_is_away_is_told_once_and_caught_up_when_it_is_back(
    road: Road, postgres: str, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere = sa.engine.make_url(postgres).set(port=1).render_as_string(hide_password=False)
    road.settings["ledger"] = elsewhere
    road.write()
    with recorder.open(reading.read(road.root / "config")) as one:
        assert [one.turn(), one.turn()] == [recorder.AWAY, recorder.AWAY]
        one.close()
    assert len([one for one in caplog.records if "does not answer" in one.message]) == 1
    road.settings["ledger"] = postgres
    road.write()
    with recording(road) as turns:
        turns()
    assert standing(road) == VERDICTS


def test_without_redis_the_folders_are_compared_all_the_same(
    road: Road, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise redis.ConnectionError("no route")

    with recording(road) as turns:
        monkeypatch.setattr(redis.Redis, "xread", away)
        turns()
    assert standing(road) == VERDICTS
