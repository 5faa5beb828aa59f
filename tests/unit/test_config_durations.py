"""Quantities carry their unit, and a wrong one says how to write it."""

from __future__ import annotations

import pytest

from etl.config import durations


@pytest.mark.parametrize(
    ("text", "expected"),
    [("500ms", 0.5), ("2s", 2), ("30m", 1800), ("1h", 3600), ("1.5h", 5400), ("1d", 86400), (" 10 s ", 10)],
)
def test_a_duration_is_read_as_seconds(text: str, expected: float) -> None:
    assert durations.seconds(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    "text", ["5 parsecs", "", "s", "-1s", "1h30m", "1M", "9" * 400 + "d", True, None, [1]]
)
def test_what_is_not_a_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a duration; write a number with .* for example 30s"):
        durations.seconds(text)


@pytest.mark.parametrize("bare", [30, 2.5, "30"])
def test_a_duration_without_unit_is_told_so(bare: str) -> None:
    with pytest.raises(ValueError, match="has no unit"):
        durations.seconds(bare)


@pytest.mark.parametrize(
    ("text", "expected"), [("10B", 10), ("512KB", 512_000), ("20mb", 20_000_000), ("1GB", 10**9)]
)
def test_a_size_is_read_as_bytes(text: str, expected: int) -> None:
    assert durations.size(text) == expected


@pytest.mark.parametrize("text", ["1 GiB", "20", 20, "big"])
def test_what_is_not_a_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="for example 20MB"):
        durations.size(text)


@pytest.mark.parametrize(("text", "expected"), [("0%", 0), ("0.5%", 0.005), ("1%", 0.01), ("100%", 1)])
def test_a_share_is_read_as_a_part_of_one(text: str, expected: float) -> None:
    assert durations.share(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["101%", "1", 1, 0.5, "%", "some"])
def test_what_is_not_a_percentage_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="for example 1%"):
        durations.share(text)
