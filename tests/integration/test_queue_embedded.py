"""The embedded server: shared, ended by the last, reused after a crash, and nothing acknowledged is lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from etl import errors
from etl.queues import connection, embedded, enqueue, launch, private
from tests.queue_helpers import DATA_ID, EMBEDDED, kill, lives, wait_until, work

COMMAND = """
import sys
from pathlib import Path
from pydantic import SecretStr
from etl.queues import connection
with connection.connect(SecretStr("embedded"), Path(sys.argv[1])) as client:
    print(client.info("server")["process_id"], flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def command(data: Path) -> Iterator[subprocess.Popen[str]]:
    """Another command that needs the same server until its standard input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(data)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        yield process
        process.kill()
    with connection.connect(EMBEDDED, data):
        pass  # and leave: that ends a survivor


def process_id(client: redis.Redis) -> int:
    return int(client.info("server")["process_id"])


def test_two_commands_share_one_server_and_the_last_ends_it(
    data: Path, command: subprocess.Popen[str]
) -> None:
    assert command.stdin and command.stdout
    server = int(command.stdout.readline())
    with connection.connect(EMBEDDED, data) as client:
        assert process_id(client) == server
        command.stdin.close()
        assert command.wait(30) == 0
        assert client.ping()
        socket = embedded.running(data)
        assert socket is not None
    wait_until(lambda: not lives(server), "the server is gone")
    assert embedded.running(data) is None
    assert not socket.parent.exists()


def test_many_commands_at_once_start_one_server(data: Path) -> None:
    argv = [sys.executable, "-c", COMMAND, str(data)]
    crowd = [
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    servers = {int(one.stdout.readline()) for one in crowd if one.stdout}
    for one in crowd:
        one.communicate("", timeout=30)
    assert len(servers) == 1
    wait_until(lambda: not any(lives(server) for server in servers), "the server is gone")
    assert embedded.running(data) is None


def test_the_survivor_of_a_killed_command_is_reused(data: Path, command: subprocess.Popen[str]) -> None:
    assert command.stdout
    server = int(command.stdout.readline())
    command.kill()
    command.wait(30)
    assert lives(server)
    with connection.connect(EMBEDDED, data) as client:
        assert process_id(client) == server
    wait_until(lambda: not lives(server), "the server is gone")


def test_a_survivor_is_found_without_its_pointer(data: Path, command: subprocess.Popen[str]) -> None:
    assert command.stdout
    server = int(command.stdout.readline())
    (data / ".etl" / "redis.socket").unlink()
    with connection.connect(EMBEDDED, data) as client:
        assert process_id(client) == server


def test_a_killed_server_keeps_every_acknowledged_job(data: Path) -> None:
    with connection.connect(EMBEDDED, data) as client:
        enqueue.RedisAnnouncer(client, DATA_ID).announce([work(f"{n}.csv") for n in range(500)])
        kill(process_id(client))
    with connection.connect(EMBEDDED, data) as client:
        assert len(enqueue.announced(client, DATA_ID)) == 500


def test_a_torn_end_of_the_append_only_file_is_no_obstacle(data: Path) -> None:
    with connection.connect(EMBEDDED, data) as client:
        client.set("first", "1")
        client.set("second", "2")
        kill(process_id(client))
    [log] = (data / ".etl" / "redis" / "appendonlydir").glob("*.incr.aof")
    os.truncate(log, log.stat().st_size - 5)
    with connection.connect(EMBEDDED, data) as client:
        assert client.get("first") == b"1"
        assert client.get("second") is None


def test_a_server_killed_under_a_running_command_is_revived_in_place(data: Path) -> None:
    with connection.connect(EMBEDDED, data) as client:
        before = process_id(client)
        kill(before)
        connection.revive(EMBEDDED, data)
        assert process_id(client) != before
        connection.revive(EMBEDDED, data)
        assert client.ping()


def test_a_revived_server_is_found_where_it_was_whatever_the_environment(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as runtime, connection.connect(EMBEDDED, data) as client:
        kill(process_id(client))
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        connection.revive(EMBEDDED, data)
        assert client.ping()


def test_a_server_that_cannot_start_says_why_and_what_to_do(data: Path) -> None:
    folder = data / ".etl" / "redis" / "appendonlydir"
    folder.mkdir(parents=True)
    (folder / "appendonly.aof.manifest").write_text("this is no manifest\n")
    with pytest.raises(errors.Unavailable, match="manifest") as refusal, connection.connect(EMBEDDED, data):
        pass
    assert "appendonlydir" in refusal.value.next
    private.socket_path(data).parent.rmdir()  # made anew by this call, and empty: nothing was left in it


def test_stale_traces_of_a_server_are_cleaned(data: Path) -> None:
    (data / ".etl").mkdir(parents=True)
    (data / ".etl" / "redis.socket").write_text("/nowhere/at/all\n")
    private.socket_path(data).write_text("not a socket")
    assert embedded.running(data) is None
    with connection.connect(EMBEDDED, data) as client:
        assert client.ping()


def test_a_copied_data_folder_gets_a_server_of_its_own(data: Path, tmp_path: Path) -> None:
    with connection.connect(EMBEDDED, data) as client:
        shutil.copytree(data, tmp_path / "copy")
        assert embedded.running(tmp_path / "copy") is None
        with connection.connect(EMBEDDED, tmp_path / "copy") as other:
            assert process_id(other) != process_id(client)
        assert client.ping()


def test_the_server_has_no_port_and_a_session_of_its_own(data: Path) -> None:
    with connection.connect(EMBEDDED, data) as client:
        assert client.config_get("port") == {"port": "0"}
        assert os.getsid(process_id(client)) != os.getsid(0)
        socket = embedded.running(data)
        assert socket is not None
        assert socket.parent.stat().st_mode & 0o777 == 0o700


def test_a_long_data_path_still_gives_a_short_socket_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tmp_path / ("long" * 40)
    runtime.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    socket = private.socket_path(tmp_path / ("deep" * 50) / "data")
    assert len(os.fsencode(socket)) <= private.LONGEST_SOCKET
    assert runtime not in socket.parents
    socket.parent.rmdir()


def test_a_short_runtime_folder_is_preferred(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as runtime:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        assert private.socket_path(data).parent.parent == Path(runtime)


@pytest.mark.parametrize("trap", ["a link", "an open folder", "a file"])
def test_a_socket_folder_somebody_else_prepared_is_refused(data: Path, tmp_path: Path, trap: str) -> None:
    folder = private.socket_path(data).parent
    folder.rmdir()
    if trap == "a link":
        folder.symlink_to(tmp_path)
    elif trap == "an open folder":
        folder.mkdir()
        folder.chmod(0o777)
    else:
        folder.write_text("")
    try:
        with pytest.raises(errors.Unavailable, match=folder.name), connection.connect(EMBEDDED, data):
            pass
    finally:
        folder.rmdir() if trap == "an open folder" else folder.unlink()


def test_a_server_that_hangs_is_named_and_not_doubled(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with connection.connect(EMBEDDED, data) as client:
        server = process_id(client)
        monkeypatch.setattr(launch, "ANSWER_WITHIN", 0.2)
        os.kill(server, signal.SIGSTOP)
        try:
            with (
                pytest.raises(errors.Unavailable, match=f"process {server}"),
                connection.connect(EMBEDDED, data),
            ):
                pass
        finally:
            os.kill(server, signal.SIGCONT)
