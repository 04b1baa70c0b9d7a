"""Tables of outputs: CSV, JSON lines, Parquet and timm's four JSON layouts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.errors import BadFile, LabelError
from heldout.core.files import existing_file
from heldout.core.tables import csv_header, read_table_file, table_from_rows, text_ids
from heldout.data.labels.label_space import LabelKind, LabelSpace, class_finder
from heldout.models.predictions.import_arrays import Outputs, check_indices, outputs_from_logits
from heldout.models.predictions.predictions import top_k

_IDS = ("image_id", "filename", "file_name", "image", "id", "path")
_CLASSES = ("index", "topk", "top_k", "class_index", "class_id", "prediction", "predictions")
_NAMED_CLASSES = ("label", "labels")  # beside an index, a label is only its name
_LOGITS = ("logit", "logits")
_PROBABILITIES = ("prob", "probs", "probability", "probabilities")


@dataclass(frozen=True)
class Shape:
    """The columns of a table of outputs: one of lists, or several with a rank or class each."""

    ids: str
    classes: tuple[str, ...]
    values: tuple[str, ...]
    probabilities: bool


def find_shape(names: Sequence[str], path: Path, *, label_space: LabelSpace) -> Shape:
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
    return Shape(ids, classes, values, bool(stems & set(_PROBABILITIES)))


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
    suffix = path.suffix.lower()
    if suffix == ".json":
        return _read_json_table(path)
    if suffix not in (".csv", ".tsv"):
        return read_table_file(path)
    import pyarrow as pa

    names = csv_header(path)
    found = _ranked(names, (*_LOGITS, *_PROBABILITIES))
    wide = found if len(found) > 1 else _class_columns(names, label_space)
    return read_table_file(path, types=dict.fromkeys(wide, pa.float32()))


def _read_json_table(path: Path) -> Any:
    """timm's JSON: an object per file name, ``columns`` and ``data``, a list of rows, or lines."""
    try:
        value = _parse(existing_file(path, "file").read_text(encoding="utf-8-sig"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise BadFile(path, f"not valid JSON ({error})", fix="write or fetch it again") from None
    rows = _json_rows(value)
    if rows is None:
        raise BadFile(
            path,
            "is not a table of outputs",
            fix="give a list of objects, an object for every file name, or columns and data",
        )
    if not rows:
        raise BadFile(path, "has no rows", fix="write or fetch it again")
    return table_from_rows(rows, path)


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        lines = [line for line in text.splitlines() if line.strip()]
        if error.msg != "Extra data" or len(lines) < 2:
            raise
        return [json.loads(line) for line in lines]


def _json_rows(value: Any) -> list[dict[str, Any]] | None:
    if isinstance(value, dict) and isinstance(value.get("columns"), list):
        names, data = value["columns"], value.get("data")
        if not isinstance(data, list) or not all(
            isinstance(row, list) and len(row) == len(names) for row in data
        ):
            return None
        return [dict(zip(names, row, strict=True)) for row in data]
    if isinstance(value, dict) and all(isinstance(row, dict) for row in value.values()):
        return [{"filename": name, **row} for name, row in value.items()]
    if isinstance(value, list) and all(isinstance(row, dict) for row in value):
        return value
    return None


_QUOTED = re.compile(r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)\"""")
_BETWEEN = re.compile(r"[\s,;|]+")


def number_cell(cell: Any) -> list[float]:
    """The numbers of a cell: a list, one number, or text such as ``[0.1 0.7]`` or ``0.1;0.7``.

    >>> number_cell("[1.5 -2e3]"), number_cell(0.5), number_cell(None)
    ([1.5, -2000.0], [0.5], [])
    """
    if cell is None:
        return []
    if isinstance(cell, str):
        return [float(part) for part in _parts(cell)]
    return [
        float("nan") if value is None else float(value)
        for value in (cell if isinstance(cell, list) else [cell])
    ]


def class_cell(cell: Any, *, lists: bool) -> list[Any]:
    """The classes of a cell, best first: a list, or one class; with ``lists``, text may be a list.

    Text in brackets is a list, its items quoted or not. Without brackets, several whole numbers
    are a list, and anything else is split only at ``;`` and ``|``, because class names hold
    commas and spaces.

    >>> class_cell("['tench, Tinca tinca' \\"jack-o'-lantern\\"]", lists=True)
    ['tench, Tinca tinca', "jack-o'-lantern"]
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
    if text.startswith("[") or text.endswith("]"):
        quoted = _QUOTED.findall(text)
        if not quoted:
            return list(_parts(text))
        if _BETWEEN.sub("", _QUOTED.sub("", text)) != "[]":
            raise ValueError(f"{text[:40]!r} is not a list of quoted texts")
        return [re.sub(r"\\(.)", r"\1", single or double) for single, double in quoted]
    parts = _BETWEEN.split(text)
    if all(part.isdigit() for part in parts):
        return list(parts)
    return [part.strip() for part in re.split(r"[;|]", text) if part.strip()]


def _parts(cell: str) -> list[str]:
    text = cell.strip()
    if text.startswith("[") != text.endswith("]"):
        raise ValueError(f"{cell[:40]!r} is a list that is cut short")
    inner = text.removeprefix("[").removesuffix("]").strip()
    if "..." in inner or "…" in inner:
        raise ValueError("it was shortened when it was printed")
    return [part for part in _BETWEEN.split(inner) if part]


_SUM_TOLERANCE = 1e-2  # probabilities of 1,000 classes rounded to float16 still sum to 1 within it


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
    given = _values(table, shape.values, ids, path) if shape.values else None
    if not shape.classes:
        return ids, _full(given or [], ids, path, label_space, shape.probabilities)
    ranked = _classes(table, shape.classes, ids, path, label_space)
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
        return ids, _full(list(every), ids, path, label_space, shape.probabilities)
    return ids, Outputs(topk)


def _full(
    rows: Sequence[np.ndarray],
    ids: Sequence[str],
    path: Path,
    space: LabelSpace,
    probabilities: bool,
) -> Outputs:
    """Outputs from one value for every class."""
    for row, image in zip(rows, ids, strict=True):
        if len(row) != len(space):
            raise BadFile(
                path,
                f"has {len(row)} values for image {image!r}, label space {space.name} has "
                f"{len(space)} classes",
                fix="name the model's label space with --classes, or give one value per class",
            )
        _check_finite(row, image, path)
    matrix = np.stack(rows)
    if not probabilities:
        return outputs_from_logits(matrix, path, classes=len(space))
    sums = matrix.sum(axis=1, dtype=np.float64)
    bad = ~((matrix >= 0).all(axis=1) & (np.abs(sums - 1) <= _SUM_TOLERANCE))
    if bad.any():
        row_number = int(bad.argmax())
        raise BadFile(
            path,
            f"has {int(bad.sum())} rows that are not probabilities, such as that of image "
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
                path, f"has a value that is not a number ({reason})", fix="correct it"
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
                path,
                f"has no list of numbers for image {image!r} ({error})",
                fix="correct that row",
            ) from None
    return rows


def _classes(
    table: Any,
    names: Sequence[str],
    ids: Sequence[str],
    path: Path,
    label_space: LabelSpace,
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
                rows.append(class_cell(cell, lists=text))
            except ValueError as error:
                raise BadFile(
                    path,
                    f"has no list of classes for image {image!r} ({error})",
                    fix="correct that row",
                ) from None
    known: dict[tuple[type, Any], int | None] = {(type(None), None): None}
    find = _index_finder(rows, label_space, path)
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
    rows: Sequence[Sequence[Any]], space: LabelSpace, path: Path
) -> Callable[[Any], int]:
    """A function from a value to a class index, by the kind of label that fits all values."""
    texts = {str(_whole(value)) for row in rows for value in row if value is not None}
    numbers = all(re.fullmatch(r"-?[0-9]+", text) for text in texts)
    ids = {text for text in texts if text in space}
    if numbers and ids == texts and any(space.index(text) != int(text) for text in texts):
        raise BadFile(
            path,
            f"its classes are both ids and indices of {space.name}, and these disagree",
            fix="write the names of the classes instead",
        )
    # Some ids among texts that are not: ids with a wrong one, so that it is named as an id.
    kind: LabelKind = "index" if numbers else "id" if ids else "name"
    find = class_finder(space, kind)
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
                fix="give one value per class",
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
