"""What verbs share: reading the configuration, choosing pipelines, printing facts as a table or as JSON.

Tables fit 80 columns; colour appears on a terminal only.
"""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, TypeVar

import click

from etl.config import durations, reading
from etl.errors import Unavailable
from etl.files import names, paused
from etl.files.layout import Layout
from etl.model import Waiting

#: columns that may be of any length.
_FOLDS = ("file", "place", "why", "in work", "text", "from")
#: columns that a terminal of fewer than so many characters has no room for.
_SPARE, _NARROW = ("arrived", "id"), 72
#: rows above which a table is made of plain lines.
_MANY = 200

Function = TypeVar("Function", bound=Callable[..., Any])


def configuration(pipeline: str | None = None) -> reading.Config:
    """Read the configuration this command was called with; a broken pipeline is told and left aside.

    The errors of `pipeline`, which the command is about, are left to whoever asks for it.
    """
    given: Mapping[str, Any] = click.get_current_context().obj
    config = reading.read(reading.find(given["config"]), given["overrides"])
    for name, errors in config.broken.items():
        for error in errors if name != pipeline else ():
            click.echo(f"etl: held: {error}", err=True)
    return config


def layout(config: reading.Config) -> Layout:
    """Give the data tree, with the folders of every pipeline made."""
    tree = Layout(config.data)
    for name, pipeline in config.pipelines.items():
        tree.make(name, pipeline.spec.load.locations)
    return tree


def chosen(config: reading.Config, name: str | None) -> list[str]:
    """Give the pipelines a command is about: the one named, or all."""
    return [config.pipeline(name).name] if name else sorted(config.pipelines)


def print_paused(tree: Layout, pipelines: Sequence[str]) -> None:
    """Say which of these pipelines or their stages an operator paused."""
    for name in pipelines:
        for mark in paused.of_pipeline(tree, name):
            click.echo(f"paused: {mark.target}: {mark}")


def tell(said: str) -> None:
    """Say something beside the answer."""
    click.echo(f"etl: {said}", err=True)


def as_json(function: Function) -> Function:
    """Give a verb the option `--json`."""
    return click.option("--json", "json_", is_flag=True, help="Print facts as JSON.")(function)


def print_json(facts: Any) -> None:
    """Print facts for programs."""
    click.echo(json.dumps(facts, indent=1, default=str))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, right: Sequence[str] = ()) -> None:
    """Print a table for people, at most 80 columns wide where nobody has a wider terminal.

    Names and sentences are folded where the room is short; numbers and single words stay whole, and in a narrow
    terminal the columns that `etl show` tells as well are left out.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=80)
    shown = [
        index for index, column in enumerate(columns) if console.width >= _NARROW or column not in _SPARE
    ]
    if len(rows) > _MANY:
        _print_long([columns[index] for index in shown], [[row[i] for i in shown] for row in rows], right)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for index in shown:
        column = columns[index]
        folds = column in _FOLDS or any(" " in str(row[index]) for row in rows)
        justify: Literal["left", "right"] = "right" if column in right else "left"
        table.add_column(column, justify=justify, overflow="fold", no_wrap=not folds)
    for row in rows:
        table.add_row(*(_cell(row[index], Text) for index in shown))
    console.print(table)


def _print_long(heads: Sequence[str], rows: Sequence[Sequence[Any]], right: Sequence[str]) -> None:
    from etl.cli import long_table

    width = shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else 80
    cells = [[(shown := _shown(value), _STYLES.get(shown, "")) for value in row] for row in rows]
    for line in long_table.lines(heads, cells, [head in right for head in heads], width):
        click.echo(line)


def print_wrapped(text: str, *, indent: int) -> None:
    """Print a sentence in lines that fit the terminal."""
    width = shutil.get_terminal_size((80, 24)).columns
    # names and paths stay whole, so that they can be copied
    lines = textwrap.wrap(text, max(40, width - indent), break_long_words=False, break_on_hyphens=False)
    for line in lines or [""]:
        click.echo(" " * indent + line)


_STYLES = {"failed": "red", "partial": "yellow", "resolved": "green", "working": "cyan", "in_process": "cyan"}


def _cell(value: Any, text: Callable[..., Any]) -> Any:
    shown = _shown(value)
    return text(shown, style=_STYLES.get(shown, ""))


def _shown(value: Any) -> str:
    # a name may hold what moves a cursor or breaks a line
    return f"{value:,}" if type(value) is int else names.printable(str(value))


def style(word: str) -> str:
    """Give the colour of a status or a verdict; "" for any other word."""
    return _STYLES.get(word, "")


def ago(seconds: float | None) -> str:
    """Say how long ago in one short word."""
    if seconds is None:
        return ""
    for limit, unit, size in ((120, "s", 1), (7200, "m", 60), (172800, "h", 3600)):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"


def number(value: int, word: str) -> str:
    """Give a count with its word: `1 file`, `3 files`."""
    return f"{value:,} {word}" + ("" if value == 1 else "s")


def when(moment: float) -> str:
    """Give a moment in one word: the hour where it is today, else the day as well."""
    then = time.localtime(moment)
    same_day = then[:3] == time.localtime()[:3]
    return time.strftime("%H:%M" if same_day else "%m-%d %H:%M", then)


class _Duration(click.ParamType[float]):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return value if isinstance(value, float) else durations.seconds(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


#: what an option is that takes a duration.
DURATION = _Duration()


def announce(config: reading.Config, waiting: Sequence[Waiting]) -> None:
    """Have jobs made for files that wait; where Redis does not answer, say that the next scan will find them."""
    with announcing(config) as announced:
        announced(waiting)


@contextmanager
def announcing(config: reading.Config) -> Iterator[Callable[[Sequence[Waiting]], None]]:
    """Give what has jobs made for files that wait; once Redis does not answer that is said, and left to the scan."""
    from etl.app import App
    from etl.queues import connection, enqueue

    with ExitStack() as stack:
        opened: list[App | None] = []

        def announced(waiting: Sequence[Waiting]) -> None:
            try:
                if not opened:
                    client = stack.enter_context(connection.connect(config.settings.redis, config.data))
                    announcer = enqueue.RedisAnnouncer(client, Layout(config.data).data_id())
                    opened.append(App.open(config, announcer))
                if opened[0] is not None:
                    opened[0].announce(waiting)
            except Unavailable as error:
                opened[:] = [None]
                click.echo(
                    f"etl: {error.summary}: no job was made; nothing is lost, the next scan makes one",
                    err=True,
                )

        yield announced
