"""The meta-graph of a class: its subsets as nodes, what they share as weights, communities."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from heldout.curate.contexts.requests import Measure, Method
from heldout.curate.contexts.subsets import Subsets


def shared_images(subsets: Subsets) -> Any:
    """Images that two subsets of one class share: ``csr_array`` of int32, (n, n), symmetric.

    The diagonal holds the sizes. Subsets of different classes count as sharing nothing.
    """
    from scipy.sparse import csc_array

    subjects = {subject: code for code, subject in enumerate(subsets.subjects)}
    codes = np.array([subjects[subject] for subject in subsets.subject_of], dtype=np.int64)
    # An image is another row in each class.
    rows = subsets.images + np.repeat(codes, subsets.sizes) * len(subsets.image_ids)
    used, rows = np.unique(rows, return_inverse=True)
    index = np.int32 if len(rows) < 2**31 else np.int64
    table = csc_array(
        (np.ones(len(rows), np.int32), rows.astype(index), subsets.starts.astype(index)),
        shape=(len(used), len(subsets)),
    )
    shared = (table.T @ table).tocsr()
    shared.sort_indices()
    return shared


def overlaps(subsets: Subsets, *, measure: Measure = "overlap", shared: Any = None) -> Any:
    """The overlap of all subsets of the same class: ``csr_array`` of float64, (n, n).

    ``overlap`` is Szymkiewicz and Simpson's coefficient, images shared / images of the smaller
    subset: 1 for a subset inside another. ``jaccard`` is images shared / images of both together.
    """
    shared = shared_images(subsets) if shared is None else shared
    sizes = subsets.sizes
    first = np.repeat(np.arange(len(subsets)), np.diff(shared.indptr))
    a, b = sizes[first], sizes[shared.indices]
    found = shared.astype(np.float64)
    found.data = shared.data / (np.minimum(a, b) if measure == "overlap" else a + b - shared.data)
    return found


Communities = tuple[tuple[int, ...], ...]
FloatArray = npt.NDArray[np.float64]

_LEAST_GAIN = 1e-7  # of modularity, for another round of Louvain


def find_communities(
    weights: FloatArray, *, method: Method = "greedy", seed: int = 0
) -> Communities:
    """Communities as positions, each sorted, the largest first, equal ones by their first member.

    ``weights``  (n, n), symmetric, zero diagonal; 0 is no edge. A node without edges is a
                 community of its own.
    ``greedy``   merges by modularity where every edge counts 1 (Clauset, Newman, Moore 2004)
    ``louvain``  moves by weighted modularity (Blondel et al. 2008), nodes in the order of ``seed``
    """
    return greedy_modularity(weights) if method == "greedy" else louvain(weights, seed=seed)


def modularity(weights: FloatArray, communities: Communities) -> float:
    """Newman's modularity: share of weight inside communities, less what degrees alone would give.

    ``sum over communities of (inside / 2m - (degrees / 2m) ** 2)``; 0 for a graph without edges.
    """
    total = float(weights.sum())
    if total == 0.0:
        return 0.0
    value = 0.0
    for community in communities:
        members = np.asarray(community, dtype=np.int64)
        inside = float(weights[np.ix_(members, members)].sum())
        value += inside / total - (float(weights[members].sum()) / total) ** 2
    return value


def greedy_modularity(weights: FloatArray) -> Communities:
    """Merge the two linked communities that gain most, while there is no loss; edges count 1.

    Of equal gains, the pair whose first and then second position is lowest is merged, into the
    second: networkx breaks ties in the same way, so that published communities come out.
    """
    linked = (weights > 0) & ~np.eye(len(weights), dtype=bool)
    each = 2 / max(int(linked.sum()), 1)
    share = linked.sum(axis=1) * each * 0.5  # of all edge ends
    gain = np.where(linked, each - 2 * np.outer(share, share), -np.inf)
    members: dict[int, list[int]] = {node: [node] for node in range(len(weights))}
    while gain.max(initial=-np.inf) >= 0:
        u, v = map(int, np.unravel_index(np.argmax(gain), gain.shape))
        members[v] += members.pop(u)
        # The gain of joining w: of both where it is linked to both; else what is expected is lost.
        near_u, near_v = gain[u] > -np.inf, gain[v] > -np.inf
        joined = np.where(near_u, gain[u], -2 * share[u] * share)
        joined += np.where(near_v, gain[v], -2 * share[v] * share)
        joined[~(near_u | near_v)] = joined[[u, v]] = -np.inf
        gain[u] = gain[:, u] = -np.inf
        gain[v] = gain[:, v] = joined
        share[v] += share[u]
    return _ordered(members.values())


def louvain(weights: FloatArray, *, seed: int = 0) -> Communities:
    """Move nodes to the neighbouring community that gains most, then do the same with communities.

    Rounds end when one gains less than 1e-7 of modularity. Nodes are taken in a shuffled order,
    which can matter: the same seed gives the same communities.
    """
    shuffle = random.Random(seed).shuffle
    members = [[node] for node in range(len(weights))]
    total = float(weights.sum())
    if total == 0.0:
        return _ordered(members)
    level = np.array(weights, dtype=np.float64)
    reached = modularity(weights, tuple((node,) for node in range(len(weights))))
    while True:
        home = _move_nodes(level, total, shuffle)
        labels = sorted(set(home))
        places = {label: place for place, label in enumerate(labels)}
        merged: list[list[int]] = [[] for _ in labels]
        into = np.zeros((len(home), len(labels)))
        for node, label in enumerate(home):
            merged[places[label]] += members[node]
            into[node, places[label]] = 1.0
        members, level = merged, into.T @ level @ into
        now = modularity(weights, tuple(map(tuple, members)))
        if len(labels) == len(home) or now - reached <= _LEAST_GAIN:
            return _ordered(members)
        reached = now


def _move_nodes(level: FloatArray, total: float, shuffle: Callable[[list[int]], None]) -> list[int]:
    """The community of each node once no single move gains; ``level`` has inner weight as loops."""
    n = len(level)
    degrees: list[float] = level.sum(axis=1).tolist()
    near = [
        [(v, float(level[u, v])) for v in np.nonzero(level[u])[0].tolist() if v != u]
        for u in range(n)
    ]
    home, held = list(range(n)), list(degrees)
    order = list(range(n))
    shuffle(order)
    moved = True
    while moved:
        moved = False
        for u in order:
            towards: dict[int, float] = {home[u]: 0.0}
            for v, weight in near[u]:
                towards[home[v]] = towards.get(home[v], 0.0) + weight
            here, share = home[u], degrees[u] / total
            held[here] -= degrees[u]
            best, most = here, towards[here] - held[here] * share
            for label, weight in towards.items():
                worth = weight - held[label] * share
                if worth > most + 1e-15 * total:
                    best, most = label, worth
            held[best] += degrees[u]
            moved = moved or best != here
            home[u] = best
    return home


def _ordered(parts: Iterable[Sequence[int]]) -> Communities:
    listed = [tuple(sorted(part)) for part in parts]
    return tuple(sorted(listed, key=lambda part: (-len(part), part)))


SCHEMA_VERSION = 1
THRESHOLD = 0.2
"""Weights below it are not edges, as published."""
MINIMUM = 25
"""Subsets of fewer images are left out, as published."""

Edge = tuple[int, int, float]


@dataclass(frozen=True, eq=False)
class MetaGraph:
    """The subsets of one class and how far they overlap.

    ``subject``      the class
    ``subsets``      full names, sorted, n of them
    ``sizes``        images of each, int64 (n,)
    ``overlap``      float64 (n, n), symmetric, ones on the diagonal: the raw coefficient
    ``threshold``    weights below it are not edges
    ``communities``  positions in ``subsets``, each community sorted, the largest first
    ``measure``      ``overlap``: shared / smaller set; ``jaccard``: shared / both together
    ``method``       how communities were found
    """

    record: ClassVar[str] = "graph"
    subject: str
    subsets: tuple[str, ...]
    sizes: npt.NDArray[np.int64]
    overlap: FloatArray
    threshold: float
    communities: tuple[tuple[int, ...], ...]
    measure: Measure = "overlap"
    method: Method = "greedy"

    def __len__(self) -> int:
        return len(self.subsets)

    @cached_property
    def weights(self) -> FloatArray:
        """Float64 (n, n): the overlap where it reaches the threshold, else 0; zero diagonal."""
        return edge_weights(self.overlap, self.threshold)

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """(i, j, weight) with i < j, in the order of positions."""
        first, second = np.nonzero(np.triu(self.weights, 1))
        return tuple(
            (int(i), int(j), float(self.weights[i, j]))
            for i, j in zip(first.tolist(), second.tolist(), strict=True)
        )

    @cached_property
    def components(self) -> tuple[tuple[int, ...], ...]:
        """Connected parts as positions, each sorted, the largest first."""
        return connected_components(self.weights)

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object; numbers keep all their digits."""
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": "meta_graph",
            "subject": self.subject,
            "measure": self.measure,
            "threshold": self.threshold,
            "method": self.method,
            "subsets": list(self.subsets),
            "sizes": [int(size) for size in self.sizes],
            "overlap": [[float(value) for value in row] for row in self.overlap],
            "communities": [list(community) for community in self.communities],
            "components": [list(part) for part in self.components],
            "edges": [
                {"a": self.subsets[i], "b": self.subsets[j], "weight": weight}
                for i, j, weight in self.edges
            ],
        }


