"""Records of running services: there while the service lives, gone once somebody looks after it died."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from etl.services import records, seat
from tests.queue_helpers import kill, wait_until

SERVICE = """
import sys
from pathlib import Path
from etl.services import records
with records.held(Path(sys.argv[1]), "dropbox", restarts=2):
    sys.stdin.read()
"""


def folder(data: Path) -> Path:
    return data / ".etl" / "services"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", SERVICE, str(tmp_path)], stdin=subprocess.PIPE) as process:
        wait_until(lambda: records.living(tmp_path), "its record is there")
        yield process
        process.kill()


def test_a_living_service_is_told_with_all_that_is_known_of_it(
    tmp_path: Path, service: subprocess.Popen[bytes]
) -> None:
    [record] = records.living(tmp_path)
    assert (record.name, record.host, record.pid, record.restarts) == (
        "dropbox",
        records.host(),
        service.pid,
        2,
    )
    assert 0 <= time.time() - record.started < 30
    assert (folder(tmp_path) / f"dropbox.{records.host()}.{service.pid}.json").exists()


def test_the_record_of_one_that_was_killed_is_not_told_and_is_removed(
    tmp_path: Path, service: subprocess.Popen[bytes]
) -> None:
    kill(service.pid)
    assert records.living(tmp_path) == []
    assert list(folder(tmp_path).iterdir()) == []


def test_a_service_that_ends_takes_its_record_along(tmp_path: Path, service: subprocess.Popen[bytes]) -> None:
    assert service.stdin
    service.stdin.close()
    service.wait(10)
    assert list(folder(tmp_path).iterdir()) == []


def test_two_of_one_name_host_and_process_have_a_record_each(tmp_path: Path) -> None:
    with records.held(tmp_path, "workers"), records.held(tmp_path, "workers"):
        assert [one.name for one in records.living(tmp_path)] == ["workers", "workers"]
    assert records.living(tmp_path) == []


def test_a_forked_child_does_not_keep_its_parents_record_alive(tmp_path: Path) -> None:
    held = SERVICE.replace("    sys.stdin.read()", "    child = os.fork()\n    time.sleep(600)")
    program = f"import os, time\n{held}"
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], start_new_session=True) as process:
        wait_until(lambda: records.living(tmp_path), "its record is there")
        kill(process.pid)
        wait_until(lambda: records.living(tmp_path) == [], "the child keeps nothing", within=5.0)
        os.killpg(process.pid, 9)


def test_where_nothing_ever_ran_nothing_runs(tmp_path: Path) -> None:
    assert records.living(tmp_path / "nowhere") == []


def test_what_was_never_finished_is_forgotten_after_a_while(tmp_path: Path) -> None:
    folder(tmp_path).mkdir(parents=True)
    young, old = (folder(tmp_path) / f".dropbox.h.{number}.writing" for number in (1, 2))
    young.touch()
    old.touch()
    os.utime(old, (0, 0))
    assert records.living(tmp_path) == []
    assert list(folder(tmp_path).iterdir()) == [young]


def test_a_service_whose_record_cannot_be_written_runs_all_the_same(tmp_path: Path) -> None:
    (tmp_path / ".etl").mkdir()
    folder(tmp_path).write_text("in the way")
    with records.held(tmp_path, "dropbox") as record:
        assert record.pid == os.getpid()


def test_the_supervisors_seat_tells_its_holder_while_it_is_held(tmp_path: Path) -> None:
    assert seat.holder(tmp_path) is None
    with seat.take(tmp_path) as taken:
        taken.refused("a long story " * 100)
        taken.reloaded("", [])
        holder = seat.holder(tmp_path)
        assert holder is not None
        assert (holder.pid, holder.host, holder.reloads, holder.said) == (os.getpid(), records.host(), 2, "")
        with pytest.raises(Exception, match=f"process {os.getpid()} on host"):
            seat.take(tmp_path)
        assert json.loads((tmp_path / ".etl" / "supervisor.lock").read_text())["pid"] == os.getpid()
    assert seat.holder(tmp_path) is None
