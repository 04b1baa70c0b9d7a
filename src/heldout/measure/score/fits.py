"""Lines through many models: accuracy on a new test set against the original, and robustness.

The line of models with true accuracies X and Y, on linear, probit or logit axes. Measured accuracies
are X and Y plus the errors of a sample of images, and an error in x draws the least-squares slope to
zero. How those errors vary and go together is known from the images; the corrected line takes it off
the sums of squares (Fuller 1987, "Measurement Error Models", section 2.2), and its interval counts
what was sampled twice: the models, and the images of each set.
A model's effective robustness is its accuracy less the line at its baseline accuracy:
``y - f(x)`` with ``f(x) = inverse(slope · axes(x) + intercept)`` (Taori et al.: Measuring Robustness
to Natural Distribution Shifts in Image Classification, NeurIPS 2020).

The table ``lines.toml`` holds facts computed by ``tools/derive_lines.py`` from two published tables
of accuracies: imagenet-testbed's (MIT) and timm's (Apache-2.0).
"""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from heldout.core.errors import BadFile, MismatchError, NotApplicable, NotFound, UserError
from heldout.core.tables import read_table_file, require_column
from heldout.data.testset import TestSet
from heldout.measure.score.estimate import (
    LEVEL,
    REPLICATES,
    Estimates,
    IntervalOptions,
    estimate,
    sampling_design,
)
from heldout.measure.score.measure import Measured
from heldout.measure.score.records import Fit, Score
from heldout.measure.score.slices import (
    cluster_codes,
    cluster_column,
    partitions,
    with_cluster_name,
)
from heldout.stats.bootstrap import design
from heldout.stats.intervals import Interval, t_quantile

Axes = Literal["linear", "probit", "logit"]
AXES: tuple[Axes, ...] = get_args(Axes)
MINIMUM_MODELS = 3
LEAST = 12
"""With fewer models, how far they lie from a line is not known well enough."""
LEAST_UNITS = 16
"""The same of clusters: with 12 the interval is 1.4 times as wide as what the slope spans."""
MOST_NOISE = 0.5
"""Where more of the spread of x is noise, the line that is left has no interval that holds."""


@dataclass(frozen=True)
class LineFit:
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
    from scipy.special import logit, ndtri

    if axes not in AXES:
        raise UserError(f"no axes {axes!r}", fix=f"use one of {', '.join(AXES)}")
    inside = accuracy if n is None else np.clip(accuracy, 0.5 / n, 1 - 0.5 / n)
    return np.asarray((ndtri if axes == "probit" else logit)(inside))


def from_axes(value: np.ndarray, axes: str) -> np.ndarray:
    """The inverse of :func:`to_axes`."""
    from scipy.special import expit, ndtr

    inverse = {"linear": np.asarray, "probit": ndtr, "logit": expit}
    return np.asarray(inverse[axes](value))


def line(x: np.ndarray, y: np.ndarray) -> LineFit:
    """Least squares of ``y`` on ``x`` along the last axis; r2 is the squared correlation."""
    dx = x - x.mean(axis=-1, keepdims=True)
    dy = y - y.mean(axis=-1, keepdims=True)
    sxx, sxy, syy = (dx * dx).sum(-1), (dx * dy).sum(-1), (dy * dy).sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = sxy / sxx
        r2 = sxy * sxy / (sxx * syy)
    return LineFit(slope, y.mean(axis=-1) - slope * x.mean(axis=-1), r2)


@dataclass(frozen=True, eq=False)
class Noise:
    """What the images do to the accuracies of models: covariances (models, models) of their errors.

    ``xx``, ``yy``  of x and of y; ``xy`` between them, by the images that both sets hold
    ``degrees``     of freedom that these are known with
    ``units``       what was drawn, in words
    """

    xx: np.ndarray
    yy: np.ndarray
    xy: np.ndarray
    degrees: float
    units: str


@dataclass(frozen=True, eq=False)
class CorrectedLine:
    """A line without the noise of x: ``y = slope · x + intercept``.

    ``covariance``  of slope and intercept (2, 2), over models and images
    ``noise``       the part of the spread of x that is noise
    """

    slope: float
    intercept: float
    covariance: np.ndarray
    noise: float


