"""Publishing: a body and its headers become a message on disk, and then a job is made for it.

Refuses before anything is written what could only fail later; never works a message itself. Called by
`etl publish` and `etl.publish`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from etl import app as apps
from etl.app import App
from etl.config.reading import Config, PipelineConfig
from etl.config.wording import near_word
from etl.errors import ConfigError, Unavailable
from etl.files import arrivals, headers, names, room, verdicts
from etl.files import layout as layouts
from etl.model import Waiting
from etl.queues import enqueue, looking
from etl.stages import extract

#: bytes of a body that are looked at to name it.
_PEEK = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A message before it is one: where it goes, what it is called, what is said about it."""

    pipeline: str
    given: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


def draft(config: Config, pipeline: str | None, told: Mapping[str, str], given: str) -> Draft:
    """Choose the pipeline and hold name and headers against it, or raise `ConfigError`; nothing is written."""
    stored = headers.read(told)
    chosen = _chosen(config, pipeline, stored.get("type"))
    spec = chosen.spec
    if names.never_work(given) or "/" in given or not names.fits(given):
        raise ConfigError(
            f"{names.printable(given)[:80]!r} is no name for a message: hidden, half-written, or not a file name",
            next="give another with --name",
        )
    if not extract.accepts(spec.extract.accept, given):
        raise ConfigError(
            f"the pipeline {chosen.name} does not accept the name {given!r}",
            next=f"give another with --name; extract.accept has: {', '.join(spec.extract.accept)}",
        )
    return Draft(pipeline=chosen.name, given=given, headers=stored)


def _chosen(config: Config, pipeline: str | None, kind: str | None) -> PipelineConfig:
    if pipeline is None:
        if kind is None:
            raise ConfigError("neither a pipeline nor the header `type` is given", next="give one of them")
        return config.of_type(kind)
    chosen = config.pipeline(pipeline)
    types = chosen.spec.types
    if kind is not None and types and kind not in types:
        near = near_word(kind, list(types))
        hint = f"did you mean {near!r}?" if near else f"it has: {', '.join(types)}"
        raise ConfigError(f"the pipeline {pipeline} has no type {kind!r}; {hint}")
    return chosen


def put(config: Config, message: Draft, body: BinaryIO, size: int = 0) -> Waiting:
    """Write a message, or raise `NoRoom`; when this returns, it survives a power loss (P8)."""
    tree = layouts.Layout(config.data)
    tree.make(message.pipeline, config.pipeline(message.pipeline).spec.load.locations)
    verdicts.since(tree)  # before anything arrives, also where no service has ever run
    room.require(tree, config.settings.reserve, size)
    return arrivals.publish(tree, message.pipeline, body, message.given, message.headers)


def announce(config: Config, message: Draft, waiting: Waiting) -> bool:
    """Have a job made for a message that may be begun; False where nobody runs, and a scan will find it."""
    if headers.not_before(message.headers):
        return True  # the dropbox has heard of it, and has it begun on time
    try:
        with looking.opened(config.settings.redis, config.data) as client:
            if client is None:
                return False
            announcer = enqueue.RedisAnnouncer(client, layouts.Layout(config.data).data_id())
            announcer.announce([App.open(config, announcer).work(waiting)])
    except Unavailable:
        return False
    return True


def publish(
    pipeline: str | None,
    body: Any,
    told: Mapping[str, str],
    *,
    name: str | None,
    config: Path | str | None,
) -> str:
    """Do all of it, for a program, and give the message's id."""
    read = apps.configuration(Path(config) if config else None)
    with opened(body) as (stream, size):
        given = name or (body.name if isinstance(body, Path) else name_of(stream))
        message = draft(read, pipeline, told, given)
        waiting = put(read, message, stream, size)
    announce(read, message, waiting)
    return identity(waiting)


def identity(waiting: Waiting) -> str:
    """Give the id of what was published."""
    file = names.parse(waiting.place.pipeline, waiting.name)
    assert file is not None, "whatever is published carries an id"
    return file.id


@contextmanager
def opened(body: Any) -> Iterator[tuple[BinaryIO, int]]:
    """Open a body for reading and give its size; a value that is no bytes, text or file is written as JSON."""
    if isinstance(body, Path):
        with arrivals.open_outside(body) as stream:
            yield stream, body.stat().st_size
        return
    try:
        data = body if isinstance(body, bytes) else _encoded(body)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"the body is not bytes, text, a path or a JSON value: {error}", next="write it as one of these"
        ) from error
    yield io.BytesIO(data), len(data)


def _encoded(body: Any) -> bytes:
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode()


def name_of(stream: BinaryIO) -> str:
    """Name a body that came without one by how it begins; the stream must be able to go back."""
    begins = stream.read(_PEEK).lstrip()[:1]
    stream.seek(0)
    return "message.json" if begins in (b"{", b"[") else "message.txt"
