"""Co-occurrence: which classes are seen together in one image, from a truth of several labels.

A model that names what usually stands beside the object follows the context. Whether two classes
usually stand together is counted on images that the mistakes are not judged on.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from heldout.core.errors import NotApplicable
from heldout.data.labels.label_space import LabelSpace
from heldout.data.testset import TestSet
from heldout.measure.score.truth import truth_arrays

MINIMUM = 2


@dataclass(frozen=True, eq=False, kw_only=True)
class Cooccurrence:
    """Unordered pairs of classes that are labels of one image, most frequent first.

    ``first``, ``second``  int64 (pairs,): class indices, first < second
    ``n``        int64 (pairs,): images with both
    ``images``   looked at: ``empty`` of them have no label in this truth and are passed over,
                 ``single`` have one label, ``several`` have more
    """

    testset: str
    truth: str
    without: str | None
    space: LabelSpace
    first: np.ndarray
    second: np.ndarray
    n: np.ndarray
    images: int
    empty: int
    single: int
    several: int

    def __len__(self) -> int:
        return len(self.n)

    @property
    def total(self) -> int:
        """How often any two classes are together: the sum of all counts."""
        return int(self.n.sum())

    @cached_property
    def _counts(self) -> dict[tuple[str, str], int]:
        ids = self.space.ids
        rows = zip(self.first.tolist(), self.second.tolist(), self.n.tolist(), strict=True)
        return {(ids[a], ids[b]): n for a, b, n in rows}

    def count(self, one: str, other: str) -> int:
        """How many images have both classes, whichever is named first."""
        return self._counts.get((one, other), 0) or self._counts.get((other, one), 0)

    def pairs(
        self, minimum: int = MINIMUM, *, apart: Collection[frozenset[str]] = ()
    ) -> dict[tuple[str, str], int]:
        """Pairs of ids of at least ``minimum`` images, most frequent first.

        ``apart`` are groups of similar classes: two classes of one group are not told, because they
        are together by likeness and not by context.
        """
        together: dict[str, set[int]] = {}
        for place, group in enumerate(apart):
            for class_id in group:
                together.setdefault(class_id, set()).add(place)
        return {
            (a, b): n
            for (a, b), n in self._counts.items()
            if n >= minimum and not together.get(a, set()) & together.get(b, set())
        }


def cooccurrence(
    testset: TestSet,
    *,
    truth: str | None = None,
    without: str | None = None,
    original: bool = True,
) -> Cooccurrence:
    """Count the classes that a truth sees together.

    ``without``   a truth whose images are left out, so that pairs and mistakes come from different
                  images
    ``original``  whether an image's own class joins the labels of the truth; an image without any
                  label in the truth is passed over even then

    With the ReaL labels of the ImageNet validation images outside the multi-label ones, these are the
    pairs of M. Peychev et al., "Automated classification of model errors on ImageNet", 2023.
    """
    arrays = truth_arrays(testset, truth)
    size = len(arrays.space)
    kept = ~arrays.problematic
    if without is not None:
        kept &= ~np.isin(arrays.rows, truth_arrays(testset, without).rows)
    labelled = np.unique(np.concatenate([arrays.correct.keys, arrays.unclear.keys]))
    listed = np.bincount(labelled // size, minlength=len(arrays))
    used = kept & (listed > 0)
    if original:
        own = np.flatnonzero(used & (arrays.labels >= 0))
        labelled = np.union1d(labelled, own * size + arrays.labels[own])
    rows, labels = np.divmod(labelled, size)
    # Rows of one image belong together, whatever the classes that they stand for.
    images = arrays.rows[rows]
    keys = np.unique(images[used[rows]] * size + labels[used[rows]])
    images, labels = np.divmod(keys, size)
    starts = np.flatnonzero(np.r_[True, np.diff(images) != 0][: len(images)])
    lengths = np.diff(np.r_[starts, len(images)])
    looked = len(np.unique(arrays.rows[kept]))
    if not looked:
        raise NotApplicable(
            f"truth {arrays.name} of {testset.name} has no image outside truth {without}",
            fix="leave --without away",
        )
    found = _pairs(labels, starts, lengths, size)
    pairs, n = np.unique(found, return_counts=True)
    order = np.lexsort((pairs, -n))
    first, second = np.divmod(pairs[order], size)
    return Cooccurrence(
        testset=testset.name,
        truth=arrays.name,
        without=without,
        space=arrays.space,
        first=first,
        second=second,
        n=n[order].astype(np.int64),
        images=looked,
        empty=looked - len(starts),
        single=int((lengths == 1).sum()),
        several=int((lengths > 1).sum()),
    )


def _pairs(labels: np.ndarray, starts: np.ndarray, lengths: np.ndarray, size: int) -> np.ndarray:
    """Every two labels of one image as ``first * size + second``; labels are sorted in each image."""
    found = [np.empty(0, dtype=np.int64)]
    for length in np.unique(lengths[lengths > 1]).tolist():
        block = labels[starts[lengths == length][:, None] + np.arange(length)]
        a, b = np.triu_indices(length, k=1)
        found.append((block[:, a] * size + block[:, b]).ravel())
    return np.concatenate(found)
