"""Reasons: why a file failed, written beside it for people, in the order in which they read.

Only reads, writes and removes `<file>.reason.json`; deciding that a file failed is the stages' business.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from etl import disk
from etl.files.layout import Layout
from etl.model import Place, Reason, Status
from etl.points import Point

#: troubles told one by one in a reason; the rest is counted.
MOST_TROUBLES = 10_000


def encode(reason: Reason) -> bytes:
    """Give a reason as the bytes that are stored, with the time if it has none yet."""
    if not reason.at:
        reason = replace(reason, at=datetime.now(UTC).isoformat(timespec="seconds"))
    facts = reason.as_dict()
    told = facts["where"][:MOST_TROUBLES]
    if more := reason.more + len(facts["where"]) - len(told):
        facts["where"] = [*told, {"cause": f"… and {more} more"}]
    return json.dumps(facts, indent=1, ensure_ascii=True).encode() + b"\n"


def write(layout: Layout, place: Place, name: str, reason: Reason, status: Status = Status.FAILED) -> None:
    """Write a reason where its file lies or is about to lie; an older one is replaced."""
    disk.write(layout.reason(place, name, status), encode(reason), Point.REASON)


def read(layout: Layout, place: Place, name: str, status: Status = Status.FAILED) -> dict[str, Any]:
    """Read a file's reason; {} where there is none or it is damaged: it is only a view."""
    try:
        facts = json.loads(layout.reason(place, name, status).read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def summary(facts: Mapping[str, Any]) -> str:
    """Say in one line why a file failed, from its reason as it was read."""
    return str(facts.get("summary") or "no reason file lies beside it")


def forget(layout: Layout, place: Place, name: str) -> None:
    """Remove the stale reasons of a file that is being tried again."""
    for status in (Status.WORKING, Status.FAILED):
        layout.reason(place, name, status).unlink(missing_ok=True)
