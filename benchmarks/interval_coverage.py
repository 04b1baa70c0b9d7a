"""Measured coverage of the intervals of heldout.stats and of records, at a nominal 95 %.

Draws data whose truth is known, builds the interval, and counts how often the truth lies inside.
Plain proportions are summed exactly over all outcomes; everything else is simulated, many data
sets at once as columns of one call. Prints a Markdown table and writes it to
``benchmarks/results/coverage.md``.

    python benchmarks/interval_coverage.py            # a few minutes on two cores
    python benchmarks/interval_coverage.py --quick    # a tenth of the simulations, prints only
    python benchmarks/interval_coverage.py --only Fits Curves    # only parts that begin so
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy
from scipy.special import (
    expit,
    gammaln,
    log_softmax,
    logit,
    logsumexp,
    ndtr,
    ndtri,
    xlog1py,
    xlogy,
)

from heldout.core.errors import NotApplicable
from heldout.core.files import write_text
from heldout.curate.active.learning_curves import resample
from heldout.data.labels import Class, LabelSpace
from heldout.data.testset import (
    Card,
    ColumnType,
    TestSet,
    image_table,
    make_testset,
    truth_table,
)
from heldout.measure.score.compare import consistency_records
from heldout.measure.score.curve_summaries import first_crossing
from heldout.measure.score.estimate import IntervalOptions, estimate
from heldout.measure.score.fits import fit_lines, fit_points, published_line, robustness_scores
from heldout.measure.score.measure import Measured
from heldout.measure.score.metrics import BINS, bin_codes, classwise_rows, get_metric
from heldout.stats.bootstrap import (
    FEW_CLUSTERS,
    bootstrap_mean,
    equal_weights,
)
from heldout.stats.calibration import binned_gaps
from heldout.stats.intervals import (
    Interval,
    clopper_pearson,
    interval_from_error,
    t_quantile,
    wilson,
)
from heldout.stats.log_loss import mean_log_loss
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
    oracle: float = float("nan")  # from the 2.5 % to the 97.5 % point of the estimate itself
    refused: float = 0.0  # share without an interval; the others are counted


def binomial_error(coverage: float, simulations: int) -> float:
    return float(np.sqrt(max(coverage * (1 - coverage), 0.25 / simulations) / simulations))


class Tally:
    """Misses and widths of one method in one setting, and how the estimates themselves vary."""

    def __init__(self) -> None:
        self.above = self.below = self.count = self.refused = 0
        self.widths: list[np.ndarray] = []
        self.errors: list[np.ndarray] = []
        self.batches: list[float] = []

    def add(self, interval: Interval, truth: float | np.ndarray, value: Any = None) -> None:
        above, below = int(np.sum(interval.low > truth)), int(np.sum(interval.high < truth))
        size = np.size(interval.low)
        self.above += above
        self.below += below
        self.count += size
        self.widths.append(np.ravel(interval.width))
        if value is not None:
            self.errors.append(np.ravel(value - truth))
        self.batches.append(1 - (above + below) / size)

    def add_limits(self, low: float | None, high: float | None, truth: float, value: float) -> None:
        """The same for the limits of a record, which may have none."""
        if low is None or high is None:
            self.refused += 1
        else:
            self.add(Interval(low, high, "", LEVEL), truth, value)

    def error(self) -> float:
        """A batch shares cluster sizes or class accuracies: the error is that between batches."""
        error = binomial_error(1 - (self.above + self.below) / self.count, self.count)
        if len(self.batches) < 8:
            return error
        return max(error, float(np.std(self.batches, ddof=1) / np.sqrt(len(self.batches))))

    def row(self, setting: str, method: str, units: int | None = None) -> Row:
        """One line; an oracle that must learn the spread from so many units has a t interval."""
        if not self.count:
            return Row(setting, method, *[float("nan")] * 6, refused=1.0)
        oracle = float("nan")
        if self.errors:
            oracle = float(np.subtract(*np.quantile(np.concatenate(self.errors), [0.975, 0.025])))
        if units is not None:
            oracle *= t_quantile(LEVEL, units - 1) / t_quantile(LEVEL, None)
        return Row(
            setting,
            method,
            1 - (self.above + self.below) / self.count,
            float(np.median(np.concatenate(self.widths))),
            self.error(),
            self.below / self.count,
            self.above / self.count,
            oracle,
            self.refused / (self.refused + self.count),
        )


def binomial_mass(n: int, p: float) -> np.ndarray:
    k = np.arange(n + 1.0)
    logs = gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)
    return np.exp(logs + xlogy(k, p) + xlog1py(n - k, -p))


def _median(values: np.ndarray, mass: np.ndarray) -> float:
    order = np.argsort(values)
    return float(values[order][np.searchsorted(np.cumsum(mass[order]), 0.5)])


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
                    _median(interval.width, mass),
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
                _median(interval.width, masses.mean(axis=0)),
                0,
                float((masses * (grid[:, None] > interval.high)).sum(axis=1).mean()),
                float((masses * (grid[:, None] < interval.low)).sum(axis=1).mean()),
            )


def clustered(rng: np.random.Generator, scale: float, *, uneven: bool = False) -> Iterator[Row]:
    """Accuracy of a cluster is Beta with the given correlation; sizes even (Poisson) or geometric."""
    batches, columns = max(1, int(24 * scale)), 50
    for count in (8, 12, 20, 25, 50, 100, 200):
        for correlation, p in ((0.05, 0.76), (0.3, 0.76), (0.3, 0.95), (0.8, 0.5)):
            methods = (
                ("percentile", "studentised", "auto")
                if count < FEW_CLUSTERS
                else ("percentile", "auto")
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
                    tallies[method].add(estimate.interval, p, right.mean(axis=0))
            setting = (
                f"{count} clusters of 20 images ({'uneven' if uneven else 'even'}), "
                f"correlation {correlation}, accuracy {p}"
            )
            yield tallies["wilson"].row(setting, "wilson (wrong here)")
            yield tallies["percentile"].row(setting, "cluster bootstrap, percentile", count)
            if "studentised" in tallies:
                name = "cluster bootstrap, bootstrap-t alone"
                yield tallies["studentised"].row(setting, name, count)
            used = "beta-binomial" if count < FEW_CLUSTERS else "cluster bootstrap"
            yield tallies["auto"].row(setting, f"**{used}**", count)


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
                tallies["rao-wu"].add(estimate.interval, true.mean(), estimate.value)
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
                tally.add(estimate.interval, true.mean(), estimate.value)
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
                weighted = bootstrap_mean(right, rng=rng, weights=weights)
                tally.add(weighted.interval, p, weighted.value)
                plain_tally.add(bootstrap_mean(right, rng=rng).interval, p, right.mean(axis=0))
            yield plain_tally.row(f"n = {n:,}, accuracy {p}", "**plain bootstrap**")
            yield tally.row(
                f"n = {n:,}, accuracy {p}, log-normal weights", "**weighted bootstrap**"
            )
    # Probabilities Beta(a, 1) are meant, or told with their logits doubled: losses with a long tail.
    middle = (np.arange(200_000) + 0.5) / 200_000
    for accuracy, sharpness, kind in (
        (2 / 3, 1, "calibrated"),
        (2 / 3, 2, "overconfident"),
        (0.95, 1, "calibrated"),
        (0.95, 2, "overconfident"),
    ):
        skill = accuracy / (1 - accuracy)
        q = middle ** (1 / skill)
        told = expit(sharpness * logit(q))
        truth = -(q * np.log(told) + (1 - q) * np.log1p(-told)).mean()
        for n in (50, 200, 1000):
            drawn, tally = Tally(), Tally()
            for _ in range(batches):
                q = rng.beta(skill, 1, (n, columns))
                told = expit(sharpness * logit(q))
                loss = -np.log(np.where(rng.random((n, columns)) < q, told, 1 - told))
                found = bootstrap_mean(loss, rng=rng, bounds=None, method="studentised")
                drawn.add(found.interval, float(truth), found.value)
                value, interval = mean_log_loss(loss)
                tally.add(interval, float(truth), value)
            setting = f"n = {n:,}, mean NLL, {kind}, accuracy {accuracy:.2f}"
            yield drawn.row(setting, "bootstrap-t")
            yield tally.row(setting, "**score of tempered odds**")
    for clusters in (8, 20, 60):
        yield _clustered_loss(rng, clusters, batches)
    for classes, noise in ((10, 0.0), (10, 0.03), (100, 0.0)):
        yield _loss_of_classes(rng, classes, noise, batches)


def _clustered_loss(rng: np.random.Generator, clusters: int, batches: int) -> Row:
    """Films of 20 images whose log odds lie higher or lower together; told twice as high."""
    tally, film = Tally(), np.arange(20 * clusters) // 20

    def draw(films: np.ndarray, columns: int) -> np.ndarray:
        odds = logit(rng.beta(19, 1, (len(films), columns)))
        odds += rng.standard_normal((films[-1] + 1, columns))[films]
        right = rng.random(odds.shape) < expit(odds)
        return np.log1p(np.exp(np.where(right, -2 * odds, 2 * odds)))

    truth = float(np.mean([draw(np.arange(4000) // 20, 200).mean() for _ in range(10)]))
    for _ in range(batches):
        value, interval = mean_log_loss(draw(film, 200), clusters=film)
        tally.add(interval, truth, value)
    setting = f"{clusters} films of 20 images, mean NLL, overconfident, accuracy 0.93"
    return tally.row(setting, "**score of tempered odds**", clusters)


def _loss_of_classes(rng: np.random.Generator, classes: int, noise: float, batches: int) -> Row:
    """50 images of many classes, told twice too sure; a part of the labels is any class."""

    def draw(n: int, columns: int) -> np.ndarray:
        odds = rng.standard_normal((n, columns, classes))
        odds[..., 0] += 9 * (1 + 0.5 * rng.standard_normal((n, columns)))
        label = (odds + rng.gumbel(size=odds.shape)).argmax(axis=-1)
        label = np.where(
            rng.random(label.shape) < noise, rng.integers(0, classes, label.shape), label
        )
        told = log_softmax(2 * odds, axis=-1)
        return -np.take_along_axis(told, label[..., None], axis=-1)[..., 0]

    tally = Tally()
    truth = float(np.mean([draw(200, 200).mean() for _ in range(10)]))
    for _ in range(batches):
        value, interval = mean_log_loss(draw(50, 100))
        tally.add(interval, truth, value)
    labels = f", {noise:.0%} of labels at random" if noise else ""
    setting = f"n = 50, mean NLL, {classes} classes, overconfident{labels}"
    return tally.row(setting, "**score of tempered odds**")


def calibration(rng: np.random.Generator, scale: float) -> Iterator[Row]:
    """Calibration errors of one model, as records have them.

    The interval of both plain and debiased errors is of the true one: the oracle is that of the
    debiased estimate, as the plain one is four standard errors off and hardly moves with the truth.
    """
    for n, films in ((50, 0), (300, 0), (1000, 0), (10_000, 0), (160, 8), (400, 20), (1200, 60)):
        film = np.arange(n) // 20 if films else np.arange(n)
        shares = {"films": 0.2, "images": 0.4} if films else {"images": 0.5}
        for kind, shape in ((0.0, 1.0), (0.03, 1.0), (0.06, 1.0), (0.15, 1.0), (0.0, 0.7)):
            for sharp in (False, True):
                yield from _calibration_rows(rng, scale, film, films, shares, kind, shape, sharp)
    for n, classes, films in (
        (50, 2, 0),
        (1000, 2, 0),
        (50, 10, 0),
        (1000, 10, 0),
        (2000, 100, 0),
        (160, 10, 8),
        (400, 10, 20),
        (1200, 10, 60),
    ):
        for told in (1.0, 0.6, 2.0):
            yield _classwise_row(rng, scale, n, classes, films, told)


def _calibration_rows(
    rng: np.random.Generator,
    scale: float,
    film: np.ndarray,
    films: int,
    shares: dict[str, float],
    above: float,
    tempered: float,
    sharp: bool,
) -> Iterator[Row]:
    """Confidences too high by ``above``, or log odds too large by 1 / ``tempered``."""

    def draw(images: int) -> tuple[np.ndarray, np.ndarray]:
        confidence = 0.4 + 0.6 * (rng.beta(8, 1, images) if sharp else rng.random(images))
        meant = expit(tempered * logit(np.clip(confidence, 1e-9, 1 - 1e-9))) - above
        return confidence[:, None], np.clip(meant, 1e-9, 1 - 1e-9)[:, None]

    confidence, meant = draw(1_000_000)
    truth = float(
        np.abs(np.bincount(bin_codes(confidence[:, 0]), (meant - confidence)[:, 0])).sum()
    )
    truth /= 1_000_000
    testset = _testset("set", len(film), films or None)
    tallies = {name: Tally() for name in ("ece", "ece_debiased")}
    for _ in range(max(50, int(400 * scale))):
        confidence, meant = draw(len(film))
        values = _hits(rng, meant, film, **shares) - confidence
        measured = {
            name: _measured_as(name, testset, values, confidence=confidence) for name in tallies
        }
        estimates = {
            name: estimate(
                each, IntervalOptions(replicates=200), "coverage", clusters=film if films else None
            )
            for name, each in measured.items()
        }
        unclipped = float(measured["ece_debiased"].estimates()[0])
        for name, found in estimates.items():
            if found.interval is None:
                tallies[name].refused += 1
            else:
                tallies[name].add(found.interval, truth, unclipped)
    where = f"{films} films of 20 images" if films else f"n = {len(film):,}"
    kind = f"{'sharp' if sharp else 'broad'} confidences, true {truth:.3f}"
    kind += ", a slope" if tempered < 1 else ""
    rows = [
        tally.row(f"{where}, {kind}", f"**{name}**", films or None)
        for name, tally in tallies.items()
    ]
    if replace(rows[1], method=rows[0].method) == rows[0]:
        rows = [replace(rows[0], method="**ece**, **ece_debiased**")]
    yield from rows


def _classwise_row(
    rng: np.random.Generator, scale: float, n: int, classes: int, films: int, told: float
) -> Row:
    """What sets of n images show on average; log odds are told ``told`` times as large as meant."""
    film, tally = np.arange(n) // 20, Tally()
    testset = _testset("set", n, films or None)
    found = []
    for _ in range(max(50, int((800 if n * classes < 1e5 else 300) * scale))):
        odds, first = rng.standard_normal((n, classes)), rng.integers(0, classes, n)
        height = 3 * np.sqrt(np.log(classes)) * (1 + 0.5 * rng.standard_normal(n))
        odds[np.arange(n), first] += height
        shift = rng.standard_normal((films, classes))[film] if films else 0.0
        label = (odds + shift + rng.gumbel(size=odds.shape)).argmax(axis=1)
        logits = told * odds
        truth: Any = SimpleNamespace(
            correct=SimpleNamespace(pairs=lambda label=label: (np.arange(n), label)),
            rows=np.arange(n),
        )
        guesses: Any = SimpleNamespace(
            needed_logits=logits, normaliser=logsumexp(logits, axis=1), space=range(classes)
        )
        values, folded = classwise_rows(truth, guesses).T[:, :, None]
        measured = _measured_as("ece_classwise", testset, values, folded=folded)
        measured = replace(measured, space=_space(classes))
        found.append(estimate(measured, IntervalOptions(), "", clusters=film if films else None))
    mean = float(np.mean([each.value for each in found]))
    for each in found:
        tally.add_limits(*_ends(each.interval), mean, float(each.value[0]))
    where = f"{films} films of 20 images" if films else f"n = {n:,}"
    told_as = {1.0: "calibrated", 0.6: "underconfident", 2.0: "overconfident"}[told]
    setting = f"{where}, {classes} classes, {told_as}, {mean:.4f} on average"
    return tally.row(setting, "**ece_classwise**", films or None)


def _ends(interval: Interval | None) -> tuple[float | None, float | None]:
    return (None, None) if interval is None else (float(interval.low[0]), float(interval.high[0]))


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
        found = accuracy_difference(counts[:, 0], counts[:, 1], n)
        tally.add(found.interval, difference, found.difference)
        setting = f"n = {n:,}, disagreement {disagreement}, difference {difference}"
        yield tally.row(setting, "**tango, McNemar's mid-p**")

    def tests(setting: str, draw: Callable[[], tuple[np.ndarray, dict[str, Any], float]]) -> Row:
        tally = Tally()
        for _ in range(max(50, int(1000 * scale))):
            values, design, truth = draw()
            found = pair_tests(values, rng=rng, **design)
            low, high = (limits[0, 1] for limits in found.limits(1 - LEVEL))
            tally.add(Interval(low, high, "", LEVEL), truth, found.difference[0, 1])
        return tally.row(setting, "**paired score test**")

    def stratified() -> tuple[np.ndarray, dict[str, Any], float]:
        stratum = np.repeat(np.arange(100), 10)
        hard = rng.beta(2, 1, 100)[stratum]
        easy = np.clip(hard - 0.02, 0, 1)
        values = np.stack([rng.random(1000) < hard, rng.random(1000) < easy], axis=1)
        return values, {"strata": stratum}, float((hard - easy).mean())

    def losses() -> tuple[np.ndarray, dict[str, Any], float]:
        shared = rng.exponential(0.5, (200, 1))
        values = shared + rng.exponential([0.3, 0.2], (200, 2))
        return values, {"bounds": None}, 0.1

    yield tests("100 classes of 10, difference 0.02", stratified)
    yield tests("n = 200, losses with a long tail, difference 0.1", losses)
    for clusters in (8, 12, 16, 20, 25, 50):

        def clustered(clusters: int = clusters) -> tuple[np.ndarray, dict[str, Any], float]:
            code = np.repeat(np.arange(clusters), 1 + rng.poisson(19, clusters))
            hard = rng.beta(3, 1, clusters)[code]
            drop = rng.beta(1, 9, clusters)[code]
            drawn = rng.random((len(code), 2))
            values = drawn < np.stack([hard, hard * (1 - drop)], axis=1)
            return values, {"clusters": code}, 0.75 * 0.1

        yield tests(f"{clusters} clusters of 20, difference 0.075", clustered)


def curves(rng: np.random.Generator, scale: float) -> Iterator[Row]:
    """Numbers of a curve over nine values at which the same objects stand, two images each.

    An object is easier or harder by a normal amount on the logit, the same at every value.
    """
    values, columns = np.linspace(0.1, 0.9, 9), 200
    ease, weight = np.polynomial.hermite_e.hermegauss(40)
    batches = max(1, int(5 * scale))
    for objects in (8, 12, 20, 60):
        for spread, slope in ((0.5, 9), (2.0, 9), (0.5, 40), (0.5, 100), (0.5, 0)):
            line = slope * (values - (0.4 if slope < 100 else 0.43))
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
                        units=found.degrees + 1.0,
                    ),
                    float(trapezoid @ true),
                    found.value,
                )
                for column in range(columns):
                    crossing = first_crossing(values, means, column, level=LEVEL)
                    if crossing is None:
                        tallies["critical"].refused += 1
                    elif slope:
                        low = values[0] if crossing.low is None else crossing.low
                        high = values[-1] if crossing.high is None else crossing.high
                        limits = Interval(low, high, "", LEVEL)
                        tallies["critical"].add(limits, place, crossing.value)
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
            shape = {0: "flat", 9: "rising", 40: "steep", 100: "nearly a step"}[slope]
            setting = f"{objects} objects, spread {spread:g} on the logit, {shape} curve"
            yield tallies["area"].row(setting, "**area under the curve**", objects)
            if slope:
                yield tallies["critical"].row(setting, "**critical value**", objects)
            yield tallies["naive"].row(setting, "worst value, as if chosen before (wrong)")
            yield tallies["worst"].row(setting, "**worst value**")


def ranks(rng: np.random.Generator, scale: float) -> Iterator[Row]:
    """All ranks of all models at once; a miss is any model whose true rank is outside."""
    simulations = max(50, int(400 * scale))
    for models, step, films in (
        (10, 0.0, 0),
        (10, 0.01, 0),
        (30, 0.005, 0),
        (10, 0.0, 8),
        (10, 0.0, 20),
        (10, 0.01, 50),
    ):
        n = 20 * films or 1000
        true = 0.76 - step * np.arange(models)
        names = [f"m{index:02d}" for index in range(models)]
        best = 1 + (true[:, None] < true).sum(axis=1)
        worst = models - (true[:, None] > true).sum(axis=1)
        film = np.arange(n) // 20 if films else np.arange(n)
        misses, width = 0, 0.0
        for _ in range(simulations):
            # Shared difficulty of images makes models agree, as real ones do.
            part = {"films": 0.3, "images": 0.4} if films else {"images": 0.81}
            right = _hits(rng, true, film, **part)
            result = rank_intervals(right, names, rng=rng, clusters=film if films else None)
            misses += bool((result.low > best).any() or (result.high < worst).any())
            width += float((result.high - result.low).mean())
        where = f"{films} films of 20 images" if films else f"n = {n:,}"
        yield Row(
            f"{models} models, {where}, "
            + (f"accuracies {step} apart" if step else "equal accuracies"),
            "**ranks** (mean width)",
            1 - misses / simulations,
            width / simulations,
            binomial_error(1 - misses / simulations, simulations),
            float("nan"),
            float("nan"),
        )


def consistency(rng: np.random.Generator, scale: float) -> Iterator[Row]:
    """Kappa of being right, of two models of equal accuracy that share the difficulty of images."""
    simulations = max(50, int(1000 * scale))
    for n, films in ((100, None), (1000, None), *((20 * c, c) for c in (8, 12, 16, 20, 25, 60))):
        for accuracy in (0.76, 0.95, 0.99):
            if n * (1 - accuracy) < 5:
                continue
            film = np.arange(n) if films is None else np.arange(n) // 20
            shares = {"films": 0.0 if films is None else 0.3, "images": 0.5}
            both = np.array([accuracy, accuracy])
            known = _hits(rng, both, np.arange(2_000_000) // (20 if films else 1), **shares)
            agreed = float((known[:, 0] == known[:, 1]).mean())
            chance = accuracy**2 + (1 - accuracy) ** 2
            truth = (agreed - chance) / (1 - chance)
            tally = Tally()
            for _ in range(simulations):
                measured = _measured(_hits(rng, both, film, **shares), "set", films)
                cluster = None if films is None else "film"
                for made in consistency_records(measured, cluster=cluster):
                    tally.add_limits(made.low, made.high, truth, made.difference)
            where = f"n = {n:,}" if films is None else f"{films} films of 20 images"
            yield tally.row(f"{where}, accuracy {accuracy}, kappa {truth:.2f}", "**kappa**")


def calibration_difference(rng: np.random.Generator, scale: float) -> Iterator[Row]:
    """A sharp and a flat model; the gap between confidence and accuracy is the same at each."""
    for n, films in ((300, 0), (1000, 0), (5000, 0), (10_000, 500), (1200, 60)):
        film = np.arange(n) // 20 if films else np.arange(n)
        for first, second in ((0.0, 0.0), (0.05, 0.05), (0.1, 0.03)):
            tally = Tally()
            for _ in range(max(50, int(1000 * scale))):
                sharp, flat = rng.beta(8, 1, n), rng.beta(1.5, 1.5, n)
                confidence = np.stack([0.4 + 0.6 * sharp, 0.2 + 0.8 * flat], axis=1)
                meant = np.clip(confidence - np.array([first, second]), 1e-9, 1 - 1e-9)
                part = {"films": 0.2, "images": 0.4} if films else {"images": 0.5}
                values = _hits(rng, meant, film, **part) - confidence
                bins = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
                drawn = binned_gaps(values, bins, BINS, clusters=film if films else None)
                try:
                    found = drawn.errors(rng, 300).pairs()
                except NotApplicable:
                    tally.refused += 1
                    continue
                low, high = (limits[0, 1] for limits in found.limits(1 - LEVEL))
                truth = first - second
                tally.add(Interval(low, high, "", LEVEL), truth, found.difference[0, 1])
            where = f"{films} films of 20 images" if films else f"n = {n:,}"
            setting = f"{where}, calibration errors {first} and {second}"
            yield tally.row(setting, "**difference, both debiased**")


def _hits(
    rng: np.random.Generator,
    true: np.ndarray,
    film: np.ndarray,
    *,
    films: float = 0.0,
    images: float = 0.8,
) -> np.ndarray:
    """Right and wrong (images, models) at accuracies ``true`` (models,) or (images, models).

    ``films`` and ``images`` are parts of a unit normal variance: images are hard for all models
    alike, films half for all and half for each.
    """
    count, models = int(film.max()) + 1, true.shape[-1]
    of_film = rng.standard_normal((count, models)) + rng.standard_normal((count, 1))
    shared = np.sqrt(images) * rng.standard_normal((len(film), 1))
    own = np.sqrt(1 - films - images) * rng.standard_normal((len(film), models))
    return np.asarray(np.sqrt(films / 2) * of_film[film] + shared + own < ndtri(true))


@lru_cache
def _testset(name: str, images: int, films: int | None) -> TestSet:
    """A set of one class; films of one size are declared clusters."""
    ids = [f"{name}-{i}" for i in range(images)]
    table: dict[str, Any] = {"image_id": ids}
    card = Card(name=name, label_space="one")
    if films is not None:
        table["film"] = [f"{name}-{i // (images // films)}" for i in range(images)]
        card = card.updated(clusters="film", columns={"film": ColumnType(kind="categorical")})
    return make_testset(
        card,
        images=image_table(table),
        truths={"original": truth_table(ids, ["c"] * images)},
        label_space=LabelSpace("one", (Class("c", ("class",)),)),
    )


def _space(classes: int) -> LabelSpace:
    return LabelSpace("many", tuple(Class(f"c{c}", (f"class {c}",)) for c in range(classes)))


def _measured_as(metric: str, testset: TestSet, values: np.ndarray, **columns: Any) -> Measured:
    """One model's values of a metric."""
    return Measured(
        testset=testset,
        truth="original",
        space=testset.label_space,
        metric=get_metric(metric),
        models=("m",),
        values=values,
        rows=np.arange(len(values)),
        groups=np.zeros(len(values), dtype=np.int64),
        **columns,
    )


