from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import LabelError
from heldout.data.labels import Class, Hierarchy, LabelSpace

#        top      alone
#       /   \
#      l     r
#     / \   / \
#    a   both  b
#    |
#   deep
TREE = Hierarchy(
    {
        "l": ["top"],
        "r": ["top"],
        "a": ["l"],
        "both": ["r", "l"],
        "b": ["r"],
        "deep": ["a"],
        "alone": [],
    }
)


def test_neighbours_and_their_order() -> None:
    assert TREE.parents("both") == ("r", "l")
    assert TREE.children("l") == ("a", "both")
    assert TREE.children("b") == ()
    assert TREE.nodes == ("a", "alone", "b", "both", "deep", "l", "r", "top")
    assert len(TREE) == 8
    assert "top" in TREE
    assert "none" not in TREE


def test_ancestors_come_nearest_first() -> None:
    assert TREE.ancestors("both") == ("l", "r", "top")
    assert TREE.ancestors("deep") == ("a", "l", "top")
    assert TREE.is_under("deep", "top")
    assert TREE.is_under("deep", "deep")
    assert not TREE.is_under("top", "deep")


def test_path_similarity() -> None:
    assert TREE.path_similarity("a", "a") == 1
    assert TREE.path_similarity("a", "l") == 1 / 2
    assert TREE.path_similarity("a", "both") == 1 / 3
    assert TREE.path_distance("deep", "b") == 5
    # Down to a shared child and up again is no way: l and r meet at top only.
    assert TREE.path_distance("l", "r") == 2
    assert TREE.path_distance("a", "b") == 4


def test_different_trees_meet_at_a_virtual_root() -> None:
    assert TREE.path_distance("alone", "top") == 2
    assert TREE.path_distance("deep", "alone") == 5


def test_leaves_are_classes_of_the_space_at_or_under_a_node() -> None:
    space = LabelSpace("s", (Class("B", wnid="b"), Class("deep"), Class("R", wnid="r")))
    assert TREE.leaves("top", space) == ("B", "deep", "R")
    assert TREE.leaves("r", space) == ("B", "R")
    assert TREE.leaves("alone", space) == ()


def test_from_label_space() -> None:
    space = LabelSpace("s", (Class("x", parents=("up",)), Class("y", wnid="n1", parents=("up",))))
    tree = Hierarchy.from_label_space(space)
    assert tree.children("up") == ("n1", "x")
    above = LabelSpace("s", (Class("x", wnid="n1"), Class("y", wnid="n2", parents=("x",))))
    assert Hierarchy.from_label_space(above).is_under("n2", "n1")
    clash = LabelSpace(
        "s", (Class("x", wnid="n1", parents=("p",)), Class("y", wnid="n1", parents=("q",)))
    )
    with pytest.raises(LabelError, match="different parents"):
        Hierarchy.from_label_space(clash)


@pytest.mark.parametrize(
    "parents",
    [
        {"a": ["a"]},
        {"a": ["b"], "b": ["c"], "c": ["a"], "d": ["a"]},
        {"a": ["b"], "b": ["a", "top"], "0": ["a"], "00": ["0"]},  # "0" is under the cycle
    ],
)
def test_cycles_are_refused(parents: dict[str, list[str]]) -> None:
    with pytest.raises(LabelError, match="'a' is above itself"):
        Hierarchy(parents)


def test_bad_input() -> None:
    for ask in (TREE.parents, TREE.children, TREE.ancestors, TREE.depth):
        with pytest.raises(LabelError, match="'none' is not a node"):
            ask("none")
    with pytest.raises(LabelError, match="'none' is not a node"):
        TREE.is_under("a", "none")


def test_wordnet() -> None:
    tree = Hierarchy.wordnet()
    assert len(tree) == 23548
    assert [node for node in tree.nodes if not tree.parents(node)] == ["n00001740"]
    assert sum(len(tree.parents(node)) > 1 for node in tree.nodes) == 498
    assert Hierarchy.wordnet() is tree


def test_no_imagenet_1k_class_is_over_another() -> None:
    space, tree = LabelSpace.load("imagenet-1k"), Hierarchy.wordnet()
    ids = set(space.ids)
    assert not any(ids.intersection(tree.ancestors(class_id)) for class_id in space.ids)


@st.composite
def hierarchies(draw: st.DrawFn) -> Hierarchy:
    size = draw(st.integers(1, 9))
    return Hierarchy(
        {
            f"v{i}": [f"v{j}" for j in draw(st.lists(st.integers(0, i - 1), max_size=3))]
            if i
            else []
            for i in range(size)
        }
    )


def slow_ancestors(tree: Hierarchy, node: str) -> set[str]:
    found = set()
    for parent in tree.parents(node):
        found |= {parent} | slow_ancestors(tree, parent)
    return found


def slow_climb(tree: Hierarchy, node: str) -> list[list[str]]:
    """Every way from a node to a root, with the virtual root on top."""
    ways = [way for parent in tree.parents(node) for way in slow_climb(tree, parent)]
    return [[node, *way] for way in ways] if ways else [[node, "*"]]


@settings(deadline=None)
@given(hierarchies())
def test_against_slow_definitions(tree: Hierarchy) -> None:
    for a in tree.nodes:
        above = slow_ancestors(tree, a)
        assert set(tree.ancestors(a)) == above
        below = {b for b in tree.nodes if a in slow_ancestors(tree, b)}
        assert set(tree.distances_down(a)) == below | {a}
        assert tree.depth(a) == min(len(way) for way in slow_climb(tree, a)) - 2
        for b in tree.nodes:
            distance = min(
                first.index(node) + second.index(node)
                for first in slow_climb(tree, a)
                for second in slow_climb(tree, b)
                for node in set(first) & set(second)
            )
            assert tree.path_distance(a, b) == distance == tree.path_distance(b, a)
