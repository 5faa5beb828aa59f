"""Long tables: thousands of lines in the look of the short ones, which are measured and folded cell by cell.

Only makes lines of text. Called by `common.print_table`, for which a library's care would take a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click
from rich.cells import cell_len, chop_cells

Cell = tuple[str, str]


def lines(
    heads: Sequence[str], rows: Sequence[Sequence[Cell]], right: Sequence[bool], width: int
) -> Iterator[str]:
    """Give the lines of a table whose cells are text and colour; what is widest is folded until all fits."""
    widths = [
        max(map(cell_len, (head, *(row[index][0] for row in rows)))) for index, head in enumerate(heads)
    ]
    room = width - 2 * (len(widths) - 1)
    while sum(widths) > room and max(widths) > 1:
        widest = widths.index(max(widths))
        others = sorted(widths)[-2] if len(widths) > 1 else 1
        widths[widest] = max(min(others, widths[widest] - 1), widths[widest] - (sum(widths) - room), 1)
    yield from _row([(head, "") for head in heads], widths, right)
    yield "─" * (sum(widths) + 2 * (len(widths) - 1))
    for row in rows:
        yield from _row(row, widths, right)


def _row(row: Sequence[Cell], widths: Sequence[int], right: Sequence[bool]) -> Iterator[str]:
    folded = [_folded(text, width) for (text, _), width in zip(row, widths, strict=True)]
    for number in range(max(map(len, folded))):
        parts = []
        for index, pieces in enumerate(folded):
            text = pieces[number] if number < len(pieces) else ""
            gap = " " * (widths[index] - cell_len(text))
            colour = row[index][1]
            shown = click.style(text, fg=colour) if colour and text else text
            parts.append(gap + shown if right[index] else shown + gap)
        yield "  ".join(parts).rstrip()


def _folded(text: str, width: int) -> list[str]:
    """Break a text at spaces where that does, else anywhere."""
    if cell_len(text) <= width:
        return [text]
    found = [""]
    for word in text.split(" "):
        joined = f"{found[-1]} {word}" if found[-1] else word
        if cell_len(joined) <= width:
            found[-1] = joined
        else:
            pieces = chop_cells(word, width) or [""]
            found = [*found, *pieces] if found[-1] else [*found[:-1], *pieces]
    return found
