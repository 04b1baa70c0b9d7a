"""NumPy files of outputs: what is in them, what is wrong with them, and how they are written.

An array file carries no image ids. Its rows get their ids from an order: a dataset file, a list,
or the test set itself; the length must fit, and nothing is ever joined by position silently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from heldout.core.arrays import load_array
from heldout.core.errors import BadFile, ExistsError, MismatchError, NotFound
from heldout.core.files import atomic_path, read_json
from heldout.core.workspace import slug
from heldout.data.testset import TestSet
from heldout.models.adapters.model import look_like_probabilities
from heldout.models.predictions.predictions import TOP_K, Predictions, top_k

_CHANCE = 1e-6
REVERSED_LEAD = 1.5
"""How much more often the last column must be right than any other to be called the first."""


@dataclass(frozen=True, eq=False)
class Outputs:
    """Outputs as read from a file: top-k int32 (n, k), and logits float32 (n, classes) if present.

    ``note`` says what was taken for something else than the file says.
    """

    topk: np.ndarray
    logits: np.ndarray | None = None
    note: str = ""


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
    """Logits checked against the label space's size, with their top k; probabilities are converted."""
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
    if look_like_probabilities(logits, tolerance=SUM_TOLERANCE):
        return replace(outputs_from_probabilities(logits), note=CONVERTED)
    return Outputs(top_k(logits), logits)


SUM_TOLERANCE = 1e-2  # probabilities of 1,000 classes rounded to float16 still sum to 1 within it
CONVERTED = (
    "holds probabilities (every row is at least 0 and sums to 1): stored are their logarithms"
)


def outputs_from_probabilities(values: np.ndarray) -> Outputs:
    """Probabilities p as the logits log p, whose softmax is p again."""
    floor = np.finfo(np.float32).tiny  # a probability that was rounded to zero has no logarithm
    return Outputs(top_k(values), np.log(np.maximum(values, floor)))


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


def looks_reversed(topk: np.ndarray, labels: np.ndarray) -> bool:
    """Whether columns are stored worst first: the last is right more often than every other, by half
    and beyond chance (McNemar's exact test at one in a million).

    ``labels`` holds one class index per row, -1 where unknown. That a model is never right at first
    is not enough: a set of images that were chosen because this model gets them wrong looks like
    that, and its second predictions are then its best.
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
    return bool(np.max(p) < _CHANCE)


NAMED = ("testset", "name", "class")
"""Orders by name: the test set's own rows; by file name; by class and then file name (ImageFolder)."""


def image_order(testset: TestSet, order: str = "testset") -> list[str]:
    """Image ids in the order that ``order`` names: one of :data:`NAMED`, or a file.

    A file is an ImageNetV2 dataset file, a JSON list of ids, or a text file with one id per line.
    """
    ids: list[str] = testset.image_ids.to_pylist()
    if order == "testset":
        return ids
    if order == "name":
        return sorted(ids, key=_file_name)
    if order == "class":
        labels = first_labels(testset)
        return [
            ids[i] for i in sorted(range(len(ids)), key=lambda i: (labels[i], _file_name(ids[i])))
        ]
    return read_order_file(Path(order))


def read_order_file(path: Path) -> list[str]:
    """Image ids from an order file."""
    if not path.is_file():
        raise NotFound(f"no order file {path}", fix=f"name a file, or one of {', '.join(NAMED)}")
    if path.suffix == ".json":
        ids = read_json(path)
        if isinstance(ids, dict) and "image_filenames" in ids:
            from heldout.data.published.imagenetv2 import read_order

            ids = [image for image, _ in read_order(path)]
        if not isinstance(ids, list) or not all(isinstance(item, str) for item in ids):
            raise BadFile(
                path,
                "is not an order of images",
                fix="give a dataset file or a JSON list of image ids",
            )
    else:
        lines = path.read_text(encoding="utf-8").splitlines()
        ids = [line.strip() for line in lines if line.strip()]
    twice = next((image for image, count in Counter(ids).items() if count > 1), None)
    if twice is not None:
        raise BadFile(path, f"lists image {twice!r} twice", fix="list every image once")
    return ids


