"""How alike classes are: distance in the hierarchy, groups of classes, what is seen or guessed together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from heldout.core.errors import LabelError, NotApplicable
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.superclasses import Superclasses
from heldout.data.labels.wordnet import Hierarchy, SpaceDistances
from heldout.data.testset import TestSet
from heldout.measure.mistakes.between_models import Peers
from heldout.measure.score.truth import truth_arrays

if TYPE_CHECKING:
    from scipy import sparse


class Closeness:
    """Lowest common ancestors and path distances between classes of a label space.

    The size of a pair is the number of classes at or under its lowest common ancestor: 2 for two
    classes that share a node with no other, all classes for two that have nothing in common. Of several
    lowest common ancestors the one of fewest classes counts. Classes that do not stand in the
    hierarchy have no closeness.
    """

    def __init__(self, space: LabelSpace, hierarchy: Hierarchy) -> None:
        self.space = space
        inside = [item.id for item in space if item.node in hierarchy]
        if not inside:
            raise LabelError(
                f"no class of {space.name} stands in {hierarchy.name}",
                fix="give its classes their WordNet ids or parents, or do without a hierarchy",
            )
        self._place = np.full(len(space), -1, dtype=np.int64)
        self._place[space.indices(inside)] = np.arange(len(inside))
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

    def covers(self, a: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Whether each class of ``a`` (n,) stands at or over the other of its pair: bool (n,).

        ``nodes`` are those of :meth:`of_pairs`.
        """
        own = np.array([self._code.get(item.node, -1) for item in self.space], dtype=np.int64)
        return np.asarray((nodes >= 0) & (nodes == own[a]))


_ROOTS = {"organism": "n00004475", "artifact": "n00021939"}


def groups_of(space: LabelSpace) -> dict[str, np.ndarray]:
    """Organism, artifact, and ``other`` for classes under neither: bool (classes,) each.

    By WordNet; a class under both is in both. Empty where no class stands in it.
    """
    tree = Hierarchy.wordnet()
    above = [set(tree.distances_up(item.node)) if item.node in tree else set() for item in space]
    if not any(above):
        return {}
    found = {name: np.array([root in up for up in above]) for name, root in _ROOTS.items()}
    return found | {"other": ~np.any(list(found.values()), axis=0)}


PRIOR = 5.0


