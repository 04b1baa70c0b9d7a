"""Tables of outputs: CSV, JSON lines and Parquet."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.errors import BadFile, LabelError
from heldout.core.tables import csv_header, read_table_file, text_ids
from heldout.data.labels.label_space import LabelKind, LabelSpace, class_finder
from heldout.models.predictions.import_arrays import (
    SUM_TOLERANCE,
    Outputs,
    check_indices,
    outputs_from_logits,
    outputs_from_probabilities,
)

_IDS = ("image_id", "filename", "file_name", "image", "id", "path")
_CLASSES = ("index", "topk", "top_k", "class_index", "class_id", "prediction", "predictions")
_NAMED_CLASSES = ("label", "labels")  # beside an index, a label is only its name
_LOGITS = ("logit", "logits")
_PROBABILITIES = ("prob", "probs", "probability", "probabilities")


@dataclass(frozen=True)
class TableShape:
    """The columns of a table of outputs: one of lists, or several with a rank or class each."""

    ids: str
    classes: tuple[str, ...]
    values: tuple[str, ...]
    probabilities: bool


def find_shape(names: Sequence[str], path: Path, *, label_space: LabelSpace) -> TableShape:
    """The columns by name."""
    shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    ids = next((name for name in _IDS if name in names), None)
    if ids is None:
        raise BadFile(
            path,
            "has no column of image ids",
            fix=f"name it image_id or filename; it has {shown}",
        )
    rest = [name for name in names if name != ids]
    classes = (
        _ranked(rest, _CLASSES)
        or _numbered(rest, "top", first=1)
        or _numbered(rest, "top_", first=1)
        or _ranked(rest, _NAMED_CLASSES)
    )
    values = _ranked(rest, (*_LOGITS, *_PROBABILITIES))
    if not classes and not values:
        values = _class_columns(rest, label_space)
    if not classes and not values:
        raise BadFile(
            path,
            "has neither classes nor logits",
            fix=f"name them index, label, topk, logit or prob; it has {shown}",
        )
    stems = {re.split(r"[_\d]", name)[0] for name in values}
    return TableShape(ids, classes, values, bool(stems & set(_PROBABILITIES)))


def _ranked(names: Sequence[str], stems: Sequence[str]) -> tuple[str, ...]:
    """The column of one of these names, or its numbered columns ``stem_0``, ``stem_1``, …"""
    for stem in stems:
        found = (stem,) if stem in names else _numbered(names, f"{stem}_", first=0)
        if found:
            return found
    return ()


def _numbered(names: Sequence[str], stem: str, *, first: int) -> tuple[str, ...]:
    return tuple(takewhile(names.__contains__, (f"{stem}{number}" for number in count(first))))


def _class_columns(names: Sequence[str], label_space: LabelSpace) -> tuple[str, ...]:
    """A column for every class, named by its id, alone or after ``logit_`` or ``prob_``."""
    present = set(names)
    for prefix in ("", "logit_", "prob_"):
        wanted = tuple(f"{prefix}{class_id}" for class_id in label_space.ids)
        if present.issuperset(wanted):
            return wanted
    return ()


def read_any_table(path: Path, *, label_space: LabelSpace) -> Any:
    """The table of a file, as Arrow.

    Columns of a CSV file that hold one value per class are read as numbers at once: a thousand
    logits per row as text would need several times their memory.
    """
    if path.suffix.lower() not in (".csv", ".tsv"):
        return read_table_file(path)
    import pyarrow as pa

    names = csv_header(path)
    found = _ranked(names, (*_LOGITS, *_PROBABILITIES))
    wide = found if len(found) > 1 else _class_columns(names, label_space)
    return read_table_file(path, types=dict.fromkeys(wide, pa.float32()))


_BETWEEN = re.compile(r"[\s,;|]+")


def number_cell(cell: Any) -> list[float]:
    """The numbers of a cell: a list, one number, or text such as ``[0.1 0.7]`` or ``0.1;0.7``.

    >>> number_cell("[1.5 -2e3]"), number_cell(0.5), number_cell(None)
    ([1.5, -2000.0], [0.5], [])
    """
    if cell is None:
        return []
    if isinstance(cell, str):
        return [float(item) for item in _items(cell)]
    values = cell if isinstance(cell, list) else [cell]
    return [float("nan") if value is None else float(value) for value in values]


def class_cell(cell: Any, *, lists: bool) -> list[Any]:
    """The classes of a cell, best first: a list, or one class; with ``lists``, text may be a list.

    Text in brackets is a list of items without spaces, quoted or not. Without brackets, several whole
    numbers are a list, and anything else is split only at ``;`` and ``|``, because class names hold
    commas and spaces.

    >>> class_cell("['n01440764' 'n01443537']", lists=True)
    ['n01440764', 'n01443537']
    >>> [class_cell(text, lists=True) for text in ("3, 7", "tench, Tinca tinca", "[3 7]")]
    [['3', '7'], ['tench, Tinca tinca'], ['3', '7']]
    """
    if cell is None or cell == "":
        return []
    if isinstance(cell, list):
        if any(isinstance(value, list | dict) for value in cell):
            raise ValueError("a list holds lists or objects")
        return cell
    if isinstance(cell, dict):
        raise ValueError("it is an object")
    if not isinstance(cell, str) or not lists:
        return [cell]
    text = cell.strip()
    if text.startswith("[") or text.endswith("]") or re.fullmatch(r"[\d\s,;|]*", text):
        return list(_items(text))
    return [part.strip() for part in re.split("[;|]", text) if part.strip()]


def _items(text: str) -> list[str]:
    """The items of a list that is written as text."""
    text = text.strip()
    if text.startswith("[") != text.endswith("]"):
        raise ValueError(f"{text[:40]!r} is a list that is cut short")
    if "..." in text or "…" in text:
        raise ValueError("it was shortened when it was printed")
    return [part.strip("'\"") for part in _BETWEEN.split(text.strip("[]")) if part]


def read_prediction_table(path: Path, *, label_space: LabelSpace) -> tuple[list[str], Outputs]:
    """Image ids and outputs from a table, whose columns are found by name.

    Ids are in ``image_id``, else ``filename``, ``file_name``, ``image``, ``id`` or ``path``. Classes
    are one column of lists, of one class each, or one column per rank; whole numbers are indices,
    texts are class ids, else names. Logits or probabilities are one column of lists or one column
    per class; beside classes, the value of each of them.

    Classes with values beside them are sorted by value, best first. Rows with fewer classes are
    filled with -1; a row with none is an image without a prediction. Full rows of probabilities
    p become the logits log p, whose softmax is p again.
    """
    table = read_any_table(path, label_space=label_space)
    shape = find_shape(table.column_names, path, label_space=label_space)
    ids = text_ids(table[shape.ids], path)
    values, lengths = np.zeros((len(ids), 0)), np.zeros(len(ids), np.int64)
    if shape.values:
        values, lengths = _values(table, shape.values, ids, path)
    if not shape.classes:
        return ids, _full(values, lengths, ids, path, label_space, shape.probabilities)
    classes, ranks = _classes(table, shape.classes, ids, path, label_space)
    gaps = classes < 0
    last = np.where(gaps, np.inf, 0.0)
    if shape.values:
        row = int((ranks != lengths).argmax())
        if ranks[row] != lengths[row]:
            raise BadFile(
                path,
                f"has {ranks[row]} classes and {lengths[row]} values for image {ids[row]!r}",
                fix="give one value per class",
            )
        _check_finite(np.where(gaps, 0.0, values), ids, path)
        last = np.where(gaps, np.inf, -values)
    # Best value first, ties in the order of the file; what has no class comes last.
    order = np.argsort(last, axis=1, kind="stable")
    classes = np.take_along_axis(classes, order, axis=1)
    most = int((~gaps).sum(axis=1).max())
    if not most:
        raise BadFile(path, "has no class in any row", fix="write or fetch it again")
    topk = check_indices(classes[:, :most], path, classes=len(label_space))
    if shape.values and most == len(label_space) and (topk >= 0).all():
        # All classes are there, so the values are full rows in another order.
        every = np.empty(topk.shape, np.float32)
        np.put_along_axis(every, classes, np.take_along_axis(values, order, axis=1), axis=1)
        return ids, _full(every, lengths, ids, path, label_space, shape.probabilities)
    return ids, Outputs(topk)


def _full(
    matrix: np.ndarray,
    lengths: np.ndarray,
    ids: Sequence[str],
    path: Path,
    space: LabelSpace,
    probabilities: bool,
) -> Outputs:
    """Outputs from one value for every class."""
    row = int((lengths != len(space)).argmax())
    if lengths[row] != len(space):
        raise BadFile(
            path,
            f"has {lengths[row]} values for image {ids[row]!r}, label space {space.name} has "
            f"{len(space)} classes",
            fix="name the model's label space with --classes, or give one value per class",
        )
    _check_finite(matrix, ids, path)
    if not probabilities:
        return outputs_from_logits(matrix, path, classes=len(space))
    sums = matrix.sum(axis=1, dtype=np.float64)
    bad = ~((matrix >= 0).all(axis=1) & (np.abs(sums - 1) <= SUM_TOLERANCE))
    if bad.any():
        row = int(bad.argmax())
        raise BadFile(
            path,
            f"has {int(bad.sum())} rows that are not probabilities, such as that of image "
            f"{ids[row]!r} with sum {sums[row]:.4g}",
            fix="say that the values are logits, or write them again",
        )
    return outputs_from_probabilities(matrix)


def _check_finite(matrix: np.ndarray, ids: Sequence[str], path: Path) -> None:
    bad = ~np.isfinite(matrix).all(axis=1)
    if bad.any():
        raise BadFile(
            path,
            f"has a missing, NaN or infinite value for image {ids[int(bad.argmax())]!r}",
            fix="predict this image again, or drop the row",
        )


def _padded(
    rows: Sequence[Sequence[Any]], fill: float, dtype: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of different lengths as (n, longest), filled up, and the lengths."""
    lengths = np.array([len(row) for row in rows], np.int64)
    made = np.full((len(rows), lengths.max(initial=0)), fill, dtype)
    with np.errstate(over="ignore"):  # too large for float32: infinite then, and refused later
        for place, row in enumerate(rows):
            made[place, : len(row)] = row
    return made, lengths


