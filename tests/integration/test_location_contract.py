"""What every kind of location promises, tried on each: sql on SQLite and PostgreSQL, files, memory."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from etl import errors
from etl.locations import memory
from etl.locations.location import Location
from tests.location_helpers import FILE, LATER_FILE, opened, query, unit_file

BOOKS = [{"isbn": "1", "title": "Emma"}, {"isbn": "2", "title": "Persuasion"}]
CORRECTED = [{"isbn": "1", "title": "Emma, corrected"}]


@dataclass
class Kind:
    """A location, and a look at the titles in it from outside."""

    location: Location
    titles: Callable[[], list[str]]


def sql_kind(root: Path, url: str) -> Kind:
    location = opened(root, kind="sql", url=url, table="books", create=True)
    return Kind(
        location, lambda: [title for (title,) in query(url, "SELECT title FROM books ORDER BY title")]
    )


def files_kind(root: Path) -> Kind:
    location = opened(root, kind="files", path="lake")

    def titles() -> list[str]:
        files = (root / "lake").glob("*.jsonl")
        return sorted(json.loads(line)["title"] for file in files for line in file.read_text().splitlines())

    return Kind(location, titles)


def memory_kind(root: Path) -> Kind:
    name = f"m{uuid.uuid4().hex}"
    location = opened(root, name, kind="memory")
    return Kind(location, lambda: sorted(unit["title"] for unit in memory.store(name).units))


@pytest.fixture(params=["sqlite", "postgres", "files", "memory"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    match request.param:
        case "sqlite":
            made = sql_kind(tmp_path, f"sqlite:///{tmp_path / 'x.db'}")
        case "postgres":
            made = sql_kind(tmp_path, request.getfixturevalue("postgres"))
        case "files":
            made = files_kind(tmp_path)
        case _:
            made = memory_kind(tmp_path)
    yield made
    made.location.close()


def test_units_are_written_and_counted(kind: Kind) -> None:
    assert kind.location.load(unit_file(BOOKS)).count == 2
    assert kind.titles() == ["Emma", "Persuasion"]
    assert kind.location.findings() == []


def test_the_same_unit_file_again_adds_nothing(kind: Kind) -> None:
    kind.location.load(unit_file(BOOKS))
    again = kind.location.load(unit_file(BOOKS))
    assert (again.count, again.before) == (0, True)
    assert kind.titles() == ["Emma", "Persuasion"]


def test_a_closed_location_still_remembers(kind: Kind) -> None:
    kind.location.load(unit_file(BOOKS))
    kind.location.close()
    assert kind.location.load(unit_file(BOOKS)).before


def test_parts_of_one_source_file_stand_side_by_side(kind: Kind) -> None:
    kind.location.load(unit_file(BOOKS[:1], part="0001"))
    kind.location.load(unit_file(BOOKS[1:], part="0002"))
    assert kind.titles() == ["Emma", "Persuasion"]


def test_a_newer_generation_replaces_the_older_one(kind: Kind) -> None:
    kind.location.load(unit_file(BOOKS))
    kind.location.load(unit_file([{"isbn": "9", "title": "Ulysses"}], file=LATER_FILE))
    assert kind.location.load(unit_file(CORRECTED, generation=2)).count == 1
    assert kind.titles() == ["Emma, corrected", "Ulysses"]


def test_a_newer_generation_without_units_removes_the_older_one(kind: Kind) -> None:
    kind.location.load(unit_file(BOOKS))
    assert kind.location.load(unit_file([], generation=2)).count == 0
    assert kind.titles() == []


def test_a_lower_generation_arriving_late_is_superseded(kind: Kind) -> None:
    kind.location.load(unit_file(CORRECTED, generation=2))
    late = kind.location.load(unit_file(BOOKS))
    assert (late.count, late.superseded) == (0, True)
    assert kind.titles() == ["Emma, corrected"]


def test_a_retry_of_a_replaced_generation_is_superseded(kind: Kind) -> None:
    kind.location.load(unit_file(BOOKS))
    kind.location.load(unit_file(CORRECTED, generation=2))
    assert kind.location.load(unit_file(BOOKS)).superseded
    assert kind.titles() == ["Emma, corrected"]


def test_changed_bytes_under_a_loaded_key_are_refused(kind: Kind) -> None:
    kind.location.load(unit_file(BOOKS))
    with pytest.raises(errors.Refused, match="already loaded"):
        kind.location.load(unit_file(CORRECTED))
    assert kind.titles() == ["Emma", "Persuasion"]


def test_an_empty_unit_file_is_loaded_once_too(kind: Kind) -> None:
    assert kind.location.load(unit_file([])).count == 0
    assert kind.location.load(unit_file([])).before


def test_a_unit_file_that_breaks_off_leaves_nothing(kind: Kind) -> None:
    whole = unit_file(BOOKS)

    def broken() -> Any:
        yield from whole.blocks()
        raise errors.InvalidFile("line 3 is not JSON")

    kind.location.load(unit_file([{"isbn": "9", "title": "Ulysses"}], file=LATER_FILE))
    with pytest.raises(errors.InvalidFile):
        kind.location.load(type(whole)(**{**_facts(whole), "blocks": broken}))
    assert kind.titles() == ["Ulysses"]
    assert kind.location.load(whole).count == 2


def _facts(units: Any) -> dict[str, Any]:
    return {name: getattr(units, name) for name in units.__slots__}


def test_an_unknown_kind_is_told_with_the_near_word(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match="did you mean 'files'"):
        opened(tmp_path, kind="fils", path="lake")


def test_a_misspelt_option_is_told_with_the_near_word(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match="did you mean 'table'"):
        opened(tmp_path, kind="sql", url="sqlite:///x.db", tabel="books")


def test_it_tells_what_it_has_and_of_whom(kind: Kind) -> None:
    assert list(kind.location.keys("d1", "books") or ()) == []
    kind.location.load(unit_file(BOOKS))
    kind.location.load(unit_file(BOOKS, part="0001-bad"))
    kind.location.load(unit_file(CORRECTED, file=LATER_FILE, generation=2))
    told = {
        (key.file, key.generation, key.part, key.count) for key in kind.location.keys("d1", "books") or ()
    }
    assert told == {(FILE, 1, "0001", 2), (FILE, 1, "0001-bad", 2), (LATER_FILE, 2, "0001", 1)}
    assert list(kind.location.excess("d1", "books")) == []


def test_a_replaced_generation_leaves_nothing_that_is_too_much(kind: Kind) -> None:
    kind.location.load(unit_file(BOOKS))
    kind.location.load(unit_file(CORRECTED, generation=2))
    assert list(kind.location.excess("d1", "books")) == []
    assert (FILE, 2) in {(key.file, key.generation) for key in kind.location.keys("d1", "books") or ()}
