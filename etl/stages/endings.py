"""What is said when a file does not end well: reasons out of errors, and how long to wait before another try.

Words and arithmetic only; moving the file is `run`'s business.
"""

from __future__ import annotations

import traceback
from pathlib import Path

from etl.app import App
from etl.config.schema import Retry
from etl.errors import EtlError
from etl.files.layout import REQUESTS
from etl.model import Place, Reason, Urgency


def delay(retry: Retry, tries: int) -> float:
    """Give the seconds to wait after `tries` earlier tries: doubling from `first`, never above `most`."""
    return float(min(retry.most, retry.first * 2 ** min(tries, 30)))


def reason(app: App, place: Place, error: EtlError) -> Reason:
    """Give the reason for an error of ours."""
    cause = error.__cause__
    return Reason(
        summary=error.summary,
        impact=impact(place),
        urgency=Urgency.MORNING,
        next=error.next or _move_back(place),
        where=error.where,
        cause=f"{type(cause).__name__}: {cause}" if cause else type(error).__name__,
        about=about(app, place.pipeline),
    )


def unexpected(app: App, place: Place, error: Exception) -> Reason:
    """Give the reason for what nobody foresaw."""
    at = traceback.extract_tb(error.__traceback__)[-1]
    return Reason(
        summary=f"unexpected {type(error).__name__} in {place}",
        impact=impact(place),
        next=f"see the cause and the worker's log; when it is mended, {_move_back(place)}",
        cause=f"{type(error).__name__}: {error} ({Path(at.filename).name}:{at.lineno})",
        about=about(app, place.pipeline),
    )


def timeout(app: App, place: Place, told: str) -> Reason:
    """Give the reason for a job that took too long."""
    limit = app.options(place).timeout
    return Reason(
        summary=f"it took longer than the {limit:g} s that {place.stage}.timeout allows",
        impact=impact(place),
        next=f"raise `timeout` under `{place.stage}:` or make the work shorter, then {_move_back(place)}",
        cause=told,
        about=about(app, place.pipeline),
    )


def impact(place: Place) -> str:
    """Say what it means that a file failed here."""
    if place.location == REQUESTS:
        return "nothing was pulled by this request"
    if place.location:
        return f"its units are missing at {place.location}; other locations are not affected"
    return "nothing of this file was passed on"


def _move_back(place: Place) -> str:
    return f"put it right, then move the file from {place}/failed to {place}/working"


def about(app: App, pipeline: str) -> dict[str, str]:
    """Say who to ask about a pipeline."""
    told = app.pipeline(pipeline).spec.about
    return {key: value for key, value in told.model_dump().items() if value}
