"""What the files location does at the edges: a crash, a reader that takes files away, folders that say no."""

from __future__ import annotations

from pathlib import Path

import pytest

from etl import errors
from tests.location_helpers import opened, start_load, unit_file

BOOKS = [{"isbn": "1"}, {"isbn": "2"}]
NAME = "books~01k3f9a2m1qz7hd4-0001.jsonl"
POINTS = [
    f"{point}:{when}{times}"
    for point, when, times in [
        ("location-write", "before", ""),
        ("location-write", "after", ""),
        ("location-commit", "before", ""),
        ("location-commit", "after", ""),
        ("location-commit", "before", "#2"),
        ("location-commit", "after", "#2"),
    ]
]


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_point_a_retry_gives_the_file_once(tmp_path: Path, point: str) -> None:
    killed = start_load(tmp_path, BOOKS, point, kind="files", path="lake")
    killed.communicate(timeout=60)
    assert killed.returncode == -9
    opened(tmp_path, kind="files", path="lake").load(unit_file(BOOKS))
    seen = [path.name for path in (tmp_path / "lake").iterdir() if path.name != ".etl"]
    assert seen == [NAME]
    assert (tmp_path / "lake" / NAME).read_text() == '{"isbn":"1"}\n{"isbn":"2"}\n'
    assert not list((tmp_path / "lake").rglob("*.writing"))


def test_a_file_its_reader_took_away_does_not_come_back(tmp_path: Path) -> None:
    location = opened(tmp_path, kind="files", path="lake")
    location.load(unit_file(BOOKS))
    (tmp_path / "lake" / NAME).unlink()
    assert location.load(unit_file(BOOKS)).before
    assert not (tmp_path / "lake" / NAME).exists()


def test_a_stranger_of_the_same_name_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / NAME).write_text("mine")
    with pytest.raises(errors.Refused, match="not loaded here"):
        opened(tmp_path, kind="files", path="lake").load(unit_file(BOOKS))
    assert (tmp_path / "lake" / NAME).read_text() == "mine"


def test_a_path_that_is_a_file_is_refused_and_found(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("not a folder")
    location = opened(tmp_path, kind="files", path="lake")
    with pytest.raises(errors.Refused, match="lake"):
        location.load(unit_file(BOOKS))
    assert "not a folder" in location.findings()[0]
