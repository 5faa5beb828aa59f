"""Files that came while the dropbox stood still are all worked; the ledger says so, whatever happens to updates."""

from __future__ import annotations

import os
from pathlib import Path

from tests import road as roads
from tests.chaos import updates

#: how many files; the must-shows by hand are `inv chaos --updates 10000` and `inv chaos --standing 20000`.
FILES = int(os.environ.get("ETL_UPDATES_FILES", "2000"))


def test_files_that_come_while_the_dropbox_stands_still_are_worked_and_in_the_ledger_whatever_it_heard(
    memory_path: Path, postgres: str
) -> None:
    databases = {"lite": f"sqlite:///{memory_path / 'lite.db'}", "post": postgres}
    road = updates.project(memory_path, databases)

    # updates are lost, doubled and shuffled, and the recorder is killed again and again
    report = updates.unleash(road, FILES, within=max(300.0, FILES / 5), tell=print)

    assert report.differences == []
    assert report.verdicts == {"resolved": FILES}
    assert report.kills >= 1
    for url in databases.values():
        assert sorted(row[0] for row in roads.rows(url, "feed", "id")) == sorted(map(str, range(FILES)))
    assert road.broken_promises() == []
