"""`etl check`: everything that can be set up wrong."""

from __future__ import annotations

import click

from etl.cli import common
from etl.config import reading


@click.command("check")
@common.as_json
def command(json_: bool) -> int:
    """Try the configuration and its surroundings, and say what to do.

    Exit 0 when all is well, 2 when something is to be fixed.
    """
    given = click.get_current_context().obj
    config = reading.read(reading.find(given["config"]), given["overrides"])
    from etl.services import checking

    findings = list(checking.check(config))
    if json_:
        common.print_json(
            [{"about": one.about, "ok": not one.problem, "problem": one.problem} for one in findings]
        )
    else:
        for one in findings:
            mark = click.style("fix", fg="red") if one.problem else click.style("ok ", fg="green")
            click.echo(f"{mark}  {one.about}" + (f": {one.problem}" if one.problem else ""))
    return 2 if any(one.problem for one in findings) else 0
