"""What follows a verdict: each hook and callback once per verdict, signed, recorded, and only where it may go (P22)."""

from __future__ import annotations

import io
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller

from etl.files import arrivals, headers, names, spool, verdicts
from etl.services import courier
from etl.services.following import Follower
from tests.listening import Listener, listening
from tests.queue_helpers import wait_until
from tests.road import Road, query
from tests.supervising import up

SECRET = "between us"


@pytest.fixture
def listener() -> Iterator[Listener]:
    with listening() as found:
        yield found


def project(root: Path, listener: Listener | None, *, allow: bool = True, **spec: Any) -> Road:
    callbacks = {"secret": SECRET, "allow": [listener.url] if listener and allow else []}
    return Road(
        root,
        {
            "extract": {"complete": {"settle": "100ms"}},
            "transform": {"read": "jsonl", "schema": {"properties": {"n": {"type": "integer"}}}},
            "load": {"locations": {"lake": {"kind": "files", "path": "lake"}}},
            **spec,
        },
        settings={"callbacks": callbacks, "scan": "5s", "reserve": "1MB"},
    )


def publish(road: Road, body: str = '{"n": 1}\n', **told: str) -> str:
    waiting = arrivals.publish(
        road.layout, road.pipeline, io.BytesIO(body.encode()), "m.jsonl", headers.read(told)
    )
    file = names.parse(road.pipeline, waiting.name)
    assert file is not None
    return file.id


def conclude(road: Road, **told: Any) -> None:
    road.work()
    road.judge()
    road.follow(**told)


def followed(road: Road, file_id: str) -> dict[str, str]:
    told = verdicts.read(road.layout, road.pipeline, file_id).followed
    return {key: one.state for key, one in told.items()}


def said(road: Road, file_id: str, key: str) -> str:
    return verdicts.read(road.layout, road.pipeline, file_id).followed[key].said


# --- telling ------------------------------------------------------------------------------------------------


def test_a_callback_is_told_the_verdict_once_and_signed(tmp_path: Path, listener: Listener) -> None:
    road = project(tmp_path, listener)
    file_id = publish(road, callback=f"{listener.url}/done?token=x")

    conclude(road)
    road.judge()
    road.follow()

    (posted,) = listener.posted
    assert posted.path == "/done?token=x"
    assert posted.is_signed_with(SECRET)
    assert not posted.is_signed_with("another")
    assert posted.headers["Idempotency-Key"] == f"books/{file_id}/1"
    assert posted.facts["id"] == file_id
    assert (posted.facts["verdict"], posted.facts["loaded"], posted.facts["number"]) == (
        "resolved",
        {"lake": 1},
        1,
    )
    assert followed(road, file_id) == {"1/callback": "told"}
    note = verdicts.path(road.layout, "books", file_id).read_text()
    assert "token" not in note
    assert list(spool.waiting(road.layout)) == []
    assert road.broken_promises() == []


def test_without_a_secret_of_the_operators_one_is_made_for_us_alone(
    tmp_path: Path, listener: Listener
) -> None:
    road = project(tmp_path, listener)
    del road.settings["callbacks"]["secret"]
    road.write()
    publish(road, callback=f"{listener.url}/done")
    conclude(road)

    key = road.data / ".etl" / "callback.key"
    assert listener.posted[0].is_signed_with(key.read_text().strip())
    assert key.stat().st_mode & 0o777 == 0o600


def test_a_hook_posts_each_verdict_once(tmp_path: Path, listener: Listener) -> None:
    road = project(
        tmp_path,
        listener,
        on_success=[{"post": f"{listener.url}/good"}],
        on_failure=[{"post": f"{listener.url}/bad"}],
    )
    file_id = publish(road, '{"n": 1}\n{"n": "x"}\n')
    conclude(road)
    assert [one.facts["verdict"] for one in listener.at("/bad")] == ["partial"]

    path = road.one("transform", "failed")
    path.write_text(path.read_text().replace('"x"', "2"))
    road.move_back(path)
    conclude(road)

    (good,) = listener.at("/good")
    assert (good.facts["verdict"], good.facts["number"]) == ("resolved", 2)
    assert len(listener.posted) == 2
    assert followed(road, file_id) == {"1/on_failure-1": "told", "2/on_success-1": "told"}


