"""What follows a verdict is told once to whom it may be told, tried again where that helps, and recorded."""

from __future__ import annotations

import errno
import io
import json
import logging
import signal
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from etl.app import App
from etl.files import arrivals, callback_key, spool, verdicts
from etl.files.verdicts import Followed
from etl.notify.post import Poster
from etl.points import Point
from etl.services import courier
from etl.stages import following
from tests.listening import Listener, free_port, listening
from tests.road import Road

REPORTS = {
    "transform": {"read": "jsonl"},
    "load": {"locations": {"lake": {"kind": "files", "path": "reports"}}},
}


@pytest.fixture
def listener() -> Iterator[Listener]:
    with listening() as one:
        yield one


def project(root: Path, *hooks: dict[str, str], allow: list[str] | None = None, **settings: Any) -> Road:
    road = Road(
        root,
        {
            "transform": {"read": "jsonl"},
            "load": {"locations": {"lake": {"kind": "files", "path": "lake"}}},
            "on_success": list(hooks),
        },
        settings={"reserve": "1MB", "callbacks": {"allow": allow or []}, **settings},
    )
    (root / "config" / "pipelines" / "reports.yaml").write_text(yaml.safe_dump(REPORTS))
    return road


def resolved(road: Road, **headers: str) -> str:
    """Have a message worked and judged, and give its id."""
    waiting = arrivals.publish(road.layout, "books", io.BytesIO(b'{"n": 1}\n'), "m.json", headers)
    road.work()
    (record,) = road.judge()
    assert record.verdict == "resolved"
    return waiting.name.partition("~")[2].removesuffix(".json")


class Clock:
    def __init__(self) -> None:
        import time

        self.now = time.time()

    def __call__(self) -> float:
        return self.now


def turn(road: Road, clock: Clock | None = None, **stand_in: Any) -> None:
    with road.opened() as app:
        one = courier.Courier(app, _follower(app, **stand_in), clock or Clock())
        one.turn()
        one.close()


def _follower(app: App, transport: Any = None, **stand_in: Any) -> following.Follower | None:
    return following.Follower(app, Poster(b"key", transport), **stand_in) if stand_in else None


def followed(road: Road, file_id: str, what: str) -> Followed:
    return verdicts.read(road.layout, "books", file_id).followed[what]


def spooled(road: Road) -> list[str]:
    return [path.name for path in spool.waiting(road.layout)]


