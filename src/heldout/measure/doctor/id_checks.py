"""Checks of class ids: reversed columns, miscounted classes, other label spaces, unknown orders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from heldout.data.labels import PUBLISHED_SUBSETS
from heldout.data.labels.label_space import LabelSpace, folded
from heldout.data.testset.hashing import row_hash
from heldout.measure.doctor.alignment import AlignedOutputs, read
from heldout.measure.doctor.findings import Evidence, Finding, percent
from heldout.measure.doctor.significance import (
    ALPHA,
    by_chance,
    expected_hits,
    first_hits,
    hits_of,
    p_better_twice,
)
from heldout.models.predictions.import_arrays import looks_reversed

Side = Literal["predictions", "testset"]


RELIST = "import the outputs again with --classes FILE, the classes in the order of these ids"


@dataclass(frozen=True, eq=False)
class IdHypothesis:
    """One known way in which class ids are miscounted.

    ``code``     the finding's code if this hypothesis is the right one
    ``what``     the miscount as the beginning of a sentence
    ``relabel``  int64 (positions,): the test set's class that each stored id means, -1 for none
    ``fix``      what to do about it
    ``side``     whose ids it says are miscounted
    """

    code: str
    what: str
    relabel: np.ndarray
    fix: str = RELIST
    side: Side = "predictions"


def known_hypotheses(case: AlignedOutputs) -> Sequence[IdHypothesis]:
    """All hypotheses that could apply, without repeats and without the plain one."""
    present = np.unique(case.labels[case.labelled])
    return _hypotheses(
        case.space, case.testset.label_space, case.relabel.tobytes(), present.tobytes()
    )


# Models of one test set share them, and making them takes longer than trying them.
@lru_cache(maxsize=8)
def _hypotheses(
    space: LabelSpace, target: LabelSpace, relabel: bytes, among: bytes
) -> Sequence[IdHypothesis]:
    plain, present = np.frombuffer(relabel, np.int64), np.frombuffer(among, np.int64)
    positions = len(plain)
    place = {class_id: index for index, class_id in enumerate(target.ids)}

    def within(ids: Sequence[str]) -> np.ndarray:
        """What ids mean that are positions in a list of classes."""
        meant = [place.get(class_id, -1) for class_id in ids[:positions]]
        return np.array(meant + [-1] * (positions - len(meant)), np.int64)

    low, high = np.concatenate([[-1], plain[:-1]]), np.concatenate([plain[1:], [-1]])
    stated = [
        IdHypothesis(
            "off-by-one",
            "class ids are one too high: they count from 1, or a background class stands first",
            low,
            "subtract 1 from every id",
        ),
        IdHypothesis(
            "off-by-one",
            "class ids are one too low for the test set, whose labels may count from 1",
            high,
            "subtract 1 from the class indices of the test set, or add 1 to every id",
            "testset",
        ),
        *(_orders(target, within) if space.fingerprint == target.fingerprint else ()),
        *_spaces(space, target, positions, present, within),
    ]
    seen, found = {plain.tobytes()}, []
    for each in stated:
        if each.relabel.tobytes() not in seen and (each.relabel >= 0).any():
            seen.add(each.relabel.tobytes())
            found.append(each)
    return found


def _orders(
    target: LabelSpace, within: Callable[[Sequence[str]], np.ndarray]
) -> Iterator[IdHypothesis]:
    """Other orders of the same classes, in the outputs and, inverted, in the test set."""
    k = len(target)
    names = [item.names[0] if item.names else item.id for item in target]
    from_1 = list(map(str, range(1, k + 1)))
    orders: list[tuple[str, str, Sequence[str]]] = [
        ("text", "numbers sorted as text: 0, 1, 10, 100, …", list(map(str, range(k)))),
        ("text", "numbers from 1 sorted as text: 1, 10, 100, 1000, …", from_1),
        ("name", "sorted by name", names),
        ("name", "sorted by name without case", list(map(folded, names))),
        ("id", "sorted by class id", target.ids),
        ("id", "sorted by WordNet id", [item.node for item in target]),
    ]
    fixes = {"text": "index: --label-kind index", "name": "name: --label-kind name"}
    for kind, what, keys in orders:
        order = sorted(range(k), key=keys.__getitem__)  # equal keys keep their order
        code = f"{kind}-sorted-classes"
        yield IdHypothesis(
            code,
            f"class ids of the outputs count classes as {what}",
            within([target.ids[index] for index in order]),
        )
        yield IdHypothesis(
            code,
            f"labels of the test set count classes as {what}",
            within([target.ids[index] for index in np.argsort(order, kind="stable")]),
            f"import its folders by {fixes.get(kind, 'WordNet id: --label-kind wnid')}",
            "testset",
        )


def _spaces(
    space: LabelSpace,
    target: LabelSpace,
    positions: int,
    present: np.ndarray,
    within: Callable[[Sequence[str]], np.ndarray],
) -> Iterator[IdHypothesis]:
    """Ids that count within another list of classes: a subset's own, or a whole one's."""
    code = "wrong-label-space"
    if space.fingerprint != target.fingerprint:
        yield IdHypothesis(
            code,
            f"class ids are positions among the {len(target):,} classes of the test set, not "
            f"of {space.name}",
            within(target.ids),
            f"import them in the label space {target.name} with --classes",
        )
    if 1 < len(present) < len(target):
        yield IdHypothesis(
            code,
            f"class ids are positions among the {len(present)} classes that the test set has",
            within([target.ids[index] for index in present]),
        )
    for name in ("imagenet-1k", "imagenet-21k", *PUBLISHED_SUBSETS):
        if name == "imagenet-21k" and positions <= 1000:
            continue  # no id there can differ from the smaller list, and it is slow to read
        other = LabelSpace.load(name)
        if other.fingerprint in (space.fingerprint, target.fingerprint):
            continue
        yield IdHypothesis(
            code,
            f"class ids are positions among the {len(other):,} classes of {name}",
            within(other.ids),
            f"import them with --classes {name}, and score with "
            "--label-map subset:restricted or subset:full",
        )
        if len(present) and present[-1] < len(other) < len(target) <= positions:
            index = {class_id: n for n, class_id in enumerate(other.ids)}
            meant = [index.get(class_id, -1) for class_id in target.ids]
            yield IdHypothesis(
                code,
                f"labels of the test set are positions among the {len(other)} classes of "
                f"{name}, not among the {len(target):,} of {target.name}",
                np.array(meant + [-1] * (positions - len(target)), np.int64),
                f"import the test set with --classes {name}",
                "testset",
            )


MANY = 100
"""Classes from which on an accuracy of 30 % needs no other explanation."""
FEW = 0.2
"""Up to this share of the classes, an exchange is reported class by class."""


def sure(classes: int) -> float:
    """Accuracy that a fitted order needs where one rank alone is stored.

    With several ranks, right ids show themselves in the lower ranks even of images that were
    chosen because models get them wrong. One rank alone cannot tell such a set from exchanged
    classes, whose look-alikes a model confuses: an order fitted to the mistakes of ResNet-50 on
    ImageNet hits 18 % of them.
    """
    return 0.3 if classes >= MANY else 0.5


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
    kept = (relabel < 0) & ~np.isin(present, claimed)
    relabel[kept] = present[kept]
    if len(present) == len(matched):
        relabel[relabel < 0] = np.setdiff1d(np.arange(len(matched)), relabel)
    return relabel


def _fitted(case: AlignedOutputs, rows: np.ndarray) -> np.ndarray:
    matched = match_classes(
        case.labels[rows],
        case.topk[rows],
        classes=case.classes,
        positions=len(case.relabel),
        present=case.relabel,
    )
    return completed(matched, case.relabel)


Step = tuple[list[Finding], AlignedOutputs]
"""Findings, and the case as it would be after their repairs: later checks look at that."""

FLOOR = 0.1
"""Share of the images that a reading must hit before it is taken for the right one."""
SURE_OF_KNOWN = 0.15
"""As ``sure`` of :mod:`heldout.measure.doctor.id_checks`, for known orders of many classes: few to try."""


def check_reversed(case: AlignedOutputs) -> Step:
    """Columns stored worst first."""
    if not looks_reversed(case.guesses, case.labels):
        return [], case
    first, last = case.accuracy(), case.accuracy(column=-1)
    finding = case.finding(
        "reversed-topk",
        f"the first column is right for {percent(first)} of the images, the last for "
        f"{percent(last)}: columns are stored worst first",
        {"n": case.n, "top1_as_given": first, "top1_repaired": last},
        "import the file again without --no-repair, which turns such columns round",
    )
    return [finding], case.turned()


def check_range(case: AlignedOutputs) -> Step:
    """Ids that the label space does not have; the other checks say what they mean."""
    outside = (case.topk >= len(case.space)) | (case.topk < -1)
    if not outside.any():
        return [], case
    largest = int(case.topk.max())
    finding = case.finding(
        "ids-out-of-range",
        f"{int(outside.any(axis=1).sum()):,} of {len(case.topk):,} rows have class ids "
        f"outside 0..{len(case.space) - 1}, up to {largest}",
        {
            "rows": int(outside.any(axis=1).sum()),
            "smallest": int(case.topk.min()),
            "largest": largest,
            "classes": len(case.space),
        },
        "name the model's label space with --classes, or correct the ids as the next finding says",
    )
    return [finding], case


def check_known(case: AlignedOutputs) -> Step:
    """Ids that are counted in a known wrong way."""
    hypotheses = known_hypotheses(case)
    both_ends = case.ranks == case.topk.shape[1]
    outer = case.topk[:, [0, -1]]
    given = int(first_hits(case.guesses, case.labels, both_ends=both_ends).sum())
    most, best, p = -1, None, 1.0
    for hypothesis in hypotheses:
        first = first_hits(read(outer, hypothesis.relabel), case.labels, both_ends=both_ends)
        if int(first.sum()) <= given:
            continue  # it cannot beat the reading as given
        guesses = read(case.topk, hypothesis.relabel)
        total = int(hits_of(guesses[:, : case.ranks], case.labels).sum())
        if total <= most:
            continue
        raw = p_better_twice(guesses, case.guesses, case.labels, ranks=case.ranks)
        level = ALPHA / len(hypotheses)
        if raw < level and believable(case, guesses, alpha=level):
            most, best, p = total, hypothesis, raw
    if best is None:
        return [], case
    before, after = case.accuracy(), case.accuracy(best.relabel)
    finding = case.finding(
        best.code,
        f"{best.what}; top-1 is {percent(before)} as given and {percent(after)} read so",
        {
            "n": case.n,
            "top1_as_given": before,
            "top1_repaired": after,
            "ids_changed": int((best.relabel != case.relabel).sum()),
            "side": best.side,
            "p": p,
        },
        best.fix,
    )
    return [finding], case.reread(best.relabel)


def believable(case: AlignedOutputs, guesses: np.ndarray, *, alpha: float) -> bool:
    """Whether the hits of a reading are not an accident, and enough for a model to be behind them."""
    here = case.labelled
    total = int(hits_of(guesses[:, : case.ranks], case.labels).sum())
    expected = expected_hits(
        case.labels[here], guesses[here][:, : case.ranks], classes=case.classes
    )
    if total < FLOOR * case.n or by_chance(total, expected) >= alpha:
        return False
    floor = SURE_OF_KNOWN if case.classes >= MANY else sure(case.classes)
    first = int(hits_of(guesses[:, :1], case.labels).sum())
    return case.ranks > 1 or first >= floor * case.n


def check_permuted(case: AlignedOutputs) -> Step:
    """Ids in an order that is not known, or classes that are in each other's place.

    The assignment of ids to classes that hits most is found from half of the images, and its hits
    are counted on the other half, and the other way round. A fitted order flatters on the images
    that it was fitted to; on the others it does not, so that the comparison with the ids as given
    is fair.
    """
    half = (row_hash(case.testset.image_ids, seed=0) & np.uint64(1)).astype(bool)
    parts = (case.labelled & ~half, case.labelled & half)
    first, second = (read(case.topk, _fitted(case, part)) for part in parts)
    guesses = np.where(half[:, None], first, second)
    hits = int(hits_of(guesses[:, : case.ranks], case.labels).sum())
    other_half = float(hits_of(guesses[:, :1], case.labels).sum()) / max(case.n, 1)
    p = p_better_twice(guesses, case.guesses, case.labels, ranks=case.ranks)
    # Random pairing within each half, as each half has its own order.
    expected = sum(
        expected_hits(case.labels[part], guesses[part][:, : case.ranks], classes=case.classes)
        for part in parts
    )
    enough = case.ranks > 1 or other_half >= sure(case.classes)
    if not (p < ALPHA and by_chance(hits, expected) < ALPHA and enough):
        return [], case
    relabel = _fitted(case, case.labelled)
    present = np.unique(case.labels[case.labelled])
    changed = relabel != case.relabel
    moved = np.intersect1d(np.union1d(relabel[changed], case.relabel[changed]), present)
    before, after = case.accuracy(), case.accuracy(relabel)
    ids = [case.testset.label_space.classes[c] for c in moved]
    evidence: Evidence = {
        "n": case.n,
        "top1_as_given": before,
        "top1_repaired": after,
        "top1_on_other_half": other_half,
        "classes_moved": len(ids),
        "p": p,
    }
    few = len(ids) <= max(2, FEW * len(present))
    if few:
        named = ", ".join(f"{item.id} ({item.name})" for item in ids[:6])
        more = f" and {len(ids) - 6} more" if len(ids) > 6 else ""
        message = f"{named}{more} are in each other's place"
        evidence["classes"] = " ".join(item.id for item in ids)
        hint = "look for a join by name, as names are not unique"
    else:
        message = f"class ids are in another order: {len(ids):,} of {len(present):,} classes move"
        hint = f"find the list of classes that the model was trained with, and {RELIST}"
    finding = case.finding(
        "swapped-classes" if few else "permuted-labels",
        f"{message}; top-1 is {percent(before)} as given, {percent(after)} in the fitted "
        f"order, {percent(other_half)} on images that the order was not fitted to",
        evidence,
        hint,
    )
    return [finding], case.reread(relabel)
