"""`etl failed`: what failed and why."""

from __future__ import annotations

from collections.abc import Sequence

import click

from etl.cli import common, selecting
from etl.files import causes
from etl.files.layout import Layout
from etl.services import history
from etl.services.triage import FailedFile


@click.command("failed")
@click.argument("pipeline", required=False)
@click.option("--group", is_flag=True, help="Count them by cause, each with the word for --cause.")
@common.as_json
def command(pipeline: str | None, group: bool, json_: bool) -> None:
    """What lies in failed/ folders, and why."""
    config = common.configuration(pipeline)
    chosen = common.chosen(config, pipeline)
    if group:
        _print_causes(history.causes(config, chosen, common.tell), json_)
        return
    found = selecting.with_reasons(Layout(config.data), history.failed(config, chosen, common.tell))
    if json_:
        common.print_json(
            [
                {"place": str(one.place), "name": one.name, **one.reason, "causes": _words(one)}
                for one in found
            ]
        )
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


def _print_causes(found: Sequence[history.Cause], json_: bool) -> None:
    if json_:
        common.print_json(
            [
                {
                    "cause": one.word,
                    "files": one.files,
                    "place": str(one.place),
                    "why": one.why,
                    "first": one.first,
                    "last": one.last,
                }
                for one in found
            ]
        )
    elif not found:
        click.echo("nothing failed")
    else:
        heads = ["cause", "files", "first", "last", "place", "why"]
        rows = [
            [one.word, one.files, common.when(one.first), common.when(one.last), str(one.place), one.why]
            for one in found
        ]
        common.print_table(heads, rows, right=["files"])
        click.echo("\ntry those of one cause again: etl retry --cause CAUSE; or see etl discard")


def _words(one: FailedFile) -> list[str]:
    """Give the words of a file's causes."""
    return sorted(causes.word(one.place, cause) for cause in causes.of(one.reason))


def told(trouble: dict[str, object]) -> str:
    """Say one trouble in a line: line, field, cause."""
    at = [f"line {trouble['line']}"] if "line" in trouble else []
    at += [str(trouble["field"])] if "field" in trouble else []
    return f"{', '.join(at)}: {trouble['cause']}" if at else str(trouble["cause"])