def test_a_callback_is_told_once_with_a_signature_and_a_key(
    tmp_path: Path, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    road = project(tmp_path, allow=[listener.url])
    file_id = resolved(road, callback=f"{listener.url}/secret-token?x=1")
    turn(road)
    turn(road)
    (call,) = listener.calls
    assert call.path == "/secret-token?x=1"
    assert call.is_signed(callback_key.read(road.layout))
    assert not call.is_signed(b"another")
    assert call.headers["idempotency-key"] == f"books/{file_id}/1"
    assert call.headers["host"] == f"127.0.0.1:{listener.port}"
    told = call.told
    assert (told["id"], told["verdict"], told["number"], told["loaded"]) == (
        file_id,
        "resolved",
        1,
        {"lake": 1},
    )
    one = followed(road, file_id, "1/callback")
    assert (one.state, one.tries, one.target) == ("told", 1, "127.0.0.1")
    assert "secret-token" not in verdicts.path(road.layout, "books", file_id).read_text()
    assert "127.0.0.1 answered 204" in caplog.text
    assert "secret-token" not in caplog.text
    assert spooled(road) == []
    assert callback_key.path(road.layout).stat().st_mode & 0o777 == 0o600


def test_the_operators_own_secret_signs(tmp_path: Path, listener: Listener) -> None:
    road = project(tmp_path)
    road.settings["callbacks"] = {"allow": [listener.url], "secret": "s3cret"}
    road.write()
    resolved(road, callback=listener.url)
    turn(road)
    assert listener.calls[0].is_signed(b"s3cret")
    assert not callback_key.path(road.layout).exists()


@pytest.mark.parametrize(
    ("url", "allow"),
    [
        ("http://127.0.0.1:{port}/", []),
        ("http://127.0.0.1:{port}/", ["http://*:{port}"]),
        ("http://localhost:{port}/", ["http://*:{port}"]),
        ("http://2130706433:{port}/", ["http://127.0.0.1:{port}"]),
        ("http://[::ffff:127.0.0.1]:{port}/", ["http://*:{port}"]),
        ("http://user@127.0.0.1:{port}/", ["http://127.0.0.1:{port}"]),
        ("http://169.254.169.254/latest", ["http://*"]),
        ("https://[fe80::1]/", ["*"]),
        ("http://127.0.0.1:{port}/302", ["http://127.0.0.1:{port}"]),
    ],
)
def test_a_callback_that_leads_inside_or_elsewhere_is_refused_and_recorded(
    tmp_path: Path, listener: Listener, url: str, allow: list[str]
) -> None:
    road = project(tmp_path, allow=[entry.format(port=listener.port) for entry in allow])
    file_id = resolved(road, callback=url.format(port=listener.port))
    turn(road)
    one = followed(road, file_id, "1/callback")
    assert (one.state, one.tries) == ("refused", 1)
    assert one.said
    if not allow:
        assert f"add 'http://127.0.0.1:{listener.port}' to callbacks.allow" in one.said
    # a redirect was answered, and not followed
    assert [call.path for call in listener.calls] == (["/302"] if url.endswith("302") else [])
    assert spooled(road) == []


def test_a_name_that_leads_elsewhere_at_the_second_look_is_refused(
    tmp_path: Path, listener: Listener
) -> None:
    road, clock = project(tmp_path, allow=[f"http://*.example.com:{listener.port}"]), Clock()
    file_id = resolved(road, callback=f"http://a.example.com:{listener.port}/")
    looks, connected = iter([["93.184.216.34"], ["127.0.0.1"]]), []

    def away(request: httpx.Request) -> httpx.Response:
        connected.append(request.url.host)
        raise httpx.ConnectTimeout("nobody there")

    turn(road, clock, ask=lambda host, port: next(looks), transport=httpx.MockTransport(away))
    assert followed(road, file_id, "1/callback").state == "waiting"
    clock.now += 60
    turn(road, clock, ask=lambda host, port: next(looks))
    one = followed(road, file_id, "1/callback")
    assert (one.state, one.tries) == ("refused", 2)
    assert "leads to 127.0.0.1" in one.said
    assert connected == ["93.184.216.34"] and listener.calls == []


@pytest.mark.parametrize(
    ("status", "state"), [(404, "failed"), (410, "failed"), (429, "waiting"), (503, "waiting")]
)
def test_what_may_be_answered_better_later_is_tried_again(
    tmp_path: Path, listener: Listener, status: int, state: str
) -> None:
    road = project(tmp_path, {"post": f"{listener.url}/{status}"})
    file_id = resolved(road)
    turn(road)
    one = followed(road, file_id, "1/on_success-1")
    assert (one.state, one.tries) == (state, 1)
    assert str(status) in one.said
    assert len(spooled(road)) == (state == "waiting")


def test_a_post_backs_off_and_goes_through_under_the_same_key(tmp_path: Path, listener: Listener) -> None:
    road, clock = project(tmp_path, {"post": f"{listener.url}/token"}), Clock()
    file_id = resolved(road)
    listener.first = [503, 500]
    turn(road, clock)
    for wait in (5, 6, 15, 40):
        clock.now += wait
        turn(road, clock)
    assert len(listener.calls) == 3
    assert {call.headers["idempotency-key"] for call in listener.calls} == {f"books/{file_id}/1/on_success-1"}
    one = followed(road, file_id, "1/on_success-1")
    assert (one.state, one.tries) == ("told", 3)


def test_it_is_given_up_in_the_end_and_recorded_as_failed(tmp_path: Path) -> None:
    road, clock = project(tmp_path, {"post": f"http://127.0.0.1:{free_port()}/"}), Clock()
    file_id = resolved(road)
    for _ in range(courier.TRIES + 5):
        turn(road, clock)
        clock.now += 601
    one = followed(road, file_id, "1/on_success-1")
    assert (one.state, one.tries) == ("failed", courier.TRIES)
    assert one.said.startswith("given up after 20 tries: 127.0.0.1 did not answer")
    assert spooled(road) == []


def test_what_was_told_while_the_disk_was_full_is_recorded_later_and_not_told_again(
    tmp_path: Path, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    road, clock = project(tmp_path, allow=[listener.url]), Clock()
    first, second = (resolved(road, callback=f"{listener.url}/{name}") for name in "ab")

    def full(layout: Any, pipeline: str, file_id: str, *told: Any) -> None:
        if file_id == first:
            raise OSError(errno.ENOSPC, "No space left on device")
        follow(layout, pipeline, file_id, *told)

    follow = verdicts.follow
    with road.opened() as app:
        one = courier.Courier(app, clock=clock)
        with monkeypatch.context() as patched:
            patched.setattr(verdicts, "follow", full)
            for _ in range(3):
                one.turn()
                clock.now += 60
        # nobody else waited for it
        assert followed(road, second, "1/callback").state == "told"
        assert spooled(road) == [f"books~{first}~1~callback.json"]
        one.turn()
        one.close()
    assert followed(road, first, "1/callback").state == "told"
    assert sorted(call.path for call in listener.calls) == ["/a", "/b"]
    assert spooled(road) == []


def test_a_damaged_spooled_file_is_told_and_stops_nobody(
    tmp_path: Path, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    road = project(tmp_path, allow=[listener.url])
    file_id = resolved(road, callback=listener.url)
    (spool.folder(road.layout) / "aaa.json").write_text("{")
    turn(road)
    assert "aaa.json is damaged" in caplog.text and "move aaa.json out of the folder" in caplog.text.lower()
    assert followed(road, file_id, "1/callback").state == "told"
    assert spooled(road) == ["aaa.json"]


def test_others_do_not_wait_behind_a_host_that_is_away(tmp_path: Path, listener: Listener) -> None:
    gone = f"http://localhost:{free_port()}"
    road, clock = project(tmp_path, {"post": gone}, {"post": listener.url}), Clock()
    first = resolved(road)
    turn(road, clock)
    assert len(listener.calls) == 1
    assert followed(road, first, "1/on_success-1").state == "waiting"


def test_a_host_that_is_silent_is_asked_once_for_all_that_wait_for_it(tmp_path: Path) -> None:
    road, clock, asked = project(tmp_path, {"post": "http://silent.example.com/"}), Clock(), []
    for _ in range(5):
        arrivals.publish(road.layout, "books", io.BytesIO(b"{}\n"), "m.json", {})
    road.work()
    assert len(road.judge()) == 5

    def silent(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        raise httpx.ReadTimeout("nothing comes")

    with road.opened() as app:
        one = courier.Courier(
            app, following.Follower(app, Poster(b"key", httpx.MockTransport(silent))), clock
        )
        for expected in (1, 2, 3):
            one.turn()
            one.turn()
            assert len(asked) == expected
            clock.now += 10 * 2 ** (expected - 1) + 1
        one.close()
    assert len(spooled(road)) == 5


def test_a_hook_starts_another_pipeline_with_the_verdict_as_its_file(tmp_path: Path) -> None:
    road = project(tmp_path, {"start": "reports"})
    file_id = resolved(road)
    turn(road)
    (path,) = (road.data / "reports" / "extract" / "working").glob("*.json")
    assert path.name.startswith(f"books-{file_id}-1~")
    assert json.loads(path.read_text())["verdict"] == "resolved"
    assert road.etl("run", "reports", "--inline").returncode == 0
    assert followed(road, file_id, "1/on_success-1").target == "reports"


@pytest.mark.parametrize(
    "at",
    [
        *(
            f"{point}:{when}"
            for point in (Point.STAGE_CHILD, Point.NOTE_SOURCE, Point.ARRIVE)
            for when in ("before", "after")
        ),
        *(f"{Point.FOLLOW}:{when}#{times}" for when in ("before", "after") for times in (1, 2, 3)),
    ],
)
def test_killed_anywhere_while_it_starts_another_pipeline_that_gets_one_file(tmp_path: Path, at: str) -> None:
    road = project(tmp_path, {"start": "reports"})
    file_id = resolved(road)
    killed = road.crash(at, "follow")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    road.follow()
    road.follow()
    found = [
        path.name for path in (road.data / "reports").rglob("books-*.json") if ".notes" not in path.parts
    ]
    assert len(found) == 1
    assert len(list((road.data / "reports" / ".notes").glob("*.json"))) == 1
    assert followed(road, file_id, "1/on_success-1").state == "told"
    assert spooled(road) == []
    assert road.broken_promises() == []


def test_a_file_that_was_worked_meanwhile_is_not_started_again(tmp_path: Path) -> None:
    road = project(tmp_path, {"start": "reports"})
    resolved(road)
    assert road.crash(f"{Point.FOLLOW}:before#2", "follow").returncode == -signal.SIGKILL
    assert road.etl("run", "reports", "--inline").returncode == 0
    road.follow()
    assert list((road.data / "reports" / "extract" / "working").iterdir()) == []
    assert len(list((road.data / "reports" / "extract" / "resolved").iterdir())) == 1


def test_nothing_follows_a_verdict_that_was_never_written(tmp_path: Path, listener: Listener) -> None:
    road = project(tmp_path, {"post": listener.url})
    arrivals.publish(road.layout, "books", io.BytesIO(b'{"n": 1}\n'), "m.json", {})
    road.work()
    assert road.crash(f"{Point.NOTE_VERDICT}:before", "judge").returncode == -signal.SIGKILL
    turn(road)
    assert listener.calls == [] and len(spooled(road)) == 1
    road.judge()
    turn(road)
    assert len(listener.calls) == 1


def test_what_is_spooled_while_an_older_one_of_its_name_is_looked_at_is_not_taken_away_with_it(
    tmp_path: Path, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    road = project(tmp_path, allow=[listener.url])
    waiting = arrivals.publish(
        road.layout, "books", io.BytesIO(b'{"n": 1}\n'), "m.json", {"callback": f"{listener.url}/a"}
    )
    road.work()
    file_id = waiting.name.partition("~")[2].removesuffix(".json")
    # of a verdict that was never written, because whoever judged died
    stale = spool.Item(
        what="callback", pipeline="books", file_id=file_id, number=1, payload={"verdict": "partial"}
    )
    spool.put(road.layout, stale)
    read = verdicts.read

    def judged_meanwhile(*about: Any) -> verdicts.Verdicts:
        monkeypatch.setattr(verdicts, "read", read)
        road.judge()
        return read(*about)

    with road.opened() as app:
        one = courier.Courier(app)
        monkeypatch.setattr(verdicts, "read", judged_meanwhile)
        one.turn()
        assert listener.calls == []
        assert spooled(road) == [stale.name]
        one.turn()
        one.close()
    assert [call.told["verdict"] for call in listener.calls] == ["resolved"]
    assert spooled(road) == []


def test_a_hook_that_is_gone_from_the_configuration_is_recorded_as_failed(tmp_path: Path) -> None:
    road = project(tmp_path, {"start": "reports"})
    file_id = resolved(road)
    road.spec["on_success"] = []
    road.write()
    turn(road)
    assert "no longer has hook 1" in followed(road, file_id, "1/on_success-1").said


def test_without_mail_a_notice_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    road = project(tmp_path, {"notice": "all there"})
    file_id = resolved(road)
    spool.notice(road.layout, "queue_unserved", "nobody serves heavy", "start a worker")
    turn(road)
    assert followed(road, file_id, "1/on_success-1").said.startswith("logged")
    text = caplog.text
    assert "m.json is resolved: all there" in text and "nobody serves heavy: start a worker" in text
    assert spooled(road) == []


class Inbox:
    def __init__(self) -> None:
        self.mails: list[Message] = []

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        import email

        self.mails.append(email.message_from_bytes(envelope.content))
        return "250 OK"


def test_notices_are_mailed_and_cannot_add_headers(tmp_path: Path) -> None:
    from aiosmtpd.controller import Controller

    inbox, port = Inbox(), free_port()
    mail = {"smtp": f"smtp://127.0.0.1:{port}", "from": "etl@example.com", "to": ["ops@example.com"]}
    road = project(tmp_path, {"notice": "all there\r\nBcc: evil@example.com"}, mail=mail)
    file_id = resolved(road)
    spool.notice(road.layout, "kind", "one\r\nBcc: evil@example.com", "text")
    clock = Clock()
    turn(road, clock)
    one = followed(road, file_id, "1/on_success-1")
    assert (
        one.state == "waiting" and len(spooled(road)) == 2
    )  # an outage delays the mail and nothing else (P22)
    controller = Controller(inbox, hostname="127.0.0.1", port=port)
    controller.start()
    try:
        clock.now += 60
        turn(road, clock)
    finally:
        controller.stop()
    assert followed(road, file_id, "1/on_success-1").state == "told"
    assert sorted(str(one["Subject"]) for one in inbox.mails) == [
        "[etl] books: m.json is resolved",
        "[etl] one Bcc: evil@example.com",
    ]
    assert all(one["Bcc"] is None and one["To"] == "ops@example.com" for one in inbox.mails)
    assert spooled(road) == []


def test_run_judges_what_it_worked_and_tries_once_what_follows(tmp_path: Path, listener: Listener) -> None:
    road = project(
        tmp_path, {"post": f"{listener.url}/x"}, {"start": "reports"}, {"post": f"{listener.url}/503"}
    )
    (tmp_path / "mine.jsonl").write_text('{"n": 1}\n')
    done = road.etl("run", "books", "mine.jsonl", "--inline")
    assert done.returncode == 0, done.stderr
    assert [call.path for call in listener.calls] == ["/x", "/503"]
    assert "on_success-3 (127.0.0.1): waiting" in done.stderr and "`etl up` tries again" in done.stderr
    assert len(list((road.data / "reports" / "extract" / "working").iterdir())) == 1
    assert len(spooled(road)) == 1


def test_check_refuses_hooks_that_start_what_is_not_there_or_themselves(tmp_path: Path) -> None:
    road = project(tmp_path, {"start": "report"})
    done = road.etl("check")
    assert done.returncode == 2
    assert "there is no pipeline 'report'; did you mean 'reports'?" in done.stdout
    road.spec["on_success"] = [{"start": "reports"}]
    road.write()
    assert road.etl("check").returncode == 0
    reports = {**REPORTS, "on_failure": [{"start": "books"}]}
    (tmp_path / "config" / "pipelines" / "reports.yaml").write_text(yaml.safe_dump(reports))
    assert "start each other for ever" in road.etl("check").stdout
