"""False positives of comparisons and ranks, all that one command asks corrected together.

Models of equal accuracy on images that are hard for all of them: how often does a command say that any
two differ? With 2, 13, 40 and 100 models, on images drawn one by one and in clusters, for the best as
observed against the rest (``eval``), each against the first (``compare``), all pairs, ranks, two test
sets at once, and slices beside the whole set. Beside each the methods of before: Holm within one test
set, of the pairs that are shown. A row passes if the 99 % lower binomial limit of its share is not
above 5 %; one that does not is drawn again. Models that clusters sway unlike are beyond that claim, and
have a table of their own.

Run: ``python benchmarks/comparisons.py [--quick]``. Writes benchmarks/results/comparisons.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from scipy.special import ndtri

from heldout.stats.bootstrap import bootstrap_statistic
from heldout.stats.calibration import binned_gaps
from heldout.stats.intervals import clopper_pearson
from heldout.stats.multiple import holm, joint_p, pair_tests, rank_intervals, shared_tail
from heldout.stats.paired import mcnemar_exact
from machine import describe, write_result

BINS = 15
LEVEL = 0.95
WORLDS = {2: 3200, 13: 1600, 40: 800, 100: 480}
MODELS = tuple(WORLDS)
PARTS = 8
"""Worlds are drawn in so many parts, each with a seed of its own, whatever the number of cores."""

Said = list[tuple[bool, bool]]
"""Whether a statement is made in each world, and whether it was made before."""


@dataclass(frozen=True)
class Design:
    """How images are drawn; ``swayed``: clusters sway every other model more than the rest."""

    name: str
    images: int
    clusters: int = 0
    sizes: Literal["even", "geometric", "half"] = "even"
    swayed: bool = False


DESIGNS = (
    Design("1,000 images", 1000),
    Design("100 images", 100),
    Design("8 clusters of 20", 160, 8),
    Design("12 uneven clusters", 240, 12, sizes="geometric"),
    Design("50 clusters of 20", 1000, 50),
    Design("12 clusters, one of half of the images", 240, 12, sizes="half"),
    Design("12 clusters of 20, models swayed unlike", 240, 12, swayed=True),
    Design("50 clusters of 20, models swayed unlike", 1000, 50, swayed=True),
)


def outcomes(
    rng: np.random.Generator, design: Design, models: int, accuracy: float = 0.76
) -> tuple[np.ndarray, np.ndarray | None]:
    """Right and wrong (images, models) of equal models, and the cluster of each image."""
    cluster = None
    if design.clusters:
        mean = design.images / design.clusters
        sizes = (
            rng.geometric(1 / mean, design.clusters)
            if design.sizes == "geometric"
            else 1 + rng.poisson(mean - 1, design.clusters)
        )
        if design.sizes == "half":
            sizes[0] = sizes[1:].sum()
        cluster = np.repeat(np.arange(design.clusters), sizes)
    n = design.images if cluster is None else len(cluster)
    z = np.sqrt(0.5) * rng.standard_normal((n, 1)) + np.sqrt(0.5) * rng.standard_normal((n, models))
    if cluster is not None:  # a cluster has an ease of its own, for all models and for each
        own = rng.standard_normal((design.clusters, models))
        shared = rng.standard_normal((design.clusters, 1))
        sway = np.full(models, 0.2)
        if design.swayed:
            sway[::2] = 0.5
        z = np.sqrt(0.8 - sway) * z + (np.sqrt(0.2) * shared + np.sqrt(sway) * own)[cluster]
    return z < ndtri(accuracy), cluster


def before(right: np.ndarray, cluster: np.ndarray | None, pairs: list[tuple[int, int]]) -> bool:
    """Holm over the pairs shown: exact McNemar, or t tests over cluster sums."""
    if cluster is None:
        only = [
            (int((right[:, a] & ~right[:, b]).sum()), int((right[:, b] & ~right[:, a]).sum()))
            for a, b in pairs
        ]
        p = mcnemar_exact(*np.array(only).T)
    else:
        from scipy.special import stdtr

        first, second = np.array(pairs).T
        gaps = right[:, first].astype(float) - right[:, second]
        count = int(cluster.max()) + 1
        sums = np.stack([np.bincount(cluster, gap - gap.mean(), count) for gap in gaps.T])
        error = np.sqrt(np.square(sums).sum(axis=1) * count / (count - 1)) / len(right)
        t = np.where(error > 0, np.abs(gaps.mean(axis=0)) / np.where(error > 0, error, 1), 0)
        p = 2 * stdtr(count - 1, -t)
    return bool((holm(p) <= 1 - LEVEL).any())


def statements(
    rng: np.random.Generator, design: Design, models: int
) -> Iterator[tuple[str, bool, bool]]:
    """Kind of statement, whether it is made on one drawn world, and whether it was made before."""
    right, cluster = outcomes(rng, design, models)
    tests = pair_tests(right, rng=rng, clusters=cluster)
    off = ~np.eye(models, dtype=bool)
    every = tests.smallest_p(off)

    def differs(pairs: list[tuple[int, int]], family: list) -> bool:
        places = tuple(np.array(pairs).T)
        p = joint_p(tests.p[places], family)
        low, high = (limits[places] for limits in tests.limits(shared_tail(family, LEVEL)))
        agreed = ((low > 0) | (high < 0)) == (p <= 1 - LEVEL)
        if not agreed.all():
            sys.exit(f"interval and p disagree: {p[~agreed]}")
        return bool((p <= 1 - LEVEL).any())

    best = int(right.mean(axis=0).argmax())
    rest = [(best, other) for other in range(models) if other != best]
    first = [(other, 0) for other in range(1, models)]
    of_first = np.zeros_like(off)
    of_first[0, 1:] = True
    if models > 2:
        yield (
            "best as observed against the rest",
            differs(rest, [every]),
            before(right, cluster, rest),
        )
    if models <= 40:
        yield (
            "each against the first",
            differs(first, [tests.smallest_p(of_first)]),
            before(right, cluster, first),
        )
    if models <= 13:
        pairs = list(combinations(range(models), 2))
        yield "all pairs", differs(pairs, [every]), before(right, cluster, pairs)
        again, other = outcomes(rng, design, models)
        more = pair_tests(again, rng=rng, clusters=other)
        laws = [every, more.smallest_p(off)]
        both = min(joint_p(part.p[off], laws).min() for part in (tests, more)) <= 1 - LEVEL
        yield (
            "all pairs, two test sets",
            bool(both),
            before(right, cluster, pairs) or before(again, other, pairs),
        )
    if models > 2:
        names = [f"m{index:03d}" for index in range(models)]
        found = rank_intervals(right, names, rng=rng, clusters=cluster)
        yield "ranks", bool(found.better.any()), False


def calibrated(rng: np.random.Generator, n: int) -> tuple[bool, bool]:
    """Two calibrated models, one sharp and one flat: told apart now, and before."""
    confidence = np.stack([0.4 + 0.6 * rng.beta(8, 1, n), 0.2 + 0.8 * rng.beta(1.5, 1.5, n)], 1)
    ease = rng.standard_normal((n, 1))
    z = np.sqrt(0.5) * ease + np.sqrt(0.5) * rng.standard_normal((n, 2))
    values = (z < ndtri(confidence)) - confidence
    bins = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    now = binned_gaps(values, bins, BINS).errors(rng, 300).pairs().p[0, 1] <= 1 - LEVEL

    def gap(weights: np.ndarray) -> float:
        errors = [
            np.abs(np.bincount(code, weights * value)).sum()
            for code, value in zip(bins.T, values.T, strict=True)
        ]
        return float(errors[0] - errors[1]) / float(weights.sum())

    plain = bootstrap_statistic(gap, n, rng=rng, replicates=100, takes="weights", method="t")
    return bool(now), bool(plain.interval.low > 0 or plain.interval.high < 0)


def null_worlds(seed: int, place: int, models: int, worlds: int) -> list[tuple[str, bool, bool]]:
    rng = np.random.default_rng([seed, place, models])
    return [said for _ in range(worlds) for said in statements(rng, DESIGNS[place], models)]


def calibrated_worlds(seed: int, n: int, worlds: int) -> list[tuple[bool, bool]]:
    rng = np.random.default_rng([seed, n])
    return [calibrated(rng, n) for _ in range(worlds)]


def table(rows: list[tuple[str, ...]], head: tuple[str, ...]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the worlds, prints only")
    parser.add_argument("--seed", type=int, default=20261119)
    options = parser.parse_args()
    start, scale = time.perf_counter(), 0.1 if options.quick else 1.0
    rows: list[tuple[str, ...]] = []
    short: list[tuple[str, ...]] = []
    failed: list[tuple[str, ...]] = []

    def row(where: list[tuple[str, ...]], about: tuple[str, ...], said: Said) -> bool:
        """Add a row; whether its lower limit is above what is allowed."""
        now, then = (sum(column) for column in zip(*said, strict=True))
        n = len(said)
        low = clopper_pearson(now, n, level=0.98).low  # one-sided 99 %
        shares = f"{100 * now / n:.1f} %", f"{100 * low:.1f} %", f"{n:,}"
        ranks = about[2].startswith("ranks")
        where.append((*about, *shares, "" if ranks else f"{100 * then / n:.1f} %"))
        print(*where[-1], sep=" | ", flush=True)
        return bool(low > 1 - LEVEL)

    with ProcessPoolExecutor() as pool:

        def drawn(first: int, place: int, models: int, worlds: int) -> dict[str, Said]:
            """What is said in worlds of the seeds from ``first`` on, by kind of statement."""
            seeds = range(first, first + PARTS)
            parts = [pool.submit(null_worlds, seed, place, models, worlds) for seed in seeds]
            found: dict[str, Said] = {}
            for kind, now, then in (said for part in parts for said in part.result()):
                found.setdefault(kind, []).append((now, then))
            return found

        for place, design in enumerate(DESIGNS):
            for models in MODELS:
                worlds = max(2, int(WORLDS[models] * scale / PARTS))
                for kind, said in drawn(options.seed, place, models, worlds).items():
                    about = design.name, str(models), kind
                    if not row(short if design.swayed else rows, about, said) or design.swayed:
                        continue
                    fresh = drawn(options.seed + PARTS, place, models, 4 * worlds)[kind]
                    if row(rows, (*about[:2], f"{kind}, drawn again"), fresh):
                        failed.append(about)
        for n in (300, 1000, 5000):
            count = max(2, int(320 * scale / PARTS))
            seeds = range(options.seed, options.seed + PARTS)
            parts = [pool.submit(calibrated_worlds, seed, n, count) for seed in seeds]
            about = f"{n:,} images", "2", "ECE of calibrated models, one sharper"
            if row(rows, about, [said for part in parts for said in part.result()]):
                failed.append(about)
    print(f"{time.perf_counter() - start:.0f} s; failed: {failed or 'none'}", file=sys.stderr)
    if options.quick:
        return
    head = ("images", "models", "statement", "made", "99 % lower limit", "worlds", "before")
    write_result(
        "comparisons",
        "# False positives of comparisons and ranks\n\n"
        "Written by `python benchmarks/comparisons.py`. All models are equally good. *Made* is the share of "
        "worlds in which any two are said to differ, or any rank to be certain, at 5 % for all that is "
        "asked at once; *before* is Holm within one test set over the pairs that are shown (and a plain "
        "bootstrap of the difference for ECE). Interval and p of every comparison agreed.\n\n"
        f"{table(rows, head)}\n\n"
        f"{'All rows pass' if not failed else f'{len(failed)} rows fail'}: the lower limit is not "
        "above 5 %. Of so many rows about one is above by chance: such a row is drawn again, with four times "
        f"as many fresh worlds, and fails if these are above too. {describe()}; seed {options.seed}.\n\n"
        "## Where it falls short\n\n"
        "Clusters sway every other model more than the rest. Differences of two such models are skewed, "
        "which the turns of signs that the correction is drawn from do not know.\n\n"
        f"{table(short, head)}\n",
    )


if __name__ == "__main__":
    main()