def corrected_line(x: np.ndarray, y: np.ndarray, noise: Noise | None = None) -> CorrectedLine:
    """The line through models at ``x`` and ``y`` (models,), less what ``noise`` adds to the sums.

    Without noise the line is that of least squares. Models are as drawn from many, and each pulls
    the line by its residual (divided by what its own weight leaves of it, HC3); images pull it
    through the errors of all models at once. What an image does to one model alone is in both, and
    is counted once (as in two-way clustering: Cameron, Gelbach and Miller 2011).
    """
    models = len(x)
    dx, dy = x - x.mean(), y - y.mean()
    zero = np.zeros((models, models))
    xx, yy, xy = (noise.xx, noise.yy, noise.xy) if noise else (zero, zero, zero)
    own_xx, own_yy, own_xy = (
        np.diagonal(c) - c.mean(axis=0) - c.mean(axis=1) + c.mean() for c in (xx, yy, xy)
    )
    spread = dx @ dx
    signal = spread - own_xx.sum()
    slope = (dx @ dy - own_xy.sum()) / signal
    left = dy - slope * dx
    weight = 1 / models + dx * dx / spread
    # Rows: the slope, and the line at the mean of x. First what a model, then what an error moves.
    pull = np.stack([(dx * left - own_xy + slope * own_xx) / signal, left / models])
    pull *= np.sqrt(1 - 1 / models) / (1 - weight)
    ones = np.full(models, 1 / models)
    by_x, by_y = (
        np.stack([(left - slope * dx) / signal, -slope * ones]),
        np.stack([dx / signal, ones]),
    )
    both = by_x @ xy @ by_y.T
    images = by_x @ xx @ by_x.T + by_y @ yy @ by_y.T + both + both.T
    both = (by_x * own_xy) @ by_y.T
    twice = (by_x * own_xx) @ by_x.T + (by_y * own_yy) @ by_y.T + both + both.T
    roots, vectors = np.linalg.eigh(pull @ pull.T - twice)
    at_mean = images + (vectors * np.maximum(roots, 0.0)) @ vectors.T
    back = np.array([[1.0, 0.0], [-x.mean(), 1.0]])
    return CorrectedLine(
        float(slope),
        float(y.mean() - slope * x.mean()),
        back @ at_mean @ back.T,
        float(own_xx.sum() / spread),
    )


@dataclass(frozen=True, eq=False)
class _Errors:
    """What each image, or cluster of images, adds to the error of every model's metric."""

    values: np.ndarray  # (units, models)
    names: np.ndarray  # (units,)
    design: str
    degrees: float

    def with_other(self, other: _Errors) -> np.ndarray:
        """The covariance with the errors on another set: what the shared units do to both."""
        _, mine, theirs = np.intersect1d(self.names, other.names, return_indices=True)
        return np.asarray(self.values[mine].T @ other.values[theirs])


def _errors(part: Measured, cluster: str | None) -> _Errors:
    """The errors of a measurement with every image once; ``cluster`` is a column, or None."""
    clusters = None if cluster is None else cluster_codes(part, cluster)
    given = sampling_design(part, clusters)
    layout = design(len(part), strata=given["strata"], clusters=clusters)
    names = np.array(part.testset.image_ids.to_pylist(), dtype=object)[part.rows]
    if cluster is not None and clusters is not None:
        (partition,) = partitions(part, [cluster], text=True)
        names[partition.positions] = np.array(partition.names, dtype=object)[partition.codes]
        names = names[np.unique(clusters, return_index=True)[1]]
    elif layout.order is not None:
        names = names[layout.order]
    weights = np.ones(len(part)) if given["weights"] is None else given["weights"]
    mean = weights @ part.values / weights.sum()
    sums = layout.unit_sums(weights[:, None] * (part.values - mean))
    return _Errors(
        layout.residuals(sums) / weights.sum(),
        names,
        f"clusters ({cluster})" if cluster else "images",
        float(layout.degrees_of_freedom),
    )


