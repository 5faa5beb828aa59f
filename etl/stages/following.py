"""Following: does the one thing that follows a verdict: a callback, a post, a notice, or a file for another pipeline.

Tries once and gives what came of it; never decides when to try again, and records nothing. Called by the courier.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from etl import process
from etl.app import App
from etl.config.following import Hook
from etl.errors import Away, ConfigError, EtlError, Forbidden, TimeUp, Unavailable
from etl.files import arrivals, callback_key, names, notes, room, spool
from etl.files.notes import SourceNote
from etl.files.verdicts import Record
from etl.notify import addresses, answer, mail
from etl.notify.answer import Answer
from etl.notify.post import Poster
from etl.stages import judging

log = logging.getLogger(__name__)

#: seconds that one try may take, however slowly somebody answers.
MOST_SECONDS = 30


def poster(app: App) -> Poster:
    """Give whoever sends posts, with the key that signs them."""
    secret = app.config.settings.callbacks.secret
    return Poster(secret.get_secret_value().encode() if secret else callback_key.read(app.layout))


def story(note: SourceNote, record: Record) -> dict[str, Any]:
    """Give what everybody is told of a verdict."""
    return {
        "id": note.id,
        "pipeline": note.pipeline,
        "name": names.printable(note.given),
        "verdict": record.verdict,
        "number": record.number,
        "rows": record.rows,
        "units": record.units,
        "held_back": record.held_back,
        "loaded": dict(record.loaded),
        "said": record.said,
        "at": datetime.fromtimestamp(record.at, UTC).isoformat(timespec="milliseconds"),
    }


class Follower:
    """Does what follows verdicts, one thing after the other."""

    def __init__(self, app: App, posts: Poster, ask: addresses.Resolve = addresses.resolve) -> None:
        self._app = app
        self._posts = posts
        self._ask = ask

    def target(self, item: spool.Item) -> str:
        """Tell whom an item goes to, as far as that can be away: a host, or `mail`; "" for one of our own."""
        if item.what == spool.NOTICE:
            return "mail"
        try:
            if item.what == judging.CALLBACK:
                return addresses.trusted(self._callback(item)).host
            hook = self._hook(item)
            if hook.post is not None:
                return addresses.trusted(hook.post.get_secret_value()).host
        except EtlError:
            return ""
        return "mail" if hook.notice is not None else ""

    def notice(self, item: spool.Item) -> Answer:
        """Tell people something that follows no verdict."""
        told = {name: str(item.payload.get(name, "")) for name in ("subject", "text")}
        return self._notice(told["subject"], told["text"], f"notice/{item.name.removesuffix('.json')}")

    def follow(self, item: spool.Item, record: Record) -> Answer:
        """Do what follows a verdict, and give what came of it; whatever is in the way is an answer too."""
        try:
            note = notes.read_source(self._app.layout, item.pipeline, item.file_id)
            if note is None:
                return Answer(state=answer.FAILED, said="the source note is gone")
            key = f"{item.pipeline}/{item.file_id}/{item.number}"
            if item.what == judging.CALLBACK:
                return self._call(note, record, key)
            return self._hooked(self._hook(item), note, record, f"{key}/{item.what}")
        except (Forbidden, ConfigError) as error:
            state = answer.REFUSED if isinstance(error, Forbidden) else answer.FAILED
            return Answer(state=state, said=str(error), target=self.target(item))
        except (Away, Unavailable, OSError) as error:
            return Answer(state=answer.WAITING, said=str(error), target=self.target(item))
        except EtlError as error:
            return Answer(state=answer.FAILED, said=str(error), target=self.target(item))

    # --- callbacks and hooks

    def _callback(self, item: spool.Item) -> str:
        note = notes.read_source(self._app.layout, item.pipeline, item.file_id)
        return note.headers.get(judging.CALLBACK, "") if note else ""

    def _hook(self, item: spool.Item) -> Hook:
        event, _, number = item.what.rpartition("-")
        hooks = getattr(self._app.pipeline(item.pipeline).spec, event, ())
        if not number.isdigit() or not 1 <= int(number) <= len(hooks):
            raise ConfigError(f"the pipeline {item.pipeline} no longer has hook {number} of {event}")
        hook: Hook = hooks[int(number) - 1]
        return hook

    def _call(self, note: SourceNote, record: Record, key: str) -> Answer:
        allow = self._app.config.settings.callbacks.allow
        target = addresses.allowed(note.headers.get(judging.CALLBACK, ""), allow, self._ask)
        return _in_time(lambda: self._posts.send(target, _body(story(note, record)), key), target.host)

    def _hooked(self, hook: Hook, note: SourceNote, record: Record, key: str) -> Answer:
        told = story(note, record)
        if hook.start is not None:
            return self._start(hook.start, told, record, key)
        if hook.post is not None:
            target = addresses.trusted(hook.post.get_secret_value())
            return _in_time(lambda: self._posts.send(target, _body(told), key), target.host)
        subject = f"{told['pipeline']}: {told['name']} is {told['verdict']}"
        facts = "\n".join(f"{name}: {value}" for name, value in told.items() if value != "")
        return self._notice(subject, f"{hook.notice}\n\n{facts}", key)

    def _notice(self, subject: str, text: str, key: str) -> Answer:
        settings = self._app.config.settings.mail
        if settings is None:
            log.warning("%s: %s", subject, text.partition("\n")[0], extra={"event": "notice"})
            return Answer(state=answer.TOLD, said="logged: settings.yaml names no `mail`", target="log")
        return _in_time(lambda: mail.send(settings, subject, text, key), "mail")

    def _start(self, pipeline: str, told: Mapping[str, Any], record: Record, key: str) -> Answer:
        """Put a verdict into another pipeline as a file, exactly once: its id and name are derived from `key`."""
        self._app.pipeline(pipeline)  # one that is not configured would never work it
        data = _body(told) + b"\n"
        room.require(self._app.layout, self._app.config.settings.reserve, len(data))
        incoming = arrivals.Incoming(
            given=f"{told['pipeline']}-{told['id']}-{record.number}.json",
            file_id=names.derived_id(pipeline, int(record.at * 1000), key),
            mtime=record.at,
            origin=key,
        )
        waiting = arrivals.start(self._app.layout, pipeline, incoming, data)
        if waiting is not None:
            self._app.announce([waiting])
        return Answer(state=answer.TOLD, said=f"started as {incoming.file_id}", target=pipeline)


def _body(told: Mapping[str, Any]) -> bytes:
    return json.dumps(told).encode()


def _in_time(tried: Callable[[], Answer], target: str) -> Answer:
    """Give up waiting for somebody who answers byte by byte."""
    try:
        with _limit():
            return tried()
    except TimeUp:
        said = f"{target} did not answer in {MOST_SECONDS} seconds"
        return Answer(state=answer.WAITING, said=said, target=target)


@contextmanager
def _limit() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # no signal comes here
        return
    with process.time_limit(MOST_SECONDS):
        yield
