"""Points that are on no file's road, and the test module in which each has its cases instead."""

from __future__ import annotations

from etl.points import Point

ELSEWHERE: dict[Point, str] = {
    Point.NOTE_AGAIN: "integration/test_replay.py",
    Point.REPLAY_STAGE: "integration/test_replay.py",
    Point.REPLAY_NOTE: "integration/test_replay.py",
    Point.REPLAY: "integration/test_replay.py",
    Point.NEWS: "unit/test_news.py",
    Point.ACT: "integration/test_triage.py",
    Point.EXPECTED: "integration/test_expected.py",
    Point.SCHEDULE_CLAIM: "integration/test_scheduler.py",
    Point.SCHEDULE_EFFECT: "integration/test_scheduler.py",
    Point.SCHEDULE_DONE: "integration/test_scheduler.py",
    Point.SCHEDULE_REGISTER: "integration/test_scheduler.py",
    Point.DASHBOARD: "integration/test_dashboard.py",
    Point.NOTICED: "integration/test_notices.py",
    Point.CLEAN_ASK: "acceptance/test_clean_crashes.py",
    Point.CLEAN_PLAN: "acceptance/test_clean_crashes.py",
    Point.CLEAN_REMOVE: "acceptance/test_clean_crashes.py",
    Point.CLEAN_NOTE: "acceptance/test_clean_crashes.py",
    Point.CLEAN_END: "acceptance/test_clean_crashes.py",
    Point.ARCHIVE_WRITE: "acceptance/test_clean_crashes.py",
    Point.ARCHIVE_MANIFEST: "acceptance/test_clean_crashes.py",
    Point.ARCHIVE_COMMIT: "acceptance/test_clean_crashes.py",
    Point.ARCHIVE_EXPIRE: "acceptance/test_clean_crashes.py",
}
ON_THE_ROAD = [point for point in Point if point not in ELSEWHERE]
