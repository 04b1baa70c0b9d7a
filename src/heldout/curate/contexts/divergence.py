"""The Jensen-Shannon divergence of two context profiles, mended for the number of images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from heldout.curate.contexts.profiles import Collection
from heldout.curate.contexts.subsets import IntArray

FloatArray = npt.NDArray[np.float64]


class Divergence(NamedTuple):
    """``plain``, as the profiles have it, and ``mended``, both in bits, 0 to 1."""

    plain: float
    mended: float


def divergence(a: Collection, b: Collection) -> Divergence:
    """How far two profiles diverge: ``H((p + q) / 2) - (H(p) + H(q)) / 2`` in bits.

    Profiles of few images are ragged, and so diverge even where the images come from one place:
    25 against 25 images of one source show 0.1 bits. ``mended`` is the jackknife estimate
    ``n J - (n - 1) mean(J without image i)`` over all n images of both collections, cut at 0 and 1.
    An image in both is left out of both.
    """
    found = lay_out(a, b)
    return _cut(found.divergence(np.ones(found.images)))


def replicate_divergences(
    a: Collection, b: Collection, counts: npt.NDArray[np.int64]
) -> tuple[FloatArray, FloatArray]:
    """Plain and mended divergences (r,) where images are drawn ``counts`` (r, n) times.

    Columns stand for the images of either collection, sorted, each once. Mended values are not
    cut, so that their spread is seen. Where one collection is left without any image, nothing is
    shared and the divergence is 1.
    """
    found = lay_out(a, b)
    values = np.array([found.divergence(row.astype(np.float64)) for row in counts])
    return values[:, 0], values[:, 1]


def _cut(found: Divergence) -> Divergence:
    return Divergence(*(min(max(value, 0.0), 1.0) for value in found))


@dataclass(frozen=True, eq=False)
class _Side:
    """One collection beside another.

    ``places``   its images among those of both
    ``rows``     for each entry, the image; ``columns`` and ``values`` as in the collection
    ``alone``    entries of images that the other has not; their number of images
    """

    places: IntArray
    rows: IntArray
    columns: IntArray
    values: FloatArray
    alone: npt.NDArray[np.bool_]
    entries: npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Layout:
    """Two collections laid over each other, to measure again and again with other weights.

    ``images``  how many there are in either
    """

    images: int
    width: int
    a: _Side
    b: _Side
    shared: IntArray
    rows: IntArray
    columns: IntArray
    of_a: FloatArray
    of_b: FloatArray

    def divergence(self, weights: FloatArray) -> Divergence:
        """Plain and mended, not cut, where images count ``weights`` (images,) times."""
        mass_a, mass_b = (float(weights[side.places].sum()) for side in (self.a, self.b))
        if mass_a <= 0 or mass_b <= 0:
            return Divergence(1.0, 1.0)
        p, q = self._profile(self.a, weights, mass_a), self._profile(self.b, weights, mass_b)
        plain = float(_terms(p, q).sum())
        if mass_a <= 1 or mass_b <= 1:
            return Divergence(plain, plain)
        # Without one draw, a profile of n is p n / (n - 1), less what the draw had.
        p1, q1 = p * (mass_a / (mass_a - 1)), q * (mass_b / (mass_b - 1))
        total = _left_out(self.a, weights, p1, q, mass_a)
        total += _left_out(self.b, weights, q1, p, mass_b)
        if len(self.shared):
            base, c = _terms(p1, q1), self.columns
            less_p = np.maximum(p1[c] - self.of_a / (mass_a - 1), 0.0)
            less_q = np.maximum(q1[c] - self.of_b / (mass_b - 1), 0.0)
            change = _terms(less_p, less_q) - base[c]
            total += float(weights[self.shared].sum()) * float(base.sum())
            total += float((weights[self.rows] * change).sum())
        n = float(weights.sum())
        return Divergence(plain, n * plain - (n - 1) * (total / n))

    def _profile(self, side: _Side, weights: FloatArray, mass: float) -> FloatArray:
        total = np.bincount(
            side.columns, weights=side.values * weights[side.rows], minlength=self.width
        )
        profile: FloatArray = total / mass
        return profile


def lay_out(a: Collection, b: Collection) -> Layout:
    """Lay two collections over each other."""
    images = np.union1d(a.images, b.images)
    in_a, in_b = np.zeros(len(images), dtype=bool), np.zeros(len(images), dtype=bool)
    at_a, at_b = np.searchsorted(images, a.images), np.searchsorted(images, b.images)
    in_a[at_a], in_b[at_b] = True, True
    both = in_a & in_b
    sides = []
    for collection, at in ((a, at_a), (b, at_b)):
        rows = np.repeat(at, collection.lengths)
        alone = ~both[at]
        sides.append(_Side(at, rows, collection.columns, collection.values, alone, ~both[rows]))
    one, other = sides
    mine, theirs = ~one.entries, ~other.entries
    rows, columns = one.rows[mine], one.columns[mine]
    of_a, of_b = one.values[mine], other.values[theirs]
    if not np.array_equal(columns, other.columns[theirs]):  # a context that only one side counts
        keys = np.concatenate(
            [
                s.rows[e] * np.int64(a.width) + s.columns[e]
                for s, e in ((one, mine), (other, theirs))
            ]
        )
        cells, codes = np.unique(keys, return_inverse=True)
        codes, first = codes.reshape(-1), len(of_a)
        of_a = np.bincount(codes[:first], of_a, len(cells)).astype(np.float64)
        of_b = np.bincount(codes[first:], of_b, len(cells)).astype(np.float64)
        rows, columns = np.divmod(cells, a.width)
    return Layout(len(images), a.width, one, other, np.nonzero(both)[0], rows, columns, of_a, of_b)


def _left_out(
    side: _Side, weights: FloatArray, p1: FloatArray, q: FloatArray, mass: float
) -> float:
    """The sum, over draws of images that one side has alone, of the divergence without the draw."""
    base, chosen = _terms(p1, q), side.entries
    c = side.columns[chosen]
    less = np.maximum(p1[c] - side.values[chosen] / (mass - 1), 0.0)
    change = weights[side.rows[chosen]] * (_terms(less, q[c]) - base[c])
    return float(weights[side.places[side.alone]].sum()) * float(base.sum()) + float(change.sum())


def _terms(p: FloatArray, q: FloatArray) -> FloatArray:
    """What each context adds to the divergence."""
    return 0.5 * (xlog2(p) + xlog2(q)) - xlog2(0.5 * (p + q))


def xlog2(x: FloatArray) -> FloatArray:
    """``x log2 x``, 0 at 0."""
    found: FloatArray = x * np.log2(np.where(x > 0, x, 1.0))
    return found
