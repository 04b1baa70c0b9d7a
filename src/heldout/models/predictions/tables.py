"""Tables of outputs that carry image ids: CSV, JSON lines, Parquet, and timm's per-image files.

Every shape comes down to an id column and one of two things: the best classes, best first
(``index``, ``index_0`` …, ``label``, ``top1`` …), or one value for every class (``logits``,
``logit_0`` …, or a column for every class id). Rows are joined by image id, never by position.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from heldout.core.errors import BadFile, LabelError
from heldout.core.tables import text_ids
from heldout.data.labels.label_space import LabelKind, LabelSpace, class_finder
from heldout.models.predictions.arrays import Outputs, check_indices, outputs_from_logits
from heldout.models.predictions.predictions import top_k
from heldout.models.predictions.table_cells import class_cell, number_cell
from heldout.models.predictions.table_shapes import find_shape, read_any_table

Values = Literal["logit", "prob"]
_SUM_TOLERANCE = 1e-2  # probabilities of 1,000 classes rounded to float16 still sum to 1 within it


class PredictionTable(NamedTuple):
    """Outputs with the image id of every row."""

    image_ids: list[str]
    outputs: Outputs


def read_prediction_table(
    path: Path,
    *,
    label_space: LabelSpace,
    id_column: str | None = None,
    class_columns: Sequence[str] | None = None,
    value_columns: Sequence[str] | None = None,
    label_kind: LabelKind | None = None,
    values: Values | None = None,
) -> PredictionTable:
    """Outputs from a table. Columns are found by name unless they are given.

    ``id_column``      ``image_id``, else ``filename``, ``file_name``, ``image``, ``id`` or ``path``
    ``class_columns``  one column of classes (a list in each cell, or one class), or one a rank
    ``value_columns``  logits or probabilities: one column of lists or one a class; beside
                       classes, the value of each of them
    ``label_kind``     how classes are named; without it, whole numbers are indices and texts are
                       class ids, else names
    ``values``         ``logit`` or ``prob``; without it, told by the column's name

    Classes with values beside them are sorted by value, best first. Rows with fewer classes are
    filled with -1; a row with none is an image without a prediction. Full rows of probabilities
    p become the logits log p, whose softmax is p again.
    """
    table = read_any_table(path, label_space=label_space, value_columns=value_columns)
    shape = find_shape(
        table.column_names,
        path,
        label_space=label_space,
        id_column=id_column,
        class_columns=class_columns,
        value_columns=value_columns,
    )
    ids = text_ids(table[shape.ids], path)
    kind = values or ("prob" if shape.probabilities else "logit")
    given = _values(table, shape.values, ids, path) if shape.values else None
    if not shape.classes:
        return PredictionTable(ids, _full(given or [], ids, path, label_space, kind))
    ranked = _classes(table, shape.classes, ids, path, label_space, label_kind)
    if given is not None:
        ranked, given = _by_value(ranked, given, ids, path)
    present = [[index for index in row if index is not None] for row in ranked]
    if not any(present):
        raise BadFile(path, "has no class in any row", fix="write or fetch it again")
    topk = check_indices(_padded(present), path, classes=len(label_space))
    if given is not None and all(len(row) == len(label_space) for row in present):
        # All classes are there, so the values are full rows in another order.
        every = np.empty(topk.shape, dtype=np.float32)
        np.put_along_axis(every, topk.astype(np.int64), np.stack(given), axis=1)
        return PredictionTable(ids, _full(list(every), ids, path, label_space, kind))
    return PredictionTable(ids, Outputs(topk))


def _full(
    rows: Sequence[np.ndarray], ids: Sequence[str], path: Path, space: LabelSpace, kind: Values
) -> Outputs:
    """Outputs from one value for every class."""
    for row, image in zip(rows, ids, strict=True):
        if len(row) != len(space):
            raise BadFile(
                path,
                f"has {len(row)} values for image {image!r}, label space {space.name} has "
                f"{len(space)} classes",
                fix="name the model's label space with --classes, or give a class a value",
            )
        _check_finite(row, image, path)
    matrix = np.stack(rows)
    if kind == "logit":
        return outputs_from_logits(matrix, path, classes=len(space))
    sums = matrix.sum(axis=1, dtype=np.float64)
    bad = ~((matrix >= 0).all(axis=1) & (np.abs(sums - 1) <= _SUM_TOLERANCE))
    if bad.any():
        row_number = int(bad.argmax())
        raise BadFile(
            path,
            f"has {int(bad.sum())} rows that are no probabilities, such as that of image "
            f"{ids[row_number]!r} with sum {sums[row_number]:.4g}",
            fix="say that the values are logits, or write them again",
        )
    floor = np.finfo(np.float32).tiny  # a probability that was rounded to zero has no logarithm
    return Outputs(top_k(matrix), np.log(np.maximum(matrix, floor)))


def _check_finite(row: np.ndarray, image: str, path: Path) -> None:
    if not np.isfinite(row).all():
        raise BadFile(
            path,
            f"has a missing, NaN or infinite value for image {image!r}",
            fix="predict this image again, or drop the row",
        )


def _values(table: Any, names: Sequence[str], ids: Sequence[str], path: Path) -> list[np.ndarray]:
    """The values of each row, float32; missing ones are NaN, what is too large is infinite."""
    import pyarrow as pa

    if len(names) > 1:
        try:
            columns = [table[name].cast(pa.float32()) for name in names]
        except pa.ArrowException as error:
            reason = (str(error).splitlines() or [""])[0]
            raise BadFile(
                path, f"has a value that is no number ({reason})", fix="mend it"
            ) from None
        return list(np.column_stack([c.to_numpy(zero_copy_only=False) for c in columns]))
    column = table[names[0]].combine_chunks()
    if pa.types.is_list(column.type) and not column.null_count:
        flat = column.flatten()
        lengths = np.unique(np.diff(np.asarray(column.offsets)))
        if len(lengths) == 1 and (
            pa.types.is_floating(flat.type) or pa.types.is_integer(flat.type)
        ):
            values = flat.cast(pa.float32()).to_numpy(zero_copy_only=False)
            return list(values.reshape(len(ids), int(lengths[0])))
    rows = []
    for cell, image in zip(column.to_pylist(), ids, strict=True):
        try:
            with np.errstate(over="ignore"):  # infinite then, and refused later
                rows.append(np.array(number_cell(cell)).astype(np.float32))
        except (TypeError, ValueError) as error:
            raise BadFile(
                path, f"has no list of numbers for image {image!r} ({error})", fix="mend that row"
            ) from None
    return rows


def _classes(
    table: Any,
    names: Sequence[str],
    ids: Sequence[str],
    path: Path,
    label_space: LabelSpace,
    label_kind: LabelKind | None,
) -> list[list[int | None]]:
    """The class indices of each row in the order of the file; None where there is none."""
    if len(names) > 1:
        columns = [table[name].to_pylist() for name in names]
        rows = [
            [None if cell == "" else cell for cell in row] for row in zip(*columns, strict=True)
        ]
    else:
        rows = []
        for cell, image in zip(table[names[0]].to_pylist(), ids, strict=True):
            try:
                text = path.suffix.lower() in (".csv", ".tsv")
                rows.append(class_cell(cell, lists=text, names=label_kind in ("id", "name")))
            except ValueError as error:
                raise BadFile(
                    path,
                    f"has no list of classes for image {image!r} ({error})",
                    fix="mend that row",
                ) from None
    known: dict[tuple[type, Any], int | None] = {(type(None), None): None}
    find = _index_finder(rows, label_space, label_kind, path)
    found = []
    for row, image in zip(rows, ids, strict=True):
        for value in row:
            key = (type(value), value)
            if key not in known:
                try:
                    known[key] = find(value)
                except LabelError as error:
                    hint = (
                        "; timm adds indices with --include-index"
                        if names[0].startswith("label")
                        else ""
                    )
                    raise BadFile(
                        path, f"image {image!r}: {error.message}", fix=error.fix + hint
                    ) from None
        found.append([known[type(value), value] for value in row])
    return found


def _index_finder(
    rows: Sequence[Sequence[Any]], space: LabelSpace, label_kind: LabelKind | None, path: Path
) -> Callable[[Any], int]:
    """A function from a value to a class index, by the given kind or the one that fits all."""
    if label_kind is None:
        texts = {str(_whole(value)) for row in rows for value in row if value is not None}
        numbers = all(re.fullmatch(r"-?[0-9]+", text) for text in texts)
        ids = {text for text in texts if text in space}
        if numbers and ids == texts and any(space.index(text) != int(text) for text in texts):
            raise BadFile(
                path,
                f"its classes are both ids and indices of {space.name}, and these disagree",
                fix="say which with label_kind",
            )
        # Some ids among texts that are not: ids with a wrong one, so that it is named as an id.
        label_kind = "index" if numbers else "id" if ids else "name"
    find = class_finder(space, label_kind)
    return lambda value: space.index(find(_whole(value)).id)


def _whole(value: Any) -> Any:
    """A float that is a whole number as that: a gap in a column turns its indices into floats."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _by_value(
    ranked: Sequence[Sequence[int | None]],
    given: Sequence[np.ndarray],
    ids: Sequence[str],
    path: Path,
) -> tuple[list[list[int | None]], list[np.ndarray]]:
    """Classes and their values, best value first; ties keep the order of the file."""
    classes: list[list[int | None]] = []
    values: list[np.ndarray] = []
    for row, scores, image in zip(ranked, given, ids, strict=True):
        if len(row) != len(scores):
            raise BadFile(
                path,
                f"has {len(row)} classes and {len(scores)} values for image {image!r}",
                fix="give one value a class",
            )
        places = np.array([place for place, index in enumerate(row) if index is not None], np.intp)
        _check_finite(scores[places], image, path)
        order = places[np.argsort(-scores[places], kind="stable")]
        classes.append([row[place] for place in order])
        values.append(scores[order])
    return classes, values


def _padded(ranked: Sequence[Sequence[int]]) -> np.ndarray:
    """Rows of different lengths as int64 (n, longest), filled with -1."""
    topk = np.full((len(ranked), max(map(len, ranked))), -1, dtype=np.int64)
    for place, row in enumerate(ranked):
        topk[place, : len(row)] = row
    return topk
