"""Checking: tries everything an operator can get wrong before the night does, and says what to do.

Changes nothing but the folders that have to be there anyway. Called by `etl check`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from etl.app import App
from etl.config import expecting
from etl.config.reading import Config, PipelineConfig
from etl.config.wording import near_word
from etl.errors import ConfigError, EtlError
from etl.files import tarring
from etl.files.layout import Layout, places
from etl.model import Status
from etl.notify import examples
from etl.queues.enqueue import InlineAnnouncer
from etl.stages import handlers, notices, sources
from etl.stages.schema import UnitSchema

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was tried; `problem` says what is wrong and what to do, "" that all is well."""

    about: str
    problem: str = ""
    #: what is worth knowing though nothing is wrong.
    hint: str = ""


def check(config: Config) -> Iterator[Finding]:
    """Try configuration, folders, Redis, the ledger and every pipeline."""
    for name, errors in config.broken.items():
        for error in errors:
            yield Finding(about=f"pipeline {name}", problem=str(error))
    yield from _folders(config)
    yield Finding(about="redis", problem=_redis(config))
    yield Finding(about="ledger", problem=_ledger(config))
    if hint := _not_served(config):
        yield Finding(about="queues", hint=hint)
    for doubled in config.doubled_types():
        yield Finding(about="types", problem=f"{doubled}; leave it to one of them")
    yield from _notices(config)
    for name in sorted(config.pipelines):
        yield from _pipeline(config, config.pipelines[name])


def _notices(config: Config) -> Iterator[Finding]:
    """Try an operator's templates, and say whose recipients are written for nothing."""
    for name, problem in notices.renderer(config.folder).problems(examples.facts()):
        yield Finding(
            about=f"template {name}", problem=f"config/templates/{name} {problem}" if problem else ""
        )
    silent = [name for name, one in sorted(config.pipelines.items()) if one.spec.mail]
    if silent and config.settings.mail is None:
        hint = f"{', '.join(silent)} say who hears of them, and settings.yaml has no `mail` to send it with"
        yield Finding(about="mail", hint=hint)


def _folders(config: Config) -> Iterator[Finding]:
    layout = Layout(config.data)
    try:
        for name, pipeline in config.pipelines.items():
            layout.make(name, pipeline.spec.load.locations)
        layout.data_id()
    except OSError as error:
        yield Finding(
            about="data folder",
            problem=f"cannot make {error.filename}: {error.strerror}; give this user the right to write there",
        )
        return
    yield Finding(about="data folder", problem=_one_filesystem(config, layout) or _writable(config, layout))
    yield Finding(about="archive", problem=_archive(config))


def _archive(config: Config) -> str:
    """Archives can be written, on whatever disk, and packed as was asked for."""
    folder = config.archive
    if config.settings.archive is not None and not folder.is_dir():
        return f"the folder {folder} is not there; mount its disk or make it"
    if folder.is_dir() and not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return f"{folder} is not readable and writable for this user; run: chmod g+rwxs {folder}"
    return _tried(lambda: tarring.require(config.settings.archive_format))


def _one_filesystem(config: Config, layout: Layout) -> str:
    """Every move is a rename, which works within one file system only."""
    here = config.data.stat().st_dev
    for folder in _status_folders(config, layout):
        if folder.stat().st_dev != here:
            return (
                f"{folder} lies on another file system than {config.data}; put the whole data folder on one"
            )
    return ""


def _writable(config: Config, layout: Layout) -> str:
    for folder in _status_folders(config, layout):
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            return f"{folder} is not readable and writable for this user; run: chmod g+rwxs {folder}"
    return ""


def _status_folders(config: Config, layout: Layout) -> Iterator[Path]:
    for name, pipeline in config.pipelines.items():
        for place in places(name, pipeline.spec.load.locations):
            yield from (layout.status(place, status) for status in Status)


def _not_served(config: Config) -> str:
    """Say which queues pipelines name and the workers of this host do not serve."""
    served = config.settings.queues
    named = App.open(config, InlineAnnouncer()).queues()
    missing = [queue for queue in named if queue not in served] if served else []
    if not missing:
        return ""
    return (
        f"workers here serve {', '.join(served)}, and pipelines also name {', '.join(missing)}; "
        f"have another host run: etl worker {' '.join(missing)}"
    )


def _redis(config: Config) -> str:
    from etl.queues import connection

    try:
        with connection.connect(config.settings.redis, config.data) as client:
            return "; ".join(connection.findings(client))
    except EtlError as error:
        return str(error)


def _ledger(config: Config) -> str:
    from etl.ledger import opening

    try:
        return opening.problem(config, Layout(config.data).data_id())
    except OSError:
        return ""  # it is the data folder's fault, and said there


