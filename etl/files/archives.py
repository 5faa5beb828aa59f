"""Archives: dated tar files of what came to rest, each with its manifest beside it, and how they are found and read.

A file is in the archives of the UTC day on which its delivery came, which its id tells: nothing has to be indexed.
Changes nothing; what a folder or a manifest holds besides is not believed. Built by `archiving`; read by replay, fsck.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from etl.errors import Final
from etl.files import layout as layouts
from etl.files import names, tarring
from etl.model import Place, Stage, Status

#: what is added to an archive's name for its manifest's.
MANIFEST = ".manifest.json"
#: the last member of every archive: the same manifest.
INSIDE = "MANIFEST.json"
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_NAME = re.compile(
    r"(?P<pipeline>[a-z][a-z0-9_]*)-(?P<stage>extract|transform|load)"
    r"(?:\.(?P<number>[1-9]\d{0,5}))?\.tar\.(?P<packed>gz|zst)"
)
_PIPELINE = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """Where an archived file stands in its delivery, as its notes said."""

    #: the name of the file it was made from; "" for a source file.
    parent: str = ""
    generation: int = 0
    #: of extract's file: the sha256 of what it passed on; of transform's: what decided its output.
    recipe: str = ""
    children: int = 0
    rows: int = 0
    units: int = 0
    #: how its delivery stood.
    verdict: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One archived file: a file of a place that lay in `resolved/`."""

    #: relative to the data folder, as in the tar: `books/extract/resolved/books~id.csv`.
    path: str
    place: Place
    name: str
    #: the name as it was given, whole.
    given: str
    id: str
    sha256: str
    size: int
    #: the file's own, before our moves set it; and when its delivery came.
    mtime: float
    arrived: float
    lineage: Lineage = field(default_factory=Lineage)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteMember:
    """One archived note or attempt log."""

    path: str
    id: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What one archive holds. `archive` is its file's name, `folder` the folder it lies in now."""

    archive: str
    pipeline: str
    stage: Stage
    day: str
    #: when it was made, ISO and UTC; and what makes it this one and no other.
    made: str
    token: str = ""
    members: Sequence[Member] = ()
    notes: Sequence[NoteMember] = ()
    #: paths of files of these deliveries that are not archived, as they can be made again: of a member of this
    #: archive or of another of the same day.
    regenerable: Sequence[str] = ()
    folder: Path = Path()

    @property
    def path(self) -> Path:
        """Where the tar lies."""
        return self.folder / self.archive

    @property
    def beside(self) -> Path:
        """Where the manifest itself lies."""
        return self.folder / (self.archive + MANIFEST)

    @property
    def ids(self) -> set[str]:
        """The ids of all it holds something of."""
        return {one.id for one in self.members} | {one.id for one in self.notes}

    def of(self, file_id: str) -> list[Member]:
        """Give the files of one delivery."""
        return [one for one in self.members if one.id == file_id]


# --- where they lie ----------------------------------------------------------------------------------------


def day_of(file_id: str) -> str:
    """Give the UTC day on which a delivery came, as its id tells it."""
    return datetime.fromtimestamp(names.milliseconds(file_id) / 1000, UTC).date().isoformat()


