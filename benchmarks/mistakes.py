"""What 22 models get wrong on 50,000 images: the whole analysis, and how it grows with models.

Claim: confusions under three truths (each model and all together, unordered and directed), consensus
and labels to doubt, co-occurrence, the list of mistakes, and a category with its evidence for every
one of them, in under 30 s on 2 cores, linear in the number of models. The authors of the automated
analysis of 2023 state 12 to 24 hours for theirs, with an image-text encoder, over 962 models.

The peer is that analysis' way through the data for the first two parts: a loop over models and images
with sets of labels. It runs in the same rounds, interleaved, and must find the same numbers.

Run: ``python benchmarks/mistakes.py [--rounds 5]`` with the published data at ../shared/data (or
``--data FOLDER``). Writes benchmarks/results/mistakes.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from machine import describe, write_result

SET = "imagenet-validation-original"
TRUTHS = ("original", "real", "multilabel")


def outputs(place: Path, models: int) -> tuple[Any, list[Any]]:
    """The set, and so many models: beyond the stored ones, copies that swap some first guesses."""
    from heldout.core.workspace import Workspace
    from heldout.data.testset import find_testset
    from heldout.models.predictions import PredictionStore

    workspace = Workspace.find(place)
    testset = find_testset(workspace, SET)
    store = PredictionStore(workspace.predictions)
    runs = store.select(testset.card.images_hash, ["all"], testset=SET)
    rng = np.random.default_rng(0)
    found = []
    for number in range(models):
        read = store.read(runs[number % len(runs)])
        if number >= len(runs):
            topk = read.topk.copy()
            swapped = np.flatnonzero(rng.random(len(topk)) < 0.2)
            topk[swapped[:, None], [0, 1]] = topk[swapped[:, None], [1, 0]]
            read = replace(read, model=f"{read.model}-{number}", topk=topk)
        found.append(read)
    return testset, found


def whole(place: Path, models: int) -> dict[str, Any]:
    """The analysis: seconds of its parts, and numbers to compare."""
    from heldout.measure.mistakes.between_models import model_consensus, suspects
    from heldout.measure.mistakes.categories import propose
    from heldout.measure.mistakes.class_similarity import cooccurrence
    from heldout.measure.mistakes.confusions import confusions
    from heldout.measure.mistakes.evidence import evidence_table, gather_knowledge
    from heldout.measure.mistakes.verdicts import mistakes_of, verdicts_by_truth

    seconds: dict[str, float] = {}
    numbers: dict[str, Any] = {}
    clock = Clock(seconds)
    testset, predictions = outputs(place, models)
    clock("read")
    found = verdicts_by_truth(testset, predictions, truths=TRUTHS)
    clock("verdicts under three truths")
    for verdicts in found:
        for model in (*verdicts.models, None):
            for directed in (False, True):
                pairs = confusions(verdicts, model, directed=directed)
                numbers[f"{verdicts.truth.name} {model} {directed}"] = [len(pairs), pairs.total]
    clock("confusions")
    for verdicts in found:
        consensus = model_consensus(verdicts)
        numbers[f"{verdicts.truth.name} missed"] = consensus.missed_by
        numbers[f"{verdicts.truth.name} suspects"] = len(suspects(verdicts))
    clock("consensus and labels to doubt")
    cooccurrence(testset, truth="real", without="multilabel")
    clock("co-occurrence")
    mistakes = mistakes_of(found[-1])
    clock("list of mistakes")
    knowledge = gather_knowledge(
        testset, truth="multilabel", peers=predictions, seen_together="real", collapse="imagenet-1k"
    )
    clock("knowledge: peers, affinity, hierarchy")
    proposals = propose(evidence_table(mistakes, knowledge))
    clock("categories with evidence")
    return {"seconds": seconds, "numbers": numbers, "mistakes": len(proposals)}


class Clock:
    """Seconds of the processor since the last call, by name: the machine is shared."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds, self.last = seconds, time.process_time()

    def __call__(self, name: str) -> None:
        now = time.process_time()
        self.seconds[name], self.last = now - self.last, now


def loops(place: Path, models: int) -> dict[str, Any]:
    """The peer: confusions and consensus by going through models and images."""
    seconds: dict[str, float] = {}
    numbers: dict[str, Any] = {}
    clock = Clock(seconds)
    testset, predictions = outputs(place, models)
    clock("read")
    index = {class_id: number for number, class_id in enumerate(testset.label_space.ids)}
    guesses = {
        p.model: dict(zip(p.image_ids.to_pylist(), p.topk[:, 0].tolist(), strict=True))
        for p in predictions
    }
    for truth in TRUTHS:
        images = dict(_acceptable(testset.truth(truth), truth, index))
        missed: Counter[str] = Counter()
        together: Counter[tuple[int, int]] = Counter()
        for model, said in guesses.items():
            pairs: Counter[tuple[int, int]] = Counter()
            for image, right in images.items():
                guess = said[image]
                if guess in right:
                    continue
                missed[image] += 1
                for label in right:
                    pairs[min(label, guess), max(label, guess)] += 1
            together.update(pairs)
            numbers[f"{truth} {model} False"] = [len(pairs), sum(pairs.values())]
        numbers[f"{truth} None False"] = [len(together), sum(together.values())]
        counts = Counter(missed[image] for image in images)
        numbers[f"{truth} missed"] = [counts[k] for k in range(models + 1)]
    clock("confusions and consensus")
    return {"seconds": seconds, "numbers": numbers}


