"""The log of services: one stream in which every line says when, who and what."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator

import pytest

from etl.services import logs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def root() -> Iterator[None]:
    """Give the root logger back as it was."""
    logger = logging.getLogger()
    handlers, level = list(logger.handlers), logger.level
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)


def written(stream: io.StringIO, message: str, *values: object, **more: object) -> list[str]:
    logs.begin("dropbox", stream)
    logging.getLogger("any").warning(message, *values, **more)  # type: ignore[arg-type]
    return stream.getvalue().splitlines()


def test_a_line_has_time_service_and_message() -> None:
    [line] = written(io.StringIO(), "%d files", 3)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d dropbox    3 files", line)


def test_every_line_of_a_longer_message_can_be_found_by_its_service() -> None:
    try:
        int("no")
    except ValueError:
        lines = written(io.StringIO(), "one\ntwo", exc_info=True)
    assert len(lines) > 4
    assert all(" dropbox    " in line for line in lines)
    assert lines[-1].startswith(lines[0][:20])
    assert "ValueError: " in lines[-1]


def test_a_terminal_obeys_nothing_that_a_file_is_called() -> None:
    [line] = written(io.StringIO(), "%s\tfailed", "x\x1b]0;owned\x07.csv\udcff")
    assert line.endswith(" dropbox    x%1B]0;owned%07.csv%FF\tfailed")


def test_the_name_of_the_service_is_said_once() -> None:
    [line] = written(io.StringIO(), "dropbox: away")
    assert line.endswith(" dropbox    away")


def test_there_is_colour_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" in written(Terminal(), "x")[0]
    assert "\x1b" not in written(io.StringIO(), "x")[0]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in written(Terminal(), "x")[0]
