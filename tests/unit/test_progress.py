"""How far a job is: percent, time left, and that telling it harms nobody."""

from __future__ import annotations

import subprocess
import sys

import pytest
import redis

import etl
from etl.model import Place, Stage
from etl.queues.progress import SILENT, Board, InWork

PLACE = Place(pipeline="books", stage=Stage.TRANSFORM)


@pytest.mark.parametrize(
    ("one", "percent", "left"),
    [
        (InWork(done=25, total=100, begun=1000, at=1010), 25.0, 28.0),
        (InWork(done=100, total=100, begun=1000, at=1010), 100.0, 0.0),
        (InWork(done=99, total=100, begun=1000, at=1010), 99.0, 0.0),
        (InWork(done=0, total=100, begun=1000, at=1010), 0.0, None),
        (InWork(done=7, begun=1000, at=1010), None, None),
        (InWork(done=7, total=0, begun=1000, at=1010), None, None),
        (InWork(done=120, total=100, begun=1000, at=1010), 100.0, None),
        (InWork(done=-3, total=100, begun=1000, at=1010), 0.0, None),
    ],
)
def test_percent_and_time_left_are_told_where_something_can_be_said(
    one: InWork, percent: float | None, left: float | None
) -> None:
    assert (one.percent, one.left(1012.0)) == (percent, left)


class Away:
    """A Redis that refuses, and counts how often it was asked."""

    asked = 0

    def pipeline(self, **_: object) -> object:
        self.asked += 1
        raise redis.ConnectionError

    def hdel(self, *_: object) -> object:
        self.asked += 1
        raise OSError

    hgetall = hdel


def test_a_redis_that_is_away_is_left_alone_for_a_while_and_nobody_hears_of_it() -> None:
    away, now = Away(), [100.0]
    board = Board(away, "k3f9", lambda: now[0])  # type: ignore[arg-type]
    board.begin(PLACE, "a.csv")
    board.say(1, 2, "")
    assert away.asked == 1
    now[0] += 1
    board.say(2, 2, "")
    board.end()
    board.tidy()
    assert away.asked == 1
    now[0] += SILENT
    board.tidy()
    assert away.asked == 2


@pytest.mark.parametrize("wrong", [None, "x", float("nan"), float("inf"), object(), 10**400])
def test_what_is_no_number_is_left_out(wrong: object) -> None:
    board = Board(Away(), "k3f9")  # type: ignore[arg-type]
    board.begin(PLACE, "a.csv")
    board.say(wrong, wrong, wrong)
    assert (board._now.done, board._now.total) == (0.0, None)


def test_outside_a_job_progress_does_nothing_and_imports_nothing() -> None:
    etl.progress(1, 2, "words")
    program = "import sys, etl; etl.progress(1); print('etl.app' in sys.modules, 'redis' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["False", "False"], done.stderr
