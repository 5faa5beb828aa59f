"""News lie durably until they are told, once each, whatever happens while they are put or removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from etl import points
from etl.files import news
from etl.files.layout import Layout
from etl.files.news import News
from etl.model import Urgency
from etl.points import Point

ONE = News(
    pipeline="books", key="expected/2026-11-18/missing", kind="missing", text="books did not come", at=1.0
)
PUT = "from tests.unit import test_news as t; import sys; t.news.{verb}(t.Layout(t.Path(sys.argv[1])), t.ONE)"


def test_what_is_put_twice_is_told_once_and_oldest_first(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    older = News(pipeline="books", key="x", kind="late", text="late", urgency=Urgency.NOW, at=0.5)
    for one in (ONE, older, ONE):
        news.put(layout, one)

    assert list(news.waiting(layout)) == [older, ONE]

    news.remove(layout, older)
    news.remove(layout, older)
    assert list(news.waiting(layout)) == [ONE]


def test_what_cannot_be_read_stays_and_stops_nobody(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    news.put(layout, ONE)
    damaged = news.folder(layout) / "damaged.json"
    damaged.write_text("{")

    assert list(news.waiting(layout)) == [ONE]
    assert damaged.exists()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("verb", ["put", "remove"])
def test_killed_at_it_and_done_again_it_is_there_or_gone(tmp_path: Path, verb: str, when: str) -> None:
    layout = Layout(tmp_path)
    if verb == "remove":
        news.put(layout, ONE)
    done = subprocess.run(
        [sys.executable, "-c", PUT.format(verb=verb), str(tmp_path)],
        env={**os.environ, "ETL_CRASH_AT": f"{Point.NEWS}:{when}"},
        cwd=Path(__file__).resolve().parents[2],
    )
    assert done.returncode == -signal.SIGKILL

    getattr(news, verb)(layout, ONE)

    assert list(news.waiting(layout)) == ([ONE] if verb == "put" else [])


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    points.crash_at = f"{Point.NEWS}:before=ENOSPC"
    points.reached.clear()
    try:
        with pytest.raises(OSError, match="No space"):
            news.put(layout, ONE)
    finally:
        points.crash_at = ""

    assert list(news.waiting(layout)) == []
    assert [path for path in news.folder(layout).iterdir() if path.suffix == ".json"] == []
