"""Effective robustness: how far a model lies above what its baseline accuracy lets expect.

Over many models, accuracy on a shifted test set follows accuracy on the original one along a line
(on logit or probit axes). A model's effective robustness is its accuracy less the line at its
baseline accuracy: ``y - f(x)`` with ``f(x) = inverse(slope · axes(x) + intercept)``.

Taori et al.: Measuring Robustness to Natural Distribution Shifts in Image Classification,
NeurIPS 2020.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from heldout.core.errors import MismatchError, NotApplicable, UserError
from heldout.measure.score.estimating import LEVEL, REPLICATES
from heldout.measure.score.fits import AXES, Axes, from_axes, line, line_replicates, to_axes
from heldout.measure.score.measuring import Measured
from heldout.measure.score.population import Population
from heldout.measure.score.records import Score
from heldout.stats import wilson
from heldout.stats.intervals import normal_quantile

METRIC = "effective_robustness"


@dataclass(frozen=True, kw_only=True)
class ReferenceLine:
    """A line through a population of models, with what is known of its uncertainty.

    ``testset``, ``baseline``   what the two accuracies are of
    ``covariance``  variance of the slope, covariance, variance of the intercept, over resampled
                    models
    ``source``      where the accuracies come from
    """

    testset: str
    baseline: str
    axes: Axes
    slope: float
    intercept: float
    r2: float
    models: int
    covariance: tuple[float, float, float]
    source: str = ""

    def at(self, x: np.ndarray) -> np.ndarray:
        """The accuracy that the line gives at baseline accuracy ``x``, both fractions."""
        return from_axes(self.slope * to_axes(x, self.axes) + self.intercept, self.axes)

    def band(self, x: np.ndarray, *, level: float = LEVEL) -> tuple[np.ndarray, np.ndarray]:
        """Limits of the line itself at ``x``, for the models that were resampled."""
        place = to_axes(x, self.axes)
        slope, both, intercept = self.covariance
        variance = slope * place**2 + 2 * both * place + intercept
        half = normal_quantile(level) * np.sqrt(np.maximum(variance, 0.0))
        middle = self.slope * place + self.intercept
        return from_axes(middle - half, self.axes), from_axes(middle + half, self.axes)


def reference_line(
    population: Population,
    *,
    axes: Axes = "logit",
    testset: str | None = None,
    baseline: str | None = None,
    source: str = "",
    seed: int = 0,
    replicates: int = REPLICATES,
) -> ReferenceLine:
    """The line through a population of published models."""
    if axes not in AXES:
        raise UserError(f"no axes {axes!r}", fix=f"use one of {', '.join(AXES)}")
    if len(population.x) < 3:
        raise NotApplicable(
            f"{len(population.x)} models have both {population.x_name} and {population.y_name}",
            fix="a line needs at least 3",
        )
    x, y = to_axes(population.x, axes), to_axes(population.y, axes)
    found = line(x, y)
    if not np.isfinite(found.slope):
        raise NotApplicable(
            f"all models have the same {population.x_name}", fix="use models that differ"
        )
    drawn = line_replicates(x, y, seed=seed, replicates=replicates)
    finite = np.isfinite(drawn.slope)  # a resample of one model alone has no line
    spread = np.cov(drawn.slope[finite], drawn.intercept[finite])
    return ReferenceLine(
        testset=testset or population.y_name,
        baseline=baseline or population.x_name,
        axes=axes,
        slope=float(found.slope),
        intercept=float(found.intercept),
        r2=float(found.r2),
        models=len(x),
        covariance=(float(spread[0, 0]), float(spread[0, 1]), float(spread[1, 1])),
        source=source,
    )


@dataclass(frozen=True, eq=False)
class EffectiveRobustness:
    """``value = y - f(x)`` of models, (models,) each, with its interval and the line's ``expected``."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    expected: np.ndarray


