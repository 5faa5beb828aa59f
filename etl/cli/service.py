"""`etl service`: one service alone, for systemd and for the supervisor."""

from __future__ import annotations

import logging

import click

from etl.config import reading
from etl.config.wording import near_word


@click.command("service")
@click.argument("name")
def command(name: str) -> None:
    """Run one service in the foreground until SIGTERM or Ctrl-C.

    NAME is workers, dropbox, recorder, courier, scheduler or dashboard.

    Any number of each may run on one data folder.
    """
    from etl.services import alone, catalogue, checking, logs

    origins = alone.bind()
    known = list(catalogue.SERVICES)
    if name not in known:
        near = near_word(name, known)
        hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(known)}"
        raise click.UsageError(f"there is no service {name!r}; {hint}")
    logs.begin(name)
    given = click.get_current_context().obj
    config = reading.read(reading.find(given["config"]), given["overrides"])
    if not origins.supervised or origins.restarts:  # else the supervisor has just said it
        for errors in config.broken.values():
            for error in errors:
                logging.getLogger(__name__).error("held: %s", error, extra={"event": "pipeline_held"})
    alone.run(name, checking.sound(config), origins)
