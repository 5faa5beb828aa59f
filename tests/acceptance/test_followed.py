"""Under `etl up`: a verdict for every change and no other, and everybody who is to be told of it is told once."""

from __future__ import annotations

import io
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from etl.files import arrivals, callback_key, notes, spool, verdicts
from tests import road as roads
from tests.listening import Listener, listening
from tests.queue_helpers import wait_until
from tests.road import Road
from tests.supervising import Up, up

ROWS, PER_FILE = 5_000, 100
REPORTS = {
    "transform": {"read": "jsonl"},
    "load": {"locations": {"lake": {"kind": "files", "path": "reports"}}},
}


@pytest.fixture
def listener() -> Iterator[Listener]:
    with listening() as one:
        yield one


def hooks(url: str) -> list[dict[str, str]]:
    return [{"post": url}, {"start": "reports"}, {"notice": "look at it"}]


def project(root: Path, listener: Listener, locations: dict[str, Any], **transform: Any) -> Road:
    road = Road(
        root,
        {
            "transform": {"read": "csv", **transform},
            "load": {"locations": locations},
            "on_success": hooks(f"{listener.url}/success"),
            "on_failure": hooks(f"{listener.url}/failure"),
        },
        settings={"workers": 2, "scan": "1s", "reserve": "1MB", "callbacks": {"allow": [listener.url]}},
    )
    (root / "config" / "pipelines" / "reports.yaml").write_text(yaml.safe_dump(REPORTS))
    return road


def kept(road: Road, file_id: str) -> verdicts.Verdicts:
    return verdicts.read(road.layout, "books", file_id)


def ends(road: Road, file_id: str, number: int, running: Up, within: float = 60.0) -> verdicts.Record:
    """Wait until a verdict is there and all that follows it was tried, and give it."""

    def ended() -> verdicts.Record | None:
        told = kept(road, file_id)
        states = [one.state for what, one in told.followed.items() if what.startswith(f"{number}/")]
        return told.numbered(number) if states == ["told"] * 4 else None

    def said() -> str:
        return f"verdict {number}: {kept(road, file_id)} {running.text()[-3000:]}"

    try:
        record: verdicts.Record = wait_until(ended, "", within)
    except AssertionError:
        raise AssertionError(said()) from None
    return record


def reports(road: Road) -> list[str]:
    """Give which verdicts were started as files, by their derived names."""
    found = (road.data / "reports" / "extract" / "resolved").glob("*.json")
    return sorted(path.name.partition("~")[0] for path in found)


def test_5000_units_over_two_locations_one_flapping_each_change_is_told_once(
    memory_path: Path, listener: Listener, server: Any
) -> None:
    postgres = server.get_uri(driver="psycopg")
    locations = {
        "warehouse": {"kind": "sql", "url": postgres, "table": "books", "create": True},
        "lake": {"kind": "files", "path": "lake"},
    }
    schema = {"properties": {"id": {"type": "integer"}}}
    road = project(memory_path / "site", listener, locations, units_per_file=PER_FILE, schema=schema)
    body = "id\n" + "".join(f"{n}\n" for n in range(ROWS - 1)) + "wrong\n"
    waiting = arrivals.publish(
        road.layout, "books", io.BytesIO(body.encode()), "books.csv", {"callback": f"{listener.url}/callback"}
    )
    file_id = waiting.name.partition("~")[2].removesuffix(".csv")
    with up(road) as running:
        for _ in range(2):  # it flaps while its unit files come
            wait_until(lambda: len(road.files("load", "resolved")) > 1, running.text(), 60)
            server.stop()
            os.kill(running.pid("recorder"), signal.SIGKILL)
            server.start()
        first = ends(road, file_id, 1, running)
        assert "warehouse: away" in running.text()
        assert (first.verdict, first.rows, first.held_back) == ("partial", ROWS, 1)
        assert first.loaded == {"warehouse": ROWS - 1, "lake": ROWS - 1}
        bad = road.one("transform", "failed")
        bad.write_text(bad.read_text().replace("wrong", str(ROWS)))
        road.move_back(bad)
        second = ends(road, file_id, 2, running)
        assert (second.verdict, second.loaded) == ("resolved", {"warehouse": ROWS, "lake": ROWS})
        assert second.said == "partial before; 1 held back rows were corrected"
        wait_until(lambda: len(reports(road)) == 2, "both verdicts were worked by the other pipeline")
        # a ledger that is made anew fires nothing
        os.kill(running.pid("recorder"), signal.SIGKILL)
        for path in (road.layout.own / "ledger.db", *road.layout.own.glob("ledger.db-*")):
            path.unlink()
        (memory_path / "more.csv").write_text("id\n1\n")
        more = arrivals.deliver(road.layout, "books", memory_path / "more.csv").name
        other = more.partition("~")[2].removesuffix(".csv")
        wait_until(lambda: len(kept(road, other).followed) == 3, running.text()[-3000:], 60)
        assert running.stop() == 0
    assert [record.number for record in kept(road, file_id).records] == [1, 2]
    assert [record.number for record in kept(road, other).records] == [1]
    keys = Counter(call.headers["idempotency-key"] for call in listener.calls)
    assert set(keys.values()) == {1}
    calls = listener.at("/callback")
    assert [(call.told["number"], call.told["verdict"]) for call in calls] == [
        (1, "partial"),
        (2, "resolved"),
    ]
    assert all(call.is_signed(callback_key.read(road.layout)) for call in listener.calls)
    assert (len(listener.at("/failure")), len(listener.at("/success"))) == (1, 2)
    assert reports(road)[:2] == [f"books-{file_id}-1", f"books-{file_id}-2"]
    assert roads.count(postgres, "books") == ROWS + 1
    assert list(spool.waiting(road.layout)) == []


def test_the_callback_of_an_expired_message_is_told(tmp_path: Path, listener: Listener) -> None:
    road = project(tmp_path, listener, {"lake": {"kind": "files", "path": "lake"}})
    waiting = arrivals.publish(
        road.layout,
        "books",
        io.BytesIO(b"id\n1\n"),
        "m.csv",
        {"callback": f"{listener.url}/callback", "expires": "2020-01-01T00:00:00+00:00"},
    )
    file_id = waiting.name.partition("~")[2].removesuffix(".csv")
    with up(road) as running:
        assert ends(road, file_id, 1, running).verdict == "failed"
        told = road.etl("show", file_id, "--json")
        assert told.returncode == 0, told.stderr
    (call,) = listener.at("/callback")
    assert (call.told["id"], call.told["verdict"]) == (file_id, "failed")
    note = notes.read_source(road.layout, "books", file_id)
    assert note is not None and json.loads(call.body)["name"] == note.given
    assert "expired at" in road.reason(road.one("extract", "failed"))["summary"]
