"""`etl retry`: a move, in bulk."""

from __future__ import annotations

import time
from pathlib import Path

import click

from etl.cli import bulk, common, selecting
from etl.files import moves
from etl.model import Status, Waiting
from etl.services import triage
from etl.services.triage import Done, FailedFile, Wanted

#: files whose jobs are made together where nobody asked to wait between them.
_TOGETHER = 500


@click.command("retry")
@selecting.options
@click.option("--dry-run", is_flag=True, help="Only say what would be moved.")
@click.option("--stagger", type=common.DURATION, help="Wait this long between two files, for example 5s.")
@common.as_json
def command(wanted: Wanted, dry_run: bool, stagger: float | None, json_: bool) -> int:
    """Move failed FILES back to working/ and announce a job for each; the same as `mv`.

    Which files is fixed at the start: one that fails again meanwhile is not moved twice. Without FILES one of the
    options must say which.
    """
    config = common.configuration()
    tree = common.layout(config)
    found = triage.choose(config, tree, wanted, time.time())
    if dry_run or not found:
        if json_:
            common.print_json([{"place": str(one.place), "name": one.name} for one in found])
        elif not found:
            click.echo("nothing to retry")
        else:
            bulk.print_dry(found, "move")
        return 0

    waiting: list[Waiting] = []

    def move(one: FailedFile) -> Path:
        waiting.append(moves.retry(tree, one.place, one.name))
        return tree.file(one.place, Status.WORKING, one.name)

    def tell(done: Done) -> str:
        return f"moved {bulk.shown(done.file)} to working/"

    pause = stagger or 0.0
    with common.announcing(config) as announced:

        def announce() -> None:
            if waiting and (pause or len(waiting) >= _TOGETHER):
                announced(waiting)
                waiting.clear()

        doing = triage.act(tree, found, bulk.act("retry"), move, together=1 if pause else triage.TOGETHER)
        tally = bulk.carry_out(doing, len(found), tell, after=announce, pause=pause, quiet=json_)
        if waiting:
            announced(waiting)
    if json_:
        common.print_json(tally.facts())
    else:
        click.echo(f"{bulk.summed_up(tally, 'waiting')}; a worker takes them, or: etl run PIPELINE")
    return tally.code