def _measured(right: np.ndarray, name: str, films: int | None = None) -> Measured:
    """Top-1 of models that are ``right`` (images, models)."""
    testset = _testset(name, len(right), films)
    models = tuple(f"m{m:03d}" for m in range(right.shape[1]))
    return replace(_measured_as("top1", testset, right), models=models)


def robustness(rng: np.random.Generator, scale: float) -> Iterator[Row]:
    """Effective robustness of a model 5 points above the published line of ImageNetV2."""
    line = published_line("imagenetv2-matched-frequency", "imagenet-val")
    x, above = np.array([0.7]), 0.05
    y = line.at(x) + above
    plain: list[tuple[int, int | None]] = [(300, None), (1000, None), (10_000, None)]
    for n, films in [*plain, *((20 * c, c) for c in (8, 12, 16, 20, 25, 60))]:
        tally, naive = Tally(), Tally()
        film = np.arange(n) if films is None else np.arange(n) // 20
        part = 0.0 if films is None else 0.3
        for _ in range(max(50, int(600 * scale))):
            old, new = (
                _measured(_hits(rng, p, film, films=part, images=0.3), name, films)
                for p, name in ((x, "old"), (y, "new"))
            )
            (made,) = robustness_scores(new, old, line, replicates=400)
            tally.add_limits(made.low, made.high, above, made.value)
            if films is not None:
                (made,) = robustness_scores(new, old, line, cluster="none")
                naive.add_limits(made.low, made.high, above, made.value)
        where = f"{n:,} images" if films is None else f"{films} films of 20 images"
        setting = f"{where} in both sets, 5 points above the line"
        if films is not None:
            yield naive.row(setting, "as if drawn one by one (wrong here)")
        yield tally.row(setting, "**mover**")


