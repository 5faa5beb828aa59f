"""`etl replay`: the files of some days once more, out of the folders or out of the archives."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from etl.cli import common
from etl.config.reading import Config
from etl.errors import EtlError, Final, NoRoom, Unavailable
from etl.files import acts, names
from etl.files.acts import Act
from etl.files.layout import Layout
from etl.model import Place, Stage, Waiting

if TYPE_CHECKING:
    from etl.app import App
    from etl.stages.replaying import Day, Replayed, Wish


class Days(click.ParamType):  # type: ignore[type-arg]
    """`2026-11-01`, `2026-11-01..2026-11-07`, `yesterday` or `today`, in UTC; both ends are included."""

    name = "days"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[date, date]:
        """Read the first and the last day, or fail and say how to write them."""
        first, dots, last = str(value).partition("..")
        try:
            days = _day(first), _day(last if dots else first)
        except ValueError:
            self.fail(f"{value!r}: write 2026-11-01, 2026-11-01..2026-11-07, yesterday or today", param, ctx)
        if days[1] < days[0]:
            self.fail(f"{value!r}: the second day is before the first", param, ctx)
        return days


def _day(text: str) -> date:
    today = datetime.now(UTC).date()
    known = {"today": today, "yesterday": today - timedelta(days=1)}
    return known[text] if text in known else date.fromisoformat(text)


@click.command("replay")
@click.argument("days", type=Days(), metavar="DAYS")
@click.argument("pipeline")
@click.option(
    "--only", multiple=True, metavar="NAME", help="Only files of this name, pattern, id or its start."
)
@click.option("--again", is_flag=True, help="Load them anew, also where nothing has changed since.")
@click.option("--dry-run", is_flag=True, help="Only say what would be moved, and from where.")
@common.as_json
def command(
    days: tuple[date, date], pipeline: str, only: tuple[str, ...], again: bool, dry_run: bool, json_: bool
) -> int:
    """Bring the source files that came on DAYS (UTC) back to transform/working.

    DAYS is 2026-11-01, 2026-11-01..2026-11-07, yesterday or today. What is in an archive is verified first. Under
    the recipe of then they add 0 rows; where the handler, the section `transform:` or the file was changed since,
    their new rows take the place of the old ones. Exit 1 when an archive is damaged.
    """
    config = common.configuration(pipeline)
    from etl.stages import replaying

    wish = replaying.Wish(
        pipeline=config.pipeline(pipeline).name, first=days[0], last=days[1], only=only, again=again
    )
    told = _Told(config=config, dry_run=dry_run)
    if dry_run:
        for day in replaying.look(config, Layout(config.data), wish):
            told.wrong += day.wrong
            told.done += [
                replaying.Replayed(candidate=one, why=one.why).forgotten() for one in day.candidates
            ]
    else:
        _replay(config, wish, told, quiet=json_)
    if only and not told.done and not told.wrong:
        raise Final(
            f"nothing that came then to {pipeline} is called {' or '.join(only)}", next=_leave_out(wish)
        )
    told.print_json() if json_ else told.print()
    return 1 if told.wrong or any(one.wrong for one in told.done) else 0


def _leave_out(wish: Wish) -> str:
    return f"see what came: etl replay {wish.first}..{wish.last} {wish.pipeline} --dry-run"


# --- what is done ------------------------------------------------------------------------------------------


def _replay(config: Config, wish: Wish, told: _Told, *, quiet: bool) -> None:
    """Replay day by day; what is wrong with one file or archive is told at the end and stops no other."""
    from etl.stages import replaying

    with _app(config) as app, replaying.alone(app, _say_waits):
        hidden = quiet or not sys.stderr.isatty()
        # looked at once more for a bar alone: what archives hold of many days is not kept together
        total = 0 if hidden else sum(len(day.candidates) for day in replaying.look(config, app.layout, wish))
        with _bar(total, hidden=hidden) as advance:
            for day in replaying.look(config, app.layout, wish):
                told.wrong += day.wrong
                try:
                    for one in _of_day(app, day, wish):
                        told.done.append(one.forgotten())
                        advance()
                except NoRoom as error:
                    told.wrong.append(error)
                    return
                except EtlError as error:
                    told.wrong.append(error)


def _of_day(app: App, day: Day, wish: Wish) -> Iterator[Replayed]:
    """Replay one day and have jobs made for what waits then, whatever came in between."""
    from etl.stages import replaying

    waiting: list[Waiting] = []
    act = Act(what="replay", who=acts.who(), at=time.time(), because=replaying.AGAIN if wish.again else "")
    place = Place(pipeline=wish.pipeline, stage=Stage.TRANSFORM)
    try:
        for one in replaying.bring_back(app, day, act):
            if one.moved:
                waiting.append(Waiting(place=place, name=one.candidate.name))
            yield one
    finally:
        app.announce(waiting)


def _say_waits() -> None:
    click.echo("etl: clean is at work; waiting until it has ended", err=True)


@contextmanager
def _app(config: Config) -> Iterator[App]:
    """Open what is needed to move files and have jobs made; without Redis the next scan makes them."""
    from etl.app import App
    from etl.queues import connection, enqueue, updates

    with ExitStack() as stack:
        data_id = Layout(config.data).data_id()
        try:
            connection.url(config.settings.redis, config.data)
        except Unavailable:  # nothing runs, and no server is started for this
            yield App.open(config, enqueue.InlineAnnouncer())
            return
        try:
            client = stack.enter_context(connection.connect(config.settings.redis, config.data))
        except Unavailable as error:
            common.tell(f"{error.summary}: no job is made; nothing is lost, the next scan makes one")
            yield App.open(config, enqueue.InlineAnnouncer())
            return
        app = App.open(config, enqueue.RedisAnnouncer(client, data_id))
        app.tell = updates.Teller(client, data_id)
        yield app


@contextmanager
def _bar(total: int, *, hidden: bool) -> Iterator[Any]:
    """Show how far it is on a terminal; gives what is to be called for each file."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("replaying"), BarColumn(bar_width=30), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden) as drawn:
        task = drawn.add_task("", total=total)
        yield lambda: drawn.advance(task)


