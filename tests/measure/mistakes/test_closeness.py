"""Closeness in a hierarchy against its plain definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import LabelError
from heldout.data.labels import Class, Hierarchy, LabelSpace
from heldout.measure.mistakes.class_similarity import APART, EQUAL, OVER, UNDER, Closeness
from tests.measure.mistakes.evidence_case import PETS, TREE


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
    relations = closeness.relations(a, b, nodes)
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
        if one == other:
            assert relations[place] == EQUAL
        elif tree.is_under(other, one):
            assert relations[place] == OVER and closeness.node(int(nodes[place])) == one
        elif lowest and not tree.is_under(one, other):
            assert relations[place] in (APART, UNDER)
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
    assert closeness.relations(a, b, closeness.of_pairs(a, b)[2]).tolist() == [EQUAL, EQUAL]


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