def test_a_receiver_that_is_away_is_tried_again_until_it_answers(tmp_path: Path) -> None:
    with listening() as listener:
        port = listener.port
    road = project(tmp_path, listener)
    file_id = publish(road, callback=f"{listener.url}/done")
    conclude(road)
    assert followed(road, file_id) == {"1/callback": "waiting"}
    road.follow()  # not due yet
    assert verdicts.read(road.layout, "books", file_id).followed["1/callback"].tries == 1

    with listening(port) as listener, road.opened() as app:
        later = courier.Courier(app, Follower(app), clock=lambda: time.time() + 11)
        listener.answers["/done"] = (503, {})
        later.turn()
        listener.answers.clear()
        courier.Courier(app, Follower(app), clock=lambda: time.time() + 60).turn()

    assert followed(road, file_id) == {"1/callback": "told"}
    assert len(listener.posted) == 2
    assert {one.headers["Idempotency-Key"] for one in listener.posted} == {f"books/{file_id}/1"}


def test_after_a_day_nothing_more_is_tried_and_that_is_recorded(tmp_path: Path, listener: Listener) -> None:
    road = project(tmp_path, listener)
    listener.answers["/done"] = (503, {})
    file_id = publish(road, callback=f"{listener.url}/done")
    road.work()
    road.judge()
    with road.opened() as app:
        courier.Courier(app, Follower(app), clock=lambda: time.time() + 2 * 86_400).turn()

    assert followed(road, file_id) == {"1/callback": "failed"}
    assert "given up after 1 tries" in said(road, file_id, "1/callback")
    assert list(spool.waiting(road.layout)) == []


@pytest.mark.parametrize(("status", "state"), [(400, "failed"), (410, "failed"), (429, "waiting")])
def test_an_answer_that_is_final_is_not_tried_again(
    tmp_path: Path, listener: Listener, status: int, state: str
) -> None:
    road = project(tmp_path, listener)
    listener.answers["/done"] = (status, {})
    file_id = publish(road, callback=f"{listener.url}/done")
    conclude(road)
    assert followed(road, file_id) == {"1/callback": state}


def test_what_was_spooled_for_a_verdict_that_was_never_recorded_is_dropped(
    tmp_path: Path, listener: Listener
) -> None:
    road = project(tmp_path, listener, on_success=[{"post": f"{listener.url}/good"}])
    file_id = publish(road)
    road.work()
    payload = {"verdict": "resolved"}
    spool.put(
        road.layout,
        spool.Item(what="on_success-1", pipeline="books", file_id=file_id, number=1, payload=payload),
    )
    road.follow()
    assert listener.posted == []
    assert list(spool.waiting(road.layout)) == []
    conclude(road)
    assert len(listener.posted) == 1


# --- starting another pipeline, telling people --------------------------------------------------------------


