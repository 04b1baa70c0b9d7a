"""WordNet: the built-in label spaces, the hierarchy over classes, path distances, and nouns.

``tools/derive_labels.py``, ``tools/derive_wordnet_index.py`` and ``tools/derive_class_links.py`` make
the committed tables; they are read when first used.

A hierarchy is a directed graph without cycles; a node may have several parents (498 of the 23,548
built-in ones do). The built-in one is the part of WordNet 3.0's nouns that lies over the classes of
ImageNet-1k, ImageNet-21k and CIFAR-10, with hypernyms and instance hypernyms alike as parents. It
has one root, ``n00001740`` (entity).
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from heldout.core.errors import BadFile, LabelError
from heldout.core.files import existing_file
from heldout.data.labels.label_space import Class, LabelSpace

DATA = Path(__file__).parent / "data"
WIKIPEDIA = "https://en.wikipedia.org/wiki/"
WIKIPEDIA_PAGES = "wikipedia-1k.tsv.gz"
SYNSETS = "wordnet-nouns.tsv.gz"
EXCEPTIONS = "wordnet-noun-exceptions.tsv.gz"
_SMALL = ("wordnet-1k.tsv.gz",)
_ALL = ("wordnet-1k.tsv.gz", "wordnet-21k.tsv.gz")
# Name: the tables to read, and the flag of the wanted rows ("" keeps every row).
_FROM_TABLES: dict[str, tuple[tuple[str, ...], str]] = {
    "imagenet-1k": (_SMALL, "1"),
    "imagenet-21k": (_ALL, "2"),
    "imagenet-a": (_SMALL, "a"),
    "imagenet-r": (_SMALL, "r"),
    "wordnet-nodes": (_ALL, ""),
}
BUILT_IN: tuple[str, ...] = (*_FROM_TABLES, "cifar-10")
"""Names that :meth:`LabelSpace.load` knows.

``imagenet-1k``    1,000 classes in the order of every published checkpoint: sorted WordNet ids; it and
                   its parts come with the Wikipedia pages that ImageNetV2 showed to workers