def _pipeline(config: Config, pipeline: PipelineConfig) -> Iterator[Finding]:
    app = App.open(config, InlineAnnouncer())
    name, spec = pipeline.name, pipeline.spec
    yield Finding(about=f"{name}: read", problem=_tried(lambda: app.format(name)))
    yield Finding(about=f"{name}: schema", problem=_schema(pipeline))
    if spec.transform.handler:
        yield Finding(about=f"{name}: handler", problem=_tried(lambda: handlers.load(pipeline)))
    for kind, handler in spec.types.items():
        if handler:
            of_type = pipeline.of_type(kind)
            problem = _tried(lambda of_type=of_type: handlers.load(of_type))  # type: ignore[misc]
            yield Finding(about=f"{name}: type {kind}", problem=problem)
    yield from _hooks(config, pipeline)
    yield from _expected(pipeline)
    for source in spec.extract.sources:
        problem = _tried(lambda source=source: sources.listed(source, config.root))  # type: ignore[misc]
        yield Finding(about=f"{name}: source {sources.shown(source.path)}", problem=problem)
    try:
        locations = app.locations(name)
    except EtlError as error:
        yield Finding(about=f"{name}: locations", problem=str(error))
        return
    for location in locations.values():
        yield Finding(about=f"{name}: location {location.name}", problem="; ".join(location.findings()))
        location.close()


def _expected(pipeline: PipelineConfig) -> Iterator[Finding]:
    """Try what is expected: a file of that name must be one that extract accepts."""
    accept = pipeline.spec.extract.accept
    for number, one in enumerate(pipeline.spec.expect):
        hint = ""
        if not any(expecting.can_both_match(one.name, pattern) for pattern in accept):
            said = f"extract.accept refuses every such name; it has: {', '.join(accept)}"
            hint = str(pipeline.origin.error(("expect", number, "name"), said))
        yield Finding(about=f"{pipeline.name}: expects {one.name}", hint=hint)


def _hooks(config: Config, pipeline: PipelineConfig) -> Iterator[Finding]:
    """Try the pipelines that hooks start: each must be there, and none may lead back here without end."""
    for event in ("on_success", "on_failure"):
        for number, hook in enumerate(getattr(pipeline.spec, event)):
            if hook.start is not None:
                problem = _started(config, pipeline.name, hook.start)
                error = pipeline.origin.error((event, number, "start"), problem)
                about = f"{pipeline.name}: {event} starts {hook.start}"
                yield Finding(about=about, problem=str(error) if problem else "")


def _started(config: Config, name: str, started: str) -> str:
    known = sorted({*config.pipelines, *config.broken})
    if started not in known:
        near = near_word(started, known)
        hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(known)}"
        return f"there is no pipeline {started!r}; {hint}"
    reached, wave = set(), {started}
    while wave:
        reached |= wave
        specs = [config.pipelines[one].spec for one in wave if one in config.pipelines]
        hooks = [hook for spec in specs for hook in (*spec.on_success, *spec.on_failure)]
        wave = {hook.start for hook in hooks if hook.start is not None} - reached
    return (
        f"{started!r} leads back to {name!r}: they would start each other for ever" if name in reached else ""
    )


def follow(config: Config, name: str) -> None:
    """Raise ConfigError when a pipeline's format, handler or locations cannot be followed; connects to nothing."""
    pipeline, app = config.pipeline(name), App.open(config, InlineAnnouncer())
    app.format(name)
    for kind in (None, *pipeline.spec.types):
        handlers.load(pipeline.of_type(kind))
    app.locations(name)
    if problem := _schema(pipeline):
        raise ConfigError(problem)


def sound(config: Config) -> Config:
    """Give the configuration for those who keep running: a pipeline whose file cannot be followed waits, alone.

    Its handler is not looked at: handlers are read when they are used, and may be mended meanwhile.
    """
    app, broken = App.open(config, InlineAnnouncer()), dict(config.broken)
    for name, pipeline in config.pipelines.items():
        try:
            app.format(name)
            app.locations(name)
            if problem := _schema(pipeline):
                raise ConfigError(problem)  # noqa: TRY301
        except ConfigError as error:
            broken[name] = (error,)
            log.warning("%s is held, its files wait: %s", name, error, extra={"event": "pipeline_held"})
    kept = {name: one for name, one in config.pipelines.items() if name not in broken}
    return replace(config, pipelines=kept, broken=broken)


def _schema(pipeline: PipelineConfig) -> str:
    try:
        UnitSchema.compile(pipeline.spec.transform.unit_schema, pipeline.spec.redact)
    except ValueError as error:
        return str(pipeline.origin.error(("transform", "schema"), str(error)))
    return ""


def _tried(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except EtlError as error:
        return str(error)
    except OSError as error:
        return (
            f"{error.filename or 'it'} cannot be read: {error.strerror or error}; give this user the right to"
        )
    return ""
