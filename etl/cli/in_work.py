"""The table "in work" of `etl status`: how far the jobs are that run now.

Shows what workers tell, of files that lie in `in_process/`; never starts a server. Called by `status`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from etl.cli import common
from etl.config.reading import Config
from etl.errors import EtlError
from etl.files.layout import Layout
from etl.model import Place, Status

#: seconds by which the clock of a disk may be ahead of a worker's.
_CLOCKS_DIFFER = 1.0


def facts(config: Config, places: Iterable[Place]) -> list[dict[str, Any]]:
    """Give how far the files of these places are that are in work, the longest first; none without Redis."""
    from etl.queues import looking, progress

    tree, known = Layout(config.data), {str(place): place for place in places}
    try:
        with looking.opened(config.settings.redis, config.data) as client:
            shown = progress.shown(client, tree.data_id()) if client is not None else {}
    except EtlError:
        return []
    now = time.time()
    return [
        {"place": place, "name": name, **asdict(one), "percent": one.percent, "time_left": one.left(now)}
        for (place, name), one in sorted(shown.items(), key=lambda item: item[1].begun)
        if place in known and _lies(tree, known[place], name, one.at)
    ]


def _lies(tree: Layout, place: Place, name: str, told: float) -> bool:
    """Tell whether a file is in work, and came to that before it was told of: who told it may have been killed."""
    try:
        return tree.file(place, Status.IN_PROCESS, name).stat().st_ctime <= told + _CLOCKS_DIFFER
    except (EtlError, OSError):
        return False


def show(in_work: list[dict[str, Any]]) -> None:
    """Print the table; nothing when nothing is in work."""
    if not in_work:
        return
    heads = ["in work", "%", "rows", "text", "time left"]
    rows = [
        [
            f"{one['place']}/{one['name']}",
            "" if one["percent"] is None else f"{one['percent']:.0f}",
            one["rows"] or "",
            one["text"] or _count(one),
            common.ago(one["time_left"]),
        ]
        for one in in_work
    ]
    common.print_table(heads, rows, right=("%", "rows", "time left"))


def _count(one: dict[str, Any]) -> str:
    """Say how much is done where the whole is not known."""
    return f"{one['done']:,.0f} done" if one["total"] is None and one["done"] else ""
