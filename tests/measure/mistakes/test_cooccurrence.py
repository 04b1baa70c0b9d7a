"""Classes that are seen together, against counting in loops."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import NotApplicable
from heldout.data.testset import Card, TestSet, image_table, make_testset, truth_table
from heldout.measure.mistakes.class_similarity import cooccurrence
from tests.measure.score.worlds import Image, World, space_of, world_testset, worlds


@settings(max_examples=120)
@given(worlds(models=0), st.booleans())
def test_against_loops(world: World, original: bool) -> None:
    found = cooccurrence(world_testset(world), original=original)
    counts: Counter[tuple[str, str]] = Counter()
    sizes = []
    for image in world.images:
        if image.problematic:
            continue
        labels = set(image.correct) | set(image.unclear)
        if labels and original and image.label is not None:
            labels.add(image.label)
        sizes.append(len(labels))
        counts.update((f"c{a}", f"c{b}") for a, b in combinations(sorted(labels), 2))
    assert found.pairs(1) == counts
    assert found.total == sum(counts.values()) and len(found) == len(counts)
    assert found.images == len(sizes)
    assert found.empty == sizes.count(0) and found.single == sizes.count(1)
    assert found.several == sum(size > 1 for size in sizes)
    assert found.pairs(2) == {pair: n for pair, n in counts.items() if n >= 2}
    assert list(found.pairs(1).values()) == sorted(counts.values(), reverse=True)
    for (a, b), n in counts.items():
        assert found.count(a, b) == found.count(b, a) == n
    assert found.count("c0", "c0") == 0


def _two_truths() -> TestSet:
    ids = ["a", "b", "c"]
    return make_testset(
        Card(name="made", label_space="made"),
        images=image_table({"image_id": ids}),
        truths={
            "original": truth_table(ids, ["c0", "c1", "c2"]),
            "real": truth_table(ids, ["c0", "c1", "c2"], correct=[["c0", "c1"], ["c0", "c1"], ["c1"]]),
            "panel": truth_table(["b"], ["c1"]),
        },
        label_space=space_of(3),
    )  # fmt: skip


def test_without_the_images_of_another_truth() -> None:
    testset = _two_truths()
    assert cooccurrence(testset, truth="real").pairs(1) == {("c0", "c1"): 2, ("c1", "c2"): 1}
    found = cooccurrence(testset, truth="real", without="panel")
    assert found.images == 2 and found.without == "panel"
    assert found.pairs(1) == {("c0", "c1"): 1, ("c1", "c2"): 1}
    with pytest.raises(NotApplicable, match="outside truth original"):
        cooccurrence(testset, truth="real", without="original")


def test_pairs_inside_a_superclass_are_not_context() -> None:
    found = cooccurrence(_two_truths(), truth="real")
    assert found.pairs(1, apart=[frozenset({"c0", "c1"})]) == {("c1", "c2"): 1}
    assert found.pairs(1, apart=[frozenset({"c0"}), frozenset({"c1"})]) == found.pairs(1)


def test_a_truth_of_single_labels_has_no_pairs() -> None:
    world = World(2, (Image("a", 0, (0,)), Image("b", 1, (1,))))
    found = cooccurrence(world_testset(world))
    assert len(found) == 0 and found.single == 2 and found.pairs() == {}


def test_rows_of_one_image_belong_together() -> None:
    testset = make_testset(
        Card(name="made", label_space="made"),
        images=image_table({"image_id": ["a"]}),
        truths={"original": truth_table(["a", "a"], ["c0", "c1"])},
        label_space=space_of(2),
    )
    found = cooccurrence(testset)
    assert found.images == 1 and found.pairs(1) == {("c0", "c1"): 1}
