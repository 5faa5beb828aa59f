"""Points that are on no file's road, and the test module in which each has its cases instead."""

from __future__ import annotations

from etl.points import Point

ELSEWHERE: dict[Point, str] = {
    Point.NEWS: "unit/test_news.py",
    Point.NOTICED: "integration/test_notices.py",
}
ON_THE_ROAD = [point for point in Point if point not in ELSEWHERE]
