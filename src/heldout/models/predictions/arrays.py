"""NumPy files of outputs: what is in them, and what is wrong with them.

An array file carries no image ids. Its rows get their ids from an order: a dataset file, a list,
or the test set itself; the length must fit, and nothing is ever joined by position silently.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from heldout.core.arrays import load_array
from heldout.core.errors import BadFile
from heldout.models.predictions.predictions import top_k

REVERSED_LEAD = 1.5
"""How much more often the last column must be right than any other to be called the first."""


@dataclass(frozen=True, eq=False)
class Outputs:
    """Outputs as read from a file: top-k int32 (n, k), and logits float32 (n, classes) if present."""

    topk: np.ndarray
    logits: np.ndarray | None = None


def read_outputs(path: Path, *, classes: int, array: str | None = None) -> Outputs:
    """Read top-k class indices (integers, n x k) or logits (floats, n x classes) from a NumPy file."""
    values = load_array(path, name=array)
    if values.ndim == 1 and np.issubdtype(values.dtype, np.integer):
        values = values[:, None]
    if values.ndim != 2 or values.shape[1] == 0:
        raise BadFile(
            path, f"has shape {values.shape}", fix="rows must be images, columns ranks or classes"
        )
    if np.issubdtype(values.dtype, np.integer):
        return Outputs(check_indices(values, path, classes=classes))
    if not np.issubdtype(values.dtype, np.floating):
        raise BadFile(
            path, f"has type {values.dtype}", fix="give integers (top-k) or floats (logits)"
        )
    return outputs_from_logits(values, path, classes=classes)


def outputs_from_logits(values: np.ndarray, path: Path, *, classes: int) -> Outputs:
    """Logits checked against the label space's size, with their top k."""
    if values.shape[1] != classes:
        raise BadFile(
            path,
            f"has {values.shape[1]} columns, the label space {classes} classes",
            fix="name the model's label space with --classes",
        )
    bad = ~np.isfinite(values).all(axis=1)
    if bad.any():
        raise BadFile(
            path,
            f"has {int(bad.sum())} rows with NaN or infinite logits, first row {int(bad.argmax())}",
            fix="predict these images again, or drop the rows",
        )
    logits = values.astype(np.float32, copy=False)
    return Outputs(top_k(logits), logits)


def check_indices(values: np.ndarray, path: Path, *, classes: int) -> np.ndarray:
    """Top-k indices as int32; out-of-range ids and repeated ids in a row are refused."""
    outside = (values < -1) | (values >= classes)
    if outside.any():
        row, column = map(int, np.argwhere(outside)[0])
        hint = (
            "ids may start at 1: subtract 1, or "
            if values.max() == classes and values.min() >= 1
            else ""
        )
        raise BadFile(
            path,
            f"has {int(outside.sum())} class ids outside 0..{classes - 1}, such as "
            f"{int(values[row, column])} in row {row}",
            fix=f"{hint}name the model's label space with --classes",
        )
    ordered = np.sort(values, axis=1)
    repeated = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(axis=1)
    if repeated.any():
        raise BadFile(
            path,
            f"names a class twice in {int(repeated.sum())} rows, first row {int(repeated.argmax())}",
            fix="each row must hold different classes, best first",
        )
    indices: np.ndarray = values.astype(np.int32)
    return indices


def looks_reversed(topk: np.ndarray, labels: np.ndarray, *, alpha: float = 1e-6) -> bool:
    """Whether columns are stored worst first: the last is right more often than every other, by half
    and beyond chance (McNemar's exact test at ``alpha``).

    ``labels`` holds one class index a row, -1 where unknown. That a model is never right at first
    is not enough: a set of images that were chosen because this model gets them wrong looks like
    that, and its second guesses are then its best.
    """
    right = (topk == labels[:, None]) & (labels >= 0)[:, None]
    counts = right.sum(axis=0)
    if topk.shape[1] < 2 or counts[-1] == 0 or counts[-1] < REVERSED_LEAD * counts[:-1].max():
        return False
    if topk.shape[1] == 2 and counts[0] == 0:
        return False
    from heldout.stats.paired import mcnemar_exact

    only_last = (right[:, -1:] & ~right[:, :-1]).sum(axis=0)
    only_other = (~right[:, -1:] & right[:, :-1]).sum(axis=0)
    p = mcnemar_exact(only_last, only_other, alternative="greater")
    return bool(np.max(p) < alpha)
