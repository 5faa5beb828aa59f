"""`etl discard`: out of the road, into the archive, with the operator's reason."""

from __future__ import annotations

import click

from etl.cli import common, selecting
from etl.files import moves


@click.command("discard")
@selecting.options
@click.option("--because", required=True, help="Why; kept beside the file.")
@click.option("--dry-run", is_flag=True, help="Only say what would be moved.")
@common.as_json
def command(
    wanted: selecting.Wanted,
    because: str,
    dry_run: bool,
    json_: bool,
) -> None:
    """Move failed FILES to archive/discarded/DATE/ with their reasons and yours.

    Without FILES one of the options must say which.
    """
    config = common.configuration()
    tree = common.layout(config)
    found = wanted.among(selecting.failed(config, tree, wanted.pipeline))
    moved = []
    for one in found:
        target = None if dry_run else moves.discard(tree, one.place, one.name, because)
        moved.append({"place": str(one.place), "name": one.name, "to": str(target or "")})
        if not json_:
            word = "would discard" if dry_run else "discarded"
            click.echo(f"{word} {one.place}/failed/{one.name}" + (f" to {target}" if target else ""))
    if json_:
        common.print_json(moved)
    elif not found:
        click.echo("nothing to discard")
