"""The nemesis in its short form: real services, real kills, real databases; nothing is lost and nothing doubled."""

from __future__ import annotations

from pathlib import Path

from tests.chaos import mutate, nemesis


def test_nothing_is_lost_or_doubled_whatever_is_killed(memory_path: Path, postgres: str) -> None:
    report = nemesis.unleash(memory_path, postgres, nemesis.Plan())
    assert report.is_clean, report.facts()
    assert sum(report.faults.values()) == len(nemesis.Plan().faults())
    assert report.at_points


def test_every_mutation_still_fits_the_code(tmp_path: Path) -> None:
    for mutation in mutate.MUTATIONS:
        (tmp_path / mutation.file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / mutation.file).write_text((mutate.REPOSITORY / mutation.file).read_text())
        mutation.apply(tmp_path)
        assert (tmp_path / mutation.file).read_text() != (mutate.REPOSITORY / mutation.file).read_text()
