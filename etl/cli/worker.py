"""`etl worker`: work the queues on this host."""

from __future__ import annotations

from contextlib import nullcontext

import click

from etl.app import App
from etl.cli import common


@click.command("worker")
@click.argument("queues", nargs=-1)
@click.option("--workers", type=click.IntRange(1, 64), help="How many; default: as in settings.yaml.")
@click.option("--burst", is_flag=True, help="End when the queues are empty.")
def command(queues: tuple[str, ...], workers: int | None, burst: bool) -> None:
    """Work QUEUES (default: all that pipelines name) until SIGTERM, SIGHUP or Ctrl-C.

    Also looks every `scan` for files that wait without a job and for files whose worker died.
    """
    from etl.queues.enqueue import InlineAnnouncer
    from etl.services import checking, horses, logs, records

    logs.begin("workers")
    config = checking.sound(common.configuration())

    known = App.open(config, InlineAnnouncer()).queues()
    for queue in queues:
        if queue not in known:
            raise click.UsageError(f"no pipeline names the queue {queue!r}; there are: {', '.join(known)}")
    with records.held(config.data, "workers") if not burst else nullcontext():
        horses.work(config, list(queues), workers or config.settings.workers, burst=burst)
