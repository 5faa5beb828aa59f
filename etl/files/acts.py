"""Acts: what people did to files by a command, who and when; lines that are only ever added, one file per month.

Written before the act is done, in `data/.etl/acts/`, so that nothing is done without a trace; what was not done
after all gets a line that says so. Moves nothing. Called by whoever retries, discards or pauses, and by views.
"""

from __future__ import annotations

import getpass
import json
import os
import pwd
import secrets
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from etl import disk
from etl.files import names
from etl.files.layout import Layout
from etl.points import Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One thing that somebody did, or one part of it where many files are moved."""

    #: retry, discard, pause, resume: the verb.
    what: str
    who: str
    #: seconds since 1970.
    at: float
    because: str = ""
    #: what it is about where that is no file: a pipeline, or one stage of it.
    about: str = ""
    #: each as `place/name`.
    files: tuple[str, ...] = ()
    #: these files were not moved after all; a line of its own, under the id of the act.
    undone: bool = False
    id: str = field(default_factory=lambda: secrets.token_hex(6))

    def __str__(self) -> str:
        when = datetime.fromtimestamp(self.at).isoformat(" ", "seconds")
        because = f": {names.printable(self.because)}" if self.because else ""
        return f"{when} {self.what} by {names.printable(self.who)}{because}"


def login() -> str:
    """Say which person calls this program, as far as their session tells; behind `sudo` the one who called it."""
    try:
        return names.printable(os.environ.get("SUDO_USER") or getpass.getuser())
    except (KeyError, OSError):  # a container's user often has no name
        return f"user {os.getuid()}"


def who() -> str:
    """Say who calls this program: login name and host, and whose account is used where that is another's."""
    try:
        account = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        account = f"user {os.getuid()}"
    person = login()
    used = f" (as {account})" if person != account else ""
    return names.printable(f"{person}@{socket.gethostname()}{used}")


def one_line(because: str) -> str:
    """Give what a person wrote as one line that can be shown anywhere: in logs, in mails, on a terminal."""
    return names.printable(" ".join(because.split()))


def folder(layout: Layout) -> Path:
    """Where all of them lie."""
    return layout.own / "acts"


def record(layout: Layout, act: Act) -> None:
    """Keep an act, durably: call it before the act is done."""
    disk.make_folder(folder(layout))
    month = datetime.fromtimestamp(act.at, UTC).strftime("%Y-%m")
    facts = {key: value for key, value in asdict(act).items() if value}
    disk.append(folder(layout) / f"{month}.jsonl", json.dumps(facts).encode() + b"\n", Point.ACT)


def read(layout: Layout, since: float = 0.0) -> list[Act]:
    """Give the acts from a moment on, oldest first, without what was not done after all."""
    return _done(act for act in _lines(layout, since) if act.at >= since)


def of_file(layout: Layout, pipeline: str, file_id: str) -> list[Act]:
    """Give the acts on any file of one delivery, oldest first, each with these files alone."""
    own = f"~{file_id}"
    begun = names.milliseconds(file_id) / 1000 - 1
    found = (
        replace(act, files=tuple(one for one in act.files if own in one and one.startswith(f"{pipeline}/")))
        for act in _lines(layout, begun, own)
    )
    return _done(act for act in found if act.files)


def _done(lines: Iterable[Act]) -> list[Act]:
    """Take what was not done off each act; one of which nothing is left is none."""
    known: list[Act] = []
    undone: dict[str, set[str]] = {}
    for act in lines:
        if act.undone:
            undone.setdefault(act.id, set()).update(act.files)
        else:
            known.append(act)
    kept = [
        replace(act, files=tuple(one for one in act.files if one not in undone.get(act.id, ())))
        for act in known
    ]
    return sorted((act for act in kept if act.files or act.about), key=lambda act: act.at)


def _lines(layout: Layout, since: float, holding: str = "") -> Iterator[Act]:
    """Give every line from the month of a moment on; what cannot be read is passed over."""
    first, wanted = datetime.fromtimestamp(since, UTC).strftime("%Y-%m"), holding.encode()
    for path in sorted(folder(layout).glob("*.jsonl")):
        if path.stem < first:
            continue
        with path.open("rb") as lines:
            for line in lines:
                if wanted in line:
                    with suppress(ValueError, TypeError, AttributeError):
                        yield _build(json.loads(line))


def _build(facts: Mapping[str, Any]) -> Act:
    known = {one.name for one in fields(Act)}
    kept = {key: value for key, value in facts.items() if key in known}
    return Act(**kept | {"files": tuple(kept.get("files", ()))})
