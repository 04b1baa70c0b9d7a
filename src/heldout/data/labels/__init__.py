"""Label spaces, the hierarchy over classes, similar classes, and label maps.

Importing this reads no data: the built-in tables are read when a label space is first asked for.
"""

from __future__ import annotations

from heldout.data.labels.label_map import (
    PUBLISHED_SUBSETS,
    LabelMap,
    hierarchy_map,
    identity_map,
    load_label_map,
    many_to_one_map,
    published_map,
    read_label_map,
    subset_map,
    write_label_map,
)
from heldout.data.labels.label_space import Class, LabelSpace
from heldout.data.labels.superclasses import Superclasses, read_superclasses
from heldout.data.labels.wordnet import BUILT_IN, Hierarchy, SpaceDistances, WordNetNouns

__all__ = [
    "BUILT_IN",
    "PUBLISHED_SUBSETS",
    "Class",
    "Hierarchy",
    "LabelMap",
    "LabelSpace",
    "SpaceDistances",
    "Superclasses",
    "WordNetNouns",
    "hierarchy_map",
    "identity_map",
    "load_label_map",
    "many_to_one_map",
    "published_map",
    "read_label_map",
    "read_superclasses",
    "subset_map",
    "write_label_map",
]
