"""`etl fsck`: every broken promise, with the file and what to do."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from etl.app import App
from etl.cli import common
from etl.config.reading import Config
from etl.errors import Unavailable
from etl.files import names

if TYPE_CHECKING:
    from etl.services.fsck import Finding, Scope, Tally

#: findings of one kind at one place that are told one by one; `--json` tells all.
MOST = 10


@click.command("fsck")
@click.argument("pipeline", required=False)
@click.option("--fix", is_flag=True, help="Do what is safe, say what was done, and look again.")
@click.option("--deep", is_flag=True, help="Also hash every source file; reads them all.")
@common.as_json
def command(pipeline: str | None, fix: bool, deep: bool, json_: bool) -> int:
    """Hold folders, notes, queue and locations against what is promised.

    Prints every broken promise with the file and what to do. May run beside workers: what is being worked
    on is fine, and what is found is looked at again a second later.

    Exit 0 only when nothing is broken; with --fix, when nothing is left.
    """
    config = common.configuration()
    from etl.services.fsck import Scope

    scope = Scope(pipelines=tuple(common.chosen(config, pipeline)), deep=deep)
    with _opened(config) as (app, client), _watching(json_) as watch:
        found, tally = _look(app, client, scope, watch)
        did: dict[tuple[str, str, str], str] = {}
        left = found
        if fix and any(one.fix for one in found):
            did = {one.about: told for one in found if (told := _mend(one))}
            left, tally = _look(app, client, scope, watch)
    if json_:
        common.print_json(list(_facts(found, left, did)))
    else:
        _print(found, left, did)
        _sum_up(left, tally, did)
    if left:
        return 1
    # what is held because of its configuration was not looked at
    return 2 if config.broken and not pipeline else 0


@contextmanager
def _opened(config: Config) -> Iterator[tuple[App, Any]]:
    """Open the data folder without making any of it, and Redis if it is there; it is never started."""
    from etl.queues import looking
    from etl.queues.enqueue import InlineAnnouncer, RedisAnnouncer
    from etl.services import fsck

    app = fsck.open_app(config, InlineAnnouncer())
    with ExitStack() as stack:
        stack.callback(app.close)
        try:
            client = stack.enter_context(looking.opened(config.settings.redis, config.data))
        except Unavailable as error:
            click.echo(f"etl: the queue is not looked at: {error.summary}", err=True)
            client = None
        if client is not None:
            app.announcer = RedisAnnouncer(client, app.data_id)
        yield app, client


@contextmanager
def _watching(quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show what is being looked at, on a terminal only."""
    if quiet or not sys.stderr.isatty():
        yield lambda _words: None
        return
    from rich.console import Console

    with Console(stderr=True).status("looking") as status:
        yield status.update


def _look(app: App, client: Any, scope: Scope, watch: Callable[[str], None]) -> tuple[list[Finding], Tally]:
    from etl.services import fsck

    tally = fsck.Tally(watch=watch)
    return list(fsck.walk(app, client, scope, tally)), tally


def _mend(finding: Finding) -> str:
    """Do what is safe about one finding; a fix that fails is told, and stops no other."""
    if finding.fix is None:
        return ""
    try:
        return finding.fix()
    except Exception as error:  # the edge: what is broken may break a fix in ways nobody thought of
        click.echo(f"etl: {finding.place}: {finding.name}: could not be fixed: {error}", err=True)
        return ""


def _facts(
    found: Sequence[Finding], left: Sequence[Finding], did: dict[tuple[str, str, str], str]
) -> Iterator[dict[str, Any]]:
    """Give everything that was found, what was done about it, and whether it is still so."""
    still = {one.about for one in left}
    before = {one.about for one in found}
    for one in [*found, *(one for one in left if one.about not in before)]:
        yield {
            "promise": one.promise,
            "check": one.check,
            "place": one.place,
            "name": one.name,
            "what": one.what,
            "next": one.next,
            "fixable": one.fix is not None,
            "did": did.get(one.about, ""),
            "left": one.about in still,
        }


def _print(found: Sequence[Finding], left: Sequence[Finding], did: dict[tuple[str, str, str], str]) -> None:
    for one in found:
        if one.about in did:
            shown = f"{one.place}: {names.printable(one.name)}"
            common.print_wrapped(f"fixed  {shown}: {did[one.about]}", indent=0)
    for place, of_place in groupby(sorted(left, key=lambda one: one.place), key=lambda one: one.place):
        click.echo(place)
        told: Counter[str] = Counter()
        for one in of_place:
            told[one.check] += 1
            if told[one.check] <= MOST:
                _print_one(one)
        for check, count in told.items():
            if count > MOST:
                click.echo(f"  … and {count - MOST:,} more of {check}; --json tells all")


def _print_one(one: Finding) -> None:
    mark = click.style(one.promise, fg="red")
    click.echo(f"  {mark}  {names.printable(one.name)}")
    common.print_wrapped(one.what, indent=6)
    common.print_wrapped(f"next: {one.next}", indent=6)


def _sum_up(left: Sequence[Finding], tally: Tally, did: dict[tuple[str, str, str], str]) -> None:
    looked = (
        f"{common.number(tally.files, 'file')}, {common.number(tally.notes, 'note')}, "
        f"{common.number(tally.keys, 'key')} at {common.number(tally.locations, 'location')}"
    )
    if not left:
        click.echo(f"clean: {looked}")
        return
    click.echo(f"{common.number(len(left), 'broken promise')}: {looked}")
    safe = sum(one.fix is not None for one in left)
    if safe and not did:
        click.echo(f"`etl fsck --fix` can mend {safe:,} of them")
