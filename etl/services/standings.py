"""Standings: how deliveries stand that were touched; their verdicts are asked for, and copied into the ledger.

Decides nothing: `stages.judging` gives verdicts and keeps them on disk, so that a ledger made anew fires no hook.
Called by the recorder after every batch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from etl.app import App
from etl.errors import EtlError, Final
from etl.files import deliveries, names, notes, verdicts, walking
from etl.ledger import queries, writes
from etl.ledger.opening import Ledger
from etl.ledger.rows import Delivered, Delivery, File, FollowUp, Verdict
from etl.services import sighting
from etl.stages import judging

log = logging.getLogger(__name__)

#: seconds until a delivery that goes on, or whose verdict is not clear yet, is looked at again: at first, at most.
SOON, LATE = 1.0, 60.0
#: deliveries that are looked at between two batches.
MOST = 500


class Standings:
    """Keeps the rows of deliveries in step with their files and verdicts."""

    def __init__(self, app: App, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._clock = clock
        #: when a delivery is looked at again, and how long it was left alone last.
        self._later: dict[Delivered, tuple[float, float]] = {}

    def turn(self, ledger: Ledger) -> int:
        """Bring touched deliveries up to date, and give how many were."""
        with ledger.reading() as connection:
            touched = queries.touched(connection, MOST + len(self._later))
        now = self._clock()
        due = [one for one in touched if self._later.get(_key(one), (0.0, 0.0))[0] <= now][:MOST]
        found = [standing for one in due if (standing := self._standing(ledger, one)) is not None]
        if found:
            with ledger.writing() as connection:
                writes.stand(connection, found)
        return len(found)

    def _standing(self, ledger: Ledger, known: Delivery) -> writes.Standing | None:
        begun = self._clock()
        config = self._app.config
        if known.pipeline not in {*config.pipelines, *config.broken}:
            return writes.Standing(delivery=replace(known, judged=True))  # nobody will ever judge it
        try:
            if not known.open:
                judging.judge(self._app, known.pipeline, known.file_id)
            told = verdicts.read(self._app.layout, known.pipeline, known.file_id)
        except (EtlError, OSError) as error:
            log.warning("%s: not judged: %s", known.pipeline, error, extra={"event": "not_judged"})
            self._put_off(known, LATE)
            return None
        with ledger.reading() as connection:
            files = queries.pieces(connection, known.pipeline, known.file_id)
        standing = _standing(self._app, known, files, told)
        if standing.delivery.judged and not known.open:
            self._later.pop(_key(known), None)
        else:  # never more than a tenth of the time for one that goes on
            self._put_off(known, 10 * (self._clock() - begun))
        return standing

    def _put_off(self, known: Delivery, least: float) -> None:
        _, before = self._later.get(_key(known), (0.0, SOON / 2))
        pause = min(LATE, max(least, SOON if known.open else 2 * before))
        self._later[_key(known)] = (self._clock() + pause, pause)


def _key(one: Delivery) -> Delivered:
    return one.pipeline, one.file_id


def _standing(app: App, known: Delivery, files: Sequence[File], told: verdicts.Verdicts) -> writes.Standing:
    last = told.last
    if last is None and known.verdict_number and not known.open:
        # its notes left with it: what was said of it last is so
        return writes.Standing(delivery=replace(known, judged=True))
    now = _counted(app, known, files) if files else replace(known, judged=True)
    if not files and last is not None:  # all of it has left the road; what was said of it last is so
        now = replace(now, verdict=last.verdict)
    if last is not None:
        now = replace(now, verdict_number=last.number)
        if now.verdict != "working":
            now = replace(now, ended=last.at)
    if files:
        # whatever moves an open one touches it again; of what is between two folders there is no verdict yet, and
        # nobody may touch that
        now = replace(now, judged=bool(known.open) or (last is not None and last.verdict == now.verdict))
    if last is not None and now.judged and not known.open:
        # what of it was archived is in no folder, and counts all the same
        now = replace(
            now, rows=last.rows, units=last.units, held_back=last.held_back, loaded=dict(last.loaded)
        )
    return writes.Standing(
        delivery=now,
        verdicts=[_verdict(known, record) for record in told.records],
        followups=[_followed(known, key, one) for key, one in told.followed.items()],
    )


def _counted(app: App, known: Delivery, files: Sequence[File]) -> Delivery:
    """Count what a delivery came to so far, from the files that the ledger has of it."""
    pieces = [
        deliveries.Piece(
            place=one.place, status=one.status, file=file, name=one.name, note=sighting.note_of(one)
        )
        for one in files
        if (file := names.parse(known.pipeline, one.name)) is not None
    ]
    source = deliveries.unnoted(known.pipeline, known.file_id, known.given)
    try:
        discarded = notes.read_discarded(app.layout, known.pipeline, known.file_id)
    except Final:
        discarded = {}
    locations = app.pipeline(known.pipeline).spec.load.locations
    counted = walking.whole(app.layout, deliveries.of_pieces(source, pieces, discarded), locations)
    return replace(
        known,
        verdict=counted.verdict,
        rows=counted.rows,
        units=counted.units,
        held_back=counted.held_back,
        loaded=dict(counted.loaded),
        said=counted.said,
        ended=None,
        judged=False,
    )


def _verdict(known: Delivery, record: verdicts.Record) -> Verdict:
    facts = asdict(record)
    told = {name: facts.pop(name) for name in ("number", "verdict", "at", "said")}
    return Verdict(pipeline=known.pipeline, file_id=known.file_id, counts=facts, **told)


def _followed(known: Delivery, key: str, one: verdicts.Followed) -> FollowUp:
    number, _, what = key.partition("/")
    return FollowUp(
        pipeline=known.pipeline,
        file_id=known.file_id,
        number=int(number) if number.isdigit() else 0,
        key=what,
        what=what.partition("-")[0],
        target=one.target,
        state=one.state,
        tries=one.tries,
        said=one.said,
        at=one.at,
    )
