"""The meta-graph: on published data as measured, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import NotApplicable, NotFound
from heldout.curate.contexts.graph import meta_graph
from heldout.curate.contexts.subsets import Subsets
from tests.curate.contexts.contexts_examples import (
    class_sets,
    published_objects,
    published_sets,
    slow_overlap,
    slow_pairs,
    subsets_from,
)


@pytest.fixture(scope="module")
def attributes(shared_data: Path) -> Subsets:
    return subsets_from(published_sets(shared_data))


@pytest.fixture(scope="module")
def derived(shared_data: Path) -> Subsets:
    shown = published_objects(published_sets(shared_data))
    wanted = ("cat(", "dog(", "man(")
    return subsets_from({n: i for n, i in slow_pairs(shown).items() if n.startswith(wanted)})


@pytest.mark.shared
@pytest.mark.parametrize(
    ("kind", "subject", "nodes", "edges", "components", "greedy", "louvain"),
    [
        ("attributes", "cat", 13, 19, 1, [6, 5, 2], [6, 5, 2]),
        ("attributes", "dog", 13, 22, 2, [6, 6, 1], [6, 4, 2, 1]),
        ("derived", "cat", 22, 28, 2, [10, 4, 4, 3, 1], [10, 5, 3, 3, 1]),
        ("derived", "dog", 27, 24, 7, [8, 7, 5, 3, 1, 1, 1, 1], [8, 7, 5, 3, 1, 1, 1, 1]),
        (
            "derived", "man", 61, 105, 5,
            [21, 12, 9, 8, 7, 1, 1, 1, 1], [24, 12, 9, 8, 4, 1, 1, 1, 1],
        ),
    ],
)  # fmt: skip
def test_graphs_of_published_data(
    request: pytest.FixtureRequest,
    kind: str,
    subject: str,
    nodes: int,
    edges: int,
    components: int,
    greedy: list[int],
    louvain: list[int],
) -> None:
    source = request.getfixturevalue(kind)
    graph = meta_graph(source, subject)
    assert len(graph) == nodes
    assert len(graph.edges) == edges
    assert len(graph.components) == components
    assert [len(c) for c in graph.communities] == greedy
    weighted = meta_graph(source, subject, communities="louvain", seed=0)
    assert [len(c) for c in weighted.communities] == louvain


@pytest.mark.shared
def test_derived_cat_communities_make_sense(derived: Subsets) -> None:
    graph = meta_graph(derived, "cat")
    groups = [{graph.subsets[node] for node in c} for c in graph.communities]
    assert any({"cat(bed)", "cat(blanket)", "cat(couch)", "cat(pillow)"} <= g for g in groups)
    assert any({"cat(table)", "cat(keyboard)", "cat(laptop)"} <= g for g in groups)


@given(
    sets=class_sets(),
    threshold=st.sampled_from([0.0, 0.2, 0.5, 1.0]),
    measure=st.sampled_from(["overlap", "jaccard"]),
)
def test_a_graph_is_what_sets_say(
    sets: dict[str, set[str]], threshold: float, measure: str
) -> None:
    graph = meta_graph(
        subsets_from(sets),
        "cat",
        threshold=threshold,
        measure=measure,  # type: ignore[arg-type]
        minimum=2,
    )
    assert graph.subsets == tuple(sorted(sets))
    assert graph.sizes.tolist() == [len(sets[name]) for name in graph.subsets]
    edges = {}
    for i, a in enumerate(graph.subsets):
        for j, b in enumerate(graph.subsets[:i]):
            weight = slow_overlap(sets[a], sets[b], measure)
            if weight >= threshold and weight > 0:
                edges[j, i] = weight
    assert {(i, j): w for i, j, w in graph.edges} == edges
    assert (graph.weights == graph.weights.T).all()
    assert (np.diag(graph.weights) == 0).all()
    assert (np.diag(graph.overlap) == 1).all()
    # Connected parts by walking.
    reached: dict[int, int] = {}
    for start in range(len(graph)):
        waiting = [start]
        while waiting:
            node = waiting.pop()
            if reached.setdefault(node, start) == start:
                near = [j for e in edges if node in e for j in e if j not in reached]
                waiting += near
    assert len(graph.components) == len(set(reached.values()))


def test_what_cannot_be_drawn_is_refused() -> None:
    subsets = subsets_from({"cat(a)": {"1", "2"}, "cat(b)": {"1"}})
    with pytest.raises(NotFound, match="no class 'dog': there is cat"):
        meta_graph(subsets, "dog")
    with pytest.raises(NotApplicable, match="no subset reaches 25 images"):
        meta_graph(subsets, "cat")
