"""csv and tsv: what is read, what is put aside, and what fails a file as a whole."""

from __future__ import annotations

import csv
import io
import random
from pathlib import Path

import pytest

from etl.errors import InvalidFile
from etl.formats import text
from etl.formats.format import MAX_BATCH, MAX_ROW, Batch
from etl.formats.table import Csv, Tsv

CASES = Path(__file__).parent.parent / "cases" / "formats"


def read(
    data: bytes, options: Csv | None = None
) -> tuple[list[tuple[int, list[str]]], list[tuple[int, str]]]:
    batches = list((options or Csv()).open(io.BytesIO(data)).batches())
    rows = [(line, list(row)) for batch in batches for line, row in zip(batch.lines, batch.rows, strict=True)]
    return rows, [(one.trouble.line or 0, one.trouble.cause) for batch in batches for one in batch.wrong]


def raws(batches: list[Batch]) -> list[str]:
    return [raw for batch in batches for raw in batch.raw or ()]


def test_rows_come_with_their_lines_and_text() -> None:
    reading = Csv().open(io.BytesIO(b"sku,price\nA-1,9.5\nA-2,1\n"))
    assert reading.columns == ("sku", "price")
    assert (reading.head, reading.encoding) == ("sku,price\n", "utf-8")
    [batch] = reading.batches()
    assert list(batch.lines) == [2, 3]
    assert [list(row) for row in batch.rows] == [["A-1", "9.5"], ["A-2", "1"]]
    assert batch.raw == ["A-1,9.5", "A-2,1"]


def test_tabs_separate_a_tsv_file() -> None:
    assert read(b"a\tb\n1\t2,5\n", Tsv())[0] == [(2, ["1", "2,5"])]


def test_a_windows_file_keeps_its_quoted_newlines_and_umlauts() -> None:
    options = Csv(delimiter=";", encoding="cp1252")
    reading = options.open(io.BytesIO((CASES / "windows.csv").read_bytes()))
    [batch] = reading.batches()
    assert [list(row) for row in batch.rows] == [["A-1", "9,50", "two\r\nlines"], ["A-2", "1,00", "grün"]]
    assert list(batch.lines) == [2, 4]
    assert raws([batch]) == ['A-1;9,50;"two\r\nlines"', "A-2;1,00;grün"]


def test_ragged_rows_are_put_aside_with_their_line() -> None:
    rows, wrong = read((CASES / "ragged.csv").read_bytes())
    assert rows == [(2, ["A-1", "9.5"]), (6, ["A-4", "3"])]
    assert wrong == [(4, "1 value, the header has 2"), (5, "3 values, the header has 2")]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_any_newline_ends_a_line(end: str) -> None:
    data = end.join(["a,b", "1,2", "", "3,4"]).encode()
    assert read(data) == ([(2, ["1", "2"]), (4, ["3", "4"])], [])


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "utf-8", "cp1252"])
def test_a_mark_is_no_part_of_the_first_name(encoding: str) -> None:
    reading = Csv(encoding=encoding).open(io.BytesIO("größe,b\n1,2\n".encode(encoding)))
    assert reading.columns == ("größe", "b")
    again = reading.head.encode(reading.encoding) + "".join(raws(list(reading.batches()))).encode(
        reading.encoding
    )
    assert read(again, Csv(encoding=encoding))[0] == [(2, ["1", "2"])]


def test_lines_above_the_header_belong_to_the_head() -> None:
    reading = Csv(header=3).open(io.BytesIO(b'from "ACME"\n\na,b\n1,2\n'))
    assert reading.head == 'from "ACME"\n\na,b\n'
    assert [list(batch.lines) for batch in reading.batches()] == [[4]]


def test_a_header_alone_is_a_table_without_rows() -> None:
    assert read(b"a,b") == ([], [])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no header at line 1"),
        (b"\n\n", "no header at line 1"),
        (b"a,b,a\n", "column 3 is called 'a', as column 1 is"),
        (b"a,,c\n", "column 2 has no name"),
        (b'a,"b\n', "no header at line 1: the quotes are not right"),
        (b"a,b\0\n", "NUL"),
    ],
)
def test_a_header_that_cannot_be_used_fails_the_file(data: bytes, said: str) -> None:
    with pytest.raises(InvalidFile, match=said) as caught:
        Csv().open(io.BytesIO(data))
    assert caught.value.next


