"""`etl publish`: put in a message with headers."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from etl import disk
from etl.cli import common
from etl.config.reading import Config
from etl.config.wording import near_word
from etl.errors import ConfigError, UnsafeName
from etl.files import arrivals, headers

#: bytes of standard input that are kept in memory; more goes to a temporary file.
_IN_MEMORY = 8 << 20


@click.command("publish")
@click.argument("pipeline", required=False)
@click.argument("file", required=False)
@click.option("--header", "-H", "given", multiple=True, metavar="K=V", help="A header; may be repeated.")
@click.option("--name", help="The name of the message; default: the file's, or message.json or .txt.")
@common.as_json
def command(
    pipeline: str | None, file: str | None, given: tuple[str, ...], name: str | None, json_: bool
) -> None:
    """Put a message into PIPELINE and print its id: the body is FILE, or standard input.

    PIPELINE may be left out where the header `type` names it. Known headers: type, priority, delay, not_before,
    expires, callback, key; all others are handed to the handler. When the id is printed, the message is safely
    on disk.
    """
    told = _told(given)
    config = common.configuration(pipeline)
    from etl.services import publishing

    if file is None and pipeline is not None and "type" in told and _is_file(config, pipeline):
        pipeline, file = None, pipeline
    _warn(config, told)
    with _body(file) as (stream, size):
        called = name or (Path(file).name if file and file != "-" else publishing.name_of(stream))
        message = publishing.draft(config, pipeline, told, called)
        waiting = publishing.put(config, message, stream, size)
    if not publishing.announce(config, message, waiting):
        click.echo("etl: no job was made; nothing is lost, the next scan makes one", err=True)
    if json_:
        facts = {"id": publishing.identity(waiting), "pipeline": message.pipeline, "name": waiting.name}
        common.print_json(facts | {"headers": headers.shown(message.headers)})
    else:
        click.echo(publishing.identity(waiting))


def _is_file(config: Config, word: str) -> bool:
    """Tell whether the one word that was given is the body and not the pipeline."""
    return word not in {*config.pipelines, *config.broken} and (word == "-" or Path(word).exists())


def _told(given: tuple[str, ...]) -> dict[str, str]:
    """Read `k=v` pairs, or raise ConfigError."""
    told: dict[str, str] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals:
            raise click.UsageError(f"--header {one!r} is not name=value")
        if name in told:
            raise ConfigError(f"the header {name!r} is given twice", next="give it once")
        told[name] = value
    return told


def _warn(config: Config, told: dict[str, str]) -> None:
    """Say what is allowed and yet probably not meant."""
    for name in told:
        near = near_word(name, list(headers.KNOWN))
        if name not in headers.KNOWN and near:
            click.echo(f"etl: {name!r} is a header of your own; did you mean {near!r}?", err=True)
    if "callback" in told and not config.settings.callbacks.allow:
        click.echo(
            "etl: the callback will be refused: callbacks.allow in settings.yaml names no host", err=True
        )


@contextmanager
def _body(file: str | None) -> Iterator[tuple[BinaryIO, int]]:
    """Open the body and give its size; standard input is read to its end first, so that half of it is nothing."""
    if file and file != "-":
        _check_readable(Path(file))
        with arrivals.open_outside(Path(file)) as stream:
            yield stream, Path(file).stat().st_size
        return
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as kept:
        size = 0
        while chunk := sys.stdin.buffer.read(disk.CHUNK):
            size += kept.write(chunk)
        kept.seek(0)
        yield kept, size  # type: ignore[misc]


def _check_readable(path: Path) -> None:
    """Make sure a file can be read, or raise ConfigError: nothing is published, and the command was wrong."""
    try:
        with arrivals.open_outside(path):
            pass
    except UnsafeName as error:
        raise ConfigError(error.summary, next=error.next) from error
