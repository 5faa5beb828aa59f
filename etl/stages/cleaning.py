"""Cleaning: carries out what was chosen, so that at any moment at which it is killed another can carry it on.

1. A journal says what leaves together. 2. Its archives are built and read back; their names are the commit. 3. Only
then the files go, those that are not archived last, and then the notes. 4. The journal goes. Called by `stages.clean`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from etl import points
from etl.app import App
from etl.errors import Final
from etl.files import archives, cleanings, leaving, names, verifying
from etl.files.archives import Manifest
from etl.files.archiving import Builder
from etl.files.cleanings import Cleaning, Origin, Regenerable
from etl.files.held import Held
from etl.points import Point
from etl.stages import telling
from etl.stages.origins import Lying
from etl.stages.reporting import Report

_Key = tuple[object, ...]


@dataclass(slots=True)
class Cleaner:
    """Cleans one pipeline."""

    app: App
    pipeline: str
    report: Report
    #: hears how many more bytes of sources were read.
    heard: Callable[[int], None] = lambda _: None
    #: archives that were read, back or anew, and whether they are whole.
    _verified: dict[Path, bool] = field(default_factory=dict)

    def carry_on(self) -> None:
        """Finish what another began and did not end; what had no archive yet is given up and chosen anew."""
        for journal in cleanings.waiting(self.app.layout, self.pipeline):
            cleaning = cleanings.read(journal)
            builder = self._builder(cleaning)
            builder.require()  # its archive may be there, and only be away
            if any(builder.committed(planned) for planned in cleaning.archives):
                self._clean(cleaning)
            else:
                for planned in cleaning.archives:
                    builder.discard(planned)
                cleanings.end(self.app.layout, cleaning)

    def clean(self, cleaning: Cleaning) -> None:
        """Carry out one cleaning."""
        cleanings.write(self.app.layout, cleaning)
        self._clean(cleaning)

    def forget(self, request: Lying) -> None:
        """Remove a request that was followed, its notes first: without the file they would tell of a loss."""
        layout, place = self.app.layout, request.place
        for note in (layout.note(place, request.name), layout.source_note(self.pipeline, request.file.id)):
            with points.effect(Point.CLEAN_NOTE):
                note.unlink(missing_ok=True)
        self._take(request.path, request.stamp, self.report.forgot)

    def _builder(self, cleaning: Cleaning) -> Builder:
        config = self.app.config
        return Builder(
            data=self.app.layout.data,
            root=config.archive,
            pipeline=self.pipeline,
            day=cleaning.day,
            packed=config.settings.archive_format,
            heard=self.heard,
        )

    def _clean(self, cleaning: Cleaning) -> None:
        builder, manifests = self._builder(cleaning), []
        regenerable = tuple(one.path for one in cleaning.regenerable)
        for planned in cleaning.archives:
            # the first is extract's, with the notes
            manifest = builder.build(planned, regenerable if planned is cleaning.archives[0] else ())
            if manifest is not None:
                manifests.append(manifest)
                self._verified[manifest.path] = True
                self.report.built(manifest)
        self.report.left |= builder.left
        self._take_files(cleaning, manifests)
        self._take_notes(cleaning, manifests)
        cleanings.end(self.app.layout, cleaning)

    # --- files

    def _take_files(self, cleaning: Cleaning, manifests: Sequence[Manifest]) -> None:
        stamps = {
            chosen.member.path: chosen.stamp for planned in cleaning.archives for chosen in planned.files
        }
        for member in (one for manifest in manifests for one in manifest.members):
            self._take(member.path, stamps[member.path], self.report.archived)
        origins = _origins(manifests)
        held = Held(self.app.config.archive, self.pipeline, {one.id for one in cleaning.regenerable})
        for one in cleaning.regenerable:
            if self._is_archived(one, origins, held):
                self._take(one.path, one.stamp, self.report.removed)
            else:
                self.report.left[one.path] = "what it can be made of again is in no verified archive"
        files = [*stamps, *(one.path for one in cleaning.regenerable)]
        leaving.sync((self.app.layout.data / path).parent for path in files)

    def _take(self, path: str, stamp: cleanings.Stamp, done: Callable[[str], None]) -> None:
        removed, why = leaving.take(self.app.layout.data / path, stamp)
        if removed:
            done(path)
            place, _, name = path.rsplit("/", 2)
            telling.moved(self.app, archives.place_of(place), name)
        elif why:
            self.report.left[path] = why

    def _is_archived(self, one: Regenerable, origins: Mapping[_Key, set[str]], held: Held) -> bool:
        """Tell whether the file that another can be made of again is in an archive that was verified."""
        found = origins.get(_key(one.id, one.origin), set())
        if not _holds(found, one.origin):
            try:
                older = held.of(one.id)
            except Final as error:
                self.report.left[f"{self.pipeline}/{one.id}"] = error.summary
                return False
            sound = [manifest for manifest in older if self._is_sound(manifest)]
            found = _origins(sound).get(_key(one.id, one.origin), set())
        return _holds(found, one.origin)

    def _is_sound(self, manifest: Manifest) -> bool:
        if manifest.path not in self._verified:
            self._verified[manifest.path] = not verifying.verify(archives.read(manifest.beside))
        return self._verified[manifest.path]

    # --- notes

    def _take_notes(self, cleaning: Cleaning, manifests: Sequence[Manifest]) -> None:
        if not cleaning.leaving:
            return
        layout, locations = self.app.layout, self.app.pipeline(self.pipeline).spec.load.locations
        places = leaving.places(layout, self.pipeline, locations)
        # looked at again, as somebody may have brought a file back meanwhile
        present = leaving.ids(layout, self.pipeline, places)
        noted = leaving.noted(layout, self.pipeline, places, set(cleaning.leaving))
        archived = {one.path: one.sha256 for manifest in manifests for one in manifest.notes}
        for file_id in cleaning.leaving:
            paths = noted.get(file_id, [])
            if file_id in present:
                why = "a file of it is in the tree: its notes stay"
            else:
                why = leaving.take_notes(layout, self.pipeline, file_id, archived, paths)
            if why:
                self.report.left[f"{self.pipeline}/{file_id}"] = why
            else:
                for path in paths:
                    self.report.noted(path)
        leaving.sync((layout.data / path).parent for paths in noted.values() for path in paths)


def _key(file_id: str, origin: Origin) -> _Key:
    return file_id, origin.stage, origin.part, origin.generation if origin.part else 1


def _holds(found: set[str], origin: Origin) -> bool:
    return origin.sha256 in found if origin.sha256 else bool(found)


def _origins(manifests: Sequence[Manifest]) -> Mapping[_Key, set[str]]:
    """Give the hashes of what is archived, by what it is of its delivery, whatever its name."""
    found: dict[_Key, set[str]] = defaultdict(set)
    for manifest in manifests:
        for member in manifest.members:
            if file := names.parse(manifest.pipeline, member.name):
                generation = file.generation if file.part else 1
                found[member.id, member.place.stage, file.part, generation].add(member.sha256)
    return found
