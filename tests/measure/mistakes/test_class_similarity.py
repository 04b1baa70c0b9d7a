"""Tests of :mod:`heldout.measure.mistakes.class_similarity`."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import LabelError, NotApplicable
from heldout.data.labels import Class, Hierarchy, LabelSpace, Superclasses
from heldout.data.testset import Card, TestSet, image_table, make_testset, truth_table
from heldout.measure.mistakes.between_models import Peers
from heldout.measure.mistakes.class_similarity import (
    PRIOR,
    Closeness,
    co_prediction,
    cooccurrence,
    groups_of,
)
from tests.measure.mistakes.evidence_case import PETS, TREE, random_peers
from tests.measure.score.worlds import Image, World, space_of, world_testset, worlds

# Affinity: counts of pairs against plain loops, an image's own lists taken out, other sources.


def _plain(peers: Peers, a: int, b: int, *, without: int | None = None) -> float:
    """Lists with both over lists with the rarer, less chance, in loops."""
    both = n_a = n_b = total = 0
    for image in range(len(peers.image_ids)):
        if image == without:
            continue
        if peers.topk.shape[2] == 1:
            lists = [set(peers.topk[image, :, 0].tolist())]
        else:
            lists = [set(row.tolist()) for row in peers.topk[image]]
        total += len(lists)
        for held in lists:
            n_a += a in held
            n_b += b in held
            both += a in held and b in held
    base = max(n_a, n_b) / total
    return max(0.0, (both / (min(n_a, n_b) + PRIOR) - base) / max(1 - base, 1e-9))


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("seed", range(3))
def test_co_prediction_counts_lists(ranks: int, seed: int) -> None:
    peers = random_peers(np.random.default_rng(seed), images=12, models=5, ranks=ranks)
    found = co_prediction(peers)
    pairs = list(combinations(range(len(PETS)), 2))
    a, b = (np.array(side) for side in zip(*pairs, strict=True))
    expected = [_plain(peers, one, other) for one, other in pairs]
    assert found.values(a, b) == pytest.approx(expected)
    assert found.values(b, a) == pytest.approx(expected)
    images = np.arange(len(pairs)) % 12
    expected = [
        _plain(peers, one, other, without=int(image))
        for (one, other), image in zip(pairs, images, strict=True)
    ]
    assert found.values(a, b, images) == pytest.approx(expected)
    assert found.values(a, b, np.full(len(a), -1)) == pytest.approx(found.values(a, b))


def test_a_class_is_itself() -> None:
    found = co_prediction(random_peers(np.random.default_rng(0), images=3, models=2, ranks=3))
    assert found.values(np.array([2]), np.array([2])).tolist() == [1.0]


def test_among_few_classes_chance_is_no_likeness() -> None:
    """Four best guesses of seven classes hold most of them, whatever the classes."""
    found = co_prediction(random_peers(np.random.default_rng(3), images=300, models=4, ranks=4))
    pairs = np.array(list(combinations(range(len(PETS)), 2)))
    assert found.values(pairs[:, 0], pairs[:, 1]).max() < 0.1


def test_co_occurrence_in_the_same_shape() -> None:
    found = cooccurrence(_two_truths(), truth="real").affinity
    first, second = np.array([1, 2, 0]), np.array([0, 1, 2])
    assert found.together(first, second).tolist() == [2, 1, 0]
    expected = [2 / (2 + PRIOR), 1 / (1 + PRIOR), 0]
    assert found.values(first, second) == pytest.approx(expected)


# Closeness in a hierarchy against its plain definition.


@st.composite
def graphs(draw: st.DrawFn) -> tuple[LabelSpace, Hierarchy]:
    """A graph without cycles, and classes at some of its nodes; some stand in no hierarchy."""
    size = draw(st.integers(2, 9))
    parents = {
        f"n{i}": tuple(
            f"n{j}" for j in draw(st.lists(st.integers(0, i - 1), max_size=2, unique=True))
        )
        if i
        else ()
        for i in range(size)
    }
    nodes = draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=6, unique=True))
    ids = [f"n{i}" for i in nodes] + ["stranger"] * draw(st.booleans())
    return LabelSpace("some", tuple(Class(i) for i in ids)), Hierarchy(parents)


@given(graphs())
def test_pairs_are_as_close_as_the_hierarchy_says(case: tuple[LabelSpace, Hierarchy]) -> None:
    space, tree = case
    closeness = Closeness(space, tree)
    a, b = (x.ravel() for x in np.meshgrid(np.arange(len(space)), np.arange(len(space))))
    size, steps, nodes = closeness.of_pairs(a, b)
    covers = closeness.covers(a, nodes)
    inside = [item.id for item in space if item.id in tree]
    for place, (one, other) in enumerate(
        (space.ids[i], space.ids[j]) for i, j in zip(a, b, strict=True)
    ):
        if one not in tree or other not in tree:
            assert np.isnan(size[place]) and np.isnan(steps[place]) and nodes[place] == -1
            continue
        common = tree.distances_up(one).keys() & tree.distances_up(other).keys()
        lowest = common - {above for node in common for above in tree.parents(node)}
        sizes = [len(tree.leaves(node, space)) for node in lowest]
        assert size[place] == (min(sizes) if sizes else len(inside))
        assert steps[place] == tree.path_distance(one, other)
        assert covers[place] == (one == other or tree.is_under(other, one))
        if covers[place]:
            assert closeness.node(int(nodes[place])) == one
        elif lowest:
            assert len(tree.leaves(closeness.node(int(nodes[place])), space)) == min(sizes)


def test_words_for_it() -> None:
    closeness = Closeness(PETS, TREE)
    a, b = PETS.indices(["pug", "pug", "pug"]), PETS.indices(["boxer", "manx", "sofa"])
    size, steps, nodes = closeness.of_pairs(a, b)
    assert size.tolist() == [3, 5, 7] and steps.tolist() == [2, 4, 5]
    assert [closeness.node(int(c)) if c >= 0 else None for c in nodes] == ["dog", "pet", None]


def test_two_classes_at_one_node_are_equal() -> None:
    space = LabelSpace("two", (Class("a", wnid="n02084071"), Class("b", wnid="n02084071")))
    closeness = Closeness(space, Hierarchy.wordnet())
    a, b = np.array([0, 0]), np.array([1, 0])
    assert closeness.covers(a, closeness.of_pairs(a, b)[2]).tolist() == [True, True]


def test_no_class_in_the_hierarchy() -> None:
    with pytest.raises(LabelError, match="no class of other"):
        Closeness(LabelSpace.from_ids("other", ["x"]), TREE)


def test_imagenet_golden() -> None:
    space = LabelSpace.load("imagenet-1k")
    closeness = Closeness(space, Hierarchy.wordnet())
    tabby, tiger, beagle = (
        np.array([space.index(space.by_name(name).id)]) for name in ("tabby", "tiger cat", "beagle")
    )
    assert closeness.of_pairs(tabby, tiger)[0][0] == 5  # domestic cats
    size, _, node = closeness.of_pairs(tabby, beagle)
    assert closeness.node(int(node[0])) == "n01317541" and size[0] == 123  # domestic animals


# Classes that are seen together, against counting in loops.


@settings(max_examples=120)
@given(worlds(models=0))
def test_against_loops(world: World) -> None:
    found = cooccurrence(world_testset(world))
    counts: Counter[tuple[str, str]] = Counter()
    sizes = []
    for image in world.images:
        if image.problematic:
            continue
        labels = set(image.correct) | set(image.unclear)
        if labels and image.label is not None:
            labels.add(image.label)
        sizes.append(len(labels))
        counts.update((f"c{a}", f"c{b}") for a, b in combinations(sorted(labels), 2))
    assert found.pairs(1) == counts
    assert found.total == sum(counts.values()) and len(found) == len(counts)
    assert found.images == len(sizes)
    assert found.empty == sizes.count(0) and found.single == sizes.count(1)
    assert found.pairs(2) == {pair: n for pair, n in counts.items() if n >= 2}
    assert list(found.pairs(1).values()) == sorted(counts.values(), reverse=True)


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
    assert found.images == 2
    assert found.pairs(1) == {("c0", "c1"): 1, ("c1", "c2"): 1}
    with pytest.raises(NotApplicable, match="outside truth original"):
        cooccurrence(testset, truth="real", without="original")


def test_pairs_inside_a_superclass_are_not_context() -> None:
    found = cooccurrence(_two_truths(), truth="real")
    space = found.space
    assert found.pairs(1, apart=Superclasses(space, {"x": ("c0", "c1")})) == {("c1", "c2"): 1}
    two = Superclasses(space, {"x": ("c0",), "y": ("c1",)})
    assert found.pairs(1, apart=two) == found.pairs(1)


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


# Groups: ImageNet's numbers, and hierarchies of one's own.


def test_imagenet_has_410_organisms_522_artifacts_and_68_others() -> None:
    space = LabelSpace.load("imagenet-1k")
    found = groups_of(space)
    assert {name: members.sum() for name, members in found.items()} == {
        "organism": 410, "artifact": 522, "other": 68,
    }  # fmt: skip
    for class_id, inside in (("n01440764", [1, 0, 0]), ("n03017168", [0, 1, 0])):
        assert [members[space.index(class_id)] for members in found.values()] == inside


def test_without_a_hierarchy_there_are_no_groups() -> None:
    assert groups_of(PETS) == {}
