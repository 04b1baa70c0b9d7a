"""Coverage of the estimators of ``score --adjust-to``, on simulated replications with known truth.

In each replication people vote on a pool (100 classes x 200 candidates x 10 votes) and on an original
set (20 images of each class), and a model is right or wrong on the pool. Frequencies live on a fine
grid, so that the truth, the integral of P(right | s, pool) p(s | original), is a plain sum. Prints a
Markdown table and writes it to ``benchmarks/results/selection_bias.md``.

    python benchmarks/selection_bias.py              # 100 replications of every world
    python benchmarks/selection_bias.py --quick      # 10, prints only
    python benchmarks/selection_bias.py --only Beta  # worlds that begin so
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import scipy
from scipy.special import expit, logit
from scipy.stats import beta

from heldout.core.files import write_text
from heldout.curate.replicate.samplers import Rule, VotedCandidate, sample
from heldout.stats.selection_bias import ESTIMATORS, Votes, held_out_votes

RESULT = Path(__file__).parent / "results" / "selection_bias.md"
CLASSES, CANDIDATES, VOTES = 100, 200, 10
S = (np.arange(2000) + 0.5) / 2000
SEED = 20260101

Shape = Callable[[], np.ndarray]
Accuracy = Callable[[np.ndarray, np.ndarray], np.ndarray]


def betas(*parts: tuple[float, float, float]) -> np.ndarray:
    """A mixture of Betas, each (weight, a, b), as masses on the grid."""
    edges = np.linspace(0, 1, len(S) + 1)
    return sum(w * np.diff(beta.cdf(edges, a, b)) for w, a, b in parts)


def points(*parts: tuple[float, float]) -> np.ndarray:
    """Atoms, each (weight, place)."""
    masses = np.zeros(len(S))
    for weight, place in parts:
        masses[min(int(place * len(S)), len(S) - 1)] += weight
    return masses


def logit_normal(mean: float, spread: float) -> np.ndarray:
    found = np.exp(-0.5 * np.square((logit(S) - mean) / spread)) / (S * (1 - S))
    return found / found.sum()


def moderate(s: np.ndarray, of_class: np.ndarray) -> np.ndarray:
    return expit(-0.8 + 3.0 * s + of_class)


def steep(s: np.ndarray, of_class: np.ndarray) -> np.ndarray:
    return expit(8.0 * (s - 0.5) + of_class)


def step(s: np.ndarray, of_class: np.ndarray) -> np.ndarray:
    return np.where(s > 0.55, 0.85, 0.35) + 0.0 * of_class


LOW, HIGH = betas((1.0, 1.2, 1.5)), betas((1.0, 4.0, 1.5))


@dataclass(frozen=True)
class World:
    """Where votes and hits come from.

    ``original``, ``pool``  masses of frequencies on the grid
    ``spread``    standard deviation of the classes' accuracy, on the logit scale
    ``tilt``      how far a class that is easier for models is also selected more often
    ``drawn``     the truth is of all classes that these are drawn from; else of these classes
    ``unequal``   candidates have 10 to 40 votes, and a tenth of the originals 12
    ``clustered`` intervals by class
    """

    name: str
    original: np.ndarray
    pool: np.ndarray
    accuracy: Accuracy = moderate
    per_class: int = 20
    candidates: int = CANDIDATES
    classes: int = CLASSES
    votes: int = VOTES
    spread: float = 0.7
    tilt: float = 0.0
    drawn: bool = False
    unequal: bool = False
    clustered: bool = False


WORLDS = (
    World("Beta", HIGH, LOW),
    World("Beta, all classes alike", HIGH, LOW, spread=0.0),
    World("Beta, steep accuracy", HIGH, LOW, steep),
    World("Beta, accuracy a step", HIGH, LOW, step),
    World(
        "mixture of Betas",
        betas((0.7, 8, 1.5), (0.3, 2, 2)),
        betas((0.5, 1, 3), (0.5, 3, 1.5)),
    ),
    World("logit-normal", logit_normal(1.5, 1.2), logit_normal(0.0, 2.0)),
    World("logit-normal, steep accuracy", logit_normal(1.5, 1.2), logit_normal(0.0, 2.0), steep),
    World(
        "points",
        points((0.2, 0.6), (0.3, 0.8), (0.3, 0.9), (0.2, 1.0)),
        points((0.3, 0.0), (0.2, 0.35), (0.2, 0.6), (0.2, 0.9), (0.1, 1.0)),
    ),
    World(
        "points, steep accuracy",
        points((0.2, 0.6), (0.3, 0.8), (0.3, 0.9), (0.2, 1.0)),
        points((0.3, 0.0), (0.2, 0.35), (0.2, 0.6), (0.2, 0.9), (0.1, 1.0)),
        steep,
    ),
    World(
        "two peaks and a point at 0",
        betas((0.6, 30, 2), (0.4, 6, 4)),
        betas((0.25, 2, 5), (0.4, 9, 2)) + points((0.35, 0.0)),
    ),
    World("Beta, frequency and accuracy vary by class together", HIGH, LOW, tilt=0.5),
    World("logit-normal, 10 to 40 votes", logit_normal(1.5, 1.2), logit_normal(0, 2), unequal=True),
    World("Beta, 5 originals of each class", HIGH, LOW, per_class=5),
    World("Beta, pool like the original set", HIGH, HIGH),
    World("Beta, 5 votes", HIGH, LOW, votes=5),
    World("Beta, 20 classes x 60 candidates", HIGH, LOW, classes=20, candidates=60),
    World("Beta, truth of all such classes, intervals by image", HIGH, LOW, drawn=True),
    World(
        "Beta, truth of all such classes, intervals by class", HIGH, LOW, drawn=True, clustered=True
    ),
    World(
        "points that the pool does not reach",
        points((0.5, 1.0), (0.3, 0.8), (0.2, 0.3)),
        points((0.3, 0.0), (0.2, 0.35), (0.2, 0.6), (0.3, 0.9)),
    ),
    World(
        "two peaks, steep accuracy",
        betas((0.6, 30, 2), (0.4, 6, 4)),
        betas((0.25, 2, 5), (0.4, 9, 2)) + points((0.35, 0.0)),
        steep,
    ),
)


def tilted(masses: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Frequencies of each class: the odds of ``s`` weighted by ``exp(by * s)``; (classes, grid)."""
    found = masses * np.exp(np.outer(by, S))
    return found / found.sum(axis=1, keepdims=True)


