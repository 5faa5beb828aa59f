"""Lineage of one delivery: the source, each stage, the unit files, the rows at each location, and its verdicts.

Put together from folders and notes, name by name; times and workers of attempts are added where the ledger has them.
Only looks. Called by `etl show --tree`.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from etl.config.reading import Config
from etl.errors import EtlError, Final
from etl.files import acts, headers, notes, reasons, verdicts, walking
from etl.files.acts import Act
from etl.files.deliveries import Delivery, Piece
from etl.files.layout import Layout
from etl.model import Stage, Status

if TYPE_CHECKING:
    from etl.ledger.rows import Attempt

#: unit files that are told one by one where all of them are resolved.
FEW = 12
#: what has left the status folders though its note says that it was resolved.
ARCHIVED = "archived"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One file of a delivery at one place."""

    piece: Piece
    #: a status, or `archived`.
    status: str
    #: since when it lies there.
    since: float | None = None
    reason: Mapping[str, Any] = field(default_factory=dict)
    attempts: Sequence[Attempt] = ()

    def as_dict(self) -> dict[str, Any]:
        """Give the facts of the step; what says nothing is left out."""
        note = self.piece.note
        facts = {
            "place": str(self.piece.place),
            "status": self.status,
            "name": self.piece.name,
            "since": self.since,
            "attempt": note.attempt,
            "recipe": note.recipe,
            "generation": note.generation,
            "unit_files": note.children,
            "rows": note.rows,
            "units": note.units,
            "held_back": note.held_back,
            "said": note.said,
            "locations": {name: dict(told) for name, told in note.locations.items()},
            "reason": dict(self.reason),
            "attempts": [_attempt(one) for one in self.attempts],
        }
        return {key: value for key, value in facts.items() if value or key == "attempt"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """A delivery from its source to the rows it came to."""

    delivery: Delivery
    extract: Sequence[Step]
    #: the source at transform, and what was held back from it.
    transform: Sequence[Step]
    #: unit files that are told one by one, and how many more are resolved.
    load: Sequence[Step]
    folded: int
    verdicts: verdicts.Verdicts
    #: what an operator took out of the road, and why.
    discarded: Mapping[str, str]
    #: what people did to any of it.
    acts: Sequence[Act] = ()
    #: which archives hold files of it, as `left.facts` tells.
    archived: Sequence[Mapping[str, Any]] = ()

    def as_dict(self) -> dict[str, Any]:
        """Give everything as facts for programs."""
        one = self.delivery
        return {
            "source": asdict(one.note) | {"headers": headers.shown(one.note.headers)},
            "verdict": one.verdict,
            "generation": one.generation,
            "rows": one.rows,
            "units": one.units,
            "held_back": one.held_back,
            "loaded": dict(one.loaded),
            "said": one.said,
            "extract": [step.as_dict() for step in self.extract],
            "transform": [step.as_dict() for step in self.transform],
            "load": [step.as_dict() for step in self.load],
            "unit_files_folded": self.folded,
            "discarded": dict(self.discarded),
            "acts": [asdict(act) for act in self.acts],
            "archived": [dict(one) for one in self.archived],
            "verdicts": [asdict(record) for record in self.verdicts.records],
            "followed": {what: asdict(told) for what, told in self.verdicts.followed.items()},
        }


def of(
    layout: Layout,
    pipeline: str,
    file_id: str,
    locations: Iterable[str],
    attempts: Sequence[Attempt] = (),
) -> Lineage | None:
    """Give the lineage of a delivery by its id, or None where nothing of it is there."""
    delivery = walking.find(layout, pipeline, file_id, locations)
    if delivery is None:
        return None
    made = _Steps(layout, attempts)
    by_stage: dict[Stage, list[Piece]] = defaultdict(list)
    for piece in delivery.pieces:
        by_stage[piece.place.stage].append(piece)
    shown, folded = _folded(by_stage[Stage.LOAD])
    discarded = notes.read_discarded(layout, pipeline, file_id)
    return Lineage(
        delivery=delivery,
        extract=made.of(by_stage[Stage.EXTRACT]),
        transform=made.of(by_stage[Stage.TRANSFORM]),
        load=made.of(shown),
        folded=folded,
        verdicts=_verdicts(layout, pipeline, file_id),
        discarded={one: discarded.get(one, "") for one in delivery.discarded},
        acts=acts.of_file(layout, pipeline, file_id),
    )


def attempts(config: Config, pipeline: str, file_id: str) -> list[Attempt]:
    """Give what the ledger has of the attempts at a delivery; none where there is no ledger, or it is away."""
    from etl.ledger import opening, queries  # here: it costs more than all the rest

    try:
        ledger = opening.for_reading(config, Layout(config.data).data_id())
        try:
            with ledger.reading() as connection:
                return queries.attempts(connection, pipeline, file_id)
        finally:
            ledger.close()
    except EtlError:
        return []


class _Steps:
    """Makes steps of pieces: where each lies, why it failed, and who tried it when."""

    def __init__(self, layout: Layout, attempts: Sequence[Attempt]) -> None:
        self._layout = layout
        self._attempts: dict[tuple[Any, str], list[Attempt]] = defaultdict(list)
        for one in sorted(attempts, key=lambda one: one.attempt):
            self._attempts[one.place, one.name].append(one)

    def of(self, pieces: Iterable[Piece]) -> list[Step]:
        """Give the steps of some pieces, in their order."""
        return [self._step(piece) for piece in pieces]

    def _step(self, piece: Piece) -> Step:
        status, since = str(piece.status), None
        try:
            since = os.lstat(self._layout.file(piece.place, piece.status, piece.name)).st_mtime
        except OSError:
            status = ARCHIVED if piece.status is Status.RESOLVED else status
        return Step(
            piece=piece,
            status=status,
            since=since,
            reason=reasons.read(self._layout, piece.place, piece.name, piece.status),
            attempts=self._attempts.get((piece.place, piece.name), ()),
        )


def _folded(pieces: Sequence[Piece]) -> tuple[list[Piece], int]:
    """Give the pieces that are told one by one, and how many unit files are only counted."""
    by_name: dict[str, list[Piece]] = defaultdict(list)
    for piece in pieces:
        by_name[piece.name].append(piece)
    if len(by_name) <= FEW:
        return list(pieces), 0
    open_ = [group for group in by_name.values() if any(one.status is not Status.RESOLVED for one in group)]
    return [piece for group in open_ for piece in group], len(by_name) - len(open_)


def _verdicts(layout: Layout, pipeline: str, file_id: str) -> verdicts.Verdicts:
    try:
        return verdicts.read(layout, pipeline, file_id)
    except Final:  # a view: whoever judges says that the note is damaged
        return verdicts.Verdicts()


def _attempt(one: Attempt) -> dict[str, Any]:
    facts = {
        "attempt": one.attempt,
        "begun": one.begun,
        "ended": one.ended,
        "seconds": one.seconds,
        "worker": one.worker,
        "outcome": one.outcome,
        "count": one.count,
        "said": one.said,
    }
    return {key: value for key, value in facts.items() if value is not None and value != ""}
