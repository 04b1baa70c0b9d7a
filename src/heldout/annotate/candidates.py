"""Exact cosines of the few pairs that may win, and the choice among them.

A fast product is off by rounding, and how far depends on the machine, the block and the number
format. So it only says which classes may be among the best; their cosines are computed again from
the float32 vectors in float64 and rounded to float32. Labels, ties, margins and top k therefore
never depend on how the product was made.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heldout.annotate.class_vectors import ClassVectors

_PAIRS_AT_ONCE = 4096
MOST_TIES = 100
"""Classes that are listed as tied with a label, at most; lowest first."""


@dataclass(frozen=True, eq=False)
class Best:
    """The best classes of n images.

    ``classes``  int32 (n, k), best first, ties by the lowest class; -1 where there is none
    ``cosines``  float32 (n, k); NaN where there is none
    ``ties``     int64 (pairs, 2): (image, class) of other classes with exactly the best cosine
    """

    classes: np.ndarray
    cosines: np.ndarray
    ties: np.ndarray


def exact_cosines(
    images: np.ndarray, rows: np.ndarray, classes: np.ndarray, columns: np.ndarray
) -> np.ndarray:
    """Dot products of pairs of unit rows, rounded once to float32: (pairs,).

    Products of float32 numbers are exact in float64, and so nearly is their sum.
    """
    made = np.empty(len(rows), np.float32)
    for start in range(0, len(rows), _PAIRS_AT_ONCE):
        part = slice(start, start + _PAIRS_AT_ONCE)
        a = images[rows[part]].astype(np.float64)
        a *= classes[columns[part]]
        made[part] = a.sum(axis=1)
    return made


def choose(
    rows: np.ndarray,
    columns: np.ndarray,
    cosines: np.ndarray,
    *,
    n: int,
    k: int,
    space: ClassVectors,
) -> Best:
    """The best ``k`` classes of ``n`` images from candidate pairs (image, distinct row, cosine).

    The pairs of an image must hold all rows that are among its best ``k``, and all that tie with
    the first.
    """
    counts = space.counts[columns]
    row = np.repeat(rows, counts)
    cosine = np.repeat(cosines, counts)
    # The classes of each pair's distinct row, one after another.
    ends = np.cumsum(counts)
    inside = np.arange(len(row)) - np.repeat(ends - counts, counts)
    label = space.members[np.repeat(space.offsets[columns], counts) + inside]
    order = np.lexsort((label, -cosine, row))
    row, cosine, label = row[order], cosine[order], label[order]
    starts = np.searchsorted(row, np.arange(n + 1))
    place = np.arange(len(row)) - starts[row]
    kept = place < k
    classes = np.full((n, k), -1, np.int32)
    best = np.full((n, k), np.nan, np.float32)
    classes[row[kept], place[kept]] = label[kept]
    best[row[kept], place[kept]] = cosine[kept]
    tied = (place > 0) & (place <= MOST_TIES) & (cosine == best[row, 0])
    return Best(classes, best, np.stack([row[tied], label[tied]], axis=1).astype(np.int64))
