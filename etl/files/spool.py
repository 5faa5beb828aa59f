"""The spool: small files in `data/.etl/spool/`, each one thing that is still to be told to somebody.

Names are derived from what is told, so that the same thing is never spooled twice. Sends nothing. Filled by whoever
judges or has a notice; emptied by the courier.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from etl import disk, points
from etl.errors import Final
from etl.files.layout import Layout
from etl.points import Point

#: what follows no verdict: a mail to people, and the same for the operator's webhook.
NOTICE, WEBHOOK = "notice", "webhook"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing to tell: about which verdict, when, and how often it was tried."""

    #: callback, `on_success-1`, `on_failure-2`, …; `notice` or `webhook` for one that follows no verdict.
    what: str
    pipeline: str = ""
    file_id: str = ""
    number: int = 0
    tries: int = 0
    #: when it was spooled, and before when it is not tried, seconds since 1970.
    at: float = 0.0
    not_before: float = 0.0
    payload: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_notice(self) -> bool:
        """Tell what follows no verdict."""
        return self.what in (NOTICE, WEBHOOK)

    @property
    def name(self) -> str:
        """The name of its file: the same for the same thing."""
        if self.is_notice:
            told = json.dumps(dict(self.payload), sort_keys=True)
            return f"{self.what}~{hashlib.sha256(told.encode()).hexdigest()[:16]}.json"
        return f"{self.pipeline}~{self.file_id}~{self.number}~{self.what}.json"


def folder(layout: Layout) -> Path:
    """Where all of them lie."""
    return layout.own / "spool"


def facts(item: Item) -> dict[str, Any]:
    """Give an item as JSON has it."""
    return asdict(item)


def put(layout: Layout, item: Item) -> None:
    """Spool one thing durably, in place of an older file of that name."""
    disk.make_folder(folder(layout))
    data = json.dumps(facts(item), indent=1).encode() + b"\n"
    disk.write(folder(layout) / item.name, data, Point.SPOOL)


def notice(layout: Layout, kind: str, subject: str, text: str, pipeline: str = "") -> bool:
    """Spool a notice for people; False when the very same is spooled already."""
    payload = {"kind": kind, "subject": subject, "text": text, "pipeline": pipeline}
    item = Item(what=NOTICE, pipeline=pipeline, at=time.time(), payload=payload)
    if (folder(layout) / item.name).exists():
        return False
    put(layout, item)
    return True


def waiting(layout: Layout) -> Iterator[Path]:
    """Give the files that are spooled, oldest name first."""
    with suppress(FileNotFoundError):
        for path in sorted(folder(layout).iterdir()):
            if path.suffix == ".json" and not path.name.startswith("."):
                yield path


def of(layout: Layout, pipeline: str, file_id: str) -> list[Path]:
    """Give the files that are spooled about one delivery."""
    return sorted(folder(layout).glob(f"{pipeline}~{file_id}~*.json"))


def take(path: Path) -> tuple[Item, disk.Lock] | None:
    """Lock one spooled file and read it; None when another has it or it is gone, `Final` when it is damaged.

    Its lock lasts until the file is written anew or removed, so that two couriers never tell the same.
    """
    try:
        lock = disk.lock_regular(path)
    except OSError:
        return None
    if lock is None:
        return None
    try:
        if disk.same_file(path, lock.descriptor):
            known = {one.name for one in fields(Item)}
            written = json.loads(path.read_bytes())
            return Item(**{key: value for key, value in written.items() if key in known}), lock
    except OSError:
        pass
    except (ValueError, TypeError, AttributeError) as error:
        lock.release()
        raise Final(
            f"the spooled file {path} is damaged: {error}",
            next=f"nobody is told what it says; move {path.name} out of the folder",
        ) from error
    lock.release()
    return None


def remove(path: Path) -> None:
    """Take away what has been told."""
    with points.effect(Point.FOLLOW):
        path.unlink(missing_ok=True)
