"""`etl acts`: who did what by a command, and when."""

from __future__ import annotations

import time
from dataclasses import asdict
from itertools import groupby

import click

from etl.cli import common
from etl.files import acts, names
from etl.files.acts import Act
from etl.files.layout import Layout

#: seconds that are looked back where nobody says how far.
_WEEK = 7 * 86_400.0
#: files of one act that are told one by one.
_FEW = 3


@click.command("acts")
@click.argument("pipeline", required=False)
@click.option("--since", type=common.DURATION, help="How far to look back, for example 1d; default: 7d.")
@common.as_json
def command(pipeline: str | None, since: float | None, json_: bool) -> None:
    """Who retried, discarded, paused or resumed what, when and why.

    Moves by hand (`mv`) are not told here.
    """
    config = common.configuration(pipeline)
    found = acts.read(Layout(config.data), time.time() - (since or _WEEK))
    if pipeline:
        name = config.pipeline(pipeline).name
        found = [one for one in found if any(_of(told, name) for told in (*one.files, one.about))]
    if json_:
        common.print_json([asdict(one) for one in found])
    elif not found:
        click.echo("nobody did anything")
    for _, parts in groupby(found if not json_ else (), key=lambda one: (one.who, one.what, one.at)):
        _print(list(parts))


def _of(told: str, pipeline: str) -> bool:
    return told.partition("/")[0] == pipeline


def _print(parts: list[Act]) -> None:
    """Print one act; of many files it was kept in parts."""
    first, files = parts[0], [one for part in parts for one in part.files]
    about = first.about or common.number(len(files), "file")
    click.echo(f"{first} ({about})")
    for one in files[:_FEW]:
        click.echo(f"    {names.printable(one)}")
    if len(files) > _FEW:
        click.echo(f"    … and {len(files) - _FEW:,} more, with --json")
