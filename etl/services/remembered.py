"""Remembered: the questions of verbs, answered by the ledger as the folders would answer them.

What the ledger does not keep (whole reasons, notes, what lies in dropped folders) is read from the disk, by name and
never by listing. Changes nothing. Asked by `history`, which imports it only while a recorder lives.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from etl.config.reading import Config
from etl.errors import Unavailable
from etl.files import deliveries, names, notes, survey, walking
from etl.files import layout as layouts
from etl.files.deliveries import Delivery, Piece
from etl.files.layout import Layout
from etl.ledger import opening, queries, rows
from etl.ledger.rows import unspelled
from etl.model import Place, Status
from etl.services import history, sighting

#: seconds after which a folder that rests has been listed, or the ledger is behind.
BEHIND = 30.0
#: deliveries of one page, and of one name.
PAGE = 10_000
_LONGEST_GIVEN = 1000


@contextmanager
def opened(config: Config) -> Iterator[Remembered]:
    """Open the ledger to ask it, or raise `Unavailable`, also where it is behind the folders."""
    tree = Layout(config.data)
    ledger = opening.for_reading(config, tree.data_id())
    try:
        with ledger.reading() as connection:
            asked = Remembered(config, tree, connection)
            asked.require_up_to_date(ledger.where)
            yield asked
    finally:
        ledger.close()


@dataclass(frozen=True, slots=True)
class Remembered:
    """A ledger that is being asked."""

    config: Config
    tree: Layout
    connection: queries.Connection

    def require_up_to_date(self, where: str) -> None:
        """Raise `Unavailable` while a folder that has long rested was not listed since: the recorder catches up."""
        known, now = queries.stamps(self.connection), time.time_ns()
        for place in self._places(sorted(self.config.pipelines)):
            for status in Status:
                try:
                    stamp = self.tree.status(place, status).stat().st_ctime_ns
                except OSError:
                    continue
                if known.get((place, status)) != stamp and now - stamp > BEHIND * 1e9:
                    raise Unavailable(
                        f"the ledger {where} is behind: its recorder is still at {place}/{status}"
                    )

    def counts(self, pipelines: Sequence[str]) -> history.Counts:
        """Count every status folder."""
        found = {(one.place, one.status): one for one in queries.folders(self.connection)}
        return {
            place: {status: self._count(place, status, found.get((place, status))) for status in Status}
            for place in self._places(pipelines)
        }

    def _count(self, place: Place, status: Status, known: rows.Folder | None) -> survey.Count:
        known = known or rows.Folder(place=place, status=status)
        done = history.done_pattern(self.config, place)
        drops = self._drops(place, done) if status is Status.WORKING else []
        return survey.Count(
            files=known.files,
            oldest=known.oldest,
            ignored=known.ignored,
            settling=len(drops),
            not_done=sum(survey.waits_for_done(path, done) for path in drops),
        )

    def _drops(self, place: Place, done: str | None) -> list[Path]:
        folder = self.tree.status(place, Status.WORKING)
        dropped = [_real(folder, name) for name in queries.dropped(self.connection, place)]
        drops = [folder / name for name in dropped if names.parse(place.pipeline, name) is None]
        for below in survey.folders(self.tree, place) if _may_hold_folders(folder) else ():
            drops += survey.inside(below, done)
        return drops

    def arrived(self, pipelines: Sequence[str], since: float) -> list[history.Standing]:
        """Give how the source files stand that came since a moment and of which something lies in a folder."""
        found: list[history.Standing] = []
        for pipeline in pipelines:
            after: rows.Delivery | None = None
            while page := queries.deliveries(
                self.connection, since=since, pipeline=pipeline, after=after, limit=PAGE
            ):
                there = queries.there(self.connection, pipeline, page)
                found += [self._standing(one) for one in page if one.file_id in there]
                after = page[-1]
        return sorted(found, key=lambda one: (one.pipeline, one.id))

    def _standing(self, one: rows.Delivery) -> history.Standing:
        return history.Standing(
            pipeline=one.pipeline,
            name=self._given(one),
            id=one.file_id,
            arrived=one.arrived,
            rows=one.rows,
            units=one.units,
            loaded=dict(one.loaded),
            held_back=one.held_back,
            # counts are made a moment after a file was moved back
            verdict="working" if one.open else one.verdict,
            said=one.said,
        )

    def _given(self, one: rows.Delivery) -> str:
        """Give a name as it was given; the ledger has one with odd bytes in another spelling, and long ones cut."""
        if "\\" not in one.given and len(one.given) < _LONGEST_GIVEN:
            return one.given
        note = notes.glance_source(self.tree, one.pipeline, one.file_id)
        return note.given if note else unspelled(one.given)

    def failed(self, pipelines: Sequence[str]) -> list[tuple[Place, str]]:
        """Give what lies in `failed/`, place by place."""
        order = {place: index for index, place in enumerate(self._places(pipelines))}
        found = [
            (one.place, self._name(one))
            for pipeline in pipelines
            for one in queries.failed(self.connection, pipeline)
        ]
        return sorted((one for one in found if one[0] in order), key=lambda one: (order[one[0]], one[1]))

    def causes(self, pipelines: Sequence[str]) -> list[history.Cause]:
        """Give what files failed of at a place, most first."""
        places, spans = set(self._places(pipelines)), queries.spans(self.connection)
        return [
            history.Cause(
                place=place,
                why=unspelled(cause),
                files=count,
                first=spans.get((place, cause), (0.0, 0.0))[0],
                last=spans.get((place, cause), (0.0, 0.0))[1],
            )
            for place, cause, count in queries.causes(self.connection)
            if place in places
        ]

    def find(self, wanted: str) -> list[Delivery]:
        """Find deliveries of which something lies in a folder."""
        wanted = rows.spelled(wanted)
        known = queries.find(self.connection, wanted, limit=PAGE)
        known = [one for one in known if one.pipeline in self.config.pipelines]
        found = [self._delivery(one) for one in sorted(known, key=lambda one: (one.pipeline, one.file_id))]
        return [one for one in found if one.pieces]

    def _delivery(self, one: rows.Delivery) -> Delivery:
        order = {place: index for index, place in enumerate(self._places([one.pipeline]))}
        pieces = [
            Piece(place=piece.place, status=piece.status, file=file, name=name, note=sighting.note_of(piece))
            for piece in queries.pieces(self.connection, one.pipeline, one.file_id)
            if (file := names.parse(one.pipeline, name := self._name(piece))) and piece.place in order
        ]
        statuses = list(Status)
        pieces.sort(key=lambda piece: (order[piece.place], statuses.index(piece.status), piece.name))
        source = notes.glance_source(self.tree, one.pipeline, one.file_id) or deliveries.unnoted(
            one.pipeline, one.file_id, unspelled(one.given)
        )
        discarded = notes.read_discarded(self.tree, one.pipeline, one.file_id)
        locations = self.config.pipelines[one.pipeline].spec.load.locations
        return walking.whole(self.tree, deliveries.of_pieces(source, pieces, discarded), locations)

    def _name(self, one: rows.File) -> str:
        return _real(self.tree.status(one.place, one.status), one.name)

    def _places(self, pipelines: Sequence[str]) -> list[Place]:
        return [
            place
            for name in pipelines
            for place in layouts.places(name, self.config.pipelines[name].spec.load.locations)
        ]


def _real(folder: Path, name: str) -> str:
    """Give a name as it is on disk, where the ledger's spelling may stand for bytes or for itself."""
    return name if "\\" not in name or os.path.lexists(folder / name) else unspelled(name)


def _may_hold_folders(folder: Path) -> bool:
    """Tell by its number of links whether a folder has folders in it; where a disk does not count these it may."""
    try:
        return folder.stat().st_nlink != 2
    except OSError:
        return False