``imagenet-21k``   21,843 classes, sorted WordNet ids (the list with which ViT and BiT were trained)
``imagenet-a``     200 of ImageNet-1k, the classes of ImageNet-A
``imagenet-r``     200 of ImageNet-1k, the classes of ImageNet-R
``cifar-10``       10 classes; ids are the published names, WordNet senses are our reading
``wordnet-nodes``  every node of the built-in hierarchy: classes above and everything over them
"""


def _rows(table: str) -> list[list[str]]:
    text = gzip.decompress((DATA / table).read_bytes()).decode("utf-8")
    return [line.split("\t") for line in text.split("\n")[:-1]]


@cache
def load_built_in(name: str) -> LabelSpace:
    """A built-in label space; read once, then shared."""
    if name == "cifar-10":
        return LabelSpace.read(DATA / "cifar-10.json")
    if name not in _FROM_TABLES:
        raise LabelError(
            f"no built-in label space {name!r}", fix=f"use one of {', '.join(BUILT_IN)}"
        )
    tables, flag = _FROM_TABLES[name]
    pages = {} if tables == _ALL else dict(_rows(WIKIPEDIA_PAGES))
    classes = [
        Class(
            wnid,
            tuple(names.split("|")),
            wnid,
            gloss,
            tuple(parents.split()),
            links=tuple(WIKIPEDIA + title for title in pages[wnid].split("|")) if pages else (),
        )
        for table in tables
        for wnid, flags, parents, names, gloss in _rows(table)
        if flag in flags
    ]
    classes.sort(key=lambda item: item.id)
    return LabelSpace(name, tuple(classes))


def is_built_in(space: LabelSpace) -> bool:
    """Whether a label space is one that every installation has, so that its name says it all."""
    return space.name in BUILT_IN and load_built_in(space.name).fingerprint == space.fingerprint


class Hierarchy:
    """Nodes and the nodes directly above them; every answer is in a stated, fixed order."""

    def __init__(self, parents: Mapping[str, Iterable[str]], *, name: str = "hierarchy") -> None:
        """``parents``: each node's parents. A parent that is not a key is a root."""
        self.name = name
        known = {node: tuple(dict.fromkeys(above)) for node, above in parents.items()}
        for above in list(known.values()):
            for node in above:
                known.setdefault(node, ())
        self._parents = known
        try:
            TopologicalSorter(known).prepare()
        except CycleError as error:
            raise LabelError(
                f"{name}: {min(error.args[1])!r} is above itself", fix="remove the cycle"
            ) from None

    @classmethod
    @cache
    def wordnet(cls) -> Hierarchy:
        """The built-in hierarchy; read once, then shared."""
        parents = {wnid: above.split() for table in _ALL for wnid, _, above, _, _ in _rows(table)}
        return cls(parents, name="wordnet-3.0")

    @classmethod
    def from_label_space(cls, space: LabelSpace) -> Hierarchy:
        """The hierarchy that a label space's own ``parents`` give.

        A parent is a node, or the id of a class, which is then replaced by the node of that class.
        """
        nodes = {item.node for item in space}
        parents: dict[str, tuple[str, ...]] = {}
        for item in space:
            above = tuple(
                space.get(parent).node if parent in space and parent not in nodes else parent
                for parent in item.parents
            )
            if parents.setdefault(item.node, above) != above:
                raise LabelError(
                    f"{space.name}: two classes have the node {item.node} and different parents",
                    fix="give them the same parents",
                )
        return cls(parents, name=space.name)

    def __len__(self) -> int:
        return len(self._parents)

    def __contains__(self, node: object) -> bool:
        return node in self._parents

    def __repr__(self) -> str:
        return f"Hierarchy({self.name!r}, {len(self)} nodes)"

    @cached_property
    def _children(self) -> dict[str, tuple[str, ...]]:
        below: dict[str, list[str]] = {node: [] for node in self._parents}
        for node, above in self._parents.items():
            for parent in above:
                below[parent].append(node)
        return {node: tuple(sorted(items)) for node, items in below.items()}

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """All nodes, sorted."""
        return tuple(sorted(self._parents))

    def parents(self, node: str) -> tuple[str, ...]:
        """The nodes directly above, in the order given (WordNet's own)."""
        try:
            return self._parents[node]
        except (KeyError, TypeError):
            raise LabelError(
                f"{node!r} is not a node of {self.name}",
                fix="search the label space wordnet-nodes for its id",
            ) from None

    def children(self, node: str) -> tuple[str, ...]:
        """The nodes directly below, sorted."""
        self.parents(node)
        return self._children[node]

    def distances_up(self, node: str) -> dict[str, int]:
        """The node (0) and all above it, each with the fewest steps up that reach it."""
        self.parents(node)
        return _reach(node, self._parents)

    def distances_down(self, node: str) -> dict[str, int]:
        """The node (0) and all below it, each with the fewest steps down that reach it."""
        self.parents(node)
        return _reach(node, self._children)

    def ancestors(self, node: str) -> tuple[str, ...]:
        """All nodes above, without the node itself: nearest first, then by id."""
        steps = self.distances_up(node)
        return tuple(sorted(steps.keys() - {node}, key=lambda above: (steps[above], above)))

    def is_under(self, node: str, ancestor: str) -> bool:
        """Whether ``node`` is ``ancestor`` or below it."""
        self.parents(ancestor)
        return ancestor in self.distances_up(node)

    def depth(self, node: str) -> int:
        """The fewest steps up to a root; a root has depth 0."""
        return min(
            steps for above, steps in self.distances_up(node).items() if not self._parents[above]
        )

    def leaves(self, node: str, space: LabelSpace) -> tuple[str, ...]:
        """Ids of the classes of ``space`` at or under ``node``, in the label space's order.

        A class counts even where another class of the same space is below it: ImageNet-1k
        has no such pair, ImageNet-21k has thousands.
        """
        below = self.distances_down(node)
        return tuple(item.id for item in space if item.node in below)

    def path_distance(self, a: str, b: str) -> int:
        """The fewest steps from ``a`` up to a node over both and down to ``b``; 0 for itself.

        Several roots are joined by a virtual root, one step over each of them, which counts like
        any node. WordNet's nouns have one root, so there it never matters.
        """
        up_a, up_b = self.distances_up(a), self.distances_up(b)
        over_all = self.depth(a) + self.depth(b) + 2
        return min([over_all, *(up_a[node] + up_b[node] for node in up_a if node in up_b)])

    def path_similarity(self, a: str, b: str) -> float:
        """``1 / (1 + path_distance)``: 1 for the node itself, 1/2 for a parent, 1/3 for a sibling.

        The ``path`` measure of WordNet::Similarity and NLTK (Pedersen, Patwardhan, Michelizzi
        2004), which likewise counts instance hypernyms as steps.
        """
        return 1.0 / (1 + self.path_distance(a, b))


