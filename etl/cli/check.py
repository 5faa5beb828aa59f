"""`etl check`: everything that can be set up wrong."""

from __future__ import annotations

import click

from etl.cli import common
from etl.config import reading


@click.command("check")
@click.option(
    "--probe", is_flag=True, help="One line for a monitor: exit 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN."
)
@common.as_json
def command(probe: bool, json_: bool) -> int:
    """Try the configuration and its surroundings, and say what to do.

    Exit 0 when all is well, 2 when something is to be fixed.
    """
    if probe:
        return _probe(json_)
    given = click.get_current_context().obj
    config = reading.read(reading.find(given["config"]), given["overrides"])
    from etl.services import checking

    findings = list(checking.check(config))
    if json_:
        common.print_json(
            [
                {"about": one.about, "ok": not one.problem, "problem": one.problem, "hint": one.hint}
                for one in findings
            ]
        )
    else:
        for one in findings:
            mark = click.style("fix", fg="red") if one.problem else click.style("ok ", fg="green")
            said = one.problem or one.hint
            click.echo(f"{mark}  {one.about}" + (f": {said}" if said else ""))
    return 2 if any(one.problem for one in findings) else 0


def _probe(json_: bool) -> int:
    """Look at what runs and lies where; whatever goes wrong over it is told in the one line too."""
    from etl.services import probing

    given = click.get_current_context().obj
    try:
        found = probing.probe(reading.read(reading.find(given["config"]), given["overrides"]))
    except Exception as error:  # the edge: a monitor knows four codes and no traceback
        found = probing.Probe(signs=[probing.Sign(level=probing.Level.UNKNOWN, said=str(error))])
    if json_:
        signs = [{"level": one.level.name, "said": one.said} for one in found.signs]
        figures = {"failed": found.failed, "waiting": found.waiting, "oldest": round(found.oldest, 1)}
        common.print_json({"level": found.level.name, "signs": signs, **figures})
    else:
        click.echo(str(found))
    return int(found.level)
