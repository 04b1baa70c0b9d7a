from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import LabelError
from heldout.data.labels import Class, Hierarchy, LabelSpace, SpaceDistances

from .test_hierarchy import hierarchies


def matrix(distances: SpaceDistances) -> np.ndarray:
    return np.stack([distances.row(position) for position in range(len(distances.space))])


@settings(deadline=None)
@given(hierarchies(), st.data())
def test_all_pairs_equal_the_pairwise_definition(tree: Hierarchy, data: st.DataObject) -> None:
    nodes = data.draw(st.lists(st.sampled_from(tree.nodes), min_size=1, max_size=8, unique=True))
    space = LabelSpace.from_ids("s", nodes)
    expected = [[tree.path_distance(a, b) for b in nodes] for a in nodes]
    assert matrix(SpaceDistances(space, tree)).tolist() == expected


@settings(deadline=None)
@given(hierarchies(), st.data())
def test_most_similar_is_a_stable_sort(tree: Hierarchy, data: st.DataObject) -> None:
    nodes = data.draw(st.permutations(tree.nodes))
    space = LabelSpace.from_ids("s", nodes)
    k = data.draw(st.integers(1, len(nodes)))
    distances = SpaceDistances(space, tree)
    for node in nodes:
        expected = sorted(nodes, key=lambda other: tree.path_distance(node, other))[:k]
        assert distances.most_similar(node, k) == tuple(expected)
        assert expected[0] == node


def test_wordnet_rows_equal_the_pairwise_definition() -> None:
    space, tree = LabelSpace.load("imagenet-1k"), Hierarchy.wordnet()
    distances = SpaceDistances(space)
    for a in (0, 151, 500, 999):
        expected = [tree.path_distance(space.ids[a], b) for b in space.ids]
        assert distances.row(a).tolist() == expected


def test_a_class_comes_first_even_beside_another_at_its_node() -> None:
    space = LabelSpace("s", (Class("x", wnid="n1"), Class("y", wnid="n1"), Class("z", wnid="n2")))
    tree = Hierarchy({"n1": ["top"], "n2": ["top"]})
    assert SpaceDistances(space, tree).most_similar("y", 3) == ("y", "x", "z")


def test_bad_input() -> None:
    distances = SpaceDistances(LabelSpace.load("imagenet-1k"))
    with pytest.raises(LabelError, match="ask for 1 to 1000"):
        distances.most_similar("n01440764", 0)
    with pytest.raises(LabelError, match="ask for 1 to 1000"):
        distances.most_similar("n01440764", 1001)
    with pytest.raises(LabelError, match="the id is n01440764"):
        distances.most_similar("tench", 3)
    with pytest.raises(LabelError, match=r"'mine' of s is not a node of wordnet-3\.0"):
        SpaceDistances(LabelSpace.from_ids("s", ["mine"]))


@pytest.mark.shared
def test_imagenetv2s_21_nearest_classes_are_reproduced_row_for_row(shared_data: Path) -> None:
    path = shared_data / "imagenetv2/metadata/wnid_to_most_similar_wnids.json"
    published = json.loads(path.read_text())
    distances = SpaceDistances(LabelSpace.load("imagenet-1k"))
    assert len(published) == 1000
    ours = {class_id: list(distances.most_similar(class_id, 21)) for class_id in published}
    assert ours == published
