"""Following: one thing that follows a verdict is done: a hook, a callback; or a notice is given to people.

Tries once and says what came of it; never raises for what the other side does. When to try again, and that it was
done, is the courier's affair. What happens a second time after a crash carries the same key, id or name as before.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import cached_property
from typing import Any

from etl.app import App
from etl.config.following import Hook
from etl.errors import Away, EtlError, Final, Forbidden
from etl.files import arrivals, callback_key, headers, names, notes, spool
from etl.files.arrivals import Incoming
from etl.files.notes import SourceNote
from etl.files.verdicts import Record
from etl.notify import addresses, answer, mail, post
from etl.notify.answer import Answer
from etl.stages import judging

log = logging.getLogger(__name__)


def logged(said: str) -> None:
    """Say a notice where no mail is configured."""
    log.warning("%s", said, extra={"event": "notice"})


class Follower:
    """Knows the ways to tell somebody."""

    def __init__(
        self, app: App, say: Callable[[str], None] = logged, resolve: addresses.Resolve = addresses.resolve
    ) -> None:
        self._app = app
        self._say = say
        self._resolve = resolve

    def notice(self, item: spool.Item) -> Answer:
        """Give a notice that follows no verdict."""
        told = {name: str(item.payload.get(name, "")) for name in ("subject", "text")}
        return self._tell_people(told["subject"], told["text"], item.name)

    def follow(self, item: spool.Item, record: Record) -> Answer:
        """Do what follows a verdict."""
        source = notes.glance_source(self._app.layout, item.pipeline, item.file_id)
        facts = _facts(item, record, source)
        if item.what == judging.CALLBACK:
            return self._call_back(source.headers.get(judging.CALLBACK, "") if source else "", facts)
        hook = self._hook(item)
        if hook is None:
            return Answer(state=answer.FAILED, said=f"{item.what} is no longer configured")
        if hook.start is not None:
            return self._start(hook.start, item, record, facts)
        if hook.post is not None:
            return self._post(lambda: addresses.trusted(hook.post.get_secret_value()), facts)  # type: ignore[union-attr]
        subject = f"[etl] {item.pipeline}: {facts['name']} is {record.verdict}"
        return self._tell_people(subject, f"{hook.notice}\n\n{_in_words(facts)}", _key(item, record))

    def where(self, item: spool.Item) -> str:
        """Tell apart to whom things go: while one does not answer, the others are told."""
        if item.what != judging.CALLBACK:
            return f"{item.pipeline}/{item.what}"
        source = notes.glance_source(self._app.layout, item.pipeline, item.file_id)
        return headers.shown(source.headers).get(judging.CALLBACK, "") if source else ""

    def _hook(self, item: spool.Item) -> Hook | None:
        event, _, number = item.what.rpartition("-")
        known = self._app.config.pipelines.get(item.pipeline)
        hooks: tuple[Hook, ...] = getattr(known.spec, event, ()) if known else ()
        return hooks[int(number) - 1] if number.isdigit() and 0 < int(number) <= len(hooks) else None

    # --- posts

    def _call_back(self, url: str, facts: dict[str, Any]) -> Answer:
        allow = self._app.config.settings.callbacks.allow
        return self._post(lambda: addresses.allowed(url, allow, self._resolve), facts)

    def _post(self, target: Callable[[], addresses.Target], facts: dict[str, Any]) -> Answer:
        try:
            found = target()
        except Forbidden as error:
            return Answer(state=answer.REFUSED, said=str(error))
        except Away as error:
            return Answer(state=answer.WAITING, said=str(error))
        key = f"{facts['pipeline']}/{facts['id']}/{facts['number']}"
        return self._poster.send(found, json.dumps(facts).encode(), key)

    @cached_property
    def _poster(self) -> post.Poster:
        secret = self._app.config.settings.callbacks.secret
        return post.Poster(
            secret.get_secret_value().encode() if secret else callback_key.read(self._app.layout)
        )

    # --- another pipeline, people

    def _start(self, pipeline: str, item: spool.Item, record: Record, facts: dict[str, Any]) -> Answer:
        """Bring the verdict into another pipeline as a file, under an id that follows from it: once."""
        if pipeline not in self._app.config.pipelines:
            state = answer.WAITING if pipeline in self._app.config.broken else answer.FAILED
            return Answer(
                state=state, said=f"there is no pipeline {pipeline!r} to start (etl check)", target=pipeline
            )
        incoming = Incoming(
            given=f"{item.pipeline}-{item.file_id}-{record.number}.json",
            file_id=names.derived_id(pipeline, int(record.at * 1000), f"{_key(item, record)}/{item.what}"),
            mtime=record.at,
            origin=f"verdict of {item.pipeline}/{item.file_id}",
        )
        try:
            started = arrivals.start(
                self._app.layout, pipeline, incoming, json.dumps([facts]).encode() + b"\n"
            )
        except Final as error:
            return Answer(state=answer.FAILED, said=str(error), target=pipeline)
        except (EtlError, OSError) as error:
            return Answer(state=answer.WAITING, said=str(error), target=pipeline)
        said = f"started as {incoming.file_id}" + ("" if started else ", before")
        return Answer(state=answer.TOLD, said=said, target=pipeline)

    def _tell_people(self, subject: str, text: str, key: str) -> Answer:
        configured = self._app.config.settings.mail
        if configured is None:
            self._say(f"{subject}: {' '.join(text.split())}")
            return Answer(state=answer.TOLD, said="said in the log; no mail is configured", target="log")
        return mail.send(configured, subject, text, key)

    def close(self) -> None:
        """Close what was opened."""
        if "_poster" in self.__dict__:
            self._poster.close()


def _key(item: spool.Item, record: Record) -> str:
    return f"{item.pipeline}/{item.file_id}/{record.number}"


def _facts(item: spool.Item, record: Record, source: SourceNote | None) -> dict[str, Any]:
    return {
        "id": item.file_id,
        "pipeline": item.pipeline,
        "name": names.printable(source.given if source else ""),
        "verdict": record.verdict,
        "number": record.number,
        "rows": record.rows,
        "units": record.units,
        "held_back": record.held_back,
        "loaded": dict(record.loaded),
        "at": record.at,
        "said": record.said,
    }


def _in_words(facts: dict[str, Any]) -> str:
    loaded = ", ".join(f"{units:,} at {name}" for name, units in facts["loaded"].items()) or "nothing"
    said = f" ({facts['said']})" if facts["said"] else ""
    return (
        f"{facts['name']} ({facts['id']}) is {facts['verdict']}{said}: {facts['rows']:,} rows, "
        f"loaded {loaded}, {facts['held_back']:,} held back.\nSee: etl show {facts['id']} --tree"
    )
