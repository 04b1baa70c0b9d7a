from __future__ import annotations

import pytest

from heldout.core.errors import LabelError
from heldout.data.labels import (
    Class,
    Hierarchy,
    LabelSpace,
    hierarchy_map,
    many_to_one_map,
    subset_map,
)

N = LabelSpace.from_ids("n", list("abcdef"))


def test_subset_by_ids_and_by_label_space() -> None:
    by_ids = subset_map(N, ["e", "b"], name="part", reading="full")
    assert by_ids.accepted == ((4,), (1,))
    assert by_ids.target.ids == ("e", "b")
    by_space = subset_map(N, LabelSpace.from_ids("part", ["e", "b"]), reading="full")
    assert by_space.accepted == by_ids.accepted
    assert by_space.name == "part"
    with pytest.raises(LabelError, match="'z' is not a class of n"):
        subset_map(N, ["z"], name="part", reading="full")
    with pytest.raises(LabelError, match="needs a name"):
        subset_map(N, ["a"], reading="full")


def test_many_to_one() -> None:
    target = LabelSpace.from_ids("k", ["Y", "X"])
    made = many_to_one_map(N, {"X": ["c", "a", "c"], "Y": ["b"]}, target=target, reading="full")
    assert made.accepted == ((1,), (0, 2))
    assert (made.name, made.kind) == ("k", "many-to-one")
    renamed = many_to_one_map(N, {"X": ["c"], "Y": ["b"]}, name="r", reading="full")
    assert renamed.kind == "subset"


def test_many_to_one_refusals() -> None:
    target = LabelSpace.from_ids("k", ["X", "Y"])
    with pytest.raises(LabelError, match="no class of n is accepted for Y"):
        many_to_one_map(N, {"X": ["a"]}, target=target, reading="full")
    with pytest.raises(LabelError, match="'Z' is not a class of k"):
        many_to_one_map(N, {"X": ["a"], "Y": ["b"], "Z": ["c"]}, target=target, reading="full")
    with pytest.raises(LabelError, match=r"a \(a\) is accepted for X \(X\), Y \(Y\)"):
        many_to_one_map(N, {"X": ["a"], "Y": ["a"]}, name="m", reading="full")
    with pytest.raises(LabelError, match="one text"):
        many_to_one_map(N, {"X": "abc"}, name="m", reading="full")
    with pytest.raises(LabelError, match="has no classes"):
        many_to_one_map(N, {}, name="m", reading="full")


def test_hierarchy_over_wordnet() -> None:
    space = LabelSpace.load("imagenet-1k")
    dog, cat = "n02084071", "n02121620"
    made = hierarchy_map(space, [dog, cat], name="pets", reading="full")
    assert [len(sources) for sources in made.accepted] == [118, 7]
    assert made.target.get(dog).name == "dog"
    tree = Hierarchy.wordnet()
    assert made.accepted_ids(cat) == tree.leaves(cat, space)
    with pytest.raises(LabelError, match="'q' is not a class of wordnet-nodes"):
        hierarchy_map(space, ["q"], name="x", reading="full")
    feline = "n02120997"
    with pytest.raises(LabelError, match="is accepted for"):
        hierarchy_map(space, [cat, feline], name="x", reading="full")
    nested = hierarchy_map(space, [cat, feline], name="x", reading="full", allow_overlap=True)
    assert set(nested.accepted[0]) < set(nested.accepted[1])


def test_hierarchy_onto_a_label_space_with_wordnet_ids() -> None:
    space, cifar = LabelSpace.load("imagenet-1k"), LabelSpace.load("cifar-10")
    with pytest.raises(LabelError, match=r"no class of imagenet-1k is accepted for deer"):
        hierarchy_map(space, cifar, reading="restricted")
    animals = cifar.subset("animals", ["bird", "cat", "dog", "frog", "horse"])
    made = hierarchy_map(space, animals, reading="restricted")
    assert [len(sources) for sources in made.accepted] == [59, 7, 118, 3, 1]
    # A minivan is both under car and under truck in WordNet, so somebody has to decide.
    with pytest.raises(LabelError, match="minivan"):
        hierarchy_map(space, cifar.subset("road", ["automobile", "truck"]), reading="restricted")


def test_hierarchy_without_any_node_in_common() -> None:
    with pytest.raises(LabelError, match="no class of n is a node of wordnet"):
        hierarchy_map(N, ["n02084071"], name="x", reading="full")
    two = LabelSpace("two", (Class("x", wnid="n02084071"), Class("y", wnid="n02084071")))
    assert hierarchy_map(two, ["n02084071"], name="x", reading="full").accepted == ((0, 1),)
