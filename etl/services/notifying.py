"""Notifying: the channels that notices go over, and a test over each of them, now and without the spool.

Changes nothing. Called by `etl notify`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from etl.app import App
from etl.config.reading import Config
from etl.files import spool
from etl.notify import addresses
from etl.notify.answer import Answer
from etl.queues.enqueue import InlineAnnouncer
from etl.stages import following, notices
from etl.stages.following import Follower
from etl.stages.notices import Audience, Notice


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """One way to somebody; `item` is a test for it."""

    #: mail, webhook.
    kind: str
    #: addresses, or the host of the webhook.
    to: str
    pipelines: tuple[str, ...]
    item: spool.Item


def channels(config: Config) -> list[Channel]:
    """Give every channel that is configured, those for everything first."""
    now, found = time.time(), list[Channel]()
    for audience in notices.audiences(config) if config.settings.mail else ():
        mailed, *_ = notices.items(config, _test(config, audience, now), audience.to, now)
        found.append(
            Channel(kind="mail", to=", ".join(audience.to), pipelines=audience.pipelines, item=mailed)
        )
    everything = Audience(to=(), pipelines=tuple(sorted(config.pipelines)), default=True)
    url = config.settings.notices.webhook
    for item in notices.posted(config, _test(config, everything, now), now):
        host = addresses.trusted(url.get_secret_value()).host if url else ""
        found.append(Channel(kind="webhook", to=host, pipelines=everything.pipelines, item=item))
    return found


def _test(config: Config, audience: Audience, now: float) -> Notice:
    title = "a test, nothing to do"
    lead = "This is a test: nothing failed, nothing is lost, and you need not do anything."
    rendered = notices.rendered(config, "test", title, now, lead=lead, pipelines=audience.pipelines)
    return Notice(kind="test", subject=title, rendered=rendered, key=f"test/{now}/{audience.key or 'all'}")


def tried(config: Config, found: list[Channel]) -> Iterator[tuple[Channel, Answer]]:
    """Send the test over each channel once, and give what came of it."""
    app = App.open(config, InlineAnnouncer())
    posts = following.poster(app)
    try:
        follower = Follower(app, posts)
        for channel in found:
            yield channel, follower.notice(channel.item)
    finally:
        posts.close()
