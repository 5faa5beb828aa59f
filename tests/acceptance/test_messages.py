"""Messages under `etl up`, and the commands around them: what is urgent, what waits, what came too late (P8)."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import etl
from etl.config import reading
from etl.files import arrivals, names
from etl.queues import connection
from etl.services import records
from tests.queue_helpers import wait_until
from tests.road import Road
from tests.supervising import up

#: says when each message was begun and ended.
HANDLER = """
import json, os, time
from pathlib import Path

LOG = Path(__file__).parents[2] / "handled.jsonl"

def handle(row, file):
    begun = time.time()
    time.sleep(row.get("seconds", 0))
    line = json.dumps({"id": file.id, "key": file.headers.get("key"), "begun": begun, "ended": time.time()})
    with LOG.open("a") as log:
        log.write(line + "\\n")
    return row
"""


def project(root: Path, **settings: Any) -> Road:
    spec = {
        "extract": {"complete": {"settle": "100ms"}},
        "transform": {"read": "jsonl", "handler": "handler:handle"},
        "load": {"locations": {"lake": {"kind": "files", "path": "lake"}}},
        "types": {"order": None},
    }
    settings = {"workers": 1, "scan": "60s", "reserve": "1MB", **settings}
    return Road(root, spec, handlers={"handler": HANDLER}, settings=settings)


@pytest.fixture
def road(tmp_path: Path) -> Road:
    return project(tmp_path)


def publish(road: Road, body: object = None, **told: str) -> str:
    return etl.publish("books", body or {"n": 1}, told, config=road.root / "config")


def handled(road: Road) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in (road.root / "handled.jsonl").read_text().splitlines()]
    except FileNotFoundError:
        return []


def of(road: Road, file_id: str) -> dict[str, Any]:
    """Wait until a message was handled, and give when."""
    found = wait_until(
        lambda: [one for one in handled(road) if one["id"] == file_id], f"{file_id} is handled", 60
    )
    return dict(found[0])


def flush(road: Road) -> None:
    config = reading.read(road.root / "config")
    with connection.connect(config.settings.redis, config.data) as client:
        client.flushall()


def works(road: Road) -> bool:
    return {"dropbox", "workers"} <= {one.name for one in records.living(road.data)}


def resolved_after(road: Road, moment: float) -> list[tuple[float, str]]:
    """Give what extract has resolved since a moment, in that order, by id."""
    found = []
    for path in road.files("extract", "resolved"):
        file = names.parse("books", path.name)
        if file and (moved := path.stat().st_mtime) >= moment:
            found.append((moved, file.id))
    return sorted(found)


# --- under `etl up`


def test_a_high_message_behind_5000_low_ones_is_started_next(memory_path: Path) -> None:
    road = project(memory_path)
    for _ in range(5_000):
        arrivals.publish(road.layout, "books", io.BytesIO(b"{}\n"), "low.json", {"priority": "low"})
    with up(road) as running:
        wait_until(
            lambda: len(road.files("extract", "resolved")) > 20, f"low ones are worked: {running.text()}", 60
        )
        high = publish(road, priority="high")
        returned = time.time()
        of(road, high)
        order = [file_id for _, file_id in resolved_after(road, returned)]
        # one was in hand, and one may have been taken while the job of this one was made
        assert order.index(high) <= 2
        assert len(road.files("extract", "working")) > 3_000
        # its transform did not wait for the others either
        assert [one["id"] for one in handled(road)] == [high]


def test_a_delayed_message_starts_on_time_also_when_redis_was_flushed_meanwhile(road: Road) -> None:
    with up(road):
        wait_until(lambda: works(road), "all run", 30)
        begin = time.time()
        delayed = publish(road, delay="4s")
        at_once = publish(road)
        of(road, at_once)
        flush(road)
        begun = of(road, delayed)["begun"] - begin
    # the next scan would have come after 60 s
    assert 4.0 <= begun < 45.0


def test_a_message_that_expired_before_anybody_worked_it_is_in_failed_with_its_reason(road: Road) -> None:
    expired = publish(road, expires="50ms")
    with up(road):
        done = road.etl("wait", expired, "--timeout", "30s", "--json")
        assert done.returncode == 1, done.stderr
        assert json.loads(done.stdout)["verdict"] == "failed"
        told = road.etl("status", expired).stdout
    assert f"books/extract/failed/message~{expired}.json" in told
    assert "expired at" in told
    assert handled(road) == []


def test_messages_of_one_key_are_never_worked_at_once(tmp_path: Path) -> None:
    road = project(tmp_path, workers=3)
    with up(road) as running:
        wait_until(lambda: works(road), "all run", 30)
        for number in range(16):
            publish(road, {"seconds": 0.1}, key="ab"[number % 2])
        # without a scan: whoever gives a key back announces the next
        wait_until(lambda: len(handled(road)) == 16, f"all are handled: {running.text()}", 45)
        found = handled(road)
        wait_until(lambda: len(road.files("load", "resolved")) == 16, "all are loaded")
    for key in "ab":
        ours = sorted((one["begun"], one["ended"]) for one in found if one["key"] == key)
        assert all(before[1] <= after[0] for before, after in pairwise(ours))
    spans = sorted((one["begun"], one["ended"], one["key"]) for one in found)
    assert any(after[0] < before[1] for before, after in pairwise(spans))
    assert road.broken_promises() == []


# --- the commands


def command(road: Road, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run the real command with something on its standard input."""
    return subprocess.run(
        [sys.executable, "-m", "etl", "--config", str(road.root / "config"), *arguments],
        cwd=road.root,
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_publish_prints_an_id_by_which_status_and_wait_know_the_message(road: Road) -> None:
    url = "https://hooks.example.com/secret-token"
    done = command(
        road, "publish", "books", "--header", "tenant=acme", "--header", f"callback={url}", text='{"n": 1}'
    )
    assert done.returncode == 0, done.stderr
    file_id = done.stdout.strip()
    assert "callbacks.allow" in done.stderr and "next scan" in done.stderr
    told = road.etl("status", file_id)
    assert f"books/extract/working/message~{file_id}.json" in told.stdout
    assert "acme" in told.stdout and "hooks.example.com" in told.stdout
    for shown in (
        told.stdout,
        road.etl("status", file_id, "--json").stdout,
        road.etl("show", file_id, "--json").stdout,
    ):
        assert "secret-token" not in shown
    late = road.etl("wait", file_id, "--timeout", "100ms")
    assert late.returncode == 2 and "has not ended after 100ms" in late.stderr
    assert road.etl("run", "books", "--inline").returncode == 0
    ended = road.etl("wait", file_id[:12])
    assert (ended.returncode, ended.stdout) == (0, "resolved\n")
    assert json.loads(road.etl("status", file_id, "--json").stdout)["verdict"] == "resolved"


def test_publish_takes_a_file_or_standard_input_and_lets_the_type_choose_the_pipeline(road: Road) -> None:
    (road.root / "mine.jsonl").write_text('{"n": 1}\n')
    for arguments, name in (
        (["books", "mine.jsonl"], "mine~"),
        (["mine.jsonl", "--header", "type=order"], "mine~"),
        (["-", "--header", "type=order"], "message~"),
        (["--header", "type=order", "--name", "other.jsonl"], "other~"),
        (["books", "-"], "message~"),
    ):
        done = command(road, "publish", *arguments, "--json", text="[1]")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert (told["pipeline"], told["name"].startswith(name)) == ("books", True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["books", "nowhere.json"], "cannot read 'nowhere.json'"),
        (["boks"], "did you mean 'books'?"),
        ([], "neither a pipeline nor the header `type`"),
        (["books", "--header", "type=ordr"], "did you mean 'order'?"),
        (["--header", "type=ordr"], "did you mean 'order'?"),
        (["books", "--header", "priority"], "is not name=value"),
        (["books", "--header", "a=1", "--header", "a=2"], "given twice"),
        (["books", "--header", "delay=soon"], "for example 30s"),
        (["books", "--name", "x.tmp"], "no name for a message"),
    ],
)
def test_what_cannot_be_published_is_said_with_exit_2_and_nothing_is_written(
    road: Road, arguments: list[str], said: str
) -> None:
    done = command(road, "publish", *arguments, text="{}")
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr and "Traceback" not in done.stderr
    assert list((road.data / "books" / ".notes").iterdir()) == []


def test_publish_is_refused_while_the_disk_has_no_room(road: Road) -> None:
    road.settings["reserve"] = "9000TB"
    road.write()
    done = command(road, "publish", "books", text="{}")
    assert done.returncode == 2 and "are free" in done.stderr


def test_a_header_that_is_nearly_a_known_one_is_said_to_be(road: Road) -> None:
    assert (
        "did you mean 'priority'?"
        in command(road, "publish", "books", "-H", "prioritiy=high", text="{}").stderr
    )


def test_wait_and_status_say_so_when_there_is_no_such_message(road: Road) -> None:
    done = road.etl("wait", "01k3f9a2m1qz7hd4")
    assert done.returncode == 2 and "there is no message" in done.stderr
    assert road.etl("status", "01k3f9a2m1qz7hd4").returncode == 2


def test_wait_gives_1_when_a_message_was_discarded(road: Road) -> None:
    file_id = publish(road, "no json at all")
    road.work()
    assert road.etl("wait", file_id).returncode == 1
    assert road.etl("discard", file_id, "--because", "a trial").returncode == 0
    assert road.etl("wait", file_id, "--timeout", "5s").returncode == 1
