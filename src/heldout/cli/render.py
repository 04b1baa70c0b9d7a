"""What a person is shown: records as tables, from the columns that their types declare."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from heldout.core.context import Result
from heldout.core.files import write_text
from heldout.core.records import Table, to_json

_LEAST = 12
"""Characters that a column of text keeps on a narrow terminal."""


def show_result(result: Result, *, as_json: bool, save: str | None, full: bool) -> None:
    """Print a result: records as JSON, or tables and what a person reads after them."""
    if save is not None:
        write_text(Path(save), to_json(result.records) + "\n")
    if as_json:
        print_out(to_json(result.records))
        return
    shown = result.records if full or result.brief is None else result.brief
    for table in tables(shown, full=full):
        print_out(table)
    for line in result.lines:
        print_out(line)


def print_out(text: str) -> None:
    """Print to standard output."""
    sys.stdout.write(text + "\n")


def tables(records: Iterable[Any], *, full: bool = False) -> list[str]:
    """The records as texts of tables: one for each kind and title."""
    groups: dict[tuple[str, str], list[Any]] = {}
    for record in records:
        if getattr(record, "table", None) is not None:
            title = record.table.title.format_map(_Attributes(record))
            groups.setdefault((record.record, title), []).append(record)
    return [_table(title, members, full=full) for (_, title), members in groups.items()]


class _Attributes(dict[str, Any]):
    """The attributes of a record, for a format text."""

    def __init__(self, record: Any) -> None:
        self.record = record

    def __missing__(self, name: str) -> Any:
        return getattr(self.record, name)


def _table(title: str, records: Sequence[Any], *, full: bool) -> str:
    table: Table = records[0].table
    columns = [_column(text) for text in table.columns]
    if table.across:
        heads, rows = _pivoted(table, columns, records)
    else:
        heads = [head for head, _, _ in columns]
        rows = [[cell(record) for _, cell, _ in columns] for record in records]
    left = [kind == "" for _, _, kind in columns] + [False] * (len(heads) - len(columns))
    kept = [place for place in range(len(heads)) if any(row[place] for row in rows) or place == 0]
    heads, left = [heads[p] for p in kept], [left[p] for p in kept]
    rows = [[row[p] for p in kept] for row in rows]
    most = len(rows) if full or len(rows) <= table.rows + 2 else table.rows
    text = text_table(heads, rows[:most], left)
    more = f"\n… {len(rows) - most:,} more rows: --full" if most < len(rows) else ""
    return (f"{title}\n" if title else "") + text + more + "\n"


Cell = Callable[[Any], str]


def _pivoted(
    table: Table, columns: Sequence[tuple[str, Cell, str]], records: Sequence[Any]
) -> tuple[list[str], list[list[str]]]:
    """Rows by all columns but the last, and the last one for each value of a field beside them."""
    *names, (_, cell, _) = columns
    across = list(dict.fromkeys(str(getattr(record, table.across)) for record in records))
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for record in records:
        key = tuple(name(record) for _, name, _ in names)
        rows.setdefault(key, {})[str(getattr(record, table.across))] = cell(record)
    heads = [head for head, _, _ in names] + [value.replace("_", " ") for value in across]
    return heads, [
        [*key, *(cells.get(value, "") for value in across)] for key, cells in rows.items()
    ]


def _column(text: str) -> tuple[str, Cell, str]:
    """Heading, how a record's cell is written, and the form: no form is text, to the left."""
    head, equals, rest = text.partition("=")
    field, _, form = (rest if equals else text).partition(":")
    return (
        (head if equals else field.replace("_", " ")),
        lambda record: _cell(record, field, form),
        form,
    )


def _cell(record: Any, field: str, form: str) -> str:
    value = getattr(record, field)
    if value is None or value == "":
        return ""
    if not form:
        return plain(value)
    spec = form.removesuffix("[]")
    text = formatted(value, spec)
    if form.endswith("[]") and (record.low is not None or record.high is not None):
        limits = (
            "…" if limit is None else formatted(limit, spec) for limit in (record.low, record.high)
        )
        text += f" [{', '.join(limits)}]"
    return text


def formatted(value: float, spec: str) -> str:
    """A number in one of the forms of :class:`~heldout.core.records.Table`."""
    if "%" in spec:
        sign, _, digits = spec.partition("%")
        return f"{100 * value:{sign}.{digits or 2}f}"
    return f"{value:{spec}}"


def plain(value: Any) -> str:
    """A value as a person reads it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        return ", ".join(map(plain, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


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
