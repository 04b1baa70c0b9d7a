"""Class ids in an order that nobody knows: the best one is fitted, and judged on other images.

The assignment of ids to classes that hits most is found from half of the images, and its hits are
counted on the other half, and the other way round. A fitted order is flattering on the images that
it was fitted to; on the others it is not, so that the comparison with the ids as given is fair.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heldout.data.testset.rowhash import row_hash
from heldout.measure.doctor.case import Case, read
from heldout.measure.doctor.evidence import ALPHA, beats, by_chance, expected_hits, hits_of

MANY = 100
"""Classes from which on an accuracy of 30 % needs no other explanation."""
FEW = 0.2
"""Up to this share of the classes, an exchange is told class by class."""


def sure(classes: int) -> float:
    """Accuracy that a fitted order needs where one rank alone is stored.

    With several ranks, right ids show themselves in the lower ranks even of images that were
    chosen because models get them wrong. One rank alone cannot tell such a set from exchanged
    classes, whose look-alikes a model confuses: an order fitted to the mistakes of ResNet-50 on
    ImageNet hits 18 % of them.
    """
    return 0.3 if classes >= MANY else 0.5


@dataclass(frozen=True, eq=False, kw_only=True)
class Permutation:
    """A fitted order of class ids that is better than the present reading.

    ``relabel``    int64 (positions,): fitted on all images, restricted to what was proven
    ``moved``      classes, sorted, whose id is another than the present reading has
    ``crossed``    top-1 accuracy on images that the order was not fitted to
    ``p``          of the test that proves it
    """

    relabel: np.ndarray
    moved: tuple[int, ...]
    crossed: float
    p: float


def match_classes(
    labels: np.ndarray, topk: np.ndarray, *, classes: int, positions: int, present: np.ndarray
) -> np.ndarray:
    """For each class the id that stands for it most often, no id twice; int64 (classes,).

    Maximises the sum over classes of how often the id is among a class's outputs, where rank r
    counts 1/r: the assignment problem, solved on the sparse counts (Jonker and Volgenant 1987).
    Ties go to the ``present`` reading. -1 for a class without evidence.
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    k = topk.shape[1]
    rows = np.repeat(labels, k)
    ids = topk.ravel()
    weights = np.tile(1.0 / np.arange(1, k + 1), len(labels))
    use = (rows >= 0) & (ids >= 0) & (ids < positions)
    keys, inverse = np.unique(rows[use] * positions + ids[use], return_inverse=True)
    counts = np.bincount(inverse, weights[use], minlength=len(keys))
    of_class, of_id = keys // positions, keys % positions
    # Each class may also stay without an id, at a price below any evidence.
    smallest = 1.0 / k
    counts = counts + np.where(present[of_id] == of_class, smallest / 2, 0.0)
    alone = np.arange(classes)
    table = csr_matrix(
        (
            np.concatenate([counts, np.full(classes, smallest / 4)]),
            (np.concatenate([of_class, alone]), np.concatenate([of_id, positions + alone])),
        ),
        shape=(classes, positions + classes),
    )
    _, matched = min_weight_full_bipartite_matching(table, maximize=True)
    found = np.asarray(matched, dtype=np.int64)
    return np.where(found < positions, found, -1)


def completed(matched: np.ndarray, present: np.ndarray) -> np.ndarray:
    """The class of each id, int64 (positions,): ids that no class claimed keep theirs if it is free.

    Where there are as many ids as classes, what is then left is dealt out in order, so that every
    id means one class.
    """
    relabel = np.full(len(present), -1, dtype=np.int64)
    claimed = np.flatnonzero(matched >= 0)
    relabel[matched[claimed]] = claimed
    free = np.ones(len(matched), dtype=bool)
    free[claimed] = False
    for position in np.flatnonzero(relabel < 0):
        own = present[position]
        if own >= 0 and free[own]:
            relabel[position] = own
            free[own] = False
    if len(present) == len(matched):
        relabel[relabel < 0] = np.flatnonzero(free)
    return relabel


@dataclass(frozen=True, eq=False)
class _Halves:
    """Orders fitted on each half of the images, and what each says of the other half.

    ``parts``    bool (n,) twice: the images of each half; ``orders[i]`` is fitted on ``parts[i]``
    ``guesses``  int64 (n, k): every image read by the order that was not fitted to it
    """

    case: Case
    parts: tuple[np.ndarray, np.ndarray]
    orders: tuple[np.ndarray, np.ndarray]
    guesses: np.ndarray

    @property
    def hits(self) -> np.ndarray:
        return hits_of(self.guesses[:, : self.case.ranks], self.case.labels)


def find_permutations(case: Case, *, alpha: float = ALPHA) -> list[Permutation]:
    """Fitted orders of ids that beat the present reading on images not fitted to: one, or none."""
    halves = _halves(case)
    top1 = float(((halves.guesses[:, 0] == case.labels) & case.labelled).sum()) / max(case.n, 1)
    p = beats(halves.guesses, case.guesses, case.labels, ranks=case.ranks)
    # Random pairing within each half, as each half has its own order.
    expected = sum(
        expected_hits(
            case.labels[rows], halves.guesses[rows][:, : case.ranks], classes=case.classes
        )
        for rows in halves.parts
    )
    enough = case.ranks > 1 or top1 >= sure(case.classes)
    if p < alpha and by_chance(int(halves.hits.sum()), expected) < alpha and enough:
        relabel = _fitted(halves.case, case.labelled)
        return [Permutation(relabel=relabel, moved=_moved(relabel, case), crossed=top1, p=p)]
    return []


def _halves(case: Case) -> _Halves:
    """Fit each half; columns may be stored worst first, so both directions are tried."""
    half = (row_hash(case.testset.image_ids, seed=0) & np.uint64(1)).astype(bool)
    parts = (case.labelled & ~half, case.labelled & half)
    made = []
    for turned in (case, case.turned())[: 1 if case.topk.shape[1] == 1 else 2]:
        orders = (_fitted(turned, parts[0]), _fitted(turned, parts[1]))
        guesses = np.where(half[:, None], read(case.topk, orders[0]), read(case.topk, orders[1]))
        made.append(_Halves(turned, parts, orders, guesses))
    # Where all ranks are looked at, hits do not depend on the direction, and the better fit wins.
    return max(made, key=lambda halves: int(halves.hits.sum()))


def _fitted(case: Case, rows: np.ndarray) -> np.ndarray:
    matched = match_classes(
        case.labels[rows],
        case.topk[rows],
        classes=case.classes,
        positions=len(case.relabel),
        present=case.relabel,
    )
    return completed(matched, case.relabel)


def _moved(relabel: np.ndarray, case: Case) -> tuple[int, ...]:
    changed = relabel != case.relabel
    classes = np.union1d(relabel[changed], case.relabel[changed])
    present = np.unique(case.labels[case.labelled])
    return tuple(int(c) for c in np.intersect1d(classes[classes >= 0], present))