def _reach(start: str, edges: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    steps = {start: 0}
    waiting = [start]
    for node in waiting:  # it grows on the way: nearest first
        for following in edges[node]:
            if following not in steps:
                steps[following] = steps[node] + 1
                waiting.append(following)
    return steps


class SpaceDistances:
    """Path distances between all classes of a label space, one row at a time.

    For every node that lies over some class it keeps those classes and their steps below it. A row
    is then a minimum over the few nodes above one class, so memory grows with classes times depth:
    ImageNet-21k's 21,843 rows need no 21,843 x 23,548 table.
    """

    def __init__(self, space: LabelSpace, hierarchy: Hierarchy | None = None) -> None:
        """The hierarchy is WordNet's unless another is given."""
        self.space = space
        self.hierarchy = Hierarchy.wordnet() if hierarchy is None else hierarchy
        self._up: list[dict[str, int]] = []
        for item in space:
            if item.node not in self.hierarchy:
                raise LabelError(
                    f"class {item.id!r} of {space.name} is not a node of {self.hierarchy.name}",
                    fix="give its wnid, or a hierarchy that holds it",
                )
            self._up.append(self.hierarchy.distances_up(item.node))
        below: dict[str, tuple[list[int], list[int]]] = {}
        for position, up in enumerate(self._up):
            for node, steps in up.items():
                positions, distances = below.setdefault(node, ([], []))
                positions.append(position)
                distances.append(steps)
        self._below = {
            node: (np.array(positions), np.array(distances, dtype=np.int16))
            for node, (positions, distances) in below.items()
        }
        roots = {node for node in below if not self.hierarchy.parents(node)}
        self._depths = np.array(
            [min(up[n] for n in up.keys() & roots) for up in self._up], np.int16
        )

    def row(self, position: int) -> NDArray[np.int16]:
        """Distances from the class at ``position`` to all classes, shape (n,)."""
        row: NDArray[np.int16] = self._depths[position] + self._depths + np.int16(2)
        for node, steps in self._up[position].items():
            positions, distances = self._below[node]
            row[positions] = np.minimum(row[positions], distances + np.int16(steps))
        return row

    def most_similar(self, class_id: str, k: int) -> tuple[str, ...]:
        """Ids of the ``k`` classes nearest to a class, itself first.

        Nearest by path distance. Ties, which are many, go to the class that comes first in the
        label space. On ImageNet-1k with k = 21 this equals ImageNetV2's table in every row and
        rank.
        """
        position = self.space.index(class_id)
        if not 1 <= k <= len(self.space):
            raise LabelError(
                f"{k} most similar classes of {self.space.name}",
                fix=f"ask for 1 to {len(self.space)}",
            )
        row = self.row(position)
        row[position] = -1  # itself first, even where another class has the same node
        return tuple(self.space.ids[other] for other in np.argsort(row, kind="stable")[:k])


_ENTRY = re.compile(r"(\S+) n (\d+) .*?((?: \d{8})+) *")
"""A line of ``index.noun``: a base form, how many synsets it has, and their offsets at the end."""

ENDINGS = (
    ("s", ""),
    ("ses", "s"),
    ("ves", "f"),
    ("xes", "x"),
    ("zes", "z"),
    ("ches", "ch"),
    ("shes", "sh"),
    ("men", "man"),
    ("ies", "y"),
)
"""Endings of nouns and what replaces them, in the order in which they are tried."""


@dataclass(frozen=True, eq=False)
class WordNetNouns:
    """The noun index: which nouns of WordNet 3.0 a word can mean, most usual first.

    WordNet files each noun under its base form. A word as people write it ("bikes", "tennis
    players") is led back to base forms by the rules of its manual page ``morphy(7WN)``: a list of
    exceptions (geese, goose), and endings that are taken off or exchanged. As in NLTK's
    ``synsets``, every base form that WordNet has counts, the word itself before those made from it.

    ``senses``      base form (lower case, underscores for spaces) to WordNet ids, most usual first
    ``exceptions``  irregular form to base forms
    """

    senses: Mapping[str, tuple[str, ...]]
    exceptions: Mapping[str, tuple[str, ...]]

    @classmethod
    @cache
    def built_in(cls) -> WordNetNouns:
        """The index that comes with the package; read once, then shared."""
        exceptions = {form: tuple(bases.split()) for form, bases in _rows(EXCEPTIONS)}
        return cls(senses_of_table(_rows(SYNSETS)), exceptions)

    @classmethod
    def read(cls, folder: Path) -> WordNetNouns:
        """The index of a full WordNet: the folder of ``index.noun`` and ``noun.exc``."""
        return cls(read_index(folder / "index.noun"), read_exceptions(folder / "noun.exc"))

    def base_forms(self, word: str) -> tuple[str, ...]:
        """The base forms of ``word`` that WordNet has, in the order in which their senses count.

        Endings are taken off once; only where nothing is found are they taken off again.
        """
        form = "_".join(word.lower().split())
        if form in self.exceptions:
            return self._known([form, *self.exceptions[form]])
        made = _without_endings([form])
        found = self._known([form, *made])
        while not found and made:
            made = _without_endings(made)
            found = self._known(made)
        return found

    def synsets(self, word: str) -> tuple[str, ...]:
        """WordNet ids of all senses of ``word`` as a noun; empty where it has none.

        A sense that two base forms share counts once, at its first place.
        """
        found = (sense for form in self.base_forms(word) for sense in self.senses[form])
        return tuple(dict.fromkeys(found))

    def _known(self, forms: Iterable[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(form for form in forms if form in self.senses))


def _without_endings(forms: Iterable[str]) -> list[str]:
    return [form[: -len(old)] + new for form in forms for old, new in ENDINGS if form.endswith(old)]


def read_index(path: Path) -> dict[str, tuple[str, ...]]:
    """``index.noun`` as wndb(5WN) describes it: one base form per line, its synset offsets last."""
    found: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(_lines(path), 1):
        if line.startswith("  ") or not line.strip():
            continue  # the licence, at the head of the file
        entry = _ENTRY.fullmatch(line)
        if not entry:
            raise BadFile(
                path, f"line {number} is not an entry of a noun index", fix="give WordNet 3.0's own"
            )
        found[entry[1]] = tuple(f"n{offset}" for offset in entry[3].split()[-int(entry[2]) :])
    return found


def read_exceptions(path: Path) -> dict[str, tuple[str, ...]]:
    """``noun.exc``: one irregular form and its base forms per line."""
    found: dict[str, tuple[str, ...]] = {}
    for line in _lines(path):
        form, *bases = line.split() or [""]
        if bases:
            found[form] = (*found.get(form, ()), *bases)
    return found


def _lines(path: Path) -> list[str]:
    try:
        return existing_file(path, "WordNet file").read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise BadFile(path, "is not UTF-8 text", fix="give WordNet 3.0's own") from None


def senses_of_table(rows: Iterable[Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """The index of a packaged table: one synset per row, in order of offset.

    Two columns: the distance of the synset's offset to the row before, and its base forms joined
    by ``|``. A form with several senses is followed by ``#`` and the place of this one among them.
    """
    ranked: dict[str, list[tuple[int, str]]] = {}
    offset = 0
    for step, forms in rows:
        offset += int(step)
        wnid = f"n{offset:08d}"
        for entry in forms.split("|"):
            form, _, place = entry.partition("#")
            ranked.setdefault(form, []).append((int(place or 1), wnid))
    return {form: tuple(wnid for _, wnid in sorted(ranked[form])) for form in sorted(ranked)}
