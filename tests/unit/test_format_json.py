"""JSON lines and JSON documents: what is read, what is put aside, and what fails a file as a whole."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etl.errors import InvalidFile
from etl.formats import json_array
from etl.formats.format import MAX_BATCH, Format
from etl.formats.json_array import JsonArray
from etl.formats.jsonl import JsonLines

CASES = Path(__file__).parent.parent / "cases" / "formats"


def read(kind: Format, data: bytes) -> tuple[list[tuple[int, Any]], list[tuple[int, str, str]]]:
    batches = list(kind.open(io.BytesIO(data)).batches())
    rows = [pair for batch in batches for pair in zip(batch.lines, batch.rows, strict=True)]
    wrong = [(one.trouble.line or 0, one.trouble.cause, one.raw) for batch in batches for one in batch.wrong]
    return rows, wrong


def test_each_line_is_an_object_or_is_put_aside() -> None:
    rows, wrong = read(JsonLines(), (CASES / "mixed.jsonl").read_bytes())
    assert rows == [(1, {"sku": "A-1", "price": 9.5}), (5, {"sku": "A-2", "price": 1})]
    assert [(line, raw) for line, _, raw in wrong] == [(3, '{"sku":'), (4, "[1,2]")]
    assert wrong[0][1].startswith("not valid JSON: ")
    assert "at column" in wrong[0][1]
    assert wrong[1][1] == "a list, not an object with named values"


def test_the_text_of_a_line_stands_beside_its_row() -> None:
    reading = JsonLines().open(io.BytesIO(b'{"a":1}\n\n{"a" : 2}\r\n'))
    assert (reading.columns, reading.head, reading.encoding) == (None, "", "utf-8")
    [batch] = reading.batches()
    assert batch.raw == ['{"a":1}', '{"a" : 2}']


def test_lines_stay_true_over_many_batches() -> None:
    count = 40_000
    batches = list(JsonLines().open(io.BytesIO(b'{"a":1}\n' * count)).batches())
    assert max(len(batch.rows) for batch in batches) <= MAX_BATCH
    assert [line for batch in batches for line in batch.lines] == list(range(1, count + 1))


@pytest.mark.parametrize("depth", [150, 100_000])
def test_a_line_that_nests_too_deep_is_put_aside(depth: int) -> None:
    deep = b'{"a":' + b"[" * depth + b"]" * depth + b"}\n"
    rows, wrong = read(JsonLines(), deep + b'{"a":1}\n')
    assert rows == [(2, {"a": 1})]
    assert "dep" in wrong[0][1] or "deeper" in wrong[0][1]


def test_lines_in_another_encoding_fail_the_file() -> None:
    with pytest.raises(InvalidFile, match="line 2 is not utf-8"):
        read(JsonLines(), b'{"a":1}\n{"a":"gr\xfcn"}\n')


def test_records_are_found_at_a_path() -> None:
    rows, wrong = read(JsonArray(path="feed.items"), (CASES / "nested.json").read_bytes())
    assert rows == [(1, {"sku": "A-1", "sizes": [1, 2]}), (3, {"sku": "A-2"})]
    assert wrong == [(2, "a number, not an object with named values", "7")]


def test_a_document_can_be_the_array() -> None:
    reading = JsonArray().open(io.BytesIO(b'\xef\xbb\xbf [{"a":1.5}, {"a":"\\"]"}]'))
    batches = list(reading.batches())
    assert [row for batch in batches for row in batch.rows] == [{"a": 1.5}, {"a": '"]'}]
    assert [batch.raw for batch in batches] == [None]


def test_an_empty_array_is_no_mistake() -> None:
    assert read(JsonArray(), b"[]") == ([], [])
    assert read(JsonArray(path="feed.items"), b'{"feed":{"items":[]}}') == ([], [])


@pytest.mark.parametrize(
    ("path", "data", "said"),
    [
        ("", b'[{"a":1},{"a"', "after record 1: premature EOF"),
        ("", b'[{"a":1}] x', "trailing garbage"),
        ("", b"", "premature EOF"),
        ("", b'[{"a":"\xff"}]', "invalid bytes in UTF8"),
        ("", b'{"items":[]}', "no array at the top"),
        ("feed.itmes", b'{"feed":{"items":[{}]}}', "no array at 'feed.itmes'"),
        ("feed.items", b'{"feed":{"items":{"a":1}}}', "no array at 'feed.items'"),
        ("", "\ufeff[]".encode("utf-16-le"), "UTF-16"),
        ("", b"[" * 100_000, "nested deeper than 100 levels"),
        ("", b'["]]]]]]",[' * 500, "nested deeper than 100 levels"),
    ],
)
def test_a_document_that_cannot_be_followed_fails_the_file(path: str, data: bytes, said: str) -> None:
    with pytest.raises(InvalidFile, match=said) as caught:
        read(JsonArray(path=path), data)
    assert caught.value.next


def test_a_wrong_path_is_answered_with_the_near_one() -> None:
    with pytest.raises(InvalidFile) as caught:
        read(JsonArray(path="feed.itmes"), b'{"feed":{"items":[{}]}}')
    assert "feed.items" in caught.value.next


def test_brackets_and_quotes_inside_text_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    tricky = b'[{"a":"[[[[\\"{{{\\\\"},' * 1 + b'{"b":"' + b"[" * 500 + b'"}]'
    for size in (1, 2, 3, 5, 64):
        monkeypatch.setattr(json_array, "CHUNK", size)
        rows, wrong = read(JsonArray(), tricky)
        assert [row for _, row in rows] == [{"a": '[[[["{{{\\'}, {"b": "[" * 500}]
        assert wrong == []


class _Endless(io.RawIOBase):
    """An array whose only record never ends."""

    def __init__(self) -> None:
        self._parts = self._bytes()

    def _bytes(self) -> Iterator[bytes]:
        yield b'[{"a":"'
        while True:
            yield b"x" * 65536

    def read(self, size: int = -1) -> bytes:
        return next(self._parts)


def test_a_record_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_array, "MAX_ITEM", 1 << 20)
    with pytest.raises(InvalidFile, match="no record came to its end within 1 MB"):
        list(JsonArray().open(_Endless()).batches())  # type: ignore[arg-type]


def test_an_integer_of_more_than_64_bits_is_wrong_and_never_rounded() -> None:
    lines = [
        '{"a": 12345678901234567891234}',
        '{"a": "12345678901234567891234"}',
        '{"a": 1234567890123456789}',
    ]
    rows, wrong = read(JsonLines(), "\n".join(lines).encode())
    assert [line for line, _ in rows] == [2, 3]
    assert "more than 64 bits" in wrong[0][1]
