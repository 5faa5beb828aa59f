"""The mark of a location that is away: one tells, few probe, one tells again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from etl.files import away
from etl.files.layout import Layout
from etl.model import Place, Stage

SHOP = Place(pipeline="books", stage=Stage.LOAD, location="shop")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path)
    layout.make("books", ["shop"])
    return layout


def test_a_location_is_marked_once_and_cleared_once(layout: Layout) -> None:
    assert away.read(layout, SHOP) is None
    assert away.clear(layout, SHOP, now=110.0) is None
    assert away.mark(layout, SHOP, "no route", asked=100.0, now=100.0)
    assert not away.mark(layout, SHOP, "time-out", asked=101.0, now=101.0)
    known = away.clear(layout, SHOP, now=110.0)
    assert known == away.Mark(since=100.0, said="no route", tries=0, next=101.0)
    assert away.clear(layout, SHOP, now=110.0) is None


def test_a_time_out_that_ends_after_the_location_came_back_marks_nothing(layout: Layout) -> None:
    assert away.mark(layout, SHOP, "time-out", asked=95.0, now=100.0)
    away.clear(layout, SHOP, now=110.0)
    assert not away.mark(layout, SHOP, "time-out", asked=106.0, now=111.0)
    assert away.mark(layout, SHOP, "time-out", asked=112.0, now=117.0)


def test_probes_come_one_at_a_time_and_ever_more_slowly(layout: Layout) -> None:
    away.mark(layout, SHOP, "no route", asked=100.0, now=100.0)
    assert not away.probe(layout, SHOP, now=100.5)
    now, waits = 101.0, []
    for _ in range(6):
        assert away.probe(layout, SHOP, now)
        assert not away.probe(layout, SHOP, now)
        known = away.read(layout, SHOP)
        assert known
        waits.append(known.next - now)
        now = known.next
    assert waits == [1, 2, 4, 8, 15, 15]


def test_a_location_that_is_not_away_is_not_probed(layout: Layout) -> None:
    assert not away.probe(layout, SHOP, now=100.0)


def test_a_mark_that_was_cut_short_still_counts_and_is_probed_at_once(layout: Layout) -> None:
    layout.away(SHOP).write_bytes(b"")
    known = away.read(layout, SHOP)
    assert known and known.since > 0
    assert away.probe(layout, SHOP, now=known.since)


def test_of_many_processes_one_marks_and_one_clears(layout: Layout) -> None:
    assert how_many_were_first(lambda: away.mark(layout, SHOP, "no route", asked=100.0, now=100.0)) == 1
    assert how_many_were_first(lambda: away.probe(layout, SHOP, now=101.0)) == 1
    assert how_many_were_first(lambda: away.clear(layout, SHOP, now=110.0)) == 1


def how_many_were_first(act: object) -> int:
    """Do something in eight processes at once and count those it worked for."""
    gate, release = os.pipe()
    children = []
    for _ in range(8):
        if (pid := os.fork()) == 0:
            os.close(release)
            os.read(gate, 1)  # until the parent lets all of them go
            os._exit(0 if act() else 1)  # type: ignore[operator]
        children.append(pid)
    os.close(release)
    os.close(gate)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    return codes.count(0)
