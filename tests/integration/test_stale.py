"""What lies somewhere for too long is one mail a day, in groups, with what to do."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from etl import points
from etl.cli import edge
from etl.files import names, notes, spool
from etl.model import Place, Stage, Status
from etl.points import Point
from etl.stages import stale
from tests.integration.test_notices import (
    DENIED,
    NOT_A_NUMBER,
    SPEC,
    TRANSFORM,
    WAREHOUSE,
    Clock,
    _no_rest,  # noqa: F401 - a fixture
    fail,
    killed,
    project,
    turns,
)
from tests.listening import Inbox, body, free_port, mailing
from tests.road import Road

EXTRACT = Place(pipeline="prices", stage=Stage.EXTRACT)
DAY = 86_400.0


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    with mailing(Inbox(port=free_port())) as one:
        yield one


def put(road: Road, place: Place, status: Status, days: float, given: str = "p.csv") -> Path:
    """Have one file lie somewhere since some days."""
    (file_id,) = names.new_ids(place.pipeline, int(time.time() * 1000), 1)
    path = road.layout.status(place, status) / str(names.christen(given, file_id))
    path.write_text("x\n")
    return aged(path, days)


def aged(path: Path, days: float) -> Path:
    then = time.time() - days * DAY
    os.utime(path, (then, then))
    return path


def tell(road: Road) -> None:
    with road.opened() as app:
        stale.tell(app)


def test_a_tree_of_stale_files_is_one_mail_in_groups_with_what_to_do(tmp_path: Path, inbox: Inbox) -> None:
    road = project(tmp_path, inbox)
    for path in [*fail(road, TRANSFORM, NOT_A_NUMBER, 3), *fail(road, WAREHOUSE, DENIED, 2)]:
        aged(path, 3)
    fail(road, WAREHOUSE, replace(DENIED, summary="of today"))
    put(road, EXTRACT, Status.WORKING, 5)
    put(road, EXTRACT, Status.IN_PROCESS, 2)
    put(road, EXTRACT, Status.RESOLVED, 9)
    dropped = road.drop("old-but-just-dropped.csv", "x\n")
    aged(dropped, 100)
    later = put(road, EXTRACT, Status.WORKING, 4, "delayed.csv")
    with road.opened() as app:
        note = notes.read(app.layout, EXTRACT, later.name)
        notes.write(
            app.layout, EXTRACT, later.name, replace(note, not_before=time.time() + DAY), Point.NOTE_PUT_OFF
        )
    tell(road)
    (payload,) = (json.loads(path.read_bytes())["payload"] for path in spool.waiting(road.layout))
    assert payload["subject"] == "[etl prod] 7 stale files, can wait until morning"
    text = payload["text"]
    assert "prices/extract/working\n   1 file, the oldest for 5 days" in text
    assert "prices/extract/in_process\n   1 file, the oldest for 2 days" in text
    assert "nobody works it: start etl up" in text
    assert "prices/transform/failed: price: … is not a number\n   3 files, the oldest for 3 days" in text
    assert "prices/load/warehouse/failed: permission denied for table prices\n   2 files" in text
    assert "of today" not in text and "old-but-just" not in text and "delayed" not in text
    commands = [line.strip() for line in text.splitlines() if line.strip().startswith("etl --config")]
    for line in set(commands):
        assert edge.run(shlex.split(line)[1:]) == 0, line
    assert "of its pipeline" in payload["html"]


def test_the_same_is_told_once_a_day_and_nothing_is_no_mail(tmp_path: Path, inbox: Inbox) -> None:
    road = project(tmp_path, inbox)
    tell(road)
    assert list(spool.waiting(road.layout)) == []
    aged(fail(road, TRANSFORM, DENIED)[0], 3)
    tell(road)
    tell(road)
    assert len(list(spool.waiting(road.layout))) == 1
    aged(fail(road, TRANSFORM, DENIED)[0], 4)  # one more is another report
    tell(road)
    assert len(list(spool.waiting(road.layout))) == 2
    for path in spool.waiting(road.layout):  # sent
        path.unlink()
    tell(road)
    assert list(spool.waiting(road.layout)) == []
    told = road.layout.own / "notices" / "stale.json"
    facts = {key: (same, at - stale.SAME) for key, (same, at) in json.loads(told.read_text()).items()}
    told.write_text(json.dumps(facts))
    tell(road)
    assert len(list(spool.waiting(road.layout))) == 1


def test_each_pipeline_reports_to_its_own_people(tmp_path: Path, inbox: Inbox) -> None:
    road = project(tmp_path, inbox)
    theirs = {**SPEC, "mail": {"to": ["books@example.com"]}, "clean": {"stale_after": {"failed": "10d"}}}
    (tmp_path / "config" / "pipelines" / "books.yaml").write_text(yaml.safe_dump(theirs))
    road.write()
    for pipeline, days in (("prices", 3), ("books", 3), ("books", 11)):
        aged(fail(road, replace(TRANSFORM, pipeline=pipeline), DENIED)[0], days)
    tell(road)
    turns(road, Clock(), 3)
    stales = [mail for mail in inbox.mails if "stale" in mail["Subject"]]
    assert sorted((mail["To"], mail["Subject"]) for mail in stales) == [
        ("books@example.com", "[etl prod] 1 stale file, can wait until morning"),
        ("ops@example.com", "[etl prod] 1 stale file, can wait until morning"),
    ]
    assert all("x~" not in body(mail, "html") for mail in stales)


@pytest.mark.parametrize(
    "at", [f"{point}:{when}" for point in (Point.SPOOL, Point.NOTICED) for when in ("before", "after")]
)
def test_killed_while_it_is_told_it_is_one_mail(tmp_path: Path, at: str) -> None:
    inbox = Inbox(port=free_port())
    road = project(tmp_path, inbox)
    aged(fail(road, TRANSFORM, DENIED)[0], 3)
    killed(at, lambda: tell(road))
    with mailing(inbox):
        turns(road, Clock())
        tell(road)
        turns(road, Clock(), 3)
    stales = [mail for mail in inbox.mails if "stale" in mail["Subject"]]
    assert len({mail["Message-ID"] for mail in stales}) == 1


@pytest.mark.parametrize("point", [Point.SPOOL, Point.NOTICED])
@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
def test_a_disk_that_refuses_puts_it_off_and_stops_no_clean(tmp_path: Path, point: Point, error: str) -> None:
    road = project(tmp_path, Inbox(port=free_port()))
    aged(fail(road, TRANSFORM, DENIED)[0], 3)
    points.crash_at = f"{point}:before={error}"
    points.reached.clear()
    try:
        tell(road)
        assert points.reached
    finally:
        points.crash_at = ""
    tell(road)
    assert len({path.name for path in spool.waiting(road.layout)}) >= 1


def test_etl_clean_prints_and_mails_what_is_stale(tmp_path: Path, inbox: Inbox) -> None:
    road = project(tmp_path, inbox)
    aged(fail(road, TRANSFORM, DENIED)[0], 3)
    done = road.etl("clean", "--dry-run")
    assert "stale: 1 file in prices/transform/failed, the oldest for 3 days" in done.stdout.replace("\n", " ")
    assert list(spool.waiting(road.layout)) == []
    done = road.etl("clean", "--json")
    assert json.loads(done.stdout)["stale"], done.stderr
    assert len(list(spool.waiting(road.layout))) == 1
