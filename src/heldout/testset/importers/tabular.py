"""Manifests: a CSV, TSV, JSON lines or Parquet file with an image id and a class in every row."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heldout.errors import BadFile, UserError
from heldout.files import sha256_file
from heldout.labels.label_space import LabelSpace
from heldout.testset.card import Card
from heldout.testset.columns import ColumnType
from heldout.testset.importers.label_kinds import LabelKind, class_ids_of
from heldout.testset.importers.table_files import (
    read_table_file,
    require_column,
    text_ids,
    typed_text,
)
from heldout.testset.tables import (
    IMAGE_COLUMNS,
    image_schema,
    image_table,
    membership_table,
    truth_table,
)
from heldout.testset.testset import TestSet, make_testset


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
    images_root: Path | None = None,
) -> TestSet:
    """A test set from a manifest, one row an image.

    ``label_kind``  how the class is given: ``id``, ``wnid``, ``index`` or unambiguous ``name``
    ``types``       column types; the rest are guessed
    ``separators``  text columns with several values in a cell, and what stands between them

    Columns named as the fixed columns of ``images.parquet`` (path, uri, sha256, width, height,
    source, licence, attribution, weight) fill those. Every other column becomes a typed column;
    a list column, or one with a separator, becomes memberships. Empty cells and NaN are null.
    """
    table = read_table_file(path)
    given = dict(types or {})
    split = dict(separators or {})
    for column in (*given, *split):
        require_column(table, column, path, "which a type or separator was given")
    ids = text_ids(require_column(table, id_column, path, "image ids"), path)
    labels = require_column(table, class_column, path, "classes").to_pylist()
    classes = class_ids_of(labels, label_space=label_space, label_kind=label_kind, path=path)
    columns: dict[str, Any] = {"image_id": ids}
    members: list[tuple[str, str, str]] = []
    kinds: dict[str, ColumnType] = {}
    for column in table.column_names:
        if column in (id_column, class_column):
            continue
        if column in IMAGE_COLUMNS:
            columns[column] = _fixed(table[column], column, path)
        elif column in split or _is_list(table[column]):
            kind = given.get(column, ColumnType(kind="categorical", multi=True))
            if not kind.multi:
                raise UserError(
                    f"{path}: column {column!r} has several values an image, its type says one",
                    fix="set multi in its type",
                )
            kinds[column] = kind
            members += _memberships(ids, table[column], column, split.get(column), path)
        else:
            columns[column] = _plain(table[column], column, path)
            if column in given:
                kinds[column] = given[column]
                if given[column].multi:
                    raise UserError(
                        f"{path}: column {column!r} is to have several values an image",
                        fix="give the separator between them",
                    )
    digest = sha256_file(path)
    counts = {"images": len(ids), "classes": len(set(classes))}
    parameters = {"id_column": id_column, "class_column": class_column, "label_kind": label_kind}
    card = Card(
        name=name,
        label_space=label_space.name,
        recipe={"name": "import/table", "parameters": parameters, "seed": None},
        parents=({"file": path.name, "sha256": digest},),
        counts=counts,
        columns=kinds,
        truths={
            "original": {
                "kind": "single",
                "source": path.name,
                "sha256": digest,
                "version": "unknown",
                "counts": counts,
            }
        },
        images_root=None if images_root is None else images_root.resolve().as_posix(),
    )
    return make_testset(
        card,
        images=image_table(columns),
        truths={"original": truth_table(ids, classes)},
        label_space=label_space,
        memberships=membership_table(members) if members else None,
    )


def _is_list(column: Any) -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_list(column.type)
        or pa.types.is_large_list(column.type)
        or pa.types.is_fixed_size_list(column.type)
    )


def _fixed(column: Any, name: str, path: Path) -> Any:
    """A fixed column in its own type; a weight is a number, zero or more."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = image_schema().field(name).type
    try:
        values = column.cast(kind)
    except pa.ArrowException as error:
        reason = (str(error).splitlines() or [""])[0]
        raise BadFile(
            path, f"column {name!r} cannot be read as {kind} ({reason})", fix="mend it"
        ) from None
    if name == "weight":
        present = values.drop_null()
        if not pc.all(
            pc.and_(pc.is_finite(present), pc.greater_equal(present, 0.0))
        ).as_py() and len(present):
            raise BadFile(path, "has a weight that is negative or no number", fix="mend it")
    return values


def _plain(column: Any, name: str, path: Path) -> Any:
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
    if pa.types.is_integer(kind):
        return column.cast(pa.int64())
    if pa.types.is_large_string(kind) or pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.string())
    raise BadFile(
        path,
        f"column {name!r} has type {kind}",
        fix="columns hold text, numbers, truth values or lists of text",
    )


def _memberships(
    ids: list[str], column: Any, name: str, separator: str | None, path: Path
) -> list[tuple[str, str, str]]:
    rows: list[tuple[str, str, str]] = []
    for image, cell in zip(ids, column.to_pylist(), strict=True):
        if cell is None:
            continue
        if isinstance(cell, str) and separator:
            values: list[Any] = [part.strip() for part in cell.split(separator)]
        elif isinstance(cell, list):
            values = cell
        else:
            raise BadFile(
                path,
                f"column {name!r} of image {image!r} is {cell!r}",
                fix="give text with its separator, or lists",
            )
        for value in values:
            if value is None or isinstance(value, list | dict):
                raise BadFile(
                    path,
                    f"column {name!r} of image {image!r} holds {value!r}",
                    fix="give lists of text",
                )
            if value != "":
                rows.append((image, name, str(value)))
    return rows
