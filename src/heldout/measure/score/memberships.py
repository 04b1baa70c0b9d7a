"""Overlapping slices of one set of images: what holds over all of them, and against a number.

An image may be in ten slices. Here it counts once where all images are meant, the average over
slices knows which slices share images, and the worst of many has limits for having looked at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from heldout.core.errors import NotApplicable
from heldout.measure.score.estimate import LEVEL, IntervalOptions, estimate, part_of
from heldout.measure.score.measure import Measured
from heldout.measure.score.records import Summary, estimated
from heldout.measure.score.slices import ALL, Partition, parse_slice, partitions
from heldout.stats.bootstrap import MINIMUM_CLUSTERS
from heldout.stats.intervals import Interval, interval_from_error, t_quantile
from heldout.stats.multiple import worst_slice_interval

_OPTIONS = IntervalOptions()
MINIMUM_SLICES = 4
"""A slope or a correlation over fewer slices has no interval."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Overlapping:
    """Slices of one measurement that may share images.

    ``partition``  the slices that have rows
    ``clusters``   int64 (n,): which measured rows belong together; by default those of one image
    """

    measured: Measured
    column: str
    partition: Partition
    clusters: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.partition.names)

    @property
    def values(self) -> list[str]:
        """The value of the column that each slice is of."""
        return [parse_slice(name)[self.column] for name in self.partition.names]

    @cached_property
    def n(self) -> np.ndarray:
        """Rows of each slice; int64 (slices,)."""
        return np.bincount(self.partition.codes)

    @cached_property
    def hits(self) -> np.ndarray:
        """Sums of the metric over each slice; float64 (slices, models)."""
        found = np.zeros((len(self), len(self.measured.models)))
        values = self.measured.values[self.partition.positions]
        np.add.at(found, self.partition.codes, values.astype(np.float64))
        return found

    @cached_property
    def means(self) -> np.ndarray:
        """The metric on each slice; float64 (slices, models)."""
        return np.asarray(self.hits / self.n[:, None])

    @property
    def units(self) -> np.ndarray:
        """What was drawn together with each measured row: its image, or its cluster; int64 (n,)."""
        return self.measured.rows if self.clusters is None else self.clusters

    @cached_property
    def images(self) -> int:
        """Images that are in some slice."""
        return len(np.unique(self.measured.rows[self.partition.positions]))

    def influence(self, weights: np.ndarray) -> np.ndarray:
        """How far each image (or cluster) moves ``weights`` (slices,) times the means; (u, models).

        The linear part of a sum of ratios: row i moves the mean of its slice s by
        ``(value_i - mean_s) / n_s``. An image's influence over all its slices and rows is one
        number, which is how overlap enters every error below.
        """
        rows, codes = self.partition.positions, self.partition.codes
        part = (weights / self.n)[codes][:, None] * (self.measured.values[rows] - self.means[codes])
        return unit_sums(part, self.units[rows])

    def summary(
        self,
        m: int | None,
        name: str,
        value: Any,
        interval: Interval | None = None,
        *,
        reason: str | None = None,
        **fields: Any,
    ) -> Summary:
        """A summary of these slices; ``m`` is the model, None for what holds whatever the model."""
        return Summary(
            **self.measured.subject(m),
            columns=self.column,
            name=name,
            **{"n": self.images} | fields,
            **estimated(value, interval, reason=reason),
        )


