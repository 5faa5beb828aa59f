"""Transform: one file becomes unit files in `load/working`, as a whole or not at all.

Decides whether a file was transformed before and in which generation it is; the rows themselves are
`splitting`'s. A held-back file takes the same road, but has no generations.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from etl import disk
from etl.app import App
from etl.config.reading import PipelineConfig
from etl.config.schema import Read
from etl.errors import ConfigError, EtlError, Final, InvalidFile
from etl.files import archives, expected, names, notes, outbox, reasons
from etl.files.moves import Claim
from etl.formats import unpack
from etl.formats.format import Format, Reading, open_format
from etl.model import Place, Reason, Resolved, Stage, Status
from etl.stages import drift, endings, handlers, leftovers, messages, watching
from etl.stages.publishing import HeldBack, UnitFiles
from etl.stages.schema import UnitSchema
from etl.stages.splitting import Splitter


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """Which life of a file this attempt belongs to, and what decides its output."""

    recipe: str
    generation: int
    #: it was committed before under this very recipe.
    before: bool = False


def work(app: App, claim: Claim) -> Resolved:
    """Split a file into unit files and announce their loads, or raise what is wrong with the file."""
    messages.check(app, claim)
    pipeline = messages.pipeline(app, claim)
    life = _life(pipeline, claim)
    if life.before:
        said = _said_before(app, claim)
        claim.check_unchanged()
        with _staging(app, claim) as staging:
            staging.commit(replace(claim.note, ended=Status.RESOLVED, said=said), app.announce)
        return Resolved(count=0, said=said)
    with _staging(app, claim) as staging:
        with leftovers.none_left(discreet=bool(pipeline.spec.redact)), _under(life):
            splitter = _split(app, pipeline, claim, life, staging)
        note = _note(claim, life, splitter)
        drift.keep(app, claim, splitter.file.name, note.header, staging)
        _explain_held_back(app, claim, splitter, life)
        claim.check_unchanged()
        staging.commit(note, app.announce)
    return Resolved(count=splitter.out.files, held_back=splitter.held.count, said=note.said)


@contextmanager
def _under(life: Life) -> Iterator[None]:
    """Have whatever fails inside say under which recipe it did."""
    try:
        yield
    except EtlError as error:
        error.recipe = life.recipe
        raise


def _staging(app: App, claim: Claim) -> outbox.Staging:
    return outbox.stage(app.layout, claim.place, claim.name, claim.note.attempt)


def _life(pipeline: PipelineConfig, claim: Claim) -> Life:
    """Tell the file's recipe and generation, or raise `Final` when it cannot have another."""
    try:
        recipe = handlers.fingerprint(pipeline, disk.sha256(claim.descriptor))
    except ConfigError as error:
        raise Final(
            error.summary, next=error.next or "mend the configuration, then move the file back"
        ) from error
    note, file = claim.note, claim.file
    if not note.recipe:
        return Life(recipe=recipe, generation=file.generation)
    if note.recipe == recipe and not note.again:
        return Life(recipe=recipe, generation=note.generation, before=True)
    if not file.is_source:
        raise Final(
            f"{file.given!r} was held back from a file, corrected and transformed before; it is already loaded",
            next="to load other values, correct the source file in transform/resolved and move that back",
        )
    return Life(recipe=recipe, generation=note.generation + 1)


def _said_before(app: App, claim: Claim) -> str:
    """Say that this attempt adds no rows, because all of them are there; or else what is missing, and what to do."""
    pipeline, note = claim.place.pipeline, claim.note
    children = [str(claim.file.child(number, note.generation)) for number in range(1, note.children + 1)]
    locations = app.pipeline(pipeline).spec.load.locations
    there = {one: sum(_is_loaded(app, pipeline, one, child) for child in children) for one in locations}
    known = ", ".join(
        f"{count} of {note.children} unit files loaded at {one}" for one, count in there.items()
    )
    missing = [f"{note.children - count} at {one}" for one, count in there.items() if count < note.children]
    if not missing:
        return f"0 rows, all present: transformed before; {known}"
    day = archives.day_of(claim.file.id)
    again = f"; etl replay {day} {pipeline} --again loads all of it anew" if claim.file.is_source else ""
    return f"0 rows, missing unit files: {', '.join(missing)}; transformed before; {known}{again}"


def _is_loaded(app: App, pipeline: str, location: str, child: str) -> bool:
    """Tell by the notes whether a unit file is at a location, be it out of `load` or by a copy of its own."""
    load = Place(pipeline=pipeline, stage=Stage.LOAD)
    return any(
        "units" in notes.read(app.layout, place, child).locations.get(location, {})
        for place in (load, replace(load, location=location))
    )


def _split(app: App, pipeline: PipelineConfig, claim: Claim, life: Life, staging: outbox.Staging) -> Splitter:
    """Read the whole file into the staging folder, or raise when too much of it is wrong."""
    spec = pipeline.spec.transform
    chosen = _format(app, pipeline, claim.file)
    with _reading(app, pipeline, claim, chosen) as reading:
        suffix = claim.file.plain_suffix if chosen.raw_rows else ".jsonl"
        held = HeldBack(staging, str(claim.file.held_back(suffix, life.generation)), reading, chosen.raw_rows)
        out = UnitFiles(
            staging, claim.file, life.recipe, generation=life.generation, per_file=spec.units_per_file
        )
        facts = _facts(app, claim, life)
        told = drift.check(app, claim, facts.name, reading.columns)
        splitter = Splitter(
            spec=spec,
            schema=_schema(pipeline),
            handler=_handler(pipeline),
            file=facts,
            out=out,
            held=held,
            watch=watching.watch(app, claim),
            original_lines=claim.note.lines,
            redact=frozenset(pipeline.spec.redact),
            header=reading.columns or (),
            drift=told,
        )
        try:
            splitter.run(reading, app.progress)
        finally:
            out.close()
            held.close()
    _refuse_other_rows(splitter)
    _refuse_too_much(pipeline, splitter, claim.file)
    if life.generation > 1 and out.files == 0:
        out.write_empty()
    return splitter


