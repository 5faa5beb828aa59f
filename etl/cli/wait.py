"""`etl wait`: until a message or file has ended."""

from __future__ import annotations

import time

import click

from etl.cli import common, delivered, one
from etl.config import durations

#: seconds between two looks at the folders: at first, and at most.
_FIRST, _MOST = 0.1, 1.0


@click.command("wait")
@click.argument("id_", metavar="ID")
@click.option("--timeout", metavar="DURATION", help="Give up after this long, for example 5m.")
@common.as_json
def command(id_: str, timeout: str | None, json_: bool) -> int:
    """Wait until everything that came of the message or file ID has ended.

    Exit codes: 0 resolved, 1 failed or partial, 2 not found or not ended in time.
    """
    until = None if timeout is None else time.monotonic() + _seconds(timeout)
    config = common.configuration()
    source, pause = one.find(config, id_), _FIRST
    while (delivery := one.settled(config, source)) is None:
        left = None if until is None else until - time.monotonic()
        if left is not None and left <= 0:
            click.echo(
                f"etl: {source.id} has not ended after {timeout}; see: etl status {source.id}", err=True
            )
            return 2
        time.sleep(pause if left is None else min(pause, left))
        pause = min(_MOST, pause * 1.5)
    if json_:
        common.print_json({"pipeline": source.pipeline, **delivered.summary(delivery)})
    else:
        click.echo(delivery.verdict + (f" ({delivery.said})" if delivery.said else ""))
    return 0 if delivery.verdict == "resolved" else 1


def _seconds(text: str) -> float:
    try:
        return durations.seconds(text)
    except ValueError as error:
        raise click.UsageError(f"--timeout: {error}") from error
