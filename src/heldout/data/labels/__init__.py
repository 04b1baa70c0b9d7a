"""Label spaces, the hierarchy over classes, similar classes, and label maps.

Importing this reads no data: the built-in tables are read when a label space is first asked for.
"""

from __future__ import annotations

from heldout.data.labels.label_map import (
    PUBLISHED_SUBSETS,
    READINGS,
    AcceptedCsr,
    LabelMap,
    MappedTopk,
    PublishedSubset,
    Reading,
    hierarchy_map,
    identity_map,
    label_map_to_dict,
    load_label_map,
    many_to_one_map,
    published_map,
    read_label_map,
    subset_map,
    write_label_map,
)
from heldout.data.labels.label_space import Class, LabelSpace
from heldout.data.labels.superclasses import Superclasses, read_superclasses
from heldout.data.labels.word_matching import (
    ClassTree,
    SubsetMatches,
    Vocabulary,
    WordMatch,
    WordMatches,
    match_subsets,
    match_words,
    read_class_tree,
    read_overrides,
    read_vocabulary,
)
from heldout.data.labels.wordnet import BUILT_IN, Hierarchy, SpaceDistances, WordNetNouns

__all__ = [
    "BUILT_IN",
    "PUBLISHED_SUBSETS",
    "READINGS",
    "AcceptedCsr",
    "Class",
    "ClassTree",
    "Hierarchy",
    "LabelMap",
    "LabelSpace",
    "MappedTopk",
    "PublishedSubset",
    "Reading",
    "SpaceDistances",
    "SubsetMatches",
    "Superclasses",
    "Vocabulary",
    "WordMatch",
    "WordMatches",
    "WordNetNouns",
    "hierarchy_map",
    "identity_map",
    "label_map_to_dict",
    "load_label_map",
    "many_to_one_map",
    "match_subsets",
    "match_words",
    "published_map",
    "read_class_tree",
    "read_label_map",
    "read_overrides",
    "read_superclasses",
    "read_vocabulary",
    "subset_map",
    "write_label_map",
]