# --- what is said ------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Told:
    """What was done, or would be, and what is wrong."""

    config: Config
    dry_run: bool
    done: list[Replayed] = field(default_factory=list)
    wrong: list[EtlError] = field(default_factory=list)

    def _moves(self, one: Replayed) -> bool:
        return not one.why if self.dry_run else one.moved

    def print_json(self) -> None:
        facts = [
            {
                "id": one.candidate.id,
                "file": one.candidate.given,
                "name": one.candidate.name,
                "from": str(one.candidate.source),
                "inside": one.candidate.inside,
                "moved": self._moves(one),
                "why": one.why,
                "wrong": one.wrong,
            }
            for one in self.done
        ]
        common.print_json(
            {"dry_run": self.dry_run, "files": facts, "wrong": [str(one) for one in self.wrong]}
        )

    def print(self) -> None:
        moved = [one for one in self.done if self._moves(one)]
        if moved:
            common.print_table(["file", "from"], [[one.candidate.name, self._from(one)] for one in moved])
        for one in self.done:
            if one.why:
                click.echo(f"{'wrong' if one.wrong else 'left alone'}: {names.printable(one.candidate.name)}")
                common.print_wrapped(names.printable(one.why), indent=4)
        for error in self.wrong:
            click.echo("wrong:")
            common.print_wrapped(names.printable(str(error)), indent=4)
        click.echo(self._sum(moved))
        common.print_paused(Layout(self.config.data), sorted({one.candidate.pipeline for one in moved}))

    def _from(self, one: Replayed) -> str:
        source = one.candidate.source
        near = self.config.data
        return str(source.relative_to(near) if source.is_relative_to(near) else source)

    def _sum(self, moved: Sequence[Replayed]) -> str:
        files, rest = common.number(len(moved), "file"), len(self.done) - len(moved)
        alone = f"; left where {'it is' if rest == 1 else 'they are'}: {rest:,}" if rest else ""
        if self.dry_run:
            return f"would move {files} to transform/working{alone}"
        if not moved:
            return f"nothing to replay{alone}"
        return f"{files} waiting{alone}; a worker takes them, or: etl run {moved[0].candidate.pipeline}"
