"""Honest reports: how often a report states something where there is nothing, and where there is.

Whole evaluations in this process, of generated predictions: tables, statements and the page. In worlds
without any effect, the share of reports that state a difference of models, a hard slice, a change or a
rank change, all kinds together, must have a 99 % lower limit not above 5 %. In worlds with a planted
effect, whose size is chosen so that an oracle finds it in 90 % of draws (it knows what to test, and
corrects for as much as the report does), it must be stated in at least 80 %.

Run: ``python benchmarks/honest_reports.py``; ``--quick`` for a tenth. Writes
benchmarks/results/honest_reports.md.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from heldout import evaluate
from heldout.core.workspace import Workspace
from heldout.data.labels import Class, LabelSpace
from heldout.data.testset import (
    Card,
    ColumnType,
    TestSet,
    image_table,
    make_testset,
    save,
    truth_table,
)
from heldout.measure.evaluation.flow import Results
from heldout.measure.score.records import Claim
from heldout.models.predictions import Predictions, PredictionStore
from heldout.show.page import render_report
from heldout.show.report import report_data
from heldout.stats.intervals import clopper_pearson

KINDS = ("difference", "slice", "change", "rank")
LEVEL = 0.95


@dataclass(frozen=True)
class World:
    """One draw: test sets by name with hits (images, models), and what the report is asked."""

    sets: dict[str, tuple[TestSet, np.ndarray]]
    asked: dict[str, Any] = field(default_factory=dict)


def testset(
    name: str, labels: np.ndarray, columns: dict[str, np.ndarray], clusters: str | None = None
) -> TestSet:
    """A test set of labels and columns, without images."""
    classes = int(labels.max()) + 1
    space = LabelSpace(
        "generated", tuple(Class(f"c{k:03d}", (f"class {k}",)) for k in range(classes))
    )
    ids = [f"{name}/{i:05d}" for i in range(len(labels))]
    table = {
        "image_id": ids,
        "source": ["generated"] * len(ids),
        "licence": ["CC0-1.0"] * len(ids),
        **{column: [f"v{value}" for value in values] for column, values in columns.items()},
    }
    card = Card(
        name=name,
        label_space=space.name,
        recipe={"name": "example", "parameters": {}, "seed": 0},
        counts={"images": len(ids), "classes": classes},
        columns={column: ColumnType(kind="categorical") for column in columns},
        truths={"original": {"kind": "single", "source": "generated"}},
        clusters=clusters,
    )
    truth = truth_table(ids, [space.ids[k] for k in labels])
    return make_testset(
        card, images=image_table(table), truths={"original": truth}, label_space=space
    )


def predictions(where: TestSet, hits: np.ndarray, model: str) -> Predictions:
    """Top-1 predictions that are right where ``hits`` says."""
    classes = len(where.label_space)
    truth = where.truth().column("class_id").to_pylist()
    labels = np.array([where.label_space.index(name) for name in truth])
    topk = (labels[:, None] + np.arange(min(classes, 5))) % classes
    topk[~hits] = np.roll(topk[~hits], 1, axis=1)
    return Predictions(
        model=model,
        image_ids=where.image_ids,
        topk=topk.astype(np.int32),
        logits=None,
        label_space=where.label_space,
        identity={"simulated": model},
    )


def alike(rng: np.random.Generator, chance: np.ndarray, models: int) -> np.ndarray:
    """Hits (n, models) of models that agree more than by chance, each right with ``chance`` (n,)."""
    image = rng.standard_normal((len(chance), 1))
    noise = np.sqrt(0.6) * image + np.sqrt(0.4) * rng.standard_normal((len(chance), models))
    return np.asarray(noise < stats.norm.ppf(chance)[:, None])


def classes_of(n: int, classes: int) -> np.ndarray:
    return np.arange(n) % classes


def equal_models(rng: np.random.Generator, models: int, n: int = 1000) -> World:
    hits = alike(rng, np.full(n, 0.72), models)
    return World({"new": (testset("new", classes_of(n, 10), {}), hits)})


def many_classes(rng: np.random.Generator) -> World:
    labels = classes_of(1000, 100)
    hits = alike(rng, np.full(1000, 0.72), 3)
    return World({"new": (testset("new", labels, {}), hits)}, {"by": ["class"], "minimum_n": 8})


def random_columns(rng: np.random.Generator) -> World:
    n, columns = 1500, {f"k{k:02d}": rng.integers(0, 5, 1500) for k in range(12)}
    found = testset("new", classes_of(n, 10), columns)
    return World({"new": (found, alike(rng, np.full(n, 0.72), 2))}, {"by": list(columns)})


def clustered(rng: np.random.Generator) -> World:
    """Two sets of one distribution; photographers differ, and each stays with one place and light."""
    made = {}
    for name in ("old", "new"):
        who = np.repeat(np.arange(60), 1 + rng.poisson(15, 60))
        columns = {"photographer": who, "place": rng.integers(0, 4, 60)[who]}
        columns["light"] = rng.integers(0, 3, 60)[who]
        hits = np.stack(
            [rng.random(len(who)) < rng.beta(3.6, 1.4, 60)[who] for _ in range(3)], axis=1
        )
        labels = classes_of(len(who), 10)
        made[name] = testset(name, labels, columns, clusters="photographer"), hits
    return World(made, {"by": ["place", "light"], "baseline": "old"})


def two_sets(rng: np.random.Generator) -> World:
    made = {
        name: (testset(name, classes_of(n, 10), {}), alike(rng, np.full(n, 0.72), 6))
        for name, n in (("old", 1500), ("new", 800))
    }
    return World(made, {"baseline": "old"})


NULLS: dict[str, Callable[[np.random.Generator], World]] = {
    "two equal models": lambda rng: equal_models(rng, 2),
    "20 equal models": lambda rng: equal_models(rng, 20),
    "100 classes of 10 images, 3 models": many_classes,
    "12 random columns, 2 models": random_columns,
    "clusters in two sets, 3 models": clustered,
    "two sets of one kind, 6 models": two_sets,
}


def planted_models(rng: np.random.Generator) -> World:
    """5 points between two models on 2,000 images with a column; they disagree just so often."""
    n, gap = 2000, 0.05
    apart = power_of_pairs(n, gap, (1 - LEVEL) / 2)
    kind = rng.choice(3, n, p=[(apart + gap) / 2, (apart - gap) / 2, 1 - apart])
    both = rng.random(n) < 0.7
    hits = np.stack([np.where(kind == 2, both, kind == 0), np.where(kind == 2, both, kind == 1)], 1)
    light = {"light": rng.integers(0, 4, n)}
    return World({"new": (testset("new", classes_of(n, 10), light), hits)}, {"by": ["light"]})


@cache
def power_of_pairs(n: int, gap: float, alpha: float) -> float:
    """The share of images on which two models disagree, at which an exact McNemar test has 90 %."""

    def power(apart: float) -> float:
        count = np.arange(n + 1)
        weight = stats.binom.pmf(count, n, apart)
        wins = stats.binom.isf(alpha / 2, count, 0.5)
        return float(weight @ stats.binom.sf(wins, count, (apart + gap) / 2 / apart))

    grid = np.arange(0.06, 0.8, 0.005)
    return float(grid[np.argmin([abs(power(apart) - 0.9) for apart in grid])])


def planted_slice(rng: np.random.Generator) -> World:
    """15 points on one class of 100 images, for both of two models; the rest sets the noise."""
    labels = classes_of(2000, 20)
    right = power_of_slices(100, 0.15, (1 - LEVEL) / 2 / 40)
    hits = alike(rng, np.where(labels == 7, right - 0.15, right), 2)
    return World({"new": (testset("new", labels, {}), hits)}, {"by": ["class"]})


@cache
def power_of_slices(n: int, gap: float, alpha: float) -> float:
    """The accuracy at which a binomial test of a slice against it has 90 %."""

    def power(right: float) -> float:
        most = stats.binom.ppf(alpha / 2, n, right) - 1
        return float(stats.binom.cdf(most, n, right - gap))

    grid = np.arange(0.5, 0.99, 0.005)
    return float(grid[np.argmin([abs(power(right) - 0.9) for right in grid])])


def is_difference(claim: Claim) -> bool:
    return claim.kind == "difference" and claim.model == "m00"


def is_slice(claim: Claim) -> bool:
    return claim.kind == "slice" and claim.model == "m00" and claim.slice == "class=c007"


PLANTED: dict[str, tuple[Callable[[np.random.Generator], World], Callable[[Claim], bool]]] = {
    "5 points between two models on 2,000 images": (planted_models, is_difference),
    "15 points on a slice of 100 images": (planted_slice, is_slice),
}


def evaluated(world: World, folder: Path) -> Results:
    """The evaluation of a world in a folder that is empty."""
    workspace, models = Workspace(folder), []
    for name, (where, hits) in world.sets.items():
        outputs = [predictions(where, hits[:, m], f"m{m:02d}") for m in range(hits.shape[1])]
        if len(world.sets) == 1:
            models = outputs
            continue
        save(where, workspace.testsets / name)
        for item in outputs:
            PredictionStore(workspace.predictions).write(item, images_hash=where.card.images_hash)
    sets = [where for where, _ in world.sets.values()] if models else list(world.sets)
    asked = {"metrics": ["top1"], "mistakes": False, "workspace": workspace, **world.asked}
    return evaluate(models or "all", sets, **asked)


def page_of(found: Results, world: World, folder: Path) -> str:
    """The page of an evaluation, without its scripts."""
    baseline = world.asked.get("baseline")
    sets = {name: where for name, (where, _) in world.sets.items()}
    data = report_data(
        found.records, workspace=Workspace(folder), title="", baseline=baseline, sets=sets
    )
    return re.sub(r"<(script|style)\b.*?</\1>", "", render_report(data), flags=re.S)


def reports(
    draw: Callable[[np.random.Generator], World], seeds: int, stream: int
) -> Iterator[tuple[list[Claim], str]]:
    """What a report states, and its page, for each seed."""
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as place:
            world = draw(np.random.default_rng([stream, seed]))
            found = evaluated(world, Path(place))
            page = page_of(found, world, Path(place))
            yield [record for record in found.of(Claim) if record.stated], page


_WORDS = r"class=\"(?:up|down)\"|best of|(?:worst|hardest) slice of|\b(?:falls|rises) from"


def states(claims: Sequence[Claim], page: str) -> set[str]:
    """The kinds of statement in a report; words on its page that no claim is behind are one more."""
    kinds = {claim.kind for claim in claims}
    return kinds | ({"words"} if not kinds and re.search(_WORDS, page) else set())


def null_table(seeds: int) -> list[str]:
    lines = ["| world without an effect | reports | any statement | 99 % limits | by kind |",
             "|---|---|---|---|---|"]  # fmt: skip
    for place, (name, draw) in enumerate(NULLS.items()):
        found = [states(*one) for one in reports(draw, seeds, place)]
        any_of = sum(map(bool, found))
        limits = clopper_pearson(any_of, seeds, level=0.99)
        kinds = ", ".join(
            f"{kind} {sum(kind in one for one in found)}"
            for kind in (*KINDS, "words")
            if any(kind in one for one in found)
        )
        shown = f"{100 * limits.low:.1f}–{100 * limits.high:.1f}"
        verdict = "" if limits.low <= 0.05 else " **too many**"
        lines.append(
            f"| {name} | {seeds} | {100 * any_of / seeds:.1f} %{verdict} | {shown} | {kinds} |"
        )
        print(lines[-1], flush=True)
    return lines


def power_table(seeds: int) -> list[str]:
    lines = [
        "| planted effect | reports | an oracle | stated | 99 % limits |",
        "|---|---|---|---|---|",
    ]
    for place, (name, (draw, wanted)) in enumerate(PLANTED.items()):
        stated = sum(any(map(wanted, one)) for one, _ in reports(draw, seeds, 100 + place))
        limits = clopper_pearson(stated, seeds, level=0.99)
        shown = f"{100 * limits.low:.1f}–{100 * limits.high:.1f}"
        verdict = "" if stated >= 0.8 * seeds else " **too few**"
        lines.append(
            f"| {name} | {seeds} | 90 % | {100 * stated / seeds:.1f} %{verdict} | {shown} |"
        )
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    from machine import describe, write_result

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--quick", action="store_true", help="a tenth of the seeds; writes nothing")
    asked = parser.parse_args()
    seeds = asked.seeds // 10 if asked.quick else asked.seeds
    tables = [null_table(seeds), power_table(seeds)]
    text = "\n\n".join("\n".join(table) for table in tables)
    head = (
        "# Honest reports\n\nMade by `benchmarks/honest_reports.py`: whole evaluations of generated "
        "predictions. A report may state\nsomething that is not so in at most 5 % of cases, all kinds of "
        "statement together: the lower 99 % limit must\nnot be above that. Every planted effect has the "
        "size that an oracle finds in 90 % of draws: it knows what to\ntest, and corrects for as much as "
        f"the report does.\n\n{describe('numpy', 'scipy')}\n\n"
    )
    if asked.quick:
        print(text)
    else:
        write_result("honest_reports", f"{head}{text}\n")


if __name__ == "__main__":
    main()
