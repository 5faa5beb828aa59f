"""`etl clean`: what has come to rest leaves the folders, into verified archives."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import click

from etl.app import App
from etl.cli import common, progress
from etl.config.reading import Config
from etl.errors import Unavailable
from etl.files import names
from etl.queues import connection, enqueue, updates
from etl.stages import choosing, clean, stale
from etl.stages.reporting import Built, Report

#: files of one reason that are named.
_NAMED = 5


@click.command("clean")
@click.argument("pipeline", required=False)
@click.option("--dry-run", is_flag=True, help="Only say what would be done, file by file.")
@common.as_json
def command(pipeline: str | None, dry_run: bool, json_: bool) -> int:
    """Archive what lies in resolved/ for longer than archive_after, of PIPELINE or all.

    A file is removed once its archive was read back; what can be made again is not
    archived. Failed files and what is still on its way stay; what lies there for too
    long is told. Exit code 1 when a pipeline could not be cleaned.
    """
    config = common.configuration(pipeline)
    chosen = common.chosen(config, pipeline)
    with _app(config) as app:
        report = clean.plan(app, chosen, Report()) if dry_run else _run(app, chosen, json_)
        groups = () if report.busy else stale.look(app, time.time()).groups
        old = [one for one in groups if one.pipeline in chosen]
    if json_:
        common.print_json(report.as_dict() | {"stale": [str(one) for one in old]})
    else:
        _print(report, dry_run)
        for one in old:
            common.print_wrapped(f"stale: {one}", indent=0)
    for name, why in report.errors.items():
        common.tell(f"{name}: {why}")
    return 1 if report.errors else 0


@contextmanager
def _app(config: Config) -> Iterator[App]:
    """Open what cleans; where services run, they hear of it."""
    app = App.open(config, enqueue.InlineAnnouncer())
    with ExitStack() as opened:
        try:
            connection.url(config.settings.redis, config.data)  # none is started for this
            client = opened.enter_context(connection.connect(config.settings.redis, config.data))
            app.tell = updates.Teller(client, app.data_id)
        except Unavailable:
            pass  # the recorder sees by the folders what left
        yield app


def _run(app: App, pipelines: list[str], json_: bool) -> Report:
    report, read = Report(), 0
    with progress.bar(quiet=json_) as bar:
        total = sum(choosing.Chooser(app, name, time.time()).size() for name in pipelines)

        def heard(more: int) -> None:
            nonlocal read
            read += more
            done = f"{common.number(len(report.archives), 'archive')} · {_size(read)} read"
            bar.read(read, total, done)

        clean.run(app, pipelines, report, heard)
        for look in clean.AFTERWARDS:
            look(app)
    return report


# --- what is printed ---------------------------------------------------------------------------------------


def _print(report: Report, dry_run: bool) -> None:
    if report.busy:
        click.echo("another clean is at it; nothing was done")
        return
    if dry_run:
        _print_plan(report)
    elif report.archives:
        common.print_table(
            ["day", "archive", "files", "size", "notes"],
            [[one.day, one.archive, one.files, _size(one.size), one.notes] for one in report.archives],
            right=["files", "size", "notes"],
        )
    would = "would be " if dry_run else ""
    click.echo(
        f"{common.number(report.files, 'file')} {would}archived in {common.number(len(report.archives), 'archive')}, "
        f"{report.regenerable:,} {would}removed that can be made again"
    )
    click.echo(
        f"{common.number(report.notes, 'note')} and {common.number(report.requests, 'followed request')} "
        f"{would}removed"
    )
    for one in report.expired:
        click.echo(f"{would}expired: {one}")
    _print_left(report)


def _print_plan(report: Report) -> None:
    for one in report.archives:
        click.echo(f"{one.day}/{one.archive}: {_told(one)}")
        for path in (*one.members, *one.note_members):
            click.echo(f"  {names.printable(path)}")
    for what, words in (("removed", "removed, can be made again"), ("requests", "removed, was followed")):
        for path in report.paths[what]:
            click.echo(f"{words}: {names.printable(path)}")


def _told(one: Built) -> str:
    return f"{common.number(one.files, 'file')}, {_size(one.size)}, {common.number(one.notes, 'note')}"


def _print_left(report: Report) -> None:
    by_reason: dict[str, list[str]] = defaultdict(list)
    for path, why in report.left.items():
        by_reason[why].append(path)
    for why, paths in by_reason.items():
        common.print_wrapped(f"left alone, as {why}:", indent=0)
        for path in paths[:_NAMED]:
            click.echo(f"  {names.printable(path)}")
        if len(paths) > _NAMED:
            click.echo(f"  and {len(paths) - _NAMED:,} more")


def _size(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
