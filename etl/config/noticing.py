"""What an operator may write about who is told: mails, the webhook, and how often.

Shapes and defaults only, as in `schema`, which puts them in their places.
"""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, field_validator

from etl.config.durations import Duration
from etl.config.strict import Names, Strict


def _addresses(value: tuple[str, ...]) -> tuple[str, ...]:
    for one in value:
        if not re.fullmatch(r"[^\s,;@<>]+@[^\s,;@<>]+", one):
            raise ValueError(f"{one!r} is no address; write one per entry, for example ops@example.com")
    return value


#: at least one address, one or a list of them.
Recipients = Annotated[Names, AfterValidator(_addresses)]


def _site(value: str) -> str:
    if len(value) > 40 or not value.isprintable():
        raise ValueError("write a word or two, at most 40 characters, for example prod")
    return value


#: which installation this is, in the subject of notices.
SiteName = Annotated[str, AfterValidator(_site)]


class Mail(Strict):
    """Where notices go."""

    smtp: SecretStr
    sender: str = Field(alias="from", min_length=3)
    to: Recipients = Field(min_length=1)
    #: whether mails may quote the values of bad fields.
    values: bool = False

    @field_validator("smtp")
    @classmethod
    def _is_a_server(cls, value: SecretStr) -> SecretStr:
        if not re.match(r"smtps?://.", value.get_secret_value()):
            raise ValueError("write a URL that starts with smtp:// or smtps://")
        try:
            readable = urlsplit(value.get_secret_value()).port != 0
        except ValueError:  # its words may hold a part of the password
            readable = False
        if not readable:
            raise ValueError("cannot be read: in a user or password write @ as %40, : as %3A, / as %2F")
        return value


class PipelineMail(Strict):
    """Who hears of one pipeline."""

    to: Recipients = Field(min_length=1)


class Notices(Strict):
    """How often people are told, and where else than by mail."""

    #: at most one digest in so long; every failure is told within it.
    window: Duration = Field(default="15m", gt=0)  # type: ignore[assignment]
    #: a URL that takes Slack-compatible JSON; may carry a token, so it stays out of `repr`.
    webhook: SecretStr | None = None

    @field_validator("webhook")
    @classmethod
    def _is_a_url(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not re.match(r"https?://[^/\s@]+(/\S*)?$", value.get_secret_value()):
            raise ValueError("write a URL that starts with https:// or http://, without a user in it")
        return value
