"""Overlaps of all subsets against the pairwise sets of MetaShift's code, and the whole build.

A source of GQA's size is drawn (benchmarks/gqa_like.py: 113,018 images, 1,702 names); its 13,543
largest subsets are taken, as many as MetaShift publishes of 25 images and more.

sets     as in MetaShift's generator: for every pair of subsets of a class, two set differences and
         an intersection of Python sets of ids; minutes at full size, so once. --sample runs it on
         a share of the classes and scales by the elements of all their pairs
sparse   heldout.curate.contexts.graph.overlaps: one product for all classes, all pairs
build    heldout build contexts from the file: read, subsets, graphs, what is unique, written
scaling  the sparse product where subsets grow and co-occurrences do not, and the other way round

    python benchmarks/contexts.py [--images 113018] [--repeats 3] [--sample 1.0] [--coverage] [--write]
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gqa_like import IMAGES, Shape, write_gqa_like
from heldout.curate.contexts.graph import overlaps, shared_images
from heldout.curate.contexts.requests import ContextsParameters
from heldout.curate.contexts.subsets import Subsets, find_candidates, make_subsets
from heldout.data.importing.pools import read_metadata
from machine import describe, write_result

SUBSETS = 13_543


@dataclass(frozen=True)
class Compared:
    """Seconds of both, the slow one scaled, and whether every weight was equal."""

    sets: float
    sparse: float
    pairs: int
    sampled: int
    equal: bool


def pairwise_sets(members: Sequence[set[str]]) -> list[float]:
    """Weights of all pairs of one class, as the generator's loop computes them."""
    found = []
    for i, a in enumerate(members):
        for b in members[i + 1 :]:
            only_a, only_b = a - b, b - a  # the original makes both for every pair
            both = a & b
            found.append(len(both) / min(len(only_a) + len(both), len(only_b) + len(both)))
    return found


def largest(subsets: Subsets, count: int) -> Subsets:
    """The subsets of most images; of equal ones the first by name."""
    order = np.argsort(-subsets.sizes, kind="stable")
    return subsets.take(order[:count])


