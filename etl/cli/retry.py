"""`etl retry`: a move, in bulk."""

from __future__ import annotations

import time

import click

from etl.cli import common, selecting
from etl.config import durations
from etl.files import moves


@click.command("retry")
@selecting.options
@click.option("--dry-run", is_flag=True, help="Only say what would be moved.")
@click.option("--stagger", metavar="DURATION", help="Wait this long between two files, for example 5s.")
@common.as_json
def command(
    wanted: selecting.Wanted,
    dry_run: bool,
    stagger: str | None,
    json_: bool,
) -> None:
    """Move failed FILES back to working/ and announce a job for each; the same as `mv`.

    Without FILES one of the options must say which.
    """
    config = common.configuration()
    tree = common.layout(config)
    found = wanted.among(selecting.failed(config, tree, wanted.pipeline))
    if json_:
        common.print_json([{"place": str(one.place), "name": one.name} for one in found])
    if dry_run or not found:
        _say(json_, [f"would move {one.place}/failed/{one.name}" for one in found] or ["nothing to retry"])
        return
    pause = _pause(stagger)
    waiting = []
    for number, one in enumerate(found):
        if number and pause:
            time.sleep(pause)
        waiting.append(moves.retry(tree, one.place, one.name))
        if pause:
            common.announce(config, waiting[-1:])
        _say(json_, [f"moved {one.place}/failed/{one.name} to working/"])
    if not pause:
        common.announce(config, waiting)
    _say(json_, [f"{common.number(len(found), 'file')} waiting; a worker takes them, or: etl run PIPELINE"])


def _pause(stagger: str | None) -> float:
    try:
        return durations.seconds(stagger) if stagger else 0.0
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--stagger") from error


def _say(silent: bool, lines: list[str]) -> None:
    if not silent:
        for line in lines:
            click.echo(line)
