"""How far subsets overlap: all pairs of every class by one sparse product, exact.

A row stands for an image as a member of one class, a column for a subset; the product of the table
with itself counts the images that two subsets share. Its cost grows with the pairs of subsets that
images are in together, not with the square of the number of subsets.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from heldout.core.errors import UserError
from heldout.curate.contexts.subsets import Subsets

Measure = Literal["overlap", "jaccard"]
MEASURES: tuple[Measure, ...] = ("overlap", "jaccard")


def shared_images(subsets: Subsets) -> Any:
    """Images that two subsets of one class share: ``csr_array`` of int32, (n, n), symmetric.

    The diagonal holds the sizes. Subsets of different classes count as sharing nothing.
    """
    from scipy.sparse import csc_array

    n = len(subsets)
    if not n:
        return csc_array((0, 0), dtype=np.int32).tocsr()
    subjects = {subject: code for code, subject in enumerate(subsets.subjects)}
    codes = np.array([subjects[subject] for subject in subsets.subject_of], dtype=np.int64)
    rows = subsets.images
    if len(subjects) > 1:  # an image is another row in each class
        rows = rows + np.repeat(codes, subsets.sizes) * len(subsets.image_ids)
        used = np.unique(rows)
        rows = np.searchsorted(used, rows)
        height = len(used)
    else:
        height = len(subsets.image_ids)
    ones = np.ones(len(rows), dtype=np.int32)
    index = np.int32 if max(height, len(rows)) < 2**31 else np.int64
    table = csc_array((ones, rows.astype(index), subsets.starts.astype(index)), shape=(height, n))
    shared = (table.T @ table).tocsr()
    shared.sort_indices()
    return shared


def overlaps(subsets: Subsets, *, measure: Measure = "overlap") -> Any:
    """The overlap of all subsets of the same class: ``csr_array`` of float64, (n, n).

    ``overlap`` is Szymkiewicz and Simpson's coefficient, images shared / images of the smaller
    subset: 1 for a subset inside another. ``jaccard`` is images shared / images of both together.
    """
    shared = shared_images(subsets)
    sizes = subsets.sizes
    first = np.repeat(np.arange(len(subsets)), np.diff(shared.indptr))
    both = _coefficient(shared.data, sizes[first], sizes[shared.indices], measure)
    found = shared.astype(np.float64)
    found.data = both
    return found


def overlap_matrix(subsets: Subsets, *, measure: Measure = "overlap") -> npt.NDArray[np.float64]:
    """The overlaps of the subsets of one class as a dense table, (n, n), ones on the diagonal."""
    if len(subsets.subjects) > 1:
        raise UserError(
            f"subsets of {len(subsets.subjects)} classes have no one graph", fix="name one class"
        )
    dense: npt.NDArray[np.float64] = overlaps(subsets, measure=measure).toarray()
    return dense


def _coefficient(
    shared: npt.NDArray[Any], a: npt.NDArray[Any], b: npt.NDArray[Any], measure: Measure
) -> npt.NDArray[np.float64]:
    if measure not in MEASURES:
        raise UserError(f"no measure {measure!r}", fix=f"use {' or '.join(MEASURES)}")
    whole = np.minimum(a, b) if measure == "overlap" else a + b - shared
    ratio: npt.NDArray[np.float64] = shared / whole
    return ratio