def edge_weights(overlap: FloatArray, threshold: float) -> FloatArray:
    """The weights that are edges: overlaps of at least ``threshold`` and above 0, no loops."""
    weights = np.where((overlap >= threshold) & (overlap > 0), overlap, 0.0)
    np.fill_diagonal(weights, 0.0)
    return weights


def connected_components(weights: FloatArray) -> tuple[tuple[int, ...], ...]:
    """Connected parts of an undirected graph, each sorted, the largest first, then by member."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components as label

    _, labels = label(csr_array(weights), directed=False)
    parts: dict[int, list[int]] = {}
    for node, part in enumerate(labels.tolist()):
        parts.setdefault(part, []).append(node)
    return tuple(sorted(map(tuple, parts.values()), key=lambda part: (-len(part), part)))


def meta_graph(
    subsets: Subsets,
    subject: str,
    *,
    threshold: float = THRESHOLD,
    measure: Measure = "overlap",
    minimum: int = MINIMUM,
    communities: Method = "greedy",
    seed: int = 0,
) -> MetaGraph:
    """The meta-graph of one class.

    ``threshold``    smaller overlaps are not edges; published: 0.2
    ``minimum``      smaller subsets are left out; published: 25
    ``communities``  ``greedy``: modularity of the edges without weights (Clauset, Newman and Moore
                     2004), as in MetaShift's code; ``louvain``: weighted, in the order that
                     ``seed`` gives
    """
    mine = subsets.of(subject).at_least(minimum)
    overlap = overlaps(mine, measure=measure).toarray()
    weights = edge_weights(overlap, threshold)
    return MetaGraph(
        subject=subject,
        subsets=mine.names,
        sizes=mine.sizes,
        overlap=overlap,
        threshold=threshold,
        communities=find_communities(weights, method=communities, seed=seed),
        measure=measure,
        method=communities,
    )