def _values(
    table: Any, names: Sequence[str], ids: Sequence[str], path: Path
) -> tuple[np.ndarray, np.ndarray]:
    """The values of each row, float32 (n, most), NaN where missing, and how many each row has."""
    import pyarrow as pa

    n = len(ids)
    if len(names) > 1:
        try:
            columns = [table[name].cast(pa.float32()) for name in names]
        except pa.ArrowException as error:
            reason = (str(error).splitlines() or [""])[0]
            raise BadFile(
                path, f"has a value that is not a number ({reason})", fix="correct it"
            ) from None
        matrix = np.column_stack([c.to_numpy(zero_copy_only=False) for c in columns])
        return matrix, np.full(n, len(names))
    column = table[names[0]].combine_chunks()
    if pa.types.is_list(column.type) and not column.null_count:
        flat, lengths = column.flatten(), np.diff(np.asarray(column.offsets))
        numbers = pa.types.is_floating(flat.type) or pa.types.is_integer(flat.type)
        if numbers and (lengths == lengths[0]).all():
            return flat.cast(pa.float32()).to_numpy(zero_copy_only=False).reshape(n, -1), lengths
    rows = []
    for cell, image in zip(column.to_pylist(), ids, strict=True):
        try:
            rows.append(number_cell(cell))
        except (TypeError, ValueError) as error:
            raise BadFile(
                path,
                f"has no list of numbers for image {image!r} ({error})",
                fix="correct that row",
            ) from None
    return _padded(rows, np.nan, np.float32)


