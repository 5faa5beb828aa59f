"""`etl pause`: begin nothing more of a pipeline or a stage."""

from __future__ import annotations

import time

import click

from etl.cli import common
from etl.config.reading import Config
from etl.files import acts, paused
from etl.files.acts import Act
from etl.files.layout import Layout
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
    new = begin(tree, mark(pipeline, stage, because))
    known = paused.read(tree, pipeline, stage)
    if json_:
        return common.print_json(told(known) if known else {})
    click.echo(f"{target} is paused" + ("" if new else " already") + f" {known}")
    return None


def mark(pipeline: str, stage: Stage | None, because: str) -> paused.Mark:
    """Give the mark of whoever calls this command."""
    return paused.Mark(
        pipeline=pipeline,
        stage=stage or "",
        who=acts.login(),
        since=time.time(),
        because=acts.one_line(because),
    )


def begin(tree: Layout, wanted: paused.Mark) -> bool:
    """Pause, with a line in the acts first; False when it is paused already."""
    if paused.read(tree, wanted.pipeline, Stage(wanted.stage) if wanted.stage else None) is not None:
        return False
    acts.record(
        tree,
        Act(what="pause", who=acts.who(), at=wanted.since, because=wanted.because, about=wanted.target),
    )
    return paused.write(tree, wanted)


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
