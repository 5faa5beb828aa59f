"""What an operator may write about what becomes of files at rest: when they are archived, removed, called stale.

Shapes and defaults only, as in `schema`, which puts them in their place.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from etl.config.durations import Duration
from etl.config.strict import Strict, one_or_many


class Stale(Strict):
    """How long a file may lie in a status before people are told."""

    working: Duration = Field(default="1d", gt=0)  # type: ignore[assignment]
    in_process: Duration = Field(default="1d", gt=0)  # type: ignore[assignment]
    failed: Duration = Field(default="1d", gt=0)  # type: ignore[assignment]


Stages = Annotated[tuple[Literal["extract", "transform", "load"], ...], BeforeValidator(one_or_many)]


class Clean(Strict):
    """What becomes of files that lie in `resolved/`, and which others are stale."""

    #: how long a file rests in `resolved/` before it is taken.
    archive_after: Duration = "1d"  # type: ignore[assignment]
    #: how long files that can be made again are kept; without, until their delivery is resolved.
    keep: Duration | None = None
    #: stages whose files are archived even where they can be made again; extract's always are.
    archive: Stages = ("extract",)
    #: how long an archive is kept; without, for ever.
    expire_archives_after: Duration | None = Field(default=None, gt=0)
    stale_after: Stale = Stale()
