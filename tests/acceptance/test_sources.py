"""Pulling: a source is pulled once, whatever it is written as, and what cannot be pulled stops nothing else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from etl.config.schema import Source
from etl.stages import sources
from tests.road import Road

ROW = "isbn,title\n1,Emma\n"


def project(root: Path, paths: Any, **extract: Any) -> Road:
    spec = {
        "extract": {"sources": paths, **extract},
        "transform": {"read": "csv"},
        "load": {"locations": {"lake": {"kind": "files", "path": "lake"}}},
    }
    return Road(root, spec)


def put(road: Road, *paths: str) -> None:
    for path in paths:
        target = road.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(ROW)


def given(road: Road) -> list[str]:
    """Give the names, as given, of all that was pulled and loaded."""
    lines = [path.name for path in road.files("transform", "resolved")]
    return sorted(name.partition("~")[0] + ".csv" for name in lines)


def test_a_request_is_followed_by_a_worker_once_as_long_as_its_source_stays_the_same(tmp_path: Path) -> None:
    road = project(tmp_path, ["incoming/*.csv"])
    put(road, "incoming/a.csv", "incoming/b.csv")
    for verb in (["extract", "books"], ["worker", "--burst"]):
        done = road.etl(*verb)
        assert done.returncode == 0, done.stderr
    assert given(road) == ["a.csv", "b.csv"]

    assert road.etl("extract", "books").returncode == 0
    assert road.etl("worker", "--burst").returncode == 0
    assert given(road) == ["a.csv", "b.csv"]

    assert road.etl("extract", "books", "--again").returncode == 0
    assert road.etl("worker", "--burst").returncode == 0
    assert given(road) == ["a.csv", "a.csv", "b.csv", "b.csv"]

    (tmp_path / "incoming/a.csv").write_text(ROW + "2,Persuasion\n")
    assert road.etl("extract", "books").returncode == 0
    assert road.etl("worker", "--burst").returncode == 0
    assert given(road) == ["a.csv", "a.csv", "a.csv", "b.csv", "b.csv"]
    assert (tmp_path / "incoming/b.csv").read_text() == ROW
    assert road.broken_promises() == []


@pytest.mark.parametrize(
    "source",
    ["incoming", "incoming/*.csv", "incoming/a.csv", "file://{root}/incoming/a.csv", "{root}/incoming"],
)
def test_a_source_is_a_folder_a_glob_a_path_or_a_file_url(tmp_path: Path, source: str) -> None:
    road = project(tmp_path, [source.format(root=tmp_path)])
    put(road, "incoming/a.csv")
    road.ask()
    road.work()
    assert given(road) == ["a.csv"]
    road.ask()
    road.work()
    assert given(road) == ["a.csv"]


def test_a_url_of_any_store_is_pulled_once(tmp_path: Path) -> None:
    import fsspec

    store = fsspec.filesystem("memory")
    store.pipe_file(f"{tmp_path}/a.csv", ROW.encode())
    store.pipe_file(f"{tmp_path}/b.txt", b"not wanted")
    road = project(tmp_path, [f"memory:/{tmp_path}/*"], accept=["*.csv"])
    for _ in range(2):
        road.ask()
        road.work()
    assert given(road) == ["a.csv"]
    road.ask(again=True)
    road.work()
    assert given(road) == ["a.csv", "a.csv"]


def test_files_pulled_together_keep_the_order_in_which_they_were_made(tmp_path: Path) -> None:
    road = project(tmp_path, ["incoming"])
    put(road, "incoming/new.csv", "incoming/old.csv", "incoming/middle.csv")
    for age, name in enumerate(("new", "middle", "old")):
        os.utime(tmp_path / f"incoming/{name}.csv", (1_700_000_000 - age, 1_700_000_000 - age))
    road.ask()
    road.work()
    by_id = sorted(path.name.partition("~")[::2][::-1] for path in road.files("transform", "resolved"))
    assert [name for _, name in by_id] == ["old", "middle", "new"]


def test_only_accepted_names_are_pulled_and_half_written_ones_never(tmp_path: Path) -> None:
    road = project(tmp_path, ["incoming"], accept=["*.csv", "*.part", ".*"])
    put(road, "incoming/a.csv", "incoming/a.txt", "incoming/.b.csv", "incoming/c.csv.part", "incoming/d.csv~")
    road.ask()
    road.work()
    assert given(road) == ["a.csv"]
    note = road.note(road.one("extract", ".requests", "resolved"))
    assert note.said == "1 pulled, 0 unchanged, 4 not accepted"


def test_a_dropped_file_that_is_not_accepted_fails_with_the_patterns_it_missed(tmp_path: Path) -> None:
    road = project(tmp_path, [], accept=["BOOKS_*.csv"])
    road.drop("books_1.csv", ROW)
    road.work()
    reason = road.reason(road.one("extract", "failed"))
    assert reason["summary"] == "the name 'books_1.csv' is not accepted by books"
    assert "BOOKS_*.csv" in reason["next"]


def test_after_delete_takes_away_what_was_pulled_and_nothing_else(tmp_path: Path) -> None:
    road = project(tmp_path, [{"path": "incoming", "after": "delete"}], accept=["*.csv"])
    put(road, "incoming/a.csv", "incoming/kept.txt")
    road.ask()
    road.work()
    assert given(road) == ["a.csv"]
    assert [path.name for path in (tmp_path / "incoming").iterdir()] == ["kept.txt"]


def test_after_move_puts_files_into_a_folder_and_replaces_none_there(tmp_path: Path) -> None:
    road = project(tmp_path, [{"path": "incoming/*.csv", "after": {"move": "done"}}])
    for text in ("isbn\n1\n", "isbn\n2\n"):
        put(road, "incoming/a.csv")
        (tmp_path / "incoming/a.csv").write_text(text)
        road.ask()
        road.work()
    assert given(road) == ["a.csv", "a.csv"]
    assert sorted(path.read_text() for path in (tmp_path / "done").iterdir()) == ["isbn\n1\n", "isbn\n2\n"]
    assert list((tmp_path / "incoming").iterdir()) == []


def test_a_source_that_cannot_be_taken_away_is_still_pulled_once_and_taken_away_later(tmp_path: Path) -> None:
    road = project(tmp_path, [{"path": "incoming/*.csv", "after": {"move": "done"}}])
    put(road, "incoming/a.csv")
    (tmp_path / "done").write_text("a file where a folder should be")
    for _ in range(2):
        road.ask()
        road.work()
        assert given(road) == ["a.csv"]
        assert (tmp_path / "incoming/a.csv").exists()
    assert road.broken_promises() == []
    (tmp_path / "done").unlink()
    road.ask()
    road.work()
    assert given(road) == ["a.csv"]
    assert [path.name for path in (tmp_path / "done").iterdir()] == ["a.csv"]


def test_what_is_not_a_plain_file_is_refused_by_name_while_the_others_are_pulled(tmp_path: Path) -> None:
    road = project(tmp_path, ["incoming"])
    put(road, "incoming/a.csv", "outside.csv")
    (tmp_path / "incoming/link.csv").symlink_to("/etc/passwd")
    os.link(tmp_path / "outside.csv", tmp_path / "incoming/hard.csv")
    os.mkfifo(tmp_path / "incoming/pipe.csv")
    (tmp_path / "incoming/folder.csv").mkdir()
    assert road.etl("extract", "books").returncode == 0
    done = road.etl("run", "books")
    assert done.returncode == 1, done.stdout
    assert given(road) == ["a.csv"]
    held = road.one("extract", ".requests", "failed")
    told = {Path(trouble["field"]).name: trouble["cause"] for trouble in road.reason(held)["where"]}
    assert sorted(told) == ["hard.csv", "link.csv", "pipe.csv"]
    assert "symbolic link" in told["link.csv"]
    assert "hard link" in told["hard.csv"]
    assert "not a regular file" in told["pipe.csv"]

    # put right and moved back, the rest is pulled too, and nothing twice
    for name in told:
        (tmp_path / "incoming" / name).unlink()
        (tmp_path / "incoming" / name).write_text(ROW)
    road.move_back(held)
    done = road.etl("run", "books")
    assert done.returncode == 0, done.stdout
    assert given(road) == ["a.csv", "hard.csv", "link.csv", "pipe.csv"]
    assert road.broken_promises() == []


def test_a_missing_source_fails_its_request_with_a_reason_and_can_be_asked_for_again(tmp_path: Path) -> None:
    road = project(tmp_path, ["nowhere.csv"])
    check = road.etl("check")
    assert check.returncode == 2
    assert "the source 'nowhere.csv' is not there" in check.stdout
    assert road.etl("extract", "books").returncode == 0
    done = road.etl("run", "books")
    assert done.returncode == 1, done.stdout
    assert "Traceback" not in done.stderr
    request = road.one("extract", ".requests", "failed")
    assert "the source 'nowhere.csv' is not there" in road.reason(request)["summary"]
    told = road.etl("failed", "books").stdout
    assert "the source 'nowhere.csv' is not there" in told
    put(road, "nowhere.csv")
    assert road.etl("retry", "--pipeline", "books").returncode == 0
    assert road.etl("run", "books").returncode == 0
    assert given(road) == ["nowhere.csv"]


def test_one_missing_source_does_not_stop_the_others(tmp_path: Path) -> None:
    road = project(tmp_path, ["nowhere.csv", "incoming"])
    put(road, "incoming/a.csv")
    road.ask()
    road.work()
    assert given(road) == ["a.csv"]
    assert "nowhere.csv" in road.reason(road.one("extract", ".requests", "failed"))["summary"]


def test_one_file_named_by_two_sources_is_pulled_once(tmp_path: Path) -> None:
    road = project(tmp_path, ["incoming/*.csv", "incoming/a.csv", "incoming"])
    put(road, "incoming/a.csv")
    road.ask()
    road.work()
    assert given(road) == ["a.csv"]


def test_a_source_named_on_the_command_line_is_only_read(tmp_path: Path) -> None:
    road = project(tmp_path, [{"path": "incoming", "after": "delete"}])
    put(road, "incoming/a.csv", "elsewhere/b.csv")
    done = road.etl("extract", "books", "elsewhere/b.csv", "--json")
    assert done.returncode == 0, done.stderr
    assert road.etl("run", "books").returncode == 0
    assert given(road) == ["b.csv"]
    assert (tmp_path / "elsewhere/b.csv").exists()
    assert (tmp_path / "incoming/a.csv").exists()


def test_a_time_limit_below_a_second_still_makes_a_job(tmp_path: Path) -> None:
    road = project(tmp_path, ["incoming"], timeout="500ms")
    put(road, "incoming/a.csv")
    done = road.etl("extract", "books")
    assert done.returncode == 0, done.stderr
    assert road.etl("run", "books").returncode == 0
    assert given(road) == ["a.csv"]


def test_a_newer_file_at_a_url_is_not_taken_away_in_place_of_the_one_that_was_pulled(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(ROW)
    found = sources.listed(Source(path=f"local://{path}", after="delete"), tmp_path)[0]
    path.write_text(ROW + "2,Persuasion\n")
    sources.finish(found, tmp_path)
    assert path.exists()
    sources.finish(sources.listed(Source(path=f"local://{path}", after="delete"), tmp_path)[0], tmp_path)
    assert not path.exists()


def test_a_source_that_is_away_stops_no_other_and_is_tried_again_by_itself(tmp_path: Path) -> None:
    road = project(tmp_path, ["incoming", "ftp://127.0.0.1:1/x.csv"], retry={"times": 1, "first": "0s"})
    put(road, "incoming/a.csv")
    road.ask()
    road.work()
    assert given(road) == ["a.csv"]
    failed = road.one("extract", ".requests", "failed")
    assert "does not answer" in road.reason(failed)["summary"]
    assert road.note(failed).tries == 1
    assert road.broken_promises() == []
