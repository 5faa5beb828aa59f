"""Pauses: why a place begins nothing just now. Asked before a file is claimed and before one is announced.

Looks at the disk and the folders only and moves nothing: what waits goes on waiting where it lies, and goes on
by itself when the cause has passed.
"""

from __future__ import annotations

import shutil

from etl.app import App
from etl.model import Place


def why(app: App, place: Place) -> str:
    """Say why no file of a place may be claimed now; "" when nothing is in the way."""
    return no_room(app)


def due(app: App, place: Place) -> float | None:
    """Give when one file of a paused place may be tried, seconds since 1970; None: when the pause is over."""
    return None


def no_room(app: App) -> str:
    """Say that less disk is free than the operator wants to keep; "" when there is room (P24)."""
    reserve, free = app.config.settings.reserve, shutil.disk_usage(app.layout.data).free
    if free >= reserve:
        return ""
    return (
        f"only {free / 1e6:,.0f} MB are free in {app.layout.data}, less than the reserve of {reserve / 1e6:,.0f} MB; "
        "make room, and everything goes on by itself"
    )
