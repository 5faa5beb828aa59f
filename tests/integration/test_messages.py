"""Messages on their road: headers reach the handler, types choose it, time and keys are kept. All on real folders."""

from __future__ import annotations

import io
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

import etl
from etl.app import App
from etl.config import reading
from etl.errors import ConfigError, UnsafeName
from etl.files import arrivals, headers, key_locks, notes, spool
from etl.model import Failed, PutOff, Resolved, Skipped, Waiting
from etl.queues.enqueue import InlineAnnouncer
from etl.services import checking, mending
from etl.services.doorkeeper import Doorkeeper
from etl.stages import run
from tests.road import Road

HANDLER = """
import json, os
from pathlib import Path

def own(row, file):
    return {**row, "by": "own", "headers": json.dumps(dict(file.headers), sort_keys=True)}

def order(row, file):
    return {**row, "by": "order", "headers": json.dumps(dict(file.headers), sort_keys=True)}
"""


@pytest.fixture
def road(tmp_path: Path) -> Road:
    spec = {
        "transform": {"read": "jsonl", "handler": "handler:own"},
        "load": {"locations": {"lake": {"kind": "files", "path": "lake"}}},
        "types": {"order": "handler:order", "stock": None},
    }
    return Road(tmp_path, spec, handlers={"handler": HANDLER}, settings={"reserve": "1MB"})


def lake(road: Road) -> list[dict[str, Any]]:
    found = sorted(road.root.glob("lake/*.jsonl"))
    return [json.loads(line) for path in found for line in path.read_text().splitlines()]


def publish(road: Road, given: dict[str, str], body: object = None, pipeline: str | None = "books") -> str:
    return etl.publish(pipeline, {"n": 1} if body is None else body, given, config=road.root / "config")


def stored(road: Road, **told: str) -> Waiting:
    """Put in a message with headers as they are stored, whatever publishing would say of them."""
    return arrivals.publish(road.layout, "books", io.BytesIO(b'{"n": 1}\n'), "message.json", told)


def test_a_message_is_loaded_and_its_handler_sees_the_headers(road: Road) -> None:
    publish(road, {"tenant": "acme"})
    road.work()
    (row,) = lake(road)
    assert (row["n"], row["by"], json.loads(row["headers"])) == (1, "own", {"tenant": "acme"})


@pytest.mark.parametrize(
    ("body", "suffix"),
    [
        ({"n": 1}, ".json"),
        ([{"n": 1}], ".json"),
        ('{"n": 1}', ".json"),
        (b'  {"n": 1}', ".json"),
        ("plain", ".txt"),
        (b"", ".txt"),
    ],
)
def test_a_body_without_a_name_is_named_by_what_it_is(road: Road, body: object, suffix: str) -> None:
    publish(road, {}, body)
    name = road.one("extract", "working").name
    assert name.startswith("message~") and name.endswith(suffix)


def test_a_file_is_published_under_its_name(road: Road) -> None:
    (road.root / "mine.jsonl").write_text('{"n": 2}\n')
    file_id = publish(road, {}, road.root / "mine.jsonl")
    source = notes.read_source(road.layout, "books", file_id)
    assert source is not None and (source.given, source.origin) == ("mine.jsonl", "published")
    road.work()
    assert [row["n"] for row in lake(road)] == [2]


# --- types


def test_the_type_chooses_pipeline_and_handler(road: Road) -> None:
    publish(road, {"type": "order"}, pipeline=None)
    publish(road, {"type": "stock"}, pipeline=None)
    road.work()
    assert sorted(row["by"] for row in lake(road)) == ["order", "own"]


def test_the_handler_of_a_type_is_part_of_the_recipe(road: Road) -> None:
    publish(road, {"type": "order"}, pipeline=None)
    road.work()
    road.move_back(road.one("transform", "resolved"))
    road.work()
    assert road.note(road.one("transform", "resolved")).generation == 1
    road.handle(HANDLER.replace('"by": "order"', '"by": "order 2"'))
    road.move_back(road.one("transform", "resolved"))
    road.work()
    assert road.note(road.one("transform", "resolved")).generation == 2


def test_an_unknown_type_is_refused_with_the_near_word_and_nothing_is_written(road: Road) -> None:
    for pipeline in (None, "books"):
        with pytest.raises(ConfigError, match="did you mean 'order'"):
            publish(road, {"type": "ordr"}, pipeline=pipeline)
    assert road.files("extract", "working") == []
    assert list((road.data / "books" / ".notes").iterdir()) == []


def test_a_message_whose_type_is_no_longer_configured_fails_with_that_reason(road: Road) -> None:
    stored(road, type="gone")
    road.work()
    reason = road.reason(road.one("extract", "failed"))
    assert "has no type 'gone'" in reason["summary"] and "types:" in reason["next"]


