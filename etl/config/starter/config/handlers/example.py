"""Your own code for the pipeline `example`: a row goes in; a unit, a list of units, or None comes out."""

from typing import Any


def to_unit(row: dict[str, Any]) -> dict[str, Any]:
    """Tidy one row."""
    row["name"] = (row.get("name") or "").strip()
    return row
