"""Where nodes stand: no two over one another, islands apart, the same every time."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.show.graph import LETTER, LINE, Edge, GraphData, GraphLayout, Node, short_name

from .graphs import made_graph


@st.composite
def graphs(draw: st.DrawFn) -> GraphData:
    n = draw(st.integers(1, 24))
    sizes = draw(st.lists(st.integers(0, 900), min_size=n, max_size=n))
    groups = draw(st.lists(st.integers(0, 4), min_size=n, max_size=n))
    words = draw(st.lists(st.text("abc mnop", max_size=30), min_size=n, max_size=n))
    pairs = list(combinations(range(n), 2))
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=40, unique=True)) if pairs else []
    return GraphData(
        title="t",
        nodes=[
            Node(name=f"{i}", label=words[i], size=sizes[i], community=groups[i]) for i in range(n)
        ],
        edges=[Edge(a=a, b=b, weight=draw(st.floats(0.2, 1.0))) for a, b in chosen],
        threshold=0.2,
    )


def boxes(data: GraphData, places: GraphLayout) -> np.ndarray:
    """Left, top, right, bottom of each node with its name below it."""
    wide = np.array([LETTER * len(short_name(node.label)) / 2 for node in data.nodes])
    half = np.maximum(wide, places.radius)
    return np.stack(
        [
            places.x - half,
            places.y - places.radius,
            places.x + half,
            places.y + places.radius + LINE,
        ],
        axis=1,
    )


@settings(max_examples=60)
@given(graphs())
def test_no_two_nodes_or_names_touch_and_all_is_inside(data: GraphData) -> None:
    places = data.layout
    found = boxes(data, places)
    assert np.isfinite(found).all()
    assert found[:, :2].min() >= 0
    assert (found[:, 2] <= places.width).all() and (found[:, 3] <= places.height).all()
    for a, b in combinations(range(len(found)), 2):
        apart = (found[a, :2] >= found[b, 2:] - 0.3) | (found[b, :2] >= found[a, 2:] - 0.3)
        assert apart.any(), (data.nodes[a], data.nodes[b])


@settings(max_examples=30)
@given(graphs())
def test_communities_are_islands(data: GraphData) -> None:
    places = data.layout
    found = boxes(data, places)
    outlines = [
        (set(data.communities[number]), corners.min(axis=0), corners.max(axis=0))
        for number, corners in places.islands.items()
    ]
    for group, low, high in outlines:
        for node, box in enumerate(found):
            inside = (box[:2] < high).all() and (box[2:] > low).all()
            assert inside == (node in group)
    assert {frozenset(g) for g, _, _ in outlines} <= {frozenset(g) for g in data.communities}


def test_larger_sets_are_larger_and_area_says_how_much() -> None:
    nodes = [Node(name=str(i), label=str(i), size=size) for i, size in enumerate((100, 400, 1600))]
    radius = GraphData(title="t", nodes=nodes).layout.radius
    assert radius[1] / radius[0] == pytest.approx(2, abs=0.01)
    assert radius[2] / radius[1] == pytest.approx(2, abs=0.01)


def test_nodes_near_each_other_are_those_that_share() -> None:
    data = made_graph(40, groups=4)
    places = data.layout
    at = np.stack([places.x, places.y], axis=1)
    far = np.sqrt(np.square(at[:, None] - at[None]).sum(axis=2))
    joined = np.zeros_like(far, dtype=bool)
    for edge in data.edges:
        joined[edge.a, edge.b] = joined[edge.b, edge.a] = True
    assert far[joined].mean() < 0.7 * far[~joined & (far > 0)].mean()


def test_one_node_and_no_edges_are_drawn_too() -> None:
    assert GraphData(title="t", nodes=[Node(name="a", label="a", size=3)]).layout.islands == {}
    alone = [Node(name=str(i), label=f"w {i}", size=i, community=i) for i in range(50)]
    places = GraphData(title="t", nodes=alone).layout
    assert places.shelf is not None and len({*places.y.tolist()}) > 2