def test_wrong_bytes_are_named_by_line_and_column() -> None:
    data = b"a,b\n" + b"1,2\n" * 200_000 + b"x,gr\xfcn\n"
    with pytest.raises(InvalidFile, match="line 200002 is not utf-8: byte 0xfc at column 5") as caught:
        read(data)
    assert "encoding" in caught.value.next


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_utf_16_file_is_recognised(encoding: str) -> None:
    with pytest.raises(InvalidFile, match="UTF-16") as caught:
        read("\ufeffa,b\n1,2\n".encode(encoding))
    assert "encoding: utf-16" in caught.value.next


def test_a_utf_8_file_is_not_mistaken_for_another_code_page() -> None:
    with pytest.raises(InvalidFile, match="UTF-8"):
        read("\ufeffa,b\n".encode(), Csv(encoding="cp1252"))


def test_a_nul_is_put_aside_with_line_and_column() -> None:
    rows, wrong = read(b"a,b\n1,2\n3,\x004\n5,6\n")
    assert rows == [(2, ["1", "2"]), (4, ["5", "6"])]
    assert wrong == [(3, "a NUL character at column 3")]


def test_text_after_a_closing_quote_is_put_aside_alone() -> None:
    rows, wrong = read(b'a,b\n1,2\n"x"y,2\n3,4\n')
    assert [line for line, _ in rows] == [2, 4]
    assert wrong[0][0] == 3
    assert "quotes" in wrong[0][1]


def test_a_quote_that_never_closes_is_reported_where_it_opened() -> None:
    with pytest.raises(InvalidFile, match="row at line 3 is not closed by the end of the file"):
        read(b'a,b\n1,2\n3,"4\n' + b"5,6\n" * 1000)


def test_a_quote_that_does_not_close_is_given_up_after_the_largest_row() -> None:
    data = b'a,b\n1,"2\n' + (b"5," + b"6" * 997 + b"\n") * ((MAX_ROW + 2 * text.BLOCK) // 1000)
    with pytest.raises(InvalidFile, match="row at line 2 is not closed by the next 16 MB"):
        read(data)


def test_quotes_can_be_switched_off() -> None:
    assert read(b'a,b\n1,"2\n', Csv(quote=None))[0] == [(2, ["1", '"2'])]


def test_an_endless_line_is_given_up() -> None:
    with pytest.raises(InvalidFile, match="line 3 is longer than 16 MB"):
        read(b"a,b\n1,2\n" + b"x" * (MAX_ROW + 2 * text.BLOCK))


def test_batches_are_bounded_and_complete() -> None:
    count = 100_000
    reading = Csv().open(io.BytesIO(b"a\n" + b"1\n" * count))
    batches = list(reading.batches())
    assert max(len(batch.rows) for batch in batches) <= MAX_BATCH
    assert [line for batch in batches for line in batch.lines] == list(range(2, count + 2))


def test_batches_follow_the_order_of_the_file_with_what_was_put_aside() -> None:
    data = b"a\n" + (b"1\n" * 999 + b"1,2\n") * 100
    last = 1
    for batch in Csv().open(io.BytesIO(data)).batches():
        lines = sorted([*batch.lines, *(one.trouble.line or 0 for one in batch.wrong)])
        assert lines == list(range(last + 1, last + 1 + len(lines)))
        last = lines[-1]
    assert last == 100_001


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_blocks_cut_anywhere_give_what_one_pass_over_the_text_gives(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    chance = random.Random(7)
    cells = ["", "a", "gr\u00fcn", "a,b", 'say ""x""', f"two{end}lines", f"{end}", "\u20ac" * 9]
    lines = [",".join(f'"{chance.choice(cells)}"' for _ in range(3)) for _ in range(200)]
    whole = end.join(["x,y,z", *lines])
    wanted = list(csv.reader(io.StringIO(whole, newline=""), strict=True))[1:]
    for size in (1, 2, 3, 7, 64, 1000):
        monkeypatch.setattr(text, "BLOCK", size)
        reading = Csv().open(io.BytesIO(whole.encode()))
        batches = list(reading.batches())
        assert [list(row) for batch in batches for row in batch.rows] == wanted
        # every row stands in the file at the line it is said to
        every = whole.split(end)
        for batch in batches:
            for line, raw in zip(batch.lines, batch.raw or (), strict=True):
                assert raw.split(end) == every[line - 1 : line - 1 + raw.count(end) + 1]


@pytest.mark.parametrize(
    "options",
    [{"delimiter": ";;"}, {"delimiter": '"'}, {"encoding": "klingon"}, {"encoding": "hex"}, {"header": 0}],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="Csv"):
        Csv.model_validate(options)
