"""Columns of a manifest as a test set keeps them: plain values, lists of text, one row an image."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from heldout.core.errors import BadFile
from heldout.core.tables import typed_text


def is_list(column: Any) -> bool:
    """Whether a column holds lists."""
    import pyarrow as pa

    return bool(
        pa.types.is_list(column.type)
        or pa.types.is_large_list(column.type)
        or pa.types.is_fixed_size_list(column.type)
    )


def plain_column(column: Any, name: str, path: Path) -> Any:
    """A column of texts, numbers or truth values; dates become text, NaN becomes null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_string(kind):
        return typed_text(column) if path.suffix.lower() in (".csv", ".tsv") else column
    if pa.types.is_floating(kind):
        values = column.cast(pa.float64())
        return pc.if_else(pc.is_nan(values), pa.scalar(None, pa.float64()), values)
    if pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return column
    if pa.types.is_unsigned_integer(kind) and kind.bit_width == 64:
        return column  # may be larger than a signed number holds
    if pa.types.is_integer(kind):
        return column.cast(pa.int64())
    if pa.types.is_large_string(kind) or pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.string())
    raise BadFile(
        path,
        f"column {name!r} has type {kind}",
        fix="columns hold text, numbers, truth values or lists of text",
    )


def list_cells(column: Any, separator: str | None, name: str, path: Path) -> list[list[str] | None]:
    """The values of each cell as texts, without empty ones; None where the cell is null."""
    rows: list[list[str] | None] = []
    for number, cell in enumerate(column.to_pylist(), start=1):
        if cell is None:
            rows.append(None)
        elif isinstance(cell, str) and separator:
            parts = (part.strip() for part in cell.split(separator))
            rows.append([part for part in parts if part])
        elif isinstance(cell, list) and not any(
            value is None or isinstance(value, list | dict) for value in cell
        ):
            rows.append([str(value) for value in cell if value != ""])
        else:
            raise BadFile(
                path,
                f"column {name!r} holds {str(cell)[:40]!r} in row {number}",
                fix="give lists of text, or text with its separator",
            )
    return rows


def single_rows(table: Any, ids: Sequence[str], without: Collection[str], path: Path) -> list[int]:
    """The first row of every image; its other rows must be equal, but for columns ``without``."""
    first: dict[str, int] = {}
    later: list[tuple[int, int]] = []
    for row, image in enumerate(ids):
        if image in first:
            later.append((first[image], row))
        else:
            first[image] = row
    if later:
        for name in table.column_names:
            if name in without:
                continue
            cells = table[name].to_pylist()
            for one, other in later:
                if cells[one] != cells[other]:
                    raise BadFile(
                        path,
                        f"image {ids[one]!r} has {name} {cells[one]!r} in row {one + 1} and "
                        f"{cells[other]!r} in row {other + 1}",
                        fix="rows of one image may differ in their class only",
                    )
    return list(first.values())
