"""The progress bar of `etl run` and `etl clean`: files left, rows, units, rows per second, held back; bytes read.

Redraws when it is told something, without a thread, so that workers can be forked at any moment; says nothing
where nobody looks.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from etl import model


@dataclass(slots=True)
class Bar:
    """What is on the screen."""

    drawn: Progress
    task: TaskID
    begun: float = field(default_factory=time.monotonic)
    done: model.Progress = field(default_factory=model.Progress)
    _most: int = 0
    _resting: float = 0.0
    _paused: bool = False

    def copying(self, paths: Sequence[Path]) -> Iterator[Path]:
        """Pass the files through while they are copied in."""
        for number, path in enumerate(paths, 1):
            self._draw(f"copying in {number}/{len(paths)}", total=None)
            yield path

    def read(self, bytes_: int, total: int, words: str) -> None:
        """Show how much was read of how much there is, as far as that is known."""
        self._draw(words, total=max(total, bytes_) or None, completed=bytes_)

    def update(self, done: model.Progress, left: int, due: float, why: str) -> None:
        """Show what was done and what is left; `due` is when the next file that was put off is tried again.

        `why` says what pauses the work. It is also told in a line of its own, once, for whoever sees no bar.
        """
        self.done = done
        if why and not self._paused:
            self.drawn.console.print(f"paused: {why}", markup=False, highlight=False, soft_wrap=True)
        self._paused = bool(why)
        self._most = max(self._most, left)
        rate = done.rows / max(0.001, time.monotonic() - self.begun)
        words = [f"{left:,} left"]
        if done.rows:
            words.append(f"{done.rows:,} rows")
        words.append(f"{done.units:,} loaded")
        if done.rows:
            words.append(f"{rate:,.0f} rows/s")
        if done.held_back:
            words.append(f"[yellow]{done.held_back:,} held back[/]")
        if due > time.time():
            words.append(f"next try in {due - time.time():.0f} s")
        if why:
            words.append("[yellow]paused[/]")
        self._draw(" · ".join(words), total=self._most, completed=self._most - left)

    def _draw(self, words: str, *, total: int | None, completed: int = 0) -> None:
        self.drawn.update(self.task, description=words, total=total, completed=completed)
        if not self.drawn.disable and time.monotonic() - self._resting > 0.1:
            self._resting = time.monotonic()
            self.drawn.refresh()


@contextmanager
def bar(*, quiet: bool) -> Iterator[Bar]:
    """Show a bar on the terminal while the work lasts; nothing for programs and pipes."""
    console = Console(stderr=True)
    drawn = Progress(
        SpinnerColumn(),
        BarColumn(bar_width=16),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=console,
        auto_refresh=False,
        transient=True,
        disable=quiet or not sys.stderr.isatty(),
    )
    with drawn:
        yield Bar(drawn, drawn.add_task("starting", total=None))
