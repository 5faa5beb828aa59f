"""What is expected by when: hours, days and zones as people write them, patterns, and headers held side by side."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from etl.config import expecting, reading
from etl.config.expecting import Expectation
from etl.stages import drift

LONDON = ZoneInfo("Europe/London")
PIPELINE = (
    "transform: {{read: csv}}\nload: {{locations: {{lake: {{kind: files, path: lake}}}}}}\nexpect:\n{}\n"
)


def expectation(**written: object) -> Expectation:
    return Expectation.model_validate(
        {"name": "books-*.csv", "by": "06:00", "zone": "Europe/London", **written}
    )


def at(text: str, zone: ZoneInfo = LONDON) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


# --- as written --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "days"),
    [
        ("mon-fri", "01234"),
        ("sat-mon", "056"),
        ("wed", "2"),
        (["mon", "thu-fri"], "034"),
        ("mon, wed", "02"),
        ("mon-sun", "0123456"),
    ],
)
def test_days_are_written_as_people_say_them(written: object, days: str) -> None:
    assert "".join(map(str, expectation(days=written).days)) == days


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{name: a, by: "6", zone: UTC}', "expect[0].by: '6' is not an hour"),
        ('{name: a, by: "24:00", zone: UTC}', "write one from 00:00 to 23:59"),
        (
            "{name: a, by: 16:30, zone: UTC, days: weekdays}",
            "'weekdays' is not a day; write for example mon-fri",
        ),
        ("{name: a, by: 16:30, zone: Europe/Lodnon}", "did you mean 'Europe/London'?"),
        ("{name: a, by: 16:30}", "expect[0].zone: the key is missing"),
        (
            "{name: a, by: 16:30, zone: UTC, drift: stop}",
            "'stop' is not possible here; write 'warn' or 'fail'",
        ),
        ("{name: a, by: 16:30, zone: UTC, rows: {at_least: 50}}", "50 has no unit"),
        ("{name: a, by: 16:30, zone: UTC, row: 1}", "did you mean 'rows'?"),
        (
            "{name: a, by: 16:30, zone: UTC}\n  - {name: a, by: 16:30, zone: UTC}",
            "expect: 'a' by 16:30 is there twice",
        ),
    ],
)
def test_what_cannot_be_followed_is_said_with_its_place(tmp_path: Path, line: str, said: str) -> None:
    folder = tmp_path / "config" / "pipelines"
    folder.mkdir(parents=True)
    (folder.parent / "settings.yaml").write_text("")
    (folder / "books.yaml").write_text(PIPELINE.format(f"  - {line}"))
    (error,) = reading.read(folder.parent).broken["books"]
    assert said in str(error) and "config/pipelines/books.yaml:" in str(error)


@pytest.mark.parametrize(
    "written", ["  - {name: a, by: 16:30, zone: UTC}", "  {name: a, by: 6:05, zone: UTC}", ""]
)
def test_one_or_many_or_none_may_be_expected(tmp_path: Path, written: str) -> None:
    folder = tmp_path / "config" / "pipelines"
    folder.mkdir(parents=True)
    (folder.parent / "settings.yaml").write_text("")
    (folder / "books.yaml").write_text(PIPELINE.format(written))
    config = reading.read(folder.parent)
    assert config.broken == {}
    assert len(config.pipelines["books"].spec.expect) == (1 if written else 0)


# --- days --------------------------------------------------------------------------------------------------


def test_a_file_counts_for_the_last_day_that_has_begun_and_days_off_are_left_out() -> None:
    one = expectation(days="mon-fri")
    friday = date(2026, 11, 20)
    for moment in ("2026-11-20 00:00", "2026-11-20 05:59", "2026-11-21 12:00", "2026-11-22 23:59"):
        assert one.day_of(at(moment)) == friday, moment
    assert one.day_of(at("2026-11-23 00:00")) == date(2026, 11, 23)
    assert list(one.due_between(at("2026-11-19 06:00"), at("2026-11-23 06:00"))) == [
        friday,
        date(2026, 11, 23),
    ]


def test_the_evening_before_may_count() -> None:
    one = expectation(early="8h")
    assert one.day_of(at("2026-11-18 21:59")) == date(2026, 11, 18)
    assert one.day_of(at("2026-11-18 22:00")) == date(2026, 11, 19)


def test_an_hour_is_that_of_its_zone_in_summer_and_winter() -> None:
    one = expectation()
    assert one.due(date(2026, 7, 1)) == at("2026-07-01 05:00", ZoneInfo("UTC"))
    assert one.due(date(2026, 12, 1)) == at("2026-12-01 06:00", ZoneInfo("UTC"))
    tokyo = expectation(zone="Asia/Tokyo")
    assert tokyo.day_of(at("2026-11-17 16:00", ZoneInfo("UTC"))) == date(2026, 11, 18)


# --- patterns ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "possible"),
    [
        ("books-*", "*.csv", True),
        ("books-*.csv", "*.CSV", False),
        ("books-*.csv", "prices-*", False),
        ("b[oa]x?", "*[!x]", True),
        ("b[oa]x", "*[!x]", False),
        ("*a*", "b*", True),
        ("", "*", True),
        ("a[", "a[", True),
        ("*" * 40 + "a", "*" * 40 + "b", False),
    ],
)
def test_whether_two_patterns_can_match_one_name(one: str, other: str, possible: bool) -> None:
    assert expecting.can_both_match(one, other) is possible
    assert expecting.can_both_match(other, one) is possible


# --- headers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "now", "said", "serious"),
    [
        ("a b c", "a b c", "", False),
        ("a b c", "a b c d", "added: 'd'", False),
        ("a b c", "a x c", "column 'b' is now called 'x'", True),
        ("a b c", "n a x c", "column 'b' is now called 'x'; added: 'n'", True),
        ("a b c", "a c", "missing: 'b'", True),
        ("a b c", "a c b", "the columns are in another order", True),
        ("a b", "b a x", "the columns are in another order; added: 'x'", True),
    ],
)
def test_how_a_header_differs_is_said_in_words(before: str, now: str, said: str, serious: bool) -> None:
    found = drift.compare([(one, one) for one in before.split()], [(one, one) for one in now.split()])
    assert (str(found), found.serious) == (said, serious)


def test_many_columns_are_counted() -> None:
    found = drift.compare([(f"c{n}", f"c{n}") for n in range(9)], [])
    assert str(found) == "missing: 'c0', 'c1', 'c2', 'c3', 'c4' and 4 more"
