"""Quantities with their unit: how long, how large, which share of the rows.

A number without a unit is refused, so nobody has to guess what `30` means.
Used by the configuration models, and by the command line through `seconds`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator

#: seconds per unit.
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
#: bytes per unit; decimal, as disks are sold and `df -H` counts.
_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
#: the number of digits is limited, so no quantity can become infinite.
_QUANTITY = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*([A-Za-z%]*)\s*", re.ASCII)


def seconds(text: str) -> float:
    """Read a duration such as 500ms, 30s or 1d as seconds, or raise ValueError saying how to write one."""
    return _quantity(text, _SECONDS, "a duration; write a number with ms, s, m, h or d, for example 30s")


def size(text: str) -> int:
    """Read a size such as 512KB or 1GB as bytes, or raise ValueError saying how to write one."""
    written = text.upper() if isinstance(text, str) else text
    return int(
        _quantity(written, _BYTES, "a size; write a number with B, KB, MB, GB or TB, for example 20MB")
    )


def share(text: str) -> float:
    """Read a percentage such as 0.5% as a number from 0 to 1, or raise ValueError saying how to write one."""
    wanted = "a share; write a percentage from 0% to 100%, for example 1%"
    value = _quantity(text, {"%": 0.01}, wanted)
    if value > 1:
        raise ValueError(f"{text!r} is not {wanted}")
    return value


def _quantity(text: Any, units: Mapping[str, float], wanted: str) -> float:
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    if match and match[2] in units:
        return float(match[1]) * units[match[2]]
    bare = isinstance(text, int | float) or (match is not None and not match[2])
    complaint = "has no unit and is not" if bare and not isinstance(text, bool) else "is not"
    raise ValueError(f"{text!r} {complaint} {wanted}")


Duration = Annotated[float, BeforeValidator(seconds)]
Size = Annotated[int, BeforeValidator(size)]
Share = Annotated[float, BeforeValidator(share)]
