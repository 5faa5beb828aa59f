"""`etl run`: the whole road in the foreground."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import click

from etl.app import App
from etl.cli import common, delivered, progress
from etl.errors import UnsafeName
from etl.files import arrivals, deliveries, layout, names, reasons, room, survey, walking
from etl.files.deliveries import Delivery
from etl.files.layout import REQUESTS
from etl.model import Place, Stage, Status


@click.command("run")
@click.argument("pipeline")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option("--inline", is_flag=True, help="Work in this process, with no Redis at all.")
@common.as_json
def command(pipeline: str, files: tuple[Path, ...], inline: bool, json_: bool) -> int:
    """Copy FILES in and work them in the foreground; each run is a new delivery.

    A folder stands for the files in it. With no FILES, everything that waits in PIPELINE is worked.
    The exit code is the verdict: 0 all resolved, 1 something failed or is held back.
    """
    # what workers would log is told by the bar and the table here
    logging.getLogger("etl").setLevel(logging.CRITICAL)
    config = common.configuration(pipeline)
    from etl.services import checking, foreground
    from etl.stages import pauses

    checking.follow(config, pipeline)
    pauses.require_going(layout.Layout(config.data), pipeline)
    paths = _expanded(files)
    started = time.time()
    with foreground.hands(config, inline=inline) as hands, progress.bar(quiet=json_) as bar:
        app = hands.app
        if files:  # all or nothing: half a delivery helps nobody (P24)
            coming = sum(path.stat().st_size for path in paths)
            room.require(app.layout, config.settings.reserve, coming)
        ids = _deliver(app, pipeline, bar.copying(paths)) if files else None
        try:
            alone = foreground.work_off(hands, pipeline, ids, bar.update)
        except KeyboardInterrupt:
            click.echo(f"\nwhat is left waits in its folders; `etl run {pipeline}` goes on with it", err=True)
            raise
    worked = _worked(app, pipeline, ids, started, alone)
    _follow(app, worked)
    return _report(worked, bar.done.rows, time.time() - started, json_)


def _follow(app: App, worked: Worked) -> None:
    """Judge what was worked, try once what follows its verdicts, and say what came of that."""
    from etl.queues import enqueue
    from etl.services import courier

    app.announcer = (
        enqueue.InlineAnnouncer()
    )  # the queue may be gone by now; what is started waits in its folder
    for what, one in courier.at_once(app, worked.pipeline, [each.note.id for each in worked.found]):
        later = "; `etl up` tries again" if one.state == "waiting" else ""
        target = f" ({one.target})" if one.target else ""
        click.echo(f"{what}{target}: {one.state}: {one.said}{later}", err=True)


def _deliver(app: App, pipeline: str, paths: Iterable[Path]) -> set[str]:
    """Copy the files in, have each worked at once, and give their ids."""
    ids = set()
    for path in paths:
        waiting = arrivals.deliver(app.layout, pipeline, path)
        if file := names.parse(pipeline, waiting.name):
            ids.add(file.id)
        app.announce([waiting])
    return ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """What a run was about."""

    pipeline: str
    found: list[Delivery]
    #: summaries of requests for an extract that failed.
    refused: list[str]
    #: drops that were not complete.
    alone: int = 0

    @property
    def code(self) -> int:
        """Give the exit code: the verdict."""
        return 1 if self.refused or any(one.verdict != "resolved" for one in self.found) else 0


def _worked(app: App, pipeline: str, ids: set[str] | None, started: float, alone: int) -> Worked:
    """Give the deliveries of `ids`, or else all of which anything moved since `started`."""
    locations = app.pipeline(pipeline).spec.load.locations
    found = deliveries.of_pipeline(app.layout, pipeline, locations, ids)
    if ids is None:
        # file times are a little coarser than clocks
        found = [one for one in found if deliveries.moved(app.layout, one) >= started - 0.05]
    found = [walking.whole(app.layout, one, locations) for one in found]
    requests = Place(pipeline=pipeline, stage=Stage.EXTRACT, location=REQUESTS)
    refused = [
        str(reasons.read(app.layout, requests, name).get("summary", name))
        for name in survey.listing(app.layout, requests, Status.FAILED)
        if app.layout.file(requests, Status.FAILED, name).lstat().st_mtime >= started - 0.05
    ]
    return Worked(pipeline=pipeline, found=found, refused=refused, alone=alone)


def _expanded(files: tuple[Path, ...]) -> list[Path]:
    """Give the files, with folders replaced by the files in them."""
    paths: list[Path] = []
    for path in files:
        if path.is_dir():
            paths += _inside(path)
        elif path.exists():
            if names.never_work(path.name):
                raise UnsafeName(
                    f"{path.name!r} is a hidden, half-written or temporary name, which is never worked",
                    next="rename the file; nothing was copied in",
                )
            paths.append(path)
        else:
            raise UnsafeName(f"there is no file {str(path)!r}", next="check the path; nothing was copied in")
    for path in paths:  # all of them before the first is copied: a second run would deliver the others twice
        with arrivals.open_outside(path):
            pass
    return paths


def _inside(folder: Path) -> list[Path]:
    """Give the files in a folder and below; what is no plain file of its own there is refused."""
    found = sorted(one for one in folder.rglob("*") if not names.never_work(one.name))
    for one in found:
        if one.is_symlink() or not (one.is_file() or one.is_dir()):
            raise UnsafeName(
                f"{str(one)!r} is a link, pipe or device; only plain files of a folder are taken",
                next="name the file itself, or take it out of the folder; nothing was copied in",
            )
    files = [one for one in found if one.is_file()]
    if not files:
        raise UnsafeName(f"there is no file to take in {str(folder)!r}", next="name files, or another folder")
    return files


def _report(worked: Worked, rows: int, seconds: float, json_: bool) -> int:
    found = worked.found
    if json_:
        facts: dict[str, object] = {"pipeline": worked.pipeline, "seconds": round(seconds, 3)}
        facts |= {"refused": worked.refused, "left_alone": worked.alone}
        common.print_json(facts | {"files": [delivered.summary(one) for one in found]})
        return worked.code
    if worked.alone:
        click.echo(
            f"{common.number(worked.alone, 'file')} left alone: still being written, or without a done-file"
        )
    if not found and not worked.refused and not worked.alone:
        click.echo(f"nothing waits in {worked.pipeline}")
        return worked.code
    common.print_table(
        ["file", "id", "rows", "loaded", "held back", "verdict"],
        [
            [one.note.given, one.note.id[:11], one.rows, delivered.loaded(one), one.held_back, one.verdict]
            for one in found
        ],
        right=["rows", "loaded", "held back"],
    )
    rate = f", {rows / seconds:,.0f} rows/s" if rows >= seconds else ""
    click.echo(f"{common.number(len(found), 'file')} in {seconds:.1f} s{rate}")
    for summary_ in worked.refused:
        click.echo(f"a request failed: {summary_}")
    if worked.code:
        click.echo(f"not all is well: see `etl failed {worked.pipeline}`")
    return worked.code
