"""`etl trace`: from a row to the file, the line and the bytes it came from."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from etl.cli import common
from etl.config.reading import Config
from etl.errors import ConfigError
from etl.files import names

if TYPE_CHECKING:
    from etl.services.tracing import Origin

#: rows that are told where nobody says how many.
MOST = 20


@click.command("trace")
@click.argument("location", metavar="[PIPELINE/]LOCATION")
@click.argument("values", nargs=-1, required=True, metavar="KEY=VALUE...")
@click.option("--raw", is_flag=True, help="Print the sender's own line and nothing else.")
@click.option("--most", type=click.IntRange(min=1), default=MOST, show_default=True, help="Rows at most.")
@common.as_json
def command(location: str, values: tuple[str, ...], raw: bool, most: int, json_: bool) -> int:
    """From the rows of LOCATION with these values to the file, line and bytes they came from.

    Exit 1 when no row has them.
    """
    wanted = _wanted(values)
    config = common.configuration()
    pipeline, location = _chosen(config, location)
    from etl.app import App
    from etl.queues.enqueue import InlineAnnouncer
    from etl.services import tracing

    app = App.open(config, InlineAnnouncer())
    try:
        found = list(tracing.trace(app, pipeline, location, wanted, most))
        if not found and not json_:
            click.echo(f"no row of {pipeline}/{location} has {' '.join(values)}", err=True)
        if raw and not json_:
            for origin in found:
                click.echo(tracing.raw(app, origin))
        elif json_:
            common.print_json([_facts(one, tracing.raw(app, one) if raw else None) for one in found])
        else:
            _print(found, most)
    finally:
        app.close()
    return 0 if found else 1


def _wanted(values: tuple[str, ...]) -> dict[str, str]:
    for value in values:
        if "=" not in value.lstrip("="):
            raise click.UsageError(f"write {value!r} as field=value, for example sku=0815")
    return {field: text for field, _, text in (value.partition("=") for value in values)}


def _chosen(config: Config, written: str) -> tuple[str, str]:
    """Give pipeline and location, or raise ConfigError where it is not clear which are meant."""
    given, _, location = written.rpartition("/")
    among = [config.pipeline(given).name] if given else sorted(config.pipelines)
    having = [name for name in among if location in config.pipelines[name].spec.load.locations]
    if len(having) == 1:
        return having[0], location
    if having:
        told = " or ".join(f"{name}/{location}" for name in having)
        raise ConfigError(f"several pipelines have a location {location!r}", next=f"write {told}")
    there = sorted({f"{name}/{one}" for name in among for one in config.pipelines[name].spec.load.locations})
    raise ConfigError(f"there is no location {written!r}", next=f"there are: {', '.join(there)}")


def _facts(one: Origin, raw: str | None) -> dict[str, Any]:
    facts = {
        "file": one.given,
        "id": one.row.file,
        "pipeline": one.pipeline,
        "generation": one.row.generation,
        "arrived": one.arrived or None,
        "line": one.line,
        "path": str(one.path) if one.path else None,
        "inside": one.inside or None,
        "verdict": one.verdict,
        "row": dict(one.row.values),
    }
    return facts if raw is None else {**facts, "raw": raw}


def _print(found: list[Origin], most: int) -> None:
    for one in found:
        line = "an unknown line" if one.line is None else f"line {one.line:,}"
        click.echo(f"{names.printable(one.given) or 'a file that is no longer known'}, {line}")
        click.echo(f"  id         {one.row.file}  generation {one.row.generation}  pipeline {one.pipeline}")
        if one.arrived:
            click.echo(f"  arrived    {datetime.fromtimestamp(one.arrived).isoformat(' ', 'seconds')}")
        click.echo(f"  lies at    {one.path or 'neither in its folders nor in the archive'}")
        if one.inside:
            click.echo(f"             {names.printable(one.inside)}")
        click.echo(f"  verdict    {one.verdict or 'not known: its files were archived'}")
        shown = ", ".join(f"{field}={value}" for field, value in one.row.values.items())
        common.print_wrapped(f"row: {names.printable(shown)}", indent=2)
    if len(found) == most:
        click.echo(f"the first {common.number(most, 'row')}; more with --most, or name more fields")
