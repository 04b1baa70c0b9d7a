"""Exports as one table: CSV, JSON lines or Parquet."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heldout.core.errors import ExistsError, UserError
from heldout.core.files import atomic_path, csv_text, sha256_file, write_text
from heldout.core.schema import write
from heldout.data.testset.columns import declared_file, read_declared
from heldout.data.testset.exporters.images import Export
from heldout.data.testset.tables import memberships_by_column
from heldout.data.testset.testset import TestSet, declared

if TYPE_CHECKING:
    import pyarrow as pa


SUFFIXES = (".csv", ".jsonl", ".parquet")
_LISTS = ("correct", "unclear", "wrong")


def export_tabular(
    testset: TestSet, path: Path, *, truth: str | None = None, replace: bool = False
) -> Export:
    """Write one table to ``path``; its ending chooses CSV, JSON lines or Parquet.

    Importing JSON lines or Parquet gives the same images, truth, columns and memberships back. In
    the text formats floats that are no numbers become null. CSV has no types: texts that look like
    numbers come back as numbers, empty ones as null, and lists need their separator ``|``. What the
    set declares of its columns is written beside the table, and read with it.
    """
    if path.suffix not in SUFFIXES:
        raise UserError(f"no table format {path.suffix!r}", fix=f"use {', '.join(SUFFIXES)}")
    if path.is_dir():
        raise ExistsError(f"{path} is a folder", fix="name a file")
    table = joined_table(testset, truth)
    beside = declared_file(path)
    said = declared(testset.card, testset.images, testset.memberships)
    with atomic_path(path) as temporary:
        _write(table, temporary, path.suffix)
        there = read_declared(path) == said
        unchanged = there and path.exists() and sha256_file(path) == sha256_file(temporary)
        if path.exists() and not unchanged and not replace:
            raise ExistsError(f"{path} holds something else", fix="name another file, or --replace")
        if said.stated():
            write(beside, said)  # first: a table is never without what is said of it
        else:
            beside.unlink(missing_ok=True)
    return Export(
        format=path.suffix[1:],
        folder=str(path),
        testset=testset.name,
        content_hash=testset.card.content_hash,
        truth=truth or testset.card.default_truth,
        rows=len(table),
        copied=0,
        files=1 + bool(said.stated()),
        unchanged=unchanged,
    )


def joined_table(testset: TestSet, truth: str | None = None) -> pa.Table:
    """Images, one truth and memberships as one table, in the order of images, then of classes.

    An image without a class in the truth keeps its row, its class null.
    """
    import pyarrow as pa

    rows = testset.truth(truth).to_pylist()
    labels: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        labels.setdefault(row["image_id"], []).append(row)
    detailed = any(
        row["correct"] != [row["class_id"]] or row["unclear"] or row["wrong"] or row["problematic"]
        for row in rows
    )
    reserved = ("class_id", *_LISTS, "problematic")
    positions: list[int] = []
    truths: list[dict[str, Any]] = []
    for position, image in enumerate(testset.image_ids.to_pylist()):
        found = labels.get(image, [dict.fromkeys(reserved)])
        truths += sorted(found, key=lambda row: row["class_id"] or "")
        positions += [position] * len(found)
    images = testset.images.take(pa.array(positions, pa.int64()))
    columns: dict[str, Any] = {
        "image_id": images["image_id"],
        "class_id": pa.array([row["class_id"] for row in truths], pa.string()),
    }
    if detailed:
        for name in _LISTS:
            columns[name] = pa.array([row[name] for row in truths], pa.list_(pa.string()))
        columns["problematic"] = pa.array([row["problematic"] for row in truths], pa.bool_())
    members = memberships_by_column(testset.memberships)
    for name in (*images.column_names, *members):
        if name in reserved:
            raise UserError(
                f"column {name!r} of {testset.name} has the name of a truth's column",
                fix="rename the column",
            )
    for name in images.column_names:
        if images[name].null_count < len(images):
            columns[name] = images[name]
    for name, values in members.items():
        column = [values.get(image, []) for image in images["image_id"].to_pylist()]
        columns[name] = pa.array(column, pa.list_(pa.string()))
    return pa.table(columns)


def join_list(values: Sequence[str]) -> str:
    """A list as one CSV cell; a value that could not be told apart again is refused.

    >>> join_list(["kitchen", "New York"])
    'kitchen|New York'
    """
    for value in values:
        if "|" in value or value != value.strip() or not value:
            raise UserError(
                f"CSV cannot hold {value!r} in a list joined by |", fix="write .jsonl or .parquet"
            )
    return "|".join(values)


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return join_list(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return _finite(value)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _write(table: pa.Table, path: Path, suffix: str) -> None:
    if suffix == ".parquet":
        import pyarrow.parquet as pq

        pq.write_table(table, path)
    elif suffix == ".csv":
        columns = [map(_cell, table[name].to_pylist()) for name in table.column_names]
        write_text(path, csv_text(table.column_names, list(zip(*columns, strict=True))))
    else:
        with path.open("w", encoding="utf-8", newline="") as handle:
            for row in table.to_pylist():
                plain = {name: _finite(value) for name, value in row.items()}
                handle.write(json.dumps(plain, ensure_ascii=False, allow_nan=False) + "\n")
