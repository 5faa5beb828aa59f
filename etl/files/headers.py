"""Headers: what a producer says about a message beside its body, made plain once, when it is published.

Reads and words only: durations become times, times carry their zone. Touches no disk. Called by whoever publishes,
and by whoever acts on what a source note holds.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final as Constant
from urllib.parse import urlsplit

from etl.config import durations
from etl.config.wording import near_word
from etl.errors import ConfigError
from etl.files import names

#: header -> what it decides. Every other name is free and only handed on to the handler.
KNOWN: Constant = {
    "type": "the pipeline and the handler, as `types:` of a pipeline says",
    "priority": "high, normal or low, among all that waits",
    "delay": "how long to wait before it is begun; kept as not_before",
    "not_before": "when it may be begun",
    "expires": "until when it must have been begun",
    "callback": "the URL that is told the verdict",
    "key": "messages of one key are worked one after the other",
}
PRIORITIES = ("high", "normal", "low")
#: bytes of one value; how many headers a message may have.
LONGEST, MOST = 4096, 64
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")


def read(given: Mapping[str, str], now: float | None = None) -> dict[str, str]:
    """Give the headers as they are stored, or raise `ConfigError` saying what to write instead."""
    now = time.time() if now is None else now
    if len(given) > MOST:
        raise ConfigError(f"a message has at most {MOST} headers, not {len(given)}")
    for name, value in given.items():
        _check(name, value)
    told = dict(given)
    if "delay" in told:
        if "not_before" in told:
            raise ConfigError("delay and not_before say the same", next="give one of them")
        told["not_before"] = _written(now + _duration("delay", told.pop("delay")))
    elif "not_before" in told:
        told["not_before"] = _written(_moment("not_before", told["not_before"]))
    if "expires" in told:
        told["expires"] = _written(_until(told["expires"], now))
    _agree(told, now)
    return told


def _check(name: object, value: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            f"{str(name)[:80]!r} is not a header's name",
            next="use lower-case letters, digits, _ and -, a letter first",
        )
    if not isinstance(value, str) or not value.isprintable() or len(value.encode()) > LONGEST:
        raise ConfigError(
            f"the value of the header {name!r} is not one line of text of at most {LONGEST:,} bytes",
            next="put what is longer into the body",
        )
    if name in KNOWN and not value.strip():
        raise ConfigError(f"the header {name!r} is empty", next="give it a value, or leave it out")


def _agree(told: Mapping[str, str], now: float) -> None:
    """Refuse what could only ever end badly."""
    if told.get("priority", "normal") not in PRIORITIES:
        near = near_word(told["priority"], PRIORITIES)
        raise ConfigError(
            f"{told['priority']!r} is not a priority" + (f"; did you mean {near!r}?" if near else ""),
            next=f"write {', '.join(PRIORITIES)}",
        )
    if "expires" in told and expires(told) <= max(now, not_before(told)):
        what = "it may begin" if not_before(told) > now else "it is published"
        raise ConfigError(f"the message expires at {told['expires']}, before {what}", next="give it longer")
    if "callback" in told and not _is_url(told["callback"]):
        raise ConfigError(
            "the header 'callback' is not a URL that can be called",
            next="write it with its scheme and host, for example https://hooks.example.com/etl",
        )


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _duration(name: str, text: str) -> float:
    try:
        return durations.seconds(text)
    except ValueError as error:
        raise ConfigError(f"the header {name!r}: {error}") from error


def _until(text: str, now: float) -> float:
    """Read `expires`: how long from now, or a time."""
    try:
        return now + durations.seconds(text)
    except ValueError:
        return _moment("expires", text, "a duration such as 15m, or ")


def _moment(name: str, text: str, also: str = "") -> float:
    """Read a time; one without a zone is refused, since nobody knows which of two hours it means."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        what = "has no time zone" if moment else "is not a time"
        raise ConfigError(
            f"the header {name!r}: {text[:80]!r} {what}",
            next=f"write {also}a time with its zone, for example 2026-11-18T07:30:00+01:00",
        )
    return moment.timestamp()


def _written(moment: float) -> str:
    try:
        return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError) as error:
        raise ConfigError("a header names a time beyond the calendar", next="choose a nearer one") from error


# --- what stored headers say --------------------------------------------------------------------------------


def not_before(headers: Mapping[str, str]) -> float:
    """Tell when a message may be begun, seconds since 1970; 0 for at once."""
    return _stored(headers, "not_before")


def expires(headers: Mapping[str, str]) -> float:
    """Tell until when a message must have been begun, seconds since 1970; 0 for never."""
    return _stored(headers, "expires")


def _stored(headers: Mapping[str, str], name: str) -> float:
    try:
        return datetime.fromisoformat(headers[name]).timestamp() if name in headers else 0.0
    except ValueError:  # a note that somebody edited: as good as not said
        return 0.0


def shown(headers: Mapping[str, str]) -> dict[str, str]:
    """Give the headers as people may see them: of a callback the host alone, since its path may be a secret."""
    told = dict(headers)
    if "callback" in told:
        try:
            told["callback"] = urlsplit(told["callback"]).hostname or "?"
        except ValueError:
            told["callback"] = "?"
    return {name: names.printable(value) for name, value in told.items()}
