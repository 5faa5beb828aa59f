"""Origins: of one delivery that leaves, which files are archived and which are removed, as they can be made again.

A file can be made again of one that is archived and that its notes lead to: extract's file gives transform's, that or
a held-back file its unit files. Reads bytes where notes do not tell. Called by `departing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from etl import disk
from etl.app import App
from etl.files import archives, deliveries, names, notes
from etl.files.archives import Lineage, Member
from etl.files.cleanings import Chosen, Origin, Regenerable, Stamp
from etl.files.held import Held
from etl.model import Place, Stage, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Lying:
    """A file with an id, where it lies and since when."""

    place: Place
    status: Status
    name: str
    file: names.FileName
    stamp: Stamp

    @property
    def path(self) -> str:
        """Where it lies, below the data folder."""
        return f"{self.place}/{self.status}/{self.name}"

    @property
    def since(self) -> float:
        """Since when; our moves set the mtime."""
        return self.stamp.mtime_ns / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """What of one delivery leaves."""

    id: str
    files: Sequence[Chosen] = ()
    regenerable: Sequence[Regenerable] = ()
    #: paths of its notes, if nothing of it is left then.
    notes: Sequence[str] = ()

    @property
    def size(self) -> int:
        """How many files leave."""
        return len(self.files) + len(self.regenerable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """All there is of one delivery in the tree: files at all places but those of requests, and notes."""

    id: str
    files: Sequence[Lying]
    #: paths below the data folder.
    notes: Sequence[str]

    def at(self, stage: Stage, part: str, generation: int = 0) -> list[Lying]:
        """Give its files of one part at a stage, in `resolved/`; a source file has no generation."""
        return [
            one
            for one in self.files
            if one.status is Status.RESOLVED and one.place.stage is stage and one.file.part == part
            if not part or one.file.generation == generation
        ]


def is_archived_always(app: App, pipeline: str, one: Lying) -> bool:
    """Tell whether a file is archived whatever else there is of its delivery."""
    stage = one.place.stage
    wanted = app.pipeline(pipeline).spec.clean.archive
    return stage is Stage.EXTRACT or one.file.is_held_back or str(stage) in wanted


def noted_file(path: str) -> tuple[Place, str] | None:
    """Give of which file at which place a note speaks; None for a log, and for a note of the whole delivery."""
    folder, kept, name = path.rsplit("/", 2)
    if kept != ".notes" or "/" not in folder:
        return None
    return archives.place_of(folder), name.removesuffix(".json")


class Parting:
    """One delivery that leaves, whole or in part."""

    def __init__(self, app: App, pipeline: str, delivery: Delivery, verdict: str, held: Held) -> None:
        self._app = app
        self._pipeline = pipeline
        self._delivery = delivery
        self._verdict = verdict
        layout = app.layout
        self._source = notes.glance_source(layout, pipeline, delivery.id) or deliveries.unnoted(
            pipeline, delivery.id, delivery.files[0].file.given
        )
        self._noted = {
            (place, name): notes.glance(layout, place, name)
            for place, name in filter(None, map(noted_file, delivery.notes))
        }
        self._held = held
        self._digests: dict[str, str] = {}

    def whole(self) -> Departure:
        """Let all of it go, with its notes."""
        files, regenerable = [], []
        for one in self._delivery.files:
            origin = self._kept_before(one)
            if origin is None and not is_archived_always(self._app, self._pipeline, one):
                origin = self._origin(one)
            if origin is None:
                files.append(self._chosen(one))
            else:
                regenerable.append(Regenerable(path=one.path, id=one.file.id, stamp=one.stamp, origin=origin))
        return Departure(
            id=self._delivery.id, files=files, regenerable=regenerable, notes=self._delivery.notes
        )

    def part(self, rested: Sequence[Lying], left: dict[str, str]) -> Departure | None:
        """Let go what is archived in any case; its notes stay, and say where it was."""
        files = []
        for one in rested:
            if not is_archived_always(self._app, self._pipeline, one) and not self._is_alone(one):
                continue
            if self._kept_before(one):  # replayed: it goes with all of its delivery
                continue
            if self._note(one.place, one.name).ended == Status.RESOLVED:
                files.append(self._chosen(one))
            else:  # by its note it would be missing
                left[one.path] = "its note does not say that it is resolved; it goes with all of its delivery"
        return Departure(id=self._delivery.id, files=files) if files else None

    # --- what it can be made of again

    def _kept_before(self, one: Lying) -> Origin | None:
        """Give the very same file in an earlier archive, out of which it was replayed; None when there is none.

        Asked only where extract's file has left already: what never was in an archive costs nothing.
        """
        if self._delivery.at(Stage.EXTRACT, ""):
            return None
        stage, part, generation = one.place.stage, one.file.part, one.file.generation
        same = (archives.relative(one.place, one.name), one.stamp.size)
        for member in self._archived(stage, part, generation):
            if (member.path, member.size) == same and member.sha256 == self._digest(one):
                return Origin(stage=stage, part=part, generation=generation, sha256=member.sha256)
        return None

    def _is_alone(self, one: Lying) -> bool:
        """Tell, without reading it, that a file can be made of nothing that is known."""
        if one.place.stage is Stage.TRANSFORM:
            return one.file.is_source and not self._passed_on()
        return not self._is_known_to_parent(one)

    def _origin(self, one: Lying) -> Origin | None:
        """Give the file of which another can be made again; None when there is none, and it is archived itself."""
        file = one.file
        if self._is_alone(one):
            return None
        if one.place.stage is Stage.TRANSFORM:
            return self._origin_of_source(one) if file.is_source else None
        parent = file.part.rpartition("-")[0]
        if parent:
            is_there = self._delivery.at(Stage.TRANSFORM, parent, file.generation) or self._archived(
                Stage.TRANSFORM, parent, file.generation
            )
            origin = Origin(stage=Stage.TRANSFORM, part=parent, generation=file.generation)
            return origin if is_there else None
        if sources := self._delivery.at(Stage.TRANSFORM, ""):
            return self._origin_of_source(sources[0]) or Origin(stage=Stage.TRANSFORM)
        if self._archived(Stage.TRANSFORM, ""):
            return Origin(stage=Stage.TRANSFORM)
        if self._delivery.at(Stage.EXTRACT, "") or self._archived(Stage.EXTRACT, ""):
            return Origin(stage=Stage.EXTRACT)
        return None

    def _origin_of_source(self, one: Lying) -> Origin | None:
        """Give extract's file, if it has the very bytes that transform's has."""
        passed = self._passed_on()
        extracted = self._delivery.at(Stage.EXTRACT, "")
        there = (
            all(self._digest(each) == passed for each in extracted)
            if extracted
            else passed in {each.sha256 for each in self._archived(Stage.EXTRACT, "")}
        )
        if not passed or not there or self._digest(one) != passed:
            return None
        return Origin(stage=Stage.EXTRACT, sha256=passed)

    def _passed_on(self) -> str:
        """Give the sha256 of what extract passed on last; "" where no note says that it did."""
        extracted = [
            note.recipe
            for (place, name), note in self._noted.items()
            if place.stage is Stage.EXTRACT and note.recipe
        ]
        return extracted[-1] if extracted else ""

    def _is_known_to_parent(self, one: Lying) -> bool:
        """Tell whether the note of the file that a unit file was made from says so, now or in an older generation."""
        part, _, ordinal = one.file.part.rpartition("-")
        if not ordinal.isdigit():
            return False
        for (place, name), note in self._noted.items():
            parent = names.parse(self._pipeline, name)
            if place.stage is not Stage.TRANSFORM or parent is None or parent.part != part or not note.recipe:
                continue
            # an older generation's unit files count for nothing any more
            if (note.generation, note.children) >= (one.file.generation, int(ordinal)):
                return True
        return False

    def _archived(self, stage: Stage, part: str, generation: int = 0) -> list[Member]:
        """Give the members of earlier archives that are one part of the delivery."""
        found = []
        for member in (one for manifest in self._held.of(self._delivery.id) for one in manifest.members):
            file = names.parse(self._pipeline, member.name)
            is_it = file is not None and (member.place.stage, file.part) == (stage, part)
            if file and is_it and (not part or file.generation == generation):
                found.append(member)
        return found

    def _digest(self, one: Lying) -> str:
        if one.path not in self._digests:
            self._digests[one.path] = disk.sha256(self._app.layout.data / one.path)
        return self._digests[one.path]

    # --- what its manifest says

    def _note(self, place: Place, name: str) -> notes.FileNote:
        return self._noted.get((place, name)) or notes.FileNote()

    def _chosen(self, one: Lying) -> Chosen:
        note, source = self._note(one.place, one.name), self._source
        lineage = Lineage(
            parent=self._parent(one),
            generation=note.generation or one.file.generation,
            recipe=note.recipe,
            children=note.children,
            rows=note.rows,
            units=note.units,
            verdict=self._verdict,
        )
        member = Member(
            path=archives.relative(one.place, one.name),
            place=one.place,
            name=one.name,
            given=source.given,
            id=one.file.id,
            sha256="",
            size=one.stamp.size,
            mtime=source.mtime,
            arrived=source.arrived,
            lineage=lineage,
        )
        return Chosen(member=member, stamp=one.stamp)

    def _parent(self, one: Lying) -> str:
        """Name the file that another was made from or held back from, as its note is called; "" for a source."""
        part = one.file.part.rpartition("-")[0]
        if not one.file.part:
            return ""
        at_load = one.place.stage is Stage.LOAD and one.file.is_held_back
        wanted = Stage.LOAD if at_load else Stage.TRANSFORM
        for place, name in self._noted:
            file = names.parse(self._pipeline, name)
            if place.stage is wanted and file and file.part == part:
                return name
        return ""
