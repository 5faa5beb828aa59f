"""Stale: what lies in working, in_process or failed for longer than its pipeline allows, in groups, for one mail.

Moves nothing. Tells the same once a day at most, and nothing where nothing is stale. Called at the end of a clean, and
by `etl clean` for the screen.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from etl import disk
from etl.app import App
from etl.errors import EtlError
from etl.files import causes, names, notes, reasons, spool, survey
from etl.model import Place, Status, Urgency
from etl.notify import digest
from etl.points import Point
from etl.stages import notices, pauses
from etl.stages.notices import Audience, Notice

log = logging.getLogger(__name__)

#: seconds for which the same is not told again; less than a day, as a nightly clean is not always as late.
SAME = 20 * 3600.0
_STATUSES = (Status.WORKING, Status.IN_PROCESS, Status.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Stale files that have pipeline, place, status and, if they failed, the cause in common."""

    pipeline: str
    place: str
    status: Status
    count: int
    #: since when the oldest lies there, seconds since 1970, and for how long, for people.
    since: float
    oldest: str
    #: the oldest file.
    sample: str
    cause: str = ""
    next: str = ""
    about: Mapping[str, str] = field(default_factory=dict)
    commands: tuple[str, ...] = ()

    def __str__(self) -> str:
        files = f"{digest.files(self.count)} in {self.place}/{self.status}, the oldest for {self.oldest}"
        return f"{files}: {self.cause}" if self.cause else files


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that is stale, oldest group first; a file with two causes is in two groups and counts once."""

    groups: tuple[Group, ...]
    files: Mapping[str, int]


def look(app: App, now: float) -> Report:
    """Find what is stale in every pipeline."""
    groups, files = list[Group](), dict[str, int]()
    for pipeline in sorted(app.config.pipelines):
        for place in app.places(pipeline):
            for status in _STATUSES:
                old = _old(app, place, status, now)
                files[pipeline] = files.get(pipeline, 0) + len(old)
                groups += _grouped(app, place, status, old, now)
    return Report(groups=tuple(sorted(groups, key=lambda one: (one.since, one.place))), files=files)


def _old(app: App, place: Place, status: Status, now: float) -> dict[str, float]:
    """Give the files that lie there for too long, and since when."""
    allowed = getattr(app.pipeline(place.pipeline).spec.clean.stale_after, status)
    done = survey.done_pattern(place, app.pipeline(place.pipeline).spec.extract.complete.done)
    found, _ = survey.dated(app.layout, place, status, done)
    return {
        name: came
        for name, moved in found.items()
        if now - moved > allowed
        and now - (came := _came(app, place, status, name, moved)) > allowed
        and not (status is Status.WORKING and notes.glance(app.layout, place, name).not_before > now)
    }


def _came(app: App, place: Place, status: Status, name: str, moved: float) -> float:
    """Give since when a file lies there: our moves set its mtime, a drop keeps the one its sender gave it."""
    if names.parse(place.pipeline, name) is not None:
        return moved
    try:
        return max(moved, os.lstat(app.layout.status(place, status) / name).st_ctime)
    except OSError:  # it was begun just now
        return time.time()


def _grouped(app: App, place: Place, status: Status, old: Mapping[str, float], now: float) -> Iterator[Group]:
    by_cause: dict[str, dict[str, float]] = {}
    for name, since in old.items():
        for cause in _causes(app, place, name) if status is Status.FAILED else ("",):
            by_cause.setdefault(cause, {})[name] = since
    for cause, found in by_cause.items():
        sample = min(found, key=lambda name: (found[name], name))
        yield Group(
            pipeline=place.pipeline,
            place=str(place),
            status=status,
            cause=names.printable(cause),
            count=len(found),
            since=found[sample],
            oldest=digest.spoken(now - found[sample]),
            sample=names.printable(sample),
            next=_next(app, place, status, sample),
            about=notices.about(app.config, place.pipeline),
            commands=_commands(app, place, cause),
        )


def _causes(app: App, place: Place, name: str) -> Iterable[str]:
    try:
        return sorted(causes.of(reasons.read(app.layout, place, name)))
    except (OSError, TypeError, KeyError, AttributeError, ValueError):  # unreadable, or a person wrote it
        return (causes.plain(reasons.summary({})),)


def _next(app: App, place: Place, status: Status, name: str) -> str:
    """Say what to do about a group."""
    if status is Status.FAILED:
        return f"put right what the reason beside each says, then retry or discard them: {place}/failed"
    if status is Status.IN_PROCESS:
        if _is_locked(app.layout.status(place, status) / name):
            return f"a worker has it: look what it does with etl show {shlex.quote(name)} --log"
        return "nobody works it: start etl up, which brings it back within a scan"
    if why := pauses.told(app.config, app.layout, place):
        return f"it is not begun: {why}"
    if names.parse(place.pipeline, name) is None:
        return (
            "it was never begun: see whether it is complete (settle, done-file) and whether the dropbox runs"
        )
    return "nobody takes it: see whether workers run and serve its queue"


def _is_locked(path: Path) -> bool:
    try:
        return disk.is_locked(path)
    except OSError:
        return False


def _commands(app: App, place: Place, cause: str) -> tuple[str, ...]:
    if cause:
        return notices.commands(app.config, place.pipeline, causes.word(place, cause))
    etl = f"etl --config {shlex.quote(str(app.config.folder))}"
    return (f"{etl} status {place.pipeline}",)


# --- told --------------------------------------------------------------------------------------------------


def tell(app: App) -> None:
    """Spool what is stale for everybody who hears of it, unless they heard the very same less than a day ago."""
    try:
        _tell(app, time.time())
    except (EtlError, OSError) as error:  # what was cleaned is cleaned all the same
        log.warning("what is stale is not told: %s", error, extra={"event": "stale_put_off"})


def _tell(app: App, now: float) -> None:
    report = look(app, now)
    if not report.groups:
        return
    folder = app.layout.own / "notices"
    disk.make_folder(folder)
    lock = disk.lock_path(folder / "stale.lock")
    if lock is None:
        return  # another tells it
    with lock:
        told = _told(folder / "stale.json")
        for audience in notices.audiences(app.config):
            groups = [one for one in report.groups if one.pipeline in audience.pipelines]
            same = _same(groups)
            before, at = told.get(audience.key, ("", 0.0))
            if not groups or (before == same and 0 <= now - at < SAME):
                continue
            _spool(app, audience, groups, report, now)
            told[audience.key] = (same, now)
            disk.write(folder / "stale.json", json.dumps(told, indent=1).encode() + b"\n", Point.NOTICED)


def _told(path: Path) -> dict[str, tuple[str, float]]:
    """Give what was told to whom, and when; lost, it is told again."""
    try:
        facts = json.loads(path.read_bytes())
        return {str(key): (str(same), float(at)) for key, (same, at) in facts.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _same(groups: Iterable[Group]) -> str:
    facts = sorted((one.place, one.status, one.cause, one.count, one.sample) for one in groups)
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def _spool(app: App, audience: Audience, groups: list[Group], report: Report, now: float) -> None:
    files = sum(report.files.get(name, 0) for name in audience.pipelines)
    title = f"{files:,} stale file{'' if files == 1 else 's'}, can wait until morning"
    rendered = notices.rendered(
        app.config,
        "stale",
        title,
        now,
        lead=_lead(files),
        urgency=Urgency.MORNING,
        groups=tuple(groups),
        most_groups=digest.MOST_CAUSES,
    )
    # the same of the same day is the same mail, should this be cut short
    key = f"stale/{app.data_id}/{_same(groups)}/{int(now // 86_400)}"
    notice = Notice(kind="stale", subject=title, rendered=rendered, key=key)
    for item in notices.items(app.config, notice, audience.to, now):
        spool.put(app.layout, item)


def _lead(files: int) -> str:
    stay = "this file stays where it lies" if files == 1 else f"these {files:,} files stay where they lie"
    return (
        f"Nothing is lost, and it can wait until morning. If you do nothing, {stay} and what is in "
        f"{'it' if files == 1 else 'them'} is missing; all other files go on."
    )
