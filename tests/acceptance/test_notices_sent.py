"""Under `etl up`, with real workers and a mail server that is away: no job waits, and the mails come later."""

from __future__ import annotations

import re
from pathlib import Path

from etl.files import spool
from tests.listening import Inbox, free_port, mailing
from tests.queue_helpers import wait_until
from tests.road import Road
from tests.supervising import up

CAUSES = {"extract": "bad-{}.txt", "transform": "bad-{}.csv"}
FILES = 30


def test_failures_of_two_causes_while_the_mail_server_is_away_delay_no_job_and_are_told_when_it_is_back(
    tmp_path: Path,
) -> None:
    inbox = Inbox(port=free_port())
    road = Road(
        tmp_path,
        {
            "extract": {"accept": ["*.csv"]},
            "transform": {"read": {"format": "csv", "encoding": "ascii"}},
            "load": {"locations": {"lake": {"kind": "files", "path": "lake"}}},
        },
        settings={"scan": "1s", "reserve": "1MB", "mail": inbox.settings, "notices": {"window": "8s"}},
    )
    with up(road) as running:
        for number in range(FILES):
            road.drop(CAUSES["extract"].format(number), "x\n")
            road.drop(CAUSES["transform"].format(number), b"a\n\xff\n")
            road.drop(f"good-{number}.csv", "a\n1\n")
        wait_until(lambda: len(road.files("load", "resolved")) == FILES, running.text(), 60)
        failed = {stage: road.folder(stage, "failed") for stage in CAUSES}
        wait_until(
            lambda: all(len(road.files(stage, "failed")) == FILES for stage in failed), running.text(), 30
        )
        wait_until(lambda: list(spool.waiting(road.layout)), running.text(), 20)
        running.wait_for("not mailed")
        with mailing(inbox):
            wait_until(lambda: told(inbox) == [FILES, FILES], f"{inbox.texts()} {running.text()}", 60)
    assert len(inbox.mails) <= 4
    assert inbox.sent_to == [["ops@example.com"]] * len(inbox.mails)


def told(inbox: Inbox) -> list[int]:
    """Give how many failures were told of each cause, over all mails."""
    found: dict[str, int] = {}
    for text in inbox.texts():
        for cause, new in re.findall(r"^\d+\. (.+)\n +([\d,]+) new", text, re.M):
            found[cause] = found.get(cause, 0) + int(new)
    return list(found.values())