def test_a_pipeline_without_types_takes_any(road: Road) -> None:
    del road.spec["types"]
    road.write()
    publish(road, {"type": "whatever"})
    road.work()
    assert lake(road)[0]["by"] == "own"


def test_a_type_that_two_pipelines_have_is_found_by_check(road: Road) -> None:
    other = road.root / "config" / "pipelines" / "other.yaml"
    other.write_text((road.root / "config" / "pipelines" / "books.yaml").read_text())
    with pytest.raises(ConfigError, match=r"more than one pipeline has the type 'order'.*books.yaml:\d+"):
        publish(road, {"type": "order"}, pipeline=None)
    problems = [one.problem for one in checking.check(reading.read(road.root / "config")) if one.problem]
    assert len(problems) == 2 and all("more than one pipeline has the type" in one for one in problems)


def test_a_handler_of_a_type_that_is_not_there_is_found_by_check(road: Road) -> None:
    road.spec["types"]["stock"] = "nowhere:handler"
    road.write()
    problems = [one.problem for one in checking.check(reading.read(road.root / "config")) if one.problem]
    assert len(problems) == 1 and "types.stock" in problems[0]


def test_the_callback_of_a_message_that_came_before_anything_ever_ran_is_not_forgotten(road: Road) -> None:
    file_id = publish(road, {"callback": "https://hooks.example.com/"})
    road.work()
    (record,) = road.judge()
    assert record.verdict == "resolved"
    assert [path.name for path in spool.of(road.layout, "books", file_id)] == [
        f"books~{file_id}~1~callback.json"
    ]


# --- refusals


def test_a_name_that_is_not_accepted_is_refused_and_nothing_is_written(road: Road) -> None:
    road.spec["extract"] = {"accept": ["*.jsonl"]}
    road.write()
    with pytest.raises(ConfigError, match=r"does not accept the name 'message\.json'"):
        publish(road, {})
    with pytest.raises(ConfigError, match="no name for a message"):
        etl.publish("books", "x", name=".hidden", config=road.root / "config")
    assert list((road.data / "books" / ".notes").iterdir()) == []


def test_a_folder_is_no_body(road: Road) -> None:
    with pytest.raises(UnsafeName, match="is not a regular file"):
        publish(road, {}, road.root)


def test_a_body_that_json_cannot_hold_is_refused(road: Road) -> None:
    with pytest.raises(ConfigError, match="JSON value"):
        publish(road, {}, {1, 2})


# --- time


def test_a_delayed_message_waits_with_its_time_in_its_note(road: Road) -> None:
    file_id = publish(road, {"delay": "1h"})
    path = road.one("extract", "working")
    assert road.note(path).not_before == pytest.approx(time.time() + 3600, abs=5)
    assert road.work() == []
    # whatever a lost doorbell or a person makes of it, it is not begun before
    assert isinstance(road.perform(path), Skipped)
    assert road.one("extract", "working").name == path.name
    assert file_id in path.name


def test_a_delayed_message_is_announced_when_its_time_has_come_and_not_by_the_next_scan(
    road: Road, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [time.time()]
    stored(road, not_before=headers.read({"delay": "10s"}, now[0])["not_before"])
    monkeypatch.setattr(time, "time", lambda: now[0])
    app = App.open(reading.read(road.root / "config"), InlineAnnouncer())
    door = Doorkeeper(app, drops=True, clock=lambda: now[0])
    mending.Mender(app, set, drops=True, door=door).mend(["books"])
    assert door.turn() == [] and door.standing == 0
    assert 9 < door.wanted() <= 10.001
    now[0] += 10.01
    assert [one.name for one in door.turn()] == [road.one("extract", "working").name]
    assert door.turn() == []


def test_a_file_that_was_put_off_is_looked_at_when_it_is_due(
    road: Road, monkeypatch: pytest.MonkeyPatch
) -> None:
    road.handle("from etl import Retryable\ndef own(row):\n    raise Retryable('later')\n")
    publish(road, {})
    assert isinstance(road.work()[-1], PutOff)
    path = road.one("transform", "working")
    now = [time.time()]
    monkeypatch.setattr(time, "time", lambda: now[0])
    door = Doorkeeper(
        App.open(reading.read(road.root / "config"), InlineAnnouncer()), drops=True, clock=lambda: now[0]
    )
    door.touched(road.place("transform"), path.name, renamed=True)
    assert door.turn() == []
    now[0] += 10.01
    assert [one.name for one in door.turn()] == [path.name]


def test_an_expired_message_is_failed_with_its_reason(road: Road) -> None:
    stored(road, expires="2026-01-01T00:00:00.000+00:00")
    (outcome,) = road.work()
    assert isinstance(outcome, Failed)
    failed = road.one("extract", "failed")
    assert road.reason(failed)["summary"].startswith("expired at 2026-01-01T00:00:00.000+00:00; published 20")
    assert "publish it again" in road.reason(failed)["next"]
    assert road.note(failed).ended == "failed"
    road.move_back(failed)
    assert isinstance(road.work()[0], Failed)


def test_a_message_that_expires_between_extract_and_transform_is_failed_there(road: Road) -> None:
    publish(road, {"expires": "300ms"})
    assert isinstance(road.perform(road.one("extract", "working")), Resolved)
    until = headers.expires(next(iter_sources(road)).headers)
    while time.time() <= until:
        time.sleep(max(0.001, until - time.time()))
    road.work()
    assert road.reason(road.one("transform", "failed"))["summary"].startswith("expired at")


def test_a_message_that_was_begun_in_time_can_be_worked_again_when_it_has_expired(road: Road) -> None:
    waiting = stored(road, expires=headers.read({"expires": "1h"})["expires"])
    road.work()
    source = next(iter_sources(road))
    expired = dict(source.headers) | {"expires": "2026-01-01T00:00:00.000+00:00"}
    path = road.layout.source_note("books", source.id)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"headers": expired}))
    road.handle(HANDLER.replace('"by": "own"', '"by": "fixed"'))
    os.rename(
        road.folder("transform", "resolved") / waiting.name,
        road.folder("transform", "working") / waiting.name,
    )
    road.work()
    assert road.note(road.one("transform", "resolved")).generation == 2


