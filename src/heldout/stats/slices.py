"""Means over many slices with their covariance, and quantiles that hold for all of them together."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from heldout.core.errors import NotApplicable
from heldout.stats.bootstrap import MINIMUM_CLUSTERS, codes_of
from heldout.stats.intervals import (
    FloatArray,
    Interval,
    check_level,
    interval_from_error,
    normal_quantile,
    t_quantile,
)

_BLOCK_CELLS = 1 << 22
_DRAWS = 20_000
_SMALL, _LEAST = 1e-9, 1e-300


@dataclass(frozen=True, eq=False)
class Contrast:
    """A weighted sum of slice means for every column of values; arrays (columns,)."""

    value: FloatArray
    error: FloatArray
    degrees: FloatArray


@dataclass(frozen=True, eq=False)
class SliceMeans:
    """Means of ``values`` (n, columns) over slices, and how they vary together.

    ``value``       (slices, columns)
    ``n``           (slices,): images of each slice
    ``clusters``    (slices,): clusters that have images in the slice
    ``covariance``  (columns, slices, slices), linearised: a mean over clusters of unequal size is
                    a ratio, and cluster c pulls it by ``(sum_c - mean n_c) / n``
    ``shares``      (clusters, slices): the part of a slice's images that lie in a cluster; None
                    where every image is drawn by itself
    """

    value: FloatArray
    n: npt.NDArray[np.int64]
    clusters: npt.NDArray[np.int64]
    covariance: FloatArray
    shares: FloatArray | None

    @property
    def error(self) -> FloatArray:
        """Standard errors (slices, columns)."""
        variances = np.einsum("mvv->vm", self.covariance)
        return np.asarray(np.sqrt(np.maximum(variances, 0.0)))

    def contrast(self, weights: npt.ArrayLike) -> Contrast:
        """``weights`` (slices,) times the means, with its standard error and degrees of freedom.

        Degrees after Satterthwaite (1946), with a cluster's part in the variance taken as the
        square of its part in the sum: clusters less one where all weigh the same. Without
        clusters, as in Welch's test.
        """
        w = np.asarray(weights, dtype=np.float64)
        variance = np.maximum(np.einsum("v,mvw,w->m", w, self.covariance, w), 0.0)
        if self.shares is None:
            parts = np.square(w) * np.einsum("mvv->mv", self.covariance)
            rough = (np.square(parts) / np.maximum(self.n - 1.0, 1.0)).sum(axis=1)
            plain = float((self.n - 1).sum())
            degrees = np.where(
                rough > 0, np.square(parts.sum(axis=1)) / np.where(rough > 0, rough, 1.0), plain
            )
        else:
            shared = np.square(self.shares @ np.abs(w))
            spread = np.square(shared).sum()
            one = shared.sum() ** 2 / spread - 1.0 if spread > 0 else 1.0
            degrees = np.full(len(variance), one)
        return Contrast(w @ self.value, np.sqrt(variance), np.maximum(degrees, 1.0))


def slice_means(
    values: npt.ArrayLike,
    slices: npt.ArrayLike,
    *,
    count: int,
    clusters: npt.ArrayLike | None = None,
) -> SliceMeans:
    """Means of ``values`` (n, columns) over ``slices`` (n,), codes from 0 to ``count - 1``.

    ``clusters`` (n,) says which images belong together; without it images are independent, and a
    slice of one image has no spread: its variance is given as 0.

    >>> found = slice_means([[1.0], [0.0], [1.0], [1.0]], [0, 0, 1, 1], count=2)
    >>> found.value.ravel().tolist(), found.n.tolist()
    ([0.5, 1.0], [2, 2])
    """
    data, codes = np.asarray(values, dtype=np.float64), np.asarray(slices)
    n = np.bincount(codes, minlength=count)
    if (n == 0).any():
        raise NotApplicable("a slice has no images", fix="leave out slices with n = 0")
    sums = [np.bincount(codes, column, minlength=count) for column in data.T]
    means: FloatArray = np.stack(sums, axis=1) / n[:, None]
    if clusters is None:
        left = np.square(data - means[codes])
        spread = np.stack([np.bincount(codes, column, minlength=count) for column in left.T])
        variances = spread / n / np.maximum(n - 1.0, 1.0)
        covariance = np.zeros((data.shape[1], count, count))
        covariance[:, np.arange(count), np.arange(count)] = variances
        return SliceMeans(means, n, n, covariance, None)
    cluster = codes_of(clusters, len(data), "clusters")
    units = int(cluster.max()) + 1
    cells = cluster * count + codes
    sizes = np.bincount(cells, minlength=units * count).reshape(units, count)
    present = (sizes > 0).sum(axis=0)
    # Each slice's own clusters less one, as for the variance of a mean.
    scale = np.sqrt(present / np.maximum(present - 1.0, 1.0)) / n
    covariance = np.empty((data.shape[1], count, count))
    for place, column in enumerate(data.T):
        found = np.bincount(cells, column, minlength=units * count).reshape(units, count)
        pull = (found - means[:, place] * sizes) * scale
        covariance[place] = pull.T @ pull
    return SliceMeans(means, n, present, covariance, sizes / n)


def share_in_clusters(
    values: npt.ArrayLike, clusters: npt.ArrayLike, *, level: float = 0.95
) -> Interval:
    """The interval of each mean (columns,) of ``values`` (n, columns), hits and misses in ``clusters``.

    Fewer than 8 clusters are refused.
    """
    data = np.asarray(values)
    means = slice_means(data, np.zeros(len(data), dtype=np.int64), count=1, clusters=clusters)
    if (units := int(means.clusters[0])) < MINIMUM_CLUSTERS:
        many = "a single cluster is" if units == 1 else f"{units} clusters are"
        raise NotApplicable(
            f"{many} too few for an interval, which needs {MINIMUM_CLUSTERS}",
            fix="use a column with more values, or report the share without an interval",
        )
    found = means.contrast([1.0])
    limits = interval_from_error(
        found.value,
        found.error,
        quantile=t_quantile(level, found.degrees),
        level=level,
        bounds=(0.0, 1.0),
        units=found.degrees + 1.0,
    )
    return replace(limits, method=f"cluster-{limits.method}")


@dataclass(frozen=True, eq=False)
class SliceGaps:
    """Slices, each against all rows outside it; arrays (slices, columns) but for ``n`` (slices,).

    ``inside``, ``outside``  means; ``p`` two-sided, of a mean inside that is no lower; 1 for what is
                             within a standard error, or cannot be tested
    """

    n: npt.NDArray[np.int64]
    inside: FloatArray
    outside: FloatArray
    p: FloatArray

    def limits(self, at: tuple[int, int], level: float) -> tuple[float, float]:
        """Test-based limits (Miettinen 1976) of inside less outside: they leave out 0 where p does."""
        from scipy.special import ndtri

        gap = float(self.inside[at] - self.outside[at])
        score = float(ndtri(max(self.p[at], _LEAST) / 2.0)) or -1.0
        half = abs(gap * normal_quantile(level) / score)
        return gap - half, gap + half


def slice_gaps(
    values: npt.ArrayLike,
    rows: npt.ArrayLike,
    codes: npt.ArrayLike,
    *,
    count: int,
    clusters: npt.ArrayLike | None = None,
) -> SliceGaps:
    """Whether slices, pairs of ``rows`` and ``codes`` from 0 to ``count - 1``, lie below all other rows.

    ``values`` (n, columns) lie from 0 to 1. A slice's mean is set against the overall mean by the
    binomial's tail, which is skewed as hits and misses are, where a normal's is not. Its number of
    trials is what gives the variance that the slice has: rows outside it are no more than there are,
    and rows of one of the ``clusters`` (n,) go together, as much as they do over all slices (Korn
    and Graubard 1998); what so many clusters leave unknown of that makes the tail a t's.

    >>> found = slice_gaps([[1], [1], [1], [1], [0], [0]], [4, 5, 0], [0, 0, 1], count=2)
    >>> found.p.ravel().round(3).tolist()
    [0.074, 1.0]
    """
    from scipy.special import betainc, ndtri, stdtr

    data, place, code = np.asarray(values, dtype=np.float64), np.asarray(rows), np.asarray(codes)
    total, n = len(data), np.bincount(code, minlength=count).astype(np.float64)[:, None]
    sums = np.stack([np.bincount(code, c[place], minlength=count) for c in data.T], axis=1)
    mean, share = data.mean(axis=0), n / total
    possible, inside = (n > 0) & (n < total), sums / np.maximum(n, 1.0)
    outside = (mean * total - sums) / np.maximum(total - n, 1.0)
    own = np.maximum(n * (1.0 - share), _SMALL)  # the squares of the weights that rows have
    spread = np.maximum(mean * (1.0 - mean), _SMALL)
    design, degrees = data.var(axis=0) / spread, np.inf
    if clusters is not None:
        cluster = codes_of(clusters, total, "clusters")
        sizes = np.bincount(cluster).astype(np.float64)
        degrees, left = len(sizes) - 1.0, data - mean
        cells, held = np.unique(cluster[place] * count + code, return_counts=True)
        unit, member = np.divmod(cells, count)
        possible &= np.bincount(member, minlength=count)[:, None] >= MINIMUM_CLUSTERS
        # Those of clusters: what they hold of a slice, less its share of all that they hold.
        crossed = held * (held - 2.0 * share[member, 0] * sizes[unit])
        whole = np.bincount(member, crossed, count)[:, None] + np.square(share) * (sizes @ sizes)
        apart = np.stack([np.square(np.bincount(cluster, c)).sum() for c in left.T])
        together = apart * (1.0 + 1.0 / max(degrees, 1.0)) - np.square(left).sum(axis=0)
        together = np.maximum(together, 0.0) / max(
            sizes @ sizes - total, 1.0
        )  # covariance of a pair
        design = np.maximum(design + together / spread * (whole - own) / own, 1.0)
    trials = np.square(n) / (own * np.maximum(design, _SMALL))
    hits = np.minimum(inside, mean) * trials
    tail = betainc(trials - hits + _SMALL, hits + 1.0, 1.0 - mean)
    p = 2.0 * stdtr(degrees, ndtri(np.maximum(tail, _LEAST)))
    p = np.where(possible & (inside < mean), np.minimum(p, 1.0), 1.0)
    return SliceGaps(n[:, 0].astype(np.int64), inside, outside, p)


def joint_quantile(
    covariance: npt.ArrayLike,
    degrees: float,
    *,
    rng: np.random.Generator,
    level: float = 0.95,
    draws: int = _DRAWS,
) -> float:
    """How many standard errors each of many means needs so that all hold together at ``level``.

    The quantile of the largest of correlated t values (Hothorn, Bretz and Westfall 2008), drawn
    with the given ``covariance`` (slices, slices) and ``degrees``. Never below the quantile of one
    t, nor above Bonferroni's. Means that never vary take no part.

    >>> one = joint_quantile(np.eye(1), 30, rng=np.random.default_rng(0))
    >>> ten = joint_quantile(np.eye(10), 30, rng=np.random.default_rng(0))
    >>> round(one, 2), 2.9 < ten < 3.2
    (2.04, True)
    """
    matrix = np.asarray(covariance, dtype=np.float64)
    spread = np.sqrt(np.maximum(np.diagonal(matrix), 0.0))
    varies = np.flatnonzero(spread > 1e-12)
    least = float(t_quantile(check_level(level), degrees))
    if len(varies) < 2:
        return least
    correlation = matrix[np.ix_(varies, varies)] / np.outer(spread[varies], spread[varies])
    roots, vectors = np.linalg.eigh(correlation)
    kept = roots > 1e-9 * roots[-1]
    factor = vectors[:, kept] * np.sqrt(roots[kept])
    largest = np.empty(draws)
    rows = max(1, _BLOCK_CELLS // len(varies))
    for first in range(0, draws, rows):
        drawn = rng.standard_normal((min(rows, draws - first), factor.shape[1]))
        largest[first : first + len(drawn)] = np.abs(drawn @ factor.T).max(axis=1)
    largest /= np.sqrt(rng.chisquare(degrees, draws) / degrees)
    most = float(t_quantile(1.0 - (1.0 - level) / len(varies), degrees))
    return float(np.clip(np.quantile(largest, level), least, most))
