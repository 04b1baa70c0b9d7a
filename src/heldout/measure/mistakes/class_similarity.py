"""How alike classes are: distance in the hierarchy, vectors of names, groups of classes, co-occurrence."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from heldout.core.errors import BadFile, LabelError, NotApplicable
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.wordnet import Hierarchy, SpaceDistances
from heldout.data.testset import TestSet
from heldout.measure.mistakes.between_models import Peers, without_repeats
from heldout.measure.mistakes.confusions import ConfusionFile, read_confusion_file
from heldout.measure.score.truth import Truth, truth_arrays

if TYPE_CHECKING:
    from scipy import sparse

EQUAL, OVER, UNDER, APART = 0, 1, 2, 3
"""How one class stands to another: at the same node, over it, under it, none of these."""


class Closeness:
    """Lowest common ancestors and path distances between classes of a label space.

    The size of a pair is the number of classes at or under its lowest common ancestor: 2 for two
    classes that share a node with no other, all classes for two that have nothing in common. Of several
    lowest common ancestors the one of fewest classes counts. Classes that do not stand in the
    hierarchy have no closeness.
    """

    def __init__(self, space: LabelSpace, hierarchy: Hierarchy) -> None:
        self.space, self.hierarchy = space, hierarchy
        inside = [item.id for item in space if item.node in hierarchy]
        if not inside:
            raise LabelError(
                f"no class of {space.name} stands in {hierarchy.name}",
                fix="give its classes their WordNet ids or parents, or do without a hierarchy",
            )
        self._positions = space.indices(inside)
        self._place = np.full(len(space), -1, dtype=np.int64)
        self._place[self._positions] = np.arange(len(inside))
        part = space if len(inside) == len(space) else space.subset(space.name, inside)
        self._distances = SpaceDistances(part, hierarchy)
        self._up = [hierarchy.distances_up(item.node) for item in part]
        below: dict[str, list[int]] = {}
        for place, above in enumerate(self._up):
            for node in above:
                below.setdefault(node, []).append(place)
        self._below = {node: np.array(places) for node, places in below.items()}
        self._nodes = sorted(self._below)
        self._code = {node: code for code, node in enumerate(self._nodes)}

    def of_pairs(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For class indices ``a`` (n,) and ``b`` (n,): size, path distance, and code of the node.

        Size and distance are NaN, and the code is -1, where one of the two has no place in the
        hierarchy; the code is -1 too where the two have no common ancestor.
        """
        size = np.full(len(a), np.nan)
        steps = np.full(len(a), np.nan)
        nodes = np.full(len(a), -1, dtype=np.int64)
        left, right = self._place[a], self._place[b]
        known = np.flatnonzero((left >= 0) & (right >= 0))
        if not len(known):
            return size, steps, nodes
        order = known[np.argsort(left[known], kind="stable")]
        present, starts = np.unique(left[order], return_index=True)
        for place, mine in zip(present.tolist(), np.split(order, starts[1:]), strict=True):
            sizes, codes = self._sizes(place)
            others = right[mine]
            size[mine], nodes[mine] = sizes[others], codes[others]
            steps[mine] = self._distances.row(place)[others]
        return size, steps, nodes

    def _sizes(self, place: int) -> tuple[np.ndarray, np.ndarray]:
        sizes = np.full(len(self._up), len(self._up), dtype=np.float64)
        codes = np.full(len(self._up), -1, dtype=np.int64)
        up = self._up[place]
        # Largest first, and of equal ones the farthest: what stands lower overwrites the higher.
        for node in sorted(up, key=lambda n: (-len(self._below[n]), -up[n], n)):
            below = self._below[node]
            sizes[below], codes[below] = len(below), self._code[node]
        return sizes, codes

    def node(self, code: int) -> str:
        """The node of a code."""
        return self._nodes[code]

    def relations(self, a: np.ndarray, b: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """How each class of ``a`` (n,) stands to that of ``b``, by the nodes of :meth:`of_pairs`."""
        one, other = self._own_codes[a], self._own_codes[b]
        known = nodes >= 0
        found = np.full(len(a), APART, dtype=np.int64)
        found[known & (nodes == other)] = UNDER
        found[known & (nodes == one)] = OVER
        found[known & (one == other)] = EQUAL
        return found

    @cached_property
    def _own_codes(self) -> np.ndarray:
        return np.array([self._code.get(item.node, -1) for item in self.space], dtype=np.int64)


ORGANISM, ARTIFACT = "n00004475", "n00021939"
NODES: Mapping[str, str] = {"organism": ORGANISM, "artifact": ARTIFACT}
REST = "other"


@dataclass(frozen=True, eq=False)
class ClassGroups:
    """Which groups the classes of a label space are in.

    ``names``    the groups, ``other`` last
    ``members``  bool (classes, groups); a class under two nodes is in both groups
    """

    space: LabelSpace
    names: tuple[str, ...]
    members: np.ndarray

    def of_truth(self, truth: Truth) -> np.ndarray:
        """Which groups each row of a truth is in by its correct and unclear labels; bool (n, groups)."""
        found = np.zeros((len(truth), len(self.names)), dtype=bool)
        for lists in (truth.correct, truth.unclear):
            rows, labels = lists.pairs()
            np.logical_or.at(found, rows, self.members[labels])
        return found


def groups_of(
    space: LabelSpace,
    *,
    nodes: Mapping[str, str] = NODES,
    hierarchy: Hierarchy | None = None,
) -> ClassGroups:
    """The groups of a label space: the classes under each of ``nodes``, and ``other``.

    The hierarchy is WordNet's unless another is given. A class that does not stand in it is
    ``other``; if no class does, there are no groups to speak of and that is an error.
    """
    tree = Hierarchy.wordnet() if hierarchy is None else hierarchy
    for name, node in nodes.items():
        if node not in tree:
            raise LabelError(
                f"the node {node!r} of group {name} is not in {tree.name}", fix="correct the groups"
            )
    above = [set(tree.distances_up(item.node)) if item.node in tree else set() for item in space]
    if not any(above):
        raise LabelError(
            f"no class of {space.name} stands in {tree.name}",
            fix="give its classes their WordNet ids, or a hierarchy that holds them",
        )
    inside = np.array([[node in up for node in nodes.values()] for up in above], dtype=bool)
    inside = inside.reshape(len(space), len(nodes))
    rest = ~inside.any(axis=1, keepdims=True)
    return ClassGroups(space, (*nodes, REST), np.hstack([inside, rest]))


MINIMUM = 2


@dataclass(frozen=True, eq=False, kw_only=True)
class Cooccurrence:
    """Unordered pairs of classes that are labels of one image, most frequent first.

    ``first``, ``second``  int64 (pairs,): class indices, first < second
    ``n``        int64 (pairs,): images with both
    ``images``   looked at: ``empty`` of them have no label in this truth and are passed over,
                 ``single`` have one label, ``several`` have more
    """

    testset: str
    truth: str
    without: str | None
    space: LabelSpace
    first: np.ndarray
    second: np.ndarray
    n: np.ndarray
    images: int
    empty: int
    single: int
    several: int

    def __len__(self) -> int:
        return len(self.n)

    @property
    def total(self) -> int:
        """How often any two classes are together: the sum of all counts."""
        return int(self.n.sum())

    @cached_property
    def _counts(self) -> dict[tuple[str, str], int]:
        ids = self.space.ids
        rows = zip(self.first.tolist(), self.second.tolist(), self.n.tolist(), strict=True)
        return {(ids[a], ids[b]): n for a, b, n in rows}

    def count(self, one: str, other: str) -> int:
        """How many images have both classes, whichever is named first."""
        return self._counts.get((one, other), 0) or self._counts.get((other, one), 0)

    def pairs(
        self, minimum: int = MINIMUM, *, apart: Collection[frozenset[str]] = ()
    ) -> dict[tuple[str, str], int]:
        """Pairs of ids of at least ``minimum`` images, most frequent first.

        ``apart`` are groups of similar classes: two classes of one group are not told, because they
        are together by likeness and not by context.
        """
        together: dict[str, set[int]] = {}
        for place, group in enumerate(apart):
            for class_id in group:
                together.setdefault(class_id, set()).add(place)
        return {
            (a, b): n
            for (a, b), n in self._counts.items()
            if n >= minimum and not together.get(a, set()) & together.get(b, set())
        }


def cooccurrence(
    testset: TestSet,
    *,
    truth: str | None = None,
    without: str | None = None,
    original: bool = True,
) -> Cooccurrence:
    """Count the classes that a truth sees together.

    ``without``   a truth whose images are left out, so that pairs and mistakes come from different
                  images
    ``original``  whether an image's own class joins the labels of the truth; an image without any
                  label in the truth is passed over even then

    With the ReaL labels of the ImageNet validation images outside the multi-label ones, these are the
    pairs of M. Peychev et al., "Automated classification of model errors on ImageNet", 2023.
    """
    arrays = truth_arrays(testset, truth)
    size = len(arrays.space)
    kept = ~arrays.problematic
    if without is not None:
        kept &= ~np.isin(arrays.rows, truth_arrays(testset, without).rows)
    labelled = np.unique(np.concatenate([arrays.correct.keys, arrays.unclear.keys]))
    listed = np.bincount(labelled // size, minlength=len(arrays))
    used = kept & (listed > 0)
    if original:
        own = np.flatnonzero(used & (arrays.labels >= 0))
        labelled = np.union1d(labelled, own * size + arrays.labels[own])
    rows, labels = np.divmod(labelled, size)
    # Rows of one image belong together, whatever the classes that they stand for.
    images = arrays.rows[rows]
    keys = np.unique(images[used[rows]] * size + labels[used[rows]])
    images, labels = np.divmod(keys, size)
    starts = np.flatnonzero(np.r_[True, np.diff(images) != 0][: len(images)])
    lengths = np.diff(np.r_[starts, len(images)])
    looked = len(np.unique(arrays.rows[kept]))
    if not looked:
        raise NotApplicable(
            f"truth {arrays.name} of {testset.name} has no image outside truth {without}",
            fix="leave --without away",
        )
    found = _pairs(labels, starts, lengths, size)
    pairs, n = np.unique(found, return_counts=True)
    order = np.lexsort((pairs, -n))
    first, second = np.divmod(pairs[order], size)
    return Cooccurrence(
        testset=testset.name,
        truth=arrays.name,
        without=without,
        space=arrays.space,
        first=first,
        second=second,
        n=n[order].astype(np.int64),
        images=looked,
        empty=looked - len(starts),
        single=int((lengths == 1).sum()),
        several=int((lengths > 1).sum()),
    )


def _pairs(labels: np.ndarray, starts: np.ndarray, lengths: np.ndarray, size: int) -> np.ndarray:
    """Every two labels of one image as ``first * size + second``; labels are sorted in each image."""
    found = [np.empty(0, dtype=np.int64)]
    for length in np.unique(lengths[lengths > 1]).tolist():
        block = labels[starts[lengths == length][:, None] + np.arange(length)]
        a, b = np.triu_indices(length, k=1)
        found.append((block[:, a] * size + block[:, b]).ravel())
    return np.concatenate(found)


PRIOR = 5.0
_BLOCK = 1 << 16


@dataclass(frozen=True, eq=False)
class PairCounts:
    """Affinity from counts of pairs.

    ``counts``  sparse (classes, classes): how often each pair came up, at the lower class's row
    ``totals``  (classes,) how often each class did
    ``lists``   in how many lists they could have; 0 where that is not known
    ``peers``   the models whose lists were counted, if they were
    """

    space: LabelSpace
    source: str
    counts: sparse.csr_array
    totals: np.ndarray
    lists: float = 0.0
    peers: Peers | None = None

    def values(self, a: np.ndarray, b: np.ndarray, images: np.ndarray | None = None) -> np.ndarray:
        """Affinity in 0 … 1 of class indices ``a`` (n,) and ``b`` (n,).

        ``images`` (n,) are rows of the peers, -1 for none: what models said of this very image is
        taken out, so that a mistake is not evidence for itself.
        """
        both, n_a, n_b = self.together(a, b), self.totals[a], self.totals[b]
        lists = np.full(len(a), self.lists)
        if images is not None and self.peers is not None:
            own, own_a, own_b = _own_counts(self.peers, a, b, images)
            both, n_a, n_b = both - own, n_a - own_a, n_b - own_b
            lists -= np.where(images >= 0, _lists_of_an_image(self.peers), 0)
        found: np.ndarray = both / (np.minimum(n_a, n_b) + PRIOR)
        if self.lists:
            base = np.minimum(np.maximum(n_a, n_b) / np.maximum(lists, 1.0), 1.0)
            found = (found - base) / np.maximum(1.0 - base, 1e-9)
        return np.where(a == b, 1.0, np.clip(found, 0.0, 1.0))

    def together(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """How often classes ``a`` (n,) and ``b`` (n,) came up together."""
        if not len(a):
            return np.zeros(0)
        return np.asarray(self.counts[np.minimum(a, b), np.maximum(a, b)], np.float64).reshape(-1)


def pair_counts(
    space: LabelSpace, a: np.ndarray, b: np.ndarray, n: np.ndarray | None = None
) -> sparse.csr_array:
    """Counts of pairs of class indices, whichever is first; each once, or ``n`` times."""
    from scipy import sparse

    size = (len(space), len(space))
    times = np.ones(len(a)) if n is None else n.astype(np.float64)
    return sparse.csr_array((times, (np.minimum(a, b), np.maximum(a, b))), shape=size)


@dataclass(frozen=True, eq=False)
class SimilarityMatrix:
    """Affinity from a matrix (classes, classes) of numbers in 0 … 1; the larger of both directions."""

    space: LabelSpace
    matrix: np.ndarray
    source: str = "similarity"

    def __post_init__(self) -> None:
        size = len(self.space)
        if self.matrix.shape != (size, size):
            raise LabelError(
                f"a similarity of shape {self.matrix.shape} does not fit the {size} classes of "
                f"{self.space.name}",
                fix="give a row and a column for each class, in its order",
            )
        if not np.isfinite(self.matrix).all() or self.matrix.min() < 0 or self.matrix.max() > 1:
            raise LabelError("a similarity lies outside 0 to 1", fix="scale the matrix")

    def values(self, a: np.ndarray, b: np.ndarray, images: np.ndarray | None = None) -> np.ndarray:
        """Affinity of class indices, whatever the images."""
        found: np.ndarray = np.maximum(self.matrix[a, b], self.matrix[b, a]).astype(np.float64)
        return found


Affinity = PairCounts | SimilarityMatrix


def co_prediction(peers: Peers) -> PairCounts:
    """Affinity from the best guesses of models: two classes are alike if lists hold both.

    A list is one model's guesses for one image. Where models keep one guess alone, a list is what all
    of them said of the image.
    """
    totals = np.zeros(len(peers.space))
    none = np.zeros(0, dtype=np.int64)
    counts = pair_counts(peers.space, none, none)
    for lists in np.moveaxis(_lists(peers), 1, 0):
        totals += np.bincount(lists[lists >= 0], minlength=len(totals))
        a, b = (lists[:, side].ravel() for side in np.triu_indices(lists.shape[1], k=1))
        given = (a >= 0) & (b >= 0)
        counts = counts + pair_counts(peers.space, a[given], b[given])
    in_all = float(len(peers.image_ids) * _lists_of_an_image(peers))
    return PairCounts(peers.space, "co-prediction", counts, totals, in_all, peers)


def _lists(peers: Peers) -> np.ndarray:
    """The lists of each image, int (images, lists, ranks)."""
    if peers.topk.shape[2] > 1:
        return peers.topk
    return without_repeats(peers.topk[:, :, 0])[:, None, :]


def _lists_of_an_image(peers: Peers) -> int:
    return peers.topk.shape[1] if peers.topk.shape[2] > 1 else 1


def _own_counts(
    peers: Peers, a: np.ndarray, b: np.ndarray, images: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How many lists of each pair's own image hold both, the first, the second."""
    out, lists = np.zeros((3, len(a))), _lists(peers)
    for start in range(0, len(a), _BLOCK):
        part = slice(start, start + _BLOCK)
        mine = lists[images[part]]
        has_a = (mine == a[part, None, None]).any(axis=2)
        has_b = (mine == b[part, None, None]).any(axis=2)
        known = images[part] >= 0
        for place, holds in enumerate((has_a & has_b, has_a, has_b)):
            out[place, part] = np.where(known, holds.sum(axis=1), 0)
    return out[0], out[1], out[2]


def from_cooccurrence(found: Cooccurrence) -> PairCounts:
    """Pairs of labels of one image, in the same shape: how often, and of how many pairs."""
    return _counted(found.space, "co-occurrence", found.first, found.second, found.n)


def from_confusions(file: ConfusionFile, *, label_space: LabelSpace) -> PairCounts:
    """Affinity from a file of confusions; one of names needs names that only one class has."""

    def index(text: str) -> int:
        return label_space.index(text if file.form == "ids" else label_space.by_name(text).id)

    pairs = np.array(
        [[index(first), index(second)] for first, second in file.pairs], dtype=np.int64
    )
    n = np.array(list(file.pairs.values()))
    return _counted(label_space, "confusions", pairs[:, 0], pairs[:, 1], n)


def _counted(
    space: LabelSpace, source: str, first: np.ndarray, second: np.ndarray, n: np.ndarray
) -> PairCounts:
    totals = sum(np.bincount(side, weights=n, minlength=len(space)) for side in (first, second))
    return PairCounts(space, source, pair_counts(space, first, second, n), np.asarray(totals))


def read_affinity(path: Path, *, label_space: LabelSpace) -> Affinity:
    """Affinity from a file: ``.npy`` is a matrix, ``.json`` a list of confusions."""
    if path.suffix == ".json":
        return from_confusions(
            read_confusion_file(path, label_space=label_space), label_space=label_space
        )
    if path.suffix != ".npy" or not path.is_file():
        raise BadFile(
            path, "is not a file of affinities", fix="give a matrix (.npy) or confusions (.json)"
        )
    try:
        matrix = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise BadFile(path, f"is not a NumPy array ({error})", fix="write it again") from None
    return SimilarityMatrix(label_space, matrix)
