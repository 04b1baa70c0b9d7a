"""What a person is shown: records as tables, from the columns that their types declare."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from heldout.core.context import Result
from heldout.core.files import write_text
from heldout.core.records import Grid, grids, to_json

_LEAST = 12
"""Characters that a column of text keeps on a narrow terminal."""


def show_result(result: Result, *, as_json: bool, save: str | None, full: bool) -> None:
    """Print a result: records as JSON, or tables and what a person reads after them."""
    if save is not None:
        write_text(Path(save), to_json(result.records, seal=True) + "\n")
    if as_json:
        print_out(to_json(result.records))
        return
    shown = result.brief
    if full or shown is None:
        there = {id(record) for record in result.records}
        shown = [*(r for r in shown or () if id(r) not in there), *result.records]
    for table in tables(shown, full=full):
        print_out(table)
    for line in result.lines:
        print_out(line)


def print_out(text: str) -> None:
    """Print to standard output."""
    sys.stdout.write(text + "\n")


def tables(records: Iterable[Any], *, full: bool = False) -> list[str]:
    """The records as texts of tables: one for each kind and title."""
    return [_text(grid, full=full) for grid in grids(records)]


def _text(grid: Grid, *, full: bool) -> str:
    most = len(grid.rows) if full else grid.shown
    text = text_table(grid.heads, grid.rows[:most], grid.left)
    more = f"\n… {len(grid.rows) - most:,} more rows: --full" if most < len(grid.rows) else ""
    return (f"{grid.title}\n" if grid.title else "") + text + more + "\n"


def text_table(heads: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[bool]) -> str:
    """Columns of text under their headings; on a terminal, long texts are cut to its width."""
    width = [max(len(head), *(len(row[p]) for row in rows)) for p, head in enumerate(heads)]
    if sys.stdout.isatty():
        most = shutil.get_terminal_size().columns
        while sum(width) + 2 * len(width) - 2 > most:
            texts = [p for p in range(len(width)) if left[p] and width[p] > _LEAST]
            if not texts:
                break
            width[max(texts, key=width.__getitem__)] -= 1
    lines = []
    for row in (heads, *rows):
        cells = [
            _cut(cell, width[p]).ljust(width[p]) if left[p] else cell.rjust(width[p])
            for p, cell in enumerate(row)
        ]
        lines.append("  ".join(cells).rstrip())
    if sys.stdout.isatty():
        lines[0] = f"\x1b[1m{lines[0]}\x1b[0m"
    return "\n".join(lines)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
