"""Measured coverage of every interval of heldout.stats, at a nominal 95 %.

Draws data whose truth is known, builds the interval, and counts how often the truth lies inside.
Plain proportions are summed exactly over all outcomes; everything else is simulated, many data
sets at once as columns of one call. Prints a Markdown table and writes it to
``benchmarks/results/coverage.md``.

    python benchmarks/interval_coverage.py            # a few minutes on two cores
    python benchmarks/interval_coverage.py --quick    # a tenth of the simulations, prints only
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy
from scipy.special import expit, gammaln, ndtri, xlog1py, xlogy
from scipy.stats import beta, multivariate_normal

from heldout.core.files import write_text
from heldout.measure.score.compare import kappa_of
from heldout.measure.score.curve_summaries import first_crossing
from heldout.stats import bootstrap
from heldout.stats.bootstrap import (
    MINIMUM_CLUSTERS,
    bootstrap_mean,
    bootstrap_statistic,
    equal_weights,
)
from heldout.stats.calibration import binned_gaps
from heldout.stats.intervals import (
    Interval,
    clopper_pearson,
    interval_from_error,
    interval_from_replicates,
    t_quantile,
    wilson,
)
from heldout.stats.multiple import pair_tests, rank_intervals, worst_slice_interval
from heldout.stats.paired import accuracy_difference
from heldout.stats.slices import joint_quantile, slice_means

LEVEL = 0.95
RESULT = Path(__file__).parent / "results" / "coverage.md"


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    setting: str
    method: str
    coverage: float
    width: float
    error: float  # Monte Carlo standard error; 0: summed exactly
    below: float  # share of intervals that lie wholly below the truth
    above: float


def binomial_error(coverage: float, simulations: int) -> float:
    return float(np.sqrt(max(coverage * (1 - coverage), 0.25 / simulations) / simulations))


class Tally:
    """Counts of misses and the sum of widths of one method in one setting."""

    def __init__(self) -> None:
        self.above = self.below = self.count = 0
        self.width = 0.0
        self.batches: list[float] = []

    def add(self, interval: Interval, truth: float | np.ndarray) -> None:
        above, below = int(np.sum(interval.low > truth)), int(np.sum(interval.high < truth))
        size = np.size(interval.low)
        self.above += above
        self.below += below
        self.count += size
        self.width += float(np.sum(interval.width))
        self.batches.append(1 - (above + below) / size)

    def error(self) -> float:
        """A batch shares cluster sizes or class accuracies: the error is that between batches."""
        error = binomial_error(1 - (self.above + self.below) / self.count, self.count)
        if len(self.batches) < 8:
            return error
        return max(error, float(np.std(self.batches, ddof=1) / np.sqrt(len(self.batches))))

    def row(self, setting: str, method: str) -> Row:
        return Row(
            setting,
            method,
            1 - (self.above + self.below) / self.count,
            self.width / self.count,
            self.error(),
            self.below / self.count,
            self.above / self.count,
        )


def binomial_mass(n: int, p: float) -> np.ndarray:
    k = np.arange(n + 1.0)
    logs = gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)
    return np.exp(logs + xlogy(k, p) + xlog1py(n - k, -p))


def plain(rng: np.random.Generator, scale: float) -> Iterator[Row]:
    for n in (10, 50, 500, 10_000):
        for p in (0.5, 0.76, 0.95, 0.99):
            mass = binomial_mass(n, p)
            for name, function in (("wilson", wilson), ("clopper-pearson", clopper_pearson)):
                interval = function(np.arange(n + 1), n, level=LEVEL)
                above, below = mass[interval.low > p].sum(), mass[interval.high < p].sum()
                yield Row(
                    f"n = {n:,}, accuracy {p}",
                    name,
                    1 - above - below,
                    float(mass @ interval.width),
                    0,
                    float(below),
                    float(above),
                )
    for n in (10, 50, 500):
        grid = np.linspace(0.02, 0.98, 193)
        for name, function in (("wilson", wilson), ("clopper-pearson", clopper_pearson)):
            interval = function(np.arange(n + 1), n, level=LEVEL)
            inside = (interval.low <= grid[:, None]) & (grid[:, None] <= interval.high)
            masses = np.array([binomial_mass(n, p) for p in grid])
            covered = (masses * inside).sum(axis=1)
            yield Row(
                f"n = {n}, mean over accuracies 0.02 to 0.98",
                name,
                float(covered.mean()),
                float((masses @ interval.width).mean()),
                0,
                float((masses * (grid[:, None] > interval.high)).sum(axis=1).mean()),
                float((masses * (grid[:, None] < interval.low)).sum(axis=1).mean()),
            )


def clustered(rng: np.random.Generator, scale: float) -> Iterator[Row]:
    """Accuracy of a cluster is Beta with the given correlation; sizes even (Poisson) or uneven."""
    batches, columns = max(1, int(24 * scale)), 200
    bootstrap.MINIMUM_CLUSTERS = 2  # five clusters, which heldout refuses, show why
    for uneven in (False, True):
        for count in (5, 8, 12, 20, 50, 200):
            for correlation, p in ((0.05, 0.76), (0.3, 0.76), (0.3, 0.95), (0.8, 0.5)):
                methods = (
                    ("percentile", "studentised", "auto") if count < 20 else ("percentile", "auto")
                )
                tallies = {name: Tally() for name in ("wilson", *methods)}
                for _ in range(batches):
                    sizes = rng.geometric(0.05, count) if uneven else 1 + rng.poisson(19, count)
                    cluster = np.repeat(np.arange(count), sizes)
                    rest = 1 / correlation - 1
                    true = rng.beta(p * rest, (1 - p) * rest, (count, columns))
                    right = rng.random((len(cluster), columns)) < true[cluster]
                    tallies["wilson"].add(wilson(right.sum(axis=0), len(cluster)), p)
                    for method in methods:
                        estimate = bootstrap_mean(right, rng=rng, clusters=cluster, method=method)
                        tallies[method].add(estimate.interval, p)
                setting = (
                    f"{count} clusters of 20 images ({'uneven' if uneven else 'even'}), "
                    f"correlation {correlation}, accuracy {p}"
                )
                yield tallies["wilson"].row(setting, "wilson (wrong here)")
                yield tallies["percentile"].row(setting, "cluster bootstrap, percentile")
                if "studentised" in tallies:
                    yield tallies["studentised"].row(
                        setting, "cluster bootstrap, bootstrap-t alone"
                    )
                refused = " (refused by default)" if count < MINIMUM_CLUSTERS else ""
                yield tallies["auto"].row(setting, f"**cluster bootstrap**{refused}")


def stratified(rng: np.random.Generator, scale: float) -> Iterator[Row]:
    for classes, per_class, batches, columns in (
        (1000, 10, 10, 400),
        (50, 10, 16, 400),
        (20, 3, 16, 400),
    ):
        for p in (0.76, 0.95):
            tallies = {name: Tally() for name in ("wilson", "textbook", "rao-wu")}
            stratum = np.repeat(np.arange(classes), per_class)
            for _ in range(max(1, int(batches * scale))):
                true = rng.beta(2 * p, 2 * (1 - p), classes)
                right = rng.random((len(stratum), columns)) < true[stratum][:, None]
                tallies["wilson"].add(wilson(right.sum(axis=0), len(stratum)), true.mean())
                estimate = bootstrap_mean(right, rng=rng, strata=stratum, replicates=500)
                tallies["rao-wu"].add(estimate.interval, true.mean())
                # The textbook bootstrap draws n_h of n_h: its variance is short by 1/n_h.
                shrunk = estimate.value + (estimate.replicates - estimate.value) * np.sqrt(
                    1 - 1 / per_class
                )
                low, high = np.quantile(shrunk, [0.025, 0.975], axis=0)
                tallies["textbook"].add(Interval(low, high, "percentile", LEVEL), true.mean())
            setting = f"{classes:,} classes of {per_class}, accuracy {p}"
            yield tallies["wilson"].row(setting, "wilson (too wide here)")
            yield tallies["textbook"].row(setting, "textbook stratified, percentile")
            yield tallies["rao-wu"].row(setting, "**stratified bootstrap**")
    for classes in (50, 1000):
        for p in (0.76, 0.95):
            tally = Tally()
            columns, batches = (400, 16) if classes == 50 else (200, 10)
            for _ in range(max(1, int(batches * scale))):
                stratum = np.repeat(np.arange(classes), rng.integers(2, 20, classes))
                true = rng.beta(2 * p, 2 * (1 - p), classes)
                right = rng.random((len(stratum), columns)) < true[stratum][:, None]
                estimate = bootstrap_mean(
                    right,
                    rng=rng,
                    strata=stratum,
                    weights=equal_weights(stratum),
                    replicates=500,
                )
                tally.add(estimate.interval, true.mean())
            yield tally.row(
                f"{classes:,} classes of 2 to 19, mean of class accuracies, accuracy {p}",
                "**stratified bootstrap**",
            )


def other_means(rng: np.random.Generator, scale: float) -> Iterator[Row]:
    batches, columns = max(1, int(12 * scale)), 400
    for n in (50, 200, 1000):
        for p in (0.76, 0.95):
            tally, plain_tally = Tally(), Tally()
            for _ in range(batches):
                right = rng.random((n, columns)) < p
                weights = rng.lognormal(0, 0.7, n)
                tally.add(bootstrap_mean(right, rng=rng, weights=weights).interval, p)
                plain_tally.add(bootstrap_mean(right, rng=rng).interval, p)
            yield plain_tally.row(f"n = {n:,}, accuracy {p}", "**plain bootstrap**")
            yield tally.row(
                f"n = {n:,}, accuracy {p}, log-normal weights", "**weighted bootstrap**"
            )
    for n in (50, 200, 1000):
        tallies = {name: Tally() for name in ("percentile", "studentised")}
        for _ in range(batches):
            # A calibrated model with probabilities Beta(2, 1): its true NLL is 1/2.
            q = rng.beta(2, 1, (n, columns))
            loss = -np.log(np.where(rng.random((n, columns)) < q, q, 1 - q))
            for method, tally in tallies.items():
                tally.add(bootstrap_mean(loss, rng=rng, bounds=None, method=method).interval, 0.5)
        yield tallies["percentile"].row(f"n = {n:,}, mean NLL", "plain bootstrap, percentile")
        yield tallies["studentised"].row(f"n = {n:,}, mean NLL", "**plain bootstrap**")


def calibration(rng: np.random.Generator, scale: float) -> Iterator[Row]:
    """ECE over 15 bins of a model whose confidence is too high by a constant."""
    bins = 15
    settings = ((1000, 0.03, 800), (1000, 0.06, 800), (10_000, 0.06, 600), (1000, 0.0, 400))
    for n, gap, simulations in settings:
        tallies = {name: Tally() for name in ("percentile", "basic", "bias-aware")}
        for _ in range(max(4, int(simulations * scale))):
            confidence = 0.4 + 0.6 * rng.random(n)
            code = np.minimum((confidence * bins).astype(int), bins - 1)
            lean = (rng.random(n) < confidence - gap) - confidence

            def ece(weights: np.ndarray, code: np.ndarray = code, lean: np.ndarray = lean) -> float:
                sums = np.bincount(code, weights=weights * lean)
                return float(np.abs(sums).sum() / weights.sum())

            result = bootstrap_statistic(ece, n, rng=rng, takes="weights", replicates=400)
            for method, tally in tallies.items():
                tally.add(
                    interval_from_replicates(result.value, result.replicates, method=method), gap
                )
        for method, tally in tallies.items():
            label = f"**plain, {method}**" if method == "bias-aware" else f"plain, {method}"
            yield tally.row(f"n = {n:,}, ECE with {bins} bins, true {gap}", label)


def worst_slice(rng: np.random.Generator, scale: float) -> Iterator[Row]:
    simulations = max(100, int(4000 * scale))
    for slices, n, spread in ((10, 100, 0.0), (10, 100, 0.1), (100, 50, 0.0), (100, 50, 0.1)):
        naive, named = Tally(), Tally()
        for _ in range(simulations):
            true = np.clip(0.76 + spread * rng.standard_normal(slices), 0.02, 0.98)
            k = rng.binomial(n, true)
            worst = worst_slice_interval(k, np.full(slices, n))
            at = worst.index
            naive.add(wilson(k[at], n), true[at])
            named.add(worst.interval, true[at])
        kind = "equal accuracy" if spread == 0 else f"accuracies spread by {spread}"
        setting = f"worst of {slices} slices of {n}, {kind}"
        yield naive.row(setting, "wilson of the worst slice (wrong)")
        yield named.row(setting, "**accuracy of the named slice**")


def paired(rng: np.random.Generator, scale: float) -> Iterator[Row]:
    simulations = max(200, int(20_000 * scale))
    for n, disagreement, difference in (
        (100, 0.1, 0.0),
        (100, 0.1, 0.04),
        (1000, 0.1, 0.01),
        (10_000, 0.1, 0.01),
        (1000, 0.01, 0.005),
    ):
        shares = [(disagreement + difference) / 2, (disagreement - difference) / 2]
        counts = rng.multinomial(n, [*shares, 1 - disagreement], size=simulations)
        tally = Tally()
        tally.add(accuracy_difference(counts[:, 0], counts[:, 1], n).interval, difference)
        setting = f"n = {n:,}, disagreement {disagreement}, difference {difference}"
        yield tally.row(setting, "**tango, agreed with mid-p**")
        tally = Tally()
        for only_a, only_b, _ in counts[: max(50, simulations // (40 if n > 1000 else 10))]:
            a, b = np.zeros(n), np.zeros(n)
            a[:only_a] = 1
            b[only_a : only_a + only_b] = 1
            tally.add(_score(rng, a, b, weights=np.ones(n)), difference)
        yield tally.row(setting, "score")
    tally, count = Tally(), 1000
    stratum = np.repeat(np.arange(100), 10)
    for _ in range(max(50, int(count * scale))):
        hard = rng.beta(2, 1, 100)[stratum]
        a, b = rng.random(1000) < hard, rng.random(1000) < np.clip(hard - 0.02, 0, 1)
        truth = (hard - np.clip(hard - 0.02, 0, 1)).mean()
        tally.add(_score(rng, a, b, strata=stratum), truth)
    yield tally.row("100 classes of 10, difference 0.02", "**score, stratified**")
    for clusters in (8, 12, 20, 50):
        tally = Tally()
        for _ in range(max(50, int(2000 * scale))):
            code = np.repeat(np.arange(clusters), 1 + rng.poisson(19, clusters))
            hard = rng.beta(3, 1, clusters)[code]
            drop = rng.beta(1, 9, clusters)[code]
            a, b = rng.random(len(code)) < hard, rng.random(len(code)) < hard * (1 - drop)
            tally.add(_score(rng, a, b, clusters=code), 0.75 * 0.1)
        yield tally.row(f"{clusters} clusters of 20, difference 0.075", "**score, clusters**")


def _score(rng: np.random.Generator, a: np.ndarray, b: np.ndarray, **design: object) -> Interval:
    low, high = pair_tests(np.stack([a, b], axis=1), rng=rng, **design).limits(1 - LEVEL)
    return Interval(float(low[0, 1]), float(high[0, 1]), "score", LEVEL)


def curves(rng: np.random.Generator, scale: float) -> Iterator[Row]:
    """Numbers of a curve over nine values at which the same objects stand, two images each.

    An object is easier or harder by a normal amount on the logit, the same at every value.
    """
    values, columns = np.linspace(0.1, 0.9, 9), 200
    ease, weight = np.polynomial.hermite_e.hermegauss(40)
    batches = max(1, int(20 * scale))
    for objects in (8, 12, 20, 60):
        for spread, slope in ((0.5, 9), (2.0, 9), (0.5, 0)):
            line = slope * (values - 0.4)
            true = expit(line[:, None] + spread * ease) @ (weight / weight.sum())
            half = true.max() / 2
            place = np.interp(half, true, values)
            tallies = {name: Tally() for name in ("area", "critical", "worst", "naive")}
            codes = np.tile(np.repeat(np.arange(9), 2), objects)
            clusters = np.repeat(np.arange(objects), 18)
            trapezoid = np.array([0.5, *[1.0] * 7, 0.5]) / 8
            for _ in range(batches):
                shift = spread * rng.standard_normal((objects, columns))[clusters]
                right = rng.random((len(codes), columns)) < expit(line[codes][:, None] + shift)
                means = slice_means(right, codes, count=9, clusters=clusters)
                found = means.contrast(trapezoid)
                tallies["area"].add(
                    interval_from_error(
                        found.value,
                        found.error,
                        quantile=t_quantile(LEVEL, found.degrees),
                        bounds=(0.0, 1.0),
                    ),
                    float(trapezoid @ true),
                )
                for column in range(columns):
                    crossing = first_crossing(values, means, column, level=LEVEL)
                    if crossing is not None and slope:
                        low = values[0] if crossing.low is None else crossing.low
                        high = values[-1] if crossing.high is None else crossing.high
                        tallies["critical"].add(Interval(low, high, "", LEVEL), place)
                    at = int(means.value[:, column].argmin())
                    quantile = joint_quantile(
                        means.covariance[column], objects - 1, rng=rng, draws=2000
                    )
                    for name, size, tail in (
                        ("worst", quantile, 0.025 / 9),
                        ("naive", 1.96, 0.025),
                    ):
                        interval = interval_from_error(
                            float(means.value[at, column]),
                            float(means.error[at, column]),
                            quantile=size,
                            bounds=(0.0, 1.0),
                            units=objects,
                            tail=tail,
                        )
                        tallies[name].add(interval, true[at])
            shape = "rising" if slope else "flat"
            setting = f"{objects} objects, spread {spread:g} on the logit, {shape} curve"
            yield tallies["area"].row(setting, "**area under the curve**")
            if slope:
                yield tallies["critical"].row(setting, "**critical value**")
            yield tallies["naive"].row(setting, "worst value, as if chosen before (wrong)")
            yield tallies["worst"].row(setting, "**worst value**")


def ranks(rng: np.random.Generator, scale: float) -> Iterator[Row]:
    """All ranks of all models at once; a miss is any model whose true rank is outside."""
    simulations = max(50, int(1000 * scale))
    n = 1000
    for models, step in ((10, 0.0), (10, 0.01), (30, 0.005)):
        true = 0.76 - step * np.arange(models)
        names = [f"m{index:02d}" for index in range(models)]
        best = 1 + (true[:, None] < true).sum(axis=1)
        worst = models - (true[:, None] > true).sum(axis=1)
        misses, width = 0, 0.0
        for _ in range(simulations):
            # Shared difficulty of images makes models agree, as real ones do.
            right = _correlated(rng, n, true)
            result = rank_intervals(right, names, rng=rng)
            misses += bool((result.low > best).any() or (result.high < worst).any())
            width += float((result.high - result.low).mean())
        yield Row(
            f"{models} models, n = {n:,}, "
            + (f"accuracies {step} apart" if step else "equal accuracies"),
            "**ranks**",
            1 - misses / simulations,
            width / simulations,
            binomial_error(1 - misses / simulations, simulations),
            float("nan"),
            float("nan"),
        )


def _correlated(rng: np.random.Generator, n: int, true: np.ndarray) -> np.ndarray:
    """Right and wrong with a normal factor an image shares over models."""
    shared = rng.standard_normal((n, 1))
    own = rng.standard_normal((n, len(true)))
    return (0.9 * shared + np.sqrt(1 - 0.81) * own) < ndtri(true)


def _drawn_clusters(
    rng: np.random.Generator, clusters: int, uneven: bool, images: int = 20
) -> np.ndarray:
    sizes = rng.geometric(1 / images, clusters) if uneven else 1 + rng.poisson(images - 1, clusters)
    return np.repeat(np.arange(clusters), sizes)


def _beside(tally: Tally, estimates: list[float], setting: str, method: str) -> Row:
    """A row whose method says how wide intervals are beside an oracle's.

    The oracle knows the law of the estimate: its interval spans the middle 95 % of it.
    """
    low, high = np.quantile(estimates, [0.025, 0.975])
    ratio = np.median(tally.widths) / (high - low)
    return tally.row(setting, f"**{method}**, {ratio:.2f} times an oracle's width")


class WidthTally(Tally):
    """A tally that keeps every width, for the median."""

    def __init__(self) -> None:
        super().__init__()
        self.widths: list[float] = []

    def add(self, interval: Interval, truth: float | np.ndarray) -> None:
        super().add(interval, truth)
        self.widths += np.atleast_1d(interval.width).tolist()


def kappas(rng: np.random.Generator, scale: float) -> Iterator[Row]:
    """Error consistency of two models that share a normal factor of every image, and of clusters."""
    for clusters, uneven, n in (
        (0, False, 50),
        (0, False, 300),
        (0, False, 1000),
        (8, False, 160),
        (12, False, 240),
        (12, True, 240),
        (20, True, 400),
        (50, True, 1000),
        (200, False, 4000),
    ):
        for accuracies, shared in (((0.76, 0.8), 0.5), ((0.95, 0.95), 0.5), ((0.97, 0.9), 0.3)):
            ease = ndtri(accuracies)
            both = multivariate_normal.cdf(ease, cov=[[1, shared], [shared, 1]])
            a, b = accuracies
            chance = a * (1 - b) + b * (1 - a)
            truth = 1 - (a + b - 2 * both) / chance
            tally, estimates = WidthTally(), []
            for _ in range(max(80, int(1500 * scale))):
                code = _drawn_clusters(rng, clusters, uneven) if clusters else np.arange(n)
                part = 0.4 * shared if clusters else 0.0
                z = np.sqrt(part) * rng.standard_normal((code[-1] + 1, 1))[code]
                z = z + np.sqrt(shared - part) * rng.standard_normal((len(code), 1))
                z = z + np.sqrt(1 - shared) * rng.standard_normal((len(code), 2))
                found = kappa_of(z < ease, code if clusters else None, level=LEVEL)
                if not np.isnan(found.kappa[0, 1]):
                    limits = float(found.low[0, 1]), float(found.high[0, 1])
                    tally.add(Interval(*limits, "", LEVEL), float(truth))
                    estimates.append(float(found.kappa[0, 1]))
            kind = "uneven" if uneven else "even"
            where = f"{clusters} clusters of 20 ({kind})" if clusters else f"n = {n:,}"
            setting = f"{where}, accuracies {a} and {b}, kappa {truth:.2f}"
            yield _beside(tally, estimates, setting, "kappa")


def calibration_differences(rng: np.random.Generator, scale: float) -> Iterator[Row]:
    """Two models, one sharp and one flat, with the same fault or another each."""
    bins, grid = 15, (np.arange(20_000) + 0.5) / 20_000
    sharp, flat = 0.3 + 0.7 * beta.ppf(grid, 5, 1.2), 0.2 + 0.8 * beta.ppf(grid, 1.5, 1.5)

    def chance(confidence: np.ndarray, fault: str) -> np.ndarray:
        kind, _, size = fault.partition(" ")
        if kind == "shift":
            return np.clip(confidence - float(size), 0, 1)
        if kind == "temperature":
            return expit(np.log(confidence / (1 - confidence)) / float(size))
        if kind == "zigzag":
            turned = np.where(np.ceil(confidence * bins) % 2 == 0, 1, -1)
            return np.clip(confidence + float(size) * turned, 0, 1)
        return confidence

    def codes(confidence: np.ndarray) -> np.ndarray:
        return np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)

    for n, clusters in ((300, 0), (1000, 0), (5000, 0), (1000, 50), (1000, 12)):
        for faults in (
            ("none", "none"),
            ("shift 0.03", "shift 0.03"),
            ("temperature 1.3", "temperature 1.3"),
            ("none", "temperature 1.5"),
            ("zigzag 0.04", "zigzag 0.04"),
        ):
            true = [
                np.abs(np.bincount(codes(c), chance(c, fault) - c, bins)).sum() / len(c)
                for c, fault in zip((sharp, flat), faults, strict=True)
            ]
            tally, estimates = WidthTally(), []
            for _ in range(max(80, int(500 * scale))):
                confidence = np.stack([rng.choice(sharp, n), rng.choice(flat, n)], axis=1)
                code = np.arange(n) * max(clusters, 1) // n
                shared = rng.standard_normal((n, 1))
                if clusters:
                    own = rng.standard_normal((clusters, 1))[code]
                    shared = np.sqrt(0.3) * own + np.sqrt(0.7) * shared
                z = np.sqrt(0.5) * shared + np.sqrt(0.5) * rng.standard_normal((n, 2))
                p = np.stack([chance(c, f) for c, f in zip(confidence.T, faults, strict=True)], 1)
                values = (z < ndtri(p)) - confidence
                gaps = binned_gaps(
                    values, codes(confidence), bins, clusters=code if clusters else None
                )
                tests = gaps.errors(rng, 300).pairs()
                low, high = (float(limits[0, 1]) for limits in tests.limits(1 - LEVEL))
                tally.add(Interval(low, high, "", LEVEL), float(true[0] - true[1]))
                estimates.append(float(tests.difference[0, 1]))
            where = f"n = {n:,}" + (f" in {clusters} clusters" if clusters else "")
            same = faults[0] if faults[0] == faults[1] else " and ".join(faults)
            setting = f"{where}, a sharp and a flat model, fault {same}, difference {true[0] - true[1]:.3f}"
            yield _beside(tally, estimates, setting, "difference of ECE")


def clustered_ranks(rng: np.random.Generator, scale: float) -> Iterator[Row]:
    """Ranks, beside those of an oracle that knows the covariance of all means and its normal law."""
    simulations = max(40, int(400 * scale))
    for models, step, clusters, uneven in (
        (10, 0.0, 0, False),
        (10, 0.02, 0, False),
        (30, 0.01, 0, False),
        (10, 0.03, 8, False),
        (10, 0.03, 12, True),
        (30, 0.01, 50, False),
    ):
        true = 0.85 - step * np.arange(models)
        names = [f"m{index:02d}" for index in range(models)]
        best = 1 + (true[:, None] < true).sum(axis=1)
        worst = models - (true[:, None] > true).sum(axis=1)

        def drawn(
            true: np.ndarray = true, clusters: int = clusters, uneven: bool = uneven
        ) -> tuple[np.ndarray, np.ndarray | None]:
            if not clusters:
                return _correlated(rng, 1000, true), None
            code = _drawn_clusters(rng, clusters, uneven)
            z = np.sqrt(0.2) * rng.standard_normal((clusters, 1))[code]
            z = z + np.sqrt(0.1) * rng.standard_normal((clusters, len(true)))[code]
            z = z + np.sqrt(0.5) * rng.standard_normal((len(code), 1))
            return z + np.sqrt(0.2) * rng.standard_normal((len(code), len(true))) < ndtri(
                true
            ), code

        worlds = [drawn() for _ in range(simulations)]
        means = np.stack([right.mean(axis=0) for right, _ in worlds])
        covariance = np.cov(means.T)
        spread = np.diag(covariance)[:, None] + np.diag(covariance) - 2 * covariance
        error = np.sqrt(np.maximum(spread, 0)) + np.where(np.eye(models) > 0, np.inf, 0)
        chance = rng.multivariate_normal(np.zeros(models), covariance, 2000)
        largest = np.max(np.abs(chance[:, :, None] - chance[:, None, :]) / error, axis=(1, 2))
        misses, width, ideal = 0, [], []
        for (right, code), mean in zip(worlds, means, strict=True):
            found = rank_intervals(right, names, rng=rng, clusters=code)
            misses += bool((found.low > best).any() or (found.high < worst).any())
            width.append(float((found.high - found.low).mean()))
            apart = np.abs(mean[:, None] - mean) / error > np.quantile(largest, LEVEL)
            ideal.append(float(models - 1 - apart.sum(axis=1).mean()))
        where = (
            f"{clusters} clusters of 20 ({'uneven' if uneven else 'even'})"
            if clusters
            else "n = 1,000"
        )
        ratio = np.median(width) / np.median(ideal)
        yield Row(
            f"{models} models, {where}, accuracies {step:g} apart",
            f"**ranks**, {ratio:.2f} times an oracle's width",
            1 - misses / simulations,
            float(np.mean(width)),
            binomial_error(1 - misses / simulations, simulations),
            float("nan"),
            float("nan"),
        )


PARTS: dict[str, Callable[[np.random.Generator, float], Iterator[Row]]] = {
    "Plain proportions (exact sums)": plain,
    "Clusters": clustered,
    "Strata": stratified,
    "Other means": other_means,
    "A statistic that is not a mean": calibration,
    "Worst slice of many": worst_slice,
    "Paired difference": paired,
    "Ranks": ranks,
    "Curves along a factor": curves,
    "Error consistency": kappas,
    "Differences of calibration errors": calibration_differences,
    "Ranks in clusters": clustered_ranks,
}


def machine() -> str:
    model = platform.processor() or platform.machine()
    cpu = Path("/proc/cpuinfo")
    if cpu.is_file():
        for line in cpu.read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return (
        f"{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()} "
        f"cores of {model}, Python {platform.python_version()}, numpy {np.__version__}, "
        f"scipy {scipy.__version__}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("--quick", action="store_true", help="a tenth of the simulations")
    parser.add_argument("--seed", type=int, default=20260101)
    options = parser.parse_args()
    start = time.perf_counter()
    lines = [
        "# Measured coverage at a nominal 95 %",
        "",
        "Written by `python benchmarks/interval_coverage.py`. *Error* is one Monte Carlo standard error, in",
        "points; *below* and *above* are the shares of intervals wholly below and above the truth.",
        "Methods in bold are what `heldout` uses there.",
        "",
    ]
    print("\n".join(lines), flush=True)
    for index, (title, part) in enumerate(PARTS.items()):
        rng = np.random.default_rng([options.seed, index])
        head = [
            f"## {title}",
            "",
            "| setting | method | coverage | error | mean width | below | above |",
            "|---|---|---|---|---|---|---|",
        ]
        print("\n".join(head), flush=True)
        lines += head
        for row in part(rng, 0.1 if options.quick else 1.0):
            error = "exact" if row.error == 0 else f"±{100 * row.error:.1f}"
            misses = [
                "" if np.isnan(share) else f"{100 * share:.1f} %"
                for share in (row.below, row.above)
            ]
            line = (
                f"| {row.setting} | {row.method} | {100 * row.coverage:.1f} % | {error} "
                f"| {row.width:.3g} | {misses[0]} | {misses[1]} |"
            )
            print(line, flush=True)
            lines.append(line)
        print(flush=True)
        lines.append("")
    lines.append(f"Machine: {machine()}; seed {options.seed}.")
    print(f"{machine()}; {time.perf_counter() - start:.0f} s", file=sys.stderr)
    if not options.quick:
        write_text(RESULT, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
