"""Hostile input: whatever is dropped or put on the queue gets a clear reason, and nothing outside is touched."""

from __future__ import annotations

import gzip
import io
import json
import os
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etl.config import reading
from etl.queues import connection, enqueue
from etl.queues.queue import Work
from tests.road import Road, count

ROW = b"isbn,title\n1,Emma\n"


def project(root: Path, read: Any = "csv", **transform: Any) -> Road:
    locations = {"lite": {"kind": "sql", "url": "sqlite:///books.db", "table": "books", "create": True}}
    return Road(root, {"transform": {"read": read, **transform}, "load": {"locations": locations}})


def loaded(road: Road) -> int:
    return count(f"sqlite:///{road.root / 'books.db'}", "books")


def drop(road: Road, name: bytes, content: bytes = ROW) -> bytes:
    path = os.fsencode(road.folder("extract", "working")) + b"/" + name
    Path(os.fsdecode(path)).write_bytes(content)
    return path


def lines_of(text: str) -> list[str]:
    """Give the lines as a terminal would: anything that could move a cursor is caught."""
    assert "\x1b" not in text
    assert "\u202e" not in text
    return text.split("\n")


# --- names -------------------------------------------------------------------------------------------------

NAMES = [
    b"new\nline.csv",
    b"return\r.csv",
    b"red\x1b[31m\x07.csv",
    b"a" * 251 + b".csv",
    "ü".encode() * 125 + b".csv",
    b"caf\xe9.csv",
    b"\xff\xfe.csv",
    b"-rf.csv",
    b"--help",
    b" with spaces .csv",
    "日本語✓.csv".encode(),
    "rtl\u202egpj.csv".encode(),
    b"REPORT~1.CSV",
    b"[bold]x[red].csv",
    b"%s%n{0}.csv",
    b"$(touch pwned);`id`.csv",
    b"'; DROP TABLE books; --.csv",
    b"~",
    b"x" * 255,
]