@lru_cache(maxsize=8)
def first_labels(testset: TestSet) -> np.ndarray:
    """One class index for each image of the set, from its default truth; -1 where there is none.

    Computed once per set, as every file of an import asks for it; read-only.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    table = testset.truth()
    rows = pc.index_in(table["image_id"].combine_chunks(), value_set=testset.image_ids)
    classes = pc.index_in(
        table["class_id"].combine_chunks(), value_set=pa.array(testset.label_space.ids, pa.string())
    )
    labels = np.full(len(testset), -1, dtype=np.int64)
    labels[rows.to_numpy(zero_copy_only=False)] = pc.fill_null(classes, -1).to_numpy(
        zero_copy_only=False
    )
    labels.flags.writeable = False
    return labels


def labels_in_order(testset: TestSet, image_ids: Sequence[str]) -> np.ndarray:
    """Class indices of images in another order; -1 for an image that the set does not have."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = pa.array(image_ids, pa.string())
    if wanted.equals(testset.image_ids):
        return first_labels(testset)
    rows = pc.index_in(wanted, value_set=testset.image_ids)
    place = pc.fill_null(rows, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    labels = first_labels(testset)
    return np.where(place >= 0, labels[place], -1)


def _file_name(image_id: str) -> str:
    return image_id.rpartition("/")[2]


def check_order(
    topk: np.ndarray, testset: TestSet, image_ids: Sequence[str], *, path: Path
) -> None:
    """Refuse outputs that are at chance in the stated order and far better in another known one."""
    first = topk[:, 0]

    def hits(ids: Sequence[str]) -> int:
        labels = labels_in_order(testset, ids)
        return int(((first == labels) & (labels >= 0)).sum())

    # What a random order would give: each prediction meets the set's own mix of classes.
    classes = len(testset.label_space)
    known = labels_in_order(testset, image_ids)
    shares = np.bincount(known[known >= 0], minlength=classes) / len(first)
    chance = float(np.bincount(first[first >= 0], minlength=classes) @ shares)
    limit = chance + 6 * np.sqrt(chance) + 3  # six standard deviations: no random order gets there
    found = hits(image_ids)
    if found > limit or len(testset) != len(first):
        return
    for order in NAMED:
        other = hits(image_order(testset, order))
        if other > max(2 * found, limit):
            raise MismatchError(
                f"{path}: its rows are not in the stated order: {found:,} of {len(first):,} top-1 "
                f"predictions are right, {other:,} in the order {order!r}",
                fix=f"--order {order}",
            )


def differing_rows(a: Predictions, b: Predictions, *, testset: str) -> tuple[int, int]:
    """In how many images two outputs differ: in the first prediction, and in any that both have."""
    rows = b.rows_for(a.image_ids, testset=testset)
    ranks = min(a.topk.shape[1], b.topk.shape[1])
    other = a.topk[:, :ranks] != b.topk[rows, :ranks]
    return int(other[:, :1].any(axis=1).sum()), int(other.any(axis=1).sum())


def write_published(predictions: Predictions, testset: TestSet, folder: Path) -> Path:
    """Write the top 5 as ImageNetV2 published them: ``<folder>/<test set>/<model>.npy``.

    int16 (n, 5), best first, one row per image in the order of the test set, which is that of its
    published list; -1 where there is none. A file that holds the same stays as it is; one that
    differs is refused, with the number of rows.
    """
    space = predictions.label_space
    if space.fingerprint != testset.label_space.fingerprint:
        raise MismatchError(
            f"{predictions.model} answers in {space.name}, {testset.name} has other classes "
            f"({testset.label_space.name})",
            fix="the published layout holds indices of the test set's own classes: leave it out",
        )
    kind = np.int16 if len(space) <= np.iinfo(np.int16).max else np.int32
    rows = predictions.rows_for(testset.image_ids, testset=testset.name)
    values = predictions.topk[rows, :TOP_K].astype(kind)
    path = folder / testset.name / f"{slug(predictions.model)}.npy"
    if path.exists():
        there = load_array(path)
        if there.shape != values.shape:
            found = f"has shape {there.shape}, these predictions {values.shape}"
        elif different := int((there != values).any(axis=1).sum()):
            found = f"{different:,} of {len(values):,} rows differ from these predictions"
        else:
            return path
        raise ExistsError(f"{path}: {found}", fix="remove it, or name another folder")
    with atomic_path(path) as temporary, temporary.open("wb") as handle:
        np.save(handle, values)
    return path
