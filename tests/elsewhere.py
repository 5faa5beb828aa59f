"""Points that are on no file's road, and the test module in which each has its cases instead."""

from __future__ import annotations

from etl.points import Point

ELSEWHERE: dict[Point, str] = {
    Point.NOTE_AGAIN: "integration/test_replay.py",
    Point.REPLAY_STAGE: "integration/test_replay.py",
    Point.REPLAY_NOTE: "integration/test_replay.py",
    Point.REPLAY: "integration/test_replay.py",
    Point.NEWS: "unit/test_news.py",
}
ON_THE_ROAD = [point for point in Point if point not in ELSEWHERE]
