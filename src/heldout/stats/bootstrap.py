"""The bootstrap, as weights: every replicate is a row of weights over images.

All scores here are means, or ratios of sums, so a replicate is ``weights @ values`` and a thousand
replicates of sixty models are one matrix product. Every design draws one unit less than a stratum
has and scales the weights up (Rao and Wu 1988): the variance over replicates is then the unbiased
one, which matters at ten images per class, where the textbook bootstrap is 10 % short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from heldout.core.errors import NotApplicable
from heldout.stats.intervals import (
    FloatArray,
    Interval,
    Method,
    check_level,
    clustered_proportion,
    interval_from_replicates,
    scalar_or_array,
)

IntArray = npt.NDArray[np.intp]

MINIMUM_CLUSTERS = 8
"""Fewer clusters are refused: at five, intervals span most of the scale and say next to nothing."""
FEW_CLUSTERS = 100
"""Below this many, resampling does not show how alike the images of a cluster are."""


@dataclass(frozen=True)
class Design:
    """Units in order of stratum; stratum ``h`` is ``units[starts[h] : starts[h] + sizes[h]]``."""

    units: int
    unit_of_image: IntArray | None  # None: every image is its own unit, in order
    order: IntArray | None  # position in stratum order -> unit; None: already in order
    starts: IntArray
    sizes: IntArray

    @property
    def name(self) -> str:
        """``plain``, ``stratified`` or ``cluster``."""
        if self.unit_of_image is not None:
            return "cluster"
        return "stratified" if len(self.sizes) > 1 else "plain"

    @property
    def degrees_of_freedom(self) -> int:
        """Units less strata, as is usual for surveys."""
        return self.units - len(self.sizes)

    def unit_sums(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Sums of ``values`` (images, ...) over units, in stratum order: (units, ...)."""
        if self.unit_of_image is not None:
            by_unit = np.argsort(self.unit_of_image, kind="stable")
            firsts = np.searchsorted(self.unit_of_image[by_unit], np.arange(self.units))
            return np.asarray(np.add.reduceat(values[by_unit], firsts, axis=0))
        return values if self.order is None else values[self.order]

    def to_images(self, weights: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Weights of units in stratum order (..., units) as weights of images (..., images)."""
        if self.unit_of_image is not None:
            return weights[..., self.unit_of_image]
        return weights if self.order is None else weights[..., np.argsort(self.order)]

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
) -> Design:
    """The design of ``n`` images, with ``strata`` or ``clusters`` as codes (n,), not both.

    A stratum of one image says nothing about its own spread: all such strata are collapsed into one
    (Cochran 1977, section 5A.12), and a single one is joined to the smallest other stratum; the
    variance is then somewhat too large, never too small on average.

    >>> design(6, strata=[0, 0, 0, 1, 1, 2]).sizes.tolist()
    [3, 3]
    """
    if n == 0:
        raise NotApplicable("no images to resample", fix="leave out slices with n = 0")
    if strata is not None and clusters is not None:
        raise ValueError("images have strata or clusters, not both")
    if clusters is not None:
        unit_of_image = codes_of(clusters, n, "clusters")
        units = int(unit_of_image.max()) + 1
        if units < MINIMUM_CLUSTERS:
            raise NotApplicable(
                f"{units} clusters are too few for a cluster bootstrap, which needs "
                f"{MINIMUM_CLUSTERS}",
                fix="use a column with more values, or report the score without an interval",
            )
        return Design(units, unit_of_image, None, np.zeros(1, np.intp), np.array([units]))
    if n < 2:
        raise NotApplicable(
            "a single image has no spread to resample", fix="use wilson for a plain proportion"
        )
    if strata is None:
        return Design(n, None, None, np.zeros(1, np.intp), np.array([n]))
    stratum = _collapse_single(codes_of(strata, n, "strata"))
    order = np.argsort(stratum, kind="stable")
    sizes = np.bincount(stratum)
    sizes = sizes[sizes > 0]
    return Design(
        units=n,
        unit_of_image=None,
        order=None if (order == np.arange(n)).all() else order,
        starts=np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.intp),
        sizes=sizes,
    )


def _collapse_single(stratum: IntArray) -> IntArray:
    """Join strata of one image; see :func:`design`."""
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


WeightArray = npt.NDArray[np.float32]

_BLOCK_CELLS = 1 << 21  # 8 MB of float32 a block: the product stays in cache, memory stays small


@dataclass(frozen=True)
class BootstrapEstimate:
    """A value, its interval, and the replicates behind it.

    ``value``, ``standard_error`` and the limits are floats for one column of values and arrays
    (columns,) for many; ``replicates`` is (replicates,) or (replicates, columns). ``units`` is
    the effective number of units drawn, ``degrees_of_freedom`` that of the standard error.
    """

    value: Any
    interval: Interval
    standard_error: Any
    replicates: FloatArray
    units: float
    degrees_of_freedom: Any


def resample_weights(
    rng: np.random.Generator,
    n: int,
    *,
    replicates: int,
    strata: npt.ArrayLike | None = None,
    clusters: npt.ArrayLike | None = None,
) -> Iterator[WeightArray]:
    """Blocks (b, n) of bootstrap weights, ``replicates`` rows in all; each row sums to ``n``.

    ``strata`` and ``clusters`` are codes (n,): images are drawn inside their stratum, whole
    clusters are drawn together (the rows then sum to ``n`` on average). Strata of one image: see
    :func:`heldout.stats.bootstrap.design`.

    >>> rng = np.random.default_rng(0)
    >>> [block.shape for block in resample_weights(rng, 4, replicates=5)]
    [(5, 4)]
    """
    layout = design(n, strata=strata, clusters=clusters)
    for weights in _unit_weights(rng, layout, replicates):
        yield layout.to_images(weights)


def _unit_weights(
    rng: np.random.Generator, layout: Design, replicates: int
) -> Iterator[WeightArray]:
    """Blocks (b, units) of Rao-Wu weights, units in stratum order."""
    units = layout.units
    rows = max(1, _BLOCK_CELLS // units)
    draws = layout.sizes - 1
    scale = np.repeat(layout.sizes / np.maximum(draws, 1), layout.sizes).astype(np.float32)
    slot_start, slot_size = np.repeat(layout.starts, draws), np.repeat(layout.sizes, draws)
    equal = bool((layout.sizes == layout.sizes[0]).all())  # one stratum included
    for first in range(0, replicates, rows):
        b = min(rows, replicates - first)
        if equal:
            drawn = rng.integers(0, layout.sizes[0], size=(b, len(slot_start)))
        else:
            drawn = (rng.random((b, len(slot_start))) * slot_size).astype(np.intp)
            # A product that rounds up to the size itself would fall into the next stratum.
            np.minimum(drawn, slot_size - 1, out=drawn)
        drawn += slot_start
        drawn += (np.arange(b) * units)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=b * units).reshape(b, units)
        yield counts.astype(np.float32) * scale


def bootstrap_mean(
    values: npt.ArrayLike,
    *,
    rng: np.random.Generator,
    replicates: int = 1000,
    level: float = 0.95,
    strata: npt.ArrayLike | None = None,
    clusters: npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
    bounds: tuple[float, float] | None = (0.0, 1.0),
    method: Method | Literal["auto"] = "auto",
) -> BootstrapEstimate:
    """A mean over images with an interval that respects how the images were drawn.

    ``values`` is (n,) or (n, columns), say one column a model: all columns share the replicates.
    ``weights`` (n,) gives the weighted mean ``sum(w v) / sum(w)``; with :func:`equal_weights` that is
    the mean over classes of the accuracy in the class. ``bounds`` are the least and the greatest
    possible value, ``None`` where there are none (a loss).

    ``method="auto"`` takes what held its coverage in ``benchmarks/interval_coverage.py``: ``wilson`` where
    bounds are known; ``studentised`` for clusters, and without bounds; ``t`` for strata without
    bounds. Fewer than 100 clusters of bounded values get :func:`clustered_proportion`.

    >>> rng = np.random.default_rng(0)
    >>> right = np.repeat([1.0, 0.0], [80, 20])
    >>> result = bootstrap_mean(right, rng=rng)
    >>> result.value, round(result.interval.low, 2), round(result.interval.high, 2)
    (0.8, 0.71, 0.87)
    """
    check_level(level)
    data = np.asarray(values, dtype=np.float64)
    if not np.isfinite(data).all():
        raise ValueError("values must be finite")
    if bounds is not None and data.size and (data.min() < bounds[0] or data.max() > bounds[1]):
        raise ValueError(f"values lie outside bounds {bounds}: give the true bounds, or None")
    n = len(data)
    layout = design(n, strata=strata, clusters=clusters)
    importance = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    if importance.shape != (n,) or not np.isfinite(importance).all() or (importance < 0).any():
        raise ValueError(f"weights must be {n} finite numbers, none below zero")
    if importance.sum() == 0:
        raise NotApplicable("all weights are zero", fix="give at least one image a weight")
    columns = data.reshape(n, -1)
    value = importance @ columns / importance.sum()
    # Centred sums: float32 then carries the deviation, not the mean.
    sums = layout.unit_sums(importance[:, None] * (columns - value))
    sizes = layout.unit_sums(importance)
    few = False
    if method == "auto":
        clustered = layout.unit_of_image is not None
        few = clustered and layout.units < FEW_CLUSTERS and bounds is not None
        if clustered or (bounds is None and len(layout.sizes) == 1):
            method = "studentised"
        else:
            method = "t" if bounds is None else "wilson"
    deviations, student = _replicate(rng, layout, replicates, sums, sizes, method == "studentised")
    linear = np.sqrt(layout.variance(sums)) / sizes.sum()
    # Bootstrap-t divides by the formula that each replicate used. Float32 weights leave dust where
    # nothing varies, and no variation is a case of its own: the formula tells which columns.
    error = linear if student is not None else np.sqrt(np.square(deviations).mean(axis=0))
    error = np.where(linear > 1e-10 * (1.0 + np.abs(value)), error, 0.0)
    shape = data.shape[1:]
    drawn = (value + deviations).reshape(replicates, *shape)
    value, error = value.reshape(shape), error.reshape(shape)
    units = float(sizes.sum() ** 2 / np.square(sizes).sum())
    degrees = layout.degrees(sums, sizes).reshape(shape)
    interval = interval_from_replicates(
        value,
        drawn,
        level=level,
        method=method,
        bounds=bounds,
        units=units,
        degrees_of_freedom=degrees,
        standard_error=error,
        student=None if student is None else student.reshape(drawn.shape),
    )
    low, high, name = interval.low, interval.high, f"{layout.name}-bootstrap-{method}"
    if few and bounds is not None:
        least, width = bounds[0], bounds[1] - bounds[0]
        found = clustered_proportion(
            np.clip((value.reshape(-1) - least) / width, 0.0, 1.0),
            layout.unit_sums((columns - least) / width),
            layout.unit_sums(np.ones(n)),
            alone=float(np.square(importance).sum() / sizes.sum() ** 2),
            together=1.0 / units,
            level=level,
        )
        low, high = (least + width * limits.reshape(shape) for limits in (found.low, found.high))
        name = f"{layout.name}-{found.method}"
    return BootstrapEstimate(
        scalar_or_array(value),
        Interval(scalar_or_array(low), scalar_or_array(high), name, level),
        scalar_or_array(error),
        drawn,
        units,
        scalar_or_array(degrees),
    )


def equal_weights(groups: npt.ArrayLike) -> FloatArray:
    """Weights (n,) under which every group counts once, however many images it has.

    >>> equal_weights([0, 0, 1]).tolist()
    [0.5, 0.5, 1.0]
    """
    _, codes, sizes = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
    return np.asarray(1.0 / sizes[codes])


def _replicate(
    rng: np.random.Generator,
    layout: Design,
    replicates: int,
    sums: FloatArray,
    sizes: FloatArray,
    studentise: bool,
) -> tuple[FloatArray, FloatArray | None]:
    """Deviations (replicates, columns) from the estimate, and their t values if asked.

    A replicate's own variance is linear in the weights too: with ``e = s - d m`` for a unit of sum
    ``s`` and size ``m``, ``sum w e^2 = sum w s^2 - 2 d sum w s m + d^2 sum w m^2``.
    """
    total, units = sizes.sum(), layout.units
    parts = [sums, sizes[:, None]]
    if studentise:
        parts += [sums * sums, sums * sizes[:, None], (sizes * sizes)[:, None]]
    operand = np.ascontiguousarray(np.hstack(parts) * (units / total), dtype=np.float32)
    columns = sums.shape[1]
    deviations = np.empty((replicates, columns))
    variances = np.empty((replicates, columns)) if studentise else None
    first = 0
    for weights in _unit_weights(rng, layout, replicates):
        product = (weights @ operand).astype(np.float64)
        last = first + len(weights)
        size = product[:, columns : columns + 1]
        if (size <= 0).any():
            raise NotApplicable(
                "a resample carries no weight at all", fix="too few images have weight"
            )
        d = product[:, :columns] / size
        deviations[first:last] = d
        if variances is not None:
            square = product[:, columns + 1 : 2 * columns + 1]
            cross = product[:, 2 * columns + 1 : 3 * columns + 1]
            residual = square - 2.0 * d * cross + d * d * product[:, -1:]
            scale = units / total / max(units - 2, 1) * units
            variances[first:last] = np.maximum(residual, 0.0) * scale / np.square(size)
        first = last
    if variances is None:
        return deviations, None
    spread = np.sqrt(variances)
    floor = 1e-6 * np.maximum(np.abs(deviations).max(axis=0), 1e-300)
    return deviations, deviations / np.maximum(spread, floor)


def bootstrap_statistic(
    function: Callable[[npt.NDArray[Any]], npt.ArrayLike],
    n: int,
    *,
    rng: np.random.Generator,
    replicates: int = 1000,
    level: float = 0.95,
    clusters: npt.ArrayLike | None = None,
    takes: Literal["indices", "weights"] = "indices",
    method: Method = "t",
    bounds: tuple[float, float] | None = None,
) -> BootstrapEstimate:
    """Any statistic of ``n`` images, with an interval; for what is not a mean.

    ``function`` gets the indices of the drawn images, with repeats, or a row of weights (n,), and
    returns a number or an array (columns,). Its value on all images is the estimate. Not for what
    takes absolute values, such as a calibration error: noise makes it larger, a resample's again.

    >>> rng = np.random.default_rng(0)
    >>> values = np.arange(100.0)
    >>> result = bootstrap_statistic(lambda drawn: np.median(values[drawn]), 100, rng=rng)
    >>> result.value, bool(result.interval.low < 49.5 < result.interval.high)
    (49.5, True)
    """
    layout = design(n, clusters=clusters)
    by_index = takes == "indices"
    value = np.asarray(function(np.arange(n) if by_index else np.ones(n)), dtype=np.float64)
    out = np.empty((replicates, *value.shape))
    drawn = (
        weights
        for block in _unit_weights(rng, layout, replicates)
        for weights in layout.to_images(block)
    )
    times = (layout.units - 1) / layout.units  # weights are counts scaled up: see _unit_weights
    for row, weights in enumerate(drawn):
        if by_index:
            counts = np.rint(weights * times).astype(np.intp)
            out[row] = function(np.repeat(np.arange(n), counts))
        else:
            out[row] = function(weights.astype(np.float64))
    error = out.std(axis=0, ddof=1)  # rounding leaves dust where nothing varies
    interval = interval_from_replicates(
        value,
        out,
        level=level,
        method=method,
        bounds=bounds,
        units=layout.units,
        degrees_of_freedom=layout.degrees_of_freedom,
    )
    return BootstrapEstimate(
        scalar_or_array(value),
        Interval(interval.low, interval.high, f"{layout.name}-bootstrap-{method}", level),
        scalar_or_array(np.where(error > 1e-10 * (1.0 + np.abs(value)), error, 0.0)),
        out,
        float(layout.units),
        layout.degrees_of_freedom,
    )
