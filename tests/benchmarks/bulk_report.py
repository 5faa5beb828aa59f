"""What `bulk` shows: the ratios and a table of at most 80 columns.

Works on plain values and touches nothing. Called by `bulk`.
"""

from __future__ import annotations

from typing import Any

COPY = "COPY of the raw file"
OURS = "etl run"


def ratios(results: list[dict[str, Any]], rows: int) -> list[dict[str, Any]]:
    """Add rows per second, the share of raw COPY, and how many times as fast `etl run` is."""
    speed = {result["name"]: rows / result["seconds"] for result in results if not result["wrong"]}

    def ratio(one: str, other: str) -> float | None:
        return round(speed[one] / speed[other], 3) if one in speed and other in speed else None

    return [
        {
            **result,
            "rows_per_second": round(speed.get(result["name"], 0)),
            "of_copy": ratio(result["name"], COPY),
            "ours_to_this": ratio(OURS, result["name"]),
        }
        for result in results
    ]


def text(facts: dict[str, Any]) -> str:
    """Give the work, the machine, the versions and the table as people read them."""
    work, machine = facts["work"], facts["machine"]
    lines = [
        "",
        f"{work['rows']:,} rows, {work['bytes'] / 1e6:.1f} MB of CSV, into PostgreSQL; one run each",
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory']}, Python {machine['python']}",
        ", ".join(f"{name} {version}" for name, version in facts["versions"].items()),
        "",
        f"{'':<30}{'seconds':>8}{'inside':>8}{'rows/s':>11}{'x COPY':>8}{'etl : it':>10}",
    ]
    lines += [_line(result) for result in facts["results"]]
    lines += ["", "seconds: the whole process. inside: without its start, where that is 10 % less."]
    lines += [_largest(result) for result in facts["results"] if result["name"] == OURS and result["largest"]]
    return "\n".join(line.rstrip() for line in lines)


def _line(result: dict[str, Any]) -> str:
    if result["wrong"]:
        return f"{result['name']:<30}{result['wrong'][:50]}"
    inside = result["inside"]
    differs = inside is not None and inside < 0.9 * result["seconds"]
    return (
        f"{result['name']:<30}{result['seconds']:>8.2f}{f'{inside:.2f}' if differs else '':>8}"
        f"{result['rows_per_second']:>11,}{_ratio(result['of_copy']):>8}{_ratio(result['ours_to_this']):>10}"
    )


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _largest(result: dict[str, Any]) -> str:
    return f"largest process of {OURS}: {result['resident_mb']:.0f} MB"
