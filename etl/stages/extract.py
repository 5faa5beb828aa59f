"""Extract, second half: a file in `extract/working` is accepted and copied on to transform.

Checks the name as given against `accept` and copies what was claimed, hashed while reading. Never looks into
the content.
"""

from __future__ import annotations

import os
from dataclasses import replace
from fnmatch import fnmatchcase

from etl import disk, points
from etl.app import App
from etl.errors import InvalidFile
from etl.files import arrivals, names, notes, outbox, room
from etl.files.moves import Claim
from etl.model import Place, Resolved, Stage, Status
from etl.points import Point
from etl.stages import duplicates, messages


def accepts(patterns: tuple[str, ...], given: str) -> bool:
    """Tell whether a given name matches one of the patterns, upper and lower case told apart."""
    return any(fnmatchcase(given, pattern) for pattern in patterns)


def _given(claim: Claim, source: notes.SourceNote | None) -> str:
    """Give the name as it was given; one that a person has changed since is given anew."""
    if source and names.christen(source.given, source.id).given == claim.file.given:
        return source.given
    return claim.file.given


def work(app: App, claim: Claim) -> Resolved:
    """Pass a file on to transform, or raise `InvalidFile` when its name is not one we accept."""
    pipeline = claim.place.pipeline
    patterns = app.pipeline(pipeline).spec.extract.accept
    source = notes.read_source(app.layout, pipeline, claim.file.id)
    given = _given(claim, source)
    messages.check(app, claim)
    if source and not source.origin:
        _use_up_done_file(app, claim, source.given)
    if not accepts(patterns, given):
        raise InvalidFile(
            f"the name {given!r} is not accepted by {pipeline}",
            next=f"add a pattern to extract.accept, which has: {', '.join(patterns)}, and move the file back; or "
            "discard it and drop it again under another name",
        )
    room.require(app.layout, app.config.settings.reserve, claim.seen.size)
    target = Place(pipeline=pipeline, stage=Stage.TRANSFORM)
    with outbox.stage(app.layout, claim.place, claim.name, claim.note.attempt) as staging:
        path = staging.child(target, Status.WORKING, claim.name)
        with points.effect(Point.STAGE_CHILD), os.fdopen(os.dup(claim.descriptor), "rb") as stream:
            stream.seek(0)
            digest = disk.copy(stream, path)
        with duplicates.judging(app, claim, given) as judge:
            note = _passed(claim, digest, judge.same(digest))
            if note.said:
                staging.drop_child(target, Status.WORKING, claim.name)
            else:
                judge.passes(staging, digest)
            claim.check_unchanged()
            staging.commit(note, app.announce)
            judge.done()
    return Resolved(count=0 if note.said else 1, said=note.said)


def _passed(claim: Claim, digest: str, duplicate: str) -> notes.FileNote:
    """Give the note of a file that passes; where it is not handed on, it says why."""
    resolved = replace(claim.note, ended=Status.RESOLVED)
    if duplicate:
        return replace(resolved, said=duplicate)
    if claim.note.recipe == digest:
        return replace(resolved, said="extracted before, the same bytes")
    return replace(resolved, recipe=digest, children=1, said="")


def _use_up_done_file(app: App, claim: Claim, given: str) -> None:
    """Remove the done-file of a drop that is ours: what has an id needs none, whatever happens to it from here on."""
    pattern = app.pipeline(claim.place.pipeline).spec.extract.complete.done
    if pattern is not None:
        folder = app.layout.status(claim.place, Status.WORKING)
        arrivals.use_up(folder, given, pattern, claim.seen.ctime_ns)
