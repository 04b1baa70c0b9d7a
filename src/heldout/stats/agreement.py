"""How far people agree beyond chance: Cohen, Fleiss, Krippendorff."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from heldout.core.errors import NotApplicable
from heldout.stats.intervals import FloatArray


def cohen_kappa(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Cohen's (1960) kappa of two people who answered the same subjects, ``a`` and ``b`` (n,).

    ``1 - o / e``: the number of subjects on which they differ, observed over expected from how
    often each person gives each answer.

    >>> a = ["yes"] * 25 + ["no"] * 25
    >>> b = ["yes"] * 20 + ["no"] * 5 + ["yes"] * 10 + ["no"] * 15
    >>> round(cohen_kappa(a, b), 6)
    0.4
    """
    first, second = np.asarray(a), np.asarray(b)
    if first.ndim != 1 or first.shape != second.shape:
        raise ValueError("a and b must have one shape (n,)")
    if len(first) == 0:
        raise NotApplicable("no answers to compare", fix="give both people at least one subject")
    labels, codes = np.unique(np.concatenate([first, second]), return_inverse=True)
    rows, columns = codes.reshape(2, -1)
    size = len(labels)
    table = np.bincount(rows * size + columns, minlength=size * size).reshape(size, size)
    differ = 1.0 - np.eye(size)
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / len(first)
    return _beyond_chance(float((differ * table).sum()), float((differ * expected).sum()))


def kappa_variance(kappa: npt.ArrayLike, a: npt.ArrayLike, b: npt.ArrayLike) -> FloatArray:
    """The variance of Cohen's kappa of two yes-or-no answers, from one subject; any shape.

    ``a`` and ``b`` are how often each person says yes. The large-sample formula of Fleiss, Cohen and
    Everitt (1969), as the mean square of what one subject adds; a kappa that these shares do not
    allow is taken for the nearest that they do.
    """
    k, p, q = (np.asarray(value, dtype=np.float64) for value in (kappa, a, b))
    chance = np.maximum(p * (1.0 - q) + q * (1.0 - p), 1e-12)
    neither = 0.5 * (2.0 - p - q - chance * (1.0 - k))
    neither = np.clip(neither, np.maximum(0.0, 1.0 - p - q), np.minimum(1.0 - p, 1.0 - q))
    only_a, only_b = 1.0 - q - neither, 1.0 - p - neither
    ratio = (only_a + only_b) / chance
    total = np.zeros(np.broadcast(k, p, q).shape)
    cells = ((neither, 0, 0), (only_a, 1, 0), (only_b, 0, 1), (p - only_a, 1, 1))
    for share, yes_a, yes_b in cells:
        margins = (yes_a - p) * (1.0 - 2.0 * q) + (yes_b - q) * (1.0 - 2.0 * p)
        added = ratio * margins - ((yes_a != yes_b) - only_a - only_b)
        total = total + share * np.square(added / chance)
    return total


