"""`etl notify`: who is told of what, and whether it reaches them."""

from __future__ import annotations

import click

from etl.cli import common
from etl.files import names


@click.command("notify")
@click.option("--test", is_flag=True, help="Send a test over every channel now, and say what came of it.")
@common.as_json
def command(test: bool, json_: bool) -> int:
    """Who hears of failures, by mail and over the webhook.

    Exit with --test: 0 when all went through, 1 when one did not, 2 when none is configured.
    """
    from etl.notify import answer
    from etl.services import notifying

    config = common.configuration()
    found = notifying.channels(config)
    ends = list(notifying.tried(config, found)) if test else []
    said = {id(channel): end for channel, end in ends}
    if json_:
        common.print_json(
            [
                {"channel": one.kind, "to": one.to, "pipelines": one.pipelines}
                | ({"state": said[id(one)].state, "said": said[id(one)].said} if test else {})
                for one in found
            ]
        )
    for one in () if json_ else found:
        end = said.get(id(one))
        click.echo(f"{one.kind} to {one.to}: {', '.join(one.pipelines) or 'no pipeline yet'}")
        if end:
            click.echo(f"    {end.state}: {names.printable(end.said)}")
    if not found:
        click.echo("etl: nobody is told: settings.yaml names neither mail nor notices.webhook", err=True)
        return 2 if test else 0
    return 1 if any(end.state != answer.TOLD for _, end in ends) else 0
