"""`etl pause`: begin nothing more of a pipeline or a stage."""

from __future__ import annotations

import getpass
import os
import time

import click

from etl.cli import common
from etl.config.reading import Config
from etl.files import paused
from etl.model import Stage


@click.command("pause")
@click.argument("target", metavar="PIPELINE[/STAGE]")
@click.option("--because", default="", help="Why; shown wherever it is said that this is paused.")
@common.as_json
def command(target: str, because: str, json_: bool) -> None:
    """Begin nothing more of a pipeline, or of one stage of it, until `etl resume`.

    Jobs in hand go on. What waits goes on waiting, also when everything is started anew.
    """
    config = common.configuration()
    pipeline, stage = chosen(config, target)
    tree = common.layout(config)
    new = paused.write(tree, mark(pipeline, stage, because))
    known = paused.read(tree, pipeline, stage)
    if json_:
        return common.print_json(told(known) if known else {})
    click.echo(f"{target} is paused" + ("" if new else " already") + f" {known}")
    return None


def mark(pipeline: str, stage: Stage | None, because: str) -> paused.Mark:
    """Give the mark of whoever calls this command."""
    return paused.Mark(pipeline=pipeline, stage=stage or "", who=_who(), since=time.time(), because=because)


def told(known: paused.Mark) -> dict[str, object]:
    """Give a mark as facts."""
    return {
        "paused": known.target,
        "who": known.who,
        "since": known.since,
        "because": known.because,
    }


def chosen(config: Config, target: str) -> tuple[str, Stage | None]:
    """Give the pipeline and the stage that an operator named, or raise what says which there are."""
    name, slash, word = target.partition("/")
    pipeline = config.pipeline(name).name
    if not slash:
        return pipeline, None
    if word not in list(Stage):
        raise click.UsageError(f"{word!r} is not a stage; there are: {', '.join(Stage)}")
    return pipeline, Stage(word)


def _who() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user often has no name
        return f"user {os.getuid()}"
