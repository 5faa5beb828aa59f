"""No point is without a case: those that are on no file's road are named in the module that tries them."""

from __future__ import annotations

from pathlib import Path

import pytest

from etl.points import Point
from tests.elsewhere import ELSEWHERE

TESTS = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("point", ELSEWHERE)
def test_a_point_that_is_on_no_road_has_its_cases_elsewhere(point: Point) -> None:
    assert f"Point.{point.name}" in (TESTS / ELSEWHERE[point]).read_text()
