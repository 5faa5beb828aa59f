"""`etl up`: everything in one process tree."""

from __future__ import annotations

import click

from etl.cli import common


@click.command("up")
@click.option("--workers", type=click.IntRange(1, 64), help="How many; default: as in settings.yaml.")
def command(workers: int | None) -> None:
    """Start the embedded Redis if configured and every service, and keep them running.

    SIGTERM or Ctrl-C stops everything in order, a second one at once. SIGHUP, or `etl reload`, starts every service
    anew with the configuration as it is then. What the services have to say goes to stderr.
    """
    config = common.configuration()
    from etl.services import logs, supervisor

    logs.begin("supervisor")
    overrides = dict(click.get_current_context().obj["overrides"])
    if workers:
        overrides["workers"] = str(workers)
    supervisor.run(config, overrides)