def kappa_limits(
    kappa: npt.ArrayLike,
    yes_a: npt.ArrayLike,
    yes_b: npt.ArrayLike,
    n: int,
    quantile: npt.ArrayLike,
    *,
    images: npt.ArrayLike | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Limits of Cohen's kappa of two yes-or-no answers about ``n`` subjects.

    The kappas whose own spread, with these counts of yes (half a subject added on each side), would
    not put ``quantile`` standard errors between them and the one observed: as Wilson's interval does
    for a share. ``images`` is the number of subjects that the spread is worth, ``n`` unless given. Where
    nearly all answers are yes, ``kappa ± 1.96 errors`` covers 87 to 90 %, and these 95 to 97 %.

    >>> low, high = kappa_limits(0.4, 25, 30, 50, 1.96)
    >>> round(float(low), 3), round(float(high), 3)
    (0.131, 0.614)
    """
    value = np.asarray(kappa, dtype=np.float64)
    a, b = ((np.asarray(yes) + 0.5) / (n + 1.0) for yes in (yes_a, yes_b))
    worth = np.asarray(n if images is None else images, dtype=np.float64)
    most = np.square(np.asarray(quantile)) / worth
    shape = np.broadcast(value, a, b, most).shape
    limits = []
    for end in (-1.0, 1.0):
        near, far = np.broadcast_to(value, shape), np.full(shape, end)
        for _ in range(50):
            middle = 0.5 * (near + far)
            outside = np.square(value - middle) > most * kappa_variance(middle, a, b)
            near, far = np.where(outside, near, middle), np.where(outside, middle, far)
        limits.append(far)
    return limits[0], limits[1]


def fleiss_kappa(counts: npt.ArrayLike) -> float:
    """Fleiss's (1971) kappa; ``counts`` (subjects, categories) of answers.

    Every subject has the same number of answers, two or more; who gave them does not matter.

    >>> counts = [[0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0],
    ...           [2, 2, 8, 1, 1], [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2],
    ...           [6, 5, 2, 1, 0], [0, 2, 2, 3, 7]]
    >>> round(fleiss_kappa(counts), 3)
    0.21
    """
    table = np.asarray(counts, dtype=np.float64)
    if table.ndim != 2 or table.size == 0 or (table < 0).any() or not np.isfinite(table).all():
        raise ValueError("counts must have shape (subjects, categories), none below zero")
    answers = table.sum(axis=1)
    if (answers != answers[0]).any() or answers[0] < 2:
        raise NotApplicable(
            "Fleiss's kappa needs the same number of answers for every subject, two or more",
            fix="use krippendorff_alpha, which allows for missing answers",
        )
    m = answers[0]
    disagree = 1.0 - ((table * (table - 1.0)).sum(axis=1) / (m * (m - 1.0))).mean()
    chance = 1.0 - np.square(table.sum(axis=0) / table.sum()).sum()
    return _beyond_chance(float(disagree), float(chance))


def krippendorff_alpha(answers: npt.ArrayLike) -> float:
    """Krippendorff's (2011) nominal alpha; ``answers`` (people, subjects), any number missing.

    Missing is NaN, or ``None`` in an array of objects. ``alpha = 1 - D_o / D_e``: the observed
    over the expected number of pairs of answers that differ. Subjects with a single answer say
    nothing and are left out.

    >>> nan = np.nan
    >>> answers = [[1, 2, 3, 3, 2, 1, 4, 1, 2, nan, nan, nan],
    ...            [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, nan, 3],
    ...            [nan, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, nan],
    ...            [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, nan]]
    >>> round(krippendorff_alpha(answers), 3)
    0.743
    """
    table = np.asarray(answers)
    if table.ndim != 2:
        raise ValueError("answers must have shape (people, subjects)")
    given = np.array(
        [value is not None and value == value for value in table.ravel().tolist()], dtype=bool
    ).reshape(table.shape)
    subjects = np.broadcast_to(np.arange(table.shape[1]), table.shape)[given]
    values, codes = np.unique(np.array(table[given].tolist()), return_inverse=True)
    paired = np.bincount(subjects, minlength=table.shape[1])[subjects] > 1
    if not paired.any():
        raise NotApplicable(
            "no subject has two answers", fix="collect a second answer for some subjects"
        )
    _, rows = np.unique(subjects[paired], return_inverse=True)
    counts = np.zeros((int(rows.max()) + 1, len(values)))
    np.add.at(counts, (rows, codes.reshape(-1)[paired]), 1.0)
    # Ordered pairs of answers within subjects, each subject's pairs weighing 1 / (m - 1); an answer
    # does not pair with itself.
    weighted = counts / (counts.sum(axis=1, keepdims=True) - 1.0)
    coincidences = counts.T @ weighted - np.diag(weighted.sum(axis=0))
    margin = coincidences.sum(axis=1)
    total = margin.sum()
    differ = 1.0 - np.eye(len(values))
    expected = float(margin @ differ @ margin)
    return _beyond_chance(float((coincidences * differ).sum()), expected / float(total - 1.0))


def _beyond_chance(observed: float, expected: float) -> float:
    if expected == 0:
        raise NotApplicable(
            "all answers are the same, so agreement beyond chance is not defined",
            fix="report the share of equal answers",
        )
    return 1.0 - observed / expected
