"""Who is whose child: found, adopted, ended and buried; by the kernel's list and by `ps` alike."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from etl import process
from tests.queue_helpers import lives, wait_until

linux = pytest.mark.skipif(sys.platform != "linux", reason="orphans can be adopted on Linux only")

#: adopts a detached process, ends what it does not keep, and says who lived before and after.
ADOPTS = """
import os, subprocess, sys, time
from etl import process
assert process.adopt_orphans()
kept = subprocess.Popen(["sleep", "600"])
subprocess.run(["sh", "-c", "setsid sh -c 'trap : TERM; (sleep 600 &) ; sleep 600' & "])
subprocess.Popen(["sh", "-c", "sleep 600; true"])
until = time.monotonic() + 20
while len(process.descendants(os.getpid())) < 6 and time.monotonic() < until:
    time.sleep(0.01)
started = process.descendants(os.getpid()) - {kept.pid}
assert process.end_strays(keep=[kept.pid])
print(*sorted(started))
print(*process.descendants(os.getpid()) - {kept.pid})
print(kept.poll())
kept.kill()
"""


@pytest.fixture(params=["kernel", "ps"])
def family(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[subprocess.Popen[bytes]]:
    """A child with a child of its own; looked for by the kernel's list, and by `ps`."""
    if request.param == "ps":
        if not Path("/bin/ps").exists():
            pytest.skip("there is no ps")
        monkeypatch.setattr(process, "_kernel_lists_children", lambda: False)
    before = process.descendants(os.getpid())
    with subprocess.Popen(["sh", "-c", "sleep 600; true"]) as child:
        wait_until(lambda: len(process.descendants(os.getpid()) - before) == 2, "there are two")
        yield child
        process.end_started_since(before)


def test_children_and_their_children_are_found(family: subprocess.Popen[bytes]) -> None:
    assert family.pid in process.children(os.getpid())
    [grandchild] = process.children(family.pid)
    assert grandchild not in process.children(os.getpid())
    assert {family.pid, grandchild} <= process.descendants(os.getpid())


def test_what_was_started_meanwhile_is_ended_and_nothing_else(family: subprocess.Popen[bytes]) -> None:
    before = process.descendants(os.getpid())
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
    assert process.started_since(before) == {pid}
    assert process.end_started_since(before)
    assert not lives(pid)
    assert process.started_since(before) == set()
    assert family.poll() is None


def test_who_ended_by_itself_does_not_count_as_running(family: subprocess.Popen[bytes]) -> None:
    before = process.descendants(os.getpid())
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    wait_until(lambda: not process.started_since(before), "it is buried")
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def test_a_process_that_is_gone_has_no_children_and_no_command() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    assert process.children(pid) == set()
    assert process.command(pid) == ""


@linux
def test_what_detached_itself_is_adopted_and_ended_but_not_what_is_kept() -> None:
    done = subprocess.run([sys.executable, "-c", ADOPTS], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    started, left, kept = done.stdout.split("\n")[:3]
    assert len(started.split()) >= 4
    assert left == ""
    assert kept == "None"
    assert [pid for pid in started.split() if lives(int(pid))] == []


def test_a_forked_copy_ends_where_it_is_told_to() -> None:
    owner = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            process.end_if_forked(owner)
        finally:
            os._exit(1)
    process.end_if_forked(owner)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_what_strikes_while_something_is_carried_through_strikes_at_its_end() -> None:
    done = []
    before = signal.signal(signal.SIGUSR1, lambda *_: process.strike(KeyboardInterrupt()))
    # with another thread the kernel may choose, a mask alone would not hold
    with ThreadPoolExecutor(1) as pool:
        pool.submit(time.sleep, 0).result()
        try:
            with pytest.raises(KeyboardInterrupt), process.undisturbed():
                with process.undisturbed():
                    os.kill(os.getpid(), signal.SIGUSR1)
                    time.sleep(0.01)
                done.append("all of it")
        finally:
            signal.signal(signal.SIGUSR1, before)
    assert done == ["all of it"]
    with process.undisturbed():
        pass  # nothing is left of it