def unit_sums(values: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Sums of rows (n, models) that belong together, in order of their unit; (units, models)."""
    _, code = np.unique(units, return_inverse=True)
    found = np.zeros((int(code.max()) + 1, values.shape[1]))
    np.add.at(found, code, values)
    return found


def overlapping_slices(
    measured: Measured,
    column: str,
    *,
    partition: Partition | None = None,
    clusters: np.ndarray | None = None,
) -> Overlapping:
    """The slices of a column that have any rows, in the column's order."""
    if not measured.metric.counted:
        raise NotApplicable(
            f"{measured.metric.name} is not a plain accuracy, which these readings are of",
            fix="read top1",
        )
    found = partition or partitions(measured, [column])[0]
    found = found.of_slices(np.unique(found.codes))
    if not found.names:
        raise NotApplicable(f"no image has a value of {column}", fix="read another column")
    return Overlapping(measured=measured, column=column, partition=found, clusters=clusters)


def membership_records(
    measured: Measured,
    column: str,
    *,
    partition: Partition | None = None,
    clusters: np.ndarray | None = None,
    worst_n: int = 20,
    options: IntervalOptions = _OPTIONS,
) -> list[Summary]:
    """What a membership shows beyond the scores of its slices, for every model.

    ``image_mean``     over images in some slice, each once however many slices and rows it has
    ``group_mean``     over slices, each once
    ``class_mean``     over classes of their mean over slices, where slices are of several classes
    ``worst_value``    the lowest slice of ``worst_n`` rows, limits for having looked at all

    ``clusters`` (n,) are codes of rows that belong together, such as frames of one film: the means
    then allow for that, and the worst slice, which rests on images drawn one by one, is left out.
    """
    level = options.level
    slices = overlapping_slices(measured, column, partition=partition, clusters=clusters)
    records = [*_image_mean(slices, options)]
    records += _combined(slices, "group_mean", np.full(len(slices), 1 / len(slices)), level)
    _, code, size = np.unique(_classes(slices), return_inverse=True, return_counts=True)
    if len(size) > 1:
        records += _combined(slices, "class_mean", 1 / size[code] / len(size), level)
    large = np.flatnonzero(slices.n >= worst_n)
    if len(large) > 1 and clusters is None:
        for m in range(len(measured.models)):
            worst = worst_slice_interval(slices.hits[large, m], slices.n[large], level=level)
            at = int(large[worst.index])
            where: dict[str, Any] = {"n": int(slices.n[at]), "at": slices.values[at]}
            records.append(slices.summary(m, "worst_value", worst.value, worst.interval, **where))
    return records


def _image_mean(slices: Overlapping, options: IntervalOptions) -> Iterator[Summary]:
    """The mean over the images of some slice, each once: where these are all images, their score."""
    rows = np.unique(slices.partition.positions)
    part, together = part_of(slices.measured, rows, slices.clusters)
    purpose = f"score {part.metric.name} {ALL}"
    found = estimate(part, options, purpose, clusters=together)
    for m, mean in enumerate(found.value):
        interval = None if found.interval is None else found.interval.at(m)
        yield slices.summary(m, "image_mean", mean, interval, reason=found.reason)


def _combined(
    slices: Overlapping, name: str, weights: np.ndarray, level: float
) -> Iterator[Summary]:
    """``weights`` (slices,), none below zero, times the means."""
    value = weights @ slices.means
    yield from _with_limits(slices, name, value, slices.influence(weights), level)


def _with_limits(
    slices: Overlapping, name: str, value: np.ndarray, influence: np.ndarray, level: float
) -> Iterator[Summary]:
    """A mean (models,) with limits from the influence (units, models) of what was drawn.

    Images (or clusters) were drawn: the variance is the sum of squares, times ``n / (n - 1)``.
    Too few clusters have no interval.
    """
    n = len(influence)
    if slices.clusters is not None and n < MINIMUM_CLUSTERS:
        reason = f"{n} clusters are too few for an interval, which needs {MINIMUM_CLUSTERS}"
        for m, mean in enumerate(value):
            yield slices.summary(m, name, mean, reason=reason)
        return
    limits = interval_from_error(
        value,
        np.sqrt(np.square(influence).sum(axis=0) * n / max(n - 1, 1)),
        quantile=t_quantile(level, float(max(n - 1, 1))),
        level=level,
        bounds=(0.0, 1.0),
        units=float(n),
    )
    if slices.clusters is not None:
        limits = replace(limits, method=f"cluster-{limits.method}")
    for m, mean in enumerate(value):
        yield slices.summary(m, name, mean, limits.at(m))


def _classes(slices: Overlapping) -> np.ndarray:
    """The class that most rows of each slice have; int64 (slices,), the first of equals."""
    groups = slices.measured.groups[slices.partition.positions]
    width = int(groups.max()) + 2
    counts = np.bincount(slices.partition.codes * width + groups + 1, minlength=len(slices) * width)
    return np.asarray(counts.reshape(len(slices), width).argmax(axis=1) - 1)


@dataclass(frozen=True, kw_only=True)
class SliceNumber:
    """A number that one slice has, with its limits where they are known."""

    value: float
    low: float | None = None
    high: float | None = None


def property_records(
    measured: Measured,
    column: str,
    numbers: Mapping[str, SliceNumber],
    *,
    name: str = "distance",
    clusters: np.ndarray | None = None,
    level: float = LEVEL,
) -> list[Summary]:
    """How accuracy on the values of ``column`` goes with a number that these values have.

    ``numbers`` are by value, such as ``cat(sofa)``; values without one are left out. First a
    summary called ``name`` for each value (no model), then for each model

    ``slope``             change of accuracy per unit of the number: least squares, slices weighted
                          by their images; its error is the larger of two: that of the images drawn,
                          overlap between slices counted, and that of slices about the line (HC3,
                          Long and Ervin 2000), so that the line need not be true
    ``rank_correlation``  Spearman's, with Fisher's transformation and the error of Bonett and
                          Wright (2000), over slices

    Where fewer than four slices have a number, slope and correlation say so and have no interval.
    """
    slices = overlapping_slices(measured, column, clusters=clusters)
    kept = [code for code, value in enumerate(slices.values) if value in numbers]
    if not kept:
        raise NotApplicable(
            f"no value of {column} has a {name}", fix="check how the values are written"
        )
    slices = replace(slices, partition=slices.partition.of_slices(np.array(kept)))
    given = [numbers[value] for value in slices.values]
    x = np.array([number.value for number in given])
    records = [
        replace(
            slices.summary(None, name, number.value, n=int(slices.n[code]), at=slices.values[code]),
            low=number.low,
            high=number.high,
        )
        for code, number in enumerate(given)
    ]
    for m in range(len(measured.models)):
        for what, number in (("slope", _slope), ("rank_correlation", _correlation)):
            value, interval, reason = number(slices, m, x, name, level)
            if value is not None and len(x) < MINIMUM_SLICES:
                reason = f"{len(x)} slices are too few, {MINIMUM_SLICES} are needed"
            records.append(slices.summary(m, what, value, interval, reason=reason, at=name))
    return records


def weighted_line(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Intercept and slope of weighted least squares; x must not be all equal."""
    share = weights / weights.sum()
    middle = float(share @ x)
    slope = float(share @ ((x - middle) * y)) / float(share @ np.square(x - middle))
    return float(share @ y) - slope * middle, slope


_Found = tuple[float | None, Interval | None, str | None]


def _slope(slices: Overlapping, m: int, x: np.ndarray, name: str, level: float) -> _Found:
    if len(x) < 2 or np.ptp(x) == 0:
        return None, None, f"all slices have one {name}"
    y = slices.means[:, m]
    intercept, slope = weighted_line(x, y, slices.n.astype(np.float64))
    if len(x) < MINIMUM_SLICES:
        return slope, None, None
    share = slices.n / slices.n.sum()
    across = x - float(share @ x)
    pull = share * across / float(share @ np.square(across))  # the slope is pull @ y
    drawn = np.sqrt(np.square(slices.influence(pull)[:, m]).sum())
    leverage = np.minimum(
        share + share * np.square(across) / float(share @ np.square(across)), 0.99
    )
    left = (y - intercept - slope * x) / (1 - leverage)
    about = np.sqrt(np.square(pull * left).sum())
    half = float(t_quantile(level, float(len(x) - 2))) * float(max(drawn, about))
    method = "t, images drawn" if drawn >= about else "t, slices about the line (HC3)"
    return slope, Interval(slope - half, slope + half, method, level), None


def _correlation(slices: Overlapping, m: int, x: np.ndarray, name: str, level: float) -> _Found:
    from scipy.special import ndtri
    from scipy.stats import rankdata

    ranks = [rankdata(x), rankdata(slices.means[:, m])]
    if min(np.ptp(r) for r in ranks) == 0:
        return None, None, "all slices are equal"
    value = float(np.corrcoef(*ranks)[0, 1])
    if len(x) < MINIMUM_SLICES:
        return value, None, None
    error = np.sqrt((1 + value**2 / 2) / (len(x) - 3))
    middle = np.arctanh(np.clip(value, -1 + 1e-12, 1 - 1e-12))
    half = float(ndtri((1 + level) / 2)) * error
    low, high = np.tanh(middle - half), np.tanh(middle + half)
    return value, Interval(low, high, "fisher-bonett-wright", level), None
