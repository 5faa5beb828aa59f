"""Deliveries that are in the archive are found, shown, drawn and traced as if they lay in their folders."""

from __future__ import annotations

import gzip
import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from etl.cli import edge
from etl.files import archives, walking
from tests import archived
from tests.road import Road

PRICES = "sku,price\n0815,1.5\n4711,2.5\nx,wrong\n"
HANDLER = 'def to_unit(row):\n    print("seen", row["sku"])\n    return row\n'


@pytest.fixture(scope="module")
def road(tmp_path_factory: pytest.TempPathFactory) -> Road:
    """A delivery that is wholly in the archive, its held-back row corrected and loaded."""
    tmp_path = tmp_path_factory.mktemp("archived")
    warehouse = {"kind": "sql", "url": f"sqlite:///{tmp_path}/w.db", "table": "prices", "create": True}
    road = Road(
        tmp_path / "project",
        {
            "transform": {
                "read": "csv",
                "handler": "handler:to_unit",
                "schema": {"properties": {"price": {"type": "number"}}},
            },
            "load": {"locations": {"warehouse": warehouse}},
        },
        handlers={"handler": HANDLER},
    )
    file_id = archived.id_of("books", 5)
    road.drop(f"prices~{file_id}.csv.gz", gzip.compress(PRICES.encode()))
    road.work()
    bad = road.one("transform", "failed")
    bad.write_text(bad.read_text().replace("wrong", "3"))
    road.move_back(bad)
    road.work()
    archived.cleaned(road)
    assert road.ids() == []
    return road


def told(road: Road, *arguments: str) -> Any:
    """Call a command in this process, and give its facts."""
    said = io.StringIO()
    with redirect_stdout(said):
        code = edge.run(["--config", str(road.root / "config"), *arguments, "--json"])
    assert code == 0, said.getvalue()
    return json.loads(said.getvalue())


def file_id(road: Road) -> str:
    return archived.manifests(road)[0].members[0].id


def test_it_is_found_by_id_by_the_start_of_it_by_its_full_and_by_its_given_name(road: Road) -> None:
    own = file_id(road)
    tar = archived.tar(road, archives.day_of(own))
    for wanted in (own, own[:8], f"prices~{own}.csv.gz", "prices.csv.gz", f"prices~{own}-1.jsonl"):
        (one,) = told(road, "show", wanted)
        assert (one["id"], one["verdict"], one["rows"], one["loaded"]) == (
            own,
            "resolved",
            3,
            {"warehouse": 3},
        )
        assert one["archived"][0]["archive"] == str(tar)
        assert {held["member"].split("/")[1] for held in one["archived"]} == {"extract", "transform"}
    assert road.etl("show", "nobody.csv").returncode == 1
    waited = road.etl("wait", own)
    assert f"{own} has ended, resolved, and is in the archive. See it with: etl show {own}" in waited.stderr


def test_it_is_shown_drawn_and_its_log_printed(road: Road) -> None:
    shown = road.etl("show", "prices.csv.gz")
    assert f"books/extract/resolved/prices~{file_id(road)}.csv.gz" in shown.stdout
    tree = road.etl("show", "prices.csv.gz", "--tree").stdout
    assert "archived" in tree
    assert "warehouse: 3 of 3 units" in tree
    assert max(map(len, tree.splitlines())) <= 80
    (drawn,) = told(road, "show", "prices.csv.gz", "--tree")
    assert [one["verdict"] for one in drawn["verdicts"]][-1] == "resolved"
    assert any(line["text"] == "seen 4711" for line in told(road, "show", "prices.csv.gz", "--log"))


def test_a_row_leads_to_the_senders_line_in_the_archive(road: Road) -> None:
    for sku, line, raw in (("4711", 3, "4711,2.5"), ("x", 4, "x,wrong")):
        (one,) = told(road, "trace", "warehouse", f"sku={sku}", "--raw")
        assert (one["file"], one["line"], one["raw"], one["verdict"]) == (
            "prices.csv.gz",
            line,
            raw,
            "resolved",
        )
        assert one["path"].endswith("books-extract.tar.gz")
        assert one["inside"] == f"books/extract/resolved/prices~{file_id(road)}.csv.gz"


def test_fsck_holds_nothing_against_an_archive_and_reads_it_where_it_is_to_look_deep(road: Road) -> None:
    assert road.broken_promises() == []


def test_a_replayed_file_counts_what_it_loaded_before_in_every_view(road: Road, tmp_path: Path) -> None:
    from tests import road as roads

    own = roads.copy_of(road, tmp_path / "project")
    day = archives.day_of(file_id(own))
    assert told(own, "replay", day, "books")["files"][0]["moved"]
    own.work()
    (line,) = told(own, "files")
    assert (line["rows"], line["loaded"], line["verdict"]) == (3, {"warehouse": 3}, "resolved")
    assert own.judge() == []
    (one,) = told(own, "show", "prices.csv.gz")
    assert one["loaded"] == {"warehouse": 3}
    assert one["archived"]
    found = walking.find(own.layout, "books", file_id(own), own.locations)
    assert found is not None
    assert found.loaded == {"warehouse": 3}
