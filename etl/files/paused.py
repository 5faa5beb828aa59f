"""Paused: the mark of a pipeline or a stage that an operator paused, `.paused.json` in its folder.

Only made, read and removed here; nothing is moved and nobody is stopped. Written by `etl pause`, `resume` and
`drain`, read by `pauses`.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass

from etl import disk, points
from etl.files.layout import Layout
from etl.model import Place, Stage
from etl.points import Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Who paused a pipeline, or one stage of it, since when, and why."""

    pipeline: str
    #: "" for all of them.
    stage: str = ""
    who: str
    #: seconds since 1970.
    since: float
    because: str = ""

    @property
    def target(self) -> str:
        """Give what is paused, as an operator writes it."""
        return "/".join(filter(None, (self.pipeline, self.stage)))

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        why = f" ({self.because})" if self.because else ""
        return f"by {self.who} since {since}{why}; go on with: etl resume {self.target}"


def read(layout: Layout, pipeline: str, stage: Stage | None = None) -> Mark | None:
    """Give the mark of a pipeline, or of one stage; None while it is not paused."""
    path = layout.paused(pipeline, stage)
    try:
        facts = json.loads(path.read_bytes())
        return Mark(
            pipeline=pipeline,
            stage=stage or "",
            **{key: facts[key] for key in ("who", "since", "because")},
        )
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError):  # written by hand, or cut short: paused all the same
        with suppress(FileNotFoundError):
            return Mark(pipeline=pipeline, stage=stage or "", who="somebody", since=path.stat().st_mtime)
        return None


def of_place(layout: Layout, place: Place) -> Mark | None:
    """Give the mark that pauses a place: its pipeline's, or its stage's."""
    return read(layout, place.pipeline) or read(layout, place.pipeline, place.stage)


def of_pipeline(layout: Layout, pipeline: str) -> list[Mark]:
    """Give every mark of a pipeline, its own first."""
    marks = [read(layout, pipeline), *(read(layout, pipeline, stage) for stage in Stage)]
    return [mark for mark in marks if mark is not None]


def write(layout: Layout, mark: Mark) -> bool:
    """Pause; False when it is paused already, and who paused it first goes on being named."""
    path = layout.paused(mark.pipeline, Stage(mark.stage) if mark.stage else None)
    if path.exists():
        return False
    facts = {key: value for key, value in asdict(mark).items() if key not in ("pipeline", "stage")}
    disk.write(path, json.dumps(facts, indent=1).encode() + b"\n", Point.MARK_PAUSED)
    return True


def clear(layout: Layout, pipeline: str, stage: Stage | None = None) -> Mark | None:
    """Take the mark away and give it; None when there is none."""
    known, path = read(layout, pipeline, stage), layout.paused(pipeline, stage)
    with points.effect(Point.MARK_RESUMED):
        path.unlink(missing_ok=True)
    if known:
        disk.sync_folder(path.parent)
    return known
