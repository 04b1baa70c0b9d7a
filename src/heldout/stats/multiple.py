"""Looking at many numbers at once: adjusted p values, simultaneous levels, the worst slice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from heldout.core.errors import NotApplicable
from heldout.stats.intervals import (
    FloatArray,
    Interval,
    check_counts,
    check_level,
    clopper_pearson_limits,
)


def _p_values(p: npt.ArrayLike) -> FloatArray:
    values = np.asarray(p, dtype=np.float64)
    if values.ndim != 1:
        raise ValueError("p values must have shape (m,)")
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError("p values must lie between 0 and 1")
    return values


def holm(p: npt.ArrayLike) -> FloatArray:
    """Holm's (1979) adjusted p values (m,): none false with probability ``1 - alpha``.

    Reject where the adjusted value is at most alpha. Valid under any dependence.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    values = _p_values(p)
    order = np.argsort(values, kind="stable")
    steps = values[order] * np.arange(len(values), 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def simultaneous_level(level: float, count: int) -> float:
    """The level of each of ``count`` intervals so that all hold together at ``level``.

    Bonferroni: ``1 - (1 - level) / count``, under any dependence.

    >>> round(simultaneous_level(0.95, 10), 6)
    0.995
    """
    check_level(level)
    if count < 1:
        raise NotApplicable("a simultaneous level over nothing", fix="give at least one slice")
    return 1.0 - (1.0 - level) / count


def max_t(estimate: npt.ArrayLike, replicates: npt.ArrayLike, *, level: float = 0.95) -> Interval:
    """Simultaneous intervals for ``estimate`` (columns,) from shared replicates (B, columns).

    ``estimate ± c × standard error``, with ``c`` the ``level`` quantile over replicates of the
    largest ``|replicate - estimate| / standard error`` among columns: narrower than Bonferroni
    where columns move together, as models on the same images do. Columns that never vary get no
    width.

    >>> draws = np.random.default_rng(0).normal(size=(1000, 3))
    >>> interval = max_t(np.zeros(3), draws)
    >>> bool((interval.high > 1.96).all())
    True
    """
    check_level(level)
    centre = np.asarray(estimate, dtype=np.float64)
    draws = np.asarray(replicates, dtype=np.float64)
    if centre.ndim != 1 or draws.ndim != 2 or draws.shape[1:] != centre.shape or len(draws) < 2:
        raise ValueError("estimate must be (columns,) and replicates (B, columns)")
    if centre.size == 0:
        raise NotApplicable("simultaneous intervals over nothing", fix="give at least one column")
    error = np.sqrt(np.square(draws - centre).mean(axis=0))
    scaled = np.abs(draws - centre) / np.where(error > 0, error, 1.0)
    critical = np.quantile(scaled.max(axis=1), level)
    return Interval(centre - critical * error, centre + critical * error, "max-t", level)


@dataclass(frozen=True)
class WorstSlice:
    """The slice with the lowest accuracy, and what can be said after looking at all of them.

    ``index`` is its position in the input, ``value`` its accuracy; ``interval`` is for the lowest
    *true* accuracy among the slices compared (whichever slice that is), ``slice_interval`` for the
    true accuracy of the slice at ``index``. ``slices`` were compared, ``dropped`` were too small.
    """

    index: int
    value: float
    interval: Interval
    slice_interval: Interval
    slices: int
    dropped: int


def worst_slice_interval(
    k: npt.ArrayLike, n: npt.ArrayLike, *, level: float = 0.95, minimum_n: int = 1
) -> WorstSlice:
    """The worst of many slices, with intervals that stay honest after the search.

    ``k`` right of ``n`` images in each slice (slices,); slices may overlap. Slices of fewer than
    ``minimum_n`` images are left out: with few images, some slice is always at zero. Ties go to
    the slice with more images, then to the earlier one.

    All limits are exact (Clopper-Pearson). The low limit of the lowest accuracy is the lowest low
    limit, and needs no correction: it fails only if the truly worst slice's own limit fails
    (Berger 1982). The high limit is the lowest high limit, and fails if any one does: its tail is
    divided by the number of slices. The interval of the named slice divides both tails.

    >>> worst = worst_slice_interval([80, 75, 18], [100, 100, 20], minimum_n=10)
    >>> worst.index, worst.value
    (1, 0.75)
    >>> round(worst.interval.low, 3), round(worst.interval.high, 3)
    (0.653, 0.846)
    """
    tail = (1.0 - check_level(level)) / 2.0
    hits, trials = np.asarray(k, dtype=np.float64), np.asarray(n, dtype=np.float64)
    if hits.ndim != 1 or hits.shape != trials.shape:
        raise ValueError("k and n must have one shape (slices,)")
    kept = np.flatnonzero(trials >= max(minimum_n, 1))
    if len(kept) == 0:
        raise NotApplicable(
            f"no slice has {max(minimum_n, 1)} images", fix="lower the minimum n of a slice"
        )
    hits, trials = check_counts(hits[kept], trials[kept])
    values = hits / trials
    best = int(np.lexsort((-trials, values))[0])
    low, _ = clopper_pearson_limits(hits, trials, tail, tail)
    shared_low, shared_high = clopper_pearson_limits(
        hits, trials, tail / len(kept), tail / len(kept)
    )
    return WorstSlice(
        index=int(kept[best]),
        value=float(values[best]),
        interval=Interval(float(low.min()), float(shared_high.min()), "worst-slice", level),
        slice_interval=Interval(
            float(shared_low[best]),
            float(shared_high[best]),
            "bonferroni-clopper-pearson",
            level,
        ),
        slices=len(kept),
        dropped=int(np.asarray(k).size) - len(kept),
    )
