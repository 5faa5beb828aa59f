"""The only functions RQ calls. Their dotted paths and arguments are a public contract.

Each works one waiting file and returns a count; how the file ended is told by the folder it lies in, never by
the RQ job's status.
"""

from __future__ import annotations

from collections.abc import Sequence

from etl import app
from etl.errors import Final
from etl.files.layout import REQUESTS
from etl.model import Place, Resolved, Seen, Stage, Waiting
from etl.stages import clean as cleaning
from etl.stages import run


def pull(*, pipeline: str, name: str, seen: Sequence[int] | None = None) -> int:
    """Follow a request for an extract; the count is the number of files pulled."""
    return _work(Place(pipeline=pipeline, stage=Stage.EXTRACT, location=REQUESTS), name, seen)


def extract(*, pipeline: str, name: str, seen: Sequence[int] | None = None) -> int:
    """Accept a file that lies in `extract/working`; the count is the number of transform jobs announced."""
    return _work(Place(pipeline=pipeline, stage=Stage.EXTRACT), name, seen)


def transform(*, pipeline: str, name: str, seen: Sequence[int] | None = None) -> int:
    """Split a file into unit files; the count is the number of load jobs announced."""
    return _work(Place(pipeline=pipeline, stage=Stage.TRANSFORM), name, seen)


def load(*, pipeline: str, name: str, location: str = "", seen: Sequence[int] | None = None) -> int:
    """Load a unit file into every location, or into one; the count is the number of inserts made."""
    return _work(Place(pipeline=pipeline, stage=Stage.LOAD, location=location), name, seen)


def clean() -> int:
    """Archive and remove what has come to rest; the count is the number of archives built."""
    return cleaning.job(app.current())


def _work(place: Place, name: str, seen: Sequence[int] | None) -> int:
    if not all(isinstance(part, str) for part in (place.pipeline, place.location, name)):
        raise Final(
            "a job's pipeline, location and name must be text", next="find out who else writes to this Redis"
        )
    fields = ("inode", "size", "mtime_ns", "ctime_ns")
    facts = Seen(**dict(zip(fields, seen, strict=True))) if seen else None
    outcome = run.perform(app.current(), Waiting(place=place, name=name, seen=facts))
    return outcome.count if isinstance(outcome, Resolved) else 0
