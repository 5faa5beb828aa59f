"""Following: does the one thing that follows a verdict: a callback, a post, a notice, or a file for another pipeline.

Tries once and gives what came of it; never decides when to try again, and records nothing. Called by the courier.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from etl import process
from etl.app import App
from etl.config.following import Hook
from etl.errors import Away, ConfigError, EtlError, Forbidden, TimeUp, Unavailable
from etl.files import arrivals, callback_key, names, notes, room, spool
from etl.files.notes import SourceNote
from etl.files.verdicts import Record
from etl.notify import addresses, answer, digest, mail
from etl.notify.answer import Answer
from etl.notify.mail import Letter
from etl.notify.post import Poster
from etl.stages import judging, notices

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """A text for people that nobody has rendered yet."""

    subject: str
    text: str
    key: str
    facts: Mapping[str, str] = field(default_factory=dict)


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
            if item.what == spool.WEBHOOK:
                return addresses.trusted(self._webhook()).host
            if item.what == judging.CALLBACK:
                return addresses.trusted(self._callback(item)).host
            hook = self._hook(item)
            if hook.post is not None:
                return addresses.trusted(hook.post.get_secret_value()).host
        except EtlError:
            return ""
        return "mail" if hook.notice is not None else ""

    def notice(self, item: spool.Item) -> Answer:
        """Tell people something that follows no verdict, by mail or over the webhook."""
        try:
            return self._posted(item) if item.what == spool.WEBHOOK else self._noticed(item)
        except EtlError as error:
            return Answer(state=answer.FAILED, said=str(error))
        except OSError as error:
            return Answer(state=answer.WAITING, said=str(error))

    def _posted(self, item: spool.Item) -> Answer:
        target = addresses.trusted(self._webhook())
        body, key = _body(item.payload.get("body", {})), str(item.payload.get("key", ""))
        return _in_time(lambda: self._posts.send(target, body, key), target.host)

    def _noticed(self, item: spool.Item) -> Answer:
        told = item.payload
        subject, text = str(told.get("subject", "")), str(told.get("text", ""))
        if "html" not in told:
            key = f"notice/{item.name.removesuffix('.json')}"
            return self._plain(item, Plain(subject=subject, text=text, key=key))
        to, html = tuple(map(str, told.get("to", ()))), str(told["html"])
        letter = Letter(to=to, subject=subject, text=text, html=html, key=str(told.get("key", "")))
        return self._mailed(letter)

    def follow(self, item: spool.Item, record: Record) -> Answer:
        """Do what follows a verdict, and give what came of it; whatever is in the way is an answer too."""
        try:
            note = notes.read_source(self._app.layout, item.pipeline, item.file_id)
            if note is None:
                return Answer(state=answer.FAILED, said="the source note is gone")
            key = f"{item.pipeline}/{item.file_id}/{item.number}"
            if item.what == judging.CALLBACK:
                return self._call(note, record, key)
            return self._hooked(item, note, record, f"{key}/{item.what}")
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

    def _hooked(self, item: spool.Item, note: SourceNote, record: Record, key: str) -> Answer:
        hook, told = self._hook(item), story(note, record)
        if hook.start is not None:
            return self._start(hook.start, told, record, key)
        if hook.post is not None:
            target = addresses.trusted(hook.post.get_secret_value())
            return _in_time(lambda: self._posts.send(target, _body(told), key), target.host)
        subject = f"{told['pipeline']}: {told['name']} is {told['verdict']}"
        facts = {name: str(value) for name, value in told.items() if value != ""}
        return self._plain(item, Plain(subject=subject, text=str(hook.notice), facts=facts, key=key))

    def _webhook(self) -> str:
        url = self._app.config.settings.notices.webhook
        if url is None:
            raise ConfigError("settings.yaml no longer names notices.webhook")
        return url.get_secret_value()

    def _plain(self, item: spool.Item, plain: Plain) -> Answer:
        """Mail a text as it is; the webhook gets it by way of the spool, put there with the first try."""
        config = self._app.config
        rendered = notices.rendered(
            config, "notice", plain.subject, item.at, text=plain.text, facts=dict(plain.facts)
        )
        one = notices.Notice(
            kind="notice", subject=plain.subject, rendered=rendered, key=plain.key, pipeline=item.pipeline
        )
        for other in notices.posted(config, one, item.at) if item.tries == 0 else ():
            spool.put(self._app.layout, other)
        letter = Letter(
            to=notices.recipients(config, item.pipeline),
            subject=digest.titled(config.settings.name, plain.subject),
            text=rendered.text,
            html=rendered.html,
            key=plain.key,
        )
        return self._mailed(letter)

    def _mailed(self, letter: Letter) -> Answer:
        settings = self._app.config.settings.mail
        if settings is None:
            first = letter.text.partition("\n")[0]
            log.warning("%s: %s", letter.subject, first, extra={"event": "notice"})
            return Answer(state=answer.TOLD, said="logged: settings.yaml names no `mail`", target="log")
        to = letter.to or tuple(settings.to)  # spooled while there was no mail
        return _in_time(lambda: mail.send(settings, replace(letter, to=to)), "mail")

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
