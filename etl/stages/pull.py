"""Extract, first half: a request is followed; acceptable files of its sources are copied into `extract/working`.

A pull holds the lock of its pipeline's sources. Its outbox carries the copies together with the record of what
was pulled, so that an unchanged source is pulled once, whatever dies in between; `after` follows the commit.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from etl import disk, points
from etl.app import App
from etl.config.schema import Source
from etl.errors import AlreadyClaimed, EtlError, InvalidFile, Retryable
from etl.files import arrivals, names, notes, outbox, reasons, room
from etl.files.moves import Claim
from etl.model import Place, Progress, Reason, Resolved, Stage, Status, Trouble, Urgency
from etl.points import Point
from etl.stages import endings, sources
from etl.stages.extract import accepts
from etl.stages.sources import Found

log = logging.getLogger(__name__)


def work(app: App, claim: Claim) -> Resolved:
    """Pull what a request asks for; the count is the number of files pulled, and 0 is fine."""
    wish = _wish(claim)
    pipeline = claim.place.pipeline
    # one pull at a time: a glob and a path may mean the same file, and two pulls must not take it twice
    with _alone(app, pipeline):
        # what a dead pull committed counts as pulled, though its records still lie in its outbox
        outbox.sweep(app.layout, claim.place, app.announce)
        found, refused = _list_all(app, pipeline, wish)
        patterns = app.pipeline(pipeline).spec.extract.accept
        # a hidden or half-written name would lie in working/ for ever: it is never work
        accepted = [one for one in found if accepts(patterns, one.given) and _is_work(app, pipeline, one)]
        fresh = [one for one in accepted if wish.get("again") or not _pulled_before(app, pipeline, one)]
        room.require(app.layout, app.config.settings.reserve, sum(one.size for one in fresh))
        with outbox.stage(app.layout, claim.place, claim.name, claim.note.attempt) as staging:
            unread = _copy_all(app, staging, pipeline, fresh)
            pulled = len(fresh) - len(unread)
            refused += [(one.url, error) for one, error in unread]
            _hold_back(app, claim, staging, wish, refused)
            said = f"{pulled} pulled, {len(accepted) - len(fresh)} unchanged, {len(found) - len(accepted)} not accepted"
            note = replace(
                claim.note, ended=Status.RESOLVED, children=pulled, held_back=len(refused), said=said
            )
            staging.commit(note, app.announce)
        _after(app, pipeline, accepted)
    return Resolved(count=pulled, said=said, held_back=len(refused))


def _alone(app: App, pipeline: str) -> disk.Lock:
    """Hold the lock of a pipeline's sources, or raise `AlreadyClaimed`: waiting would use up our time limit."""
    lock = disk.lock_path(app.layout.pulled(pipeline) / ".lock")
    if lock is None:
        raise AlreadyClaimed(f"another pull of {pipeline} is at work")
    return lock


def _wish(claim: Claim) -> dict[str, Any]:
    try:
        wish = json.loads(os.pread(claim.descriptor, 1 << 20, 0))
    except ValueError as error:
        raise InvalidFile(
            f"the request {claim.name!r} is not JSON: {error}", next="ask again with: etl extract"
        ) from error
    if not isinstance(wish, dict):
        raise InvalidFile(
            f"the request {claim.name!r} is not a JSON object", next="ask again with: etl extract"
        )
    return wish


def _sources(app: App, pipeline: str, wish: dict[str, Any]) -> Sequence[Source]:
    """Give the sources a request names, else the configured ones."""
    configured = app.pipeline(pipeline).spec.extract.sources
    if (beat := wish.get("every")) and not wish.get("sources"):
        # named by its key: its path may hold a password, and a request lies about for people to read
        return [source for source in configured if sources.key(source.path) == beat]
    if not wish.get("sources"):
        return configured
    by_path = {source.path: source for source in configured}
    # one that is not configured is only read: nobody said what may be done to it afterwards
    return [by_path.get(str(path)) or Source(path=str(path)) for path in wish["sources"]]


def _is_work(app: App, pipeline: str, one: Found) -> bool:
    done = app.pipeline(pipeline).spec.extract.complete.done
    return not names.never_work(one.given) and names.of_done(done, one.given) is None


def _list_all(
    app: App, pipeline: str, wish: dict[str, Any]
) -> tuple[list[Found], list[tuple[str, EtlError]]]:
    """List every source, oldest file first; one that is not there stops no other."""
    found: list[Found] = []
    refused: list[tuple[str, EtlError]] = []
    wanted = _sources(app, pipeline, wish)
    for source in wanted:
        try:
            found += sources.listed(source, app.config.root)
        except EtlError as error:
            if len(wanted) == 1:
                raise
            refused.append((source.path, error))
    by_url = {one.url: one for one in found}
    return sorted(by_url.values(), key=lambda one: (one.mtime, one.given)), refused


