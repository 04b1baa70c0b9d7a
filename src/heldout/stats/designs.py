"""How the images of a test set were drawn: one by one, class by class, or cluster by cluster.

A design turns strata and clusters into *units* (what is drawn: images, or whole clusters) grouped
by stratum, and turns values of images into sums of units. Bootstrap and rank intervals share it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from heldout.core.errors import NotApplicable
from heldout.stats.intervals import FloatArray

IntArray = npt.NDArray[np.intp]

MINIMUM_CLUSTERS = 8
"""Fewer clusters are refused: at five, intervals span most of the scale and say next to nothing."""
FEW_CLUSTERS = 20
"""Below this many, two kinds of interval are joined, because either alone may fall short."""


@dataclass(frozen=True)
class Design:
    """Units in order of stratum; stratum ``h`` is ``units[starts[h] : starts[h] + sizes[h]]``."""

    images: int
    units: int
    unit_of_image: IntArray | None  # None: every image is its own unit, in order
    order: IntArray | None  # position in stratum order -> unit; None: already in order
    starts: IntArray
    sizes: IntArray

    @property
    def name(self) -> str:
        """``plain``, ``stratified``, ``cluster`` or ``stratified-cluster``."""
        stratified, clustered = len(self.sizes) > 1, self.unit_of_image is not None
        if clustered:
            return "stratified-cluster" if stratified else "cluster"
        return "stratified" if stratified else "plain"

    @property
    def degrees_of_freedom(self) -> int:
        """Units less strata, as is usual for surveys."""
        return self.units - len(self.sizes)

    def unit_sums(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Sums of ``values`` (images, ...) over units, in stratum order: (units, ...)."""
        if self.unit_of_image is not None:
            by_unit = np.argsort(self.unit_of_image, kind="stable")
            firsts = np.searchsorted(self.unit_of_image[by_unit], np.arange(self.units))
            values = np.add.reduceat(values[by_unit], firsts, axis=0)
        return values if self.order is None else values[self.order]

    def to_images(self, weights: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Weights of units in stratum order (..., units) as weights of images (..., images)."""
        position = np.arange(self.units)
        if self.order is not None:
            position[self.order] = np.arange(self.units)
        if self.unit_of_image is not None:
            position = position[self.unit_of_image]
        elif self.order is None:
            return weights
        return weights[..., position]

    def residuals(self, sums: FloatArray) -> FloatArray:
        """``sums`` (units, columns) less their stratum's mean, times ``sqrt(n_h / (n_h - 1))``.

        ``residuals.T @ residuals`` is the covariance of the column totals that the bootstrap of
        Rao and Wu reproduces; ``sums`` is in stratum order, as from :meth:`unit_sums`.
        """
        means = np.add.reduceat(sums, self.starts, axis=0) / self.sizes[:, None]
        scale = np.sqrt(self.sizes / (self.sizes - 1.0))
        centred: FloatArray = sums - np.repeat(means, self.sizes, axis=0)
        centred *= np.repeat(scale, self.sizes)[:, None]
        return centred

    def variance(self, sums: FloatArray) -> FloatArray:
        """The variance (columns,) of the column totals of ``sums`` (units, columns)."""
        centred = self.residuals(sums)
        return np.asarray(np.einsum("ij,ij->j", centred, centred))

    def degrees(self, sums: FloatArray, sizes: FloatArray) -> FloatArray:
        """Degrees of freedom (columns,) of that variance, after Satterthwaite (1946).

        ``(sum_h v_h)^2 / sum_h (v_h^2 / d_h)`` for stratum variances ``v_h``, where ``d_h`` is
        ``(sum a)^2 / sum a^2 - 1`` over squared unit sizes ``a``: units less one where all sizes
        are equal, fewer where a few units carry most of the weight. At least 1.
        """
        squared = np.square(sizes)
        spread = np.add.reduceat(squared * squared, self.starts)
        effective = np.square(np.add.reduceat(squared, self.starts)) / np.maximum(spread, 1e-300)
        within = np.maximum(effective - 1.0, 1.0)
        parts = np.add.reduceat(np.square(self.residuals(sums)), self.starts, axis=0)
        total, rough = parts.sum(axis=0), (np.square(parts) / within[:, None]).sum(axis=0)
        # Where nothing varies there is nothing to weigh: the plain count stands in.
        plain = float(self.degrees_of_freedom)
        return np.where(rough > 0, np.square(total) / np.where(rough > 0, rough, 1.0), plain)


def codes_of(values: npt.ArrayLike, n: int, what: str) -> IntArray:
    """``values`` (n,) as codes 0, 1, ... in sorted order of the distinct values."""
    array = np.asarray(values)
    if array.shape != (n,):
        raise ValueError(f"{what} must have shape ({n},), not {array.shape}")
    return np.unique(array, return_inverse=True)[1].astype(np.intp, copy=False)


def design(
    n: int,
    *,
    strata: npt.ArrayLike | None = None,
    clusters: npt.ArrayLike | None = None,
    minimum_clusters: int = MINIMUM_CLUSTERS,
) -> Design:
    """The design of ``n`` images, with ``strata`` and ``clusters`` as codes (n,).

    With both, clusters must lie inside strata. A stratum of one unit tells nothing about its own
    spread: all such strata are collapsed into one (Cochran 1977, section 5A.12), and a single one
    is joined to the smallest other stratum; the variance is then somewhat too large, never too
    small on average.

    >>> design(6, strata=[0, 0, 0, 1, 1, 2]).sizes.tolist()
    [3, 3]
    """
    if n == 0:
        raise NotApplicable("no images to resample", fix="leave out slices with n = 0")
    unit_of_image = None
    units = n
    if clusters is not None:
        unit_of_image = codes_of(clusters, n, "clusters")
        units = int(unit_of_image.max()) + 1
        if units < minimum_clusters:
            raise NotApplicable(
                f"{units} clusters are too few for a cluster bootstrap, which needs "
                f"{minimum_clusters}",
                fix="use a column with more values, or report the score without an interval",
            )
    if units < 2:
        raise NotApplicable(
            "a single image has no spread to resample", fix="use wilson for a plain proportion"
        )
    stratum = np.zeros(units, dtype=np.intp)
    if strata is not None:
        codes = codes_of(strata, n, "strata")
        if unit_of_image is None:
            stratum = codes
        else:
            stratum[unit_of_image] = codes
            if (stratum[unit_of_image] != codes).any():
                raise NotApplicable(
                    "a cluster lies in more than one stratum", fix="resample by clusters alone"
                )
        stratum = _collapse_single(stratum)
        # Inside strata there is no second kind of interval to join: few clusters are not enough.
        needed = FEW_CLUSTERS if minimum_clusters == MINIMUM_CLUSTERS else minimum_clusters
        if unit_of_image is not None and units - len(np.unique(stratum)) < needed - 1:
            raise NotApplicable(
                f"{units} clusters in {len(np.unique(stratum))} strata are too few for a cluster "
                "bootstrap",
                fix="resample by clusters alone",
            )
    order = np.argsort(stratum, kind="stable")
    sizes = np.bincount(stratum)
    sizes = sizes[sizes > 0]
    return Design(
        images=n,
        units=units,
        unit_of_image=unit_of_image,
        order=None if (order == np.arange(units)).all() else order,
        starts=np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.intp),
        sizes=sizes,
    )


def _collapse_single(stratum: IntArray) -> IntArray:
    """Join strata of one unit; see :func:`design`."""
    sizes = np.bincount(stratum)
    single = np.flatnonzero(sizes == 1)
    if len(single) == 0:
        return stratum
    target = np.arange(len(sizes))
    target[single] = single[0]
    if len(single) == 1:
        others = np.where(sizes == 1, np.iinfo(np.intp).max, sizes)
        target[single[0]] = int(np.argmin(others))
    return target[stratum]
