"""Departing: whether one delivery may leave the tree, whole or in part, as folders, notes and verdicts have it now.

All of it goes once nothing of it is open or failed; until then only what is archived in any case. Removes nothing.
Called by `choosing`; what becomes of each file is said by `origins`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from etl.app import App
from etl.errors import Final
from etl.files import archives, notes, spool, verdicts, walking
from etl.files.archives import Manifest
from etl.files.held import Held
from etl.model import Status
from etl.stages import judging, origins
from etl.stages.origins import Delivery, Departure, Lying

_OPEN = frozenset({Status.WORKING, Status.IN_PROCESS})


@dataclass(slots=True)
class Departures:
    """Decides about one delivery after the other of one pipeline."""

    app: App
    pipeline: str
    now: float
    #: deliveries of which something is still to be told.
    told_of: set[str]
    #: what is archived of these deliveries.
    held: Held
    #: off for a dry run, which writes nothing: a verdict that is due is taken as given.
    judges: bool = True
    #: what stays though it is old enough, and why.
    left: dict[str, str] = field(default_factory=dict)

    @property
    def _rests_since(self) -> float:
        return self.now - self.app.pipeline(self.pipeline).spec.clean.archive_after

    def of(self, delivery: Delivery) -> Departure | None:
        """Give what of a delivery leaves; None when nothing does."""
        if not delivery.files:
            return self._notes_alone(delivery)
        if any(one.status in _OPEN for one in delivery.files):
            return None
        judged = self._judged(delivery.id)
        if judged is None:
            return None
        verdict, follows = judged
        own = f"{self.pipeline}/.notes/{verdicts.path(self.app.layout, self.pipeline, delivery.id).name}"
        # given just now, it was in no folder when these were listed
        delivery = replace(delivery, notes=list(dict.fromkeys([*delivery.notes, own])))
        parting = origins.Parting(self.app, self.pipeline, delivery, verdict, self.held)
        try:
            if not follows and self._goes_whole(delivery):
                return parting.whole()
            return parting.part([one for one in delivery.files if self._rests(one)], self.left)
        except (OSError, Final) as error:
            self.left[f"{self.pipeline}/{delivery.id}"] = str(error)
            return None

    def _rests(self, one: Lying) -> bool:
        return one.status is Status.RESOLVED and one.since <= self._rests_since

    def _judged(self, file_id: str) -> tuple[str, bool] | None:
        """Give the verdict of a delivery, given now if it is due, and whether something follows that; None if open."""
        layout, spec = self.app.layout, self.app.pipeline(self.pipeline).spec
        found = walking.find(layout, self.pipeline, file_id, spec.load.locations)
        if found is None or found.verdict == "working":
            said = "something of it is on its way, or missing: see `etl fsck`"
            self.left[f"{self.pipeline}/{file_id}"] = said
            return None
        try:
            last = verdicts.read(layout, self.pipeline, file_id).last
            if last is not None and last.verdict == found.verdict:
                return found.verdict, False
            if not self.judges:
                return found.verdict, judging.is_followed(self.app, found, first=last is None)
            judging.judge(self.app, self.pipeline, file_id)
            last = verdicts.read(layout, self.pipeline, file_id).last
        except Final as error:
            self.left[f"{self.pipeline}/{file_id}"] = error.summary
            return None
        follows = bool(spool.of(layout, self.pipeline, file_id))
        return (last.verdict, follows) if last is not None else None

    def _goes_whole(self, delivery: Delivery) -> bool:
        """Tell whether all of a delivery can go now: all is at rest, for long enough, and nothing is to be told."""
        keep = self.app.pipeline(self.pipeline).spec.clean.keep or 0.0
        return delivery.id not in self.told_of and all(
            self._rests(one)
            and (one.since <= self.now - keep or origins.is_archived_always(self.app, self.pipeline, one))
            for one in delivery.files
        )

    # --- nothing of it in the tree

    def _notes_alone(self, delivery: Delivery) -> Departure | None:
        """Give the notes of a delivery whose files left before, if all of them are accounted for."""
        layout, file_id = self.app.layout, delivery.id
        try:
            rested = all((layout.data / one).lstat().st_mtime <= self._rests_since for one in delivery.notes)
        except FileNotFoundError:
            return None
        if not rested or not delivery.notes or file_id in self.told_of:
            return None
        try:
            known = self.held.of(file_id)
            accounted = self._is_twin(delivery) or self._is_accounted_for(delivery, known)
        except (Final, OSError) as error:
            self.left[f"{self.pipeline}/{file_id}"] = str(error)
            return None
        if not accounted:
            said = "its notes are there and a file of it is in no folder and no archive: see `etl fsck`"
            self.left[f"{self.pipeline}/{file_id}"] = said
            return None
        return Departure(id=file_id, notes=delivery.notes)

    def _is_accounted_for(self, delivery: Delivery, known: Sequence[Manifest]) -> bool:
        archived = {one.path for manifest in known for one in manifest.of(delivery.id)}
        archived |= {path for manifest in known for path in manifest.regenerable}
        archived |= set(notes.read_discarded(self.app.layout, self.pipeline, delivery.id))
        files = [found for one in delivery.notes if (found := origins.noted_file(one)) is not None]
        return bool(files) and all(
            archived & {archives.relative(place, name), f"{place}/{name}"}
            # a location's copy that was moved to load itself is where that is
            or (place.location and archives.relative(replace(place, location=""), name) in archived)
            for place, name in files
        )

    def _is_twin(self, delivery: Delivery) -> bool:
        """Tell the note of a drop that was noted anew, as its worker died before its first claim: no file has it."""
        if [*delivery.notes] != [f"{self.pipeline}/.notes/{delivery.id}.json"]:
            return False
        source = notes.glance_source(self.app.layout, self.pipeline, delivery.id)
        if source is None or source.origin:
            return False
        day = archives.day_of(delivery.id)
        return any(
            (one.id[:9], one.given, one.sha256) == (delivery.id[:9], source.given, source.sha256)
            for manifest in archives.of_days(self.app.config.archive, self.pipeline, day, day)
            for one in manifest.members
        )
