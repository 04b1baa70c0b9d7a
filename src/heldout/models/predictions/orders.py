"""The order of an array's rows: which image each row belongs to, stated and then checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from heldout.core.errors import BadFile, MismatchError, NotFound
from heldout.core.files import read_json
from heldout.data.testset import TestSet

NAMED = ("testset", "name", "class")
"""Orders by name: the test set's own rows; by file name; by class and then file name (ImageFolder)."""


def image_order(testset: TestSet, order: str = "testset") -> list[str]:
    """Image ids in the order that ``order`` names: one of :data:`NAMED`, or a file.

    A file is an ImageNetV2 dataset file, a JSON list of ids, or a text file with one id a line.
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
    stat = path.stat()
    ids = list(_order_ids(path, stat.st_mtime_ns, stat.st_size))
    twice = next((image for image, count in Counter(ids).items() if count > 1), None)
    if twice is not None:
        raise BadFile(path, f"lists image {twice!r} twice", fix="list every image once")
    return ids


@lru_cache(maxsize=4)
def _order_ids(path: Path, _changed: int, _size: int) -> tuple[str, ...]:
    """The ids of an order file, read once for all the arrays that it orders."""
    if path.suffix == ".json":
        value = read_json(path)
        if isinstance(value, dict) and "image_filenames" in value:
            from heldout.data.published.imagenetv2 import read_order

            return tuple(image for image, _ in read_order(path))
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        raise BadFile(
            path, "is no order of images", fix="give a dataset file or a JSON list of image ids"
        )
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple(line.strip() for line in lines if line.strip())


@lru_cache(maxsize=8)
def first_labels(testset: TestSet) -> np.ndarray:
    """One class index for each image of the set, from its default truth; -1 where there is none.

    Computed once a set, as every file of an import asks for it; read-only.
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


def check_order(
    topk: np.ndarray, testset: TestSet, image_ids: Sequence[str], *, path: Path
) -> None:
    """Refuse outputs that are at chance in the stated order and far better in another known one."""
    first = topk[:, 0]

    def hits(ids: Sequence[str]) -> int:
        labels = labels_in_order(testset, ids)
        return int(((first == labels) & (labels >= 0)).sum())

    # What a random order would give: each guess meets the set's own mix of classes.
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
                f"{path}: its rows are not in the stated order: {found:,} of {len(first):,} first guesses "
                f"are right, {other:,} in the order {order!r}",
                fix=f"--order {order}",
            )


def _file_name(image_id: str) -> str:
    return image_id.rpartition("/")[2]