@dataclass
class Misses:
    """What one estimator did."""

    errors: list[float] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)
    covered: int = 0


def drawn(rng: np.random.Generator, masses: np.ndarray, each: int) -> np.ndarray:
    """``each`` frequencies of every class."""
    chances = np.cumsum(masses, axis=1)
    chances /= chances[:, -1:]
    u = rng.random((len(masses), each))
    return np.concatenate([S[np.searchsorted(c, row)] for c, row in zip(chances, u, strict=True)])


def replication(world: World, seed: int) -> tuple[Votes, Votes, np.ndarray, float]:
    """Votes on both sets, hits on the pool, and the truth."""
    rng = np.random.default_rng([SEED, seed])
    of_class = rng.normal(0, world.spread, world.classes)
    original, pool = (
        tilted(p, world.tilt * of_class / max(world.spread, 1e-9) * 2)
        for p in (world.original, world.pool)
    )
    label = np.repeat(np.arange(world.classes), world.candidates)
    ours = np.repeat(np.arange(world.classes), world.per_class)
    s_original, s_pool = drawn(rng, original, world.per_class), drawn(rng, pool, world.candidates)
    n_pool = np.full(len(s_pool), world.votes)
    n_original = np.full(len(s_original), world.votes)
    if world.unequal:
        n_pool = world.votes * rng.choice([1, 2, 3, 4], len(n_pool), p=[0.6, 0.25, 0.1, 0.05])
        n_original[rng.random(len(n_original)) < 0.1] += 2
    right = rng.random(len(label)) < world.accuracy(s_pool, of_class[label])
    accuracy = world.accuracy(S[None, :], of_class[:, None])  # (classes, grid)
    if world.drawn:
        many = world.spread * scipy.stats.norm.ppf((np.arange(400) + 0.5) / 400)
        accuracy = world.accuracy(S[None, :], many[:, None])
        truth = float(accuracy.mean(axis=0) @ original.mean(axis=0))
    else:
        there = pool.sum(axis=0) > 0
        mixed = (accuracy * pool).sum(axis=0)
        given = np.divide(mixed, pool.sum(axis=0), out=np.zeros_like(mixed), where=there)
        # Where the pool has no image, accuracy is that of its classes.
        given[~there] = accuracy.mean(axis=0)[~there]
        truth = float(given @ original.mean(axis=0))
    cluster = (ours, label) if world.clustered else (None, None)
    return (
        Votes(rng.binomial(n_original, s_original), n_original, cluster[0]),
        Votes(rng.binomial(n_pool, s_pool), n_pool, cluster[1]),
        right.astype(np.float64),
        truth,
    )


