"""`etl files`: the morning screen."""

from __future__ import annotations

import time
from datetime import datetime

import click

from etl.cli import common, run
from etl.files import deliveries, layout


@click.command("files")
@click.argument("pipeline", required=False)
@click.option("--today", is_flag=True, help="Only what came since midnight.")
@common.as_json
def command(pipeline: str | None, today: bool, json_: bool) -> None:
    """One line per source file: name as given, id, arrival, rows, loaded, held back, verdict."""
    config = common.configuration(pipeline)
    tree = layout.Layout(config.data)
    midnight = datetime.now().replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    found = [
        (name, one)
        for name in common.chosen(config, pipeline)
        for one in deliveries.of_pipeline(tree, name, config.pipelines[name].spec.load.locations)
        if not today or one.note.arrived >= midnight
    ]
    if json_:
        common.print_json([{"pipeline": name, **run.summary(one)} for name, one in found])
        return
    heads = ["file", "id", "arrived", "rows", "loaded", "held back", "verdict"]
    pipelines = [name for name, _ in found]
    rows: list[list[object]] = []
    for index, (name, one) in enumerate(found):
        # a line of its own: a column would take the room of the names
        if len(set(pipelines)) > 1 and name not in pipelines[:index]:
            rows.append([f"{name}/", *([""] * (len(heads) - 1))])
        rows.append(_row(one))
    common.print_table(heads, rows, right=["rows", "loaded", "held back"])
    common.print_paused(tree, common.chosen(config, pipeline))


def _row(one: deliveries.Delivery) -> list[object]:
    return [
        one.note.given,
        one.note.id[:11],
        _when(one.note.arrived),
        one.rows,
        run.loaded(one),
        one.held_back,
        one.verdict,
    ]


def _when(moment: float) -> str:
    then = time.localtime(moment)
    same_day = then[:3] == time.localtime()[:3]
    return time.strftime("%H:%M" if same_day else "%m-%d %H:%M", then)
