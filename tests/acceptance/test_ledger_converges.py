"""The ledger says what the folders say, although updates are lost, doubled and shuffled and the recorder is killed."""

from __future__ import annotations

import os
from pathlib import Path

from tests.chaos import updates

#: how many files; the must-show by hand is `inv chaos --updates 10000`.
FILES = int(os.environ.get("ETL_UPDATES_FILES", "2000"))


def test_the_ledger_equals_the_folders_whatever_happens_to_updates_and_recorder(tmp_path: Path) -> None:
    road = updates.project(tmp_path)

    report = updates.unleash(road, FILES, within=max(120.0, FILES / 5), tell=print)

    assert report.differences == []
    assert report.verdicts == {"resolved": FILES}
    assert report.kills >= 1
    assert road.broken_promises() == []