@dataclass(frozen=True, eq=False)
class PairCounts:
    """How alike classes are, by how often two of them came up together.

    ``counts``  sparse (classes, classes): how often each pair did, at the lower class's row
    ``totals``  (classes,) how often each class did
    ``peers``   the models whose lists of best guesses were counted, if they were
    """

    space: LabelSpace
    counts: sparse.csr_array
    totals: np.ndarray
    peers: Peers | None = None

    def values(self, a: np.ndarray, b: np.ndarray, images: np.ndarray | None = None) -> np.ndarray:
        """Affinity in 0 … 1 of class indices ``a`` (n,) and ``b`` (n,).

        ``images`` (n,) are rows of the peers, -1 for none: what models said of this very image is
        taken out, so that a mistake is not evidence for itself.
        """
        both, n_a, n_b = self.together(a, b), self.totals[a], self.totals[b]
        if self.peers is None:
            found = both / (np.minimum(n_a, n_b) + PRIOR)
        else:
            per_image = self.peers.lists.shape[1]
            lists = np.full(len(a), float(len(self.peers.image_ids) * per_image))
            if images is not None:
                own, own_a, own_b = _own_counts(self.peers, a, b, images)
                both, n_a, n_b = both - own, n_a - own_a, n_b - own_b
                lists -= np.where(images >= 0, per_image, 0)
            found = both / (np.minimum(n_a, n_b) + PRIOR)
            base = np.minimum(np.maximum(n_a, n_b) / np.maximum(lists, 1.0), 1.0)
            found = (found - base) / np.maximum(1.0 - base, 1e-9)
        return np.where(a == b, 1.0, np.clip(found, 0.0, 1.0))

    def together(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """How often classes ``a`` (n,) and ``b`` (n,) came up together."""
        if not len(a):
            return np.zeros(0)
        return np.asarray(self.counts[np.minimum(a, b), np.maximum(a, b)], np.float64).reshape(-1)


def _pairs_in_lists(lists: np.ndarray, labels: np.ndarray, size: int) -> sparse.csr_array:
    """How many lists hold each pair of classes, at the lower one's row; from (list, class) rows."""
    from scipy import sparse

    held = sparse.csr_array(
        (np.ones(len(lists), dtype=np.int64), (lists, labels)),
        shape=(int(lists.max(initial=-1)) + 1, size),
    )
    return sparse.triu(held.T @ held, k=1, format="csr")


@dataclass(frozen=True, eq=False, kw_only=True)
class Cooccurrence:
    """Unordered pairs of classes that are labels of one image.

    ``counts``   sparse (classes, classes): images with both, at the lower class's row
    ``images``   looked at: ``empty`` of them have no label in this truth and are passed over,
                 ``single`` have one label
    """

    testset: str
    truth: str
    space: LabelSpace
    counts: sparse.csr_array
    images: int
    empty: int
    single: int

    def __len__(self) -> int:
        return int(self.counts.nnz)

    @property
    def total(self) -> int:
        """How often any two classes are together: the sum of all counts."""
        return int(self.counts.sum())

    @property
    def affinity(self) -> PairCounts:
        """The same as affinity: how often, and of how many pairs of a class."""
        totals = self.counts.sum(axis=0) + self.counts.sum(axis=1)
        return PairCounts(self.space, self.counts, np.asarray(totals, dtype=np.float64))

    def pairs(
        self, minimum: int = 2, *, apart: Superclasses | None = None
    ) -> dict[tuple[str, str], int]:
        """Pairs of ids of at least ``minimum`` images, most frequent first.

        Two classes of one superclass of ``apart`` are left out: they are together by likeness and not
        by context.
        """
        cells = self.counts.tocoo()
        (first, second), n, ids = cells.coords, cells.data, self.space.ids
        kept = n >= minimum
        if apart is not None:
            kept &= apart.common(first, second) < 0
        order = np.lexsort((second, first, -n))
        return {(ids[first[at]], ids[second[at]]): int(n[at]) for at in order[kept[order]]}


def cooccurrence(
    testset: TestSet, *, truth: str | None = None, without: str | None = None
) -> Cooccurrence:
    """Count the classes that a truth sees together; an image's own class joins its labels.

    An image without any label in the truth is passed over even so. ``without`` is a truth whose images
    are left out, so that pairs and mistakes come from different images.

    With the ReaL labels of the ImageNet validation images outside the multi-label ones, these are the
    pairs of M. Peychev et al., "Automated classification of model errors on ImageNet", 2023.
    """
    arrays = truth_arrays(testset, truth)
    size = len(arrays.space)
    kept = ~arrays.problematic
    if without is not None:
        kept &= ~np.isin(arrays.rows, truth_arrays(testset, without).rows)
    looked = len(np.unique(arrays.rows[kept]))
    if not looked:
        raise NotApplicable(
            f"truth {arrays.name} of {testset.name} has no image outside truth {without}",
            fix="leave --without-truth away",
        )
    labelled = np.unique(np.concatenate([arrays.correct.keys, arrays.unclear.keys]))
    used = kept & np.isin(np.arange(len(arrays)), labelled // size)
    own = np.flatnonzero(used & (arrays.labels >= 0))
    rows, labels = np.divmod(np.union1d(labelled, own * size + arrays.labels[own]), size)
    # Rows of one image belong together, whatever the classes that they stand for.
    keys = np.unique(arrays.rows[rows[used[rows]]] * size + labels[used[rows]])
    images, lists = np.unique(keys // size, return_inverse=True)
    return Cooccurrence(
        testset=testset.name,
        truth=arrays.name,
        space=arrays.space,
        counts=_pairs_in_lists(lists, keys % size, size),
        images=looked,
        empty=looked - len(images),
        single=int((np.bincount(lists) == 1).sum()),
    )


def co_prediction(peers: Peers) -> PairCounts:
    """Affinity from the best guesses of models: two classes are alike if lists hold both."""
    size, counts = len(peers.space), []
    for lists in np.moveaxis(peers.lists, 1, 0):
        rows, ranks = np.nonzero(lists >= 0)
        counts.append(_pairs_in_lists(rows, lists[rows, ranks], size))
    totals = np.bincount(peers.lists[peers.lists >= 0], minlength=size)
    return PairCounts(peers.space, sum(counts), totals, peers)


def _own_counts(
    peers: Peers, a: np.ndarray, b: np.ndarray, images: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How many lists of each pair's own image hold both, the first, the second."""
    both, n_a, n_b = np.zeros((3, len(a)))
    for lists in np.moveaxis(peers.lists, 1, 0):
        mine = np.where(images[:, None] >= 0, lists[images], -1)
        has_a, has_b = ((mine == side[:, None]).any(axis=1) for side in (a, b))
        both += has_a & has_b
        n_a += has_a
        n_b += has_b
    return both, n_a, n_b
