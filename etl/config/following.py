"""What an operator may write about what follows a verdict, and about work that nobody serves.

Shapes and defaults only, as in `schema`, which puts them in their places.
"""

from __future__ import annotations

import re

from pydantic import Field, SecretStr, field_validator, model_validator

from etl.config.durations import Duration
from etl.config.strict import Names, Strict


class Hook(Strict):
    """One thing that follows a verdict; exactly one of the keys is written."""

    #: the pipeline that gets the verdict as a file.
    start: str | None = None
    #: the URL that the verdict is posted to; may carry a token, so it stays out of `repr`.
    post: SecretStr | None = None
    #: what people are told.
    notice: str | None = None

    @model_validator(mode="after")
    def _is_one_thing(self) -> Hook:
        if sum(one is not None for one in (self.start, self.post, self.notice)) != 1:
            raise ValueError("write one of start: PIPELINE, post: URL, notice: TEXT")
        if self.post is not None and not re.match(r"https?://[^/\s@]+(/\S*)?$", self.post.get_secret_value()):
            raise ValueError("post: write a URL that starts with https:// or http://, without a user in it")
        return self


class Callbacks(Strict):
    """Which URLs of producers are called, and how they know that it was us."""

    #: hosts that may be called: `hooks.example.com`, `*.example.com`, `http://10.0.0.7:8080`.
    allow: Names = ()
    #: the key of the signature; without, one that is made in the data folder.
    secret: SecretStr | None = None

    @field_validator("allow")
    @classmethod
    def _entries_are_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for entry in value:
            if not re.fullmatch(r"(https?://)?([\w.*?-]+|\[[0-9a-f:.]+\])(:\d{1,5})?", entry):
                raise ValueError(f"{entry!r} is no host; write hooks.example.com or http://10.0.0.7:8080")
        return tuple(entry.lower() for entry in value)


class CatchAll(Strict):
    """What happens to work whose queue no worker serves."""

    every: Duration = Field(default="10s", gt=0)  # type: ignore[assignment]
    #: checks that find no worker before one is started.
    max_checks: int = Field(default=3, ge=1)
    #: workers that may be started for queues nobody serves, all queues together.
    max_workers: int = Field(default=1, ge=0, le=64)
    #: how long such a worker waits for more before it ends.
    idle: Duration = "60s"  # type: ignore[assignment]
