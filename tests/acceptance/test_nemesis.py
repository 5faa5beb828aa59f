"""The nemesis in its short form: real services, real kills, real databases; nothing is lost and nothing doubled."""

from __future__ import annotations

from pathlib import Path

from tests.chaos import nemesis


def test_nothing_is_lost_or_doubled_whatever_is_killed(tmp_path: Path, postgres: str) -> None:
    report = nemesis.unleash(tmp_path, postgres, nemesis.Plan())
    assert report.is_clean, report.facts()
    assert sum(report.faults.values()) == len(nemesis.Plan().faults())
