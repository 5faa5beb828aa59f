"""The doorkeeper: what people put into `working/` is let in once its gate says that it is complete.

Drops, folders dropped whole, files moved or copied back; of what we put there ourselves only what is to be begun
later, when its time has come. Announces nothing, and reads no folder but one that was dropped. Asked by the scan, and by the dropbox when something was touched.
"""

from __future__ import annotations

import heapq
import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from etl.app import App
from etl.config.schema import Complete
from etl.files import arrivals, folders, names, notes, survey
from etl.files.gate import Gate, Look
from etl.model import Place, Seen, Status, Waiting

log = logging.getLogger(__name__)

#: seconds after which a file that is to be begun later is looked at again, however long it has.
LONGEST_SLEEP = 600.0


class Doorkeeper:
    """The gates of all places, and the files that stand before them."""

    def __init__(self, app: App, *, drops: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        #: off: names without an id are left alone.
        self._drops = drops
        self._clock = clock
        self._gates: dict[Place, Gate] = {}
        #: when to look again at what, soonest first; an entry counts while `_wanted` has the same time.
        self._heap: list[tuple[float, Place, str]] = []
        self._wanted: dict[tuple[Place, str], float] = {}
        #: of these: files of ours that are to be begun later.
        self._ahead: set[tuple[Place, str]] = set()
        #: what was there and not complete at the last look.
        self.outside: set[tuple[Place, str]] = set()
        #: what has to pass though it carries an id: made where it lies (we only ever rename into `working/`), or
        #: found by a scan without a job and without a note of ours.
        self._judged: set[Path] = set()
        self._emptied = folders.Emptied(clock)

    def done(self, place: Place) -> str | None:
        """Give the pattern of a place's done-files."""
        return survey.done_pattern(place, self._complete(place).done)

    def _complete(self, place: Place) -> Complete:
        return self._app.pipeline(place.pipeline).spec.extract.complete

    def _gate(self, place: Place) -> Gate:
        if place not in self._gates:
            self._gates[place] = Gate(self._complete(place).settle, self.done(place), self._clock)
        return self._gates[place]

    # --- what was touched, and when to look again

    def touched(self, place: Place, name: str, *, renamed: bool = False, made: bool = False) -> None:
        """Hear that something happened to a name (a path inside `working/`): it is looked at in the next turn."""
        parts = name.split("/")
        if any(names.never_work(part) for part in parts):
            return
        if (given := names.of_done(self.done(place), parts[-1])) is not None:
            name = "/".join([*parts[:-1], given])
        elif renamed:
            for path in self._files(place, name):
                self._gate(place).renamed(path)
        elif made:
            path = self._path(place, name)
            self._gate(place).made(path)
            self._judged.add(path)
        self._look_at(self._clock(), place, name)

    def _look_at(self, when: float, place: Place, name: str) -> None:
        self._ahead.discard((place, name))
        self._wanted[place, name] = when
        heapq.heappush(self._heap, (when, place, name))

    def _path(self, place: Place, name: str) -> Path:
        return self._app.layout.status(place, Status.WORKING) / name

    def _files(self, place: Place, name: str) -> Iterator[Path]:
        """Give a file, or the files in a folder."""
        path = self._path(place, name)
        if path.is_dir() and not path.is_symlink():
            yield from survey.inside(path, self.done(place))
        else:
            yield path

    def wanted(self) -> float:
        """Give the seconds until something is to be looked at again; infinity when nothing is."""
        while self._heap and self._wanted.get(self._heap[0][1:]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return max(0.0, self._heap[0][0] - self._clock()) if self._heap else math.inf

    @property
    def standing(self) -> int:
        """Count what stands before its gate and will be looked at again."""
        return len(self._wanted) - len(self._ahead)

    def turn(self) -> list[Waiting]:
        """Look at everything that it is time for, and give what may be announced."""
        ready: list[Waiting] = []
        while self.wanted() <= 0.0:
            _, place, name = heapq.heappop(self._heap)
            del self._wanted[place, name]
            self._ahead.discard((place, name))
            with suppress(OSError):  # the scan looks again, and says so if it still cannot
                ready += [
                    one for path in self._files(place, name) if (one := self._admit(place, path)) is not None
                ]
        return ready

    # --- one file

    def admit(self, place: Place, name: str, note: notes.FileNote | None = None) -> Waiting | None:
        """Give a name in `working/` as what may be announced, or None: then it is looked at again in time."""
        path = self._path(place, name)
        self._judged.add(path)
        return self._admit(place, path, note)

    def _admit(self, place: Place, path: Path, note: notes.FileNote | None = None) -> Waiting | None:
        nested = path.parent != self._app.layout.status(place, Status.WORKING)
        file = names.parse(place.pipeline, path.name)
        if file is None and not self._drops:
            return None
        if file is not None and not nested and note is None:
            note = notes.glance(self._app.layout, place, path.name)
            if not (note.ended or note.unsettled or path in self._judged):
                return self._in_time(place, path, note)
        look = self._gate(place).look(path, drop=file is None)
        self._stand(place, path, look)
        if look.settled and not nested:
            return Waiting(place=place, name=path.name, seen=look.seen)
        return self._lift(place, path, look.seen) if look.settled else None

    def _in_time(self, place: Place, path: Path, note: notes.FileNote) -> Waiting | None:
        """Give a file of ours that was delayed or put off once its time has come.

        All others were announced by whoever put them there; the scan sees to the rest.
        """
        if note.not_before > time.time():
            self.later(place, path.name, note.not_before)
            return None
        if not note.not_before or not os.path.lexists(path):
            return None
        return Waiting(place=place, name=path.name)

    def later(self, place: Place, name: str, when: float) -> None:
        """Look at a file of ours at `when` (seconds since 1970), which is then begun and not by the next scan."""
        # never long: a clock that is set, or a time that a person changed, is noticed
        self._look_at(self._clock() + min(max(0.0, when - time.time()), LONGEST_SLEEP), place, name)
        self._ahead.add((place, name))

    def _stand(self, place: Place, path: Path, look: Look) -> None:
        """Remember what is not let in, and when to look at it again."""
        name = str(path.relative_to(self._app.layout.status(place, Status.WORKING)))
        if look.settled or look.gone:
            self.outside.discard((place, name))
            self._judged.discard(path)
        else:
            self.outside.add((place, name))
        if look.again is not None:
            self._look_at(self._clock() + look.again, place, name)

    # --- folders that were dropped whole

    def _lift(self, place: Place, path: Path, seen: Seen | None) -> Waiting | None:
        lifted = arrivals.lift(self._app.layout, place, path, seen)
        done = self.done(place)
        if lifted is not None and done is not None:
            with suppress(FileNotFoundError):
                taken = self._path(place, lifted.name).lstat().st_ctime_ns
                arrivals.use_up(path.parent, path.name, done, taken)
        return lifted

    def _take_out(self, place: Place, path: Path) -> None:
        try:
            lifted = self._admit(place, path)
        except OSError as error:  # somebody else's folder, another disk: it holds up nothing but itself
            log.warning(
                "%s cannot be taken out of its folder: %s; move it to %s/working yourself",
                *(names.printable(str(path)), error.strerror or error, place),
                extra={"event": "not_lifted"},
            )
        else:
            if lifted is not None:
                self._gate(place).renamed(self._path(place, lifted.name))

    def walk(self, place: Place) -> None:
        """Take settled files out of every dropped folder of a place; forget names that are gone."""
        for folder in survey.folders(self._app.layout, place) if self._drops else ():
            for path in survey.inside(folder, self.done(place)):
                self._take_out(place, path)
            self._emptied.tidy(folder)
        self._gate(place).forget_gone()
        self.outside = {one for one in self.outside if os.path.lexists(self._path(*one))}
