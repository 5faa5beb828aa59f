"""rq-etl: file-driven ETL jobs on RQ and Redis. A file's folder is its status.

Handlers may raise `etl.Retryable` (try this file again later) or `etl.Final` (fail it as a whole); any other
exception holds back the row it was raised for. `etl.publish` puts in a message, `etl.progress` says how far a
handler is.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from etl.errors import Final, Retryable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["Final", "Retryable", "progress", "publish"]


def publish(
    pipeline: str | None,
    body: Any,
    headers: Mapping[str, str] | None = None,
    *,
    name: str | None = None,
    config: Path | str | None = None,
) -> str:
    """Put a message into a pipeline and give its id once all of it is safely on disk, or raise `EtlError`.

    `body` is bytes, text, the `Path` of a file, or any value that JSON can hold. Without a pipeline the header
    `type` chooses it. `config` is the config folder; without, it is found as the command `etl` finds it.
    """
    from etl.services import publishing  # here: handlers import this package, and need none of that

    return publishing.publish(pipeline, body, headers or {}, name=name, config=config)


def progress(done: float, total: float | None = None, text: str = "") -> None:
    """Say how far this job is, for `etl status`: `done` of `total`, and a few words.

    Call it as often as you like: it is shown at most twice a second. Never raises, and outside a job of a worker
    does nothing.
    """
    if "etl.app" in sys.modules:  # else this is no worker, and a handler's own tests need none of that
        from etl import app

        app.board().say(done, total, text)