def iter_sources(road: Road) -> Any:
    for path in (road.data / "books" / ".notes").glob("*.json"):
        yield notes.read_source(road.layout, "books", path.name.removesuffix(".json"))


# --- priority


def test_what_is_high_is_worked_before_what_waits_and_children_inherit_it(road: Road) -> None:
    ids = {priority: publish(road, {"priority": priority}) for priority in ("low", "normal", "high")}
    begun = []
    with road.opened() as app:
        mending.Mender(app, set, drops=True).mend(["books"])
        assert isinstance(app.announcer, InlineAnnouncer)
        while work := app.announcer.take():
            begun.append(str(work.arguments["name"]).partition("~")[2][:16])
            place = road.place(work.function.rpartition(".")[2])
            run.perform(app, Waiting(place=place, name=str(work.arguments["name"])))
    assert begun == [ids["high"]] * 3 + [ids["normal"]] * 3 + [ids["low"]] * 3


def test_workers_listen_to_all_that_is_high_first(road: Road) -> None:
    road.spec["load"]["queue"] = "heavy"
    road.write()
    with road.opened() as app:
        assert app.queues() == ["default", "heavy"]
        assert app.lanes() == [
            *("default-high", "heavy-high", "default", "heavy", "default-low", "heavy-low")
        ]
        assert app.lanes(["heavy"]) == ["heavy-high", "heavy", "heavy-low"]


# --- keys


def test_a_job_that_finds_its_key_taken_leaves_word_and_is_announced_by_whoever_had_it(road: Road) -> None:
    first, second, third = (stored(road, key="acme") for _ in range(3))
    with road.opened() as app:
        assert isinstance(app.announcer, InlineAnnouncer)
        lock = key_locks.take(app.layout, "acme")
        assert lock is not None
        for waiting in (third, second):
            assert isinstance(run.perform(app, waiting), Skipped)
        # they have left word, so no scan announces them while the key is taken; the first has not
        mending.Mender(app, set, drops=True).mend(["books"])
        announced = []
        while work := app.announcer.take():
            announced.append(work.arguments["name"])
        assert announced == [first.name]
        lock.release()
        assert isinstance(run.perform(app, first), Resolved)
        # its own transform, and the older of those who wait
        announced = [app.announcer.take().arguments["name"] for _ in range(2)]  # type: ignore[union-attr]
        assert announced == [first.name, min(second.name, third.name)]
        assert app.announcer.take() is None
    assert road.broken_promises() == []
    road.work()
    assert len(lake(road)) == 3
    assert list((road.data / ".etl" / "keys").iterdir()) == []


def test_when_whoever_had_a_key_was_killed_the_next_scan_announces_who_wait(road: Road) -> None:
    waiting = stored(road, key="acme")
    with road.opened() as app:
        lock = key_locks.take(app.layout, "acme")
        assert lock is not None
        assert isinstance(run.perform(app, waiting), Skipped)
        lock.release()  # what the kernel does for a process that is gone: nobody is announced
    road.work()
    assert len(lake(road)) == 1


def test_word_of_a_file_that_no_longer_waits_is_forgotten(road: Road) -> None:
    first, second = (stored(road, key="acme") for _ in range(2))
    with road.opened() as app:
        lock = key_locks.take(app.layout, "acme")
        assert lock is not None
        run.perform(app, second)
        lock.release()
        (road.folder("extract", "working") / second.name).unlink()
        run.perform(app, first)
    assert list(key_locks.in_line(road.layout, "acme")) == []
