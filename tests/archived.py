"""Deliveries of earlier days, and a clean that takes them off the road as if they had rested long enough."""

from __future__ import annotations

import itertools
import time
from datetime import UTC, datetime
from pathlib import Path

from etl.files import archives, names
from etl.files.archives import Manifest
from etl.stages import clean
from etl.stages.reporting import Report
from tests.road import Road

DAY = 86_400
_NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0).timestamp()
_numbers = itertools.count()


def day_before(days: int) -> str:
    """Give the UTC day so many days ago."""
    return archives.day_of(id_of("books", days))


def id_of(pipeline: str, days: int) -> str:
    """Make an id of so many days ago."""
    # one millisecond after the other, so that they sort as they were made
    return names.new_id(pipeline, int((_NOON - days * DAY) * 1000) + next(_numbers))


def drop(road: Road, given: str, text: str, days: int) -> str:
    """Drop a file as if it had come so many days ago, and give its id."""
    file_id = id_of(road.pipeline, days)
    road.drop(str(names.christen(given, file_id)), text)
    return file_id


def cleaned(road: Road) -> Report:
    """Clean the pipeline as if two days had passed since; nothing may stand in the way."""
    with road.opened() as app:
        report = clean.run(app, [road.pipeline], Report(), clock=lambda: time.time() + 2 * DAY)
    assert not report.errors
    return report


def manifests(road: Road) -> list[Manifest]:
    """Read the manifests there are."""
    root = road.data / "archive"
    return list(archives.of_days(root, road.pipeline, "", "9"))


def tar(road: Road, day: str, stage: str = "extract") -> Path:
    """Give the first archive of a day."""
    return road.data / "archive" / day / f"{road.pipeline}-{stage}.tar.gz"
