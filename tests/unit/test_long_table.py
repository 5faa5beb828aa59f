"""Long tables: plain lines that fit, with nothing of a name lost."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from etl.cli import common, long_table


def test_a_long_table_fits_and_loses_nothing() -> None:
    name = "a very long name of a file " + "x" * 90 + "書籍" * 30 + ".csv"
    rows = [[(name, ""), ("1,000", ""), ("resolved", "green")]] * 3
    found = list(long_table.lines(["file", "rows", "verdict"], rows, [False, True, False], 80))
    assert max(cell_len(line.replace("\x1b[32m", "").replace("\x1b[0m", "")) for line in found) <= 80
    column = "".join(line.split("  ")[0] for line in found[2:])
    assert column.replace(" ", "") == name.replace(" ", "") * 3


def test_a_long_table_says_what_a_short_one_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    heads, rows = (
        ["file", "rows", "verdict"],
        [["books.csv", 1000, "resolved"], ["two words.csv", 7, "failed"]],
    )
    common.print_table(heads, rows, right=["rows"])
    short = capsys.readouterr().out
    monkeypatch.setattr(common, "_MANY", 1)
    common.print_table(heads, rows, right=["rows"])
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        line.split() for line in short.splitlines()
    ]
