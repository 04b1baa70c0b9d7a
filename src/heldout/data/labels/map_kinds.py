"""The kinds of label map and how each is made: identity, subset, many-to-one, hierarchy.

``reading`` has no default here: whether the argmax is over K or over N is always the caller's word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from heldout.core.errors import LabelError
from heldout.data.labels.hierarchy import Hierarchy
from heldout.data.labels.label_maps import Kind, LabelMap, Reading
from heldout.data.labels.label_space import LabelSpace


def identity_map(space: LabelSpace) -> LabelMap:
    """Predictions and truth in the same label space; both readings are the same."""
    accepted = tuple((position,) for position in range(len(space)))
    return LabelMap("identity", "identity", space, space, accepted, "full")


def subset_map(
    source: LabelSpace,
    target: LabelSpace | Iterable[str],
    *,
    reading: Reading,
    name: str | None = None,
) -> LabelMap:
    """A test set that has only some of the model's classes, under the same ids.

    ``target`` is a label space or the ids in the order wanted; ids need a ``name``.
    """
    if not isinstance(target, LabelSpace):
        target = source.subset(_needed(name, "ids"), target)
    accepted = tuple((source.index(class_id),) for class_id in target.ids)
    return LabelMap(name or target.name, "subset", source, target, accepted, reading)


def many_to_one_map(
    source: LabelSpace,
    groups: Mapping[str, Iterable[str]],
    *,
    reading: Reading,
    name: str | None = None,
    target: LabelSpace | None = None,
    allow_overlap: bool = False,
) -> LabelMap:
    """Target classes that each accept several source classes; ``groups``: target id to source ids.

    Without ``target`` the targets are the keys in their order. A source class in two groups is
    refused unless ``allow_overlap``.
    """
    for key, group in groups.items():
        if isinstance(group, str):
            raise LabelError(f"the group of {key!r} is one text", fix="give a list of class ids")
    if target is None:
        target = LabelSpace.from_ids(_needed(name, "groups"), groups)
    for key in groups:
        target.index(key)
    accepted = tuple(
        tuple(sorted({source.index(class_id) for class_id in groups.get(key, ())}))
        for key in target.ids
    )
    single = all(len(sources) == 1 for sources in accepted)
    flat = [sources[0] for sources in accepted if sources]
    kind: Kind = "subset" if single and len(set(flat)) == len(flat) else "many-to-one"
    return LabelMap(
        name or target.name, kind, source, target, accepted, reading, allow_overlap=allow_overlap
    )


def hierarchy_map(
    source: LabelSpace,
    target: LabelSpace | Iterable[str],
    *,
    reading: Reading,
    name: str | None = None,
    hierarchy: Hierarchy | None = None,
    allow_overlap: bool = False,
) -> LabelMap:
    """Target classes that are nodes of a hierarchy: each accepts the source classes at or under it.

    ``target`` is a label space whose classes have WordNet ids (or ids that are nodes), or node ids.
    The hierarchy is WordNet's unless another is given. Nested nodes such as dog and animal share
    classes, which is refused unless ``allow_overlap``.
    """
    tree = Hierarchy.wordnet() if hierarchy is None else hierarchy
    if not isinstance(target, LabelSpace):
        nodes = tuple(target)
        for node in nodes:
            tree.parents(node)
        if hierarchy is None:
            target = LabelSpace.load("wordnet-nodes").subset(_needed(name, "nodes"), nodes)
        else:
            target = LabelSpace.from_ids(_needed(name, "nodes"), nodes)
    positions: dict[str, list[int]] = {}
    for position, item in enumerate(source):
        positions.setdefault(item.node, []).append(position)
    if not any(node in tree for node in positions):
        raise LabelError(
            f"no class of {source.name} is a node of {tree.name}",
            fix="give its classes their wnid, or a hierarchy that holds them",
        )
    accepted = []
    for item in target:
        below = tree.distances_down(item.node)
        under = [positions[node] for node in below if node in positions]
        accepted.append(tuple(int(i) for i in np.sort(np.concatenate([[], *under]).astype(int))))
    return LabelMap(
        name or target.name,
        "hierarchy",
        source,
        target,
        tuple(accepted),
        reading,
        allow_overlap=allow_overlap,
    )


def _needed(name: str | None, what: str) -> str:
    if name is None:
        raise LabelError(f"a label map made from {what} needs a name", fix="give name=")
    return name
