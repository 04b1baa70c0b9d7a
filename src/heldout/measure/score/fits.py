"""Fits: accuracy on a new test set against accuracy on the original, a line through many models.

Ordinary least squares on linear, probit or logit axes. Intervals resample both what was sampled:
the images of each set (which moves every model's point) and the models (which moves the line).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from heldout.core.errors import NotApplicable, UserError
from heldout.measure.score.estimating import LEVEL, REPLICATES, generator
from heldout.measure.score.measuring import Measured
from heldout.measure.score.records import Fit
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
    importance = np.ones(len(measured)) if measured.weights is None else measured.weights
    classes = measured.metric.average == "classes"
    if classes:
        _, codes, sizes = np.unique(measured.groups, return_inverse=True, return_counts=True)
        importance = importance / sizes[codes]
    importance = importance / importance.sum()
    # Deviations from the mean: float32 then carries the spread, not the mean.
    means = measured.estimates()
    operand = np.column_stack([(measured.values - means) * importance[:, None], importance])
    blocks = resample_weights(
        generator(seed, measured, f"replicates {measured.metric.name}"),
        len(measured),
        replicates=replicates,
        strata=measured.groups if classes else None,
    )
    operand = np.ascontiguousarray(operand * len(measured), dtype=np.float32)
    drawn = np.concatenate([block @ operand for block in blocks]).astype(np.float64)
    return np.asarray(means + drawn[:, :-1] / drawn[:, -1:])


def fit_lines(
    new: Sequence[Measured],
    baseline: Measured,
    *,
    axes: Sequence[Axes] = AXES,
    seed: int = 0,
    replicates: int = REPLICATES,
    level: float = LEVEL,
) -> list[Fit]:
    """Lines through the models that a new set and the baseline share, for each set and axes."""
    found = []
    drawn: dict[tuple[str, ...], np.ndarray] = {}  # the baseline's draws, by the models in common
    for measured in new:
        # In order of name: the models drawn must not depend on the order in which they came.
        common = sorted(set(baseline.models) & set(measured.models))
        _enough(
            len(common), f"are scored on both {measured.testset.name} and {baseline.testset.name}"
        )
        check_axes_fit(measured, axes)
        pair = [part.of_models(common).by_image() for part in (baseline, measured)]
        points = [part.estimates() for part in pair]
        key = tuple(common)
        if key not in drawn:
            drawn[key] = replicate_means(pair[0], seed=seed, replicates=replicates)
        draws = [drawn[key], replicate_means(pair[1], seed=seed, replicates=replicates)]
        rng = generator(
            seed, measured, f"fit models {baseline.testset.name} {measured.metric.name}"
        )
        picks = rng.integers(0, len(common), (replicates, len(common)))
        for kind in axes:
            x, y = (to_axes(p, kind, n=len(part)) for p, part in zip(points, pair, strict=True))
            dx, dy = (
                np.take_along_axis(to_axes(d, kind, n=len(part)), picks, axis=1)
                for d, part in zip(draws, pair, strict=True)
            )
            found.append(
                _record(
                    line(x, y),
                    line(dx, dy),
                    level,
                    testset=measured.testset.name,
                    baseline=baseline.testset.name,
                    metric=measured.metric.name,
                    axes=kind,
                    models=len(common),
                )
            )
    return found


def check_axes_fit(measured: Measured, axes: Sequence[Axes]) -> None:
    """Refuse axes that a metric cannot stand on: probit and logit are for fractions."""
    metric = measured.metric
    if metric.bins is not None or metric.per_class:
        raise NotApplicable(
            f"no line is fitted through {metric.name}", fix="fit an accuracy, such as top1"
        )
    curved = [kind for kind in axes if kind != "linear"]
    if curved and not metric.plain:
        raise NotApplicable(
            f"{metric.name} is no fraction, so it has no {curved[0]} axes", fix="use linear axes"
        )


def line_replicates(x: np.ndarray, y: np.ndarray, *, seed: int, replicates: int) -> Line:
    """Lines through resampled models; ``x`` and ``y`` (models,) are on their axes already.

    Models are put in order of their values first, so that the order of a file cannot matter.
    """
    order = np.lexsort((y, x))
    picks = np.random.default_rng([seed, len(x)]).integers(0, len(x), (replicates, len(x)))
    return line(x[order][picks], y[order][picks])


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
    return _record(
        line(tx, ty),
        line_replicates(tx, ty, seed=seed, replicates=replicates),
        level,
        testset=testset,
        baseline=baseline,
        metric=metric,
        axes=axes,
        models=len(x),
    )


def _enough(models: int, what: str) -> None:
    if models < MINIMUM_MODELS:
        raise NotApplicable(
            f"{models} models {what}", fix=f"a line needs at least {MINIMUM_MODELS}"
        )


def _record(found: Line, drawn: Line, level: float, **fields: Any) -> Fit:
    if not np.isfinite([found.slope, found.r2]).all():
        raise NotApplicable(
            f"{fields['models']} models with equal accuracies on {fields['baseline']} or {fields['testset']} "
            "give no line",
            fix="fit models that differ",
        )
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
