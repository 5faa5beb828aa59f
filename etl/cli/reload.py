"""`etl reload`: check the configuration, then have every service started anew."""

from __future__ import annotations

import os
import signal
import time

import click

from etl.cli import common
from etl.config import reading
from etl.config.origin import together
from etl.config.reading import Config
from etl.errors import ConfigError, EtlError, Unavailable
from etl.services import records, seat

#: seconds between two looks at the supervisor.
LOOK_EVERY = 0.1
#: seconds a supervisor may take for all services, beyond what jobs in hand are given.
DONE_WITHIN = 120.0


@click.command("reload")
@common.as_json
def command(json_: bool) -> None:
    """Check the configuration, then let the supervisor start every service anew.

    Jobs in hand are finished first. With a configuration that cannot be followed nothing is touched: exit 2.
    """
    given = click.get_current_context().obj
    config = reading.read(reading.find(given["config"]), given["overrides"])
    _must_be_followed(config)
    holder = _supervisor(config)
    try:
        os.kill(holder.pid, signal.SIGHUP)
    except PermissionError as error:
        raise Unavailable(
            f"the supervisor ({holder}) belongs to another user", next="run this as that user"
        ) from error
    renewed = _wait(config, holder).renewed
    if json_:
        common.print_json({"renewed": renewed})
    for one in [] if json_ else renewed:
        click.echo(f"{one['name']}: process {one['before'] or 'none'} -> {one['pid']}")


def _must_be_followed(config: Config) -> None:
    from etl.services import checking

    errors = [error for errors in config.broken.values() for error in errors]
    for name in sorted(config.pipelines):
        try:
            checking.follow(config, name)
        except ConfigError as error:
            errors.append(error)
    if errors:
        raise together(errors)


def _supervisor(config: Config) -> seat.Holder:
    holder = seat.holder(config.data)
    if holder is None:
        raise Unavailable(
            f"no supervisor runs on {config.data}",
            next="start one with: etl up (if you changed `data:`, stop the one that runs first). Services that "
            "systemd runs one by one are started anew with: systemctl restart etl-workers etl-dropbox",
        )
    if holder.host != records.host():
        raise Unavailable(
            f"the supervisor runs on host {holder.host}", next=f"run `etl reload` on {holder.host}"
        )
    return holder


def _wait(config: Config, before: seat.Holder) -> seat.Holder:
    """Wait until the supervisor says how it went; raise if it did not go well."""
    until = time.monotonic() + DONE_WITHIN + config.settings.stop_grace
    while time.monotonic() < until:
        now = seat.holder(config.data)
        if now is None or now.pid != before.pid:
            raise Unavailable("the supervisor ended while it was reloading", next="see its log")
        if now.reloads > before.reloads:
            if now.said:
                raise ConfigError(now.said) if now.refused else EtlError(now.said)
            return now
        time.sleep(LOOK_EVERY)
    raise EtlError("the services are not all new yet", next="see the log of the supervisor, and: etl status")
