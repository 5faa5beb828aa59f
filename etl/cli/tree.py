"""Draws the lineage of a delivery as a tree that fits the terminal, 80 columns where there is none.

Prints and decides nothing. Called by `etl show --tree`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from etl.cli import common
from etl.files import names
from etl.model import Stage
from etl.services.lineage import Lineage, Step

#: files and attempts of a file that are drawn one by one; `--json` has them all.
MOST_FILES, MOST_ATTEMPTS = 50, 5


def draw(told: Lineage) -> None:
    """Print the tree of a delivery."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=80)
    one = told.delivery
    tree = Tree(_line(names.printable(one.note.given), one.note.id, one.verdict, said=one.said))
    _source(tree, told)
    for stage, steps in (("extract", told.extract), ("transform", told.transform)):
        for step in steps:
            _step(tree, stage if step.piece.file.is_source else names.printable(step.piece.name), step)
    _load(tree, told)
    _rows(tree, told)
    _verdicts(tree, told)
    _archived(tree, told)
    _acts(tree, told)
    console.print(tree)


def _source(tree: Tree, told: Lineage) -> None:
    note = told.delivery.note
    origin = names.printable(note.origin) or "dropped"
    branch = tree.add(_line("source", f"{note.size:,} bytes", f"arrived {_when(note.arrived)}", said=origin))
    if note.sha256:
        branch.add(Text(f"sha256 {note.sha256[:16]}…", style="dim"))


def _step(tree: Tree, label: str, step: Step) -> Tree:
    """Draw one file at one place: how it stands, what it made, who tried it, and why it failed."""
    note, words = step.piece.note, []
    if step.since:
        words.append(_when(step.since))
    if note.attempt > 1 or (note.attempt and not step.attempts):
        words.append(common.number(note.attempt, "attempt"))
    branch = tree.add(_line(label, step.status, *words, said=note.said))
    if note.generation:
        branch.add(Text(f"generation {note.generation}, recipe {note.recipe[:12]}", style="dim"))
    if step.piece.place.stage is Stage.TRANSFORM and (note.children or note.units):
        branch.add(
            Text(
                f"{common.number(note.rows, 'row')} -> {common.number(note.units, 'unit')} "
                f"in {common.number(note.children, 'unit file')}, {note.held_back:,} held back"
            )
        )
    for line in _attempts(step):
        branch.add(Text(line, style="dim"))
    if step.reason:
        branch.add(Text(names.printable(str(step.reason.get("summary", ""))), style="red"))
        if step.reason.get("next"):
            branch.add(Text(f"next: {names.printable(str(step.reason['next']))}"))
    return branch


def _attempts(step: Step) -> Iterator[str]:
    """Say when each attempt was, how long it took, and who made it."""
    if (more := len(step.attempts) - MOST_ATTEMPTS) > 0:
        yield f"{common.number(more, 'earlier attempt')}"
    for one in step.attempts[-MOST_ATTEMPTS:]:
        words = [f"attempt {one.attempt}"]
        begun = one.begun or one.ended
        words += [_when(begun)] if begun else []
        words += [f"{one.seconds:.2f} s"] if one.seconds is not None else []
        words += [word for word in (one.worker, one.outcome) if word]
        yield names.printable("  ".join(words))


def _load(tree: Tree, told: Lineage) -> None:
    files = list(dict.fromkeys(step.piece.name for step in told.load))
    count = len(files) + told.folded
    if not count:
        return
    branch = tree.add(_line("load", common.number(count, "unit file")))
    if told.folded:
        branch.add(_line(f"{common.number(told.folded, 'unit file')}", "resolved"))
    for step in told.load[:MOST_FILES]:
        location = step.piece.place.location
        name = names.printable(step.piece.name)
        _step(branch, f"{name} at {location}" if location else name, step)
    if (more := len(told.load) - MOST_FILES) > 0:
        branch.add(Text(f"{more:,} more, with --json"))


def _rows(tree: Tree, told: Lineage) -> None:
    one = told.delivery
    if not one.loaded:
        return
    branch = tree.add(Text("rows", style="bold"))
    for location, units in sorted(one.loaded.items()):
        branch.add(Text(f"{location}: {units:,} of {common.number(one.units, 'unit')}"))


def _verdicts(tree: Tree, told: Lineage) -> None:
    for what, why in told.discarded.items():
        tree.add(_line(names.printable(what), "discarded", said=names.printable(why)))
    if not told.verdicts.records:
        return
    branch = tree.add(Text("verdicts", style="bold"))
    for record in told.verdicts.records:
        said = names.printable(record.said)
        verdict = branch.add(_line(str(record.number), record.verdict, _when(record.at), said=said))
        for key, followed in told.verdicts.followed.items():
            number, _, what = key.partition("/")
            if number == str(record.number):
                verdict.add(Text(names.printable(_followed(what, followed))))


def _archived(tree: Tree, told: Lineage) -> None:
    """Draw which archives hold what of it."""
    for path in dict.fromkeys(one["archive"] for one in told.archived):
        branch = tree.add(Text(f"archived  {names.printable(path)}", style="bold"))
        for one in told.archived:
            if one["archive"] == path:
                branch.add(Text(names.printable(str(one["member"]))))


def _acts(tree: Tree, told: Lineage) -> None:
    if not told.acts:
        return
    branch = tree.add(Text("acts", style="bold"))
    for act in told.acts:
        branch.add(Text(f"{act} ({common.number(len(act.files), 'file')})"))


def _followed(what: str, one: Any) -> str:
    to = f" to {one.target}" if one.target else ""
    said = f": {one.said}" if one.said else ""
    tries = "1 try" if one.tries == 1 else f"{one.tries:,} tries"
    return f"{what}{to}: {one.state} ({tries}){said}"


def _line(label: str, *words: str, said: str = "") -> Text:
    """Put a line together: its label, words set apart, what was said in brackets."""
    line = Text(label, style="bold")
    for word in filter(None, words):
        line.append("  ")
        line.append(word, style=f"not bold {common.style(word)}".strip())
    if said:
        line.append(f"  ({said})", style="not bold")
    return line


def _when(moment: float) -> str:
    return datetime.fromtimestamp(moment).isoformat(" ", "seconds")
