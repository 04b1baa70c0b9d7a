"""Strategies for spending labels on four domains: selectors times allocators, which differ for real?

PACS (1,120 images of photo, art painting, cartoon and sketch, seven classes), frozen features of the
built-in lite0, logistic regression: 60 first labels and ten rounds of 20, ten seeds. Half of the
images are candidates, a fifth is for validation, the rest is the test. Every strategy starts from the
same labels at a seed, so differences from ``random`` are paired; intervals are over seeds and test
images, p values adjusted for all comparisons of a table (Holm).

A second table thins the candidates of one domain (sketch) to a quarter: there the natural mix and
equal parts differ.

Run: ``python benchmarks/active.py [--seeds 10]`` with PACS at ../shared/data/pacs (or ``--data
FOLDER``, domain/class/image). Writes benchmarks/results/active.md.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from machine import describe, write_result

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
os.environ.update(dict.fromkeys(THREADS, "1"))

RARE, KEPT = "sketch", 0.25
FEW = "random,margin,badge"


def problems(data: Path, workspace_folder: Path) -> tuple[object, object, float]:
    """The problem, the same with a rare domain, and the seconds that features took."""
    from heldout.core.workspace import Workspace
    from heldout.curate.active.task import PARTS, TRAIN, make_problem, pool_features
    from heldout.curate.pool_images import folder_pool
    from heldout.data.testset.hashing import row_hash, uniform

    pool = folder_pool(data, name="pacs")
    began = time.monotonic()
    features = pool_features(pool, "lite0", workspace=Workspace.find(workspace_folder))
    took = time.monotonic() - began
    ids = pool.images["image_id"].to_pylist()
    where = {image: image.split("/") for image in ids}
    domains = [where[image][0] for image in ids]
    labels = [where[image][1] for image in ids]
    vectors = np.asarray(features.vectors)
    whole = make_problem("pacs", ids=ids, labels=labels, domains=domains, features=vectors)
    part = {image: PARTS[code] for image, code in zip(whole.ids, whole.parts, strict=True)}
    chance = uniform(row_hash(ids, seed=1))
    kept = [
        row
        for row, image in enumerate(ids)
        if not (domains[row] == RARE and part[image] == PARTS[TRAIN] and chance[row] >= KEPT)
    ]
    thinned = make_problem(
        "pacs-rare-sketch",
        ids=[ids[row] for row in kept],
        labels=[labels[row] for row in kept],
        domains=[domains[row] for row in kept],
        features=vectors[kept],
        parts=[part[ids[row]] for row in kept],
    )
    return whole, thinned, took


def study(problem: object, strategies: Sequence[str], seeds: int, runs: Path) -> tuple[object, str]:
    """Follow strategies; the outcome and how long it took."""
    from heldout.core.engine import Processes
    from heldout.curate.active.classifier import Logistic
    from heldout.curate.active.strategies import parse_strategies
    from heldout.curate.active.study import LabelPlan, run_study

    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    outcome = run_study(
        problem,
        Logistic(),
        parse_strategies(strategies),
        plan=LabelPlan(initial=60, budget=20, rounds=10),
        seeds=range(seeds),
        runs=runs,
        executor=Processes(),
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    trained = len(outcome.strategies) * seeds * (outcome.plan.rounds + 1)
    took = (
        f"{len(outcome.strategies)} strategies, {trained:,} classifiers trained: "
        f"{time.monotonic() - began:.0f} s, {cpu:.0f} processor seconds"
    )
    return outcome, took


def grid_table(records: Sequence[object], metric: str, outcome: object) -> list[str]:
    """Allocators by selectors: the mean of the curve, as the difference from random."""
    from heldout.curate.active.learning_curves import CROSSED, SEEDS

    cells = {
        (r.strategy, r.interval): r
        for r in records
        if r.other == "random" and r.metric == metric and r.labels is None and r.slice == "all"
    }
    base = next(
        r.value
        for r in records
        if (r.strategy, r.metric, r.other, r.labels, r.slice)
        == ("random", metric, None, None, "all")
    )
    selectors = list(dict.fromkeys(s.selector.name for s in outcome.strategies))
    allocators = list(dict.fromkeys(s.allocator.name for s in outcome.strategies))
    lines = ["", "| | " + " | ".join(selectors) + " |", "|---" * (len(selectors) + 1) + "|"]
    for allocator in allocators:
        row = [allocator]
        for selector in selectors:
            name = selector if allocator == "none" else f"{selector}+{allocator}"
            if name == "random":
                row.append(f"{100 * base:.1f}")
                continue
            over_seeds, crossed = cells[name, SEEDS], cells[name, CROSSED]
            text = f"{100 * crossed.value:+.1f}"
            if crossed.adjusted_p <= 0.05:
                text = f"**{text}**"
            elif over_seeds.adjusted_p <= 0.05:
                text = f"{text} s"
            elif crossed.p <= 0.05:
                text = f"{text} ·"
            row.append(text)
        lines.append("| " + " | ".join(row) + " |")
    return lines


def over_grid(strategies: Sequence[object], curves: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Means over a grid: ``margin+any`` over all allocators, ``any+error`` over all selectors."""
    found: dict[str, list[np.ndarray]] = {}
    for strategy in strategies:
        for name in (f"{strategy.selector.name}+any", f"any+{strategy.allocator.name}"):
            found.setdefault(name, []).append(curves[strategy.name])
    return {name: np.mean(held, axis=0) for name, held in found.items()}


