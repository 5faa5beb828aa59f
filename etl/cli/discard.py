"""`etl discard`: out of the road, into the archive, with the operator's reason."""

from __future__ import annotations

import time

import click

from etl.cli import bulk, common, selecting
from etl.files import acts, moves
from etl.services import triage
from etl.services.triage import Wanted


@click.command("discard")
@selecting.options
@click.option("--because", required=True, help="Why; kept beside the file.")
@click.option("--dry-run", is_flag=True, help="Only say what would be moved.")
@click.option("--stagger", type=common.DURATION, help="Wait this long between two files, for example 5s.")
@common.as_json
def command(wanted: Wanted, because: str, dry_run: bool, stagger: float | None, json_: bool) -> int:
    """Move failed FILES to archive/discarded/DATE/ with their reasons and yours. Nothing is deleted.

    Which files is fixed at the start. Without FILES one of the options must say which.
    """
    because = acts.one_line(because)
    if not because:
        raise click.BadParameter("say why", param_hint="--because")
    config = common.configuration()
    tree = common.layout(config)
    found = triage.choose(config, tree, wanted, time.time())
    if dry_run or not found:
        if json_:
            common.print_json([{"place": str(one.place), "name": one.name, "to": ""} for one in found])
        elif not found:
            click.echo("nothing to discard")
        else:
            bulk.print_dry(found, "discard")
        return 0
    tally = bulk.carry_out(
        triage.act(
            tree,
            found,
            bulk.act("discard", because),
            lambda one: moves.discard(tree, one.place, one.name, because),
            together=1 if stagger else triage.TOGETHER,
        ),
        len(found),
        lambda done: f"discarded {bulk.shown(done.file)} to {done.to}",
        pause=stagger or 0.0,
        quiet=json_,
    )
    if json_:
        common.print_json(tally.facts())
    elif len(found) > 1 or tally.left:
        click.echo(bulk.summed_up(tally, "discarded"))
    return tally.code
