"""The board on a real server: how often it is written, when it is cleared, and what of it `etl status` shows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from etl.cli import in_work
from etl.config import reading
from etl.model import Place, Stage
from etl.queues import connection, keys, progress
from etl.queues.progress import EVERY, KEPT, Board
from tests.queue_helpers import DATA_ID, EMBEDDED
from tests.road import Road

PLACE = Place(pipeline="books", stage=Stage.TRANSFORM)
ENTRY = ("books/transform", "a.csv")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis.Redis]:
    with connection.connect(EMBEDDED, tmp_path_factory.mktemp("data")) as client:
        yield client


@pytest.fixture
def now() -> list[float]:
    return [100.0]


@pytest.fixture
def board(server: redis.Redis, now: list[float]) -> Board:
    server.delete(keys.progress(DATA_ID))
    board = Board(server, DATA_ID, lambda: now[0])
    board.begin(PLACE, "a.csv")
    return board


def test_a_short_job_writes_nothing(server: redis.Redis, board: Board, now: list[float]) -> None:
    board.read(10, 50, 100)
    now[0] += EVERY * 0.9
    board.read(20, 100, 100)
    board.end()
    assert progress.shown(server, DATA_ID) == {}


def test_it_is_written_at_most_twice_a_second(server: redis.Redis, board: Board, now: list[float]) -> None:
    before = server.info("commandstats").get("cmdstat_hset", {}).get("calls", 0)
    for step in range(100):
        now[0] += 0.03
        board.read(step, step, 100)
    assert server.info("commandstats")["cmdstat_hset"]["calls"] - before in (5, 6)


def test_a_handler_is_heard_at_once_and_keeps_its_share(
    server: redis.Redis, board: Board, now: list[float]
) -> None:
    board.say(1, 4, "first")
    one = progress.shown(server, DATA_ID)[ENTRY]
    assert (one.done, one.total, one.text, one.percent) == (1, 4, "first", 25.0)
    board.say(2, 4, "second")
    assert progress.shown(server, DATA_ID)[ENTRY].text == "first"
    now[0] += EVERY
    board.read(7, 99, 100)
    one = progress.shown(server, DATA_ID)[ENTRY]
    assert (one.done, one.total, one.text, one.rows) == (2, 4, "second", 7)
    assert 0 < server.ttl(keys.progress(DATA_ID)) <= KEPT


def test_the_end_of_a_job_takes_it_off_and_what_comes_later_is_not_heard(
    server: redis.Redis, board: Board
) -> None:
    board.say(1, 4, "")
    board.end()
    board.say(2, 4, "")
    assert progress.shown(server, DATA_ID) == {}


def test_names_that_are_no_text_and_entries_that_are_none_do_no_harm(
    server: redis.Redis, board: Board
) -> None:
    board.begin(PLACE, "b\udcff.csv")
    board.say(1, None, "\udcff\x1b[2J")
    for number, value in enumerate(
        ("", "[]", "{", '{"done": "x"}', '{"a": 1}', '{"done": 1' + "0" * 400 + "}")
    ):
        server.hset(keys.progress(DATA_ID), f"books/transform/{number}", value)
    assert list(progress.shown(server, DATA_ID)) == [("books/transform", "b\udcff.csv")]


def test_what_a_killed_worker_left_long_ago_is_tidied_away(server: redis.Redis, board: Board) -> None:
    board.say(1, 4, "")
    server.hset(keys.progress(DATA_ID), "books/transform/old", json.dumps({"at": time.time() - KEPT - 1}))
    board.tidy()
    assert list(progress.shown(server, DATA_ID)) == [ENTRY]


def test_only_what_lies_in_process_since_before_it_was_told_is_shown(tmp_path: Path) -> None:
    spec = {"transform": {"read": "csv"}, "load": {"locations": {"lake": {"kind": "files", "path": "lake"}}}}
    road = Road(tmp_path, spec)
    config = reading.read(road.root / "config")

    def shown() -> list[str]:
        return [one["name"] for one in in_work.facts(config, road.places())]

    assert shown() == []  # and no server was started for it
    with connection.connect(config.settings.redis, config.data) as client:
        board, data_id = Board(client, road.layout.data_id()), road.layout.data_id()
        for name in ("here.csv", "gone.csv"):
            board.begin(PLACE, name)
            board.say(1, 4, "")
        client.hset(keys.progress(data_id), "other/transform/x", json.dumps({"at": time.time()}))
        client.hset(keys.progress(data_id), "books/transform/../x", json.dumps({"at": time.time()}))
        client.hset(keys.progress(data_id), "books/transform/again.csv", json.dumps({"at": time.time() - 60}))
        for name in ("here.csv", "again.csv"):
            (road.folder("transform", "in_process") / name).touch()
        assert shown() == ["here.csv"]
