"""The demo: `python -m etl.cli.demo` runs the example pipelines with real workers and retries one failure.

Works in `demo/` of the current folder, made anew each time from `config/` and `data.example/`, and touches
nothing else. Only tells what the folders, the notes and the database say; the work is done by `services`.
"""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from textwrap import wrap

import click

from etl import disk
from etl.app import App
from etl.cli import common, delivered, failed
from etl.config import reading
from etl.errors import EtlError, Unavailable
from etl.files import arrivals, deliveries, notes, reasons, survey
from etl.model import Place, Stage, Status
from etl.queues import embedded
from etl.services import foreground
from etl.services.foreground import Hands

HOME = Path("demo")
#: says that the folder is the demo's own and may be removed; locked while a demo runs.
MARK = HOME / ".etl-demo"
#: seconds between two lines, where somebody reads along.
PACE = 0.1
#: what the shop sent, and what it meant.
WRONG, MEANT = '"quantity":0', '"quantity":1'
LOOK_AROUND = """\
What lies where now, in demo/
  config/pipelines/             four pipelines, a page of YAML each
  data/books/extract/resolved/  the files as they came
  data/books/transform/failed/  what could not be followed, with its reasons
  data/books/load/resolved/     unit files that are loaded
  data/warehouse.db             SQLite: books, order_items, climate, suppliers
  lake/books/                   the books again, as JSON lines

Try
  $ source .venv/bin/activate; cd demo
  $ etl status                        # how many files lie where
  $ etl failed                        # what else failed, and why
  $ etl show books-2026-11-17.csv     # all about one file
  $ etl run books data.example/books  # deliver the books once more
"""


def main() -> None:
    """Run the demo, or exit with what is in its way."""
    # the visitor's own installation is none of our business, nor is what workers log
    for name in [name for name in os.environ if name.startswith("ETL_")]:
        del os.environ[name]
    logging.getLogger("etl").setLevel(logging.CRITICAL)
    try:
        with _made_anew():
            with foreground.hands(reading.read(HOME / "config"), inline=False) as hands:
                _title("Four pipelines, real RQ workers, a Redis of their own")
                _work_all(hands)
                _retry_one(hands)
            for title, *lines in (part.splitlines() for part in LOOK_AROUND.split("\n\n")):
                _title(title)
                _say("\n".join(lines))
    except EtlError as error:
        raise SystemExit(f"demo: {error}") from error
    except KeyboardInterrupt:
        raise SystemExit("\nstopped; run it again whenever you like") from None


def _made_anew() -> disk.Lock:
    """Make the folder from the examples, an earlier one removed, or raise `Unavailable`."""
    if not all(Path(name).is_dir() for name in ("config", "data.example")):
        raise Unavailable("there is no config/ and data.example/ here", next="Run it where README.md lies")
    if HOME.exists():
        _remove()
    HOME.mkdir()
    lock = disk.wait_for_lock(MARK)
    for name in ("config", "data.example"):
        shutil.copytree(name, HOME / name, ignore=shutil.ignore_patterns("__pycache__"))
    return lock


def _remove() -> None:
    if not MARK.exists() and any(HOME.iterdir()):
        raise Unavailable("demo/ is not from an earlier demo", next="Move it away, then run this again")
    lock = disk.lock_path(MARK)
    if lock is None:
        raise Unavailable("another demo is running in demo/", next="Wait until it is over")
    with lock:
        if embedded.running(data := (HOME / "data").absolute()):
            # a killed demo leaves its server behind; whoever leaves last ends it
            with embedded.serve(data):
                pass
        shutil.rmtree(HOME)


def _work_all(hands: Hands) -> None:
    """Ask for a pull of every pipeline, have it all worked, and tell what became of each file."""
    app, rows = hands.app, []
    for name in app.config.pipelines:
        app.announce([arrivals.request(app.layout, name, {"sources": [], "again": False})])
    for name, pipeline in app.config.pipelines.items():
        foreground.work_off(hands, name, None, lambda *_: None)
        found = deliveries.of_pipeline(app.layout, name, pipeline.spec.load.locations)
        _tell_stages(app, name, found)
        facts = [
            (one.note.given, one.rows, delivered.loaded(one), one.held_back, one.verdict) for one in found
        ]
        rows += [[name, *told] for told in facts]
    _title("Every file and its verdict")
    heads = ["pipeline", "file", "rows", "loaded", "held back", "verdict"]
    common.print_table(heads, rows, right=heads[2:5])


