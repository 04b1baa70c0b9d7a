"""Accuracy against a number that slices have, such as their distance from what a model trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from heldout.core.errors import NotApplicable
from heldout.measure.score.estimating import LEVEL
from heldout.measure.score.measuring import Measured
from heldout.measure.score.overlapping import Overlapping, overlapping_slices
from heldout.measure.score.records import Summary
from heldout.stats import t_quantile

MINIMUM_SLICES = 4


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
    minimum_n: int = 1,
    level: float = LEVEL,
) -> list[Summary]:
    """How accuracy on the values of ``column`` goes with a number that these values have.

    ``numbers`` are by value, such as ``cat(sofa)``; values without one are left out. First a
    summary called ``name`` for each value (no model), then for each model

    ``slope``             change of accuracy a unit of the number: least squares, slices weighted by
                          their images; its error is the larger of two: that of the images drawn,
                          overlap between slices counted, and that of slices about the line (HC3,
                          Long and Ervin 2000), so that the line need not be true
    ``rank_correlation``  Spearman's, with Fisher's transformation and the error of Bonett and
                          Wright (2000), over slices

    Where fewer than four slices have a number, slope and correlation say so and have no interval.
    """
    slices = overlapping_slices(measured, column, minimum_n=minimum_n)
    kept = [code for code, value in enumerate(slices.values) if value in numbers]
    if not kept:
        raise NotApplicable(
            f"no value of {column} has a {name}", fix="check how the values are written"
        )
    slices = _only(slices, kept)
    values = slices.values
    x = np.array([numbers[value].value for value in values])
    records = [
        _record(slices, None, name, float(number), n=int(slices.n[code]), at=values[code])
        for code, number in enumerate(x)
    ]
    records = [
        _with_limits(record, numbers[value].low, numbers[value].high, None, None)
        for record, value in zip(records, values, strict=True)
    ]
    for m in range(len(measured.models)):
        records.append(_slope(slices, m, x, name, level))
        records.append(_correlation(slices, m, x, name, level))
    return records


def weighted_line(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Intercept and slope of weighted least squares; x must not be all equal."""
    share = weights / weights.sum()
    middle = float(share @ x)
    slope = float(share @ ((x - middle) * y)) / float(share @ np.square(x - middle))
    return float(share @ y) - slope * middle, slope


def _slope(slices: Overlapping, m: int, x: np.ndarray, name: str, level: float) -> Summary:
    blank = _record(slices, m, "slope", None, n=slices.images, at=name)
    if len(x) < 2 or np.ptp(x) == 0:
        return _without(blank, None, f"all slices have one {name}")
    y = slices.means[:, m]
    intercept, slope = weighted_line(x, y, slices.n.astype(np.float64))
    if len(x) < MINIMUM_SLICES:
        return _without(blank, slope, f"{len(x)} slices are too few, {MINIMUM_SLICES} are needed")
    share = slices.n / slices.n.sum()
    across = x - float(share @ x)
    pull = share * across / float(share @ np.square(across))  # the slope is pull @ y
    drawn = np.sqrt(np.square(slices.pulls(pull)[:, m]).sum())
    leverage = np.minimum(
        share + share * np.square(across) / float(share @ np.square(across)), 0.99
    )
    left = (y - intercept - slope * x) / (1 - leverage)
    about = np.sqrt(np.square(pull * left).sum())
    half = float(t_quantile(level, float(len(x) - 2))) * float(max(drawn, about))
    method = "t, images drawn" if drawn >= about else "t, slices about the line (HC3)"
    return _with_limits(_without(blank, slope, None), slope - half, slope + half, method, level)


def _correlation(slices: Overlapping, m: int, x: np.ndarray, name: str, level: float) -> Summary:
    from scipy.special import ndtri
    from scipy.stats import rankdata

    blank = _record(slices, m, "rank_correlation", None, n=slices.images, at=name)
    ranks = [rankdata(x), rankdata(slices.means[:, m])]
    if min(np.ptp(r) for r in ranks) == 0:
        return _without(blank, None, "all slices are equal")
    value = float(np.corrcoef(*ranks)[0, 1])
    if len(x) < MINIMUM_SLICES:
        return _without(blank, value, f"{len(x)} slices are too few, {MINIMUM_SLICES} are needed")
    error = np.sqrt((1 + value**2 / 2) / (len(x) - 3))
    middle = np.arctanh(np.clip(value, -1 + 1e-12, 1 - 1e-12))
    half = float(ndtri((1 + level) / 2)) * error
    low, high = float(np.tanh(middle - half)), float(np.tanh(middle + half))
    return _with_limits(_without(blank, value, None), low, high, "fisher-bonett-wright", level)


def _only(slices: Overlapping, kept: list[int]) -> Overlapping:
    place = np.full(len(slices), -1)
    place[kept] = np.arange(len(kept))
    chosen = place[slices.codes] >= 0
    return Overlapping(
        measured=slices.measured,
        column=slices.column,
        names=tuple(slices.names[code] for code in kept),
        positions=slices.positions[chosen],
        codes=place[slices.codes[chosen]],
    )


def _record(
    slices: Overlapping, m: int | None, name: str, value: float | None, *, n: int, at: str
) -> Summary:
    measured = slices.measured
    return Summary(
        model=None if m is None else measured.models[m],
        testset=measured.testset.name,
        truth=measured.truth,
        metric=measured.metric.name,
        columns=slices.column,
        name=name,
        n=n,
        value=value,
        at=at,
        label_map=measured.label_map,
        testset_hash=measured.testset.card.content_hash,
        predictions_hash=measured.hashes[m] if m is not None and measured.hashes else "",
    )


def _without(record: Summary, value: float | None, reason: str | None) -> Summary:
    return replace(record, value=value, reason=reason)


def _with_limits(
    record: Summary, low: float | None, high: float | None, method: str | None, level: float | None
) -> Summary:
    return replace(record, low=low, high=high, interval=method, level=level)
