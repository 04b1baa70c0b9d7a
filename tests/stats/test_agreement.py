from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import NotApplicable
from heldout.stats.agreement import cohen_kappa, fleiss_kappa, krippendorff_alpha
from heldout.stats.bootstrap import bootstrap_statistic

NAN = float("nan")
# Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability", section E
KRIPPENDORFF = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, NAN, NAN, NAN],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NAN, 3],
    [NAN, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NAN],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NAN],
]


def test_krippendorff_published() -> None:
    assert round(krippendorff_alpha(KRIPPENDORFF), 3) == 0.743


def slow_alpha(answers: np.ndarray) -> float:
    """All pairs of answers, one by one."""
    units = [[v for v in column if not np.isnan(v)] for column in answers.T]
    units = [unit for unit in units if len(unit) > 1]
    pooled = [v for unit in units for v in unit]

    observed = sum(
        (a != b) / (len(unit) - 1) for unit in units for a, b in itertools.permutations(unit, 2)
    ) / len(pooled)
    expected = sum(a != b for a, b in itertools.permutations(pooled, 2)) / (
        len(pooled) * (len(pooled) - 1)
    )
    return 1 - observed / expected


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_krippendorff_equals_all_pairs(seed) -> None:
    generator = np.random.default_rng(seed)
    answers = generator.integers(1, 5, (3, 8)).astype(float)
    answers[generator.random((3, 8)) < 0.25] = NAN
    try:
        expected = slow_alpha(answers)
    except ZeroDivisionError:
        with pytest.raises(NotApplicable):
            krippendorff_alpha(answers)
        return
    assert krippendorff_alpha(answers) == pytest.approx(expected)
    shuffled = generator.permuted(answers, axis=0)[:, generator.permutation(8)]
    assert krippendorff_alpha(shuffled) == pytest.approx(expected)


def test_krippendorff_text_and_perfect_agreement() -> None:
    answers = np.array([["cat", "dog", None], ["cat", "dog", "cow"]], dtype=object)
    assert krippendorff_alpha(answers) == 1.0


def test_krippendorff_refusals() -> None:
    with pytest.raises(NotApplicable, match="two answers"):
        krippendorff_alpha([[1.0, NAN], [NAN, 2.0]])
    with pytest.raises(NotApplicable, match="same"):
        krippendorff_alpha([[1.0, 1.0], [1.0, 1.0]])
    with pytest.raises(ValueError, match="shape"):
        krippendorff_alpha([1.0, 2.0])


def test_krippendorff_interval_by_bootstrap_of_subjects() -> None:
    table = np.tile(np.array(KRIPPENDORFF), 5)
    result = bootstrap_statistic(
        lambda drawn: krippendorff_alpha(table[:, drawn]),
        table.shape[1],
        rng=np.random.default_rng(0),
        replicates=100,
    )
    assert result.interval.low < result.value < result.interval.high


# Fleiss


def slow_fleiss(counts: np.ndarray) -> float:
    n, m = len(counts), counts[0].sum()
    agree = sum(((row**2).sum() - m) / (m * (m - 1)) for row in counts) / n
    chance = sum((column.sum() / (n * m)) ** 2 for column in counts.T)
    return (agree - chance) / (1 - chance)


@given(seed=st.integers(0, 10_000))
def test_fleiss_equals_its_formula(seed) -> None:
    counts = np.random.default_rng(seed).multinomial(5, [0.2, 0.3, 0.5], size=12)
    assert fleiss_kappa(counts) == pytest.approx(slow_fleiss(counts))


def test_fleiss_refusals() -> None:
    with pytest.raises(NotApplicable, match="same number"):
        fleiss_kappa([[2, 1], [2, 2]])
    with pytest.raises(NotApplicable, match="same number"):
        fleiss_kappa([[1, 0], [0, 1]])
    with pytest.raises(NotApplicable, match="same"):
        fleiss_kappa([[3, 0], [3, 0]])
    with pytest.raises(ValueError, match="shape"):
        fleiss_kappa([[-1, 4]])


# Cohen


def slow_cohen(a, b) -> float:
    observed = np.mean([x != y for x, y in zip(a, b, strict=True)])
    expected = np.mean([x != y for x in a for y in b])
    return 1 - observed / expected


@given(seed=st.integers(0, 10_000))
def test_cohen_equals_all_pairs(seed) -> None:
    generator = np.random.default_rng(seed)
    a = generator.integers(0, 4, 20)
    b = np.where(generator.random(20) < 0.5, a, generator.integers(0, 4, 20))
    if len(set(a.tolist()) | set(b.tolist())) == 1:
        return
    kappa = cohen_kappa(a, b)
    assert kappa == pytest.approx(slow_cohen(a.tolist(), b.tolist()))
    assert kappa == pytest.approx(cohen_kappa(b, a))
    order = generator.permutation(20)
    assert kappa == pytest.approx(cohen_kappa(a[order], b[order]))


def test_cohen_edges() -> None:
    assert cohen_kappa([0, 1], [0, 1]) == 1.0
    assert cohen_kappa([0, 1], [1, 0]) == -1.0
    for empty in ([], np.array([])):
        with pytest.raises(NotApplicable):
            cohen_kappa(empty, empty)
    with pytest.raises(NotApplicable, match="same"):
        cohen_kappa([1, 1], [1, 1])
    with pytest.raises(ValueError, match="shape"):
        cohen_kappa([1, 1], [1])