def fits(rng: np.random.Generator, scale: float) -> Iterator[Row]:
    """Slopes of 1 on probit axes; models spread around an accuracy of 76 % by ``spread`` points."""
    simulations = max(40, int(600 * scale))
    for models, n, spread, films in (
        (67, 300, 3, None),
        (67, 300, 6, None),
        (67, 1000, 3, None),
        (67, 10_000, 6, None),
        (20, 300, 6, None),
        (20, 1000, 3, None),
        (12, 300, 6, None),
        (12, 1000, 6, None),
        (12, 10_000, 6, None),
        (5, 1000, 6, None),
        (67, 100, 1, None),
        (30, 400, 6, 20),
        (30, 160, 6, 8),
        (30, 240, 6, 12),
        (30, 320, 6, 16),
        (30, 1000, 6, 50),
    ):
        slope, intercept, naive = Tally(), Tally(), Tally()
        film = np.arange(n) if films is None else np.arange(n) // (n // films)
        part = 0.0 if films is None else 0.3
        # With films the estimates have long tails, whose ends few draws do not show.
        for _ in range(simulations if films is None else 3 * simulations):
            x = 0.7 + spread / 30 * rng.standard_normal(models)
            y = x - 0.3 + 0.03 * rng.standard_normal(models)
            old, new = (
                _measured(_hits(rng, ndtr(p), film, films=part, images=0.5), name, films)
                for p, name in ((x, "old"), (y, "new"))
            )
            (made,) = fit_lines([new], old, axes=["probit"])
            slope.add_limits(made.slope_low, made.slope_high, 1.0, made.line[0])
            intercept.add_limits(made.intercept_low, made.intercept_high, -0.3, made.line[1])
            there, here = old.estimates(), new.estimates()
            if (
                models >= 12
                and min(there.min(), here.min()) > 0
                and max(there.max(), here.max()) < 1
            ):
                exact = fit_points(there, here, axes="probit", testset="new", baseline="old")
                naive.add_limits(exact.slope_low, exact.slope_high, 1.0, exact.slope)
        where = f"{n:,} images" if films is None else f"{films} films, {n:,} images"
        setting = f"{models} models, spread {spread} points, {where}"
        if naive.count:
            yield naive.row(setting, "slope, accuracies as exact (published ones only)")
        yield slope.row(setting, "**slope**")
        if intercept.count:
            yield intercept.row(setting, "**intercept**")


