"""People are told of failures once and in few words, whatever failed, whoever died, and whatever a file is called."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from etl import points
from etl.cli import edge, retry
from etl.config import reading
from etl.errors import ConfigError
from etl.files import away, names, news, noticed_opening, reasons, spool
from etl.files.news import News
from etl.model import Place, Reason, Stage, Status, Trouble, Urgency
from etl.points import Point
from etl.services import courier, noticing
from tests.listening import Inbox, Listener, body, free_port, listening, mailing
from tests.road import Road

WINDOW = 900.0
#: files of one kind above which they are links of one.
LINKED = 100
SPEC: dict[str, Any] = {
    "about": {"owner": "data-ops", "runbook": "https://wiki.example.com/prices"},
    "transform": {"read": "csv"},
    "load": {"locations": {"warehouse": {"kind": "files", "path": "warehouse"}}},
}


class Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def _no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is the test's own: a slow machine must not make the watch rest for longer."""
    monkeypatch.setattr(noticing, "RESTS", 0.0)


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    with mailing(Inbox(port=free_port())) as one:
        yield one


def project(root: Path, inbox: Inbox | None, *, spec: dict[str, Any] | None = None, **settings: Any) -> Road:
    mail = {"mail": inbox.settings | settings.pop("mail", {})} if inbox else {}
    return Road(
        root,
        {**SPEC, **(spec or {})},
        "prices",
        settings={"reserve": "1MB", "name": "prod", **mail, **settings},
    )


def fail(road: Road, place: Place, reason: Reason, count: int = 1, given: str = "p.csv") -> list[Path]:
    """Have files lie in `failed/` as if they had just failed."""
    folder, made = road.layout.status(place, Status.FAILED), []
    at = reason.at or datetime.now(UTC).isoformat(timespec="seconds")
    why = reasons.encode(replace(reason, at=at))
    for file_id in names.new_ids(place.pipeline, int(time.time() * 1000), count):
        path = folder / str(names.christen(given, file_id))
        beside = path.with_name(f"{path.name}.reason.json")
        if len(made) < LINKED:
            beside.write_bytes(why)
            path.write_bytes(b"x\n")
        else:  # thousands of links are made much faster
            os.link(made[0].with_name(f"{made[0].name}.reason.json"), beside)
            os.link(made[0], path)
        made.append(path)
    return made


TRANSFORM = Place(pipeline="prices", stage=Stage.TRANSFORM)
WAREHOUSE = Place(pipeline="prices", stage=Stage.LOAD, location="warehouse")
NOT_A_NUMBER = Reason(
    summary="'12,x' is not a number",
    next="correct it, then move it back",
    where=(Trouble(line=4, field="price", cause="'12,x' is not a number"),),
    attempt=1,
)
DENIED = Reason(summary="permission denied for table prices", next="grant it", attempt=1)


@contextmanager
def couriers(road: Road, clock: Clock, count: int = 1) -> Iterator[list[courier.Courier]]:
    with road.opened() as app:
        made = [courier.Courier(app, clock=clock) for _ in range(count)]
        yield made
        for one in made:
            one.close()


def turns(road: Road, clock: Clock, *waits: float) -> None:
    """Let one courier take a turn after each wait, and one before."""
    with couriers(road, clock) as (one,):
        one.turn()
        for wait in waits:
            clock.now += wait
            one.turn()
        # what was spooled in the last turn
        one.turn()


def counts(texts: list[str], cause: str) -> list[tuple[int, int]]:
    """Give what each mail says of a cause: new ones, and how many lie there."""
    pattern = re.escape(cause) + r"\n +([\d,]+) new(?: \([^)]*\))?, ([\d,]+) in failed/ now"
    found = [re.search(pattern, text) for text in texts]
    return [(int(one[1].replace(",", "")), int(one[2].replace(",", ""))) for one in found if one]


def spooled(road: Road) -> list[Path]:
    return list(spool.waiting(road.layout))


# --- how often ---------------------------------------------------------------------------------------------


