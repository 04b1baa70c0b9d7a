"""Whether a classifier tells two sets apart: chance where they are alike, its interval, telltales."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import heldout
from heldout.core.errors import NotApplicable, UserError
from heldout.curate.discriminator import (
    Discrimination,
    Telltale,
    cross_fitted,
    first_of_duplicates,
    halves,
)
from heldout.data.importing.detect import read_testset
from heldout.data.judgements.judgement import Judgement, pair_subject
from heldout.data.judgements.store import JudgementStore
from heldout.data.testset import TestSet, subset
from heldout.stats.intervals import wilson
from heldout.testing.example import example_testset


def told(
    a: TestSet, b: TestSet, features: str | Path, **more: Any
) -> tuple[Discrimination, list[Telltale]]:
    records = heldout.verbs.diff(a, b, features=str(features), **more).records
    (found,) = [record for record in records if isinstance(record, Discrimination)]
    return found, [record for record in records if isinstance(record, Telltale)]


def vectors_of(*sets: TestSet, move: dict[str, float] | None = None, width: int = 6) -> str:
    """Random vectors of all images as a file; ``move`` adds to the first number of some images."""
    ids = sorted({image for testset in sets for image in testset.image_ids.to_pylist()})
    vectors = np.random.default_rng(5).normal(size=(len(ids), width)).astype(np.float32)
    for row, image in enumerate(ids):
        vectors[row, 0] += (move or {}).get(image, 0.0)
    np.savez("vectors.npz", vectors=vectors, ids=np.array(ids))
    return "vectors.npz"


def test_sets_that_are_alike_are_told_apart_by_chance_alone() -> None:
    a, b = example_testset("a", images=400), example_testset("b", images=300)
    found, telltales = told(a, b, vectors_of(a, b))
    assert found.chance == 0.5
    assert (found.images, found.classes, found.in_both, found.duplicates) == (300, 10, 0, 0)
    assert found.low < 0.5 < found.high
    assert len(telltales) == 600
    counted = Counter((t.testset, t.class_id) for t in telltales)
    assert set(counted.values()) == {30}  # as many of each class from both


def test_the_images_that_give_a_set_away_come_first() -> None:
    a, b = example_testset("a", images=200), example_testset("b", images=200)
    odd = set(b.image_ids.to_pylist()[:60])
    found, telltales = told(a, b, vectors_of(a, b, move=dict.fromkeys(odd, 8.0)))
    assert found.low > 0.5
    of_b = [t for t in telltales if t.testset == "b"]
    assert {t.image_id for t in of_b[:50]} <= odd
    assert [t.probability for t in of_b] == sorted((t.probability for t in of_b), reverse=True)
    # The rate is that of the records.
    right = np.mean([t.probability > 0.5 for t in telltales])
    assert found.value == pytest.approx(right)


def test_neither_the_order_of_rows_nor_of_vectors_matters() -> None:
    a, b = example_testset("a", images=90), example_testset("b", images=120)
    file = vectors_of(a, b, move=dict.fromkeys(b.image_ids.to_pylist(), 1.0))
    found = told(a, b, file)
    with np.load(file) as arrays:
        np.savez("again.npz", vectors=arrays["vectors"][::-1], ids=arrays["ids"][::-1])
    again = told(a.reordered(3), b.reordered(4), "again.npz")
    assert found[1] == again[1]
    assert (found[0].value, found[0].low) == (again[0].value, again[0].low)


def test_images_of_both_sets_are_left_out() -> None:
    whole = example_testset("whole", images=200)
    ids = whole.image_ids.to_pylist()
    a = subset(whole, ids[:120], name="a", recipe={})
    b = subset(whole, ids[80:], name="b", recipe={})
    found, telltales = told(a, b, vectors_of(whole))
    assert (found.in_both, found.images) == (40, 80)
    assert not {t.image_id for t in telltales} & set(ids[80:120])
    with pytest.raises(NotApplicable, match="0 images each"):
        told(a, a, vectors_of(whole))


def test_sets_without_images_or_vectors_are_refused(tmp_path: Path) -> None:
    a, b = example_testset("a", images=40), example_testset("b", images=40)
    only_a = vectors_of(a)
    with pytest.raises(UserError, match="40 of 40 images have no vector"):
        told(a, b, only_a)
    with pytest.raises(UserError, match="a has no image"):
        told(a, b, "lite0")
    with pytest.raises(UserError, match="no embeddings at"):
        told(a, b, "embeddings:nothing.npz")


def test_one_of_near_duplicates_stays() -> None:
    a, b = example_testset("a", images=60), example_testset("b", images=60)
    first, second = a.image_ids.to_pylist()[:2]
    workspace = heldout.Workspace(Path("workspace"))
    with JudgementStore(workspace.judgements) as store:
        store.add(
            [
                Judgement(
                    question="duplicate",
                    subject=pair_subject(first, second),
                    answer="duplicate",
                    who="ada",
                    when=datetime(2026, 1, 1, tzinfo=UTC),
                    testset="a",
                )
            ]
        )
    found, telltales = told(a, b, vectors_of(a, b), workspace=workspace)
    assert found.duplicates == 1
    assert len({first, second} & {t.image_id for t in telltales}) <= 1
    assert told(a, b, vectors_of(a, b))[0].duplicates == 0  # another workspace


def test_first_of_duplicates_is_one_of_every_group() -> None:
    vectors = np.array([[1], [2], [1], [3], [1], [4]], np.float32)
    images = [(0, "a"), (0, "b"), (1, "c"), (1, "d"), (1, "e"), (1, "f")]
    rank = np.array([3, 0, 1, 5, 2, 4])
    alone = first_of_duplicates(images, vectors, rank, [((1, "d"), (0, "b")), ((0, "b"), (1, "x"))])
    assert alone.tolist() == [False, True, True, False, False, True]


def test_halves_have_pairs_of_every_class() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        n = 60
        origin, rank = rng.integers(0, 2, n), rng.permutation(n)
        classes = [None if k == 4 else str(k) for k in rng.integers(0, 5, n)]
        rank[rng.random(n) < 0.1] = -1
        half = halves(origin, classes, rank)
        for label in "0123":
            mine = [np.flatnonzero(origin == k) for k in (0, 1)]
            there = [[r for r in rows if classes[r] == label and rank[r] >= 0] for rows in mine]
            size = min(map(len, there))
            for rows in there:
                lowest = sorted(rows, key=lambda r: rank[r])[:size]
                assert {r for r in rows if half[r] >= 0} == set(lowest)
                assert abs(sum(1 if half[r] else -1 for r in lowest)) <= 1
        assert all(half[r] == -1 for r in range(n) if classes[r] is None or rank[r] < 0)
        counts = [[int(((half == h) & (origin == k)).sum()) for k in (0, 1)] for h in (0, 1)]
        assert counts[0][0] == counts[0][1]
        assert counts[1][0] == counts[1][1]


def test_the_interval_covers_chance_and_that_of_all_images_would_not() -> None:
    rng = np.random.default_rng(0)
    n, covered = 40, np.zeros(2)
    origin = np.repeat([0, 1], n)
    for _ in range(300):
        vectors = rng.normal(size=(2 * n, 8)).astype(np.float32)
        half = halves(origin, [""] * (2 * n), rng.permutation(2 * n))
        right = float(((cross_fitted(vectors, origin, half) > 0) == origin).mean())
        for place, trials in enumerate((n, 2 * n)):
            interval = wilson(right * trials, trials)
            covered[place] += interval.low <= 0.5 <= interval.high
    assert covered[0] / 300 >= 0.95
    assert covered[1] / 300 < 0.92


@pytest.mark.shared
def test_pacs_a_random_split_is_not_told_and_domains_are(shared_data: Path, tmp_path: Path) -> None:
    workspace = heldout.Workspace(tmp_path / "w")
    sets = {
        name: read_testset(shared_data / "pacs" / name, classes="folders", name=name)
        for name in ("photo", "sketch", "art_painting")
    }
    for other in ("sketch", "art_painting"):
        found, _ = told(sets["photo"], sets[other], "lite0", workspace=workspace)
        assert (found.images, found.classes) == (280, 7)
        assert found.low > 0.9
    ids = sets["photo"].image_ids.to_pylist()
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(ids))
        parts = [
            subset(sets["photo"], [ids[k] for k in order[part::2]], name=f"part-{part}", recipe={})
            for part in (0, 1)
        ]
        found, _ = told(*parts, "lite0", workspace=workspace)
        assert found.low < 0.5 < found.high