def test_a_hook_starts_another_pipeline_once(tmp_path: Path) -> None:
    road = project(tmp_path, None, on_success=[{"start": "sums"}])
    spec = {
        "transform": {"read": "json"},
        "load": {"locations": {"lake": {"kind": "files", "path": "sums"}}},
    }
    other = Road(tmp_path, spec, "sums", settings=road.settings, fresh=False)
    other.write()
    file_id = publish(road)
    conclude(road)
    note = verdicts.path(road.layout, "books", file_id)
    facts = json.loads(note.read_text())
    del facts["followed"]
    note.write_text(json.dumps(facts))
    record = verdicts.read(road.layout, "books", file_id).last
    assert record is not None
    item = spool.Item(what="on_success-1", pipeline="books", file_id=file_id, number=1)
    spool.put(road.layout, replace(item, payload={"verdict": "resolved"}))  # as after a crash
    road.follow()

    other.work()

    (started,) = other.files("extract", "resolved")
    assert started.name.startswith(f"books-{file_id}-1~")
    (unit,) = [
        json.loads(line)
        for path in (tmp_path / "sums").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert (unit["id"], unit["verdict"]) == (file_id, "resolved")
    assert followed(road, file_id) == {"1/on_success-1": "told"}


def test_a_pipeline_that_is_not_there_is_told_by_check_and_recorded(tmp_path: Path) -> None:
    road = project(tmp_path, None, on_success=[{"start": "sumz"}])
    checked = road.etl("check")
    assert checked.returncode == 2
    assert "there is no pipeline 'sumz'" in checked.stdout + checked.stderr
    file_id = publish(road)
    conclude(road)
    assert followed(road, file_id) == {"1/on_success-1": "failed"}


def test_a_notice_goes_by_mail_and_adds_no_header(tmp_path: Path) -> None:
    heard: list[Any] = []

    class Inbox:
        async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
            heard.append(envelope)
            return "250 OK"

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    inbox = Controller(Inbox(), hostname="127.0.0.1", port=port)
    inbox.start()
    try:
        road = project(tmp_path, None, on_failure=[{"notice": "look\r\nBcc: eve@example.com"}])
        road.settings["mail"] = {
            "smtp": f"smtp://127.0.0.1:{port}",
            "from": "etl@example.com",
            "to": ["ops@example.com"],
        }
        road.write()
        file_id = publish(road, '{"n": "x"}\n')
        conclude(road)
    finally:
        inbox.stop()

    (envelope,) = heard
    text = envelope.content.decode()
    assert envelope.rcpt_tos == ["ops@example.com"]
    head = text.partition("\r\n\r\n")[0]
    assert "Subject: [etl] books: m.jsonl is failed" in head
    assert "Bcc" not in head
    assert followed(road, file_id) == {"1/on_failure-1": "told"}


def test_a_run_in_the_foreground_gives_the_verdict_and_tries_what_follows(
    tmp_path: Path, listener: Listener
) -> None:
    road = project(
        tmp_path, listener, on_success=[{"post": f"{listener.url}/good"}, {"notice": "it is there"}]
    )
    source = tmp_path / "m.jsonl"
    source.write_text('{"n": 1}\n')
    ran = road.etl("run", "books", str(source), "--inline")
    assert ran.returncode == 0, ran.stderr
    assert "it is there" in ran.stderr
    assert [one.facts["verdict"] for one in listener.posted] == ["resolved"]


# --- where it may not go ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/x",
        "http://localhost:{port}/x",
        "http://[::1]:{port}/x",
        "http://[::ffff:127.0.0.1]:{port}/x",
        "http://2130706433:{port}/x",
        "http://0177.0.0.1:{port}/x",
        "http://0.0.0.0:{port}/x",
        "http://169.254.169.254/latest/meta-data",
        "https://[fe80::1]/x",
        "https://user@127.0.0.1/x",
        "https://hooks.example.com\\@127.0.0.1/x",
    ],
)
@pytest.mark.parametrize("allow", [[], ["*"], ["http://*:{port}"], ["*.example.com"]], ids=str)
def test_a_callback_into_our_own_network_is_refused_and_recorded(
    tmp_path: Path, listener: Listener, url: str, allow: list[str]
) -> None:
    road = project(tmp_path, listener)
    road.settings["callbacks"]["allow"] = [one.format(port=listener.port) for one in allow]
    road.write()
    file_id = publish(road)
    road.work()
    note = road.layout.source_note("books", file_id)  # as a producer who writes notes himself could
    facts = json.loads(note.read_text()) | {"headers": {"callback": url.format(port=listener.port)}}
    note.write_text(json.dumps(facts))

    road.judge()
    road.follow()

    assert listener.posted == []
    assert followed(road, file_id) == {"1/callback": "refused"}
    assert said(road, file_id, "1/callback")


def test_a_redirect_is_not_followed(tmp_path: Path, listener: Listener) -> None:
    road = project(tmp_path, listener)
    listener.answers["/done"] = (307, {"Location": f"{listener.url}/elsewhere"})
    file_id = publish(road, callback=f"{listener.url}/done")
    conclude(road)
    assert [one.path for one in listener.posted] == ["/done"]
    assert followed(road, file_id) == {"1/callback": "refused"}
    assert "redirects are not followed" in said(road, file_id, "1/callback")