def matched_set(world: World, original: Votes, pool: Votes, right: np.ndarray, seed: int) -> float:
    """Accuracy on the set that ``build replicate --sampler matched`` draws from these votes."""
    votes = np.column_stack([pool.selected / pool.n, pool.n]).tolist()
    of_class, originals = {}, {}
    for label in range(world.classes):
        first = label * world.candidates
        of_class[f"{label:03d}"] = [
            VotedCandidate(image_id=str(first + i), frequency=f, votes=int(n))
            for i, (f, n) in enumerate(votes[first : first + world.candidates])
        ]
        mine = slice(label * world.per_class, (label + 1) * world.per_class)
        originals[f"{label:03d}"] = (original.selected[mine] / original.n[mine]).tolist()
    rule = Rule(sampler="matched", per_class=10, votes=world.votes)
    made = sample(of_class, rule, seed=seed, originals=originals)
    return float(np.mean([right[int(image)] for image, _ in made.rows]))


def measured(world: World, runs: int) -> Iterator[str]:
    """Lines of the table: one for the matched set and one for each estimator."""
    found = {name: Misses() for name in ESTIMATORS}
    matched: list[float] = []
    drops: list[float] = []
    truths: list[float] = []
    for seed in range(runs):
        original, pool, right, truth = replication(world, seed)
        truths.append(truth)
        matched.append(matched_set(world, original, pool, right, seed) - truth)
        drops.append(held_out_votes(original, pool).drop.value)
        for name, estimator in ESTIMATORS.items():
            one = estimator(original, pool, right)
            interval = one.interval()
            found[name].errors.append(one.value - truth)
            found[name].widths.append(interval.width)
            found[name].covered += interval.low <= truth <= interval.high
    yield line(world.name, "drawn matched set", np.array(matched), runs)
    for name, misses in found.items():
        shown = f"**{name}**" if name == "polynomial" else name
        yield line("", shown, np.array(misses.errors), runs, misses)
    narrow = sum(width <= 0.05 for width in found["polynomial"].widths)
    yield (
        f"| | truth {np.mean(truths):.3f}; held-out votes: frequency falls by {np.mean(drops):.3f}; "
        f"polynomial at most 0.05 wide: {narrow} of {runs} | | | | |"
    )


def line(world: str, name: str, errors: np.ndarray, runs: int, misses: Misses | None = None) -> str:
    bias = f"{errors.mean():+.4f} ± {errors.std(ddof=1) / np.sqrt(runs):.4f}"
    rest = (
        "| |"
        if misses is None
        else f"{misses.covered} of {runs} | {np.median(misses.widths):.4f} |"
    )
    return f"| {world} | {name} | {bias} | {errors.std(ddof=1):.4f} | {rest}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="*", default=[""])
    options = parser.parse_args()
    runs = 10 if options.quick else 100
    began = time.perf_counter()
    lines = [
        "# Accuracy at the true selection frequencies: bias, coverage and width",
        "",
        f"{runs} simulated replications of each world, nominal 95 % intervals, made by "
        "`benchmarks/selection_bias.py`. Unless the world says otherwise: 100 classes, 200 candidates "
        "and 20 original images of each, 10 votes on each image; a model is right with a chance that "
        "rises with the true frequency and varies by class; the truth is that of these classes.",
        "",
        "| world | estimate | bias ± its error | spread | covers the truth | median width |",
        "|---|---|---|---|---|---|",
    ]
    print("\n".join(lines[4:]))
    for world in WORLDS:
        if world.name.startswith(tuple(options.only)):
            for text in measured(world, runs):
                print(text, flush=True)
                lines.append(text)
    minutes = (time.perf_counter() - began) / 60
    lines += [
        "",
        f"Machine: one core, Python {platform.python_version()}, numpy {np.__version__}, "
        f"scipy {scipy.__version__}; {minutes:.0f} minutes; seed {SEED}.",
    ]
    if not options.quick and options.only == [""]:
        write_text(RESULT, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