def compare(subsets: Subsets, *, sample: float, repeats: int, seed: int = 0) -> Compared:
    """Both algorithms on the same subsets: the slow one once, the fast one before and after it."""
    classes: dict[str, list[int]] = {}
    for place, subject in enumerate(subsets.subject_of):
        classes.setdefault(subject, []).append(place)

    def work(places: Sequence[int]) -> float:
        """What the set operations of a class cost: for every pair, the elements of both."""
        sizes = subsets.sizes[list(places)]
        return float(sizes.sum()) * (len(sizes) - 1)

    everything = sum(work(places) for places in classes.values())
    chosen: list[str] = []
    done = 0.0
    for subject in np.random.default_rng(seed).permutation(sorted(classes)).tolist():
        if done < sample * everything:
            chosen.append(subject)
            done += work(classes[subject])
    ids = subsets.image_ids
    members = {
        subject: [set(ids[subsets.members(subsets.names[p])].tolist()) for p in classes[subject]]
        for subject in chosen
    }
    seconds = [_timed(subsets) for _ in range(repeats // 2)]
    start = time.perf_counter()
    slow = {subject: pairwise_sets(members[subject]) for subject in chosen}
    sets = (time.perf_counter() - start) * everything / done
    seconds += [_timed(subsets) for _ in range(repeats - repeats // 2)]
    fast = overlaps(subsets)
    equal = all(
        np.array_equal(
            fast[np.ix_(classes[s], classes[s])].toarray()[np.triu_indices(len(classes[s]), 1)],
            slow[s],
        )
        for s in chosen
    )
    pairs = sum(len(places) * (len(places) - 1) // 2 for places in classes.values())
    sampled = sum(len(weights) for weights in slow.values())
    return Compared(sets, float(np.median(seconds)), pairs, sampled, equal)


def _timed(subsets: Subsets) -> float:
    start = time.perf_counter()
    overlaps(subsets)
    return time.perf_counter() - start


def scaling(repeats: int) -> list[tuple[str, int, int, float]]:
    """(what, subsets, co-occurrences, seconds): one class, images in a fixed number of subsets."""
    rng = np.random.default_rng(0)
    rows = []
    for what, subsets, each in (
        ("base", 500, 8),
        ("4 × subsets", 2_000, 8),
        ("16 × subsets", 8_000, 8),
        ("2 × subsets an image", 500, 16),
        ("4 × subsets an image", 500, 32),
    ):
        images = 20_000
        table = rng.integers(0, subsets, size=(images, each))
        made = make_subsets(
            np.repeat(np.arange(images), each).astype(str).tolist(),
            [f"cat({c})" for c in table.ravel().tolist()],
        )
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            shared_images(made)
            seconds.append(time.perf_counter() - start)
        rows.append((what, subsets, images * each * each, float(np.median(seconds))))
    return rows


def build(file: Path, folder: Path, minimum: int) -> tuple[float, float]:
    """Seconds and peak memory in GB of the command, in a process of its own."""
    run = "import sys; from heldout.cli.app import invoke; sys.exit(invoke(sys.argv[1:]))"
    command = [sys.executable, "-c", run, "build", "contexts", "--source", "gqa", str(file)]
    command += ["--kind", "object", "--minimum", str(minimum), "-o", str(folder / "set")]
    start = time.perf_counter()
    subprocess.run([*command, "--workspace", str(folder), "--json"], check=True)
    seconds = time.perf_counter() - start
    return seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6


def coverage(repeats: int = 150) -> str:
    """Coverage and mean width of the distance's interval, where the true distance is known."""
    from scipy.sparse import csr_array

    from heldout.curate.contexts.distance import Collection, divergence, profile_distance

    width = 30
    rng = np.random.default_rng(1)
    base = rng.dirichlet(np.full(width, 0.5))

    def draw(n: int, own: int, mix: np.ndarray, first: int) -> Collection:
        rows = [
            sorted({own, *rng.choice(width, size=rng.poisson(1.5), p=mix).tolist()})
            for _ in range(n)
        ]
        lengths = np.array([len(row) for row in rows])
        columns = np.array([c for row in rows for c in row])
        values = np.repeat(1.0 / lengths, lengths)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        shares = csr_array((values, columns, starts), shape=(n, width))
        return Collection(("cat(x)",), np.arange(first, first + n), shares)

    lines = [
        "| images | true distance | mean value | coverage | mean width |",
        "|---|---|---|---|---|",
    ]
    for own, shift, n, m in (
        (0, 0.0, 30, 30),
        (0, 0.5, 50, 50),
        (0, 1.0, 50, 500),
        (1, 0.0, 25, 25),
        (1, 1.0, 25, 25),
        (1, 0.5, 25, 200),
        (1, 0.5, 200, 200),
    ):
        other = (1 - shift) * base + shift * rng.dirichlet(np.full(width, 0.5))
        sides = draw(40_000, 0, base, 0), draw(40_000, own, other, 10**6)
        true = divergence(*sides).corrected ** 0.5
        found = [
            profile_distance(draw(n, 0, base, 0), draw(m, own, other, 10**6), seed=r)
            for r in range(repeats)
        ]
        held = np.mean([d.low <= true <= d.high for d in found])
        wide = np.mean([d.high - d.low for d in found])  # type: ignore[operator]
        mean = np.mean([d.value for d in found])
        lines.append(f"| {n} / {m} | {true:.3f} | {mean:.3f} | {held:.2f} | {wide:.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Run all of it and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sample", type=float, default=1.0)
    parser.add_argument("--file", type=Path, help="a file of benchmarks/gqa_like.py, made before")
    parser.add_argument("--coverage", action="store_true")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = arguments.file or folder / "gqa.json"
        if arguments.file is None:
            write_gqa_like(file, Shape(images=arguments.images))
        pool = read_metadata("gqa", [file])
        found = find_candidates(pool, ContextsParameters(context_kinds=("object",), more_than=0))
        subsets = largest(found.kept, SUBSETS)
        minimum = int(subsets.sizes.min())
        images, subjects = len(pool), len(found.kept.subjects)
        del pool, found
        run = compare(subsets, sample=arguments.sample, repeats=arguments.repeats)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        memberships, chosen = len(subsets.images), len(subsets)
        del subsets
        seconds, memory = build(file, folder, minimum)
    rows = [
        f"| overlaps, pairwise sets ({run.sampled:,} of {run.pairs:,} pairs run) | "
        f"{run.sets:.1f} s | |",
        f"| overlaps, one sparse product | {run.sparse:.2f} s | {peak:.2f} GB, pool included |",
        f"| ratio | {run.sets / run.sparse:.0f} | |",
        f"| whole build from the file | {seconds:.0f} s | {memory:.2f} GB |",
    ]
    table = "\n".join(
        f"| {what} | {n:,} | {work:,} | {1e3 * took:.0f} ms |"
        for what, n, work, took in scaling(arguments.repeats)
    )
    text = (
        f"# Contexts\n\n{describe('numpy', 'scipy', 'pyarrow')}. Simulated: {images:,} images, "
        f"{subjects:,} names, {chosen:,} subsets of at least {minimum} images, {memberships:,} "
        f"memberships; medians of {arguments.repeats}. Equal weights: "
        f"{'yes' if run.equal else 'NO'}.\n\n"
        "| | time | peak memory |\n|---|---|---|\n" + "\n".join(rows) + "\n\n"
        "Cost against co-occurrences, 20,000 images of one class:\n\n"
        f"| | subsets | co-occurrences | product |\n|---|---|---|---|\n{table}\n"
    )
    if arguments.coverage:
        text += f"\nThe distance's interval at 95 %:\n\n{coverage()}\n"
    if arguments.write:
        write_result("contexts", text)
    else:
        print(text)


if __name__ == "__main__":
    main()
