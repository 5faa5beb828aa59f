"""Comparing: which names of which status folders the ledger may have wrong, found by the folders' own stamps.

A folder that looks as it did when it was last listed is skipped. Names that differ are only named: where they lie is
looked up one by one. Changes nothing. Called by the recorder.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from etl.app import App
from etl.files import survey
from etl.ledger import queries
from etl.ledger.opening import Ledger
from etl.ledger.rows import Address, Folder, spelled
from etl.model import Place, Status

#: nanoseconds for which a folder must have rested before its stamp is trusted: two changes may share one.
RESTED = 2_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One folder that changed: how it was listed, and the names to look at; by their real spelling."""

    folder: Folder
    names: tuple[str, ...]


def changed(app: App, ledger: Ledger) -> Iterator[Difference]:
    """List the folders that do not look as the ledger remembers them, one after the other."""
    with ledger.reading() as connection:
        known = queries.stamps(connection)
    for pipeline in app.config.pipelines:
        for place in app.places(pipeline):
            for status in Status:
                stamp = _stamp(app, place, status)
                if not stamp or known.get((place, status), 0) != stamp:
                    yield _difference(app, ledger, place, status)


def _stamp(app: App, place: Place, status: Status) -> int:
    """Give when something in a folder was last renamed, made or removed; 0 for a folder that is not there."""
    with suppress(OSError):
        # not the mtime, which a restored backup or a person may set back
        return app.layout.status(place, status).stat().st_ctime_ns
    return 0


def _difference(app: App, ledger: Ledger, place: Place, status: Status) -> Difference:
    stamp = _stamp(app, place, status)  # before it is listed: what changes meanwhile changes it again
    rested = time.time_ns() - stamp > RESTED
    done = survey.done_pattern(place, app.pipeline(place.pipeline).spec.extract.complete.done)
    listed, ignored = survey.dated(app.layout, place, status, done)
    with ledger.reading() as connection:
        known = queries.names_in(connection, place, status)
    here = {spelled(name): name for name in listed}
    differ = [name for key, name in here.items() if known.get(key) != listed[name]]
    differ += [name for name in known if name not in here]
    folder = Folder(place=place, status=status, stamp=stamp if rested else 0, ignored=ignored)
    return Difference(folder=folder, names=tuple(differ))


def unconfigured(app: App, ledger: Ledger) -> set[Place]:
    """Give the places the ledger knows and the configuration does not; those of held pipelines are not among them."""
    with ledger.reading() as connection:
        known = {place for place, _ in queries.stamps(connection)}
    places = {place for pipeline in app.config.pipelines for place in app.places(pipeline)}
    return {place for place in known - places if place.pipeline not in app.config.broken}


def addresses(difference: Difference) -> list[Address]:
    """Give where to look."""
    return [(difference.folder.place, name) for name in difference.names]
