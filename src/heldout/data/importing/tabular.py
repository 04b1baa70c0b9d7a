"""Manifests: a CSV, TSV, JSON lines or Parquet file with an image id and a class in every row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heldout.core.errors import BadFile, UserError
from heldout.core.files import sha256_file
from heldout.core.tables import read_table_file, require_column, text_ids
from heldout.data.images import check_id
from heldout.data.labels.label_space import LabelKind, LabelSpace, class_ids_of
from heldout.data.testset.columns import (
    ColumnType,
    is_list,
    list_cells,
    plain_column,
    read_declared,
    single_rows,
)
from heldout.data.testset.tables import (
    IMAGE_COLUMNS,
    image_schema,
    membership_table,
    truth_table,
)
from heldout.data.testset.testset import TestSet, imported

if TYPE_CHECKING:
    import pyarrow as pa

TRUTH_LISTS = ("correct", "unclear", "wrong")
_PROBLEMATIC = "problematic"
_SEPARATOR = "|"


def read_table(
    path: Path,
    *,
    name: str,
    label_space: LabelSpace,
    id_column: str = "image_id",
    class_column: str = "class_id",
    label_kind: LabelKind = "id",
    types: Mapping[str, ColumnType] | None = None,
    separators: Mapping[str, str] | None = None,
    several: bool = False,
) -> TestSet:
    """A test set from a manifest, one row per image.

    ``label_kind``   how the class is given: ``id``, ``wnid``, ``index`` or unambiguous ``name``
    ``types``        column types; the rest are guessed
    ``separators``   text columns with several values in a cell, and what is between them
    ``several``      an image may have several rows, each with another class, else all equal; a row
                     without a class is an image without this truth, not an error

    Columns named as the fixed columns of ``images.parquet`` (path, uri, sha256, width, height,
    source, licence, attribution, weight) fill those. With a column ``correct``, the lists
    ``correct``, ``unclear`` and ``wrong`` and the flag ``problematic`` become the truth, lists of
    text split at ``|``. Every other column becomes a typed column; a list column, or one with a
    separator, becomes memberships. Empty cells and NaN are null.
    """
    table = read_table_file(path)
    said = read_declared(path)
    given = {n: t for n, t in said.columns.items() if n in table.column_names} | dict(types or {})
    split = dict(separators or {})
    if path.suffix.lower() in (".csv", ".tsv"):
        split = {name: _SEPARATOR for name, kind in given.items() if kind.multi} | split
    for column in (*given, *split):
        require_column(table, column, path, "which a type or separator was given")
    ids = text_ids(
        require_column(table, id_column, path, "image ids"),
        path,
        unique=not several,
        fix="keep one row per image, or allow one for each of its classes with --several",
    )
    labels = require_column(table, class_column, path, "classes")
    truth_columns = ("correct" in table.column_names) * (*TRUTH_LISTS, _PROBLEMATIC)
    first = single_rows(table, ids, {id_column, class_column, *truth_columns}, path)
    images: dict[str, Any] = {"image_id": [ids[row] for row in first]}
    members: list[tuple[str, str, str]] = []
    kinds: dict[str, ColumnType] = {}
    for column in table.column_names:
        if column in (id_column, class_column, *truth_columns):
            continue
        cells = table[column].take(first)
        several_values = column in split or is_list(cells)
        if column in given or several_values:
            kinds[column] = given.get(column, ColumnType(kind="categorical", multi=True))
        if column in IMAGE_COLUMNS:
            images[column] = _fixed(cells, column, path)
        elif several_values:
            for image, values in zip(
                images["image_id"], list_cells(cells, split.get(column), column, path), strict=True
            ):
                members += [(image, column, value) for value in values or ()]
        else:
            images[column] = plain_column(cells, column, path)
    made = _truth(table, ids, labels, truth_columns, label_space, label_kind, path, several)
    return imported(
        name,
        label_space=label_space,
        images=images,
        truth=made,
        source=path.name,
        sha256=sha256_file(path),
        provenance={
            "kind": "multilabel" if truth_columns else "single",
            "counts": {"rows": len(made)},
        },
        memberships=membership_table(members) if members else None,
        recipe={
            "name": "import/table",
            "parameters": {
                "id_column": id_column,
                "class_column": class_column,
                "label_kind": label_kind,
                "separators": split,
            },
            "seed": None,
        },
        columns=kinds,
        factors=said.factors,
        clusters=said.clusters,
        units=said.units,
        images_namespace=name,
    )


def label_space_of_table(path: Path, *, name: str, class_column: str = "class_id") -> LabelSpace:
    """The label space of the classes that a table names, in order of text."""
    table = read_table_file(path)
    found: list[Any] = require_column(table, class_column, path, "classes").to_pylist()
    for column in TRUTH_LISTS if "correct" in table.column_names else ():
        if column in table.column_names:
            for values in list_cells(table[column], _SEPARATOR, column, path):
                found += values or ()
    classes = sorted({str(v) for v in found if isinstance(v, str | int) and v != ""})
    if not classes:
        raise BadFile(path, f"column {class_column!r} names no class", fix="give every row a class")
    return LabelSpace.from_ids(name, classes)


def _truth(
    table: pa.Table,
    ids: Sequence[str],
    labels: Any,
    truth_columns: Sequence[str],
    label_space: LabelSpace,
    label_kind: LabelKind,
    path: Path,
    several: bool,
) -> pa.Table:
    """The truth of the rows that have one: a class, or a list of correct labels."""
    given = labels.to_pylist()
    lists = {
        name: list_cells(table[name], _SEPARATOR, name, path)
        for name in truth_columns
        if name in table.column_names and name != _PROBLEMATIC
    }
    # A list column of text cannot tell an empty list from none: a class says that there is one.
    rows = [
        row
        for row, label in enumerate(given)
        if label is not None or lists.get("correct", {row: None})[row] is not None
    ]
    if not rows or (len(rows) < len(ids) and not several and not truth_columns):
        bare = next(row for row in range(len(ids)) if row not in set(rows))
        raise BadFile(
            path,
            f"row {bare + 1} (image {ids[bare]!r}) has no class",
            fix="give every row a class, or allow images without one with --several",
        )

    def classes(values: Sequence[Any], where: Sequence[int]) -> list[str]:
        return class_ids_of(
            values, label_space=label_space, label_kind=label_kind, path=path, rows=where
        )

    named = [row for row in rows if given[row] is not None]
    known = dict(zip(named, classes([given[row] for row in named], named), strict=True))
    filled = {
        name: [classes(cells[row] or [], [row] * len(cells[row] or [])) for row in rows]
        for name, cells in lists.items()
    }
    marks = None
    if truth_columns and _PROBLEMATIC in table.column_names:
        values = plain_column(table[_PROBLEMATIC], _PROBLEMATIC, path).to_pylist()
        marks = [values[row] if values[row] is not None else False for row in rows]
        if not all(isinstance(mark, bool) for mark in marks):
            raise BadFile(path, f"column {_PROBLEMATIC!r} is not true or false", fix="correct it")
    try:
        return truth_table(
            [ids[row] for row in rows],
            [known.get(row) for row in rows],
            problematic=marks,
            **filled,
        )
    except UserError as error:
        raise BadFile(path, error.message, fix=error.fix) from None


def _fixed(column: Any, name: str, path: Path) -> Any:
    """A fixed column in its own type; a weight is zero or more, a path stays below its folder."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = image_schema().field(name).type
    if pa.types.is_floating(column.type):  # tables of pandas have NaN where there is nothing
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    try:
        values = column.cast(kind)
    except pa.ArrowException as error:
        reason = (str(error).splitlines() or [""])[0]
        raise BadFile(
            path, f"column {name!r} cannot be read as {kind} ({reason})", fix="correct it"
        ) from None
    present = values.drop_null()
    if name == "weight" and len(present):
        fine = pc.and_(pc.is_finite(present), pc.greater_equal(present, 0.0))
        if not pc.all(fine).as_py():
            raise BadFile(path, "has a weight that is negative or no number", fix="correct it")
    if name == "path":
        for place in present.to_pylist():
            try:
                check_id(place)
            except UserError as error:
                raise BadFile(path, f"has the path {place!r}", fix=error.fix) from None
    return values