def test_a_name_that_leads_home_is_refused_though_it_is_on_the_list(
    tmp_path: Path, listener: Listener
) -> None:
    road = project(tmp_path, listener)
    road.settings["callbacks"]["allow"] = [f"http://hooks.example.com:{listener.port}"]
    road.write()
    file_id = publish(road, callback=f"http://hooks.example.com:{listener.port}/done")
    conclude(road, resolve=lambda host, port: ["93.184.216.34", "127.0.0.1"])
    assert listener.posted == []
    assert followed(road, file_id) == {"1/callback": "refused"}


# --- under `etl up` -----------------------------------------------------------------------------------------


def test_five_thousand_units_at_two_locations_one_flapping_one_verdict_per_change(
    tmp_path: Path, listener: Listener
) -> None:
    road = project(
        tmp_path,
        listener,
        on_success=[{"post": f"{listener.url}/good"}],
        on_failure=[{"post": f"{listener.url}/bad"}],
    )
    road.spec["transform"]["units_per_file"] = 50
    warehouse = {
        "kind": "sql",
        "url": "sqlite:///warehouse.db",
        "table": "n",
        "create": True,
        "mode": "append",
    }
    road.spec["load"]["locations"]["warehouse"] = warehouse
    road.write()
    database, elsewhere = tmp_path / "warehouse.db", tmp_path / "elsewhere.db"
    query(f"sqlite:///{database}", "CREATE TABLE made (x INTEGER)")
    body = "".join(f'{{"n": {n}}}\n' for n in range(4_999)) + '{"n": "x"}\n'
    over = threading.Event()

    def flap() -> None:
        while not over.is_set():
            database.rename(elsewhere)
            database.mkdir()
            over.wait(0.3)
            database.rmdir()
            elsewhere.rename(database)
            over.wait(0.7)

    with up(road) as running:
        for name in ("workers", "dropbox", "recorder", "courier"):
            running.pid(name)
        flapping = threading.Thread(target=flap)
        flapping.start()
        try:
            file_id = publish(road, body, callback=f"{listener.url}/done")
            wait_until(lambda: len(list((tmp_path / "lake").glob("*.jsonl"))) > 20, running.text(), 60)
        finally:
            time.sleep(2)
            over.set()
            flapping.join()
        wait_until(lambda: listener.at("/done"), "the first verdict is told", 120)
        assert [one.facts["verdict"] for one in listener.at("/done")] == ["partial"], running.text()
        (path,) = road.files("transform", "failed")
        path.write_text(path.read_text().replace('"x"', "4999"))
        road.move_back(path)
        wait_until(lambda: len(listener.at("/done")) > 1, "the second verdict is told", 60)
        time.sleep(3)  # whatever would come twice comes now

    told = listener.at("/done")
    assert [(one.facts["number"], one.facts["verdict"]) for one in told] == [(1, "partial"), (2, "resolved")]
    assert all(one.is_signed_with(SECRET) for one in told)
    assert [one.facts["number"] for one in listener.at("/bad")] == [1]
    assert [one.facts["number"] for one in listener.at("/good")] == [2]
    records = verdicts.read(road.layout, "books", file_id).records
    assert [(one.number, one.verdict) for one in records] == [(1, "partial"), (2, "resolved")]
    assert records[-1].loaded == {"lake": 5_000, "warehouse": 5_000}
    assert query(f"sqlite:///{database}", "SELECT count(*), count(DISTINCT n) FROM n") == [(5_000, 5_000)]
    assert road.broken_promises() == []


def test_the_producer_of_an_expired_message_is_told(tmp_path: Path, listener: Listener) -> None:
    road = project(tmp_path, listener)
    file_id = publish(road, expires="1ms", callback=f"{listener.url}/done")
    time.sleep(0.05)
    with up(road) as running:
        wait_until(lambda: listener.posted, running.text(), 60)
    assert listener.posted[0].facts["verdict"] == "failed"
    assert "expired at" in road.reason(road.one("extract", "failed"))["summary"]
    assert followed(road, file_id) == {"1/callback": "told"}
