"""The heartbeat is heard while everything runs, and whoever does not hear it harms nobody."""

from __future__ import annotations

import logging
import time

import pytest

from etl.config.operating import Heartbeat
from etl.services import heartbeat
from tests.listening import Listener, free_port, listening
from tests.queue_helpers import wait_until


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "_FIRST_AFTER", 0.0)


def heart(url: str) -> Heartbeat:
    beat = Heartbeat.model_validate({"url": f"{url}/secret-token", "every": "1s"})
    return beat.model_copy(update={"every": 0.02})


def gets(listener: Listener) -> int:
    return len(listener.at("/secret-token"))


def test_it_beats_while_all_run_and_is_silent_while_one_does_not(caplog: pytest.LogCaptureFixture) -> None:
    runs = True
    with listening() as listener, heartbeat.beating(heart(listener.url), lambda: runs):
        wait_until(lambda: gets(listener) >= 3, "it is heard")
        runs = False
        wait_until(lambda: "not every service runs" in caplog.text, "it falls silent")
        heard = gets(listener)
        time.sleep(0.1)
        assert gets(listener) == heard
        runs = True
        wait_until(lambda: gets(listener) > heard, "it is heard again")
    assert caplog.text.count("not every service runs") == 1


def test_trouble_is_told_once_and_once_that_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "etl")
    with listening() as listener:
        listener.first = [500] * 4
        with heartbeat.beating(heart(listener.url), lambda: True):
            wait_until(lambda: gets(listener) >= 6, "it goes on")
    assert caplog.text.count("the heartbeat is not heard: 127.0.0.1 answered 500") == 1
    assert caplog.text.count("the heartbeat is heard again") == 1
    assert "secret-token" not in caplog.text


def test_nobody_there_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    begun = time.monotonic()
    with heartbeat.beating(heart(f"http://127.0.0.1:{free_port()}"), lambda: True):
        wait_until(lambda: "did not answer: ConnectError" in caplog.text, "it is told")
    assert time.monotonic() - begun < 5
    assert "secret-token" not in caplog.text


def test_without_one_nothing_is_started() -> None:
    with heartbeat.beating(None, lambda: True):
        pass