def fit_lines(
    new: Sequence[Measured],
    baseline: Measured,
    *,
    axes: Sequence[Axes] = AXES,
    cluster: str | None = None,
    level: float = LEVEL,
) -> list[Fit]:
    """Lines through the models that a new set and the baseline share, for each set and axes.

    ``cluster`` is the column whose images belong together, for sets that have it; by default what
    each set's card declares; ``none`` for none. Too few models, images or clusters give the
    least-squares line alone, and the reason.
    """
    found = []
    for measured in new:
        common = sorted(set(baseline.models) & set(measured.models))
        names = {"testset": measured.testset.name, "baseline": baseline.testset.name}
        _enough(len(common), "are scored on both {testset} and {baseline}".format_map(names))
        check_axes_fit(measured, axes)
        old, part = (each.of_models(common).one_row_per_image() for each in (baseline, measured))
        errors, reason = [], None
        for each in (old, part):
            column = cluster_column(each.testset, cluster)
            try:
                errors.append(_errors(each, column))
            except NotApplicable as refused:
                reason = f"{each.testset.name}: {with_cluster_name(refused.message, column)}"
        for kind in axes:
            (x, by_x), (y, by_y) = (_on_axes(each, kind) for each in (old, part))
            noise = None
            if reason is None:
                ex, ey = errors
                noise = Noise(
                    by_x[:, None] * (ex.values.T @ ex.values) * by_x,
                    by_y[:, None] * (ey.values.T @ ey.values) * by_y,
                    by_x[:, None] * ex.with_other(ey) * by_y,
                    min(ex.degrees, ey.degrees),
                    " and ".join(dict.fromkeys((ex.design, ey.design))),
                )
            fields = {"metric": measured.metric.name, "axes": kind, **names}
            found.append(_record(x, y, noise, level, reason, **fields))
    return found


def _on_axes(part: Measured, axes: str) -> tuple[np.ndarray, np.ndarray]:
    """The metric of every model on its axes, and how many times as large an error is there."""
    values, n = part.estimates(), len(part)
    if axes == "linear":
        return values, np.ones_like(values)
    inside = np.clip(values, 0.5 / n, 1 - 0.5 / n)
    place = to_axes(inside, axes)
    density = inside * (1 - inside)
    if axes == "probit":
        density = np.exp(-0.5 * place * place) / np.sqrt(2 * np.pi)
    return place, 1 / density


def check_axes_fit(measured: Measured, axes: Sequence[Axes]) -> None:
    """Refuse axes that a metric cannot have: probit and logit are for fractions."""
    metric = measured.metric
    if metric.binned or metric.per_class:
        raise NotApplicable(
            f"no line is fitted through {metric.name}", fix="fit an accuracy, such as top1"
        )
    curved = [kind for kind in axes if kind != "linear"]
    if curved and not metric.plain:
        raise NotApplicable(
            f"{metric.name} is not a fraction, so it has no {curved[0]} axes", fix="use linear axes"
        )


def fit_points(
    x: np.ndarray,
    y: np.ndarray,
    *,
    axes: Axes,
    testset: str,
    baseline: str,
    metric: str = "top1",
    level: float = LEVEL,
) -> Fit:
    """A line through published accuracies (fractions), which are taken as exact."""
    _enough(len(x), "have both accuracies")
    fields = {"testset": testset, "baseline": baseline, "metric": metric, "axes": axes}
    return _record(to_axes(x, axes), to_axes(y, axes), None, level, None, **fields)


def _enough(models: int, what: str) -> None:
    if models < MINIMUM_MODELS:
        raise NotApplicable(
            f"{models} models {what}", fix=f"a line needs at least {MINIMUM_MODELS}"
        )


