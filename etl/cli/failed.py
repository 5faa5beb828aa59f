"""`etl failed`: what failed and why."""

from __future__ import annotations

from collections import Counter

import click

from etl.cli import common, selecting
from etl.files import reasons
from etl.files.layout import Layout


@click.command("failed")
@click.argument("pipeline", required=False)
@click.option("--group", is_flag=True, help="Group by cause.")
@common.as_json
def command(pipeline: str | None, group: bool, json_: bool) -> None:
    """What lies in failed/ folders, and why."""
    config = common.configuration(pipeline)
    found = selecting.failed(config, Layout(config.data), pipeline)
    if json_:
        common.print_json([{"place": str(one.place), "name": one.name, **one.reason} for one in found])
    elif not found:
        click.echo("nothing failed")
    elif group:
        counts = Counter((str(one.place), cause) for one in found for cause in reasons.causes(one.reason))
        rows = [[count, place, cause] for (place, cause), count in counts.most_common()]
        common.print_table(["files", "place", "why"], rows, right=["files"])
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
