"""Duplicates: whether a file has the bytes of the newest delivery of its given name, and what follows from that.

Asks the index on disk and the folders, never the ledger. Called by extract, which commits what is decided here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from etl.app import App
from etl.errors import AwaitsOlder, InvalidFile
from etl.files import names, newest
from etl.files.moves import Claim
from etl.files.outbox import Staging
from etl.model import Status


@dataclass(frozen=True, slots=True)
class Judge:
    """Decides about one file, with the entry of its name locked."""

    app: App
    claim: Claim
    entry: newest.Entry | None
    rule: str

    def same(self, digest: str) -> str:
        """Say of which delivery this one is a duplicate that is not loaded; "" when it goes on.

        Raise `InvalidFile` where duplicates fail, and `AwaitsOlder` while an older delivery could still come between.
        """
        known = self.entry.read() if self.entry else None
        own = self.claim.file.id
        # what passed before, or is the newest itself, is moved back or replayed: never a duplicate of itself
        passed = bool(self.claim.note.recipe)
        if self.rule == "load" or not known or passed or known.id == own or known.sha256 != digest:
            return ""
        assert self.entry is not None, "asked above"
        if between := self.entry.older(own, digest):
            if (
                f"/{Status.FAILED}/" in between
            ):  # it may be moved back: loaded twice is better than the wrong one last
                return ""
            self.entry.wait()
            raise AwaitsOlder(f"{names.printable(self.claim.name)!r} waits until {between} has passed")
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(names.milliseconds(known.id) / 1000))
        said = f"the same bytes as {names.printable(known.given)} delivered {when} ({known.id})"
        if self.rule == "fail":
            raise InvalidFile(
                f"a duplicate: {said}",
                next="discard it; or, to load it all the same, write `duplicates: load` and move it back",
            )
        return said

    def passes(self, staging: Staging, digest: str) -> None:
        """Have it recorded, together with the commit, that this delivery is the newest; not of an older one."""
        known = self.entry.read() if self.entry else None
        own = self.claim.file.id
        if self.entry and (known is None or known.id <= own):
            staging.add(*self.entry.record(newest.Newest(id=own, sha256=digest, given=self.entry.given)))

    def done(self) -> None:
        """Announce those that waited for this one."""
        if self.entry:
            self.entry.tidy()
            self.app.announce(self.entry.waiting())


@contextmanager
def judging(app: App, claim: Claim, given: str) -> Iterator[Judge]:
    """Judge one file with the entry of its given name locked, where duplicates are or ever were looked for."""
    pipeline = claim.place.pipeline
    rule = app.pipeline(pipeline).spec.extract.duplicates
    if rule == "load" and not newest.is_kept(app.layout, pipeline):
        yield Judge(app, claim, None, rule)
        return
    entry = newest.Entry(app.layout, pipeline, given)
    with entry.alone():
        yield Judge(app, claim, entry, rule)