def test_10000_failures_of_two_causes_in_a_minute_are_few_mails_with_right_counts(
    tmp_path: Path, inbox: Inbox
) -> None:
    road, clock = project(tmp_path, inbox), Clock()
    with couriers(road, clock) as (one,):
        for _ in range(20):
            fail(road, TRANSFORM, NOT_A_NUMBER, 250)
            fail(road, WAREHOUSE, DENIED, 250)
            one.turn()
            clock.now += 3
        for _ in range(10):
            one.turn()
            clock.now += 120
    assert 2 <= len(inbox.mails) <= 4
    texts = inbox.texts()
    for cause in ("price: … is not a number", "permission denied for table prices"):
        told = counts(texts, cause)
        assert sum(new for new, _ in told) == 5_000
        assert told[-1][1] == 5_000
    assert inbox.mails[-1]["Subject"] == (
        f"[etl prod] prices: {sum(new for new, _ in counts(texts[-1:], 'price: … is not a number')) * 2:,}"
        " files failed, 2 causes, can wait until morning"
    )
    assert texts[-1].startswith(
        "Nothing is lost, and it can wait until morning. If you do nothing, the failed files"
    )
    assert "data-ops" in texts[-1] and "https://wiki.example.com/prices" in texts[-1]
    pasted(texts[-1], tmp_path)


