"""From a row back to the sender's line: `etl trace`, with the real command, SQLite, PostgreSQL and files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests import road as roads
from tests.road import Road

TEXT = 'sku;price;on\n0815;1.5;2026-01-02\n"47\n11";2.5;2026-01-03\n0816;x;2026-01-04\n0817;3.5;2026-01-05\n'


@pytest.fixture
def road(tmp_path: Path) -> Road:
    return make(tmp_path, f"sqlite:///{tmp_path}/w.db")


def make(root: Path, url: str, **options: Any) -> Road:
    warehouse = {"kind": "sql", "url": url, "table": "prices", "create": True, **options}
    schema = {
        "properties": {
            "sku": {"type": "string"},
            "price": {"type": "number"},
            "on": {"type": "string", "format": "date"},
        }
    }
    return Road(
        root,
        {
            "transform": {
                "read": {"format": "csv", "delimiter": ";"},
                "schema": schema,
                "bad_rows": {"at_most": "50%"},
                "units_per_file": 2,
            },
            "load": {"locations": {"warehouse": warehouse, "lake": {"kind": "files", "path": "lake"}}},
        },
    )


def traced(road: Road, *arguments: str) -> list[dict[str, Any]]:
    done = road.etl("trace", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_a_row_leads_to_its_file_line_and_bytes(road: Road) -> None:
    road.drop("prices.csv.gz", gzip.compress(TEXT.encode()))
    road.work()
    for location in ("warehouse", "books/lake"):
        (one,) = traced(road, location, "sku=0817", "--raw")
        assert (one["file"], one["line"], one["raw"]) == ("prices.csv.gz", 6, "0817;3.5;2026-01-05")
        assert one["verdict"] == "partial"
        assert Path(one["path"]).parent == road.folder("transform", "resolved")
    shown = road.etl("trace", "warehouse", "on=2026-01-03", "--raw")
    assert shown.stdout == '"47\n11";2.5;2026-01-03\n'


def test_a_corrected_row_leads_to_the_line_it_first_stood_at(road: Road) -> None:
    road.drop("prices.csv", TEXT)
    road.work()
    bad = road.one("transform", "failed")
    bad.write_text(bad.read_text().replace(";x;", ";9;"))
    road.move_back(bad)
    road.work()
    for location in ("warehouse", "lake"):
        (one,) = traced(road, location, "sku=0816", "--raw")
        assert (one["line"], one["raw"]) == (5, "0816;x;2026-01-04")


def test_a_file_that_was_archived_is_read_there(road: Road) -> None:
    road.drop("prices.csv", TEXT)
    road.work()
    archive = road.data / "archive" / "2026-01-02" / "books" / "transform"
    archive.mkdir(parents=True)
    source = road.one("transform", "resolved")
    source.rename(archive / source.name)
    road.one("extract", "resolved").unlink()
    (one,) = traced(road, "warehouse", "price=1.5", "--raw")
    assert one["raw"] == "0815;1.5;2026-01-02"
    assert Path(one["path"]).parent == archive


def test_no_row_is_exit_1_and_a_wrong_question_says_what_is_right(road: Road) -> None:
    road.drop("prices.csv", TEXT)
    road.work()
    assert road.etl("trace", "warehouse", "sku=nobody").returncode == 1
    near = road.etl("trace", "warehouse", "skuu=1")
    assert near.returncode == 1
    assert "no column 'skuu'. Did you mean 'sku'?" in near.stderr
    typed = road.etl("trace", "warehouse", "price=cheap")
    assert "'cheap' is not a value of column 'price'" in typed.stderr
    assert road.etl("trace", "warehouse", "sku").returncode == 2
    assert "There are: books/lake, books/warehouse" in road.etl("trace", "lager", "sku=1").stderr


def test_a_value_is_only_ever_a_value(road: Road) -> None:
    road.drop("prices.csv", TEXT)
    road.work()
    assert road.etl("trace", "warehouse", "sku=0815' OR '1'='1").returncode == 1
    hostile = road.etl("trace", "warehouse", 'sku" OR 1=1 --=0815')
    assert "has no column" in hostile.stderr


def test_a_table_without_lineage_says_how_to_get_it(tmp_path: Path) -> None:
    road = make(tmp_path, f"sqlite:///{tmp_path}/w.db", lineage=False)
    road.drop("prices.csv", TEXT)
    road.work()
    done = road.etl("trace", "warehouse", "sku=0815")
    assert done.returncode == 1
    assert "_etl_file" in done.stderr
    assert "Traceback" not in done.stderr


def test_rows_of_postgresql_are_traced_too(tmp_path: Path, postgres: str) -> None:
    road = make(tmp_path, postgres)
    road.drop("prices.csv", TEXT)
    road.work()
    (one,) = traced(road, "warehouse", "on=2026-01-02", "sku=0815", "--raw")
    assert one["raw"] == "0815;1.5;2026-01-02"
    assert roads.count(postgres, "prices") == 3
