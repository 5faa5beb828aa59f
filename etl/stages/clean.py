"""Clean: takes what has come to rest off the road, into verified archives, one pipeline and day after the other.

Asked for durably, so that a lost job is announced again; any number may be asked for, one works at a time.
Called by `jobs`, by `etl clean`, and by whoever keeps the time.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime

from etl import disk, points, process
from etl.app import App
from etl.errors import EtlError, Unavailable
from etl.files import archives, cleanings, spool
from etl.files.archives import Manifest
from etl.files.cleanings import folder
from etl.files.layout import Layout
from etl.model import Stage
from etl.points import Point
from etl.queues import lanes
from etl.queues.queue import Work
from etl.stages import stale
from etl.stages.choosing import Chooser
from etl.stages.cleaning import Cleaner
from etl.stages.reporting import Report

log = logging.getLogger(__name__)

#: seconds that the job may take: years may wait to be archived, and nobody waits for it.
TIMEOUT = 24 * 3600


# --- asked for ---------------------------------------------------------------------------------------------


def ask(app: App) -> None:
    """Ask for one clean, durably, and have a job made for it; asked twice while one is wanted it is one."""
    mark = folder(app.layout) / "asked"
    if not mark.exists():
        disk.make_folder(mark.parent)
        disk.write(mark, f"{secrets.token_hex(8)}\n".encode(), Point.CLEAN_ASK)
    announce(app)


def asked(layout: Layout) -> str:
    """Give the token of the clean that is asked for; "" when none is."""
    try:
        return (folder(layout) / "asked").read_text().strip() or "asked"
    except FileNotFoundError:
        return ""


def answered(layout: Layout, token: str) -> None:
    """Take the mark away, unless another one was asked for meanwhile."""
    if token and asked(layout) == token:
        with points.effect(Point.CLEAN_ASK):
            (folder(layout) / "asked").unlink(missing_ok=True)


def work(app: App) -> Work:
    """Give the job that cleans."""
    queue = lanes.lane(app.queues()[0], "normal")
    return Work(function="etl.jobs.clean", arguments={}, queue=queue, timeout=TIMEOUT)


def announce(app: App) -> None:
    """Have a job made for what was asked for; while the queue is away the mark waits for the next scan."""
    try:
        app.announcer.announce([work(app)])
    except Unavailable as error:
        log.warning("%s", error, extra={"event": "not_announced"})


# --- done --------------------------------------------------------------------------------------------------

#: what else is looked at once the road is clean, by the job and by `etl clean`, in this order.
AFTERWARDS: tuple[Callable[[App], None], ...] = (stale.tell,)


def job(app: App) -> int:
    """Clean every pipeline, tell people what stood in the way, and give the number of archives built."""
    token = asked(app.layout)
    report = run(app, sorted(app.config.pipelines), Report(detailed=False))
    if report.busy or report.stopped:
        return len(report.archives)
    _complain(app, report)
    for look in AFTERWARDS:
        look(app)
    answered(app.layout, token)
    return len(report.archives)


def alone(layout: Layout) -> disk.Lock | None:
    """Take the lock of whoever cleans, or None while another has it: for all who bring archived files back, too."""
    disk.make_folder(folder(layout))
    return disk.lock_path(folder(layout) / "lock")


def run(
    app: App,
    pipelines: Sequence[str],
    report: Report,
    heard: Callable[[int], None] = lambda _: None,
    clock: Callable[[], float] = time.time,
) -> Report:
    """Clean pipelines, one after the other; one that cannot be cleaned holds up no other. Begins nothing when busy."""
    lock = alone(app.layout)
    if lock is None:
        report.busy = True
        log.info("another clean is at it", extra={"event": "clean_busy"})
        return report
    with lock:
        for pipeline in pipelines:
            try:
                _clean(app, pipeline, report, heard, clock())
            except (EtlError, OSError) as error:
                report.errors[pipeline] = str(error)
            except Exception as error:  # the edge: whatever one pipeline holds, the others are cleaned
                log.exception("%s: not cleaned", pipeline, extra={"event": "not_cleaned"})
                report.errors[pipeline] = f"not expected: {type(error).__name__}: {error}"
            if report.stopped:
                break
    return report


def _clean(app: App, pipeline: str, report: Report, heard: Callable[[int], None], now: float) -> None:
    cleaner = Cleaner(app, pipeline, report, heard)
    cleaner.carry_on()
    chooser = Chooser(app, pipeline, now, left=report.left)
    for cleaning in chooser.cleanings():
        if process.is_stopping():
            report.stopped = True
            return
        cleaner.clean(cleaning)
        log.info("%s: cleaned what came on %s", pipeline, cleaning.day, extra={"event": "cleaned"})
    for request in chooser.requests():
        cleaner.forget(request)
    for manifest in _expired(app, pipeline, now):
        expire(manifest)
        report.expired.append(f"{manifest.day}/{manifest.archive}")


def plan(
    app: App, pipelines: Sequence[str], report: Report, clock: Callable[[], float] = time.time
) -> Report:
    """Say what `run` would do, and write nothing."""
    for pipeline in pipelines:
        try:
            _plan(app, pipeline, report, clock())
        except (EtlError, OSError) as error:
            report.errors[pipeline] = str(error)
    return report


def _plan(app: App, pipeline: str, report: Report, now: float) -> None:
    begun = [cleanings.read(path) for path in cleanings.waiting(app.layout, pipeline)]
    known = {file_id for cleaning in begun for file_id in cleaning.ids}
    if known:
        report.left[pipeline] = (
            f"a clean of {', '.join(one.day for one in begun)} is at work, or was cut short and is carried on first"
        )
    chooser = Chooser(app, pipeline, now, judges=False, left=report.left)
    numbers: Counter[tuple[str, Stage]] = Counter()
    for cleaning in chooser.cleanings():
        if known & cleaning.ids:
            continue
        names = []
        for one in cleaning.archives:
            number = archives.next_number(app.config.archive, cleaning.day, pipeline, one.stage)
            number += numbers[cleaning.day, one.stage]
            numbers[cleaning.day, one.stage] += 1
            names.append(archives.name(pipeline, one.stage, number, app.config.settings.archive_format))
        report.planned(cleaning, names)
    for request in chooser.requests():
        report.forgot(request.path)
    report.expired += [f"{one.day}/{one.archive}" for one in _expired(app, pipeline, now)]


def _complain(app: App, report: Report) -> None:
    """Tell people what could not be cleaned; the same is told once while it waits to be told."""
    for pipeline, why in report.errors.items():
        log.warning("%s: not cleaned: %s", pipeline, why, extra={"event": "not_cleaned"})
        spool.notice(app.layout, "clean", f"{pipeline}: not cleaned", why, pipeline)


# --- expired -----------------------------------------------------------------------------------------------


def _expired(app: App, pipeline: str, now: float) -> list[Manifest]:
    """Give the archives of a pipeline that were made longer ago than they are kept."""
    kept = app.pipeline(pipeline).spec.clean.expire_archives_after
    if kept is None:
        return []
    found = archives.of_days(app.config.archive, pipeline, "0000-00-00", "9999-99-99")
    return [one for one in found if datetime.fromisoformat(one.made).timestamp() <= now - kept]


def expire(manifest: Manifest) -> None:
    """Remove an archive, its manifest last: while that is there, whoever comes removes the rest."""
    for path in (manifest.path, manifest.beside):
        with points.effect(Point.ARCHIVE_EXPIRE):
            path.unlink(missing_ok=True)
    with suppress(OSError):  # others lie there still
        manifest.folder.rmdir()