def _record(
    x: np.ndarray,
    y: np.ndarray,
    noise: Noise | None,
    level: float,
    reason: str | None,
    **fields: Any,
) -> Fit:
    found, models = line(x, y), len(x)
    if not np.isfinite([found.slope, found.r2]).all():
        raise NotApplicable(
            f"{models} models with equal accuracies on {fields['baseline']} or {fields['testset']} "
            "give no line",
            fix="fit models that differ",
        )
    fields |= {name: float(getattr(found, name)) for name in ("slope", "intercept", "r2")}
    fields["models"] = models
    degrees = models - 2.0 if noise is None else min(models - 2.0, noise.degrees)
    counts = [("models", models, LEAST)]
    if noise is not None:
        counts.insert(0, (noise.units, int(noise.degrees) + 1, LEAST_UNITS))
    for what, count, least in counts:
        if count < least:
            reason = f"{count} {what} are too few for the interval of a line, which needs {least}"
    if reason is None:
        corrected = corrected_line(x, y, noise)
        if corrected.noise <= MOST_NOISE:
            half = t_quantile(level, degrees) * np.sqrt(
                np.maximum(np.diagonal(corrected.covariance), 0.0)
            )
            units = "models, accuracies as exact" if noise is None else f"models and {noise.units}"
            fields |= {"interval": f"errors in variables, t, {units}", "level": level}
            fields |= {"covariance": tuple(map(float, corrected.covariance[[0, 0, 1], [0, 1, 1]]))}
            for name, reach in zip(("slope", "intercept"), half, strict=True):
                value = getattr(corrected, name)
                fields |= {f"corrected_{name}": value}
                fields |= {
                    f"{name}_low": float(value - reach),
                    f"{name}_high": float(value + reach),
                }
        else:
            reason = (
                f"{corrected.noise:.0%} of the spread of the models on {fields['baseline']} is noise "
                "of its images, which makes the slope too flat"
            )
    return Fit(**fields, reason=reason)


KEYS = ("model", "img_size")
"""What two tables are joined by: a model at one image size, as in timm's; without img_size by model."""


@dataclass(frozen=True, eq=False)
class Population:
    """Two accuracies of many models, as fractions.

    ``dropped`` counts rows of the first file that lack one of the two, or lie at 0 or 1 where
    probit and logit axes end.
    """

    models: tuple[str, ...]
    x: np.ndarray
    y: np.ndarray
    x_name: str
    y_name: str
    dropped: int


def read_population(
    paths: Sequence[Path], *, x: str, y: str, exclude: Sequence[str] = ()
) -> Population:
    """Read accuracies ``x`` and ``y`` from one file, or x from the first and y from the second.

    Values above 1 in a column mean that it is in percent. Models at exactly 0 or 1 are dropped.
    """
    if not 1 <= len(paths) <= 2:
        raise UserError(f"{len(paths)} population files", fix="give one file, or two to join")
    tables = [read_table_file(path) for path in paths]
    joined = len(tables) == 2
    # In one file a row is a model already, whatever its name.
    keys = [key for key in KEYS if joined and all(key in t.column_names for t in tables)]
    left = _accuracies(paths[0], tables[0], x, keys)
    right = _accuracies(paths[-1], tables[-1], y, keys)
    common = [key for key in left if key in right]
    if not common:
        raise UserError(
            f"{paths[0]} and {paths[1]} share no {' and '.join(keys)}",
            fix="give tables of the same models",
        )
    names = [" ".join(part for part in (key if joined else key[:1]) if part) for key in common]
    xs, ys = _fractions([left[key] for key in common]), _fractions([right[key] for key in common])
    keep = (xs > 0) & (xs < 1) & (ys > 0) & (ys < 1)  # NaN, which is neither, goes too
    keep &= [not any(fnmatch.fnmatchcase(key[0], glob) for glob in exclude) for key in common]
    return Population(
        tuple(name for name, kept in zip(names, keep, strict=True) if kept),
        xs[keep],
        ys[keep],
        f"{paths[0].stem}:{x}" if joined else x,
        f"{paths[1].stem}:{y}" if joined else y,
        len(left) - int(keep.sum()),
    )


def _accuracies(
    path: Path, table: Any, column: str, keys: Sequence[str]
) -> dict[tuple[str, ...], float]:
    """The accuracy of each model, or of each row where there are no keys; NaN where there is none."""
    for name, what in (("model", "the models"), (column, "accuracies")):
        require_column(table, name, path, what)
    found: dict[tuple[str, ...], float] = {}
    for number, row in enumerate(table.to_pylist(), start=2):
        key = tuple(row[k] or "" for k in keys) or (row["model"] or "", str(number))
        text = str(row[column] or "").strip().replace(",", "")
        try:
            value = float(text or "nan")
        except ValueError:
            value = -1.0
        if value < 0 or value > 100:
            raise BadFile(
                path,
                f"line {number}: {text!r} in {column} is not an accuracy",
                fix="give fractions or percent",
            )
        if key in found and not (np.isnan(value) or np.isnan(found[key]) or found[key] == value):
            raise BadFile(
                path,
                f"line {number}: {' '.join(key)} is there twice with other values",
                fix="keep one",
            )
        found.setdefault(key, value)
    return found


