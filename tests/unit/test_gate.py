"""The gate: settled or not, with real files, real writers, and a clock that is moved by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from etl.files import gate as gates
from etl.files import names
from etl.files.gate import Gate


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def gate(clock: Clock) -> Gate:
    return Gate(2.0, clock=clock)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "books.csv"
    path.write_text("isbn\n")
    return path


def test_a_file_is_settled_when_two_looks_a_while_apart_find_it_unchanged(
    gate: Gate, clock: Clock, path: Path
) -> None:
    first = gate.look(path)
    assert (first.settled, first.again) == (False, 2.0)
    clock.now += 1.5
    assert gate.look(path).again == pytest.approx(0.5)
    clock.now += 0.5
    look = gate.look(path)
    assert look.settled
    assert look.seen == gates.seen(path.stat())


@pytest.mark.parametrize("change", ["append", "touch", "replace", "chmod"])
def test_whatever_changes_starts_the_wait_anew(gate: Gate, clock: Clock, path: Path, change: str) -> None:
    gate.look(path)
    clock.now += 1.9
    match change:
        case "append":
            with path.open("a") as handle:
                handle.write("1\n")
        case "touch":
            os.utime(path, ns=(1, 1))
        case "replace":
            other = path.with_name("other")
            other.write_text("isbn\n")
            other.replace(path)
        case "chmod":
            path.chmod(0o600)
    gate.look(path)
    clock.now += 1.9
    assert not gate.look(path).settled
    clock.now += 0.1
    assert gate.look(path).settled


def test_what_was_renamed_in_is_settled_at_once(gate: Gate, path: Path) -> None:
    gate.renamed(path)
    assert gate.look(path).settled
    assert gate.look(path).settled


def test_what_was_renamed_in_and_then_written_to_has_to_settle(gate: Gate, clock: Clock, path: Path) -> None:
    gate.renamed(path)
    assert gate.look(path).settled
    path.write_text("isbn\nmore\n")
    assert not gate.look(path).settled
    clock.now += 2
    assert gate.look(path).settled


def test_a_name_made_again_is_not_taken_for_the_one_that_was_renamed_in(gate: Gate, path: Path) -> None:
    gate.renamed(path)
    gate.made(path)
    assert not gate.look(path).settled


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of writers")
@pytest.mark.parametrize("renamed", [True, False])
def test_a_file_that_somebody_has_open_for_writing_waits_until_it_was_quiet_without_them(
    gate: Gate, clock: Clock, path: Path, renamed: bool
) -> None:
    if renamed:
        gate.renamed(path)
    else:
        gate.look(path)
        clock.now += 2
    with path.open("a"):
        for _ in range(3):
            look = gate.look(path)
            assert (look.settled, look.again) == (False, 2.0)
            clock.now += 100
    # closed: quiet from the last look on
    assert gate.look(path).settled


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of writers")
def test_asking_for_writers_never_kills_us_nor_keeps_a_writer_out(tmp_path: Path, path: Path) -> None:
    program = f"""
from pathlib import Path
from etl.files.gate import Gate
import time
gate, path = Gate(0.0), Path({str(path)!r})
until = time.monotonic() + 1
print("go", flush=True)
looks = 0
while time.monotonic() < until:
    gate.look(path)
    looks += 1
print(looks)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as looker:
        assert looker.stdout
        assert looker.stdout.readline() == "go\n"
        opened = 0
        while looker.poll() is None:
            with path.open("a") as handle:
                handle.write("x")
            opened += 1
        assert looker.returncode == 0
        assert int(looker.stdout.readline()) > 10
    assert opened > 10


def test_a_reader_is_no_writer(gate: Gate, clock: Clock, path: Path) -> None:
    gate.look(path)
    clock.now += 2
    with path.open():
        assert gate.look(path).settled


def test_an_empty_file_settles_like_any_other(gate: Gate, clock: Clock, path: Path) -> None:
    path.write_bytes(b"")
    assert not gate.look(path).settled
    clock.now += 2
    assert gate.look(path).settled


def test_a_file_from_the_future_settles_too(gate: Gate, clock: Clock, path: Path) -> None:
    os.utime(path, (4e9, 4e9))
    gate.look(path)
    clock.now += 2
    assert gate.look(path).settled


def test_what_is_no_regular_file_is_passed_at_once_for_the_claim_to_refuse(
    gate: Gate, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/passwd")
    for name in ("pipe", "link"):
        look = gate.look(tmp_path / name)
        assert (look.settled, look.seen) == (True, None)


def test_names_that_are_gone_are_forgotten(gate: Gate, clock: Clock, path: Path) -> None:
    gate.look(path)
    gate.renamed(path.with_name("other"))
    path.unlink()
    gate.forget_gone()
    assert gate.look(path).gone
    assert not gate._since
    assert not gate._renamed


def test_it_never_gives_up(gate: Gate, clock: Clock, path: Path) -> None:
    for day in range(1000):
        path.write_text(f"{day}\n")
        assert gate.look(path).again == 2.0
        clock.now += 86400
    gate.look(path)
    assert gate.look(path).settled


# --- done-files


@pytest.fixture
def told(clock: Clock) -> Gate:
    return Gate(2.0, "{name}.ok", clock)


def test_with_a_done_file_configured_nothing_else_counts(told: Gate, clock: Clock, path: Path) -> None:
    told.renamed(path)
    for _ in range(3):
        look = told.look(path)
        assert (look.settled, look.again) == (False, None)
        clock.now += 1000
    path.with_name("books.csv.ok").touch()
    assert told.look(path).settled


def test_a_done_file_that_came_after_its_file_settles_it_at_once(told: Gate, path: Path) -> None:
    path.with_name("books.csv.ok").touch()
    assert told.look(path).settled


def test_a_done_file_older_than_its_file_leaves_it_to_settle(told: Gate, clock: Clock, path: Path) -> None:
    path.with_name("books.csv.ok").touch()
    os.utime(path)
    while path.stat().st_ctime_ns <= path.with_name("books.csv.ok").stat().st_ctime_ns:
        os.utime(path)
    assert told.look(path).again == 2.0
    clock.now += 2
    assert told.look(path).settled


def test_a_file_that_came_back_needs_no_second_done_file(told: Gate, clock: Clock, path: Path) -> None:
    told.look(path, drop=False)
    clock.now += 2
    assert told.look(path, drop=False).settled


def test_a_done_file_does_not_overrule_a_writer(told: Gate, path: Path) -> None:
    with path.open("a"):
        path.with_name("books.csv.ok").touch()
        assert not told.look(path).settled


@pytest.mark.parametrize(
    ("pattern", "name", "given"),
    [
        ("{name}.ok", "books.csv.ok", "books.csv"),
        ("{name}.ok", "books.csv", None),
        ("{name}.ok", ".ok", None),
        ("done_{name}.txt", "done_books.csv.txt", "books.csv"),
        ("done_{name}.txt", "done_books.csv", None),
        ("aa{name}aa", "aaa", None),
        (None, "books.csv.ok", None),
    ],
)
def test_a_done_file_is_known_by_its_name(pattern: str | None, name: str, given: str | None) -> None:
    assert names.of_done(pattern, name) == given
    if pattern and given:
        assert names.done_name(pattern, given) == name
