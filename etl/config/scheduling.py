"""What an operator may write about when something is to run by itself: cron lines with their zone.

Shapes and defaults only, as in `schema`, which puts them in their places.
"""

from __future__ import annotations

from typing import Annotated, Any
from zoneinfo import ZoneInfo, available_timezones

from pydantic import BeforeValidator, Field, field_validator

from etl.config import cron
from etl.config.strict import Strict


class Schedule(Strict):
    """One cron line, and the zone whose clock it speaks of."""

    cron: str
    zone: str = "UTC"

    @field_validator("cron")
    @classmethod
    def _can_be_followed(cls, value: str) -> str:
        cron.parse(value)
        return " ".join(value.split())

    @field_validator("zone")
    @classmethod
    def _zone_exists(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError):
            near = _near(value)
            hint = f"did you mean {near!r}?" if near else "write one such as UTC or Europe/London"
            raise ValueError(f"{value!r} is no time zone; {hint}") from None
        return value


def _near(zone: str) -> str:
    from difflib import get_close_matches

    return next(iter(get_close_matches(zone, sorted(available_timezones()), n=1)), "")


def _line_or_section(value: Any) -> Any:
    return {"cron": value} if isinstance(value, str) else value


def _lines(value: Any) -> Any:
    many = value if isinstance(value, list | tuple) else [value]
    return [_line_or_section(one) for one in many]


def _off(value: Any) -> Any:
    # YAML reads a bare `off` as false, and the environment brings it as text
    return None if value is False or value == "off" else _line_or_section(value)


#: one schedule, or several.
Schedules = Annotated[tuple[Schedule, ...], BeforeValidator(_lines)]
#: a schedule that is on without being written, and can be switched `off`.
SwitchedSchedule = Annotated[Schedule | None, BeforeValidator(_off), Field(validate_default=True)]
