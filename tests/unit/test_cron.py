"""Cron lines mean what cron has always meant, and every local time comes once, also when clocks change."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl.config import cron

LONDON = ZoneInfo("Europe/London")


def ticks(line: str, begin: str, count: int, zone: ZoneInfo = LONDON) -> list[str]:
    moment = datetime.fromisoformat(begin).replace(tzinfo=zone).timestamp()
    return [cron.shown(tick, zone) for tick in islice(cron.after(cron.parse(line), zone, moment), count)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("0 2 * * *", ["2026-11-19 02:00 GMT", "2026-11-20 02:00 GMT"]),
        ("*/30 9-10 * * *", ["2026-11-19 09:00 GMT", "2026-11-19 09:30 GMT"]),
        ("5/25 * * * *", ["2026-11-18 12:05 GMT", "2026-11-18 12:30 GMT"]),
        ("0 6 * * mon-fri", ["2026-11-19 06:00 GMT", "2026-11-20 06:00 GMT"]),
        ("0 6 * * sat-sun", ["2026-11-21 06:00 GMT", "2026-11-22 06:00 GMT"]),
        ("0 6 * * 7", ["2026-11-22 06:00 GMT", "2026-11-29 06:00 GMT"]),
        ("0 0 1,15 jan *", ["2027-01-01 00:00 GMT", "2027-01-15 00:00 GMT"]),
        # two kinds of day: either is enough
        ("0 0 20 * thu", ["2026-11-19 00:00 GMT", "2026-11-20 00:00 GMT"]),
        ("0 2 29 2 *", ["2028-02-29 02:00 GMT", "2032-02-29 02:00 GMT"]),
        ("@monthly", ["2026-12-01 00:00 GMT", "2027-01-01 00:00 GMT"]),
    ],
)
def test_a_line_means_what_cron_means_by_it(line: str, expected: list[str]) -> None:
    assert ticks(line, "2026-11-18 12:00", 2) == expected


BAD = (
    *("", "x", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8"),
    *(
        "*/0 * * * *",
        "5-1 * * * *",
        "1,,2 * * * *",
        "-1 * * * *",
        "0 0 31 2 *",
        "0 0 30 feb *",
        "1.5 * * * *",
    ),
    *("\u0663 * * * *", "*/999999999999 * * * *"),
)


@pytest.mark.parametrize("line", BAD)
def test_a_line_that_cannot_be_followed_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"cron line|is no|never comes"):
        cron.parse(line)


def test_a_time_that_does_not_exist_comes_once_later() -> None:
    # clocks go from 01:00 to 02:00
    assert ticks("30 1 * * *", "2026-03-28 12:00", 2) == ["2026-03-29 02:30 BST", "2026-03-30 01:30 BST"]
    assert ticks("30 1,2 * * *", "2026-03-28 12:00", 2) == ["2026-03-29 02:30 BST", "2026-03-30 01:30 BST"]


def test_a_time_that_is_there_twice_comes_once() -> None:
    # clocks go back from 02:00 to 01:00
    assert ticks("30 1 * * *", "2026-10-24 12:00", 2) == ["2026-10-25 01:30 BST", "2026-10-26 01:30 GMT"]


def test_every_hour_is_every_hour_also_when_one_is_repeated() -> None:
    assert ticks("0 * * * *", "2026-10-24 23:30", 4) == [
        *("2026-10-25 00:00 BST", "2026-10-25 01:00 BST", "2026-10-25 01:00 GMT", "2026-10-25 02:00 GMT")
    ]


@settings(max_examples=40, deadline=None)
@given(
    line=st.sampled_from(["30 1 * * *", "*/20 * * * *", "0 2 * * sun", "15 0,2,23 * * *", "59 23 31 12 *"]),
    zone=st.sampled_from(
        ["Europe/London", "Australia/Lord_Howe", "America/Sao_Paulo", "UTC", "Asia/Kathmandu"]
    ),
    begin=st.floats(min_value=1.4e9, max_value=1.9e9),
)
def test_the_newest_tick_is_the_last_of_those_that_came(line: str, zone: str, begin: float) -> None:
    clock, parsed = ZoneInfo(zone), cron.parse(line)
    found = list(islice(cron.after(parsed, clock, begin), 30))
    assert found == sorted(set(found)) and found[0] > begin
    assert cron.newest(parsed, clock, found[-1] + 0.5, begin) == found[-1]
    assert cron.newest(parsed, clock, found[7] - 0.5, begin) == found[6]
    assert cron.newest(parsed, clock, found[0] - 1, begin) is None
    local = [datetime.fromtimestamp(tick, clock) for tick in found]
    if len(parsed.hours) < 24:  # no local time of one day comes twice
        assert len({moment.replace(tzinfo=None, fold=0) for moment in local}) == len(local)


def test_a_day_is_followed_in_its_zone() -> None:
    tokyo = ZoneInfo("Asia/Tokyo")
    assert ticks("0 8 * * mon", "2026-11-18 12:00", 1, tokyo) == ["2026-11-23 08:00 JST"]
    (tick,) = islice(cron.after(cron.parse("0 8 * * mon"), tokyo, 1_763_460_000.0), 1)
    assert datetime.fromtimestamp(tick, UTC).hour == 23
