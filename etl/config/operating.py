"""What an operator may write about who looks on: the dashboard, and whoever is told that everything is alive.

Shapes and defaults only, as in `schema`, which puts them in their places.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, SecretStr, field_validator

from etl.config.durations import Duration
from etl.config.strict import Names, Strict

#: characters of a password at least.
SHORTEST = 8


class Dashboard(Strict):
    """Where the dashboard is, and who gets in."""

    at: str = "127.0.0.1:9181"
    #: the password of the user `etl`; without, one that is made in the data folder.
    password: SecretStr | None = None
    #: names under which it may be asked for, besides those of this machine.
    hosts: Names = ()

    @field_validator("password")
    @classmethod
    def _is_no_word_to_be_guessed(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value()) < SHORTEST:
            raise ValueError(
                f"is too short; write at least {SHORTEST} characters, or remove the key and one is made"
            )
        return value

    @field_validator("at")
    @classmethod
    def _is_host_and_port(cls, value: str) -> str:
        if not re.fullmatch(r"[\w.:\[\]-]+:\d{1,5}", value) or int(value.rpartition(":")[2]) > 65535:
            raise ValueError(f"{value!r} is not host:port; write for example 127.0.0.1:9181, or off")
        return value


def _dashboard(value: Any) -> Any:
    # YAML reads a bare `off` as false, and the environment brings it as text
    if value is False or value == "off":
        return None
    return {"at": value} if isinstance(value, str) else value


class Heartbeat(Strict):
    """Who hears, as long as everything runs, that it does."""

    #: may carry a token, so it stays out of `repr`.
    url: SecretStr
    every: Duration = Field(default="60s", ge=1)  # type: ignore[assignment]

    @field_validator("url")
    @classmethod
    def _is_a_url(cls, value: SecretStr) -> SecretStr:
        if not re.match(r"https?://[^/\s@]+(/\S*)?$", value.get_secret_value()):
            raise ValueError("write a URL that starts with https:// or http://, without a user in it")
        return value


def _heartbeat(value: Any) -> Any:
    return {"url": value} if isinstance(value, str) else value


SwitchedDashboard = Annotated[Dashboard | None, BeforeValidator(_dashboard)]
UrlOrHeartbeat = Annotated[Heartbeat | None, BeforeValidator(_heartbeat)]
