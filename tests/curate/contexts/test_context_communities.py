"""Communities: greedy modularity against a slow oracle, Louvain by what it promises."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.curate.contexts.graph import (
    Communities,
    find_communities,
    greedy_modularity,
    louvain,
    modularity,
)

Weights = npt.NDArray[np.float64]


@st.composite
def graphs(draw: st.DrawFn) -> Weights:
    n = draw(st.integers(1, 9))
    pairs = list(itertools.combinations(range(n), 2))
    weights = np.zeros((n, n))
    for i, j in pairs:
        if draw(st.booleans()):
            weights[i, j] = weights[j, i] = draw(st.sampled_from([0.25, 0.5, 0.75, 1.0]))
    return weights


def slow_greedy(weights: Weights) -> float:
    """The modularity that merging by hand reaches: every linked pair tried, the best one taken."""
    edges = (weights > 0).astype(float)
    parts: list[tuple[int, ...]] = [(i,) for i in range(len(weights))]
    while len(parts) > 1:
        now = modularity(edges, tuple(parts))
        gains = []
        for (i, a), (j, b) in itertools.combinations(enumerate(parts), 2):
            if edges[np.ix_(a, b)].any():
                rest = [p for k, p in enumerate(parts) if k not in (i, j)]
                # Communities go by their node that was merged into, which has the last name.
                gains.append((modularity(edges, (*rest, a + b)) - now, -i, -j, a, b))
        if not gains:
            break
        best = max(gains, key=lambda g: (round(g[0], 12), g[1], g[2]))
        if best[0] < -1e-12:
            break
        parts = [p for p in parts if p not in (best[3], best[4])] + [best[3] + best[4]]
    return modularity(edges, tuple(parts))


def _is_partition(found: Communities, n: int) -> bool:
    return sorted(itertools.chain(*found)) == list(range(n)) and all(
        tuple(sorted(part)) == part for part in found
    )


@given(weights=graphs())
def test_greedy_merges_gain_at_every_step(weights: Weights) -> None:
    found = greedy_modularity(weights)
    edges = (weights > 0).astype(float)
    assert _is_partition(found, len(weights))
    alone = tuple((i,) for i in range(len(weights)))
    assert modularity(edges, found) >= modularity(edges, alone) - 1e-12
    # Nothing is left to gain by one more merge of linked communities.
    for a, b in itertools.combinations(found, 2):
        if edges[np.ix_(a, b)].any():
            rest = [part for part in found if part not in (a, b)]
            assert modularity(edges, (*rest, a + b)) <= modularity(edges, found) + 1e-12


def test_greedy_is_the_slow_one_where_no_gains_tie() -> None:
    random = np.random.default_rng(0)
    equal = 0
    for _ in range(60):
        n = int(random.integers(6, 14))
        upper = np.triu(random.random((n, n)) < 0.3, 1).astype(float)
        weights = upper + upper.T
        found = greedy_modularity(weights)
        equal += abs(modularity((weights > 0) * 1.0, found) - slow_greedy(weights)) < 1e-9
    assert equal >= 45  # ties are broken by another order of communities


def test_greedy_ignores_weights() -> None:
    random = np.random.default_rng(1)
    upper = np.triu((random.random((12, 12)) < 0.3) * random.random((12, 12)), 1)
    weights = upper + upper.T
    assert greedy_modularity(weights) == greedy_modularity((weights > 0).astype(float))


def test_greedy_communities_of_a_known_graph() -> None:
    """Zachary's karate club: the sizes and the modularity that are known for this algorithm."""
    edges = (
        "0-1 0-2 0-3 0-4 0-5 0-6 0-7 0-8 0-10 0-11 0-12 0-13 0-17 0-19 0-21 0-31 1-2 1-3 1-7 1-13 "
        "1-17 1-19 1-21 1-30 2-3 2-7 2-8 2-9 2-13 2-27 2-28 2-32 3-7 3-12 3-13 4-6 4-10 5-6 5-10 "
        "5-16 6-16 8-30 8-32 8-33 9-33 13-33 14-32 14-33 15-32 15-33 18-32 18-33 19-33 20-32 20-33 "
        "22-32 22-33 23-25 23-27 23-29 23-32 23-33 24-25 24-27 24-31 25-31 26-29 26-33 27-33 28-31 "
        "28-33 29-32 29-33 30-32 30-33 31-32 31-33 32-33"
    )
    weights = np.zeros((34, 34))
    for text in edges.split():
        i, j = map(int, text.split("-"))
        weights[i, j] = weights[j, i] = 1.0
    found = greedy_modularity(weights)
    assert [len(part) for part in found] == [17, 9, 8]
    assert modularity(weights, found) == pytest.approx(0.3807, abs=1e-4)
    assert modularity(weights, louvain(weights)) > 0.41


@given(weights=graphs(), seed=st.integers(0, 5))
def test_louvain_is_a_partition_that_no_move_betters(weights: Weights, seed: int) -> None:
    found = louvain(weights, seed=seed)
    assert _is_partition(found, len(weights))
    assert found == louvain(weights, seed=seed)
    reached = modularity(weights, found)
    assert reached >= modularity(weights, tuple((i,) for i in range(len(weights)))) - 1e-12
    for a, b in itertools.combinations(found, 2):
        rest = [part for part in found if part not in (a, b)]
        assert modularity(weights, (*rest, a + b)) <= reached + 1e-6


def test_louvain_sees_weights() -> None:
    # Two pairs tied strongly, and all four tied weakly: weights alone tell the pairs apart.
    weights = np.full((4, 4), 0.1)
    weights[:2, :2] = weights[2:, 2:] = 1.0
    np.fill_diagonal(weights, 0.0)
    assert louvain(weights) == ((0, 1), (2, 3))


def test_nodes_without_edges_are_alone() -> None:
    weights = np.zeros((3, 3))
    weights[0, 2] = weights[2, 0] = 0.5
    for method in ("greedy", "louvain"):
        assert find_communities(weights, method=method) == ((0, 2), (1,))  # type: ignore[arg-type]
        assert find_communities(np.zeros((0, 0)), method=method) == ()  # type: ignore[arg-type]
