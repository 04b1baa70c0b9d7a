"""A graph to draw: sets of images as nodes, their overlaps as edges, and what is known of each.

Plain data. Who built the sets, and from what, is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from heldout.core.errors import UserError


@dataclass(frozen=True, kw_only=True)
class NodeScore:
    """What one model reaches on a node's images; limits None where there is no interval."""

    value: float
    n: int
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Trait:
    """Something that a node has more of than all images of the graph: how many times as much."""

    label: str
    lift: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Sibling:
    """Another node and how far it is."""

    node: int
    distance: float


@dataclass(frozen=True, kw_only=True)
class Node:
    """One set of images.

    ``name``       unique in the graph; ``label`` is what stands in the picture
    ``size``       its images
    ``community``  which group of the graph it belongs to
    ``scores``     by model
    ``traits``     what sets it apart, the strongest first
    ``nearest``, ``farthest``  other nodes, the most extreme first
    ``members``    places of its images in :attr:`GraphData.images`; empty where not known
    """

    name: str
    label: str
    size: int
    community: int = 0
    scores: Mapping[str, NodeScore] = field(default_factory=dict)
    traits: Sequence[Trait] = ()
    nearest: Sequence[Sibling] = ()
    farthest: Sequence[Sibling] = ()
    members: Sequence[int] = ()


@dataclass(frozen=True, kw_only=True)
class Edge:
    """Two nodes, by place, whose overlap is worth a line."""

    a: int
    b: int
    weight: float


@dataclass(frozen=True, kw_only=True)
class GraphData:
    """Everything a drawn graph shows; nothing is read from anywhere else.

    ``threshold``   the smallest weight that is drawn
    ``weight``      what an edge's weight is, in words
    ``images``      ids of all images of the nodes; empty where they are not known
    ``thumbnails``  small copies of some of them, by place, as data URIs
    ``overall``     each model's score on all images together
    ``metric``      what the scores are
    ``distance``    which distance the page computes from members: ``""`` for none
    ``notes``       what a reader should know
    """

    title: str
    nodes: Sequence[Node]
    edges: Sequence[Edge] = ()
    threshold: float = 0.0
    weight: str = "overlap"
    images: Sequence[str] = ()
    thumbnails: Mapping[int, str] = field(default_factory=dict)
    overall: Mapping[str, NodeScore] = field(default_factory=dict)
    metric: str = "top1"
    distance: str = ""
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        names = [node.name for node in self.nodes]
        if not names:
            raise UserError("a graph without nodes", fix="lower the smallest size of a node")
        if len(set(names)) < len(names):
            raise UserError("two nodes of a graph have one name", fix="name each once")
        for edge in self.edges:
            if not (0 <= edge.a < len(names) and 0 <= edge.b < len(names)) or edge.a == edge.b:
                raise UserError(f"an edge joins nodes {edge.a} and {edge.b} of {len(names)}")

    @property
    def models(self) -> list[str]:
        """Every model that some node has a score of, in order of first appearance."""
        return list(dict.fromkeys(model for node in self.nodes for model in node.scores))

    @cached_property
    def communities(self) -> list[tuple[int, ...]]:
        """Places of the nodes of each community: larger ones first, then by number."""
        groups: dict[int, list[int]] = {}
        for place, node in enumerate(self.nodes):
            groups.setdefault(node.community, []).append(place)
        order = sorted(groups, key=lambda number: (-len(groups[number]), number))
        return [tuple(groups[number]) for number in order]

    @cached_property
    def weights(self) -> np.ndarray:
        """Edge weights as a symmetric matrix; float64 (n, n), zero where there is no edge."""
        matrix = np.zeros((len(self.nodes), len(self.nodes)))
        for edge in self.edges:
            matrix[edge.a, edge.b] = matrix[edge.b, edge.a] = edge.weight
        return matrix
