"""gz and zip: unpacked as they stream, and refused when they are a trap or damaged."""

from __future__ import annotations

import gzip
import io
import stat
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import pytest

from etl.errors import InvalidFile
from etl.formats.unpack import unpack

PLENTY = 1 << 40


def zipped(*members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return made.getvalue()


def unpacked(name: str, data: bytes, limit: int = PLENTY) -> bytes:
    return unpack(name, io.BytesIO(data), limit).read()


def test_an_ordinary_file_is_handed_on_as_it_is() -> None:
    stream = io.BytesIO(b"a,b\n")
    assert unpack("x.csv", stream, 1) is stream


def test_gz_is_unpacked_whatever_the_case_of_its_suffix(tmp_path: Path) -> None:
    data = bytes(range(256)) * 5000
    (tmp_path / "X.CSV.GZ").write_bytes(gzip.compress(data))
    with (tmp_path / "X.CSV.GZ").open("rb") as handle:
        assert unpack("X.CSV.GZ", handle, PLENTY).read() == data


def test_gz_members_follow_each_other_with_zeros_at_the_end() -> None:
    parts = [gzip.compress(b"a\n"), gzip.compress(b""), gzip.compress(b"b\n" * 100_000)]
    assert unpacked("x.gz", b"".join(parts) + bytes(100_000)) == b"a\n" + b"b\n" * 100_000


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (gzip.compress(b"a,b\n" * 10_000)[:-20], "cut off"),
        (gzip.compress(b"a,b\n")[:-1], "cut off"),
        (b"", "cut off"),
        (gzip.compress(b"a,b\n") + b"garbage", "follows its end"),
        (b"a,b\n1,2\n", "not valid gzip"),
        (gzip.compress(b"a,b\n")[:-8] + bytes(8), "damaged"),
    ],
    ids=["half", "almost whole", "empty", "with a tail", "not gzip", "wrong checksum"],
)
def test_a_damaged_gz_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(InvalidFile, match=said) as caught:
        unpacked("x.csv.gz", data)
    assert caught.value.next


def test_a_gz_bomb_is_stopped_by_its_ratio_in_little_memory() -> None:
    squeeze = zlib.compressobj(9, wbits=31)
    bomb = b"".join(squeeze.compress(bytes(1 << 20)) for _ in range(200)) + squeeze.flush()
    stream = unpack("x.csv.gz", io.BytesIO(bomb), PLENTY)
    tracemalloc.start()
    with pytest.raises(InvalidFile, match="1000 times its size"):
        while stream.read(1 << 16):
            pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 << 20


@pytest.mark.parametrize(
    ("name", "packed"),
    [("x.gz", gzip.compress(bytes(2000))), ("x.zip", zipped(("a", bytes(2000))))],
    ids=["gz", "zip"],
)
def test_the_limit_is_kept(name: str, packed: bytes) -> None:
    assert len(unpacked(name, packed, 2000)) == 2000
    with pytest.raises(InvalidFile, match="more than 1,999 bytes"):
        unpacked(name, packed, 1999)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
def test_the_one_file_of_a_zip_is_read(method: int) -> None:
    data = zipped(
        ("folder/", b""), ("folder/x.csv", b"a,b\n" * 50_000), ("__MACOSX/._x.csv", b"?"), method=method
    )
    assert unpacked("x.zip", data) == b"a,b\n" * 50_000


def test_a_name_in_a_zip_leads_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert unpacked("x.zip", zipped(("../../evil.csv", b"a\n"))) == b"a\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (zipped(("a.csv", b"1"), ("b.csv", b"2")), "holds 2 files"),
        (zipped(), "holds 0 files"),
        (zipped(("a.zip", b"1")), "archive in an archive"),
        (zipped(("a.csv", b"1"), method=zipfile.ZIP_LZMA), "unusual way"),
        (b"a,b\n", "damaged"),
        (b"", "damaged"),
        (zipped(("a.csv", b"a,b\n" * 100))[:-30], "damaged"),
    ],
    ids=["two files", "no file", "nested", "lzma", "not a zip", "empty", "cut off"],
)
def test_a_zip_that_is_not_one_plain_file_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(InvalidFile, match=said) as caught:
        unpacked("x.zip", data)
    assert caught.value.next


def test_a_zip_with_changed_content_is_refused() -> None:
    data = zipped(("a.csv", b"hello world"), method=zipfile.ZIP_STORED).replace(b"hello", b"HELLO")
    with pytest.raises(InvalidFile, match="damaged"):
        unpacked("x.zip", data)


def test_an_encrypted_zip_is_refused() -> None:
    data = bytearray(zipped(("a.csv", b"1")))
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(InvalidFile, match="encrypted"):
        unpacked("x.zip", bytes(data))


def test_a_link_in_a_zip_is_refused() -> None:
    made = io.BytesIO()
    link = zipfile.ZipInfo("a.csv")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(InvalidFile, match="not a regular file"):
        unpacked("x.zip", made.getvalue())


def test_a_list_of_very_many_members_is_never_loaded() -> None:
    data = zipped(*((f"{number}.csv", b"") for number in range(25_000)))
    tracemalloc.start()
    with pytest.raises(InvalidFile, match="too many members"):
        unpacked("x.zip", data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 << 20


def test_an_archive_in_a_gz_is_refused() -> None:
    with pytest.raises(InvalidFile, match="archive in an archive"):
        unpacked("x.tar.gz", gzip.compress(b""))
