"""Fits: accuracy on a new test set against accuracy on the original, a line through many models.

Ordinary least squares on linear, probit or logit axes. Intervals resample both what was sampled:
the images of each set (which moves every model's point) and the models (which moves the line).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from heldout.errors import NotApplicable, UserError
from heldout.score.measure import Measured
from heldout.score.records import Fit
from heldout.score.scoring import LEVEL, REPLICATES, generator
from heldout.stats import resample_weights

Axes = Literal["linear", "probit", "logit"]
AXES: tuple[Axes, ...] = get_args(Axes)
MINIMUM_MODELS = 3


@dataclass(frozen=True)
class Line:
    """A least-squares line: floats for one line, arrays for many."""

    slope: np.ndarray
    intercept: np.ndarray
    r2: np.ndarray


def to_axes(accuracy: np.ndarray, axes: str, *, n: int | None = None) -> np.ndarray:
    """Fractions on the given axes: identity, inverse normal CDF, or log-odds.

    With ``n`` images, 0 and 1 are moved half an image inside, where probit and logit are finite.

    >>> to_axes(np.array([0.5]), "logit").tolist()
    [0.0]
    """
    if axes == "linear":
        return np.asarray(accuracy, dtype=np.float64)
    inside = accuracy if n is None else np.clip(accuracy, 0.5 / n, 1 - 0.5 / n)
    from scipy.special import logit, ndtri

    if axes == "probit":
        return np.asarray(ndtri(inside))
    if axes == "logit":
        return np.asarray(logit(inside))
    raise UserError(f"no axes {axes!r}", fix=f"use one of {', '.join(AXES)}")


def from_axes(value: np.ndarray, axes: str) -> np.ndarray:
    """The inverse of :func:`to_axes`."""
    from scipy.special import expit, ndtr

    inverse = {"linear": np.asarray, "probit": ndtr, "logit": expit}
    return np.asarray(inverse[axes](value))


def line(x: np.ndarray, y: np.ndarray) -> Line:
    """Least squares of ``y`` on ``x`` along the last axis; r2 is the squared correlation."""
    dx = x - x.mean(axis=-1, keepdims=True)
    dy = y - y.mean(axis=-1, keepdims=True)
    sxx, sxy, syy = (dx * dx).sum(-1), (dx * dy).sum(-1), (dy * dy).sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = sxy / sxx
        r2 = sxy * sxy / (sxx * syy)
    return Line(slope, y.mean(axis=-1) - slope * x.mean(axis=-1), r2)


def replicate_means(measured: Measured, *, seed: int, replicates: int) -> np.ndarray:
    """Bootstrap replicates (replicates, models) of every model's metric, over images."""
    classes = measured.metric.average == "classes"
    importance = np.ones(len(measured))
    if classes:
        _, codes, sizes = np.unique(measured.groups, return_inverse=True, return_counts=True)
        importance = 1.0 / (sizes[codes] * len(sizes)) * len(measured)
    values = (measured.values * importance[:, None]).astype(np.float32)
    blocks = resample_weights(
        generator(seed, measured, f"replicates {measured.metric.name}"),
        len(measured),
        replicates=replicates,
        strata=measured.groups if classes else None,
    )
    drawn = np.concatenate([block @ values for block in blocks]).astype(np.float64)
    return drawn / len(measured)


def fits(
    new: Sequence[Measured],
    baseline: Measured,
    *,
    axes: Sequence[Axes] = AXES,
    seed: int = 0,
    replicates: int = REPLICATES,
    level: float = LEVEL,
) -> list[Fit]:
    """Lines through the models that a new set and the baseline share, for each set and axes."""
    base_draws = replicate_means(baseline, seed=seed, replicates=replicates)
    found = []
    for measured in new:
        common = [name for name in baseline.models if name in measured.models]
        _enough(len(common), f"are scored on both {measured.testset.name} and {baseline.testset.name}")
        left = [baseline.models.index(name) for name in common]
        right = [measured.models.index(name) for name in common]
        draws = replicate_means(measured, seed=seed, replicates=replicates)
        rng = generator(seed, measured, f"fit models {baseline.testset.name} {measured.metric.name}")
        picks = rng.integers(0, len(common), (replicates, len(common)))
        for kind in axes:
            on_axes = partial(to_axes, axes=kind)
            found.append(
                _record(
                    line(
                        on_axes(baseline.estimates()[left], n=len(baseline)),
                        on_axes(measured.estimates()[right], n=len(measured)),
                    ),
                    line(
                        np.take_along_axis(on_axes(base_draws[:, left], n=len(baseline)), picks, 1),
                        np.take_along_axis(on_axes(draws[:, right], n=len(measured)), picks, 1),
                    ),
                    level,
                    testset=measured.testset.name,
                    baseline=baseline.testset.name,
                    metric=measured.metric.name,
                    axes=kind,
                    models=len(common),
                )
            )
    return found


def fit_points(
    x: np.ndarray,
    y: np.ndarray,
    *,
    axes: Axes,
    testset: str,
    baseline: str,
    metric: str = "top1",
    seed: int = 0,
    replicates: int = REPLICATES,
    level: float = LEVEL,
) -> Fit:
    """A line through published accuracies (fractions): only models can be resampled."""
    _enough(len(x), "have both accuracies")
    tx, ty = to_axes(x, axes), to_axes(y, axes)
    picks = np.random.default_rng([seed, len(x)]).integers(0, len(x), (replicates, len(x)))
    return _record(
        line(tx, ty),
        line(tx[picks], ty[picks]),
        level,
        testset=testset,
        baseline=baseline,
        metric=metric,
        axes=axes,
        models=len(x),
    )


def _enough(models: int, what: str) -> None:
    if models < MINIMUM_MODELS:
        raise NotApplicable(f"{models} models {what}", fix=f"a line needs at least {MINIMUM_MODELS}")


def _record(found: Line, drawn: Line, level: float, **fields: Any) -> Fit:
    for name in ("slope", "intercept", "r2"):
        fields[name] = float(getattr(found, name))
        fields[f"{name}_low"], fields[f"{name}_high"] = _limits(getattr(drawn, name), level)
    return Fit(**fields)


def _limits(values: np.ndarray, level: float) -> tuple[float | None, float | None]:
    finite = values[np.isfinite(values)]  # a resample of one model alone has no line
    if len(finite) < 0.5 * len(values):
        return None, None
    low, high = np.quantile(finite, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
