"""How a delivery is told: what is where, and its facts. Shared by verbs that look, so it imports little."""

from __future__ import annotations

from etl.files.deliveries import Delivery
from etl.services.history import Standing


def loaded(one: Delivery | Standing) -> str:
    """Say how many units are at each location: one number where they agree."""
    counts = set(one.loaded.values())
    if len(counts) <= 1:
        return f"{counts.pop():,}" if counts else "0"
    return " ".join(f"{name} {count:,}" for name, count in one.loaded.items())


def summary(one: Delivery) -> dict[str, object]:
    """Give a delivery as facts."""
    return {
        "name": one.note.given,
        "id": one.note.id,
        "arrived": one.note.arrived,
        "rows": one.rows,
        "units": one.units,
        "loaded": dict(one.loaded),
        "held_back": one.held_back,
        "verdict": one.verdict,
        "said": one.said,
    }
