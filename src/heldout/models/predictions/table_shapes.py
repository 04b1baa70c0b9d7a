"""Which columns of a table are ids, classes and values; and timm's four JSON layouts."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heldout.core.errors import BadFile, NotFound
from heldout.core.tables import csv_header, read_table_file, table_from_rows
from heldout.data.labels.label_space import LabelSpace

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


def find_shape(
    names: Sequence[str],
    path: Path,
    *,
    label_space: LabelSpace,
    id_column: str | None = None,
    class_columns: Sequence[str] | None = None,
    value_columns: Sequence[str] | None = None,
) -> Shape:
    """The columns by name; what was given must be there."""
    for name in (
        *([id_column] if id_column else []),
        *(class_columns or ()),
        *(value_columns or ()),
    ):
        if name not in names:
            raise BadFile(path, f"has no column {name!r}", fix=f"it has {_shown(names)}")
    ids = id_column or next((name for name in _IDS if name in names), None)
    if ids is None:
        raise BadFile(
            path,
            "has no column of image ids",
            fix=f"name it image_id or filename; it has {_shown(names)}",
        )
    rest = [name for name in names if name != ids]
    classes = tuple(class_columns or ())
    values = tuple(value_columns or ())
    if not classes and not values:
        classes = _ranked(rest, _CLASSES) or _top_numbered(rest) or _ranked(rest, _NAMED_CLASSES)
        values = _ranked(rest, (*_LOGITS, *_PROBABILITIES))
        if not classes and not values:
            values = _class_columns(rest, label_space)
    if not classes and not values:
        raise BadFile(
            path,
            "has neither classes nor logits",
            fix=f"name them index, label, topk, logit or prob; it has {_shown(names)}",
        )
    stems = {re.split(r"[_\d]", name)[0] for name in values}
    return Shape(ids, classes, values, bool(stems & set(_PROBABILITIES)))


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (", …" if len(names) > 12 else "")


def _ranked(names: Sequence[str], stems: Sequence[str]) -> tuple[str, ...]:
    """The column of one of these names, or its numbered columns ``stem_0``, ``stem_1``, …"""
    for stem in stems:
        if stem in names:
            return (stem,)
        numbered: list[str] = []
        while f"{stem}_{len(numbered)}" in names:
            numbered.append(f"{stem}_{len(numbered)}")
        if numbered:
            return tuple(numbered)
    return ()


def _top_numbered(names: Sequence[str]) -> tuple[str, ...]:
    """``top1``, ``top2``, … or ``top_1``, ``top_2``, …"""
    for stem in ("top", "top_"):
        numbered: list[str] = []
        while f"{stem}{len(numbered) + 1}" in names:
            numbered.append(f"{stem}{len(numbered) + 1}")
        if numbered:
            return tuple(numbered)
    return ()


def _class_columns(names: Sequence[str], label_space: LabelSpace) -> tuple[str, ...]:
    """A column for every class, named by its id, alone or after ``logit_`` or ``prob_``."""
    present = set(names)
    for prefix in ("", "logit_", "prob_"):
        wanted = tuple(f"{prefix}{class_id}" for class_id in label_space.ids)
        if present.issuperset(wanted):
            return wanted
    return ()


def read_any_table(
    path: Path, *, label_space: LabelSpace, value_columns: Sequence[str] | None = None
) -> Any:
    """The table of a file, as Arrow.

    Columns of a CSV file that hold a value a class are read as numbers at once: a thousand logits
    a row as text would need several times their memory.
    """
    suffix = path.suffix.lower()
    if suffix == ".json":
        return _read_json_table(path)
    if suffix not in (".csv", ".tsv"):
        return read_table_file(path)
    import pyarrow as pa

    names = csv_header(path)
    found = tuple(value_columns or ()) or _ranked(names, (*_LOGITS, *_PROBABILITIES))
    wide = found if len(found) > 1 else _class_columns(names, label_space)
    return read_table_file(path, types=dict.fromkeys(wide, pa.float32()))


def _read_json_table(path: Path) -> Any:
    """timm's JSON: an object a file name, ``columns`` and ``data``, a list of rows, or lines."""
    if not path.is_file():
        raise NotFound(f"no file {path}", fix="check the path")
    try:
        text = path.read_text(encoding="utf-8-sig")
        value = _parse(text)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise BadFile(path, f"not valid JSON ({error})", fix="write or fetch it again") from None
    rows = _json_rows(value)
    if rows is None:
        raise BadFile(
            path,
            "is no table of outputs",
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
