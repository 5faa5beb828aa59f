"""Notices: who hears of which pipeline, and one notice made ready for every channel: a mail, and the webhook.

Rendered when it is spooled, so that an outage delays a notice and changes nothing in it. Sends nothing. Called by
whoever has something to tell: the watch, the stale report, `etl notify`, and what follows a verdict.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from etl.config.reading import Config
from etl.files import spool
from etl.notify import digest, webhook
from etl.notify.rendering import Rendered, Renderer

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """Those who hear of the same pipelines."""

    #: addresses; none where no mail is configured.
    to: tuple[str, ...]
    pipelines: tuple[str, ...]
    #: they also hear of what belongs to no pipeline.
    default: bool

    @property
    def key(self) -> str:
        """What they are known by."""
        return ", ".join(sorted(self.to))


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One notice, ready for every channel."""

    kind: str
    #: without the installation's name.
    subject: str
    rendered: Rendered
    #: makes it this one: its Message-ID and idempotency key.
    key: str
    pipeline: str = ""


def recipients(config: Config, pipeline: str) -> tuple[str, ...]:
    """Give who hears of a pipeline by mail; of none, or one that is not configured, those in settings.yaml."""
    mail = config.settings.mail
    if mail is None:
        return ()
    configured = config.pipelines.get(pipeline)
    own = configured.spec.mail if configured else None
    return tuple(own.to if own else mail.to)


def audiences(config: Config) -> list[Audience]:
    """Give everybody who hears of something, those in settings.yaml first."""
    default = recipients(config, "")
    by_key: dict[tuple[str, ...], list[str]] = {tuple(sorted(default)): []}
    for name in sorted(config.pipelines):
        by_key.setdefault(tuple(sorted(recipients(config, name))), []).append(name)
    return [
        Audience(to=to, pipelines=tuple(names), default=number == 0)
        for number, (to, names) in enumerate(by_key.items())
    ]


@cache
def renderer(folder: Path) -> Renderer:
    """Give whoever renders with the templates of a config folder."""
    return Renderer(folder / "templates")


def rendered(config: Config, kind: str, title: str, now: float, **facts: Any) -> Rendered:
    """Render a notice with what every template is given."""
    site = config.settings.name
    common = {
        "subject": digest.titled(site, title),
        "title": title,
        "site": site,
        "made": digest.moment(now),
        "most_lines": digest.MOST_LINES,
    }
    return renderer(config.folder).render(kind, {**common, **facts})


def items(config: Config, notice: Notice, to: Sequence[str], now: float) -> list[spool.Item]:
    """Give what is to be spooled for a notice; without mail it is only logged when it is its turn."""
    subject = digest.titled(config.settings.name, notice.subject)
    payload = {
        "kind": notice.kind,
        "subject": subject,
        "text": notice.rendered.text,
        "html": notice.rendered.html,
        "to": list(to),
        "key": notice.key,
    }
    mailed = spool.Item(what=spool.NOTICE, pipeline=notice.pipeline, at=now, payload=payload)
    return [mailed, *posted(config, notice, now)]


def posted(config: Config, notice: Notice, now: float) -> list[spool.Item]:
    """Give what is to be spooled for the webhook; nothing where none is configured."""
    if config.settings.notices.webhook is None:
        return []
    subject = digest.titled(config.settings.name, notice.subject)
    payload = {"body": webhook.body(subject, notice.rendered.text), "key": notice.key, "kind": notice.kind}
    return [spool.Item(what=spool.WEBHOOK, pipeline=notice.pipeline, at=now, payload=payload)]


def commands(config: Config, pipeline: str, word: str) -> tuple[str, ...]:
    """Give what to type about a cause; with the configuration named, so that it works in any folder."""
    etl = f"etl --config {shlex.quote(str(config.folder))}"
    return (
        f"{etl} failed {pipeline} --group",
        f"{etl} retry --cause {word} -p {pipeline} --dry-run",
    )


def about(config: Config, pipeline: str) -> Mapping[str, str]:
    """Say who to ask about a pipeline."""
    configured = config.pipelines.get(pipeline)
    told = configured.spec.about.model_dump() if configured else {}
    return {key: str(value) for key, value in told.items() if value}