def effective_robustness(
    x: np.ndarray,
    y: np.ndarray,
    reference: ReferenceLine,
    *,
    n_x: int | None = None,
    n_y: int | None = None,
    level: float = LEVEL,
) -> EffectiveRobustness:
    """Effective robustness of models with accuracies ``x`` and ``y`` (models,), fractions.

    ``n_x`` and ``n_y`` are the images behind them; without them that accuracy counts as exact.
    Three independent things are uncertain: y, x, and the line. Each has an interval of its own
    (Wilson, Wilson carried along the line, resampled models), and the distances of their limits
    add in squares (MOVER: Zou and Donner 2008).

    Accuracies of 0 and 1 have no place on probit and logit axes: with ``n_x`` images, x is taken
    half an image inside.
    """
    x, y = np.atleast_1d(np.asarray(x, dtype=float)), np.atleast_1d(np.asarray(y, dtype=float))
    if x.shape != y.shape:
        raise MismatchError(f"{len(x)} baseline accuracies for {len(y)} models", fix="give pairs")
    if not ((x >= 0) & (x <= 1) & (y >= 0) & (y <= 1)).all():
        raise UserError("accuracies must lie between 0 and 1", fix="give fractions, not percent")
    inside = _inside(x, n_x, reference.axes)
    expected = reference.at(inside)
    y_low, y_high = _limits(y, n_y, level)
    x_low, x_high = _limits(x, n_x, level)
    ends = np.stack([reference.at(_inside(end, n_x, reference.axes)) for end in (x_low, x_high)])
    band_low, band_high = reference.band(inside, level=level)
    below = np.hypot(expected - ends.min(axis=0), expected - band_low)
    above = np.hypot(ends.max(axis=0) - expected, band_high - expected)
    value = y - expected
    return EffectiveRobustness(
        value,
        np.maximum(value - np.hypot(y - y_low, above), -1.0),
        np.minimum(value + np.hypot(y_high - y, below), 1.0),
        expected,
    )


def robustness_scores(
    new: Measured, baseline: Measured, reference: ReferenceLine, *, level: float = LEVEL
) -> list[Score]:
    """Effective robustness of every model measured on both sets, as score records.

    ``n`` is the number of images of the new set; ``interval`` names the line.
    """
    for part in (new, baseline):
        if not part.metric.counted or part.metric.ranks != 1:
            raise NotApplicable(f"{part.metric.name} is no plain accuracy", fix="measure top1")
    models = [model for model in new.models if model in baseline.models]
    if not models:
        raise MismatchError(
            f"no model is measured on both {new.testset.name} and {baseline.testset.name}",
            fix="predict on both",
        )
    here, there = (part.of_models(models).by_image() for part in (new, baseline))
    found = effective_robustness(
        there.estimates(), here.estimates(), reference, n_x=len(there), n_y=len(here), level=level
    )
    method = f"mover over wilson and the {reference.axes} line of {reference.models} models"
    if reference.source:
        method += f" ({reference.source})"
    return [
        replace(
            here.record(
                m,
                slice="all",
                n=len(here),
                value=float(found.value[m]),
                low=float(found.low[m]),
                high=float(found.high[m]),
                interval=f"{method}, baseline {baseline.testset.name}",
                level=level,
            ),
            metric=METRIC,
        )
        for m in range(len(models))
    ]


def _limits(accuracy: np.ndarray, n: int | None, level: float) -> tuple[np.ndarray, np.ndarray]:
    if n is None:
        return accuracy, accuracy
    interval = wilson(accuracy * n, n, level=level)
    return cast(np.ndarray, interval.low), cast(np.ndarray, interval.high)


def _inside(accuracy: np.ndarray, n: int | None, axes: str) -> np.ndarray:
    if axes == "linear":
        return accuracy
    edge = 1e-9 if n is None else 0.5 / n
    if n is None and ((accuracy <= 0) | (accuracy >= 1)).any():
        raise NotApplicable(
            f"a baseline accuracy of 0 or 1 has no place on {axes} axes",
            fix="give the number of images, or use linear axes",
        )
    return np.asarray(np.clip(accuracy, edge, 1 - edge))