def _refuse_other_rows(splitter: Splitter) -> None:
    """Fail a held-back file that has not as many rows as were held back: which of them is which cannot be told."""
    lines = splitter.original_lines
    if lines and len(lines) != splitter.rows:
        told = ", ".join(map(str, lines[:10])) + (", …" if len(lines) > 10 else "")
        raise InvalidFile(
            f"{len(lines):,} rows were held back (lines {told}), and this file has {splitter.rows:,}",
            next="put every row back in its place; a row you give up may stay wrong: it is held back again, in a "
            "file of its own that can be discarded",
        )


def _refuse_too_much(pipeline: PipelineConfig, splitter: Splitter, file: names.FileName) -> None:
    """Fail the whole file when more of it is wrong than the operator allows, or all of it is."""
    bad, rows, policy = splitter.held.count, splitter.rows, pipeline.spec.transform.bad_rows
    if not bad:
        return
    if file.is_held_back:
        # the share is one of the delivery's rows; here the corrected ones go on, however few they are
        if bad < rows:
            return
        limit = "none of them was corrected"
    elif policy.then == "fail":
        limit = "transform.bad_rows says to fail"
    elif bad / rows > policy.at_most:
        limit = f"transform.bad_rows.at_most is {policy.at_most * 100:g}%"
    elif bad == rows:
        limit = "nothing would be left of it"
    else:
        return
    first = splitter.held.troubles[0]
    at = f"line {first.line}" + (f", {first.field}" if first.field else "")
    raise InvalidFile(
        f"{bad:,} of {rows:,} rows are wrong and {limit}; first at {at}: {first.cause}",
        next="correct the file, the schema or the handler, then move the file back to transform/working",
        where=splitter.held.troubles,
    )


def _explain_held_back(app: App, claim: Claim, splitter: Splitter, life: Life) -> None:
    """Publish the reason and the note of the held-back rows together with them."""
    held, place = splitter.held, claim.place
    if not held.count:
        return
    reason = Reason(
        summary=f"{held.count:,} of {splitter.rows:,} rows held back from {claim.file.given!r}",
        impact=f"the other {splitter.rows - held.count:,} rows go on; these are missing until they are corrected",
        next=f"correct the rows in {held.name}, then move it from {place}/failed to {place}/working",
        where=tuple(held.troubles),
        more=held.count - len(held.troubles),
        cause=held.troubles[0].cause,
        attempt=claim.note.attempt,
        recipe=life.recipe,
        about=endings.about(app, place.pipeline),
    )
    held.staging.add(app.layout.reason(place, held.name), reasons.encode(reason))
    note = notes.FileNote(ended=Status.FAILED, rows=held.count, lines=tuple(held.lines))
    held.staging.add(app.layout.note(place, held.name), notes.dump(note))


def _note(claim: Claim, life: Life, splitter: Splitter) -> notes.FileNote:
    return replace(
        claim.note,
        ended=Status.RESOLVED,
        recipe=life.recipe,
        generation=life.generation,
        again=False,
        children=splitter.out.files,
        rows=splitter.rows,
        units=splitter.out.units,
        held_back=splitter.held.count,
        said="",
        header=splitter.header if claim.file.is_source and expected.can_be_kept(splitter.header) else (),
        drift=splitter.drift,
    )


def _format(app: App, pipeline: PipelineConfig, file: names.FileName) -> Format:
    """Give the pipeline's format; a held-back file of a format without lines is JSON lines."""
    try:
        configured = app.format(pipeline.name)
        if file.is_held_back and not configured.raw_rows:
            return open_format(Read(format="jsonl"), pipeline.origin)
    except ConfigError as error:
        raise Final(error.summary, next="mend the configuration, then move the file back") from error
    return configured


@contextmanager
def _reading(app: App, pipeline: PipelineConfig, claim: Claim, chosen: Format) -> Iterator[Reading]:
    """Open what was claimed for reading, unpacked."""
    with os.fdopen(os.dup(claim.descriptor), "rb") as stream:
        stream.seek(0)
        yield chosen.open(unpack.unpack(claim.name, stream, int(pipeline.spec.transform.read.max_unpacked)))


def _schema(pipeline: PipelineConfig) -> UnitSchema:
    try:
        return UnitSchema.compile(pipeline.spec.transform.unit_schema, pipeline.spec.redact)
    except ValueError as error:
        raise Final(f"transform.schema: {error}", next="mend the schema, then move the file back") from error


def _handler(pipeline: PipelineConfig) -> handlers.Handler | None:
    try:
        return handlers.load(pipeline)
    except ConfigError as error:
        raise Final(error.summary, next=error.next or "mend the handler, then move the file back") from error


def _facts(app: App, claim: Claim, life: Life) -> handlers.File:
    source = notes.read_source(app.layout, claim.place.pipeline, claim.file.id)
    return handlers.File(
        pipeline=claim.place.pipeline,
        name=source.given if source else claim.file.given,
        id=claim.file.id,
        generation=life.generation,
        headers=source.headers if source else {},
    )