def learning(rng: np.random.Generator, scale: float) -> Iterator[Row]:
    """Differences of two strategies for labels, over seeds and test images of four domains.

    Seeds move a strategy's accuracy by a point. ``even``: all domains alike under both, and the
    worst one is a matter of luck; ``apart``: one domain ten points below, five with the second.
    """
    for seeds, images in ((10, 84), (5, 30), (3, 30)):
        for kind, first, second in (
            ("domains even", [0.8] * 4, [0.8] * 4),
            ("one domain apart", [0.8, 0.8, 0.8, 0.7], [0.8, 0.8, 0.8, 0.75]),
            ("even against apart", [0.8] * 4, [0.8, 0.8, 0.8, 0.7]),
        ):
            tallies = {"accuracy": Tally(), "worst_domain": Tally()}
            domains, test = np.repeat(np.arange(4), images), np.arange(4 * images)
            for _ in range(max(40, int(400 * scale))):
                ease = 0.8 * rng.standard_normal(4 * images)
                rounds: dict[str, dict[int, list[Any]]] = {}
                for name, true in (("a", first), ("b", second)):
                    rounds[name] = {}
                    for seed in range(seeds):
                        p = np.clip(np.array(true) + 0.01 * rng.standard_normal(4), 0, 0.99)
                        own = 0.6 * rng.standard_normal(4 * images)
                        right = ease + own < ndtri(p)[domains]
                        rounds[name][seed] = [SimpleNamespace(correct=right)]
                problem = SimpleNamespace(
                    rows=lambda part, test=test: test,
                    domains=domains,
                    domain_names=list("wxyz"),
                    domain_sizes=np.ones(4),
                )
                outcome: Any = SimpleNamespace(problem=problem, seeds=range(seeds), rounds=rounds)
                drawn = resample(outcome, replicates=300, rng=rng)
                for metric, tally in tallies.items():
                    total = {"accuracy": np.mean, "worst_domain": np.min}[metric]
                    gaps = np.array(
                        [
                            np.subtract(
                                *(
                                    total(rounds[s][k][0].correct.reshape(4, -1).mean(axis=1))
                                    for s in "ba"
                                )
                            )
                            for k in range(seeds)
                        ]
                    )
                    result = drawn.difference(metric, "b", "a", gaps)
                    truth = float(total(second) - total(first))
                    tally.add(result.interval, truth, result.difference)
            for metric, tally in tallies.items():
                setting = f"{seeds} seeds, 4 domains of {images} images, {kind}"
                yield tally.row(setting, f"**difference in {metric.replace('_', ' ')}**")


