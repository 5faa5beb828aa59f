"""Prints what was logged and printed while a file was worked, and follows it while it is.

Only reads. Called by `etl show --log`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field

import click

from etl.cli import common, selecting
from etl.config.reading import Config
from etl.errors import Final
from etl.files import attempt_logs, names, walking
from etl.files.attempt_logs import Line
from etl.files.deliveries import Piece
from etl.files.layout import Layout
from etl.model import Place, Status
from etl.services import left

#: seconds between two looks, and seconds that the last line of an attempt may come after its file was moved.
_LOOK_EVERY, _LATE = 0.2, 2.0


def show(config: Config, file: str, *, follow: bool, json_: bool) -> None:
    """Print the logs of what is meant by FILE, in the order of time."""
    reader = _Reader(config, Layout(config.data), file)
    if pieces := reader.pieces():
        _show(reader, pieces, follow=follow, json_=json_)
        return
    archived = left.find(config, file)
    for one in archived:
        with left.layout(one) as tree:
            reader = _Reader(config, tree, file, whose=(one.pipeline, one.id))
            _show(reader, reader.pieces(), follow=False, json_=json_)
    if not archived:
        raise Final(f"no file matches {file!r}", next="see them with: etl files")


def _show(reader: _Reader, pieces: list[Piece], *, follow: bool, json_: bool) -> None:
    if json_:
        told = [
            {"place": str(piece.place), "name": piece.name} | asdict(line)
            for line, piece in reader.news(pieces)
        ]
        common.print_json([one | {"attempt": _number(one["attempt"])} for one in told])
        return
    reader.print_news(pieces)
    if follow or sys.stdout.isatty():
        reader.follow(pieces)
    if not reader.offsets:
        click.echo("nothing was logged", err=True)


@dataclass(slots=True)
class _Reader:
    config: Config
    layout: Layout
    file: str
    #: the one delivery that is meant; without, those that FILE means are looked for each time.
    whose: tuple[str, str] | None = None
    #: how far each log was read; a file without a log is not in it.
    offsets: dict[tuple[Place, str], int] = field(default_factory=dict)
    #: the last line read of each log.
    last: dict[tuple[Place, str], Line] = field(default_factory=dict)

    def pieces(self) -> list[Piece]:
        """Give the pieces that are meant as they lie now: all of a delivery, or the one that FILE names."""
        found: list[Piece] = []
        meant = [self.whose] if self.whose else selecting.deliveries(self.config, self.layout, self.file)
        for pipeline, file_id in meant:
            locations = self.config.pipelines[pipeline].spec.load.locations
            delivery = walking.find(self.layout, pipeline, file_id, locations)
            found += delivery.pieces if delivery else []
        last = self.file.rpartition("/")[2]
        named = [piece for piece in found if piece.name == last and not piece.file.is_source]
        return named or found

    def news(self, pieces: Iterable[Piece]) -> list[tuple[Line, Piece]]:
        """Give the lines that were not given yet."""
        found: list[tuple[Line, Piece]] = []
        # a file with a twin is two pieces, and has one log
        for (place, name), piece in {(one.place, one.name): one for one in pieces}.items():
            start = self.offsets.get((place, name), 0)
            lines, end = attempt_logs.read(self.layout, place, name, start)
            if lines:
                self.offsets[place, name], self.last[place, name] = end, lines[-1]
            found += [(line, piece) for line in lines]
        return sorted(found, key=lambda one: one[0].at)

    def print_news(self, pieces: Iterable[Piece]) -> None:
        for line, piece in self.news(pieces):
            words = [*_where(piece), line.attempt, line.level, line.text]
            click.echo(f"{line.at} {' '.join(words)}")

    def follow(self, pieces: list[Piece]) -> None:
        """Go on until nothing of it is in process, and the last line of each attempt is there."""
        worked: set[tuple[Place, str]] = set()
        until = time.monotonic() + _LATE
        while True:
            now = {(one.place, one.name) for one in pieces if one.status is Status.IN_PROCESS}
            worked |= now
            if now:
                until = time.monotonic() + _LATE
            self.print_news(pieces)
            # a file is moved before its log says how the attempt ended
            late = any(key in worked and line.level != attempt_logs.END for key, line in self.last.items())
            if not now and (not late or time.monotonic() > until):
                return
            time.sleep(_LOOK_EVERY)
            pieces = self.pieces()


def _where(piece: Piece) -> Iterator[str]:
    yield str(piece.place).partition("/")[2]
    if not piece.file.is_source:
        yield names.printable(piece.name)


def _number(text: object) -> object:
    return int(text) if isinstance(text, str) and text.isdecimal() else text
