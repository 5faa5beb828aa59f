"""`etl worker`: work the queues on this host."""

from __future__ import annotations

from contextlib import nullcontext

import click

from etl.app import App
from etl.cli import common
from etl.config import durations


@click.command("worker")
@click.argument("queues", nargs=-1)
@click.option("--workers", type=click.IntRange(1, 64), help="How many; default: as in settings.yaml.")
@click.option("--burst", is_flag=True, help="End when the queues are empty.")
@click.option("--idle", metavar="DURATION", help="End when nothing was worked for so long, for example 60s.")
def command(queues: tuple[str, ...], workers: int | None, burst: bool, idle: str | None) -> None:
    """Work QUEUES (default: all that pipelines name) until SIGTERM, SIGHUP or Ctrl-C.

    Also looks every `scan` for files that wait without a job and for files whose worker died.
    """
    from etl.queues.enqueue import InlineAnnouncer
    from etl.services import alone, checking, horses, logs, records

    # one that the catch-all started is told apart from the crew of the service
    name = "catch_all" if alone.bind().supervised else "workers"
    logs.begin(name)
    config = checking.sound(common.configuration())

    known = App.open(config, InlineAnnouncer()).queues()
    for queue in queues:
        if queue not in known:
            raise click.UsageError(f"no pipeline names the queue {queue!r}; there are: {', '.join(known)}")
    count, ends = workers or config.settings.workers, _seconds(idle)
    with records.held(config.data, name) if not burst else nullcontext():
        horses.work(config, list(queues), count, ends=0.0 if burst else ends)


def _seconds(idle: str | None) -> float | None:
    try:
        return None if idle is None else durations.seconds(idle)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--idle") from error
