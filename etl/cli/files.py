"""`etl files`: the morning screen."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime

import click

from etl.cli import common, delivered, expected
from etl.files import layout
from etl.services import history


@click.command("files")
@click.argument("pipeline", required=False)
@click.option("--today", is_flag=True, help="Only what came since midnight.")
@common.as_json
def command(pipeline: str | None, today: bool, json_: bool) -> None:
    """One line per source file: name as given, id, arrival, rows, loaded, held back, verdict."""
    config = common.configuration(pipeline)
    tree = layout.Layout(config.data)
    midnight = datetime.now().replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    chosen = common.chosen(config, pipeline)
    found = history.arrived(config, chosen, midnight if today else 0.0, common.tell)
    standings = expected.today(config, chosen) if today else []
    if json_:
        common.print_json([*map(asdict, found), *map(expected.facts, standings)])
        return
    heads = ["file", "id", "arrived", "rows", "loaded", "held back", "verdict"]
    several = len({one.pipeline for one in found}) > 1
    rows: list[list[object]] = []
    last = ""
    for one in found:
        # a line of its own: a column would take the room of the names
        if several and one.pipeline != last:
            rows.append([f"{one.pipeline}/", *([""] * (len(heads) - 1))])
        last = one.pipeline
        rows.append(_row(one))
    common.print_table(heads, rows, right=["rows", "loaded", "held back"])
    expected.show(standings)
    common.print_paused(tree, chosen)


def _row(one: history.Standing) -> list[object]:
    return [
        one.name,
        one.id[:11],
        common.when(one.arrived),
        one.rows,
        delivered.loaded(one),
        one.held_back,
        one.verdict,
    ]
