"""Archives are found by day and id and read as their manifests have them; what else lies there is not believed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from etl.errors import Final
from etl.files import archives, archiving, cleanings, names, verifying
from etl.files.archives import Lineage, Member
from etl.files.cleanings import Chosen, Cleaning, Origin, Planned, Regenerable
from etl.files.held import Held
from etl.files.layout import Layout
from etl.model import Place, Stage

EXTRACT = Place(pipeline="books", stage=Stage.EXTRACT)
#: 2026-11-18, a second before midnight.
LATE = 1_795_046_399_000


def put(data: Path, file_id: str, text: str, given: str = "books.csv") -> Chosen:
    """Put a file into the tree and choose it."""
    name = str(names.christen(given, file_id))
    path = data / "books" / "extract" / "resolved" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    member = Member(
        path=archives.relative(EXTRACT, name),
        place=EXTRACT,
        name=name,
        given=given,
        id=file_id,
        sha256="",
        size=len(text),
        mtime=1.5,
        arrived=2.5,
        lineage=Lineage(recipe="r", children=1, verdict="resolved"),
    )
    return Chosen(member=member, stamp=cleanings.stamp(path.stat()))


def builder(tmp_path: Path, day: str, **options: str) -> archiving.Builder:
    data = tmp_path / "data"
    return archiving.Builder(data, data / "archive", "books", day, **options)


def built(tmp_path: Path, text: str = "id\n1\n", at: int = LATE, **options: str) -> archives.Manifest:
    file_id = names.new_id("books", at)
    chosen = put(tmp_path / "data", file_id, text)
    note = tmp_path / "data" / "books" / ".notes" / f"{file_id}.json"
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text("{}")
    planned = Planned(
        stage=Stage.EXTRACT,
        token=file_id[::-1],
        files=[chosen],
        notes=[(f"books/.notes/{file_id}.json", file_id)],
    )
    manifest = builder(tmp_path, archives.day_of(file_id), **options).build(planned)
    assert manifest is not None
    return manifest


def test_an_id_leads_to_its_archives_without_an_index(tmp_path: Path) -> None:
    one, two, next_day = built(tmp_path), built(tmp_path), built(tmp_path, at=LATE + 1000)
    root = tmp_path / "data" / "archive"

    assert (one.day, next_day.day) == ("2026-11-18", "2026-11-19")
    assert [each.archive for each in (one, two, next_day)] == [
        "books-extract.tar.gz",
        "books-extract.2.tar.gz",
        "books-extract.tar.gz",
    ]
    for each in (one, two, next_day):
        assert archives.of_id(root, "books", each.members[0].id) == [each]
    assert list(archives.of_days(root, "books", "2026-11-18", "2026-11-18")) == [one, two]
    assert archives.of_id(root, "prices", one.members[0].id) == []
    assert archives.days(tmp_path / "nowhere") == []


def test_other_names_in_the_archive_do_not_matter(tmp_path: Path) -> None:
    one = built(tmp_path)
    root = tmp_path / "data" / "archive"
    for name in ("discarded", "superseded", "2026-13-45", "2026-11-18x", ".2026-11-18", "0000-00-00"):
        (root / name).mkdir()
    (root / "2026-11-17").write_text("no folder")
    for name in (
        "x",
        "books-extract.tar.gz.manifest.json.bak",
        "books-clean.tar.gz.manifest.json",
        "\n.json",
    ):
        (one.folder / name).write_text("{")

    assert archives.days(root) == ["2026-11-18"]
    assert list(archives.of_days(root, "books", "0000-00-00", "9999-99-99")) == [one]


def test_what_is_read_is_what_was_put_in(tmp_path: Path) -> None:
    manifest = built(tmp_path, "id\n" + "7\n" * 100_000)
    [member], [note] = manifest.members, manifest.notes

    assert archives.read(manifest.beside) == manifest
    assert verifying.verify(manifest) == []
    contents = {path: stream.read() for path, stream in archives.contents(manifest, [member.path, note.path])}
    assert contents[member.path] == b"id\n" + b"7\n" * 100_000
    assert contents[note.path] == b"{}"
    assert (member.mtime, member.lineage.verdict, note.id) == (1.5, "resolved", member.id)


def test_an_archive_of_another_version_of_ours_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dump(
        manifest: archives.Manifest, known: Callable[[archives.Manifest], bytes] = archives.dump
    ) -> bytes:
        return json.dumps(json.loads(known(manifest)) | {"more": 1}, indent=3).encode()

    monkeypatch.setattr(archives, "dump", dump)
    manifest = built(tmp_path)
    monkeypatch.undo()

    assert verifying.verify(archives.read(manifest.beside)) == []
    manifest.beside.write_bytes(archives.dump(manifest))
    assert verifying.verify(manifest) != []


def test_a_manifest_that_is_damaged_stands_in_the_way_of_those_it_speaks_of_alone(tmp_path: Path) -> None:
    one, two = built(tmp_path), built(tmp_path)
    ids = [each.members[0].id for each in (one, two)]
    one.beside.write_bytes(one.beside.read_bytes()[:-20])
    known = Held(tmp_path / "data" / "archive", "books", set(ids))

    assert [member.id for each in known.of(ids[1]) for member in each.members] == [ids[1]]
    with pytest.raises(Final, match="is damaged"):
        known.of(ids[0])


@pytest.mark.parametrize("packed", ["gz", "zst"])
@pytest.mark.parametrize("what", ["turned", "short", "gone", "other"])
def test_a_damaged_archive_is_told(tmp_path: Path, packed: str, what: str) -> None:
    manifest = built(tmp_path, "id\n" + "".join(f"{n * 7919}\n" for n in range(9_000)), packed=packed)
    data = bytearray(manifest.path.read_bytes())
    if what == "turned":
        data[len(data) // 2] ^= 1
    manifest.path.write_bytes(data[: len(data) // 2] if what == "short" else data)
    if what == "gone":
        manifest.path.unlink()
    if what == "other":
        manifest = replace(manifest, members=[replace(manifest.members[0], sha256="0" * 64)])

    assert verifying.verify(manifest) != []
    if what in ("short", "gone"):
        with pytest.raises(Final, match="archive"):
            [stream.read() for _, stream in archives.contents(manifest, [manifest.members[0].path])]


HOSTILE = [
    {"path": "../../etc/passwd"},
    {"path": "/etc/passwd", "place": "/etc"},
    {"name": "../x"},
    {"name": "x"},
    {"place": "books/extract/../.."},
    {"place": "prices/extract"},
    {"place": "books/transform"},
    {"place": "books/load/..%2f"},
    {"id": "another"},
    {"path": "books/extract/working/x"},
]


@pytest.mark.parametrize("told", HOSTILE)
def test_a_member_that_leads_elsewhere_makes_a_manifest_damaged(tmp_path: Path, told: dict[str, str]) -> None:
    manifest = built(tmp_path)
    facts = json.loads(manifest.beside.read_text())
    facts["members"][0] |= told
    manifest.beside.write_text(json.dumps(facts))

    with pytest.raises(Final, match="is damaged"):
        archives.read(manifest.beside)


@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "books/.notes/../../x",
        "/books/.notes/{}.json",
        "prices/.notes/{}.json",
        "books/extract/{}.json",
        "books/../.notes/{}.json",
        "books/.notes/other.json",
        "books/extract/../.notes/{}.json",
    ],
)
def test_a_note_that_leads_elsewhere_makes_a_manifest_damaged(tmp_path: Path, path: str) -> None:
    manifest = built(tmp_path)
    facts = json.loads(manifest.beside.read_text())
    facts["notes"][0]["path"] = path.format(facts["notes"][0]["id"])
    manifest.beside.write_text(json.dumps(facts))

    with pytest.raises(Final, match="is damaged"):
        archives.read(manifest.beside)


def test_a_manifest_of_a_newer_version_is_read(tmp_path: Path) -> None:
    manifest = built(tmp_path)
    facts = json.loads(manifest.beside.read_text())
    facts["more"] = facts["members"][0]["more"] = facts["notes"][0]["more"] = 1
    facts["members"][0]["lineage"]["more"] = 1
    manifest.beside.write_text(json.dumps(facts))

    assert archives.read(manifest.beside) == manifest


def test_a_file_that_changes_while_it_is_read_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, file_id = tmp_path / "data", names.new_id("books", LATE)
    stays, grows = put(data, file_id, "id\n1\n", "stays.csv"), put(data, file_id, "id\n2\n", "grows.csv")
    one = builder(tmp_path, archives.day_of(file_id))

    def heard(_: int) -> None:
        with (data / grows.member.path).open("a") as handle:
            handle.write("3\n")

    one.heard = heard
    planned = Planned(stage=Stage.EXTRACT, token="t" * 16, files=[grows, stays])
    manifest = one.build(planned)

    assert manifest is not None
    assert [member.name for member in manifest.members] == [stays.member.name]
    assert list(one.left) == [grows.member.path]
    assert verifying.verify(manifest) == []


def test_nothing_to_archive_makes_no_archive(tmp_path: Path) -> None:
    file_id = names.new_id("books", LATE)
    chosen = put(tmp_path / "data", file_id, "id\n1\n")
    (tmp_path / "data" / chosen.member.path).unlink()
    one = builder(tmp_path, archives.day_of(file_id))

    assert one.build(Planned(stage=Stage.EXTRACT, token="t", files=[chosen])) is None
    assert list(one.folder.iterdir()) == []
    assert list(one.left.values()) == ["it is gone"]


def test_a_journal_is_read_as_it_was_written(tmp_path: Path) -> None:

    layout, file_id = Layout(tmp_path / "data"), names.new_id("books", LATE)
    chosen = put(tmp_path / "data", file_id, "id\n1\n")
    cleaning = Cleaning(
        pipeline="books",
        day=archives.day_of(file_id),
        archives=(
            Planned(stage=Stage.EXTRACT, token="t", files=(chosen,), notes=(("books/.notes/x", file_id),)),
        ),
        regenerable=(
            Regenerable(
                path="x", id=file_id, stamp=chosen.stamp, origin=Origin(stage=Stage.EXTRACT, sha256="s")
            ),
        ),
        leaving=(file_id,),
    )
    cleanings.write(layout, cleaning)

    [path] = cleanings.waiting(layout, "books")
    assert cleanings.read(path) == cleaning
    assert cleanings.waiting(layout, "ooks") == []
    path.write_text("{")
    with pytest.raises(Final, match="Remove it"):
        cleanings.read(path)
    cleanings.end(layout, cleaning)
    assert cleanings.waiting(layout, "books") == []
