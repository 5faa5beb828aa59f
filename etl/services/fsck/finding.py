"""What a look finds, what it is to look at, and what it has looked at so far.

Values only. Made by the checks beside this module, shown by `etl fsck`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One broken promise: where, what is wrong, what to do; and, where that is safe, how to mend it."""

    #: the promise, as docs/reference.md lists them: "P1".
    promise: str
    #: one word for the kind of damage; a contract with programs that read `--json`.
    check: str
    place: str
    name: str
    what: str
    next: str
    #: does what is safe and says what it did; "" when there was nothing left to do.
    fix: Callable[[], str] | None = field(default=None, compare=False, repr=False)

    @property
    def about(self) -> tuple[str, str, str]:
        """Tell what it is about: found again a moment later, it is no passing thing."""
        return self.check, self.place, self.name

    def __str__(self) -> str:
        return f"{self.place}: {self.name} {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What to look at, and how hard."""

    #: names of pipelines; none means all.
    pipelines: tuple[str, ...] = ()
    #: also hash source files.
    deep: bool = False
    #: seconds between finding something and looking at it again; 0 looks once, where nobody works.
    pause: float = 1.0


@dataclass(slots=True)
class Tally:
    """What was looked at; `watch` is told now and then, for whoever waits."""

    files: int = 0
    notes: int = 0
    keys: int = 0
    locations: int = 0
    watch: Callable[[str], None] = lambda _words: None

    def doing(self, words: str) -> None:
        """Tell what is being looked at."""
        self.watch(f"{words} · {self.files:,} files, {self.notes:,} notes, {self.keys:,} keys")

    def start_over(self) -> None:
        """Begin to count anew: what is looked at twice is counted once."""
        self.files = self.notes = self.keys = self.locations = 0
