"""Cleanings: what is to leave the tree together, written down before anything of it does: `data/.etl/clean/`.

One journal for each pipeline and day that is being cleaned; whoever finds one carries on from where it stands.
Decides nothing and moves nothing. Written by `stages.clean` from what `stages.choosing` chose.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from etl import disk, points
from etl.errors import Final
from etl.files import archives
from etl.files.archives import Member
from etl.files.layout import Layout
from etl.model import Stage
from etl.points import Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """How a file looked when it was chosen; one that looks otherwise is left alone."""

    inode: int
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A file that is to be archived; its member has no hash yet."""

    member: Member
    stamp: Stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The archived file of which another can be made again: its stage, generation and part, whatever its name."""

    stage: Stage
    generation: int = 1
    part: str = ""
    #: the bytes that it must have; "" for any.
    sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regenerable:
    """A file that is removed unarchived once its origin is in a verified archive."""

    path: str
    id: str
    stamp: Stamp
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One archive that is to be built; by its token it is known again."""

    stage: Stage
    token: str
    files: Sequence[Chosen] = ()
    #: paths and ids of notes.
    notes: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """What leaves the tree together: deliveries of one pipeline that came on one day."""

    pipeline: str
    day: str
    archives: Sequence[Planned] = ()
    regenerable: Sequence[Regenerable] = ()
    #: deliveries of which nothing is left then: their notes leave too.
    leaving: Sequence[str] = ()

    @property
    def ids(self) -> set[str]:
        """The deliveries it is about."""
        files = {chosen.member.id for planned in self.archives for chosen in planned.files}
        return files | {one.id for one in self.regenerable} | set(self.leaving)

    @property
    def files(self) -> int:
        """How many files leave."""
        return sum(len(planned.files) for planned in self.archives) + len(self.regenerable)


def stamp(facts: os.stat_result) -> Stamp:
    """Give the stamp of a file."""
    return Stamp(inode=facts.st_ino, size=facts.st_size, mtime_ns=facts.st_mtime_ns)


# --- journals ----------------------------------------------------------------------------------------------


def folder(layout: Layout) -> Path:
    """Where journals lie, beside the lock and the mark of a clean that was asked for."""
    return layout.own / "clean"


def path(layout: Layout, cleaning: Cleaning) -> Path:
    """Where the journal of a cleaning lies."""
    return folder(layout) / f"{cleaning.day}-{cleaning.pipeline}.json"


def write(layout: Layout, cleaning: Cleaning) -> None:
    """Write a journal, durably."""
    facts = asdict(cleaning)
    for planned in facts["archives"]:
        for chosen in planned["files"]:
            chosen["member"]["place"] = "/".join(filter(None, chosen["member"]["place"].values()))
    data = json.dumps(facts).encode() + b"\n"
    disk.make_folder(folder(layout))
    disk.write(path(layout, cleaning), data, Point.CLEAN_PLAN)


def waiting(layout: Layout, pipeline: str) -> list[Path]:
    """Give the journals of a pipeline's cleanings that were cut short."""
    return sorted(folder(layout).glob(f"[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]-{pipeline}.json"))


def read(journal: Path) -> Cleaning:
    """Read a journal, or raise `Final` when it is damaged."""
    try:
        facts = json.loads(journal.read_bytes())
        return Cleaning(
            pipeline=facts["pipeline"],
            day=facts["day"],
            archives=tuple(_planned(facts["pipeline"], one) for one in facts["archives"]),
            regenerable=tuple(map(_regenerable, facts["regenerable"])),
            leaving=tuple(facts["leaving"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Final(
            f"the journal {journal} is damaged: {error}",
            next="remove it: what it was about is still in its folders or in an archive, and is chosen anew",
        ) from error


def end(layout: Layout, cleaning: Cleaning) -> None:
    """Remove the journal of a cleaning that is done, or of which nothing counts yet."""
    with points.effect(Point.CLEAN_END):
        path(layout, cleaning).unlink(missing_ok=True)
        disk.sync_folder(folder(layout))


def _planned(pipeline: str, facts: Mapping[str, Any]) -> Planned:
    files = tuple(
        Chosen(member=archives.read_member(pipeline, one["member"]), stamp=Stamp(**one["stamp"]))
        for one in facts["files"]
    )
    notes = tuple((str(one), str(file_id)) for one, file_id in facts["notes"])
    return Planned(stage=Stage(facts["stage"]), token=facts["token"], files=files, notes=notes)


def _regenerable(facts: Mapping[str, Any]) -> Regenerable:
    origin = Origin(**{**facts["origin"], "stage": Stage(facts["origin"]["stage"])})
    return Regenerable(**{**facts, "stamp": Stamp(**facts["stamp"]), "origin": origin})
