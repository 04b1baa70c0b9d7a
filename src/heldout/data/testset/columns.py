"""Column types, and the columns of a manifest as a test set keeps them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from heldout.core.errors import BadFile, UserError
from heldout.core.schema import Document, read
from heldout.core.tables import typed_text

Kind = Literal["categorical", "ordered", "circular", "grid", "text"]
KINDS: tuple[Kind, ...] = ("categorical", "ordered", "circular", "grid", "text")


class ColumnType(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The type of one column.

    ``kind``    categorical (bars), ordered (a curve), circular (a closed curve), grid (one axis of
                a heat map), or text (never sliced)
    ``unit``    what numbers count, such as ``degrees``
    ``period``  circular columns: the value at which it comes round, such as 360
    ``order``   ordered or categorical columns: the values in the order to show them
    ``grid``    grid columns: the name that the two axes of one heat map share
    ``axis``    grid columns: ``x`` or ``y``
    ``multi``   a membership: an image may have many values
    ``of_class``  a membership whose values name the class that they are about, ``class(…)``: such a
                value holds the rows of that class alone, where an image has rows of several
    """

    kind: Kind
    unit: str | None = None
    period: int | float | None = None
    order: tuple[str | int | float, ...] = ()
    grid: str | None = None
    axis: Literal["x", "y"] | None = None
    multi: bool = False
    of_class: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UserError(
                f"{self.kind!r} is not a column type", fix=f"use one of {', '.join(KINDS)}"
            )
        if self.kind == "circular" and not self.period:
            raise UserError("a circular column needs its period", fix="such as period = 360")
        if self.kind == "grid" and (not self.grid or self.axis not in ("x", "y")):
            raise UserError(
                "a grid column needs the grid's name and its axis", fix="axis = 'x' or 'y'"
            )
        if self.of_class and not self.multi:
            raise UserError("only a membership can be of classes", fix="multi = true")

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object, without the fields that are not set."""
        return cast("dict[str, Any]", msgspec.to_builtins(self))


class Declared(Document, frozen=True, kw_only=True):
    """What a test set says of its columns and the values do not tell; the fields are the card's.

    Numbers depend on it (which rows a slice holds, which intervals are clustered), so it is part of
    the content hash, and goes with an exported table as a file of its own.
    """

    schema_version: int = 1
    columns: Mapping[str, ColumnType] = {}
    factors: tuple[str, ...] = ()
    clusters: str | None = None
    units: tuple[str, ...] = ()

    def stated(self) -> dict[str, Any]:
        """What is declared, as JSON; empty where nothing is."""
        fields = msgspec.to_builtins(self)
        return {name: fields[name] for name in self.__struct_fields__[1:] if fields[name]}


def declared_file(table: Path) -> Path:
    """Where the declarations of an exported table are: beside it."""
    return table.with_name(f"{table.name}.columns.json")


def read_declared(table: Path) -> Declared:
    """What was declared of the columns of an exported table; nothing where no file says."""
    path = declared_file(table)
    return read(path, Declared, fix="export the table again") if path.exists() else Declared()


def guess_type(column: Any) -> ColumnType:
    """The type of an untyped column: numbers ordered, few repeated texts categorical, else text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    present = len(column) - column.null_count
    if present and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return ColumnType(kind="ordered")
    distinct = len(pc.unique(column.drop_null())) if present else 0
    if distinct > 50 and distinct > present / 2:
        return ColumnType(kind="text")
    return ColumnType(kind="categorical")


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
