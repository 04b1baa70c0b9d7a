"""What the command line says: records to standard output, everything else to standard error.

Verbs hand their records to :func:`emit`. Inside ``heldout run`` and ``heldout reproduce`` the
records of all steps are gathered instead, and printed once at the end.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heldout.measure.score.records import Record

_gathered: ContextVar[list[Record] | None] = ContextVar("gathered", default=None)


def out(text: str = "") -> None:
    """Print to standard output."""
    sys.stdout.write(text + "\n")


def note(text: str) -> None:
    """Say something that the user should know, on standard error."""
    sys.stderr.write(f"note: {text}\n")


def say(text: str) -> None:
    """Say what was done, on standard error."""
    sys.stderr.write(text + "\n")


@contextmanager
def gathering() -> Iterator[list[Record]]:
    """Gather the records of all verbs that run inside the block."""
    records: list[Record] = []
    token = _gathered.set(records)
    try:
        yield records
    finally:
        _gathered.reset(token)


def emit(
    records: Sequence[Record],
    *,
    as_json: bool,
    save: Path | None = None,
    show: Callable[[Sequence[Record]], None] | None = None,
) -> None:
    """Hand over records: gathered, or printed as JSON, or shown as tables; saved where asked."""
    from heldout.core.files import write_text
    from heldout.core.records import to_json

    if save is not None:
        write_text(save, to_json(records) + "\n")
    gathered = _gathered.get()
    if gathered is not None:
        gathered.extend(records)
    elif as_json:
        out(to_json(records))
    else:
        from heldout.cli.tables import show_records

        (show or show_records)(records)


def emit_json(value: Any) -> None:
    """Print any value as JSON; of a list an item a line."""
    if isinstance(value, list):
        lines = [json.dumps(item, ensure_ascii=False, allow_nan=False) for item in value]
        out("[\n" + ",\n".join(lines) + "\n]" if lines else "[]")
    else:
        out(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def check_file(path: Path | None) -> None:
    """Refuse a path that no file can be written to, before the work and not after it."""
    from heldout.core.errors import UserError

    if path is None:
        return
    if path.is_dir():
        raise UserError(f"{path} is a folder", fix="name a file")
    for place in path.parents:
        if place.exists() and not place.is_dir():
            raise UserError(f"{place} is a file", fix=f"{path} cannot be in it; name another file")


_NAME = 60
"""Characters of a row's name that stand on one line, however many numbers stand beside it."""


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1
) -> None:
    """A table for a person: the first ``left`` columns to the left, the others to the right."""
    import io

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if title:
        out(title)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place < left else "right", no_wrap=place >= left)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    # Drawn into a text first: the console would answer a closed pipe with an exit of its own.
    terminal = sys.stdout.isatty()
    drawn = io.StringIO()
    width = Console().width
    if not terminal:  # a file has no right edge: beside many numbers, names would be cut to nothing
        longest = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
        needed = [min(size, _NAME) for size in longest[:left]] + longest[left:]
        width = max(160, sum(needed) + 2 * len(columns))
    Console(file=drawn, width=width, force_terminal=terminal).print(table)
    out(drawn.getvalue())