def _fractions(values: Sequence[float]) -> np.ndarray:
    array = np.array(values, dtype=np.float64)
    return array / 100 if (array > 1.0).any() else array


METRIC = "effective_robustness"


@dataclass(frozen=True, kw_only=True)
class ReferenceLine:
    """A line through a population of models, with what is known of its uncertainty.

    ``testset``, ``baseline``   what the two accuracies are of
    ``covariance``  variance of the slope, covariance, variance of the intercept, over models
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

    def at(self, x: np.ndarray, *, n: int | None = None) -> np.ndarray:
        """The accuracy that the line gives at baseline accuracy ``x`` of ``n`` images."""
        return from_axes(self.slope * to_axes(x, self.axes, n=n) + self.intercept, self.axes)

    def band(
        self, x: np.ndarray, *, n: int | None = None, level: float = LEVEL
    ) -> tuple[np.ndarray, np.ndarray]:
        """Limits of the line itself at ``x``, over models."""
        place = to_axes(x, self.axes, n=n)
        slope, both, intercept = self.covariance
        variance = slope * place**2 + 2 * both * place + intercept
        half = t_quantile(level, self.models - 2) * np.sqrt(np.maximum(variance, 0.0))
        middle = self.slope * place + self.intercept
        return from_axes(middle - half, self.axes), from_axes(middle + half, self.axes)


def reference_line(
    population: Population,
    *,
    testset: str | None = None,
    baseline: str | None = None,
    source: str = "",
) -> ReferenceLine:
    """The logit line through a population of published models, whose accuracies are taken as exact."""
    models = len(population.x)
    if models < LEAST:
        raise NotApplicable(
            f"{models} models have both {population.x_name} and {population.y_name}",
            fix=f"a reference line needs at least {LEAST}",
        )
    x, y = to_axes(population.x, "logit"), to_axes(population.y, "logit")
    r2 = float(line(x, y).r2)
    if np.isnan(r2):
        raise NotApplicable(
            f"all models have the same {population.x_name}", fix="use models that differ"
        )
    found = corrected_line(x, y)
    (slope, both), (_, intercept) = found.covariance.tolist()
    return ReferenceLine(
        testset=testset or population.y_name,
        baseline=baseline or population.x_name,
        axes="logit",
        slope=found.slope,
        intercept=found.intercept,
        r2=r2,
        models=models,
        covariance=(slope, both, intercept),
        source=source,
    )


def effective_robustness(
    x: Estimates, y: Estimates, reference: ReferenceLine, *, n_x: int
) -> Estimates:
    """Effective robustness ``y - f(x)`` of models with accuracies ``x``, of ``n_x`` images, and ``y``.

    Three independent things are uncertain: y, x, and the line. Each has an interval of its own (those
    of the scores, so that clusters count; that of x is carried along the line), and the distances of
    their limits add in squares (MOVER: Zou and Donner 2008).

    Accuracies of 0 and 1 have no place on probit and logit axes: x is taken half an image inside.
    """
    both = np.concatenate([x.value, y.value])
    if not ((both >= 0) & (both <= 1)).all():
        raise UserError("accuracies must lie between 0 and 1", fix="give fractions, not percent")
    expected = reference.at(x.value, n=n_x)
    value = y.value - expected
    if x.interval is None or y.interval is None:
        return Estimates(value, None, y.reason or x.reason)
    level = y.interval.level
    ends = np.stack([reference.at(end, n=n_x) for end in (x.interval.low, x.interval.high)])
    band_low, band_high = reference.band(x.value, n=n_x, level=level)
    below = np.hypot(expected - ends.min(axis=0), expected - band_low)
    above = np.hypot(ends.max(axis=0) - expected, band_high - expected)
    low = np.maximum(value - np.hypot(y.value - y.interval.low, above), -1.0)
    high = np.minimum(value + np.hypot(y.interval.high - y.value, below), 1.0)
    source = f" ({reference.source})" if reference.source else ""
    scores = " and ".join(dict.fromkeys((y.interval.method, x.interval.method)))
    method = (
        f"mover over {scores} and the {reference.axes} line of {reference.models} models{source}"
    )
    return Estimates(value, Interval(low, high, method, level))


def robustness_scores(
    new: Measured,
    baseline: Measured,
    reference: ReferenceLine,
    *,
    cluster: str | None = None,
    seed: int = 0,
    replicates: int = REPLICATES,
    level: float = LEVEL,
) -> list[Score]:
    """Effective robustness of every model measured on both sets, as score records.

    ``n`` is the number of images of the new set; ``interval`` names the line. ``cluster`` as in
    :func:`fit_lines`: each accuracy has the interval of its score.
    """
    for part in (new, baseline):
        if not part.metric.counted or part.metric.ranks != 1:
            raise NotApplicable(f"{part.metric.name} is not a plain accuracy", fix="measure top1")
    models = [model for model in new.models if model in baseline.models]
    if not models:
        raise MismatchError(
            f"no model is measured on both {new.testset.name} and {baseline.testset.name}",
            fix="predict on both",
        )
    here, there = (part.of_models(models).one_row_per_image() for part in (new, baseline))

    def accuracy(part: Measured) -> Estimates:
        column = cluster_column(part.testset, cluster)
        clusters = None if column is None else cluster_codes(part, column)
        purpose = f"score {part.metric.name} all"  # the draws of the score itself
        options = IntervalOptions(seed, replicates, level)
        return estimate(part, options, purpose, clusters=clusters, cluster=column)

    found = effective_robustness(accuracy(there), accuracy(here), reference, n_x=len(there))
    subjects = (here.subject(m) | {"metric": METRIC} for m in range(len(models)))
    records = [Score(**s, n=len(here), **found.of_model(m)) for m, s in enumerate(subjects)]
    where = f", baseline {baseline.testset.name}"
    return [
        replace(record, interval=record.interval and f"{record.interval}{where}")
        for record in records
    ]


SOURCES = ("imagenet-testbed", "timm")
"""Where the accuracies come from; the first that has a pair is used unless another is named."""


@lru_cache(maxsize=1)
def published_lines() -> tuple[ReferenceLine, ...]:
    """All built-in lines, in the order of the table."""
    text = (
        resources.files("heldout.measure.score").joinpath("lines.toml").read_text(encoding="utf-8")
    )
    return tuple(
        ReferenceLine(**{**entry, "covariance": tuple(entry["covariance"])})
        for entry in tomllib.loads(text)["line"]
    )


def published_line(
    testset: str | TestSet, baseline: str | TestSet, *, source: str | None = None, cut: str = ""
) -> ReferenceLine:
    """The built-in line of a pair of test sets, named or given; names and aliases both count.

    ``cut`` is what the baseline's name ends with where it is cut down to some classes.

    >>> published_line("imagenetv2-matched-frequency", "imagenet-val").models
    335
    """
    new, old = _names(testset), [f"{name}{cut}" for name in _names(baseline)]
    lines = published_lines()
    for wanted in SOURCES if source is None else (source,):
        for line in lines:
            if line.source == wanted and line.testset in new and line.baseline in old:
                return line
    known = sorted({f"{line.testset} on {line.baseline}" for line in lines})
    raise NotFound(
        f"no built-in line of {new[0]} on {old[0]}" + (f" from {source}" if source else ""),
        fix=f"give a population file; built in are {', '.join(known)}",
    )


def line_between(new: Measured, baseline: Measured, *, source: str | None = None) -> ReferenceLine:
    """The built-in line of two measurements.

    A baseline that a label map has cut down to the classes of the new set goes by the name
    ``<baseline>-on-<label space>``.
    """
    whole = baseline.space.fingerprint == baseline.testset.label_space.fingerprint
    cut = "" if whole else f"-on-{baseline.space.name}"
    return published_line(new.testset, baseline.testset, source=source, cut=cut)


def _names(testset: str | TestSet) -> Sequence[str]:
    return [testset] if isinstance(testset, str) else [testset.name, *testset.card.aliases]
