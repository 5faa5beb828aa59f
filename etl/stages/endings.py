"""What is said when a file does not end well: reasons out of errors, and how long to wait before another try.

Words and arithmetic only; moving the file is `run`'s business.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from etl.app import App
from etl.config.schema import Retry
from etl.errors import EtlError, Refused
from etl.files.layout import REQUESTS
from etl.model import Place, Reason, Trouble, Urgency

_NOT_SHOWN = "not shown: the pipeline redacts fields"


def delay(retry: Retry, tries: int) -> float:
    """Give the seconds to wait after `tries` earlier tries: doubling from `first`, never above `most`."""
    return float(min(retry.most, retry.first * 2 ** min(tries, 30)))


def reason(app: App, place: Place, error: EtlError) -> Reason:
    """Give the reason for an error of ours."""
    return Reason(
        summary=error.summary,
        impact=impact(place),
        urgency=Urgency.MORNING,
        next=error.next or _move_back(place),
        where=error.where,
        cause=_behind(error),
        recipe=error.recipe,
        about=about(app, place.pipeline),
    )


def discreet(app: App, pipeline: str, location: str, error: EtlError) -> EtlError:
    """Give a location's answer as it may be told: a pipeline that redacts fields hears no values out of it."""
    if not (isinstance(error, Refused) and error.where and _redacts(app, pipeline)):
        return error
    return Refused(
        f"{location} refuses the units ({_NOT_SHOWN})",
        next=error.next,
        where=shown(app, pipeline, error.where),
    )


def shown(app: App, pipeline: str, troubles: Sequence[Trouble]) -> tuple[Trouble, ...]:
    """Keep a location's messages, which quote values, out of the reasons of a pipeline that redacts fields."""
    if not _redacts(app, pipeline):
        return tuple(troubles)
    return tuple(
        replace(one, cause=f"refused by the location (its message is {_NOT_SHOWN})") for one in troubles
    )


def _redacts(app: App, pipeline: str) -> bool:
    return bool(app.pipeline(pipeline).spec.redact)


def _behind(error: EtlError) -> str:
    """Say what lay behind an error, in one line: what follows in a database's message is statements and rows."""
    cause = error.__cause__
    if cause is None:
        return type(error).__name__
    first, *_ = str(cause).splitlines() or [""]
    return f"{type(cause).__name__}: {first}".removesuffix(": ")


def unexpected(app: App, place: Place, error: Exception) -> Reason:
    """Give the reason for what nobody foresaw."""
    at = traceback.extract_tb(error.__traceback__)[-1]
    said = _NOT_SHOWN if _redacts(app, place.pipeline) else error
    return Reason(
        summary=f"unexpected {type(error).__name__} in {place}",
        impact=impact(place),
        next=f"see the cause and the worker's log; when it is mended, {_move_back(place)}",
        cause=f"{type(error).__name__}: {said} ({Path(at.filename).name}:{at.lineno})",
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
