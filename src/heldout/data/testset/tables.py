"""The columns of a test set's tables, and the checks every table passes before it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from heldout.core.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

IMAGE_COLUMNS = (
    "image_id",
    "path",
    "uri",
    "sha256",
    "width",
    "height",
    "source",
    "licence",
    "attribution",
    "weight",
)
"""The fixed columns of ``images.parquet``; every other one there is a typed column of the set."""


def image_schema() -> pa.Schema:
    """The schema of the fixed columns of ``images.parquet``."""
    import pyarrow as pa

    types = {"width": pa.int32(), "height": pa.int32(), "weight": pa.float64()}
    return pa.schema([(name, types.get(name, pa.string())) for name in IMAGE_COLUMNS])


def truth_schema() -> pa.Schema:
    """The schema of ``truth/<name>.parquet``."""
    import pyarrow as pa

    labels = pa.list_(pa.string())
    return pa.schema(
        [
            ("image_id", pa.string()),
            ("class_id", pa.string()),
            ("correct", labels),
            ("unclear", labels),
            ("wrong", labels),
            ("problematic", pa.bool_()),
        ]
    )


def membership_schema() -> pa.Schema:
    """The schema of ``memberships.parquet``."""
    import pyarrow as pa

    return pa.schema([(name, pa.string()) for name in ("image_id", "column", "value")])


def image_table(columns: Mapping[str, Sequence[Any]]) -> pa.Table:
    """``images.parquet`` from columns: fixed ones cast, missing ones null, further ones kept."""
    import pyarrow as pa

    ids = columns["image_id"]
    arrays: dict[str, Any] = {}
    for field in image_schema():
        values = columns.get(field.name)
        arrays[field.name] = (
            pa.nulls(len(ids), field.type) if values is None else pa.array(values, field.type)
        )
    for name, values in columns.items():
        if name not in arrays:
            arrays[name] = values if isinstance(values, pa.ChunkedArray) else pa.array(values)
    table = pa.table(arrays)
    check_ids(table["image_id"], "the images table")
    return table


def truth_table(
    image_ids: Sequence[str],
    class_ids: Sequence[str | None],
    *,
    correct: Sequence[Sequence[str]] | None = None,
    unclear: Sequence[Sequence[str]] | None = None,
    wrong: Sequence[Sequence[str]] | None = None,
    problematic: Sequence[bool] | None = None,
) -> pa.Table:
    """``truth/<name>.parquet`` from columns; without ``correct`` an image's class is its truth."""
    import pyarrow as pa

    if correct is None and any(label is None for label in class_ids):
        raise UserError("a truth without lists needs a class for every image")
    n = len(image_ids)
    columns: dict[str, Sequence[Any]] = {
        "image_id": image_ids,
        "class_id": class_ids,
        "correct": [(label,) for label in class_ids] if correct is None else correct,
        "unclear": [()] * n if unclear is None else unclear,
        "wrong": [()] * n if wrong is None else wrong,
        "problematic": [False] * n if problematic is None else problematic,
    }
    schema = truth_schema()
    table = pa.table([pa.array(columns[f.name], f.type) for f in schema], schema=schema)
    check_truth(table)
    return table


def membership_table(rows: Sequence[tuple[str, str, str]]) -> pa.Table:
    """``memberships.parquet`` from (image_id, column, value) rows."""
    import pyarrow as pa

    columns = list(zip(*sorted(set(rows)), strict=True)) or [(), (), ()]
    return pa.table([pa.array(c, pa.string()) for c in columns], schema=membership_schema())


def memberships_by_column(table: pa.Table) -> dict[str, dict[str, list[str]]]:
    """Membership column -> image -> its sorted values."""
    found: dict[str, dict[str, list[str]]] = {}
    columns = (table[name].to_pylist() for name in ("column", "image_id", "value"))
    for column, image, value in sorted(zip(*columns, strict=True)):
        found.setdefault(column, {}).setdefault(image, []).append(value)
    return found


def check_ids(ids: Any, where: str) -> None:
    """Refuse empty, null or repeated image ids."""
    import pyarrow.compute as pc

    if ids.null_count or pc.any(pc.equal(ids, "")).as_py():
        raise UserError(f"{where} has a row without an image_id", fix="give every image an id")
    repeated = len(ids) - pc.count_distinct(ids).as_py()
    if repeated:
        counts = ids.value_counts()
        example = counts.filter(pc.greater(counts.field("counts"), 1))[0]["values"].as_py()
        raise UserError(
            f"{where} has {repeated} repeated image ids, such as {example!r}", fix="make ids unique"
        )


def first_outside(values: Any, known: Any) -> Any:
    """The first of some texts that is not among those known; None where all are."""
    import pyarrow.compute as pc

    foreign = values.filter(pc.invert(pc.is_in(values, value_set=known)))
    return foreign[0].as_py() if len(foreign) else None


def check_truth(table: Any) -> None:
    """Refuse a truth whose key (image_id, class_id) repeats."""
    import pyarrow.compute as pc

    if table["image_id"].null_count:
        raise UserError("a truth has rows without an image_id", fix="give every row an image_id")
    if pc.count_distinct(table["image_id"]).as_py() == len(table):
        return
    seen: set[tuple[str, str | None]] = set()
    for key in zip(table["image_id"].to_pylist(), table["class_id"].to_pylist(), strict=True):
        if key in seen:
            raise UserError(
                f"a truth has image {key[0]!r} with class {key[1]!r} twice", fix="keep one row"
            )
        seen.add(key)


def column_names(table: Any) -> list[str]:
    """The typed columns of an images table: all that are not fixed ones."""
    return [name for name in table.column_names if name not in IMAGE_COLUMNS]
