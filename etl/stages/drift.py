"""Drift: how the header of an expected file differs from that of the delivery before it, and what follows.

Judged by the fields that columns become, so that a new name which `transform.columns` knows is no drift. Publishes
nothing itself. Called by transform, before the first row and with its commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from fnmatch import fnmatchcase

from etl.app import App
from etl.config.expecting import Expectation
from etl.errors import InvalidFile
from etl.files import expected, names
from etl.files.expected import Header
from etl.files.moves import Claim
from etl.files.outbox import Staging
from etl.model import Trouble
from etl.stages import columns

#: columns that are named one by one in a sentence.
_FEW = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How one header differs from another; columns by their names in the file."""

    added: Sequence[str] = ()
    missing: Sequence[str] = ()
    #: old and new name of what stands in one place.
    renamed: Sequence[tuple[str, str]] = ()
    reordered: bool = False

    @property
    def serious(self) -> bool:
        """Tell what may put values into the wrong place, or leave them out."""
        return bool(self.missing or self.renamed or self.reordered)

    def __str__(self) -> str:
        return "; ".join(self._sentences())

    def _sentences(self) -> Iterator[str]:
        for old, new in self.renamed[:_FEW]:
            yield f"column {old!r} is now called {new!r}"
        if len(self.renamed) > _FEW:
            yield f"{len(self.renamed) - _FEW:,} more columns have other names"
        if self.missing:
            yield f"missing: {_listed(self.missing)}"
        if self.reordered:
            yield "the columns are in another order"
        if self.added:
            yield f"added: {_listed(self.added)}"


def _listed(found: Sequence[str]) -> str:
    more = f" and {len(found) - _FEW:,} more" if len(found) > _FEW else ""
    return ", ".join(map(repr, found[:_FEW])) + more


def compare(before: Sequence[tuple[str, str]], now: Sequence[tuple[str, str]]) -> Difference:
    """Say how headers differ, each a list of fields with the column's name in the file."""
    old, new = dict(before), dict(now)
    renamed = []
    matcher = SequenceMatcher(None, list(old), list(new), autojunk=False)
    for what, left, left_end, right, right_end in matcher.get_opcodes():
        if what == "replace":
            pairs = zip(list(old)[left:left_end], list(new)[right:right_end], strict=False)
            renamed += [(one, other) for one, other in pairs if one not in new and other not in old]
    from_old, to_new = {one for one, _ in renamed}, {other for _, other in renamed}
    return Difference(
        added=[new[one] for one in new if one not in old and one not in to_new],
        missing=[old[one] for one in old if one not in new and one not in from_old],
        renamed=[(old[one], new[other]) for one, other in renamed],
        reordered=[one for one in old if one in new] != [one for one in new if one in old],
    )


def expectations(app: App, pipeline: str, given: str) -> list[Expectation]:
    """Give what is expected under a name."""
    return [one for one in app.pipeline(pipeline).spec.expect if fnmatchcase(given, one.name)]


def check(app: App, claim: Claim, given: str, header: tuple[str, ...] | None) -> str:
    """Say how the header differs from that of the last delivery; "" where it does not, or nothing is known of it.

    Raise `InvalidFile` where that is serious and `drift: fail` is configured.
    """
    told = ""
    # what passed before is moved back or replayed: it is held against nothing
    passed = bool(claim.note.recipe) or not claim.file.is_source
    if header is None or passed or not expected.can_be_kept(header):
        return told
    pipeline, spec = claim.place.pipeline, app.pipeline(claim.place.pipeline).spec.transform
    for one in expectations(app, pipeline, given):
        last = expected.before(expected.read_headers(app.layout, pipeline, one.key), claim.file.id)
        if last is None:
            continue
        found = compare(columns.fields(last.columns, spec), columns.fields(header, spec))
        if found.serious and one.drift == "fail":
            raise InvalidFile(
                f"the header is not that of the last delivery, {names.printable(last.given)!r}: {found}",
                next="if the sender means it, add the new names to transform.columns, or write `drift: warn` "
                "until this file is through; then move it back",
                where=[Trouble(cause=f"header: {found}")],
            )
        told = told or str(found)
    return told


def keep(app: App, claim: Claim, given: str, header: tuple[str, ...], staging: Staging) -> None:
    """Have the header of what is expected kept together with the commit."""
    if not header or not claim.file.is_source:
        return
    pipeline = claim.place.pipeline
    for one in expectations(app, pipeline, given):
        kept = Header(id=claim.file.id, given=given, columns=header)
        staging.add(*expected.headers_file(app.layout, pipeline, one.key, kept))
