"""Many failed files, one act: what is done to each is told line by line, on a terminal with a bar, and summed up.

A first Ctrl-C or SIGTERM ends it between two files. Decides nothing. Called by `etl retry` and `etl discard`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import click

from etl.cli import common
from etl.errors import EtlError
from etl.files import acts, names
from etl.files.acts import Act
from etl.services import service
from etl.services.triage import Done, FailedFile

#: files from which a bar is drawn on a terminal.
MANY = 50
#: exit code of a command that was stopped.
STOPPED = 130


@dataclass(slots=True)
class Tally:
    """What became of the files that were chosen."""

    chosen: int
    done: list[Done] = field(default_factory=list)
    stopped: bool = False

    @property
    def moved(self) -> int:
        """How many went where they were to go."""
        return sum(one.to is not None for one in self.done)

    @property
    def left(self) -> int:
        """How many were left alone."""
        return len(self.done) - self.moved

    @property
    def code(self) -> int:
        """Give the exit code: what another did meanwhile is no failure."""
        return STOPPED if self.stopped else int(any(one.trouble for one in self.done))

    def facts(self) -> list[dict[str, object]]:
        """Give what became of each file that was come to."""
        return [
            {
                "place": str(one.file.place),
                "name": one.file.name,
                "moved": one.to is not None,
                "to": str(one.to or ""),
                "left": one.left,
            }
            for one in self.done
        ]


def act(verb: str, because: str = "") -> Act:
    """Give the act of whoever calls this command."""
    return Act(what=verb, who=acts.who(), at=time.time(), because=because)


def shown(one: FailedFile) -> str:
    """Give where a failed file lies, as it may be printed."""
    return names.printable(f"{one.place}/failed/{one.name}")


def carry_out(
    doing: Iterator[Done],
    chosen: int,
    tell: Callable[[Done], str],
    *,
    after: Callable[[], None] = lambda: None,
    pause: float = 0.0,
    quiet: bool = False,
) -> Tally:
    """Go through all of it and tell what became of each file, until somebody asks to stop; `after` follows each."""
    tally = Tally(chosen)
    with service.Stop() as stop, _bar(chosen, quiet=quiet) as bar, _said_on_error(tally):
        for one in doing:
            tally.done.append(one)
            after()
            if bar is not None:
                bar(len(tally.done))
            if not quiet and (bar is None or one.left):
                click.echo(f"left alone: {shown(one.file)}: {one.left}" if one.left else tell(one))
            if pause and len(tally.done) < chosen:
                stop.wait(pause)
            if stop.asked:
                tally.stopped = len(tally.done) < chosen
                break
        doing.close()  # type: ignore[attr-defined]  # what was told of too early is taken back
    return tally


@contextmanager
def _said_on_error(tally: Tally) -> Iterator[None]:
    """Say how far it came when something ends it early; what that is follows."""
    try:
        yield
    except (OSError, EtlError):
        if tally.done:
            common.tell(f"{tally.moved:,} of {common.number(tally.chosen, 'file')} were moved before this")
        raise


def summed_up(tally: Tally, word: str) -> str:
    """Say what was done and what was not."""
    said = [f"{common.number(tally.moved, 'file')} {word}"]
    if tally.left:
        said.append(f"{tally.left:,} left alone")
    if tally.stopped:
        said.append(f"{tally.chosen - len(tally.done):,} not come to: stopped")
    return ", ".join(said)


def print_dry(found: Sequence[FailedFile], word: str) -> None:
    """Say what would be done, and to how many."""
    for one in found:
        click.echo(f"would {word} {shown(one)}")
    if len(found) > 1:
        click.echo(f"{common.number(len(found), 'file')}; nothing was done")


@contextmanager
def _bar(total: int, *, quiet: bool) -> Iterator[Callable[[int], None] | None]:
    """Show how far it is on a terminal where there is much to do; None elsewhere."""
    if quiet or total < MANY or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    with Progress(
        BarColumn(bar_width=24), MofNCompleteColumn(), TimeRemainingColumn(), console=console
    ) as drawn:
        task = drawn.add_task("", total=total)
        yield lambda done: drawn.update(task, completed=done)
