"""How much of the doubt about accuracy a few answers take away, and how honest the interval is.

The multi-label truth of ImageNet's validation images is complete for the shared models. Here the
reviews of half of the images are hidden: only the original label stays. The queue asks, the hidden
lists answer, and the estimate is compared with the accuracy under the whole truth.

plain     pairs asked in random order, estimate without predictions
powered   the same order, with predictions of what is acceptable
queue     heldout's order and predictions

    python benchmarks/review_queue.py [--data ../shared/data] [--draws 60] [--write]
    python benchmarks/review_queue.py --simulated    # coverage where predictions are good, noise, wrong
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from heldout.data.importing import read_testset, read_truth
from heldout.data.testset import add_truth, load, save
from heldout.measure.mistakes.panel import Ruling
from heldout.measure.mistakes.review_queue import OpenPairs, open_pairs
from heldout.measure.mistakes.reviewed_accuracy import reviewed_accuracies
from heldout.measure.mistakes.verdicts import RIGHT, UNREVIEWED, WRONG, Key, Verdicts, verdicts
from heldout.measure.score.truth import LabelLists
from heldout.models.predictions.import_predictions import import_predictions
from heldout.stats.prediction_powered import drawing_chances, drawing_order, prediction_powered
from machine import describe, write_result

MODELS = ("resnet152", "vgg16", "alexnet")
ANSWERS = (50, 200, 800)


@dataclass
class Cell:
    """What one way of asking gave over all draws: intervals that held, their width, the error."""

    held: int = 0
    width: float = 0.0
    error: float = 0.0
    draws: int = 0


def read_verdicts(data: Path) -> Verdicts:
    """Verdicts of the whole truth on the models."""
    order = data / "imagenetv2/datasets/imagenet-validation-original.json"
    with tempfile.TemporaryDirectory() as folder:
        testset = save(read_testset(order, name="val"), Path(folder) / "val")
        truth = read_truth(data / "mistakes/multilabel.csv", testset)
        add_truth(testset, "multilabel", truth.table, provenance=truth.provenance)
        testset = load(Path(folder) / "val")
        files = data / "imagenetv2/predictions/imagenet-validation-original"
        outputs = (
            import_predictions(files / f"{name}.npy", testset, order=str(order)) for name in MODELS
        )
        return verdicts(testset, outputs, truth="multilabel")


def hide(whole: Verdicts, rng: np.random.Generator) -> Verdicts:
    """The same without the reviews of half of the images."""
    truth, n = whole.truth, len(whole)
    hidden = rng.random(n) < 0.5
    lists = {}
    for name in ("correct", "unclear", "wrong"):
        rows, labels = getattr(truth, name).pairs()
        own = (labels == truth.labels[rows]) & (name == "correct")
        kept = ~hidden[rows] | own
        starts = np.concatenate([[0], np.cumsum(np.bincount(rows[kept], minlength=n))])
        lists[name] = LabelLists(starts, labels[kept], len(truth.space))
    less = replace(truth, **lists)
    states = np.stack(
        [
            np.where(
                less.correct.contain(guess) | less.unclear.contain(guess),
                RIGHT,
                np.where(less.wrong.contain(guess), WRONG, UNREVIEWED),
            )
            for guess in whole.guesses.T
        ],
        axis=1,
    )
    return replace(whole, truth=less, states=states.astype(np.int8))


def answers(pairs: OpenPairs, good: np.ndarray, count: int) -> dict[Key, Ruling]:
    """What the hidden lists say of the first pairs in order."""
    made = {}
    for place in np.argsort(pairs.keys)[:count].tolist():
        key = pairs.pairs[place]
        answer = "correct" if good[place] else "wrong"
        made[key] = Ruling(*key, answer, None, None, 1, (0, 0, 1), (pairs.design,))
    return made


def ways(pairs: OpenPairs) -> dict[str, OpenPairs]:
    """The same pairs asked and estimated in three ways, from the same random numbers."""
    chance = pairs.keys * pairs.sizes
    flat = replace(pairs, sizes=np.ones(len(pairs)), keys=chance)
    return {
        "plain": replace(flat, odds=np.full(len(pairs), 0.5)),
        "powered": flat,
        "queue": pairs,
    }


def compare(whole: Verdicts, draws: int) -> tuple[dict[tuple[str, str, int], Cell], list[str]]:
    """All ways, models and numbers of answers, over random draws of what is hidden and asked."""
    cells: dict[tuple[str, str, int], Cell] = {}
    bounds: list[str] = []
    for seed in range(draws):
        partial = hide(whole, np.random.default_rng(seed))
        pairs = open_pairs(partial, average="classes", seed=seed)
        good = _good(whole, pairs)
        for way, asked in ways(pairs).items():
            for count in ANSWERS:
                found = reviewed_accuracies(asked, answers(asked, good, count), replicates=2)
                for m, item in enumerate(found):
                    exact = float(pairs.weights @ (whole.states[:, m] == RIGHT))
                    cell = cells.setdefault((way, item.model, count), Cell())
                    if item.review is None or item.value is None:
                        raise SystemExit(f"no estimate for {item.model}: {item.reason}")
                    cell.held += item.review.low - 1e-12 <= exact <= item.review.high + 1e-12
                    cell.width += item.review.width
                    cell.error += (item.value - exact) ** 2
                    cell.draws += 1
        if seed == 0:
            bounds = [
                f"{item.model}: {int(pairs.made[:, m].sum()):,} open, {100 * item.lower:.1f} to "
                f"{100 * item.upper:.1f} %"
                for m, item in enumerate(reviewed_accuracies(pairs, {}, replicates=2))
            ]
    return cells, bounds


def _good(whole: Verdicts, pairs: OpenPairs) -> np.ndarray:
    width = len(whole.truth.space)
    wanted = pairs.rows * width + pairs.classes
    lists = (whole.truth.correct.keys, whole.truth.unclear.keys)
    return np.isin(wanted, np.concatenate(lists))


def simulated(draws: int) -> None:
    """Coverage of the interval on drawn populations, and its width, by quality of predictions."""
    for n, count in ((60, 5), (60, 20), (500, 10), (500, 30), (500, 100), (3000, 100), (3000, 300)):
        for rate in (0.03, 0.1, 0.4):
            row = [
                f"{quality} {order}: {held:.3f} ({width:.3f})"
                for quality in ("good", "noise", "upside down", "too high")
                for order in ("plain", "sizes")
                for held, width in [_coverage(n, count, rate, quality, order, draws)]
            ]
            print(n, count, rate, " | ".join(row), flush=True)


def _coverage(
    n: int, count: int, rate: float, quality: str, order: str, draws: int
) -> tuple[float, float]:
    rng = np.random.default_rng(0)
    base, held, width = np.log(rate / (1 - rate)), 0, 0.0
    for _ in range(draws):
        spread = 2 * rng.normal(size=n)
        chance = 1 / (1 + np.exp(-(base + spread)))
        truth = (rng.random(n) < chance).astype(float)
        predicted = {
            "good": chance,
            "noise": 1 / (1 + np.exp(-(base + 2 * rng.normal(size=n)))),
            "upside down": 1 - chance,
            "too high": 1 / (1 + np.exp(-(base + 3 + spread))),
        }[quality]
        weights = rng.gamma(2, 1, n)
        sizes = weights * np.sqrt(predicted * (1 - predicted) + 0.02)
        sizes = np.ones(n) if order == "plain" else sizes
        keys = drawing_order(rng.random(n), sizes)
        asked = np.argsort(keys)
        seen = np.full(n, np.nan)
        seen[asked[:count]] = truth[asked[:count]]
        chances = drawing_chances(sizes, float(keys[asked[count]]))
        found = prediction_powered(seen, predicted, chances, weights=weights)
        mean = float(weights @ truth / weights.sum())
        held += found.interval.low - 1e-12 <= mean <= found.interval.high + 1e-12
        width += float(found.interval.width)
    return held / draws, width / draws


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--draws", type=int, default=60)
    parser.add_argument("--simulated", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    if given.simulated:
        simulated(300)
        return
    start = time.perf_counter()
    whole = read_verdicts(given.data)
    cells, bounds = compare(whole, given.draws)
    lines = [
        "# What a few answers tell about accuracy",
        "",
        f"Multi-label accuracy (mean per class) of {len(whole):,} validation images, reviews of half of "
        f"them hidden; {given.draws} draws of what is hidden and asked; the queue is shared by "
        f"{len(MODELS)} models.",
        f"{describe('numpy', 'scipy')}. Made by `benchmarks/review_queue.py`.",
        "",
        "Before any answer: " + "; ".join(bounds) + ".",
        "",
        "Width of the 95 % interval in points, share of intervals that hold the whole truth, and "
        "root mean square error in points.",
        "",
        "| answers | model | plain | powered | queue | held: plain, powered, queue | error: plain, "
        "powered, queue |",
        "|---:|---|---:|---:|---:|---|---|",
    ]
    names = ("plain", "powered", "queue")
    for count in ANSWERS:
        for model in MODELS:
            row = [cells[way, model, count] for way in names]
            widths = " | ".join(f"{100 * cell.width / cell.draws:.2f}" for cell in row)
            held = ", ".join(f"{cell.held / cell.draws:.2f}" for cell in row)
            error = ", ".join(f"{100 * (cell.error / cell.draws) ** 0.5:.2f}" for cell in row)
            lines.append(f"| {count} | {model} | {widths} | {held} | {error} |")
    text = "\n".join(lines) + "\n"
    if given.write:
        write_result("review_queue", text)
    else:
        print(text)
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