def days(root: Path) -> list[str]:
    """Give the days of which there are archives, oldest first."""
    try:
        found = [entry.name for entry in root.iterdir() if _is_day(entry.name) and entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(found)


def paths(root: Path, pipeline: str, first: str, last: str) -> list[Path]:
    """Give the manifests of a pipeline's archives of some days, both included: by day, stage and number."""
    found: list[tuple[str, int, int, Path]] = []
    for day in days(root):
        if first <= day <= last:
            for path in (root / day).iterdir():
                match = _NAME.fullmatch(path.name.removesuffix(MANIFEST))
                if match and path.name.endswith(MANIFEST) and match["pipeline"] == pipeline:
                    stage = list(Stage).index(Stage(match["stage"]))
                    found.append((day, stage, int(match["number"] or 1), path))
    return [path for *_, path in sorted(found)]


def of_days(root: Path, pipeline: str, first: str, last: str) -> Iterator[Manifest]:
    """Read the manifests of a pipeline's archives of some days, or raise `Final` at one that is damaged."""
    yield from map(read, paths(root, pipeline, first, last))


def of_id(root: Path, pipeline: str, file_id: str) -> list[Manifest]:
    """Give the manifests of the archives that hold anything of one delivery, or raise `Final` at a damaged one."""
    day = day_of(file_id)
    # most manifests of a day are about others, and reading one whole takes its time
    about = [path for path in paths(root, pipeline, day, day) if speaks_of(path, file_id)]
    return [one for one in map(read, about) if file_id in one.ids]


def speaks_of(path: Path, file_id: str) -> bool:
    """Tell whether a manifest, a damaged one too, has anything of a delivery; one that cannot be read may have."""
    try:
        return f'"{file_id}"'.encode() in path.read_bytes()
    except OSError:
        return True


def starts_with(path: Path, token: str) -> bool:
    """Tell whether a manifest is likely to be the one with this token, without reading it whole."""
    try:
        with path.open("rb") as handle:
            return token.encode() in handle.read(1000)
    except OSError:
        return False


def name(pipeline: str, stage: Stage, number: int, packed: str) -> str:
    """Name an archive: `books-extract.tar.gz`, the second of that day `books-extract.2.tar.gz`."""
    return f"{pipeline}-{stage}{f'.{number}' if number > 1 else ''}.tar.{packed}"


def number(archive: str, pipeline: str, stage: Stage) -> int | None:
    """Give the number of an archive of a pipeline's stage by its name; None for any other name."""
    match = _NAME.fullmatch(archive)
    if match is None or (match["pipeline"], match["stage"]) != (pipeline, stage):
        return None
    return int(match["number"] or 1)


def next_number(root: Path, day: str, pipeline: str, stage: Stage) -> int:
    """Give the number that the next archive of a day and stage gets: no name is ever used for a second one."""
    try:
        found = [path.name.removesuffix(MANIFEST) for path in (root / day).iterdir()]
    except FileNotFoundError:
        return 1
    return max((number(one, pipeline, stage) or 0 for one in found), default=0) + 1


def _is_day(text: str) -> bool:
    if not _DAY.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


# --- manifests ---------------------------------------------------------------------------------------------


def dump(manifest: Manifest) -> bytes:
    """Give a manifest as the bytes that are stored."""
    facts = {one: getattr(manifest, one) for one in ("archive", "pipeline", "stage", "day", "made", "token")}
    lines: list[str] = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in facts.items()]
    listed: dict[str, Iterable[Any]] = {
        "members": (_facts(one) for one in manifest.members),
        "notes": (_facts(one) for one in manifest.notes),
        "regenerable": manifest.regenerable,
    }
    for key, values in listed.items():
        # a line for each, so that grep finds one and a person can read it
        told = ",\n  ".join(map(json.dumps, values))
        lines.append(f"{json.dumps(key)}: [{f'{chr(10)}  {told}{chr(10)} ' if told else ''}]")
    return ("{\n " + ",\n ".join(lines) + "\n}\n").encode()


def _facts(one: Member | NoteMember) -> dict[str, Any]:
    facts = {key: getattr(one, key) for key in one.__slots__}
    if isinstance(one, Member):
        facts |= {
            "place": str(one.place),
            "lineage": {key: getattr(one.lineage, key) for key in Lineage.__slots__},
        }
    return facts