def _acceptable(table: Any, truth: str, index: dict[str, int]) -> Iterator[tuple[str, set[int]]]:
    for row in table.to_pylist():
        right = {index[c] for c in (*row["correct"], *row["unclear"])}
        if not row["problematic"] if truth == "multilabel" else right:
            yield row["image_id"], right


@dataclass(frozen=True)
class Run:
    """One process: what it found, seconds from start to exit and of the processor, peak memory."""

    found: dict[str, Any]
    seconds: float
    processor: float
    megabytes: float


def child(arguments: list[str], folder: Path) -> Run:
    """A process of its own."""
    out = folder / "out.json"
    start = time.perf_counter()
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, __file__, *arguments],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 1, str(out), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        ],
    )
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise RuntimeError(f"{' '.join(arguments)} failed")
    return Run(
        json.loads(out.read_text()),
        time.perf_counter() - start,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss / 1024,
    )


def prepared(data: Path, place: Path) -> None:
    """A workspace with the set, its three truths, and the stored models."""
    from heldout.cli.app import invoke

    order = data / f"imagenetv2/datasets/{SET}.json"
    for step in (
        ["testset", order],
        ["truth", data / "mistakes/multilabel.csv", "-t", SET],
        ["truth", data / "mistakes/real/real.json", "-t", SET],
        ["predictions", data / f"imagenetv2/predictions/{SET}", "-t", SET, "--order", order],
    ):
        if invoke(["import", *map(str, step), "-w", str(place)]):
            raise RuntimeError("the published data could not be imported")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", nargs=3, metavar=("JOB", "WORKSPACE", "MODELS"))
    options = parser.parse_args()
    if options.child:
        job, place, models = options.child
        found = (whole if job == "whole" else loops)(Path(place), int(models))
        print(json.dumps(found))
        return
    runs: list[Run] = []
    peers: list[Run] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepared(options.data, folder / "ws")

        def run(job: str, models: int) -> Run:
            return child(["--child", job, str(folder / "ws"), str(models)], folder)

        for _ in range(options.rounds):
            runs.append(run("whole", 22))
            peers.append(run("loops", 22))
        growth = {
            models: [run("whole", models) for _ in range(min(3, options.rounds))]
            for models in (11, 22, 44, 88)
        }
    write_result("mistakes", report(runs, peers, growth))


def report(runs: Sequence[Run], peers: Sequence[Run], growth: dict[int, list[Run]]) -> str:
    """The committed table."""
    mine, theirs = runs[0].found["numbers"], peers[0].found["numbers"]
    equal = all(mine[key] == value for key, value in theirs.items())

    def part(name: str, given: Sequence[Run] = runs) -> float:
        return statistics.median(one.found["seconds"][name] for one in given)

    loop = part("confusions and consensus", peers)
    parts = ("verdicts under three truths", "confusions", "consensus and labels to doubt")
    same = sum(map(part, parts))
    lines = [
        "# What 22 models get wrong on 50,000 images",
        "",
        f"{describe('numpy', 'pyarrow')}. {len(runs)} rounds, interleaved, a fresh process each; medians.",
        f"{runs[0].found['mistakes']:,} different mistakes under the multi-label truth get a category.",
        "",
        "| part | processor seconds |",
        "|---|---|",
        *(f"| {name} | {part(name):.2f} |" for name in runs[0].found["seconds"]),
        f"| the whole process | {statistics.median(one.processor for one in runs):.2f} |",
        "",
        "| from start to exit | seconds |",
        "|---|---|",
        f"| median | **{statistics.median(one.seconds for one in runs):.2f}** |",
        f"| worst round | {max(one.seconds for one in runs):.2f} |",
        "",
        f"Peak memory: {max(one.megabytes for one in runs):,.0f} MB.",
        "",
        "| confusions (unordered) and consensus | processor seconds | ratio |",
        "|---|---|---|",
        f"| loops over models and images, sets of labels | {loop:.2f} | {loop / same:.1f} |",
        f"| heldout, also directed pairs and labels to doubt | {same:.2f} | 1 |",
        "",
        f"Equal numbers of both: {'yes' if equal else 'NO'}.",
        "",
        "| models | processor seconds | a model | seconds | peak MB |",
        "|---|---|---|---|---|",
    ]
    for models, given in growth.items():
        processor = statistics.median(one.processor for one in given)
        seconds = statistics.median(one.seconds for one in given)
        memory = max(one.megabytes for one in given)
        lines.append(
            f"| {models} | {processor:.2f} | {processor / models:.3f} | {seconds:.2f} | {memory:,.0f} |"
        )
    lines += [
        "",
        "Models beyond the 22 published ones are copies in which a fifth of the first guesses is "
        "swapped with the second.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
