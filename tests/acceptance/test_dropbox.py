"""The dropbox as it runs: real folders, a real watcher, real workers, files dropped in every way people have."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from etl.model import Status
from etl.queues import connection, keys
from tests import road as roads
from tests.queue_helpers import EMBEDDED, wait_until
from tests.road import REPOSITORY, Road

PROGRAM = """
import errno, logging, sys
from pathlib import Path
from etl import app
from etl.services import dropbox, service

def no_events():
    raise OSError(errno.EMFILE, "inotify instance limit reached")

class Watched:
    name = "dropbox"
    def __init__(self, box):
        self._box, self.close, self.said = box, box.close, False
    def turn(self):
        wait = self._box.turn()
        if "kill" in sys.argv and self._box.watch.observer and not Path("killed").exists():
            Path("killed").touch()
            self._box.watch.observer.event_queue.put("no event at all")
        if not self.said:
            self.said = print("scanned", flush=True) or True
        return wait

logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
if "deaf" in sys.argv:
    dropbox._observer = no_events
    dropbox.DEAF_SCAN = 0.3
with dropbox.open(app.configuration(Path(sys.argv[1]))) as box:
    service.keep(Watched(box))
"""


class Yard:
    """A project, and the processes that work it."""

    def __init__(self, road: Road) -> None:
        self.road = road
        self.processes: list[subprocess.Popen[str]] = []
        self.log = road.root / "log"

    def start(self, *command: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        with self.log.open("a") as log:
            process = subprocess.Popen(
                [sys.executable, *command],
                cwd=self.road.root,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.processes.append(process)
        return process

    def dropbox(self, *options: str) -> subprocess.Popen[str]:
        """Start a dropbox and wait until its first scan is over."""
        process = self.start("-c", PROGRAM, str(self.road.root / "config"), *options)
        assert process.stdout is not None
        assert process.stdout.readline() == "scanned\n", self.log.read_text()
        return process

    def workers(self, count: int = 1) -> None:
        self.start("-m", "etl", "worker", "--workers", str(count))

    def said(self) -> str:
        return self.log.read_text()

    def rows(self) -> list[int]:
        found = roads.rows(f"sqlite:///{self.road.root}/books.db", "books", "id")
        return [row[0] for row in found]

    def wait_for_rows(self, *wanted: int) -> None:
        wait_until(lambda: self.rows() == sorted(wanted), f"rows {wanted}, not {self.rows()}: {self.said()}")

    def wait_for_rest(self, *parts: str) -> Path:
        """Wait until one file rests in a status folder, and give it."""
        wait_until(lambda: self.road.files(*parts), f"a file in {parts}: {self.said()}")
        return self.road.one(*parts)

    def wait_for_peace(self) -> None:
        """Wait until nothing is in process, and nothing is broken then."""
        broken = self.road.broken_promises
        wait_until(lambda: broken() == [], f"peace: {broken()}, {self.said()}")

    def stop(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.processes:
            process.wait(30)
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture
def yards(tmp_path: Path) -> Iterator[Callable[..., Yard]]:
    made: list[Yard] = []

    def make(*, settle: str = "300ms", scan: str = "60s", **extract: object) -> Yard:
        spec = {
            "extract": {"complete": {"settle": settle}, "accept": ["*.csv"], **extract},
            "transform": {
                "read": "csv",
                "schema": {"required": ["id"], "properties": {"id": {"type": "integer"}}},
            },
            "load": {
                "locations": {
                    "db": {"kind": "sql", "url": "sqlite:///books.db", "table": "books", "create": True}
                }
            },
        }
        (tmp_path / "project").mkdir()
        made.append(Yard(Road(tmp_path / "project", spec, settings={"scan": scan, "reserve": "0B"})))
        return made[-1]

    yield make
    for yard in made:
        yard.stop()


def put(folder: Path, name: str, *ids: int) -> Path:
    path = folder / name
    path.write_text("id\n" + "".join(f"{number}\n" for number in ids))
    return path


def jobs(yard: Yard, at_least: int = 1) -> list[str]:
    """Wait for so many jobs, and give the descriptions of all that wait."""
    with connection.connect(EMBEDDED, yard.road.data) as client:
        name = keys.queue(yard.road.layout.data_id(), "default")
        wait_until(lambda: client.llen(name) >= at_least, f"{at_least} jobs: {yard.said()}")
        with client.pipeline() as pipeline:
            for one in client.lrange(name, 0, -1):
                pipeline.hget(keys.job(keys.text(one)), "description")
            return [keys.text(one) for one in pipeline.execute()]


def test_what_is_moved_in_copied_in_or_was_there_before_ends_as_rows(yards: Callable[..., Yard]) -> None:
    yard = yards()
    working = yard.road.folder("extract", "working")
    put(working, "before.csv", 1)
    yard.workers()
    yard.dropbox()
    yard.wait_for_rows(1)
    os.rename(put(yard.road.root, "moved.csv", 2), working / "moved.csv")
    yard.wait_for_rows(1, 2)
    shutil.copy(put(yard.road.root, "copied.csv", 3), working)
    yard.wait_for_rows(1, 2, 3)
    half = put(working, "half.csv.part", 4)
    half.rename(working / "half.csv")
    yard.wait_for_rows(1, 2, 3, 4)
    yard.wait_for_peace()


def test_a_file_that_is_renamed_in_does_not_wait_until_it_has_settled(yards: Callable[..., Yard]) -> None:
    yard = yards(settle="1h")
    working = yard.road.folder("extract", "working")
    yard.dropbox()
    put(working, "copied.csv", 1)
    os.rename(put(yard.road.root, "moved.csv", 2), working / "moved.csv")
    assert jobs(yard) == ["extract books/moved.csv"]


def test_a_slow_writer_who_closes_in_between_is_read_once_and_whole(yards: Callable[..., Yard]) -> None:
    yard = yards(settle="600ms")
    yard.workers()
    yard.dropbox()
    path = yard.road.folder("extract", "working") / "slow.csv"
    path.write_text("id\n")
    for number in range(15):
        time.sleep(0.15)  # never as long as `settle`
        with path.open("a") as handle:
            handle.write(f"{number}\n")
    with path.open("a") as handle:
        # longer than `settle`, but somebody has it open
        time.sleep(1.5)
        handle.write("15\n")
    yard.wait_for_rows(*range(16))
    assert len(yard.road.files("extract", "resolved")) == 1
    assert yard.road.note(yard.road.one("extract", "resolved")).attempt == 1


@pytest.mark.parametrize("how", ["removed", "moved away"])
def test_a_watched_folder_that_is_made_again_is_watched_again(yards: Callable[..., Yard], how: str) -> None:
    yard = yards(scan="2s" if how == "moved away" else "60s")
    working = yard.road.folder("extract", "working")
    yard.workers()
    yard.dropbox()
    if how == "removed":
        working.rmdir()
        wait_until(working.is_dir, f"it is made again: {yard.said()}")
    else:
        working.rename(yard.road.root / "elsewhere")
        working.mkdir()
    for number in (1, 2):
        os.rename(put(yard.road.root, "books.csv", number), working / f"books{number}.csv")
        yard.wait_for_rows(*range(1, number + 1))


def test_where_there_are_no_events_the_scan_finds_everything(yards: Callable[..., Yard]) -> None:
    yard = yards()
    yard.workers()
    yard.dropbox("deaf")
    assert yard.said().count("no events, folders are scanned instead") == 1
    working = yard.road.folder("extract", "working")
    os.rename(put(yard.road.root, "moved.csv", 1), working / "moved.csv")
    put(working, "copied.csv", 2)
    yard.wait_for_rows(1, 2)
    assert yard.said().count("no events, folders are scanned instead") == 1


def test_a_watcher_that_died_is_replaced_and_nothing_is_missed(yards: Callable[..., Yard]) -> None:
    yard = yards(scan="1s")
    yard.workers()
    yard.dropbox("kill")
    working = yard.road.folder("extract", "working")
    os.rename(put(yard.road.root, "moved.csv", 1), working / "moved.csv")
    yard.wait_for_rows(1)
    wait_until(lambda: "the watcher died and is replaced" in yard.said(), yard.said())
    os.rename(put(yard.road.root, "moved.csv", 2), working / "moved2.csv")
    yard.wait_for_rows(1, 2)


@pytest.mark.parametrize("how", ["cp -r", "mv"])
def test_a_folder_that_is_dropped_whole_is_emptied_file_by_file(yards: Callable[..., Yard], how: str) -> None:
    yard = yards(scan="1s", settle="300ms" if how == "cp -r" else "1h")
    working = yard.road.folder("extract", "working")
    delivery = yard.road.root / "delivery"
    (delivery / "deep" / "deeper").mkdir(parents=True)
    put(delivery, "same.csv", 1)
    put(delivery / "deep", "same.csv", 2)
    put(delivery / "deep" / "deeper", "other.csv", 3)
    put(delivery / "deep", ".hidden.csv", 4)
    put(delivery / "deep", "half.csv.part", 5)
    (delivery / "deep" / ".git").mkdir()
    put(delivery / "deep" / ".git", "config.csv", 6)
    (delivery / "link.csv").symlink_to("/etc/passwd")
    (delivery / "away").symlink_to("/etc")
    yard.workers()
    yard.dropbox()
    subprocess.run([*how.split(), str(delivery), str(working)], check=True)
    yard.wait_for_rows(1, 2, 3)
    wait_until(lambda: len(yard.road.files("extract", "failed")) == 2, f"both links: {yard.said()}")
    given = [path.name.partition("~")[0] for path in yard.road.files("extract", "resolved")]
    assert sorted(given) == ["other", "same", "same"]
    left = {str(path.relative_to(working)) for path in working.rglob("*") if path.is_file()}
    assert left == {f"delivery/deep/{name}" for name in (".hidden.csv", "half.csv.part", ".git/config.csv")}
    assert (working / "delivery" / "deep" / "deeper").is_dir()


@pytest.mark.parametrize("with_reason", [True, False])
def test_a_file_moved_back_from_failed_is_one_more_attempt_of_the_same_file(
    yards: Callable[..., Yard], with_reason: bool
) -> None:
    yard = yards(settle="1h")
    yard.workers()
    yard.dropbox()
    working, failed = (yard.road.folder("transform", status) for status in ("working", "failed"))
    source = yard.road.root / "books.csv"
    source.write_text("isbn\n1\n")
    os.rename(source, yard.road.folder("extract", "working") / "books.csv")
    path = yard.wait_for_rest("transform", "failed")
    path.write_text("id\n7\n")
    wait_until(lambda: path.with_name(f"{path.name}.reason.json").exists(), "its reason")
    if with_reason:
        os.rename(failed / f"{path.name}.reason.json", working / f"{path.name}.reason.json")
    os.rename(path, working / path.name)
    yard.wait_for_rows(7)
    resolved = yard.wait_for_rest("transform", "resolved")
    assert resolved.name == path.name
    assert yard.road.note(resolved).attempt == 2
    assert list(failed.iterdir()) == []
    assert list(working.iterdir()) == []


def test_a_copy_put_back_is_worked_and_the_older_twin_is_put_away(yards: Callable[..., Yard]) -> None:
    yard = yards()
    yard.workers()
    yard.dropbox()
    os.rename(put(yard.road.root, "books.csv"), yard.road.folder("extract", "working") / "books.xml")
    path = yard.wait_for_rest("extract", "failed")
    yard.road.spec["extract"]["accept"] = ["*"]
    yard.road.write()
    shutil.copy(path, yard.road.folder("extract", "working"))
    superseded = yard.road.data / "archive" / "superseded"
    wait_until(lambda: list(superseded.rglob(path.name)), f"the older twin is put away: {yard.said()}")
    again = yard.wait_for_rest("extract", "failed")
    wait_until(lambda: yard.road.note(again).attempt == 2, "it is the second attempt")
    assert again.name == path.name


def test_thousands_of_files_that_came_while_the_dropbox_was_stopped_all_get_a_job(
    yards: Callable[..., Yard],
) -> None:
    yard = yards(settle="200ms")
    box = yard.dropbox()
    os.kill(box.pid, signal.SIGSTOP)
    source = put(yard.road.root, "one.csv")
    for number in range(2_000):
        shutil.copy(source, yard.road.folder("extract", "working") / f"{number}.csv")
    os.kill(box.pid, signal.SIGCONT)
    assert Counter(jobs(yard, 2_000)) == Counter(f"extract books/{number}.csv" for number in range(2_000))


def test_two_dropboxes_double_nothing(yards: Callable[..., Yard]) -> None:
    yard = yards(scan="1s")
    yard.workers(2)
    yard.dropbox()
    yard.dropbox()
    working = yard.road.folder("extract", "working")
    for number in range(0, 40, 2):
        put(working, f"copied{number}.csv", number)
        os.rename(put(yard.road.root, "x.csv", number + 1), working / f"moved{number}.csv")
    folder = yard.road.root / "folder"
    folder.mkdir()
    for number in range(40, 60):
        put(folder, "books.csv" if number == 40 else f"books{number}.csv", number)
    subprocess.run(["cp", "-r", str(folder), str(working)], check=True)
    yard.wait_for_rows(*range(60))
    assert len(yard.road.files("extract", "resolved")) == 60
    yard.wait_for_peace()


def test_a_source_is_pulled_on_its_beat_by_one_request_that_goes_round(yards: Callable[..., Yard]) -> None:
    yard = yards(sources=[{"path": "in", "every": "1s"}])
    source = yard.road.root / "in"
    source.mkdir()
    put(source, "first.csv", 1)
    yard.workers()
    yard.dropbox()
    yard.dropbox()
    yard.wait_for_rows(1)
    put(source, "second.csv", 2)
    yard.wait_for_rows(1, 2)
    shutil.rmtree(source)
    requests = yard.road.folder("extract", ".requests")
    wait_until(lambda: list((requests / "failed").glob("every-*")), f"it fails: {yard.said()}")
    source.mkdir()
    put(source, "third.csv", 3)
    yard.wait_for_rows(1, 2, 3)
    found = [path for status in Status for path in (requests / status).iterdir()]
    assert len({path.name.removesuffix(".reason.json") for path in found}) == 1


def test_with_done_files_configured_a_drop_waits_for_its_own(yards: Callable[..., Yard]) -> None:
    yard = yards(settle="1h", complete={"settle": "1h", "done": "{name}.ok"})
    working = yard.road.folder("extract", "working")
    yard.workers()
    yard.dropbox()
    put(working, "waits.csv", 1)
    for number in (2, 3):
        put(working, f"told{number}.csv", number)
        (working / f"told{number}.csv.ok").touch()
    yard.wait_for_rows(2, 3)
    wait_until(lambda: os.listdir(working) == ["waits.csv"], f"used up: {os.listdir(working)}")
    status = json.loads(yard.road.etl("status", "--json").stdout)
    [extract] = [place for place in status["places"] if place["place"] == "books/extract"]
    assert (extract["working"], extract["settling"], extract["not_done"]) == (1, 1, 1)
    (working / "waits.csv.ok").touch()
    yard.wait_for_rows(1, 2, 3)
    wait_until(lambda: os.listdir(working) == [], "all used up")


def test_a_run_in_the_foreground_leaves_alone_what_is_not_complete(yards: Callable[..., Yard]) -> None:
    yard = yards(complete={"settle": "200ms", "done": "{name}.ok"})
    working = yard.road.folder("extract", "working")
    put(working, "waits.csv", 1)
    put(working, "told.csv", 2)
    (working / "told.csv.ok").touch()
    (working / "stray.csv.ok").touch()
    with put(working, "open.csv", 3).open("a"):
        (working / "open.csv.ok").touch()
        done = yard.road.etl("run", "--inline", "books")
    assert done.returncode == 0, done.stdout + done.stderr
    assert yard.rows() == [2]
    assert "2 files left alone: still being written, or without a done-file" in done.stdout
    assert sorted(os.listdir(working)) == ["open.csv", "open.csv.ok", "stray.csv.ok", "waits.csv"]