def read(path: Path) -> Manifest:
    """Read a manifest, or raise `Final` when it is damaged or leads out of the data folder."""
    try:
        facts = json.loads(path.read_bytes())
        match = _NAME.fullmatch(path.name.removesuffix(MANIFEST))
        if match is None or facts["archive"] != match[0] or facts["pipeline"] != match["pipeline"]:
            raise ValueError("it is another archive's")  # noqa: TRY301
        pipeline = match["pipeline"]
        return Manifest(
            archive=match[0],
            pipeline=pipeline,
            stage=Stage(match["stage"]),
            day=str(facts["day"]),
            made=str(facts["made"]),
            token=str(facts.get("token", "")),
            members=tuple(read_member(pipeline, one) for one in facts["members"]),
            notes=tuple(_note(pipeline, one) for one in facts["notes"]),
            regenerable=tuple(map(str, facts.get("regenerable", ()))),
            folder=path.parent,
        )
    except OSError as error:
        raise Final(
            f"the manifest {path} cannot be read: {error}", next="see that the disk is there"
        ) from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Final(
            f"the manifest {path} is damaged: {error}",
            next=f"put back a copy of it, or its twin: tar -xOf {path.name.removesuffix(MANIFEST)} {INSIDE}",
        ) from error


def relative(place: Place, file: str) -> str:
    """Give the path of a resolved file as archives know it: relative to the data folder."""
    return f"{place}/{Status.RESOLVED}/{file}"


def read_member(pipeline: str, facts: Mapping[str, Any]) -> Member:
    """Build a member from what is stored, or raise ValueError when it leads anywhere else than it should."""
    place, file = place_of(str(facts["place"])), str(facts["name"])
    known = names.parse(pipeline, file)
    if place.pipeline != pipeline or known is None or known.id != facts["id"] or not _is_plain(file):
        raise ValueError(f"{names.printable(str(facts['path']))[:300]!r} is no file of {pipeline}")
    if facts["path"] != relative(place, file):
        raise ValueError(f"{names.printable(str(facts['path']))[:300]!r} is not where it should be")
    told = {key: value for key, value in facts.items() if key in _known(Member)}
    lineage = {key: value for key, value in facts.get("lineage", {}).items() if key in _known(Lineage)}
    return Member(**told | {"place": place, "lineage": Lineage(**lineage)})


def _note(pipeline: str, facts: Mapping[str, Any]) -> NoteMember:
    path = PurePosixPath(str(facts["path"]))
    *above, kept, file = path.parts
    if not _is_plain(file) or kept not in (".notes", ".logs") or above[:1] != [pipeline]:
        raise ValueError(f"{names.printable(str(path))[:300]!r} is no note of {pipeline}")
    if len(above) > 1:
        place_of("/".join(above))
    if str(facts["id"]) not in file:
        raise ValueError(f"{names.printable(str(path))[:300]!r} is another delivery's")
    return NoteMember(**{key: value for key, value in facts.items() if key in _known(NoteMember)})


def place_of(text: str) -> Place:
    """Read `books/extract` or `books/load/warehouse`, or raise ValueError."""
    pipeline, stage, location = (*text.split("/"), "")[:3]
    place = Place(pipeline=pipeline, stage=Stage(stage), location=location)
    is_name = _PIPELINE.fullmatch(location) or (location == layouts.REQUESTS and stage == Stage.EXTRACT)
    if str(place) != text or not _PIPELINE.fullmatch(pipeline) or not (is_name or not location):
        raise ValueError(f"{names.printable(text)[:300]!r} is no place")
    return place


def _is_plain(file: str) -> bool:
    return "/" not in file and "\0" not in file and file not in ("", ".", "..") and names.fits(file)


Kind = TypeVar("Kind", Member, NoteMember, Lineage)


def _known(kind: type[Kind]) -> set[str]:
    """Give the keys we know; a newer version may have added some."""
    return {one.name for one in fields(kind)}


# --- what is inside ----------------------------------------------------------------------------------------


def contents(manifest: Manifest, wanted: Iterable[str]) -> Iterator[tuple[str, tarring.Inside]]:
    """Give the paths that are wanted as they come in the tar, each with a stream to be read before the next.

    One pass, in bounded memory; the reader holds the bytes against the manifest. Raise `Final` for a tar that is
    not there or cannot be read to its end.
    """
    paths = set(wanted)
    for path, stream in tarring.files(manifest.path):
        if path in paths:
            yield path, stream
