"""`etl resume`: go on with what was paused."""

from __future__ import annotations

import time

import click

from etl.cli import common, pause
from etl.files import acts, paused
from etl.files.acts import Act


@click.command("resume")
@click.argument("target", metavar="PIPELINE[/STAGE]")
@common.as_json
def command(target: str, json_: bool) -> None:
    """Go on with a pipeline, or with one stage of it, that was paused or drained.

    Services that run begin again within seconds.
    """
    config = common.configuration()
    pipeline, stage = pause.chosen(config, target)
    tree = common.layout(config)
    if paused.read(tree, pipeline, stage) is not None:
        acts.record(tree, Act(what="resume", who=acts.who(), at=time.time(), about=target))
    known = paused.clear(tree, pipeline, stage)
    left = paused.of_pipeline(tree, pipeline)
    if json_:
        common.print_json({"resumed": target if known else "", "paused": [pause.told(one) for one in left]})
        return
    click.echo(f"{target} goes on" if known else f"{target} was not paused")
    for one in left:
        click.echo(f"{one.target} is paused still: {one}")
