from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.errors import NotApplicable
from heldout.stats import bootstrap_statistic, cohen_kappa, fleiss_kappa, krippendorff_alpha

NAN = float("nan")
# Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability", section E
KRIPPENDORFF = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, NAN, NAN, NAN],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NAN, 3],
    [NAN, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NAN],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NAN],
]


@pytest.mark.parametrize(
    ("measure", "alpha"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)]
)
def test_krippendorff_published(measure, alpha) -> None:
    assert round(krippendorff_alpha(KRIPPENDORFF, measure=measure), 3) == alpha


def slow_alpha(answers: np.ndarray, measure: str) -> float:
    """All pairs of answers, one by one."""
    units = [[v for v in column if not np.isnan(v)] for column in answers.T]
    units = [unit for unit in units if len(unit) > 1]
    pooled = [v for unit in units for v in unit]

    def squared(a: float, b: float) -> float:
        if measure == "nominal":
            return float(a != b)
        if measure == "interval":
            return (a - b) ** 2
        low, high = min(a, b), max(a, b)
        between = sum(low <= v <= high for v in pooled)
        return (between - (pooled.count(a) + pooled.count(b)) / 2) ** 2

    observed = sum(
        squared(a, b) / (len(unit) - 1)
        for unit in units
        for a, b in itertools.permutations(unit, 2)
    ) / len(pooled)
    expected = sum(squared(a, b) for a, b in itertools.permutations(pooled, 2)) / (
        len(pooled) * (len(pooled) - 1)
    )
    return 1 - observed / expected


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), measure=st.sampled_from(["nominal", "ordinal", "interval"]))
def test_krippendorff_equals_all_pairs(seed, measure) -> None:
    generator = np.random.default_rng(seed)
    answers = generator.integers(1, 5, (3, 8)).astype(float)
    answers[generator.random((3, 8)) < 0.25] = NAN
    try:
        expected = slow_alpha(answers, measure)
    except ZeroDivisionError:
        with pytest.raises(NotApplicable):
            krippendorff_alpha(answers, measure=measure)
        return
    assert krippendorff_alpha(answers, measure=measure) == pytest.approx(expected)
    shuffled = generator.permuted(answers, axis=0)[:, generator.permutation(8)]
    assert krippendorff_alpha(shuffled, measure=measure) == pytest.approx(expected)


def test_krippendorff_text_and_perfect_agreement() -> None:
    answers = np.array([["cat", "dog", None], ["cat", "dog", "cow"]], dtype=object)
    assert krippendorff_alpha(answers) == 1.0
    with pytest.raises(ValueError, match="numbers"):
        krippendorff_alpha(answers, measure="ordinal")


def test_krippendorff_refusals() -> None:
    with pytest.raises(NotApplicable, match="two answers"):
        krippendorff_alpha([[1.0, NAN], [NAN, 2.0]])
    with pytest.raises(NotApplicable, match="same"):
        krippendorff_alpha([[1.0, 1.0], [1.0, 1.0]])
    with pytest.raises(ValueError, match="shape"):
        krippendorff_alpha([1.0, 2.0])
    with pytest.raises(ValueError, match="measure"):
        krippendorff_alpha(KRIPPENDORFF, measure="ratio")  # type: ignore[arg-type]


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


def slow_cohen(a, b, weights) -> float:
    labels = sorted(set(a) | set(b))
    place = {label: index for index, label in enumerate(labels)}

    def cost(x, y) -> float:
        gap = abs(place[x] - place[y])
        return {"none": float(gap > 0), "linear": gap, "quadratic": gap**2}[weights]

    observed = np.mean([cost(x, y) for x, y in zip(a, b, strict=True)])
    expected = np.mean([cost(x, y) for x in a for y in b])
    return 1 - observed / expected


@given(seed=st.integers(0, 10_000), weights=st.sampled_from(["none", "linear", "quadratic"]))
def test_cohen_equals_all_pairs(seed, weights) -> None:
    generator = np.random.default_rng(seed)
    a = generator.integers(0, 4, 20)
    b = np.where(generator.random(20) < 0.5, a, generator.integers(0, 4, 20))
    if len(set(a.tolist()) | set(b.tolist())) == 1:
        return
    kappa = cohen_kappa(a, b, weights=weights)
    assert kappa == pytest.approx(slow_cohen(a.tolist(), b.tolist(), weights))
    assert kappa == pytest.approx(cohen_kappa(b, a, weights=weights))
    order = generator.permutation(20)
    assert kappa == pytest.approx(cohen_kappa(a[order], b[order], weights=weights))


def test_cohen_categories() -> None:
    a, b = ["low", "mid", "high", "high"], ["mid", "mid", "high", "low"]
    ordered = cohen_kappa(a, b, weights="linear", categories=["low", "mid", "high"])
    by_code = cohen_kappa([0, 1, 2, 2], [1, 1, 2, 0], weights="linear")
    assert ordered == pytest.approx(by_code)
    assert cohen_kappa(a, b, weights="linear") != pytest.approx(by_code)
    with pytest.raises(ValueError, match="'mid' is not among"):
        cohen_kappa(a, b, categories=["low", "high"])
    with pytest.raises(ValueError, match="differ"):
        cohen_kappa(a, b, categories=["low", "mid", "high", "high"])


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
    with pytest.raises(ValueError, match="weights"):
        cohen_kappa([0, 1], [0, 1], weights="cubic")  # type: ignore[arg-type]
