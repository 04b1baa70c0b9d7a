"""Lines through many models: accuracy on a new test set against the original, and robustness.

Ordinary least squares on linear, probit or logit axes. Intervals resample both what was sampled:
the images of each set (which moves every model's point) and the models (which moves the line).
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
    generator,
    sampling_design,
)
from heldout.measure.score.measure import Measured
from heldout.measure.score.records import Fit, Score
from heldout.stats.bootstrap import bootstrap_mean
from heldout.stats.intervals import Interval, normal_quantile, wilson

Axes = Literal["linear", "probit", "logit"]
AXES: tuple[Axes, ...] = get_args(Axes)
MINIMUM_MODELS = 3


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


def replicate_means(measured: Measured, *, seed: int, replicates: int) -> np.ndarray:
    """Bootstrap replicates (replicates, models) of every model's metric, over images."""
    rng = generator(seed, measured, f"replicates {measured.metric.name}")
    design = sampling_design(measured, None)
    found = bootstrap_mean(measured.values, rng=rng, replicates=replicates, method="t", **design)
    return np.asarray(found.replicates)


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
    for measured in new:
        # In order of name: the models drawn must not depend on the order in which they came.
        common = sorted(set(baseline.models) & set(measured.models))
        names = {"testset": measured.testset.name, "baseline": baseline.testset.name}
        _enough(len(common), "are scored on both {testset} and {baseline}".format_map(names))
        check_axes_fit(measured, axes)
        pair = [part.of_models(common).one_row_per_image() for part in (baseline, measured)]
        points = [part.estimates() for part in pair]
        draws = [replicate_means(part, seed=seed, replicates=replicates) for part in pair]
        purpose = f"fit models {baseline.testset.name} {measured.metric.name}"
        rng = generator(seed, measured, purpose)
        picks = rng.integers(0, len(common), (replicates, len(common)))
        for kind in axes:
            x, y = (to_axes(p, kind, n=len(part)) for p, part in zip(points, pair, strict=True))
            dx, dy = (
                np.take_along_axis(to_axes(d, kind, n=len(part)), picks, axis=1)
                for d, part in zip(draws, pair, strict=True)
            )
            fields = {"metric": measured.metric.name, "axes": kind, "models": len(common)}
            found.append(_record(line(x, y), line(dx, dy), level, **names, **fields))
    return found


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


def line_replicates(x: np.ndarray, y: np.ndarray, *, seed: int, replicates: int) -> LineFit:
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


def _record(found: LineFit, drawn: LineFit, level: float, **fields: Any) -> Fit:
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

    def at(self, x: np.ndarray, *, n: int | None = None) -> np.ndarray:
        """The accuracy that the line gives at baseline accuracy ``x`` of ``n`` images."""
        return from_axes(self.slope * to_axes(x, self.axes, n=n) + self.intercept, self.axes)

    def band(
        self, x: np.ndarray, *, n: int | None = None, level: float = LEVEL
    ) -> tuple[np.ndarray, np.ndarray]:
        """Limits of the line itself at ``x``, for the models that were resampled."""
        place = to_axes(x, self.axes, n=n)
        slope, both, intercept = self.covariance
        variance = slope * place**2 + 2 * both * place + intercept
        half = normal_quantile(level) * np.sqrt(np.maximum(variance, 0.0))
        middle = self.slope * place + self.intercept
        return from_axes(middle - half, self.axes), from_axes(middle + half, self.axes)


def reference_line(
    population: Population,
    *,
    testset: str | None = None,
    baseline: str | None = None,
    source: str = "",
    seed: int = 0,
    replicates: int = REPLICATES,
) -> ReferenceLine:
    """The logit line through a population of published models."""
    _enough(len(population.x), f"have both {population.x_name} and {population.y_name}")
    x, y = to_axes(population.x, "logit"), to_axes(population.y, "logit")
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
        axes="logit",
        slope=float(found.slope),
        intercept=float(found.intercept),
        r2=float(found.r2),
        models=len(x),
        covariance=(float(spread[0, 0]), float(spread[0, 1]), float(spread[1, 1])),
        source=source,
    )


def effective_robustness(
    x: np.ndarray,
    y: np.ndarray,
    reference: ReferenceLine,
    *,
    n_x: int,
    n_y: int,
    level: float = LEVEL,
) -> Estimates:
    """Effective robustness ``y - f(x)`` of models with accuracies ``x`` and ``y`` (models,).

    ``n_x`` and ``n_y`` are the images behind them. Three independent things are uncertain: y, x, and
    the line. Each has an interval of its own (Wilson, Wilson carried along the line, resampled
    models), and the distances of their limits add in squares (MOVER: Zou and Donner 2008).

    Accuracies of 0 and 1 have no place on probit and logit axes: x is taken half an image inside.
    """
    if not ((x >= 0) & (x <= 1) & (y >= 0) & (y <= 1)).all():
        raise UserError("accuracies must lie between 0 and 1", fix="give fractions, not percent")
    expected = reference.at(x, n=n_x)
    y_ends = wilson(y * n_y, n_y, level=level)
    x_ends = wilson(x * n_x, n_x, level=level)
    ends = np.stack([reference.at(end, n=n_x) for end in (x_ends.low, x_ends.high)])
    band_low, band_high = reference.band(x, n=n_x, level=level)
    below = np.hypot(expected - ends.min(axis=0), expected - band_low)
    above = np.hypot(ends.max(axis=0) - expected, band_high - expected)
    value = y - expected
    low = np.maximum(value - np.hypot(y - y_ends.low, above), -1.0)
    high = np.minimum(value + np.hypot(y_ends.high - y, below), 1.0)
    source = f" ({reference.source})" if reference.source else ""
    method = f"mover over wilson and the {reference.axes} line of {reference.models} models{source}"
    return Estimates(value, Interval(low, high, method, level))


def robustness_scores(
    new: Measured, baseline: Measured, reference: ReferenceLine, *, level: float = LEVEL
) -> list[Score]:
    """Effective robustness of every model measured on both sets, as score records.

    ``n`` is the number of images of the new set; ``interval`` names the line.
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
    found = effective_robustness(
        there.estimates(), here.estimates(), reference, n_x=len(there), n_y=len(here), level=level
    )
    subjects = (here.subject(m) | {"metric": METRIC} for m in range(len(models)))
    records = [Score(**s, n=len(here), **found.of_model(m)) for m, s in enumerate(subjects)]
    where = f", baseline {baseline.testset.name}"
    return [replace(record, interval=f"{record.interval}{where}") for record in records]


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
