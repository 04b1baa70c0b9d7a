"""Populations of models: published accuracies in CSV files, joined by model (and image size)."""

from __future__ import annotations

import csv
import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from heldout.core.errors import BadFile, NotFound, UserError

KEYS = ("model", "img_size")
"""Rows are one model at one image size, as in timm's tables; files without img_size go by model."""


_ROW = "row number"


@dataclass(frozen=True, eq=False)
class Population:
    """Two accuracies of many models, as fractions.

    ``dropped`` counts rows of the first file that lack one of the two, or lie at 0 or 1 where
    probit and logit axes end.
    """

    models: tuple[str, ...]
    x: np.ndarray
    y: np.ndarray
    x_name: str
    y_name: str
    dropped: int


def read_table(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Column names and rows of a CSV file that has a column ``model``."""
    if not path.is_file():
        raise NotFound(f"no file {path}", fix="check the path")
    try:
        with path.open(newline="", encoding="utf-8") as handle:
            reader = csv.DictReader(handle)
            names = list(reader.fieldnames or [])
            rows = list(reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadFile(
            path, f"is not a CSV table ({error})", fix="give a comma-separated UTF-8 file"
        ) from None
    if "model" not in names:
        raise BadFile(path, "has no column model", fix=f"it has {', '.join(names[:8]) or 'none'}")
    if not rows:
        raise BadFile(path, "has no rows", fix="give a table with models")
    return names, rows


def read_population(
    paths: Sequence[Path], *, x: str, y: str, exclude: Sequence[str] = (), open_axes: bool = True
) -> Population:
    """Read accuracies ``x`` and ``y`` from one file, or x from the first and y from the second.

    Columns may be written ``FILE:COLUMN`` (the file's name without ending). Values above 1 in a
    column mean that it is in percent. ``open_axes`` drops models at exactly 0 or 1.
    """
    if not 1 <= len(paths) <= 2:
        raise UserError(f"{len(paths)} population files", fix="give one file, or two to join")
    tables = [read_table(path) for path in paths]
    x_table, x_column = _locate(x, paths, tables, first=0)
    y_table, y_column = _locate(y, paths, tables, first=len(paths) - 1)
    shared = x_table != y_table
    keys = [k for k in KEYS if k in tables[x_table][0] and k in tables[y_table][0]]
    if not shared:  # one file: a row is a model already, and nothing has to be joined
        for number, row in enumerate(tables[x_table][1]):
            row[_ROW] = str(number)
        keys = ["model", _ROW]
    left = _column(paths[x_table], tables[x_table][1], x_column, keys)
    right = _column(paths[y_table], tables[y_table][1], y_column, keys)
    common = [key for key in left if key in right]
    if not common:
        raise UserError(
            f"{paths[x_table]} and {paths[y_table]} share no {' and '.join(keys)}",
            fix="give tables of the same models",
        )
    names = [" ".join(part for part in (key if shared else key[:1]) if part) for key in common]
    xs, ys = _fractions([left[key] for key in common]), _fractions([right[key] for key in common])
    keep = np.isfinite(xs) & np.isfinite(ys)
    keep &= ~np.array(
        [any(fnmatch.fnmatchcase(key[0], glob) for glob in exclude) for key in common]
    )
    if open_axes:
        keep &= (xs > 0) & (xs < 1) & (ys > 0) & (ys < 1)
    return Population(
        tuple(name for name, kept in zip(names, keep, strict=True) if kept),
        xs[keep],
        ys[keep],
        f"{paths[x_table].stem}:{x_column}" if shared else x_column,
        f"{paths[y_table].stem}:{y_column}" if shared else y_column,
        len(left) - int(keep.sum()),
    )


def _locate(
    column: str,
    paths: Sequence[Path],
    tables: Sequence[tuple[list[str], list[dict[str, str]]]],
    *,
    first: int,
) -> tuple[int, str]:
    """The table and the column that an argument means; ``first`` is where to look first."""
    stem, colon, rest = column.rpartition(":")
    for place, path in enumerate(paths):
        if colon and stem in (path.stem, path.name, str(path)) and rest in tables[place][0]:
            return place, rest
    for place in [first, *(i for i in range(len(paths)) if i != first)]:
        if column in tables[place][0]:
            return place, column
    near = [name for name in tables[first][0] if column.lower() in name.lower()][:6]
    raise NotFound(
        f"{paths[first]} has no column {column!r}",
        fix=f"did you mean {', '.join(near)}"
        if near
        else f"it has {', '.join(tables[first][0][:8])}, …",
    )


def _column(
    path: Path, rows: list[dict[str, str]], column: str, keys: list[str]
) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    for number, row in enumerate(rows, start=2):
        key = tuple(row[k] or "" for k in keys)
        text = (row[column] or "").strip().replace(",", "")
        try:
            value = float(text) if text else np.nan
        except ValueError:
            raise BadFile(
                path, f"line {number}: {text!r} in {column} is no number", fix="mend the cell"
            ) from None
        if value < 0 or value > 100:
            raise BadFile(
                path,
                f"line {number}: {text} in {column} is no accuracy",
                fix="give fractions or percent",
            )
        if key in found and not (np.isnan(value) or np.isnan(found[key]) or found[key] == value):
            raise BadFile(
                path,
                f"line {number}: {' '.join(key)} is there twice with other values",
                fix="keep one",
            )
        found.setdefault(key, value)
    return found


def _fractions(values: Sequence[float]) -> np.ndarray:
    array = np.array(values, dtype=np.float64)
    percent = np.nanmax(array) > 1.0 if np.isfinite(array).any() else False
    scaled: np.ndarray = array / 100 if percent else array
    return scaled
