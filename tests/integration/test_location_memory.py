"""What the memory location can be told: to refuse units, and to be away."""

from __future__ import annotations

from pathlib import Path

import pytest

from etl import errors
from etl.locations import memory
from etl.model import Trouble
from tests.location_helpers import opened, unit_file

BOOKS = [{"isbn": "1"}, {"isbn": "2"}]


def test_units_it_is_told_to_refuse_are_rejected_with_their_line(tmp_path: Path) -> None:
    location = opened(tmp_path, "picky", kind="memory")
    memory.store("picky").refuse = lambda unit: "no twos" if unit["isbn"] == "2" else None
    loaded = location.load(unit_file(BOOKS))
    assert (loaded.count, loaded.rejected) == (1, (Trouble(cause="no twos", line=3, unit=1),))
    assert location.load(unit_file(BOOKS)).rejected == loaded.rejected


def test_away_it_takes_nothing_and_back_it_takes_all(tmp_path: Path) -> None:
    location = opened(tmp_path, "wanderer", kind="memory")
    memory.store("wanderer").away = True
    with pytest.raises(errors.Away):
        location.load(unit_file(BOOKS))
    assert "away" in location.findings()[0]
    memory.store("wanderer").away = False
    assert location.load(unit_file(BOOKS)).count == 2
