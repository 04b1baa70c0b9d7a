"""Communities of a graph: greedy modularity without weights, as published, and weighted Louvain."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from heldout.core.errors import UserError

Method = Literal["greedy", "louvain"]
METHODS: tuple[Method, ...] = ("greedy", "louvain")
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
    if method == "greedy":
        return greedy_modularity(weights)
    if method == "louvain":
        return louvain(weights, seed=seed)
    raise UserError(f"no communities by {method!r}", fix=f"use {' or '.join(METHODS)}")


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
    edges = int(linked.sum()) // 2
    members: dict[int, list[int]] = {node: [node] for node in range(len(weights))}
    if edges == 0:
        return _ordered(members.values())
    each = 1 / edges
    share = linked.sum(axis=1) * each * 0.5  # of all edge ends
    gain = np.where(linked, each - 2 * np.outer(share, share), -np.inf)
    best = gain.max(axis=1)
    while True:
        u = int(np.argmax(best))
        if not best[u] >= 0:
            return _ordered(members.values())
        v = int(np.argmax(gain[u]))
        members[v] += members.pop(u)
        near_u, near_v = linked[u].copy(), linked[v].copy()
        near_u[[u, v]] = near_v[[u, v]] = False
        # The gain of joining w: a sum where both were linked to it; the lost expectation else.
        joined = np.where(near_v, gain[v], -np.inf)
        only_v = near_v & ~near_u
        joined[only_v] -= 2 * share[u] * share[only_v]
        both = near_v & near_u
        joined[both] += gain[u][both]
        only_u = near_u & ~near_v
        joined[only_u] = gain[u][only_u] - 2 * share[v] * share[only_u]
        gain[v], gain[:, v] = joined, joined
        gain[u], gain[:, u] = -np.inf, -np.inf
        near = near_u | near_v
        linked[v], linked[:, v] = near, near
        linked[u], linked[:, u] = False, False
        share[v] += share[u]
        share[u] = 0.0
        changed = np.nonzero(near)[0]
        best[changed] = gain[changed].max(axis=1)
        best[v], best[u] = gain[v].max(), -np.inf


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
