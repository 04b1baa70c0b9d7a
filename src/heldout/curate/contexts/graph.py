"""The meta-graph of a class: its subsets as nodes, what they share as weights, communities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from heldout.core.errors import NotFound, UserError
from heldout.curate.contexts.communities import Method, find_communities
from heldout.curate.contexts.overlap import Measure, overlap_matrix
from heldout.curate.contexts.subsets import Subsets, hint, read_subsets

if TYPE_CHECKING:
    import pyarrow as pa

    from heldout.data.testset.testset import TestSet

SCHEMA_VERSION = 1
THRESHOLD = 0.2
"""Weights below it are no edges, as published."""
MINIMUM = 25
"""Subsets of fewer images are left out, as published."""

FloatArray = npt.NDArray[np.float64]
Edge = tuple[int, int, float]


@dataclass(frozen=True, eq=False)
class MetaGraph:
    """The subsets of one class and how far they overlap.

    ``subject``      the class
    ``subsets``      full names, sorted, n of them
    ``sizes``        images of each, int64 (n,)
    ``overlap``      float64 (n, n), symmetric, ones on the diagonal: the raw coefficient
    ``threshold``    weights below it are no edges
    ``communities``  positions in ``subsets``, each community sorted, the largest first
    ``measure``      ``overlap``: shared / smaller set; ``jaccard``: shared / both together
    ``method``       how communities were found
    """

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

    def position(self, name: str) -> int:
        """Where a subset stands; one that is not a node is refused."""
        try:
            return self.subsets.index(name)
        except ValueError:
            raise NotFound(
                f"{name!r} is no node of the graph of {self.subject}", fix=hint(name, self.subsets)
            ) from None

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
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> MetaGraph:
        """The graph that :meth:`to_dict` wrote; parts that do not fit together are refused."""
        try:
            names = tuple(map(str, value["subsets"]))
            n = len(names)
            graph = cls(
                subject=str(value["subject"]),
                subsets=names,
                sizes=np.asarray(value["sizes"], dtype=np.int64),
                overlap=np.asarray(value["overlap"], dtype=np.float64).reshape(n, n),
                threshold=float(value["threshold"]),
                communities=tuple(tuple(map(int, c)) for c in value["communities"]),
                measure=value.get("measure", "overlap"),
                method=value.get("method", "greedy"),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"this is no meta-graph ({error})", fix="write it again with heldout contexts graph"
            ) from None
        members = sorted(i for community in graph.communities for i in community)
        if graph.sizes.shape != (n,) or members != list(range(n)):
            raise UserError(
                f"the meta-graph of {graph.subject} does not fit together: {n} subsets, "
                f"{len(graph.sizes)} sizes, {len(members)} members of communities",
                fix="write it again with heldout contexts graph",
            )
        return graph


def edge_weights(overlap: FloatArray, threshold: float) -> FloatArray:
    """The weights that are edges: overlaps of at least ``threshold`` and above 0, no loops."""
    weights = np.where((overlap >= threshold) & (overlap > 0), overlap, 0.0)
    np.fill_diagonal(weights, 0.0)
    return weights


def connected_components(weights: FloatArray) -> tuple[tuple[int, ...], ...]:
    """Connected parts of an undirected graph, each sorted, the largest first, then by member."""
    n = len(weights)
    if n == 0:
        return ()
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components as label

    _, labels = label(csr_array(weights), directed=False)
    parts: dict[int, list[int]] = {}
    for node, part in enumerate(labels.tolist()):
        parts.setdefault(part, []).append(node)
    return tuple(sorted(map(tuple, parts.values()), key=lambda part: (-len(part), part)))


def meta_graph(
    source: TestSet | pa.Table | Subsets,
    subject: str,
    *,
    threshold: float = THRESHOLD,
    measure: Measure = "overlap",
    minimum: int = MINIMUM,
    communities: Method = "greedy",
    seed: int = 0,
) -> MetaGraph:
    """The meta-graph of one class.

    ``source``       a test set with the membership ``subset``, a memberships table, or
                     :class:`~heldout.curate.contexts.subsets.Subsets`
    ``threshold``    smaller overlaps are no edges; published: 0.2
    ``minimum``      smaller subsets are left out; published: 25
    ``communities``  ``greedy``: modularity of the edges without weights (Clauset, Newman and Moore
                     2004), as in MetaShift's code; ``louvain``: weighted, in the order that
                     ``seed`` gives
    """
    if not 0.0 <= threshold <= 1.0:
        raise UserError(f"an edge threshold of {threshold}", fix="give 0 to 1")
    subsets = read_subsets(source).of(subject).at_least(minimum)
    overlap = overlap_matrix(subsets, measure=measure)
    weights = edge_weights(overlap, threshold)
    return MetaGraph(
        subject=subject,
        subsets=subsets.names,
        sizes=subsets.sizes,
        overlap=overlap,
        threshold=threshold,
        communities=find_communities(weights, method=communities, seed=seed),
        measure=measure,
        method=communities,
    )