def _classes(
    table: Any, names: Sequence[str], ids: Sequence[str], path: Path, space: LabelSpace
) -> tuple[np.ndarray, np.ndarray]:
    """The class indices of each row in the order of the file, int64 (n, most), -1 where there is
    none, and how many places each row has."""
    columns = [table[name].to_pylist() for name in names]
    rows: list[Sequence[Any]] = list(zip(*columns, strict=True))
    if len(names) == 1:
        lists = path.suffix.lower() in (".csv", ".tsv")
        for place, cell in enumerate(columns[0]):
            try:
                rows[place] = class_cell(cell, lists=lists)
            except ValueError as error:
                raise BadFile(
                    path,
                    f"has no list of classes for image {ids[place]!r} ({error})",
                    fix="correct that row",
                ) from None
    texts = [["" if cell is None else str(_whole(cell)) for cell in row] for row in rows]
    known = {"": -1}
    find = class_finder(space, _label_kind({text for row in texts for text in row}, space, path))
    for row, image in zip(texts, ids, strict=True):
        for text in row:
            if text in known:
                continue
            try:
                known[text] = space.index(find(text).id)
            except LabelError as error:
                named = names[0].startswith("label")
                hint = "; timm adds indices with --include-index" if named else ""
                raise BadFile(
                    path, f"image {image!r}: {error.message}", fix=error.fix + hint
                ) from None
    return _padded([[known[text] for text in row] for row in texts], -1, np.int64)


def _label_kind(texts: set[str], space: LabelSpace, path: Path) -> LabelKind:
    """The kind of label that fits all texts."""
    texts = texts - {""}
    numbers = all(re.fullmatch(r"-?[0-9]+", text) for text in texts)
    ids = {text for text in texts if text in space}
    if numbers and ids == texts and any(space.index(text) != int(text) for text in texts):
        raise BadFile(
            path,
            f"its classes are both ids and indices of {space.name}, and these disagree",
            fix="write the names of the classes instead",
        )
    # Some ids among texts that are not: ids with a wrong one, so that it is named as an id.
    return "index" if numbers else "id" if ids else "name"


def _whole(value: Any) -> Any:
    """A float that is a whole number as that: a gap in a column turns its indices into floats."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