def pasted(text: str, elsewhere: Path) -> None:
    """Type what a mail says to type, in another folder."""
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith("etl --config")]
    assert len(lines) == 4
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for line in lines[:2]:
        done = subprocess.run(
            line, shell=True, cwd=elsewhere, env={**os.environ, "PATH": path}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        if "--group" in line:
            assert done.stdout.count("5,000") == 2
        elif takes_words():
            assert "5,000 files; nothing was done" in done.stdout


def takes_words() -> bool:
    """Tell whether `etl retry --cause` knows the words of causes."""
    return any(
        "its word" in (option.help or "")
        for option in retry.command.params
        if isinstance(option, click.Option)
    )


def test_a_mail_server_that_is_away_delays_the_same_mails_and_nothing_else(tmp_path: Path) -> None:
    inbox = Inbox(port=free_port())
    road, clock = project(tmp_path, inbox), Clock()
    fail(road, TRANSFORM, NOT_A_NUMBER, 20)
    turns(road, clock, 3)
    (first,) = (json.loads(path.read_bytes())["payload"] for path in spooled(road))
    fail(road, TRANSFORM, NOT_A_NUMBER, 30)
    turns(road, clock, *[60] * 20)
    assert len(spooled(road)) == 2 and inbox.mails == []
    with mailing(inbox):
        turns(road, clock, *[300] * 4)
    assert sorted(new for new, _ in counts(inbox.texts(), "price: … is not a number")) == [20, 30]
    assert first["text"] in inbox.texts()
    assert [mail["Subject"] for mail in inbox.mails].count(first["subject"]) == 1
    assert spooled(road) == []


def test_a_mail_is_tried_over_a_long_week_end(tmp_path: Path) -> None:
    inbox = Inbox(port=free_port())
    road, clock = project(tmp_path, inbox), Clock()
    fail(road, TRANSFORM, DENIED)
    turns(road, clock, *[3600] * 80)
    with mailing(inbox):
        turns(road, clock, 700)
    assert len(inbox.mails) == 1


def test_the_window_outlives_a_restart_and_each_failure_is_told_once(tmp_path: Path, inbox: Inbox) -> None:
    road, clock = project(tmp_path, inbox), Clock()
    fail(road, TRANSFORM, DENIED, 2)
    turns(road, clock, 3)
    assert len(inbox.mails) == 1
    fail(road, TRANSFORM, DENIED, 5)
    for _ in range(5):
        turns(road, clock, 60)
    assert len(inbox.mails) == 1
    turns(road, clock, WINDOW, WINDOW, WINDOW)
    assert counts(inbox.texts(), "permission denied for table prices") == [(2, 2), (5, 7)]


def test_new_causes_one_after_the_other_do_not_make_mail_after_mail(tmp_path: Path, inbox: Inbox) -> None:
    road, clock = project(tmp_path, inbox), Clock()
    with couriers(road, clock) as (one,):
        for number in range(30):
            fail(
                road, TRANSFORM, replace(DENIED, summary=f"cause {'abcdefghijklmnopqrstuvwxyzäöüß'[number]}!")
            )
            one.turn()
            clock.now += 5
        assert len(inbox.mails) == 3
        for _ in range(40):
            one.turn()
            clock.now += 30
    assert len(inbox.mails) == 4
    assert [text.count(" 1 new, 1 in failed/ now") for text in inbox.texts()] == [2, 2, 2, 20]
    assert "and 4 more causes" in inbox.texts()[-1]


def test_what_is_put_back_and_fails_again_is_another_failure_of_a_known_cause(
    tmp_path: Path, inbox: Inbox
) -> None:
    road, clock = project(tmp_path, inbox), Clock()
    (path,) = fail(road, TRANSFORM, DENIED)
    turns(road, clock, 3)
    os.utime(path)  # looked at, edited, touched: the same failure
    turns(road, clock, WINDOW + 1)
    assert len(inbox.mails) == 1
    again = replace(DENIED, attempt=2, at="2026-11-18T10:00:00+00:00")
    path.with_name(f"{path.name}.reason.json").write_bytes(reasons.encode(again))
    os.utime(path)
    turns(road, clock, 3)
    assert counts(inbox.texts(), "permission denied for table prices") == [(1, 1), (1, 1)]


def test_recovered_is_told_when_nothing_of_a_cause_is_left(tmp_path: Path, inbox: Inbox) -> None:
    road, clock = project(tmp_path, inbox), Clock()
    for path in fail(road, TRANSFORM, DENIED, 3):
        fixed = path
    turns(road, clock, 3)
    for path in road.files("transform", "failed"):
        path.rename(path.parent.parent / "working" / path.name)
    turns(road, clock, 30, WINDOW, WINDOW)
    assert [str(mail["Subject"]) for mail in inbox.mails] == [
        "[etl prod] prices: 3 files failed, can wait until morning",
        "[etl prod] prices: recovered",
    ]
    assert inbox.texts()[1].startswith("All is well again")
    assert "\n- prices/transform: permission denied for table prices" in inbox.texts()[1]
    # put back by hand, it is no other failure; failed anew, it is a new cause
    fail(road, TRANSFORM, DENIED)
    (fixed.parent.parent / "working" / fixed.name).rename(fixed)
    turns(road, clock, 3)
    assert counts(inbox.texts()[2:], "permission denied for table prices") == [(1, 2)]


def test_how_many_rows_of_a_file_are_wrong_is_said_without_their_values(tmp_path: Path, inbox: Inbox) -> None:
    road, clock = project(tmp_path, inbox), Clock()
    wrong = "5 of 1,009 rows are wrong and transform.bad_rows.at_most is 10%"
    fail(
        road,
        TRANSFORM,
        replace(NOT_A_NUMBER, summary=f"{wrong}; first at line 4, price: '12,x' is no number"),
    )
    turns(road, clock, 3)
    (text,) = inbox.texts()
    assert f"     {wrong}\n     line 4, price: … is not a number\n" in text and "12,x" not in text


def test_what_failed_and_is_gone_by_now_asks_nothing_of_anybody(tmp_path: Path, inbox: Inbox) -> None:
    road, clock = project(tmp_path, inbox), Clock()
    with couriers(road, clock) as (one,):
        (path,) = fail(road, TRANSFORM, DENIED)
        one.turn()
        path.rename(path.parent.parent / "working" / path.name)
        for _ in range(2):
            clock.now += 3
            one.turn()
    (mail,) = inbox.mails
    assert mail["Subject"] == "[etl prod] prices: 1 file failed, nothing to do"
    assert counts(inbox.texts(), "permission denied for table prices") == [(1, 0)]
    assert "etl --config" not in inbox.texts()[0]


def test_recovered_says_what_still_lies_there(tmp_path: Path, inbox: Inbox) -> None:
    road, clock = project(tmp_path, inbox), Clock()
    fail(road, TRANSFORM, DENIED)
    fail(road, WAREHOUSE, NOT_A_NUMBER, 2)
    turns(road, clock, 3)
    for path in road.files("transform", "failed"):
        path.rename(path.parent.parent / "working" / path.name)
    turns(road, clock, 3, WINDOW, WINDOW)
    assert inbox.mails[1]["Subject"] == "[etl prod] prices: recovered"
    assert "2 files of other causes still lie in failed/" in inbox.texts()[1].partition("\n")[0]


def test_a_thousand_files_without_a_reason_hide_nothing(
    tmp_path: Path, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noticing, "MOST", 3)
    road, clock = project(tmp_path, inbox), Clock()
    made = fail(road, TRANSFORM, DENIED, 7)
    for path in made:
        path.with_name(f"{path.name}.reason.json").unlink()
        os.utime(path, (clock.now - 60, clock.now - 60))
    turns(road, clock, *[3] * 4)
    fail(road, TRANSFORM, NOT_A_NUMBER)
    turns(road, clock, 3, 3)
    assert counts(inbox.texts(), "price: … is not a number") == [(1, 1)]
    assert sum(new for new, _ in counts(inbox.texts(), "…")) <= 7 and "7 new" in inbox.texts()[0]


def test_nothing_to_say_is_no_mail(tmp_path: Path, inbox: Inbox) -> None:
    road, clock = project(tmp_path, inbox), Clock()
    turns(road, clock, *[WINDOW] * 3)
    assert inbox.mails == [] and spooled(road) == []


# --- what is lost or killed --------------------------------------------------------------------------------


def test_two_couriers_at_once_tell_it_once(tmp_path: Path, inbox: Inbox) -> None:
    road, clock = project(tmp_path, inbox), Clock()
    with couriers(road, clock, 2) as both:
        fail(road, TRANSFORM, DENIED, 10)
        for _ in range(4):
            for one in both:
                one.turn()
            clock.now += 2
        assert noticed_opening.lock(road.layout) is None
        both[0].close()  # the other goes on
        fail(road, TRANSFORM, DENIED, 1)
        for _ in range(3):
            both[1].turn()
            clock.now += WINDOW
    assert counts(inbox.texts(), "permission denied for table prices") == [(10, 10), (1, 11)]


def test_a_slow_mail_server_keeps_nobody_from_looking(tmp_path: Path, inbox: Inbox) -> None:
    road, clock = project(tmp_path, inbox), Clock()
    for number in range(3):
        spool.notice(road.layout, "kind", f"notice {number}", "text")
    inbox.slow = 0.2
    mails_at_each_look: list[int] = []
    with couriers(road, clock) as (one,):
        one._watch.turn = lambda: mails_at_each_look.append(len(inbox.mails))  # type: ignore[method-assign]
        one.turn()
    assert mails_at_each_look == [0, 1, 2, 3]


@pytest.mark.parametrize("how", ["lost", "damaged"])
def test_a_memory_that_is_gone_is_one_mail_that_says_so(tmp_path: Path, inbox: Inbox, how: str) -> None:
    road, clock = project(tmp_path, inbox), Clock()
    fail(road, TRANSFORM, replace(DENIED, at="2026-11-01T00:00:00+00:00"), 2_500)
    fail(road, WAREHOUSE, NOT_A_NUMBER)
    turns(road, clock, 3, 3)
    memory = noticed_opening.folder(road.layout) / "noticed.db"
    if how == "lost":
        memory.unlink()
    else:
        memory.write_bytes(b"not a database" * 1000)
    clock.now += 10
    turns(road, clock, *[3] * 5, WINDOW, WINDOW)
    assert len(inbox.mails) == 2
    assert (
        inbox.mails[1]["Subject"]
        == "[etl prod] prices: 2,501 files failed, 2 causes, known again, can wait until morning"
    )
    assert len({mail["Message-ID"] for mail in inbox.mails}) == 2
    assert counts(inbox.texts(), "permission denied for table prices") == [(2_500, 2_500)] * 2


def test_redis_has_no_part_in_it(tmp_path: Path, inbox: Inbox) -> None:
    road, clock = project(tmp_path, inbox, redis=f"redis://127.0.0.1:{free_port()}"), Clock()
    fail(road, TRANSFORM, DENIED)
    turns(road, clock, 3)
    assert len(inbox.mails) == 1


def killed(at: str, work: Callable[[], None]) -> None:
    """Do something in a process that is killed at a point."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the child does nothing but this
        child = os.fork()
    if child == 0:
        try:
            points.crash_at = at
            points.reached.clear()
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, f"{at} was not reached"


#: the four changes of the memory on the way of a notice: made, seen, told, spooled; and what it does besides.
WAY = [
    *(f"{Point.NOTICED}:{when}#{times}" for times in (1, 2, 3, 4) for when in ("before", "after")),
    *(f"{point}:{when}" for point in (Point.SPOOL, Point.NEWS) for when in ("before", "after")),
]


@pytest.mark.parametrize("at", WAY)
def test_killed_anywhere_every_failure_is_told_and_none_twice(tmp_path: Path, at: str) -> None:
    inbox = Inbox(port=free_port())
    road, clock = project(tmp_path, inbox), Clock()
    fail(road, TRANSFORM, DENIED, 3)
    line = News(pipeline="prices", key="late", kind="late", text="p.csv is late", at=clock.now)
    news.put(road.layout, line)
    killed(at, lambda: turns(road, clock, 3))
    with mailing(inbox):
        turns(road, clock, 3, 30, WINDOW)
    by_id = {mail["Message-ID"]: body(mail, "plain") for mail in inbox.mails}
    assert counts(list(by_id.values()), "permission denied for table prices") == [(3, 3)]
    assert sum(text.count("p.csv is late") for text in by_id.values()) == 1
    assert list(news.waiting(road.layout)) == [] and spooled(road) == []


@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
@pytest.mark.parametrize("at", WAY)
def test_a_disk_that_refuses_delays_the_notice(tmp_path: Path, inbox: Inbox, at: str, error: str) -> None:
    road, clock = project(tmp_path, inbox), Clock()
    fail(road, TRANSFORM, DENIED, 3)
    news.put(
        road.layout, News(pipeline="prices", key="late", kind="late", text="p.csv is late", at=clock.now)
    )
    where, _, times = at.partition("#")
    points.crash_at = f"{where}={error}#{times or 1}"
    points.reached.clear()
    try:
        with couriers(road, clock) as (one,):
            for _ in range(12):
                try:
                    one.turn()
                except OSError:
                    assert at.startswith(Point.SPOOL)
                clock.now += 5
        assert points.reached
    finally:
        points.crash_at = ""
    turns(road, clock, WINDOW)
    by_id = {mail["Message-ID"]: body(mail, "plain") for mail in inbox.mails}
    assert counts(list(by_id.values()), "permission denied for table prices") == [(3, 3)]


# --- what it says ------------------------------------------------------------------------------------------

HOSTILE = "x\r\nBcc: evil@example.com\r\n\r\n<script>alert(1)</script>{{ 7919*7907 }}{% raw %}"


def test_names_and_data_are_told_as_they_are_and_add_neither_headers_nor_markup(
    tmp_path: Path, inbox: Inbox
) -> None:
    road, clock = project(tmp_path, inbox, mail={"values": True}), Clock()
    reason = Reason(
        summary=f"{HOSTILE} is wrong",
        next=HOSTILE,
        where=(Trouble(line=1, field=f"f{{{{ 7919*7907 }}}}<b>{HOSTILE}", cause=HOSTILE),),
    )
    fail(road, TRANSFORM, reason, given="a\r\nBcc: evil@example.com <img src=x>{{ 7919*7907 }}.csv")
    news.put(road.layout, News(pipeline="prices", key="k", kind=HOSTILE, text=HOSTILE, at=clock.now))
    turns(road, clock, 3)
    (mail,) = inbox.mails
    assert inbox.sent_to == [["ops@example.com"]]
    assert mail["Bcc"] is None and mail["To"] == "ops@example.com"
    assert set(mail.keys()) == {
        *("Subject", "From", "To", "Date", "Message-ID", "Auto-Submitted", "MIME-Version", "Content-Type"),
        *(key for key in mail if key.startswith("X-")),
    }
    text, html = body(mail, "plain"), body(mail, "html")
    assert (
        "Bcc: evil@example.com <img src=x>{{ 7919*7907 }}" in text
        and "<script>alert(1)</script>{{ 7919*7907 }}{% raw %}" in text
    )
    assert "<script" not in html and "<img" not in html and "<b>" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;{{ 7919*7907 }}{% raw %}" in html
    assert "62615533" not in text + html + mail["Subject"]


def test_the_subject_and_the_first_line_answer_at_three_in_the_morning(tmp_path: Path, inbox: Inbox) -> None:
    road, clock = project(tmp_path, inbox, spec={"transform": {"read": "csv", "schema": SCHEMA}}), Clock()
    rows = "".join(f"{number}\n" for number in range(200))
    road.drop("p.csv", f"price\n{rows}12x\n13x\n14x\n")
    road.work()
    turns(road, clock, 3)
    (mail,) = inbox.mails
    assert mail["Subject"] == "[etl prod] prices: 3 of 203 rows held back, can wait until morning"
    assert body(mail, "plain").splitlines()[0] == (
        "Nothing is lost, and it can wait until morning. If you do nothing, the rows held back stay missing; "
        "all other files go on."
    )
    assert "12x" not in body(mail, "plain") and "12x" not in body(mail, "html")
    assert "line 202, price: … is not a number" in body(mail, "plain")


SCHEMA = {"properties": {"price": {"type": "number"}}}


def test_values_are_told_only_where_the_operator_wants_it_and_never_redacted_ones(
    tmp_path: Path, inbox: Inbox
) -> None:
    troubles = (
        Trouble(line=1, field="price", cause="'CANARY-PRICE' is not a number"),
        Trouble(line=2, field="iban", cause="'CANARY-IBAN' is no IBAN"),
        Trouble(line=3, cause="'CANARY-HANDLER' is odd"),
    )
    reason = Reason(
        summary="'CANARY-SUMMARY' is wrong", next="correct it", where=troubles, cause="CANARY-CAUSE"
    )
    said = {}
    for name, mail, spec in (
        ("left out", {}, {}),
        ("told", {"values": True}, {}),
        ("redacted", {"values": True}, {"redact": ["iban"]}),
    ):
        inbox.mails.clear()
        road, clock = project(tmp_path / name.replace(" ", "_"), inbox, mail=mail, spec=spec), Clock()
        fail(road, TRANSFORM, reason)
        turns(road, clock, 3)
        said[name] = set(
            re.findall(r"CANARY-\w+", "".join(body(inbox.mails[0], kind) for kind in ("plain", "html")))
        )
    assert said["left out"] == set()
    assert said["told"] == {"CANARY-PRICE", "CANARY-IBAN", "CANARY-HANDLER", "CANARY-SUMMARY"}
    assert said["redacted"] == {"CANARY-PRICE"}


def test_each_pipeline_has_its_own_people(tmp_path: Path, inbox: Inbox) -> None:
    road, clock = project(tmp_path, inbox), Clock()
    theirs = {**SPEC, "mail": {"to": ["books@example.com", "anna@example.com"]}}
    (tmp_path / "config" / "pipelines" / "books.yaml").write_text(yaml.safe_dump(theirs))
    road.write()
    fail(road, TRANSFORM, DENIED, 2)
    fail(road, replace(TRANSFORM, pipeline="books"), DENIED, 3)
    news.put(road.layout, News(pipeline="gone", key="k", kind="late", text="of nobody", at=clock.now))
    turns(road, clock, 3)
    told = {mail["To"]: (mail["Subject"], body(mail, "plain")) for mail in inbox.mails}
    assert (
        told["anna@example.com, books@example.com"][0]
        == "[etl prod] books: 3 files failed, can wait until morning"
    )
    assert (
        told["ops@example.com"][0]
        == "[etl prod] gone and prices: 2 files failed, 1 late, can wait until morning"
    )
    assert "of nobody" in told["ops@example.com"][1] and len(told) == 2


def test_urgent_news_are_told_at_once_and_others_within_the_window(tmp_path: Path, inbox: Inbox) -> None:
    road, clock = project(tmp_path, inbox), Clock()
    late = News(pipeline="prices", key="a", kind="late", text="one is late", next="ask", at=clock.now)
    news.put(road.layout, late)
    turns(road, clock, 60, 60)
    assert inbox.mails == []
    news.put(
        road.layout, replace(late, key="b", kind="missing", text="act!", urgency=Urgency.NOW, at=clock.now)
    )
    turns(road, clock, 3)
    assert [str(mail["Subject"]) for mail in inbox.mails] == ["[etl prod] prices: 1 late, 1 missing, act now"]
    assert inbox.texts()[0].startswith("No file failed and nothing is lost, but act now.")
    news.put(road.layout, replace(late, key="c", at=clock.now))
    turns(road, clock, WINDOW / 2, WINDOW)
    assert len(inbox.mails) == 2 and list(news.waiting(road.layout)) == []


def test_a_location_that_goes_away_is_told_once_and_so_is_its_return(tmp_path: Path, inbox: Inbox) -> None:
    road, clock = project(tmp_path, inbox), Clock()
    turns(road, clock)
    away.mark(road.layout, WAREHOUSE, "connection refused", asked=clock.now + 60, now=clock.now)
    turns(road, clock, 3, WINDOW, WINDOW)
    away.clear(road.layout, WAREHOUSE, clock.now)
    turns(road, clock, 3, WINDOW, WINDOW)
    assert [str(mail["Subject"]) for mail in inbox.mails] == [
        "[etl prod] prices: 1 location away, can wait until morning",
        "[etl prod] prices: 1 location back, nothing to do",
    ]
    assert "warehouse is away since" in inbox.texts()[0] and "connection refused" in inbox.texts()[0]


# --- templates ---------------------------------------------------------------------------------------------


def test_a_template_of_the_operators_own_wins(
    tmp_path: Path, inbox: Inbox, capsys: pytest.CaptureFixture[str]
) -> None:
    road, clock = project(tmp_path, inbox), Clock()
    own = tmp_path / "config" / "templates"
    own.mkdir()
    (own / "digest.txt").write_text(
        '{% extends "builtin/digest.txt" %}{% block footer %}Call 4711.{% endblock %}'
    )
    fail(road, TRANSFORM, DENIED)
    turns(road, clock, 3)
    assert "Call 4711." in inbox.texts()[0] and "permission denied" in inbox.texts()[0]
    assert "Call 4711." not in body(inbox.mails[0], "html")
    typed(road, "check")
    assert "ok   template digest.txt" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text",
    ["{{ nothing_like_it }}", "{% if %}", "{{ digest.__class__.__mro__ }}", "{{ 1 / 0 }}"],
)
def test_a_broken_template_is_said_and_ours_is_used(
    tmp_path: Path, inbox: Inbox, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    road, clock = project(tmp_path, inbox), Clock()
    (tmp_path / "config" / "templates").mkdir()
    (tmp_path / "config" / "templates" / "failure.txt").write_text(text)
    fail(road, TRANSFORM, DENIED)
    turns(road, clock, 3)
    assert "permission denied" in inbox.texts()[0]
    assert "failure.txt" in caplog.text and "the built-in template is used" in caplog.text


def test_check_tells_templates_that_are_broken_or_never_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    road = project(tmp_path, None)
    (tmp_path / "config" / "templates").mkdir()
    (tmp_path / "config" / "templates" / "digest.html").write_text("\n{{ leed }}")
    (tmp_path / "config" / "templates" / "digset.html").write_text("hello")
    road.spec["mail"] = {"to": ["books@example.com"]}
    road.write()
    assert typed(road, "check") == 2
    said = capsys.readouterr().out
    assert "digest.html" in said and "'leed' is undefined" in said
    assert "digset.html is never used" in said
    assert "prices say who hears of them" in said


# --- channels ----------------------------------------------------------------------------------------------


def test_the_webhook_gets_the_same_signed_and_has_tries_of_its_own(tmp_path: Path, inbox: Inbox) -> None:
    with listening() as listener:
        road = project(
            tmp_path,
            inbox,
            notices={"webhook": f"{listener.url}/T00/secret-token"},
            callbacks={"secret": "s3cret"},
        )
        clock = Clock()
        listener.first = [503]
        fail(road, TRANSFORM, replace(DENIED, summary="<!channel> & co"), 2)
        spool.notice(road.layout, "unserved", "nobody serves heavy", "start a worker")
        turns(road, clock, 3)
        assert len(inbox.mails) == 2  # the mail does not wait for the webhook
        turns(road, clock, 60, 60)
    assert_told(listener)
    assert len(inbox.mails) == 2 and spooled(road) == []


def assert_told(listener: Listener) -> None:
    assert all(call.is_signed(b"s3cret") and set(call.told) == {"text"} for call in listener.calls)
    keys = [call.headers["idempotency-key"] for call in listener.calls]
    assert len(keys) == 3 and len(set(keys)) == 2
    texts = {call.told["text"] for call in listener.calls}
    assert any(text.startswith("*[etl prod] prices: 2 files failed") for text in texts)
    assert any("&lt;!channel&gt; &amp; co" in text for text in texts)
    assert any(text.startswith("*[etl prod] nobody serves heavy*\nstart a worker") for text in texts)


def test_notify_tests_every_channel_and_says_what_came_of_it(
    tmp_path: Path, inbox: Inbox, capsys: pytest.CaptureFixture[str]
) -> None:
    with listening() as listener:
        road = project(tmp_path, inbox, notices={"webhook": f"{listener.url}/T00/secret-token"})
        assert typed(road, "notify") == 0
        assert "mail to ops@example.com: prices" in capsys.readouterr().out
        assert inbox.mails == []
        assert typed(road, "notify", "--test", "--json") == 0
        assert [one["state"] for one in json.loads(capsys.readouterr().out)] == ["told", "told"]
        assert inbox.mails[0]["Subject"] == "[etl prod] a test, nothing to do"
        assert inbox.mails[0].get_content_type() == "multipart/alternative"
        listener.first = [500]
        done = road.etl("notify", "--test")
        assert done.returncode == 1
        assert "webhook to 127.0.0.1: prices\n    waiting: 127.0.0.1 answered 500" in done.stdout
        assert "secret-token" not in done.stdout + done.stderr
    assert typed(project(tmp_path / "nobody", None), "notify", "--test") == 2
    assert "nobody is told" in capsys.readouterr().err


def typed(road: Road, *arguments: str) -> int:
    """Run a verb in this process and give its exit code."""
    return edge.run(["--config", str(road.root / "config"), *arguments])


def test_a_login_goes_over_an_encrypted_connection_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ssl

    from aiosmtpd.smtp import AuthResult

    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout key.pem -out cert.pem"
    named = "-subj /CN=localhost -addext subjectAltName=DNS:localhost"
    made = subprocess.run(f"{make} {named}", shell=True, cwd=tmp_path, capture_output=True)
    if made.returncode:
        pytest.skip("there is no openssl to make a certificate with")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    monkeypatch.setenv("SMTP_PASSWORD", "s3cret%2F%40")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    asked: list[Any] = []

    def login(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> Any:
        asked.append((session.ssl is not None, data.login.decode(), data.password.decode()))
        return AuthResult(success=data.password == b"s3cret/@")

    inbox = Inbox(port=free_port())
    smtp = f"smtp://etl:${{SMTP_PASSWORD}}@localhost:{inbox.port}"
    road, clock = project(tmp_path / "site", inbox, mail={"smtp": smtp}), Clock()
    fail(road, TRANSFORM, DENIED)
    turns(road, clock, 3)
    with mailing(inbox, authenticator=login):  # a server that cannot encrypt gets no password
        turns(road, clock, 60)
    assert asked == [] and inbox.mails == [] and len(spooled(road)) == 1
    open_to = {"authenticator": login, "tls_context": tls, "require_starttls": True, "auth_required": True}
    with monkeypatch.context() as expired, mailing(inbox, **open_to):
        expired.setenv("SMTP_PASSWORD", "of-last-year")
        turns(road, clock, 600)
        assert asked.pop()[2] == "of-last-year" and len(spooled(road)) == 1  # the mail is not to blame
        asked.clear()
    with mailing(inbox, **open_to):
        turns(road, clock, 600)
    assert asked and all(one == (True, "etl", "s3cret/@") for one in asked)
    assert len(inbox.mails) == 1


@pytest.mark.parametrize(
    "at", [f"{point}:{when}" for point in (Point.NEWS, Point.NOTICED) for when in ("before", "after")]
)
def test_killed_while_an_outage_is_taken_down_it_is_told_once(tmp_path: Path, inbox: Inbox, at: str) -> None:
    road, clock = project(tmp_path, inbox), Clock()
    turns(road, clock)
    away.mark(road.layout, WAREHOUSE, "connection refused", asked=clock.now + 60, now=clock.now)
    killed(at, lambda: turns(road, clock, 3))
    turns(road, clock, 3, WINDOW, WINDOW)
    assert [text.count("warehouse is away since") for text in inbox.texts()] == [1]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mail": {"to": ["a@example.com\r\nBcc: evil@example.com"]}}, "is no address"),
        ({"mail": {"smtp": "smtp://etl:s3cr/et@mail.example.com:587"}}, "write @ as %40, : as %3A, / as %2F"),
        ({"mail": {"smtp": "mail.example.com"}}, "smtp:// or smtps://"),
        ({"notices": {"webhook": "https://user:s3cr@hooks.example.com/x"}}, "without a user in it"),
        ({"notices": {"window": "15"}}, "has no unit"),
        ({"name": "x" * 41}, "at most 40 characters"),
    ],
)
def test_what_cannot_be_followed_is_refused_without_its_secret(
    tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    road = project(tmp_path, Inbox(port=1))
    written = yaml.safe_load((tmp_path / "config" / "settings.yaml").read_text())
    merged = {
        key: {**written.get(key, {}), **value} if isinstance(value, dict) else value
        for key, value in settings.items()
    }
    (tmp_path / "config" / "settings.yaml").write_text(yaml.safe_dump({**written, **merged}))
    with pytest.raises(ConfigError, match=re.escape(said)) as refused:
        reading.read(road.root / "config")
    assert "s3cr" not in str(refused.value)
