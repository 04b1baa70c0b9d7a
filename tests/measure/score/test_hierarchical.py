"""Distances on a hierarchy against breadth-first search in plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import LabelError
from heldout.data.labels import Class, Hierarchy, LabelSpace, hierarchy_map
from heldout.measure.score.measure import measure
from heldout.measure.score.metrics import hierarchy_of, lca_heights, path_distances
from tests.measure.score.worlds import single_label, world_testset


@st.composite
def trees(draw: st.DrawFn) -> LabelSpace:
    """Classes under a random graph without cycles, with several parents and several roots."""
    inner = draw(st.integers(1, 5))
    parents: dict[str, tuple[str, ...]] = {}
    for i in range(inner):
        above = draw(st.lists(st.integers(0, i - 1), max_size=2, unique=True)) if i else []
        parents[f"n{i}"] = tuple(f"n{a}" for a in above)
    classes = draw(st.integers(2, 5))
    items = [Class(node, parents=above) for node, above in parents.items()]
    items += [
        Class(
            f"c{i}",
            parents=tuple(
                f"n{a}"
                for a in draw(
                    st.lists(st.integers(0, inner - 1), min_size=1, max_size=2, unique=True)
                )
            ),
        )
        for i in range(classes)
    ]
    return LabelSpace("tree", tuple(items))


def above(space: LabelSpace, node: str) -> set[str]:
    item = space.get(node)
    return {node}.union(*(above(space, parent) for parent in item.parents))


def height(space: LabelSpace, node: str) -> int:
    below = [item.id for item in space if node in item.parents]
    return max((1 + height(space, child) for child in below), default=0)


@settings(max_examples=80, deadline=None)
@given(trees())
def test_lca_heights(space: LabelSpace) -> None:
    top = 1 + max(height(space, item.id) for item in space)
    rows = lca_heights(space)
    for i, a in enumerate(space.ids):
        expected = []
        for b in space.ids:
            common = above(space, a) & above(space, b)
            expected.append(
                0 if a == b else min((height(space, node) for node in common), default=top)
            )
        assert rows.row(i).tolist() == expected


@settings(max_examples=40, deadline=None)
@given(trees(), st.integers(0, 2**32 - 1))
def test_metrics_take_the_nearest_correct_label(space: LabelSpace, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, classes = 8, len(space)
    world = single_label(
        rng.integers(0, classes, n).tolist(), classes, {"m": rng.normal(size=(n, classes)).tolist()}
    )
    tree = Hierarchy.from_label_space(space)
    testset = world_testset(world, space=space)
    found = measure(
        testset,
        [world.prediction("m", space=space)],
        metrics=["hierarchical_distance", "lca_height"],
    )
    for row, image in enumerate(world.images):
        guess = world.guesses("m", row)[0]
        assert found[0].values[row, 0] == tree.path_distance(
            space.ids[guess], space.ids[image.label or 0]
        )
        assert (found[1].values[row, 0] == 0) == (guess == image.label)


def test_several_labels_and_failures() -> None:
    space = LabelSpace(
        "pets",
        (
            Class("cat", parents=("pet",)),
            Class("dog", parents=("pet",)),
            Class("car", parents=("thing",)),
            Class("pet", parents=("thing",)),
        ),
    )
    assert path_distances(space).row(0).tolist() == [0, 2, 3, 1]
    assert lca_heights(space).row(0).tolist() == [0, 1, 2, 1]
    world = single_label([0, 0], 4, {"m": [(0, 1, 0, 0), None]})
    distance, lca = measure(
        world_testset(world, space=space),
        [world.prediction("m", space=space)],
        metrics=["hierarchical_distance", "lca_height"],
    )
    assert distance.values[:, 0].tolist() == [2, 3]  # without an output: the farthest guess
    assert lca.values[:, 0].tolist() == [1, 2]
    assert not distance.metric.higher_is_better


def test_wordnet_is_found_by_id() -> None:
    space = LabelSpace.load("cifar-10")
    assert hierarchy_of(space).name == "wordnet-3.0"
    cat, dog, ship = (space.by_name(name).id for name in ("cat", "dog", "ship"))
    row = path_distances(space).row(space.index(cat))
    assert row[space.index(dog)] < row[space.index(ship)]
    assert row[space.index(cat)] == 0
    with pytest.raises(LabelError, match="are in no hierarchy"):
        hierarchy_of(LabelSpace.from_ids("loose", ["x", "y"]))


def test_accuracy_through_a_hierarchy_map() -> None:
    """Hierarchical accuracy: predictions count for the node that they stand under."""
    cat, dog, car, animal, artifact = (
        "n02121808", "n02084071", "n02958343", "n00015388", "n00021939",
    )  # fmt: skip
    space = LabelSpace.from_ids("pets", [cat, dog, car])
    label_map = hierarchy_map(space, [animal, artifact], name="coarse", reading="full")
    world = single_label([0, 1, 2, 2], 3, {"m": [(0, 1, 0), (0, 1, 0), (0, 0, 1), (1, 0, 0)]})
    testset = world_testset(world, space=space)
    predictions = [world.prediction("m", space=space)]
    assert measure(testset, predictions)[0].estimates().tolist() == [0.5]
    (coarse,) = measure(testset, predictions, label_map=label_map)
    assert coarse.estimates().tolist() == [0.75]
    assert coarse.label_map == "hierarchy:coarse:full"
