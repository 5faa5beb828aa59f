"""What is written into the ledger is the same however often and in whatever order it comes; questions find it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from etl.errors import ConfigError, Unavailable
from etl.ledger import opening, queries, tables, writes
from etl.ledger.opening import Ledger
from etl.ledger.rows import Delivery, Folder, FollowUp, Run, Verdict
from etl.model import Place, Stage, Status
from tests.ledger_helpers import (
    DATA_ID,
    EXTRACT,
    FILE_ID,
    NAME,
    attempt,
    config,
    delivery,
    everything,
    file,
    writable,
)


@pytest.fixture
def ledger(tmp_path: Path, database_url: str) -> Iterator[Ledger]:
    opened = writable(tmp_path, database_url)
    yield opened
    opened.close()


def record(ledger: Ledger, **batch: object) -> None:
    with ledger.writing() as writing:
        writes.record(writing, writes.Batch(**batch))  # type: ignore[arg-type]


def seen(*files: object, name: str = NAME) -> dict[object, object]:
    return {(EXTRACT, name): files}


def test_what_is_written_twice_is_there_once(ledger: Ledger) -> None:
    batch = {
        "seen": seen(file(attempts=1, causes=("wrong",), status=Status.FAILED)),
        "attempts": [attempt(begun=1.0), attempt(ended=2.0, seconds=1.0, outcome="failed", count=0)],
        "arrived": [delivery()],
        "listed": [Folder(place=EXTRACT, status=Status.FAILED, stamp=7)],
        "position": "1-1",
    }
    record(ledger, **batch)
    once = everything(ledger)

    record(ledger, **batch)

    assert everything(ledger) == once
    with ledger.reading() as asking:
        (folder,) = queries.folders(asking)
        assert (folder.files, folder.stamp) == (1, 7)
        assert queries.position(asking) == "1-1"
        assert [(one.jobs, one.outcome, one.seconds) for one in queries.totals(asking)] == [
            (1, "failed", 1.0)
        ]
        assert queries.causes(asking) == [(EXTRACT, "wrong", 1)]


@pytest.mark.parametrize("seed", range(6))
def test_doubled_and_shuffled_reports_of_attempts_end_in_the_same_rows(ledger: Ledger, seed: int) -> None:
    told = [
        attempt(1, begun=1.0, worker="h:1"),
        attempt(1, begun=1.0, ended=2.0, seconds=1.0, outcome="put_off", worker="h:1", said="away"),
        attempt(2, begun=3.0, worker="h:2"),
        attempt(2, begun=3.0, ended=4.0, seconds=1.0, outcome="resolved", worker="h:2", count=9),
    ]
    last = file(attempts=2)
    dice = random.Random(seed)
    mixed = [*told, *dice.sample(told, 2)]
    dice.shuffle(mixed)
    cut = dice.randrange(len(mixed) + 1)

    for some in (mixed[:cut], mixed[cut:]):
        record(ledger, seen=seen(last), attempts=some, arrived=[delivery()])

    with ledger.reading() as asking:
        found = queries.attempts(asking, "books", FILE_ID)
        sums = sorted(
            (one.outcome, one.jobs, one.seconds, one.count) for one in queries.totals(asking) if one.jobs
        )
    assert [(one.attempt, one.begun, one.ended, one.outcome, one.worker) for one in found] == [
        (1, 1.0, 2.0, "put_off", "h:1"),
        (2, 3.0, 4.0, "resolved", "h:2"),
    ]
    assert sums == [("put_off", 1, 1.0, 0), ("resolved", 1, 1.0, 9)]


def test_attempts_that_nobody_told_of_are_read_from_the_note(ledger: Ledger) -> None:
    record(ledger, seen=seen(file(attempts=3, note={"rows": 4})), arrived=[delivery()])
    with ledger.reading() as asking:
        found = queries.attempts(asking, "books", FILE_ID)
    assert [(one.attempt, one.outcome, one.rows) for one in found] == [
        (1, "", None),
        (2, "", None),
        (3, "resolved", 4),
    ]


def test_a_file_that_moves_is_counted_where_it_lies_and_its_delivery_is_asked_about_again(
    ledger: Ledger,
) -> None:
    record(ledger, seen=seen(file(Status.WORKING)), arrived=[delivery()])
    with ledger.reading() as asking:
        (one,) = queries.touched(asking)
    assert (one.open, one.failed, one.judged) == (1, 0, False)
    with ledger.writing() as writing:
        writes.stand(writing, [writes.Standing(delivery=delivery(judged=True))])

    record(ledger, seen=seen(file(Status.FAILED, summary="bad")))

    with ledger.reading() as asking:
        (one,) = queries.touched(asking)
        counts = {folder.status: folder.files for folder in queries.folders(asking)}
        failed = queries.failed(asking)
    assert (one.open, one.failed) == (0, 1)
    assert (counts[Status.WORKING], counts[Status.FAILED]) == (0, 1)
    assert [(one.name, one.summary) for one in failed] == [(NAME, "bad")]

    record(ledger, seen=seen())

    with ledger.reading() as asking:
        assert queries.failed(asking) == []
        assert queries.causes(asking) == []
        assert queries.pieces(asking, "books", FILE_ID) == []


def test_what_a_verdict_note_says_is_copied_once(ledger: Ledger) -> None:
    record(ledger, seen=seen(file()), arrived=[delivery()])
    standing = writes.Standing(
        delivery=delivery(verdict="partial", verdict_number=2, judged=True, loaded={"lake": 3}),
        verdicts=[
            Verdict(pipeline="books", file_id=FILE_ID, number=number, verdict="partial", at=float(number))
            for number in (1, 2)
        ],
        followups=[FollowUp(pipeline="books", file_id=FILE_ID, number=1, key="callback", state="told")],
    )
    for _ in range(2):
        with ledger.writing() as writing:
            writes.stand(writing, [standing])
    with ledger.reading() as asking:
        assert [one.number for one in queries.verdicts(asking, "books", FILE_ID)] == [1, 2]
        assert [one.state for one in queries.followups(asking, "books", FILE_ID)] == ["told"]
        found = queries.delivery(asking, "books", FILE_ID)
        assert found is not None and (found.verdict, found.loaded) == ("partial", {"lake": 3})
        assert queries.touched(asking) == []


@pytest.mark.parametrize(
    "wanted", ["books.csv", FILE_ID, FILE_ID[:6], NAME, f"data/books/extract/failed/{NAME}"]
)
def test_a_delivery_is_found_by_what_people_call_it(ledger: Ledger, wanted: str) -> None:
    other = delivery("01k3zz00000000zz", given="other.csv")
    record(ledger, arrived=[delivery(), other])
    with ledger.reading() as asking:
        assert [one.file_id for one in queries.find(asking, wanted)] == [FILE_ID]
        assert queries.find(asking, wanted, pipeline="prices") == []


def test_deliveries_come_in_pages_oldest_first(ledger: Ledger) -> None:
    ids = [f"01k3f9a2m1qz7he{number}" for number in range(5)]
    record(ledger, arrived=[delivery(one, arrived=float(number // 2)) for number, one in enumerate(ids)])
    found: list[Delivery] = []
    with ledger.reading() as asking:
        while page := queries.deliveries(asking, after=found[-1] if found else None, limit=2):
            found += page
        assert [one.file_id for one in queries.deliveries(asking, since=1.0)] == ids[2:]
        assert queries.unknown(asking, [("books", ids[0]), ("books", FILE_ID)]) == {("books", FILE_ID)}
    assert [one.file_id for one in found] == ids


def test_the_oldest_waiting_file_is_told_with_the_counts(ledger: Ledger) -> None:
    record(
        ledger,
        seen={
            **seen(file(Status.WORKING, since=9.0)),
            **seen(file(Status.WORKING, "a", since=3.0), name="a"),
        },
    )
    with ledger.reading() as asking:
        (folder,) = queries.folders(asking, "books")
    assert (folder.files, folder.oldest) == (2, 3.0)


def test_services_are_kept_with_their_start_and_their_end(ledger: Ledger) -> None:
    first, second = (Run(name="workers", host="h", pid=pid, started=float(pid)) for pid in (1, 2))
    for living, now in (([first], 5.0), ([first], 6.0), ([second], 7.0), ([second], 8.0)):
        with ledger.writing() as writing:
            writes.see_services(writing, living, now)
    with ledger.reading() as asking:
        found = queries.service_events(asking)
    assert [(one.pid, one.ended) for one in found] == [(2, None), (1, 7.0)]


def test_a_place_that_is_no_longer_configured_is_forgotten_and_its_history_kept(ledger: Ledger) -> None:
    record(ledger, seen=seen(file(attempts=1)), arrived=[delivery()])
    with ledger.writing() as writing:
        writes.forget_place(writing, EXTRACT)
    with ledger.reading() as asking:
        assert queries.folders(asking) == []
        assert queries.names_in(asking, EXTRACT, Status.RESOLVED) == {}
        assert len(queries.attempts(asking, "books", FILE_ID)) == 1


def test_what_a_forgotten_place_held_keeps_no_delivery_open(ledger: Ledger) -> None:
    lake = Place(pipeline="books", stage=Stage.LOAD, location="lake")
    waits, broken = (
        replace(file(status, f"books~{FILE_ID}-{number}.jsonl"), place=lake)
        for number, status in enumerate((Status.WORKING, Status.FAILED), 1)
    )
    lying = {(lake, one.name): [one] for one in (waits, broken)}
    record(ledger, seen=seen(file()) | lying, arrived=[delivery()])
    with ledger.writing() as writing:
        before = queries.delivery(writing, "books", FILE_ID)
        assert before is not None
        writes.stand(writing, [writes.Standing(delivery=replace(before, judged=True))])
        writes.forget_place(writing, lake)
        after = queries.delivery(writing, "books", FILE_ID)
    assert after is not None
    assert (before.open, before.failed) == (1, 1)
    assert (after.open, after.failed, after.judged) == (0, 0, False)


def test_names_that_are_no_utf8_and_long_texts_are_held(ledger: Ledger) -> None:
    odd = "\\udcff"
    record(ledger, seen=seen(file(Status.FAILED, odd, summary="x" * 100_000), name=odd))
    with ledger.reading() as asking:
        (found,) = queries.failed(asking)
    assert (found.name, len(found.summary)) == (odd, 100_000)


# --- opening -------------------------------------------------------------------------------------------------


def test_a_newer_schema_is_refused_by_readers_and_writers(tmp_path: Path, database_url: str) -> None:
    ledger = writable(tmp_path, database_url)
    with ledger.writing() as writing:
        writing.execute(sa.update(tables.about).where(tables.about.c.key == "version").values(value="99"))
    ledger.close()
    for opened in (opening.for_reading, opening.for_writing):
        with pytest.raises(Unavailable, match="newer version"):
            opened(config(tmp_path, database_url), DATA_ID)


def test_the_ledger_of_another_data_folder_is_refused(tmp_path: Path, database_url: str) -> None:
    writable(tmp_path, database_url).close()
    with pytest.raises(Unavailable, match="belongs to another data folder"):
        writable(tmp_path, database_url, "zzzz")


def test_a_reader_makes_no_ledger(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="there is no ledger"):
        opening.for_reading(config(tmp_path), DATA_ID)
    assert not (tmp_path / "data" / ".etl" / "ledger.db").exists()


def test_a_ledger_that_could_not_be_opened_is_found_before_the_night(
    tmp_path: Path, database_url: str
) -> None:
    assert opening.problem(config(tmp_path, database_url), DATA_ID) == ""
    assert not (tmp_path / "warehouse.db").exists()
    writable(tmp_path, database_url).close()
    assert opening.problem(config(tmp_path, database_url), DATA_ID) == ""
    assert "belongs to another data folder" in opening.problem(config(tmp_path, database_url), "another")
    away = config(tmp_path, "postgresql+psycopg://anna:s3cret@127.0.0.1:1/books")
    assert "127.0.0.1/books does not answer" in opening.problem(away, DATA_ID)
    assert "s3cret" not in opening.problem(away, DATA_ID)


def test_a_damaged_file_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "data" / ".etl" / "ledger.db"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no database at all" * 1000)
    with pytest.raises(Unavailable) as told:
        writable(tmp_path)
    assert "move" in told.value.next and "ledger.db" in told.value.next


def test_a_password_is_in_no_message(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as told:
        writable(tmp_path, "postgresql+psycopg://u:sesame@127.0.0.1:1/none")
    assert "sesame" not in f"{told.value}{told.value.next}{told.value!r}"


def test_a_ledger_in_memory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        writable(tmp_path, "sqlite:///:memory:")
