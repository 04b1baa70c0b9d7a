"""Trees of classes and vocabularies of words as published: nested JSON, read with care.

A tree is ``{"id": …, "name": …, "index": …, "children": [...]}``. Its root stands for the whole
and is no class. The same id may stand under several parents. A key that is ``children`` but for
spaces is read as ``children``: the published ImageNet tree has ``child  ren`` under airplane, which
hides its only class.

A vocabulary is ``{"parent": ["word", ...]}``; parents are words too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from heldout.core.errors import BadFile, LabelError
from heldout.core.files import read_json
from heldout.data.labels.hierarchy import Hierarchy


@dataclass(frozen=True, eq=False)
class ClassTree:
    """A tree of classes without its root; a node may have several parents.

    ``hierarchy``  who stands under whom, by id
    ``names``      what the file calls each node
    ``indices``    the ``index`` of the leaves that have one
    ``entries``    how often nodes are listed in the file; one with two parents counts twice
    ``notes``      what was repaired
    """

    name: str
    hierarchy: Hierarchy
    names: Mapping[str, str]
    indices: Mapping[str, int]
    entries: int
    notes: tuple[str, ...] = ()

    def __contains__(self, node: object) -> bool:
        return node in self.hierarchy

    def __len__(self) -> int:
        return len(self.hierarchy)

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """Nodes with nothing below them, sorted: the classes that a model predicts."""
        return tuple(node for node in self.hierarchy.nodes if not self.hierarchy.children(node))

    def leaves_under(self, node: str) -> tuple[str, ...]:
        """The leaves at or under ``node``, sorted; a new value for each node, shared with none."""
        below = self.hierarchy.distances_down(node)
        return tuple(sorted(node for node in below if not self.hierarchy.children(node)))


def read_class_tree(path: Path) -> ClassTree:
    """Read a tree of classes; one in which a node stands under itself is refused."""
    root = read_json(path)
    _checked_node(path, root, "the root")
    parents: dict[str, dict[str, None]] = {}
    names: dict[str, str] = {}
    indices: dict[str, int] = {}
    notes: list[str] = []
    entries = 0
    waiting: list[tuple[dict[str, Any], str | None]] = [(root, None)]
    while waiting:
        item, parent = waiting.pop()
        node = item["id"]
        if item is not root:
            entries += 1
            above = parents.setdefault(node, {})
            if parent is not None:
                above[parent] = None
            names.setdefault(node, str(item.get("name", node)))
            _keep_index(path, indices, node, item.get("index"))
        inside = _children(path, item, notes)
        for child in reversed(inside):  # the stack gives them back in the order of the file
            _checked_node(path, child, f"a child of {node!r}")
            waiting.append((child, None if item is root else node))
    if not parents:
        raise BadFile(path, "has no nodes under its root", fix="give a tree with children")
    try:
        hierarchy = Hierarchy(parents, name=path.name)
    except LabelError as error:
        raise BadFile(path, error.message.partition(": ")[2], fix=error.fix) from None
    return ClassTree(path.stem, hierarchy, names, indices, entries, tuple(notes))


def _checked_node(path: Path, item: object, what: str) -> None:
    if not isinstance(item, dict) or not isinstance(item.get("id"), str) or not item["id"]:
        raise BadFile(path, f"{what} has no id", fix='write {"id": …, "name": …, "children": […]}')


def _keep_index(path: Path, indices: dict[str, int], node: str, index: object) -> None:
    if index is None:
        return
    if not isinstance(index, int) or isinstance(index, bool) or index < 0:
        raise BadFile(path, f"node {node} has the index {index!r}", fix="write a whole number")
    if indices.setdefault(node, index) != index:
        raise BadFile(
            path, f"node {node} has the indices {indices[node]} and {index}", fix="give it one"
        )


def _children(path: Path, item: dict[str, Any], notes: list[str]) -> list[Any]:
    found: list[Any] = []
    for key, value in item.items():
        if "".join(key.split()).casefold() != "children":
            continue
        if key != "children":
            notes.append(f"{path.name}: read the key {key!r} of {item['id']} as 'children'")
        if not isinstance(value, list):
            raise BadFile(path, f"children of {item['id']} are no list", fix="write a list")
        found += value
    return found


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Words with the words directly above them, in the order of their first appearance.

    ``notes``  what was left out, such as words that were listed under themselves
    """

    parents: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """All words, in order."""
        return tuple(self.parents)

    def __len__(self) -> int:
        return len(self.parents)

    def __contains__(self, word: object) -> bool:
        return word in self.parents


def read_vocabulary(path: Path) -> Vocabulary:
    """Read ``{"parent": ["word", ...]}``; a longer way back to a word itself is refused.

    The published hierarchy lists 19 words under themselves; that is left out with a note.
    """
    value = read_json(path)
    if not isinstance(value, dict) or not value:
        raise BadFile(path, "is no hierarchy of words", fix='write {"parent": ["word", ...]}')
    found: dict[str, dict[str, None]] = {}
    own: list[str] = []
    for parent, words in value.items():
        if not isinstance(words, list) or not all(isinstance(w, str) and w for w in words):
            raise BadFile(path, f"the words of {parent!r} are no list of texts", fix="mend it")
        found.setdefault(parent, {})
        for word in words:
            above = found.setdefault(word, {})
            if word == parent:
                own.append(word)
            else:
                above[parent] = None
    try:
        Hierarchy(found, name=path.name)
    except LabelError as error:
        raise BadFile(path, error.message.partition(": ")[2], fix=error.fix) from None
    notes = []
    if own:
        shown = ", ".join(own[:5]) + (" …" if len(own) > 5 else "")
        notes.append(f"{path.name}: {len(own)} words stand under themselves ({shown}), left out")
    return Vocabulary({word: tuple(above) for word, above in found.items()}, tuple(notes))
