"""The recipe ``contexts``: images in context, the graph over them, distances between them.

``names`` → ``shown`` and ``words`` (what a pool says) → ``policy`` and ``candidates`` (which subsets)
→ ``recipe`` (the test set). From a set: ``subsets`` → ``overlap`` → ``graph`` and ``communities``;
``profiles`` → ``divergence`` → ``distances``; ``unique`` and ``siblings`` for what stands out.
"""

from heldout.recipes.contexts.distances import Distance, distance
from heldout.recipes.contexts.graph import MetaGraph, meta_graph
from heldout.recipes.contexts.names import SubsetName, parse_subset, subset_name
from heldout.recipes.contexts.parameters import ContextsParameters
from heldout.recipes.contexts.subsets import Subsets, read_subsets
from heldout.recipes.contexts.unique import Unique, unique_subsets

__all__ = [
    "ContextsParameters",
    "Distance",
    "MetaGraph",
    "SubsetName",
    "Subsets",
    "Unique",
    "distance",
    "meta_graph",
    "parse_subset",
    "read_subsets",
    "subset_name",
    "unique_subsets",
]
