"""`etl extract`: ask for a pull."""

from __future__ import annotations

import click

from etl.cli import common
from etl.files import arrivals, room


@click.command("extract")
@click.argument("pipeline")
@click.argument("sources", nargs=-1)
@click.option("--again", is_flag=True, help="Pull unchanged sources anew, as a new delivery.")
@common.as_json
def command(pipeline: str, sources: tuple[str, ...], again: bool, json_: bool) -> None:
    """Ask for the files of SOURCES (default: those configured) to be pulled into PIPELINE.

    Writes a small durable request, then announces a job for it; a running worker does the rest. A source
    that did not change since it was pulled is not pulled again. Relative paths start beside `config/`.
    """
    config = common.configuration(pipeline)
    spec = config.pipeline(pipeline).spec
    if not sources and not spec.extract.sources:
        raise click.UsageError(f"{pipeline} has no extract.sources; name a SOURCE: a path, a glob or a URL")
    tree = common.layout(config)
    room.require(tree, config.settings.reserve)
    waiting = arrivals.request(tree, pipeline, {"sources": list(sources), "again": again})

    common.announce(config, [waiting])
    if json_:
        common.print_json(
            {"pipeline": pipeline, "request": waiting.name, "sources": list(sources), "again": again}
        )
    else:
        click.echo(f"asked: {waiting.name}")
        click.echo("a worker follows it; to do it now: " + f"etl run {pipeline}")