def _copy_all(
    app: App, staging: outbox.Staging, pipeline: str, fresh: Sequence[Found]
) -> list[tuple[Found, EtlError]]:
    """Copy every file with its source note and record; one that cannot be read stops no other."""
    place = Place(pipeline=pipeline, stage=Stage.EXTRACT)
    refused: list[tuple[Found, EtlError]] = []
    ids = names.new_ids(pipeline, time.time_ns() // 1_000_000, len(fresh))
    for one, file_id in zip(fresh, ids, strict=True):
        file = names.christen(one.given, file_id)
        incoming = arrivals.Incoming(given=one.given, file_id=file_id, mtime=one.mtime, origin=one.shown)
        try:
            with sources.opened(one) as stream:
                path = staging.child(place, Status.WORKING, str(file))
                note = arrivals.copy_in(stream, incoming, pipeline, path)
            sources.check_unchanged(one, note.size)
        except EtlError as error:
            staging.drop_child(place, Status.WORKING, str(file))
            refused.append((one, error))
            continue
        staging.add(app.layout.source_note(pipeline, file_id), notes.dump(note))
        record = {"source": one.shown, "size": one.size, "mark": one.mark, "id": file_id, "at": time.time()}
        staging.add(app.layout.pulled(pipeline) / f"{sources.key(one.url)}.json", notes.dump(record))
        app.progress(Progress())
    return refused


def _pulled_before(app: App, pipeline: str, one: Found) -> bool:
    path = app.layout.pulled(pipeline) / f"{sources.key(one.url)}.json"
    try:
        record = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return False
    return (record.get("size", 0), record.get("mark")) == (one.size, one.mark)


def _hold_back(
    app: App,
    claim: Claim,
    staging: outbox.Staging,
    wish: dict[str, Any],
    refused: Sequence[tuple[str, EtlError]],
) -> None:
    """Publish a request for what could not be pulled: waiting for another try where that may help, else failed."""
    if wish.get("every"):  # what may go better the next time is left to the next beat
        refused = [(url, error) for url, error in refused if not isinstance(error, Retryable)]
    if not refused:
        return
    name = str(claim.file.held_back(".json", claim.file.generation))
    again = json.dumps({**wish, "sources": [url for url, _ in refused]}, indent=1).encode()
    if wish.get("every") and _lies_there(app.layout.file(claim.place, Status.FAILED, name), again):
        return  # told by an earlier beat
    retry, tries = app.options(claim.place).retry, claim.note.tries
    waits = tries < retry.times and any(isinstance(error, Retryable) for _, error in refused)
    status = Status.WORKING if waits else Status.FAILED
    with points.effect(Point.STAGE_CHILD):
        staging.child(claim.place, status, name).write_bytes(again)
    reason = Reason(
        summary=f"{len(refused)} of the source files could not be pulled; first: {refused[0][1].summary}",
        impact="these files are missing; all others were pulled",
        next="nothing: it is tried again by itself"
        if waits
        else f"put them right, then move {name} from {claim.place}/failed to {claim.place}/working",
        urgency=Urgency.INFO if waits else Urgency.MORNING,
        where=tuple(Trouble(field=sources.shown(url), cause=str(error)) for url, error in refused),
        cause=refused[0][1].summary,
        attempt=claim.note.attempt,
        about=endings.about(app, claim.place.pipeline),
    )
    staging.add(app.layout.reason(claim.place, name, status), reasons.encode(reason))
    note = notes.FileNote(ended=Status.FAILED, rows=len(refused))
    if waits:  # the tries go on where this request's were
        note = notes.FileNote(
            tries=tries + 1, not_before=time.time() + endings.delay(retry, tries), rows=len(refused)
        )
    staging.add(app.layout.note(claim.place, name), notes.dump(note))


def _lies_there(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() == data
    except FileNotFoundError:
        return False


def _after(app: App, pipeline: str, pulled: Sequence[Found]) -> None:
    """Delete or move what was pulled, if it is still what was pulled; a later pull repeats what was missed."""
    for one in pulled:
        if one.after == "leave" or not _pulled_before(app, pipeline, one):
            continue
        try:
            with points.effect(Point.AFTER):
                sources.finish(one, app.config.root)
        except OSError as error:
            log.warning(
                "%s was pulled but could not be taken away: %s. Check the permissions of its folder; it is not "
                "pulled twice, and the next pull tries again to take it away",
                one.shown,
                error,
                extra={"event": "after_failed"},
            )
