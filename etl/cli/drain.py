"""`etl drain`: take nothing new in, and wait until what is on its way has ended."""

from __future__ import annotations

import click

from etl.cli import common, pause
from etl.config import durations
from etl.model import Stage


@click.command("drain")
@click.argument("pipeline")
@click.option(
    "--timeout",
    metavar="DURATION",
    default="10m",
    show_default=True,
    help="How long to wait, for example 90s.",
)
@click.option("--because", default="", help="Why; shown wherever it is said that this is paused.")
@common.as_json
def command(pipeline: str, timeout: str, because: str, json_: bool) -> int:
    """Pause the extract of PIPELINE and wait until transform and load have nothing left.

    Exit 1 when something is left after --timeout. Extract stays paused until `etl resume PIPELINE/extract`.
    """
    config = common.configuration(pipeline)
    try:
        seconds = durations.seconds(timeout)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--timeout") from error
    spec, tree = config.pipeline(pipeline).spec, common.layout(config)
    from etl.services import draining

    pause.begin(tree, pause.mark(pipeline, Stage.EXTRACT, because or "drained"))
    left = draining.wait(tree, pipeline, list(spec.load.locations), seconds, lambda _: None)
    if json_:
        common.print_json({"pipeline": pipeline, "drained": not left, "left": left})
        return 1 if left else 0
    resume = f"take new files in again with: etl resume {pipeline}/extract"
    if not left:
        click.echo(f"{pipeline} is drained; {resume}")
        return 0
    for place, files in left.items():
        click.echo(f"{common.number(files, 'file')} left in {place}")
    click.echo(f"not drained after {timeout}: is somebody working? See `etl status`; {resume}")
    return 1