def _tell_stages(app: App, name: str, found: list[deliveries.Delivery]) -> None:
    """Tell what was done to a pipeline's files at each stop of their road."""
    spec, places = app.pipeline(name).spec, list(app.places(name))
    requests, extracted, _, unit_files = (
        survey.listing(app.layout, place, Status.RESOLVED) for place in places[:4]
    )
    pulled = "; ".join(notes.read(app.layout, places[0], one).said for one in requests)
    at = [f"{sum(one.loaded.get(place, 0) for one in found):,} at {place}" for place in spec.load.locations]
    units, held_back = sum(one.units for one in found), sum(one.held_back for one in found)
    lost = f"; {common.number(held_back, 'row')} held back" if held_back else ""
    if bad := sum(one.verdict == "failed" for one in found):
        lost += f"; {common.number(bad, 'file')} failed"
    _say(
        f"\n{click.style(name, bold=True)}  {spec.transform.read.format} -> {', '.join(spec.load.locations)}"
    )
    _say(f"  pull       {common.number(len(requests), 'request')}: {pulled}")
    _say(f"  extract    {common.number(len(extracted), 'file')} accepted")
    made = f"{common.number(units, 'unit')} in {common.number(len(unit_files), 'unit file')}"
    _say(f"  transform  {made}{click.style(lost, fg='yellow')}")
    _say(f"  load       {', '.join(at)}")


def _retry_one(hands: Hands) -> None:
    """Show why an order is missing, correct it, move the file back, and show that it is there, once."""
    place = Place(pipeline="orders", stage=Stage.TRANSFORM)
    folder = HOME / "data" / str(place)
    names = survey.listing(hands.app.layout, place, Status.FAILED)
    name = next(one for one in names if "2026-11-16" in one)
    reason = reasons.read(hands.app.layout, place, name)
    _title("One failure: its reason lies beside it")
    _say(f"  $ cd {folder}\n  $ cat failed/{name}.reason.json")
    _tell("summary", reason["summary"])
    for trouble in reason["where"]:
        _tell("where", failed.told(trouble))
    _tell("next", reason["next"])
    _title("Somebody corrects the row, in any editor")
    wrong = (folder / "failed" / name).read_text(encoding="utf-8")
    right = wrong.replace(WRONG, MEANT)
    (folder / "failed" / name).write_text(right, encoding="utf-8")
    for sign, text, colour in (("-", wrong, "red"), ("+", right, "green")):
        _say(click.style(f"  {sign} …{text[text.index('[') :].strip()[:70]}…", fg=colour))
    before, _ = _count()
    _title("And the retry is a move; nobody has to be told")
    move = ["mv", f"failed/{name}", "working/"]
    _say(f"  $ {' '.join(move)}")
    subprocess.run(move, check=True, cwd=folder)
    foreground.work_off(hands, place.pipeline, None, lambda *_: None)
    after, different = _count()
    _say(
        f"  table order_items: {before} rows before, {after} now, {after - different or 'none'} of them twice"
    )


def _tell(key: str, text: str) -> None:
    for number, line in enumerate(wrap(text, 66, break_on_hyphens=False)):
        _say(f"  {'' if number else key:<9}{line}")


def _count() -> tuple[int, int]:
    """Count the rows of ordered items, and the different items among them."""
    with closing(sqlite3.connect(HOME / "data" / "warehouse.db")) as database:
        rows = database.execute("SELECT order_no, line_no FROM order_items").fetchall()
    return len(rows), len(set(rows))


def _title(text: str) -> None:
    _say("\n" + click.style(text, fg="cyan", bold=True))


def _say(line: str) -> None:
    """Print a line, and wait a moment where somebody reads along."""
    click.echo(line)
    if sys.stdout.isatty():
        time.sleep(PACE)


if __name__ == "__main__":
    main()
