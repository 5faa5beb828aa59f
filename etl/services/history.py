"""History: what lies where and what came of it, asked of the ledger while a recorder lives, else of the folders.

Both give the same answers; a ledger that does not answer or is behind is told in one line, and the folders are read.
Changes nothing; imports little without a recorder. Called by verbs that look; those that act read the folders.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from etl.config.reading import Config
from etl.errors import EtlError
from etl.files import causes as words
from etl.files import deliveries, names, reasons, survey, walking
from etl.files import layout as layouts
from etl.files.deliveries import Delivery
from etl.files.layout import Layout
from etl.files.survey import Count
from etl.model import Place, Status
from etl.services import records

if TYPE_CHECKING:
    from etl.services.remembered import Remembered

Answer = TypeVar("Answer")
Tell = Callable[[str], None]
#: for each status folder of a place what lies in it.
Counts = Mapping[Place, Mapping[Status, Count]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One line of the morning screen: a source file and how far it is."""

    pipeline: str
    name: str
    id: str
    arrived: float
    rows: int
    units: int
    loaded: Mapping[str, int]
    held_back: int
    verdict: str
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What some failed files at a place have in common."""

    place: Place
    why: str
    files: int
    #: since when the first and the last of them lie there, seconds since 1970.
    first: float
    last: float

    @property
    def word(self) -> str:
        """The short word that stands for it, to be pasted after `--cause`."""
        return words.word(self.place, self.why)


def counts(config: Config, pipelines: Sequence[str], tell: Tell) -> Counts:
    """Count every status folder of these pipelines."""
    return _ask(config, tell, lambda ledger: ledger.counts(pipelines), lambda: _counts(config, pipelines))


def arrived(config: Config, pipelines: Sequence[str], since: float, tell: Tell) -> list[Standing]:
    """Give how the source files stand that came since a moment, by pipeline, oldest first."""
    return _ask(
        config,
        tell,
        lambda ledger: ledger.arrived(pipelines, since),
        lambda: _arrived(config, pipelines, since),
    )


def failed(config: Config, pipelines: Sequence[str], tell: Tell) -> list[tuple[Place, str]]:
    """Give what lies in `failed/`, place by place."""
    return _ask(config, tell, lambda ledger: ledger.failed(pipelines), lambda: _failed(config, pipelines))


def causes(config: Config, pipelines: Sequence[str], tell: Tell) -> list[Cause]:
    """Give what files failed of at a place, most first; a file with two causes counts for both."""
    return _ask(config, tell, lambda ledger: ledger.causes(pipelines), lambda: _causes(config, pipelines))


def find(config: Config, wanted: str, tell: Tell) -> list[Delivery]:
    """Find deliveries by a path, a full name, a given name, an id or the start of one."""
    # what just came, or is asked for by a part's name, only the folders know
    return _ask(
        config,
        tell,
        lambda ledger: ledger.find(wanted) or _find(config, wanted),
        lambda: _find(config, wanted),
    )


def _ask(
    config: Config,
    tell: Tell,
    question: Callable[[Remembered], Answer],
    otherwise: Callable[[], Answer],
) -> Answer:
    """Ask the ledger while a recorder keeps it, else the folders."""
    if not any(one.name == "recorder" for one in records.living(config.data)):
        return otherwise()
    from etl.services import remembered

    try:
        with remembered.opened(config) as ledger:
            return question(ledger)
    except EtlError as error:
        tell(f"{error.summary}; this is what the folders say")
    return otherwise()


# --- what the folders say ----------------------------------------------------------------------------------


def _places(config: Config, pipelines: Sequence[str]) -> list[Place]:
    return [
        place
        for name in pipelines
        for place in layouts.places(name, config.pipelines[name].spec.load.locations)
    ]


def _counts(config: Config, pipelines: Sequence[str]) -> Counts:
    tree = Layout(config.data)
    return {
        place: {status: survey.count(tree, place, status, done_pattern(config, place)) for status in Status}
        for place in _places(config, pipelines)
    }


def done_pattern(config: Config, place: Place) -> str | None:
    """Give the pattern of a place's done-files."""
    return survey.done_pattern(place, config.pipelines[place.pipeline].spec.extract.complete.done)


def _arrived(config: Config, pipelines: Sequence[str], since: float) -> list[Standing]:
    tree = Layout(config.data)
    return [
        Standing(
            pipeline=name,
            name=one.note.given,
            id=one.note.id,
            arrived=one.note.arrived,
            rows=one.rows,
            units=one.units,
            loaded=dict(one.loaded),
            held_back=one.held_back,
            verdict=one.verdict,
            said=one.said,
        )
        for name in pipelines
        for one in _deliveries(config, tree, name)
        if one.note.arrived >= since
    ]


def _deliveries(config: Config, tree: Layout, pipeline: str) -> Iterator[Delivery]:
    locations = config.pipelines[pipeline].spec.load.locations
    for one in deliveries.of_pipeline(tree, pipeline, locations):
        yield walking.whole(tree, one, locations)


def _failed(config: Config, pipelines: Sequence[str]) -> list[tuple[Place, str]]:
    tree = Layout(config.data)
    return [
        (place, name)
        for place in _places(config, pipelines)
        for name in survey.listing(tree, place, Status.FAILED)
    ]


def _causes(config: Config, pipelines: Sequence[str]) -> list[Cause]:
    tree, found = Layout(config.data), defaultdict[tuple[Place, str], list[float]](list)
    for place in _places(config, pipelines):
        for name, since in survey.dated(tree, place, Status.FAILED)[0].items():
            for cause in words.of(reasons.read(tree, place, name)):
                found[place, cause].append(since)
    told = [
        Cause(place=place, why=why, files=len(times), first=min(times), last=max(times))
        for (place, why), times in found.items()
    ]
    return sorted(told, key=lambda one: (-one.files, str(one.place), one.why))


def _find(config: Config, wanted: str) -> list[Delivery]:
    tree = Layout(config.data)
    return [
        one
        for name in sorted(config.pipelines)
        for one in _deliveries(config, tree, name)
        if one.note.given == wanted.rpartition("/")[2]
        or any(names.means(name, piece.name, wanted) for piece in one.pieces)
    ]
