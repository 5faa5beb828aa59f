"""The page about reliability names real tests, and every promise that fsck can tell of."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PAGE = (TESTS.parent / "docs" / "reliability.md").read_text()


def test_every_test_that_is_named_exists() -> None:
    code = "\n".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    named = re.findall(r"`(test_\w+?)`", PAGE)
    assert len(named) > 20
    assert [name for name in named if f"def {name}(" not in code] == []
    assert [name for name in re.findall(r"`(test_\w+\.py)`", PAGE) if not list(TESTS.rglob(name))] == []


def test_every_promise_that_fsck_tells_of_is_on_the_page() -> None:
    code = "\n".join(path.read_text() for path in (TESTS.parent / "etl" / "services" / "fsck").glob("*.py"))
    told = set(re.findall(r'promise="(P\d+)"', code))
    assert told
    assert told <= set(re.findall(r"^\| (P\d+) \|", PAGE, re.MULTILINE))
