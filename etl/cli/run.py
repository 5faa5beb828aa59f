"""`etl run`: the whole road in the foreground."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from pathlib import Path

import click

from etl.cli import common, progress
from etl.errors import UnsafeName
from etl.files import arrivals, deliveries, names
from etl.files.deliveries import Delivery


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
    config = common.configuration()
    config.pipeline(pipeline)
    from etl.services import foreground, mending

    begun = time.monotonic()
    with ExitStack() as stack:
        hands = stack.enter_context(foreground.hands(config, inline=inline))
        app = hands.app
        bar = stack.enter_context(progress.bar(quiet=json_))
        ids: set[str] | None = None
        if files:
            ids = set()
            for path in bar.copying(_expanded(files)):
                waiting = arrivals.deliver(app.layout, pipeline, path)
                file = names.parse(pipeline, waiting.name)
                ids.add(file.id if file else "")
                app.announce([waiting])
        else:
            waiting_now = mending.all_waiting(app, pipeline)
            app.announce(waiting_now)
            before = {file.id for one in waiting_now if (file := names.parse(pipeline, one.name))}
            unnamed = any(names.parse(pipeline, one.name) is None for one in waiting_now)
            touched = (
                None if unnamed or any(one.place.location == ".requests" for one in waiting_now) else before
            )
        foreground.work_off(hands, pipeline, ids, bar.update)
        locations = config.pipeline(pipeline).spec.load.locations
        found = deliveries.of_pipeline(app.layout, pipeline, locations, ids if files else touched)
        done = bar.done
    return _report(pipeline, found, time.monotonic() - begun, json_, done.rows)


def _expanded(files: tuple[Path, ...]) -> list[Path]:
    """Give the files, with folders replaced by the files in them."""
    paths: list[Path] = []
    for path in files:
        if path.is_dir():
            paths += sorted(
                one for one in path.rglob("*") if one.is_file() and not names.never_work(one.name)
            )
        elif path.exists():
            paths.append(path)
        else:
            raise UnsafeName(f"there is no file {str(path)!r}", next="check the path; nothing was copied in")
    return paths


def _report(pipeline: str, found: list[Delivery], seconds: float, json_: bool, rows: int) -> int:
    bad = [one for one in found if one.verdict != "resolved"]
    if json_:
        facts = {"pipeline": pipeline, "seconds": round(seconds, 3), "files": [summary(one) for one in found]}
        common.print_json(facts)
        return 1 if bad else 0
    common.print_table(
        ["file", "id", "rows", "loaded", "held back", "verdict"],
        [[one.note.given, one.note.id, one.rows, loaded(one), one.held_back, one.verdict] for one in found],
        right=["rows", "loaded", "held back"],
    )
    rate = f", {rows / seconds:,.0f} rows/s" if rows else ""
    click.echo(f"{common.number(len(found), 'file')} in {seconds:.1f} s{rate}")
    if bad:
        click.echo(f"not all is well: see `etl failed {pipeline}`")
    return 1 if bad else 0


def loaded(one: Delivery) -> str:
    """Say how many units are at each location: one number where they agree."""
    counts = set(one.loaded.values())
    if len(counts) <= 1:
        return f"{counts.pop():,}" if counts else "0"
    return " ".join(f"{name} {count:,}" for name, count in one.loaded.items())


def summary(one: Delivery) -> dict[str, object]:
    """Give a delivery as facts."""
    return {
        "name": one.note.given,
        "id": one.note.id,
        "arrived": one.note.arrived,
        "rows": one.rows,
        "units": one.units,
        "loaded": dict(one.loaded),
        "held_back": one.held_back,
        "verdict": one.verdict,
        "said": one.said,
    }