def test_whatever_a_file_is_called_it_is_loaded_and_shown_on_one_line(tmp_path: Path) -> None:
    road = project(tmp_path)
    work = [name for name in NAMES if not name.endswith(b"~")]
    for name in NAMES:
        drop(road, name)
    done = road.etl("run", "books", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert loaded(road) == len(work)
    given = {one["name"] for one in json.loads(done.stdout)["files"]}
    assert given == {os.fsdecode(name) for name in work}
    assert [path.name for path in road.folder("extract", "working").iterdir()] == ["~"]
    assert all(path.name.isprintable() for path in road.files("load", "resolved"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["books.db", "config", "data"]
    for verb in (["files"], ["files", "--json"], ["status"], ["failed"]):
        for encoding in ("utf-8", "ascii"):
            shown = road.etl(*verb, PYTHONIOENCODING=encoding)
            assert (shown.returncode, shown.stderr) == (0, ""), shown.stderr
    shown = lines_of(road.etl("files", COLUMNS="500", PYTHONIOENCODING="utf-8").stdout)
    assert any("new%0Aline.csv" in line for line in shown)
    assert any("red%1B[31m%07.csv" in line for line in shown)
    assert any("caf%E9.csv" in line for line in shown)
    assert road.etl("show", "-rf.csv").returncode != 0  # an option, as everywhere
    assert road.etl("show", "--", "-rf.csv").returncode == 0
    assert road.etl("show", os.fsdecode(b"caf\xe9.csv"), PYTHONIOENCODING="utf-8").returncode == 0
    assert road.broken_promises() == []


def test_names_from_the_command_line_may_be_hostile_too(tmp_path: Path) -> None:
    road = project(tmp_path)
    for name in (b"-rf.csv", b"new\nline.csv", b"caf\xe9.csv"):
        (tmp_path / os.fsdecode(name)).write_bytes(ROW)
    names = [os.fsdecode(name) for name in (b"-rf.csv", b"new\nline.csv", b"caf\xe9.csv")]
    done = road.etl("run", "--inline", "books", "--", *names)
    assert done.returncode == 0, done.stdout + done.stderr
    assert loaded(road) == 3
    refused = road.etl("run", "--inline", "books", "no\nsuch\x1b[31m.csv")
    assert refused.returncode in (1, 2)
    assert len(lines_of(refused.stderr.strip())) == 1


@pytest.mark.parametrize("name", [".hidden.csv", "half.csv.part", "x.tmp", "x.csv~", "x.csv.reason.json"])
def test_a_name_that_is_never_worked_is_refused_aloud_on_the_command_line(tmp_path: Path, name: str) -> None:
    road = project(tmp_path)
    (tmp_path / name).write_bytes(ROW)
    done = road.etl("run", "--inline", "books", name)
    assert done.returncode in (1, 2), done.stdout
    assert name in done.stderr
    assert list(road.folder("extract", "working").iterdir()) == []


# --- kinds -------------------------------------------------------------------------------------------------


def _symlink(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def _dangling(path: Path) -> None:
    path.symlink_to("/nowhere/at/all")


def _hard_link(path: Path) -> None:
    outside = path.parents[4] / "outside.csv"
    outside.write_bytes(ROW)
    os.link(outside, path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        here = Path.cwd()
        os.chdir(path.parent)  # the path of a socket must be short
        try:
            one.bind(path.name)
        finally:
            os.chdir(here)


KINDS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "link.csv": (_symlink, "a symbolic link"),
    "dangling.csv": (_dangling, "a symbolic link"),
    "hard.csv": (_hard_link, "a hard link"),
    "pipe.csv": (os.mkfifo, "a named pipe"),
    "socket.csv": (_socket, "a socket"),
}


@pytest.mark.parametrize("stage", ["extract", "transform"])
def test_what_is_not_a_plain_file_is_refused_with_a_reason_and_never_opened(
    tmp_path: Path, stage: str
) -> None:
    road = project(tmp_path)
    for name, (make, _) in KINDS.items():
        path = road.folder(stage, "working", name)
        make(path)
        # it lay there for a while: what is refused now counts for this run all the same
        os.utime(path, (1_700_000_000, 1_700_000_000), follow_symlinks=False)
    road.drop("good.csv", ROW)
    done = road.etl("run", "books", "--json")
    assert done.returncode == 1, done.stdout
    assert "Traceback" not in done.stderr
    verdicts = {one["name"]: one["verdict"] for one in json.loads(done.stdout)["files"]}
    assert verdicts == {"good.csv": "resolved"} | dict.fromkeys(KINDS, "failed")
    assert loaded(road) == 1
    for path in road.files(stage, "failed"):
        _, kind = KINDS[path.name.partition("~")[0] + ".csv"]
        assert f"({kind})" in road.reason(path)["summary"]
    assert len(road.files(stage, "failed")) == len(KINDS)
    assert (tmp_path / "outside.csv").read_bytes() == ROW
    assert Path("/etc/passwd").stat().st_nlink == 1
    # moved back as they are, they are refused again and nothing hangs
    for path in road.files(stage, "failed"):
        road.move_back(path)
    assert road.etl("run", "books").returncode == 1
    assert len(road.files(stage, "failed")) == len(KINDS)
    done = road.etl("discard", "--stage", stage, "--because", "not files")
    assert done.returncode == 0, done.stderr
    assert road.files(stage, "failed") == []


def test_a_folder_in_a_drop_folder_is_walked_and_the_hidden_and_half_written_in_it_are_not(
    tmp_path: Path,
) -> None:
    road = project(tmp_path)
    folder = road.folder("extract", "working", "sub.csv")
    folder.mkdir()
    (folder / "inner.csv").write_bytes(ROW)
    (folder / "half.csv.part").write_bytes(ROW)
    hidden = road.folder("extract", "working", ".hidden")
    hidden.mkdir()
    (hidden / "inner.csv").write_bytes(ROW)
    road.drop("good.csv", ROW)
    assert "2 drops not yet taken, and no dropbox runs" in road.etl("status").stdout
    done = road.etl("run", "books")
    assert done.returncode == 0, done.stdout + done.stderr
    assert loaded(road) == 2
    assert (hidden / "inner.csv").read_bytes() == ROW
    assert os.listdir(folder) == ["half.csv.part"]
    assert "1 file ignored (hidden" in road.etl("status").stdout


# --- jobs that somebody else put on the queue --------------------------------------------------------------


def test_a_job_may_name_anything_and_reaches_nothing_outside_its_place(tmp_path: Path) -> None:
    road = project(tmp_path)
    outside = tmp_path / "outside" / "working"
    outside.mkdir(parents=True)
    (outside / "x.csv").write_bytes(ROW)
    (tmp_path / "data" / "x.csv").write_bytes(ROW)
    before = _snapshot(tmp_path)
    jobs: list[tuple[str, dict[str, Any]]] = [
        *(
            ("extract", {"pipeline": "books", "name": name})
            for name in (
                "../../x",
                "../../../x.csv",
                "/etc/passwd",
                "..",
                ".",
                "",
                "a\0b",
                "x" * 5000,
                "\ud800",
            )
        ),
        *(
            ("load", {"pipeline": "books", "name": "x.csv", "location": location})
            for location in ("../../../outside", "/etc", "nowhere", ".requests", "..")
        ),
        *(
            (verb, {"pipeline": pipeline, "name": "x.csv"})
            for verb in ("pull", "transform")
            for pipeline in ("nope", "../..", "/etc", "archive", "", None, 7)
        ),
        ("transform", {"pipeline": "books", "name": ["x.csv"]}),
        ("load", {"pipeline": "books", "name": "x.csv", "location": {"a": 1}}),
    ]
    config = reading.read(tmp_path / "config")
    with connection.connect(config.settings.redis, config.data) as client, road.opened() as app:
        works = [Work(function=f"etl.jobs.{verb}", arguments=told, timeout=20) for verb, told in jobs]
        enqueue.RedisAnnouncer(client, app.data_id).announce(works)
        road.drop("good.csv", ROW)
        enqueue.RedisAnnouncer(client, app.data_id).announce(
            [
                Work(
                    function="etl.jobs.extract",
                    arguments={"pipeline": "books", "name": "good.csv"},
                    timeout=20,
                )
            ]
        )
        done = road.etl("worker", "--burst", "--workers", "1")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "'../../x' is not a file name in books/extract" in done.stderr
    assert "there is no pipeline 'nope'" in done.stderr
    assert "which is no place of this configuration" in done.stderr
    assert loaded(road) == 1
    after = {path: facts for path, facts in _snapshot(tmp_path).items() if path in before}
    assert after == before
    assert set(tmp_path.iterdir()) == {tmp_path / name for name in ("books.db", "config", "data", "outside")}


def _snapshot(root: Path) -> dict[str, bytes]:
    """Give every file outside our pipeline and our own things."""
    ours = (root / "data" / "books", root / "data" / ".etl")
    return {
        str(path): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not any(path.is_relative_to(one) for one in ours) and path.name != "books.db"
    }


# --- contents ----------------------------------------------------------------------------------------------


def zipped(*members: tuple[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return packed.getvalue()


def many_members(number: int) -> bytes:
    return zipped(*((f"{index}.csv", b"") for index in range(number)))


#: packs to less than a thousandth.
BOMB = b"isbn\n" + b"0" * (15 << 20)
SMALL = {"format": "csv", "max_unpacked": "1MB"}
UTF16 = {"format": "csv", "encoding": "utf-16"}
#: name, what it holds, how it is read, and what its reason must say.
REFUSED = [
    ("bomb.csv.gz", lambda: gzip.compress(BOMB), "csv", "times its size"),
    ("big.csv.gz", lambda: gzip.compress(ROW * 100_000), SMALL, "unpacks to more than 1,000,000 bytes"),
    ("cut.csv.gz", lambda: gzip.compress(ROW * 100)[:-20], "csv", "the gzip file is cut off"),
    ("not.csv.gz", lambda: ROW, "csv", "the gzip file is damaged"),
    ("nested.csv.gz.gz", lambda: gzip.compress(gzip.compress(ROW)), "csv", "archive in an archive"),
    ("two.zip", lambda: zipped(("a.csv", ROW), ("b.csv", ROW)), "csv", "holds 2 files, not one"),
    ("many.zip", lambda: many_members(30_000), "csv", "too many members"),
    ("none.zip", zipped, "csv", "holds 0 files, not one"),
    ("not.zip", lambda: ROW, "csv", "the zip file is damaged"),
    ("bomb.zip", lambda: zipped(("a.csv", BOMB)), "csv", "times its size"),
    ("nested.zip", lambda: zipped(("a.zip", zipped(("b.csv", ROW)))), "csv", "archive in an archive"),
    ("deep.json", lambda: b"[" * 100_000 + b"]" * 100_000, "json", "nested"),
    ("deep.jsonl", lambda: b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"\n", "jsonl", "depth limit"),
    ("empty.csv", lambda: b"", "csv", "no header at line 1"),
    ("line.csv", lambda: b"isbn,title\n1," + b"x" * (20 << 20) + b"\n", "csv", "line 2"),
    ("quote.csv", lambda: b'isbn,title\n1,"' + (b"x" * 999 + b"\n") * 20_000, "csv", "line 2 is not closed"),
    ("twice.csv", lambda: b"isbn,isbn\n1,2\n", "csv", "column 2 is called 'isbn', as column 1 is"),
    ("latin.csv", lambda: "isbn,title\n1,Café\n".encode("latin-1"), "csv", "line 2"),
    ("utf16.csv", lambda: "isbn\n1\n".encode("utf-16"), "csv", "says it is UTF-16, but is read as utf-8"),
    ("half.json", lambda: b'[{"isbn": 1}, {"isbn"', "json", ""),
    ("word.json", lambda: b'"just a word"', "json", ""),
]


@pytest.mark.parametrize(("name", "content", "read", "told"), REFUSED, ids=[case[0] for case in REFUSED])
def test_a_file_that_cannot_be_read_says_why_and_where(
    tmp_path: Path, name: str, content: Callable[[], bytes], read: Any, told: str
) -> None:
    road = project(tmp_path, read)
    road.drop(name, content())
    road.work()
    failed = road.one("transform", "failed")
    reason = road.reason(failed)
    assert told in f"{reason['summary']} {reason['where']}", reason
    assert reason["summary"]
    assert reason["next"]
    assert "unexpected" not in reason["summary"], reason
    assert len(json.dumps(reason)) < 20_000
    assert road.files("load", "working") == []
    assert loaded(road) == 0
    assert road.broken_promises() == []


#: name, what it holds, how it is read, and how many rows are loaded and held back.
TAKEN = [
    ("bom.csv", b"\xef\xbb\xbf" + ROW, "csv", 1, 0),
    ("utf16.csv", "isbn,title\n1,Émile ✓\n".encode("utf-16"), UTF16, 1, 0),
    ("crlf.csv", b"isbn,title\r\n1,Emma\r\n\r\n2,\r\n", "csv", 2, 0),
    ("newline.csv", b'isbn,title\n1,"two\nlines"\n2,"a ""quote"""\n', "csv", 2, 0),
    ("ragged.csv", b"isbn,title\n1,Emma\n2\n3,Persuasion,too many\n4,Sanditon\n", "csv", 2, 2),
    ("nul.csv", b"isbn,title\n1,Emma\n2,a\0b\n", "csv", 1, 1),
    ("slip.zip", zipped(("../../../pwned.csv", ROW)), "csv", 1, 0),
    ("absolute.zip", zipped(("/pwned.csv", ROW)), "csv", 1, 0),
    ("formula.csv", b"isbn,title\n1,=cmd()\n", "csv", 1, 0),
    ("sql.csv", b"isbn,title\n1,'); DROP TABLE books;--\n", "csv", 1, 0),
    ("odd.jsonl", b'{"isbn": 1}\nnot json\n[1]\n\n{"isbn": 1e999}\n{"isbn": 2}\n', "jsonl", 2, 3),
]


@pytest.mark.parametrize("case", TAKEN, ids=[case[0] for case in TAKEN])
def test_a_file_that_is_only_odd_is_loaded_and_its_wrong_rows_are_held_back_by_line(
    tmp_path: Path, case: tuple[str, bytes, Any, int, int]
) -> None:
    name, content, read, good, held = case
    road = project(tmp_path, read)
    road.drop(name, content)
    road.work()
    assert loaded(road) == good, road.tree()
    if held:
        bad = road.one("transform", "failed")
        where = road.reason(bad)["where"]
        assert len(where) == held
        assert all(trouble["line"] > 1 and trouble["cause"] for trouble in where)
    else:
        assert road.files("transform", "failed") == []
    assert not list(tmp_path.rglob("*pwned*"))
    assert not list(tmp_path.parent.glob("*pwned*"))
    assert road.broken_promises() == []


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read from /proc")
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("bomb.csv.gz", lambda: gzip.compress(b"isbn\n" + b"0" * (256 << 20), 1)),
        ("line.csv", lambda: b"isbn\n" + b"x" * (64 << 20)),
        ("deep.json", lambda: b"[" * (8 << 20)),
    ],
)
def test_a_trap_is_refused_with_little_memory(
    tmp_path: Path, name: str, content: Callable[[], bytes]
) -> None:
    road = project(tmp_path, "json" if name.endswith("json") else "csv")
    road.drop(name, content())
    program = (
        "import sys; from etl.cli import edge; code = edge.run(['run', '--inline', 'books']);"
        "print('PEAK', *(line for line in open('/proc/self/status') if 'VmHWM' in line)); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1, done.stderr
    peak = int(done.stdout.rpartition("VmHWM:")[2].split()[0]) / 1024
    assert peak < 200, f"{peak:.0f} MB"
    assert road.reason(road.one("transform", "failed"))["summary"]


def test_column_names_from_a_file_do_no_harm_in_a_database(tmp_path: Path) -> None:
    road = project(tmp_path)
    road.drop("x.csv", b'isbn,"a""; DROP TABLE books; --",_etl_file\n1,2,3\n')
    road.drop("y.csv", ROW)
    road.work()
    for path in road.files("transform", "failed") + road.files("load", "lite", "failed"):
        reason = road.reason(path)
        assert "unexpected" not in reason["summary"], reason
    assert loaded(road) >= 1
    assert road.broken_promises() == []
