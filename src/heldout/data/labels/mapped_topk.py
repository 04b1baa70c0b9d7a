"""Top-k after a label map: the best target classes, and how much of them is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import LabelError, MismatchError

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class MappedTopk:
    """A model's best target classes, as far as its stored top-k can tell.

    ``targets``  (n, k) target indices, best first. Under ``full``, -1 stands at a rank whose source
                 class no target accepts. Under ``restricted``, -1 fills the ranks after the
                 known ones.
    ``known``    (n,) how many leading ranks are certain. A stored top-5 may hold no accepted
                 class at all: then 0 are known and the true prediction is not on file.
    ``classes``  K
    """

    targets: Indices
    known: Indices
    classes: int

    def hits(self, truth: NDArray[Any]) -> NDArray[np.bool_]:
        """(n, k): whether the target at each rank is the truth, ``truth`` being (n,) in 0..K-1."""
        truth = checked_indices(truth, self.classes, "truth", minimum=0)
        if truth.shape != self.known.shape:
            raise MismatchError(
                f"{len(truth)} truths for {len(self.known)} predictions", fix="join by image id"
            )
        return np.asarray(self.targets == truth[:, None])

    def unknown(self, k: int = 1) -> NDArray[np.bool_]:
        """(n,): whether some of the best ``k`` targets are not on file.

        A miss among these is no certain miss: counting them as misses and as hits bounds the
        accuracy from below and above.
        """
        return np.asarray(self.known < min(k, self.classes))


def checked_topk(topk: NDArray[Any]) -> NDArray[Any]:
    """``topk`` if it has the shape (n, k) with at least one rank."""
    if topk.ndim != 2 or topk.shape[1] == 0:
        raise MismatchError(f"top-k of shape {topk.shape}", fix="give an array of images x ranks")
    return topk


def checked_indices(values: NDArray[Any], size: int, what: str, *, minimum: int) -> Indices:
    """``values`` as int64, all in ``minimum`` to ``size - 1``."""
    values = np.asarray(values)
    if values.dtype.kind not in "iu":
        raise LabelError(f"a {what} is {values.dtype}, not an index", fix="give integers")
    if values.size and (int(values.min()) < minimum or int(values.max()) >= size):
        bad = int(values.min()) if int(values.min()) < minimum else int(values.max())
        raise LabelError(
            f"{what} index {bad} is outside {minimum} to {size - 1}",
            fix="check the label space: off by one, or another space",
        )
    return values.astype(np.int64)
