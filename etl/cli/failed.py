"""`etl failed`: what failed and why."""

from __future__ import annotations

import click

from etl.cli import common, selecting
from etl.files.layout import Layout
from etl.services import history


@click.command("failed")
@click.argument("pipeline", required=False)
@click.option("--group", is_flag=True, help="Group by cause.")
@common.as_json
def command(pipeline: str | None, group: bool, json_: bool) -> None:
    """What lies in failed/ folders, and why."""
    config = common.configuration(pipeline)
    chosen = common.chosen(config, pipeline)
    if group and not json_ and (causes := history.causes(config, chosen, common.tell)):
        rows = [[count, str(place), cause] for place, cause, count in causes]
        common.print_table(["files", "place", "why"], rows, right=["files"])
        return
    found = selecting.with_reasons(Layout(config.data), history.failed(config, chosen, common.tell))
    if json_:
        common.print_json([{"place": str(one.place), "name": one.name, **one.reason} for one in found])
    elif not found:
        click.echo("nothing failed")
    else:
        for one in found:
            click.echo(f"{one.place}/failed/{one.name}")
            common.print_wrapped(one.summary, indent=4)
            for trouble in one.reason.get("where", [])[:3]:
                click.echo(f"      {told(trouble)}")
            if (more := len(one.reason.get("where", [])) - 3) > 0:
                click.echo(f"      … and {more} more")
            if one.reason.get("next"):
                common.print_wrapped(f"next: {one.reason['next']}", indent=4)


def told(trouble: dict[str, object]) -> str:
    """Say one trouble in a line: line, field, cause."""
    at = [f"line {trouble['line']}"] if "line" in trouble else []
    at += [str(trouble["field"])] if "field" in trouble else []
    return f"{', '.join(at)}: {trouble['cause']}" if at else str(trouble["cause"])
