"""Text to types: what a column of text means as integers, numbers, booleans, dates or times.

Works on whole columns; a cell means the same whatever its neighbours are, because a cell alone is a column of
one. Knows nothing of files and schemas. Used by the schema of units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum, auto
from typing import Any

#: characters of a value that a cause shows.
SHOWN = 80

_DIGITS = b"0123456789"
_LARGEST, _SMALLEST = 2**63 - 1, -(2**63)
_BOOLEANS = {
    **dict.fromkeys(("true", "yes", "1", "t", "y"), True),
    **dict.fromkeys(("false", "no", "0", "f", "n"), False),
}


class UnfitError(ValueError):
    """A text does not mean what it should; the message says why and can follow the value."""


def _only(characters: bytes, cells: Sequence[str]) -> str:
    """Give all cells as one text, or raise ValueError when there is any other character in them."""
    joined = "".join(cells)
    if joined.encode().translate(None, characters):
        raise ValueError
    return joined


def _trimmed(cells: Sequence[str]) -> Sequence[str]:
    return [cell.strip(" ") for cell in cells]


def integers(cells: Sequence[str]) -> Sequence[Any]:
    """Read decimal integers of 64 bits."""
    _only(_DIGITS + b"+- ", cells)
    values = list(map(int, cells))
    if max(values, default=0) > _LARGEST or min(values, default=0) < _SMALLEST:
        raise UnfitError("does not fit into 64 bits")
    return values


def numbers(cells: Sequence[str]) -> Sequence[Any]:
    """Read decimal numbers, with or without an exponent."""
    _only(_DIGITS + b"+-.eE ", cells)
    values = list(map(float, cells))
    # a sum is finite only if all of it is
    if not math.isfinite(sum(values)):
        raise UnfitError("is too large for a number")
    return values


def booleans(cells: Sequence[str]) -> Sequence[Any]:
    """Read true and false, yes and no, 1 and 0, in any case."""
    meaning = {cell: _BOOLEANS.get(cell.strip(" ").lower()) for cell in set(cells)}
    if None in meaning.values():
        raise ValueError
    return [meaning[cell] for cell in cells]


def dates(cells: Sequence[str]) -> Sequence[Any]:
    """Check dates written YYYY-MM-DD."""
    if " " in _only(_DIGITS + b"- ", cells):
        cells = _trimmed(cells)
    if not set(map(len, cells)) <= {10}:
        raise ValueError
    for cell in set(cells):
        date.fromisoformat(cell)
    return cells


def times(cells: Sequence[str]) -> Sequence[Any]:
    """Read ISO dates with times and write them all in the same way."""
    if " " in _only(_DIGITS + b"-:.,+TtZ ", cells):
        cells = _trimmed(cells)
    written = {cell: datetime.fromisoformat(cell).isoformat() for cell in set(cells)}
    return [written[cell] for cell in cells]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A type that text can be read as."""

    name: str
    read: Callable[[Sequence[str]], Sequence[Any]]


INTEGER = Kind(name="an integer", read=integers)
NUMBER = Kind(name="a number", read=numbers)
BOOLEAN = Kind(name="true or false", read=booleans)
DATE = Kind(name="a date (YYYY-MM-DD)", read=dates)
TIME = Kind(name="a date and time (YYYY-MM-DDTHH:MM:SS)", read=times)


class Empty(Enum):
    """What an empty text means."""

    NULL = auto()
    TEXT = auto()
    WRONG = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Coercion:
    """What the text of one field is read as: the first kind that fits, or text if that is allowed."""

    kinds: tuple[Kind, ...]
    #: what fits no kind stays as it is.
    text: bool
    empty: Empty
    #: values are kept out of causes.
    redacted: bool = False

    def column(self, cells: Sequence[str]) -> tuple[Sequence[Any], list[tuple[int, str]]]:
        """Read a column; give the values, and index and cause of every cell that does not fit."""
        try:
            return self._at_once(cells), []
        except ValueError:
            return self._one_by_one(cells)

    def cell(self, text: str) -> Any:
        """Read one text, or raise UnfitError whose message is the cause."""
        if not (text if self.text else text.strip(" ")):
            return self._nothing(text)
        reason = ""
        for kind in self.kinds:
            try:
                return kind.read((text,))[0]
            except UnfitError as error:
                reason = str(error)
            except ValueError:
                continue
        if self.text:
            return text
        raise UnfitError(f"{shown(text, self.redacted)} {reason or f'is not {self._wanted}'}")

    def _at_once(self, cells: Sequence[str]) -> Sequence[Any]:
        """Read a column in which every cell fits the only kind, or raise ValueError."""
        if not self.kinds and self.empty is Empty.NULL:
            return [cell or None for cell in cells] if "" in cells else cells
        if len(self.kinds) != 1 or self.text:
            raise ValueError
        read = self.kinds[0].read
        if "" not in cells:
            return read(cells)
        if self.empty is not Empty.NULL:
            raise ValueError
        filled = iter(read([cell for cell in cells if cell]))
        return [next(filled) if cell else None for cell in cells]

    def _one_by_one(self, cells: Sequence[str]) -> tuple[Sequence[Any], list[tuple[int, str]]]:
        values: list[Any] = []
        wrong: list[tuple[int, str]] = []
        for index, cell in enumerate(cells):
            try:
                values.append(self.cell(cell))
            except UnfitError as error:
                values.append(None)
                wrong.append((index, str(error)))
        return values, wrong

    def _nothing(self, text: str) -> str | None:
        if self.empty is Empty.WRONG:
            raise UnfitError("empty, but required")
        return text if self.empty is Empty.TEXT else None

    @property
    def _wanted(self) -> str:
        return " or ".join(kind.name for kind in self.kinds)


def shown(value: Any, redacted: bool) -> str:
    """Give a value as a cause quotes it: cut to a readable length, or not at all."""
    if redacted:
        return "the value"
    text = repr(value[: SHOWN + 1] if isinstance(value, str) else value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