PARTS: dict[str, Callable[[np.random.Generator, float], Iterator[Row]]] = {
    "Plain proportions (exact sums)": plain,
    "Clusters": clustered,
    "Strata": stratified,
    "Other means": other_means,
    "Calibration errors": calibration,
    "Worst slice of many": worst_slice,
    "Paired difference": paired,
    "Ranks": ranks,
    "Curves along a factor": curves,
    "Effective robustness": robustness,
    "Fits": fits,
    "Strategies for labels": learning,
    "Error consistency": consistency,
    "Difference of two calibration errors": calibration_difference,
    "Clusters of uneven size": partial(clustered, uneven=True),
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


def section(title: str, *, seed: int, scale: float) -> Iterator[str]:
    """The lines of one part; its draws depend on the seed and its place in the list alone."""
    yield f"## {title}"
    yield ""
    yield "| setting | method | coverage | error | width | oracle | ratio | below | above |"
    yield "|---|---|---|---|---|---|---|---|---|"
    rng = np.random.default_rng([seed, list(PARTS).index(title)])
    for row in PARTS[title](rng, scale):
        error = "exact" if row.error == 0 else f"±{100 * row.error:.1f}"
        misses = [
            "" if np.isnan(share) else f"{100 * share:.1f} %" for share in (row.below, row.above)
        ]
        known = ["", ""]
        if row.oracle > 0:
            known = [f"{row.oracle:.3g}", f"{row.width / row.oracle:.2f}"]
        coverage, method = f"{100 * row.coverage:.1f} % | {error} | {row.width:.3g}", row.method
        if row.refused:
            method += f", no interval in {100 * row.refused:.0f} %"
            coverage = " |  | " if row.refused == 1 else coverage
        yield (
            f"| {row.setting} | {method} | {coverage} | {known[0]} | {known[1]} "
            f"| {misses[0]} | {misses[1]} |"
        )
    yield ""


HEAD = """\
# Measured coverage at a nominal 95 %

Written by `python benchmarks/interval_coverage.py`. *Error* is one Monte Carlo standard error, in
points; *below* and *above* are the shares of intervals wholly below and above the truth; *width*
is the median. *Oracle* is what the estimate itself spans from its 2.5 % to its 97.5 % point: the
width of an interval that knows all but the truth. For means over clusters, and curves over objects,
that is widened to t, as it is for an oracle that learns from the clusters how far they spread: by 1.21
with 8, 1.07 with 20, 1.03 with 50. Methods in bold are what `heldout` uses there.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("--quick", action="store_true", help="a tenth of the simulations")
    parser.add_argument("--only", nargs="+", help="leave the other parts of the table as they are")
    parser.add_argument("--seed", type=int, default=20260101)
    options = parser.parse_args()
    start = time.perf_counter()
    lines = HEAD.split("\n")
    kept = RESULT.read_text(encoding="utf-8").split("\n") if options.only else []
    for title in PARTS:
        if options.only and not title.startswith(tuple(options.only)):
            start_of = kept.index(f"## {title}")
            ends = (i for i in range(start_of + 1, len(kept)) if kept[i][:3] in ("## ", "Mac"))
            lines += kept[start_of : next(ends)]
            continue
        for line in section(title, seed=options.seed, scale=0.1 if options.quick else 1.0):
            print(line, flush=True)
            lines.append(line)
    lines.append(f"Machine: {machine()}; seed {options.seed}.")
    print(f"{machine()}; {time.perf_counter() - start:.0f} s", file=sys.stderr)
    if not options.quick:
        write_text(RESULT, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
