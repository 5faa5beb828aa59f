"""Names and ids: what a name may be, what becomes of it, and that an id is never seen where there is none."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.errors import UnsafeName
from etl.files import names
from etl.files.layout import Layout
from etl.model import Place, Stage, Status

#: what a file system may hand us: any bytes but / and NUL, decoded as Python does it.
FILE_NAMES = st.binary(min_size=1, max_size=255).map(
    lambda raw: os.fsdecode(raw.replace(b"/", b"_").replace(b"\0", b"_"))
)
MILLISECONDS = 1_800_000_000_000


def new_id() -> str:
    return names.new_id("books", MILLISECONDS)


@pytest.mark.parametrize(
    ("name", "stem", "suffix"),
    [
        ("books.csv", "books", ".csv"),
        ("books.csv.gz", "books", ".csv.gz"),
        ("BOOKS.CSV.GZ", "BOOKS", ".CSV.GZ"),
        ("2026-11-18.v2.csv", "2026-11-18.v2", ".csv"),
        ("archive.zip", "archive", ".zip"),
        ("books", "books", ""),
        (".hidden", ".hidden", ""),
        ("a.b c", "a.b c", ""),
    ],
)
def test_an_id_goes_before_the_format_and_compression_suffixes(name: str, stem: str, suffix: str) -> None:
    assert names.split(name) == (stem, suffix)
    file_id = new_id()
    assert str(names.christen(name, file_id)) == f"{stem}~{file_id}{suffix}"


@given(FILE_NAMES)
def test_any_name_a_file_system_can_hold_becomes_one_that_is_printable_short_and_read_back(name: str) -> None:
    file_id = new_id()
    christened = str(names.christen(name, file_id))
    assert christened.isprintable()
    assert "/" not in christened
    assert len(christened.encode()) <= names.LONGEST
    parsed = names.parse("books", christened)
    assert parsed is not None
    assert (parsed.id, str(parsed)) == (file_id, christened)


@given(FILE_NAMES)
def test_everything_made_of_a_file_still_fits_a_folder(name: str) -> None:
    file = names.christen(name, new_id())
    deepest = file.held_back(".jsonl", 999_999).child(999_999_999, 999_999).held_back(".jsonl", 999_999)
    for derived in (str(file), str(deepest)):
        assert len(f".{derived}.reason.json.12345.writing".encode()) <= 255


def test_children_carry_the_id_generation_and_order_of_their_source() -> None:
    file = names.christen("books.csv", new_id())
    child, second = file.child(3, 1), file.child(3, 2)
    assert str(child) == f"books~{file.id}-3.jsonl"
    assert str(second) == f"books~{file.id}.2-3.jsonl"
    assert str(file.held_back(".csv", 1).held_back(".csv", 1)) == f"books~{file.id}-bad-bad.csv"
    for one in (child, second, file.held_back(".csv", 2)):
        assert names.parse("books", str(one)) == one
        assert not one.is_source


@pytest.mark.parametrize(
    "name", ["REPORT~1.CSV", "PROGRA~1", "books~.csv", "a~0123456789abcdef.csv", "~", "x~1m7pw3pysd7wysa.csv"]
)
def test_a_tilde_alone_is_no_id(name: str) -> None:
    assert names.parse("books", name) is None


def test_an_id_of_another_pipeline_is_none_here() -> None:
    foreign = [names.new_id("prices", MILLISECONDS + number) for number in range(200)]
    taken_for_ours = [one for one in foreign if names.is_id("books", one)]
    # ten check bits: about one in a thousand slips through, two hundred never do
    assert len(taken_for_ours) < 10
    assert all(names.is_id("prices", one) for one in foreign)


def test_ids_sort_by_arrival_and_tell_their_time() -> None:
    ids = [names.new_id("books", MILLISECONDS + number) for number in range(100)]
    assert ids == sorted(ids)
    assert [names.milliseconds(one) for one in ids] == [MILLISECONDS + number for number in range(100)]


def test_ids_of_one_pull_sort_in_the_order_they_are_given_out() -> None:
    ids = list(names.new_ids("books", MILLISECONDS, 5_000))
    assert all(before < after for before, after in pairwise(ids))
    assert all(names.is_id("books", one) for one in ids)


@pytest.mark.parametrize(
    "name",
    [".x", "x.tmp", "x.csv.part", "x.filepart", "x.writing", "x.csv~", "x.csv.reason.json", ".a\nb"],
)
def test_hidden_and_half_written_names_are_never_work(name: str) -> None:
    assert names.never_work(name)


@pytest.mark.parametrize("name", ["x.csv", "tmp", "part.csv", "REPORT~1.CSV", "-rf", "a\nb.csv", " "])
def test_other_names_may_be_work(name: str) -> None:
    assert not names.never_work(name)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü.csv", "plain ü.csv"),
        ("a\nb", "a%0Ab"),
        ("\x1b[31mred", "%1B[31mred"),
        (os.fsdecode(b"caf\xe9"), "caf%E9"),
        ("rtl\u202egpj", "rtl%E2%80%AEgpj"),
        ("half \ud800", "half %D800"),
    ],
)
def test_what_cannot_be_shown_on_one_line_is_escaped(text: str, shown: str) -> None:
    assert names.printable(text) == shown


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "/etc/passwd", "a/b", "a\0b", "x" * 256, "ü" * 128, "half \ud800"]
)
def test_a_name_that_leads_out_or_cannot_be_one_is_refused(name: str) -> None:
    layout = Layout(Path("/nowhere"))
    with pytest.raises(UnsafeName):
        layout.file(Place(pipeline="books", stage=Stage.EXTRACT), Status.WORKING, name)
