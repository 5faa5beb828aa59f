"""What the tests of queues and workers share: a job to enqueue, a worker to run it, and patient waiting."""

from __future__ import annotations

import os
import signal
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis
from pydantic import SecretStr

from etl.queues import worker
from etl.queues.queue import Work

EMBEDDED = SecretStr("embedded")
DATA_ID = "k3f9"


def work(
    name: str = "books.csv", *, function: str = "transform", timeout: int = 30, **arguments: Any
) -> Work:
    arguments = {"pipeline": "books", "name": name, **arguments}
    return Work(function=f"etl.jobs.{function}", arguments=arguments, timeout=timeout)


def provide_jobs(monkeypatch: Any, **functions: Callable[..., Any]) -> None:
    """Stand in for the job functions, in this process and in those it forks."""
    module = types.ModuleType("etl.jobs")
    for name, function in functions.items():
        setattr(module, name, function)
    monkeypatch.setitem(sys.modules, "etl.jobs", module)


def work_until_empty(connection: redis.Redis, *queues: str) -> None:
    """Run a real worker in a process of its own until the queues are empty."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            worker.run_worker(connection, DATA_ID, queues or ("default",), ends=0)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def wait_until(condition: Callable[[], Any], what: str, within: float = 60.0) -> Any:
    """Give what `condition` gives as soon as it is true."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        if result := condition():
            return result
        time.sleep(0.01)
    raise AssertionError(f"waited in vain: {what}")


def lives(pid: int) -> bool:
    """Tell whether a process runs; one that is dead but not yet buried does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return not Path("/proc/self").exists()


def kill(pid: int) -> None:
    """End a process the hard way and wait until it is gone."""
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not lives(pid), f"process {pid} is gone")