def effect_table(outcome: object, end: bool) -> list[str]:
    """Selectors over all allocators, allocators over all selectors; each against the first."""
    from heldout.curate.active.learning_curves import paired_over_seeds, resample
    from heldout.stats.multiple import holm

    point = len(outcome.labels) - 1 if end else None
    drawn = resample(outcome, replicates=1000, rng=np.random.default_rng(0))
    cells: dict[str, list[str]] = {}
    against = {}
    for metric in ("accuracy", "worst_domain"):
        drawn.curves[metric] = over_grid(outcome.strategies, drawn.curves[metric])
        curves = over_grid(outcome.strategies, outcome.curves(metric))
        values = {n: c[:, point] if end else c.mean(axis=1) for n, c in curves.items()}
        for selectors in (True, False):
            first, *names = [name for name in values if name.endswith("+any") == selectors]
            gaps = [values[name] - values[first] for name in names]
            found = [
                drawn.difference(metric, name, first, gap, point=point)
                for name, gap in zip(names, gaps, strict=True)
            ]
            crossed = holm([each.p for each in found])
            over_seeds = holm([paired_over_seeds(gap).p for gap in gaps])
            for name, each, p, p_seeds in zip(names, found, crossed, over_seeds, strict=True):
                low, high = each.interval.low, each.interval.high
                text = f"{100 * each.difference:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"
                text = f"**{text}**" if p <= 0.05 else f"{text} s" if p_seeds <= 0.05 else text
                cells.setdefault(name, []).append(text)
                against[name] = first
    lines = ["", "| | against | accuracy | worst domain |", "|---|---|---|---|"]
    return lines + [
        f"| {name} | {against[name]} | {' | '.join(row)} |" for name, row in cells.items()
    ]


LEGEND = (
    "Points of the mean over the curve, against random; random itself in percent. **Bold**: adjusted "
    "p at most 0.05 over seeds and test images. s: only over seeds, on these test images. "
    "·: p at most 0.05 before adjusting."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared/data/pacs")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--workspace", type=Path, help="Keep features and runs here.")
    options = parser.parse_args()
    if not options.data.is_dir():
        sys.exit(f"no folder {options.data}: give --data FOLDER (domain/class/image)")
    from heldout.curate.active.learning_curves import study_records

    with tempfile.TemporaryDirectory() as scratch:
        folder = options.workspace or Path(scratch)
        whole, thinned, features = problems(options.data, folder)
        outcome, took = study(whole, ["all+all"], options.seeds, folder / "runs")
        names = [s.name for s in outcome.strategies if s.selector.kind != "k-centre"]
        began = time.monotonic()
        records = [r for r in study_records(outcome) if r.record == "learning"]
        reading = time.monotonic() - began
        fewer = replace(
            outcome,
            strategies=tuple(s for s in outcome.strategies if s.name in names),
            rounds={name: outcome.rounds[name] for name in names},
        )
        few = [f"{s}+all" for s in FEW.split(",")]
        second, second_took = study(thinned, few, options.seeds, folder / "runs")
        rare = [r for r in study_records(second) if r.record == "learning"]
    sizes = ", ".join(
        f"{name} {size}"
        for name, size in zip(second.problem.domain_names, second.problem.domain_sizes, strict=True)
    )
    lines = [
        "# Strategies for spending labels on four domains",
        "",
        f"{describe('numpy', 'scipy', 'onnxruntime')}. {options.seeds} seeds.",
        f"Features of 1,120 images: {features:.0f} s. {took}. Intervals: {reading:.1f} s.",
        "",
        LEGEND,
        "",
        "## Accuracy",
        *grid_table(records, "accuracy", outcome),
        "",
        "## Worst domain",
        *grid_table(records, "worst_domain", outcome),
        "",
        "## Selectors and allocators by themselves: mean of the curve",
        *effect_table(outcome, end=False),
        "",
        "## The same without k-centre",
        *effect_table(fewer, end=False),
        "",
        "## The same at the end, 260 labels",
        *effect_table(outcome, end=True),
        "",
        f"## A rare domain: candidates are {sizes}",
        "",
        f"{second_took}.",
        "",
        "Accuracy:",
        *grid_table(rare, "accuracy", second),
        "",
        "Worst domain:",
        *grid_table(rare, "worst_domain", second),
        *effect_table(second, end=False),
        "",
    ]
    write_result("active", "\n".join(lines))


if __name__ == "__main__":
    main()
