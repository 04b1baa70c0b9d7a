"""Agreement and severity numbers against plain definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.errors import NotApplicable
from heldout.mistakes.quality import agreement, kappa_of, severity_quality, weighted_auc
from heldout.stats import cohen_kappa


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), min_size=2, max_size=40))
def test_kappa_is_cohen_s(rows: list[tuple[str, str]]) -> None:
    judged, proposed = [a for a, _ in rows], [b for _, b in rows]
    names = sorted({*judged, *proposed})
    counts = np.zeros((len(names), len(names)))
    for one, other in rows:
        counts[names.index(one), names.index(other)] += 1
    if len(names) == 1:
        assert kappa_of(counts) == 0.0
        return
    assert kappa_of(counts) == pytest.approx(cohen_kappa(judged, proposed))


def test_agreement_counts() -> None:
    judged = ["a"] * 6 + ["b"] * 3 + ["c"]
    proposed = ["a"] * 5 + ["b"] + ["b"] * 2 + ["a"] + ["a"]
    found = agreement(judged, proposed, [f"i{n}" for n in range(10)], replicates=200)
    assert found.n == 10 and found.accuracy == pytest.approx(0.7)
    by_name = {item.category: item for item in found.categories}
    assert (by_name["a"].judged, by_name["a"].proposed, by_name["a"].both) == (6, 7, 5)
    assert by_name["a"].recall == pytest.approx(5 / 6)
    assert by_name["b"].precision == pytest.approx(2 / 3)
    assert by_name["c"].recall == 0 and by_name["c"].precision is None
    assert found.table == {"a": {"a": 5, "b": 1}, "b": {"a": 1, "b": 2}, "c": {"a": 1}}
    assert found.kappa_low is not None and found.kappa is not None
    assert found.kappa_low < found.kappa < (found.kappa_high or 0)


def test_always_the_same_answer_has_no_kappa_to_speak_of() -> None:
    found = agreement(["a", "a", "b"] * 10, ["a"] * 30, [str(n) for n in range(30)], replicates=50)
    assert found.kappa == found.kappa_low == found.kappa_high == 0.0
    assert found.accuracy == pytest.approx(2 / 3)


def test_mistakes_of_one_image_are_drawn_together() -> None:
    rng = np.random.default_rng(0)
    images = np.repeat(np.arange(40), 5)
    right = np.repeat(rng.random(40) < 0.6, 5)
    judged = np.where(rng.random(200) < 0.5, "a", "b")
    proposed = np.where(right, judged, np.where(judged == "a", "b", "a"))
    alone = agreement(judged.tolist(), proposed.tolist(), [str(n) for n in range(200)])
    grouped = agreement(judged.tolist(), proposed.tolist(), [str(n) for n in images])
    assert grouped.images == 40 and alone.images == 200

    def width(item: object) -> float:
        return float(item.accuracy_high - item.accuracy_low)  # type: ignore[attr-defined]

    assert width(grouped) > 1.7 * width(alone)


def test_too_few() -> None:
    with pytest.raises(NotApplicable):
        agreement(["a"], ["a"], ["i"])


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 3)), min_size=2, max_size=30
    )
)
def test_auc_counts_pairs(rows: list[tuple[bool, int, int]]) -> None:
    wins = total = 0.0
    for yes, score, weight in rows:
        for no, other, other_weight in rows:
            if yes and not no:
                total += weight * other_weight
                wins += weight * other_weight * ((score > other) + 0.5 * (score == other))
    truth, scores, weights = (np.array(side) for side in zip(*rows, strict=True))
    expected = wins / total if total else 0.5
    assert weighted_auc(truth, scores.astype(float), weights.astype(float)) == pytest.approx(
        expected
    )


def test_severity_numbers() -> None:
    truth = np.array([True, True, False, False] * 3)
    images = [f"i{n}" for n in range(12)]
    found = severity_quality(
        truth,
        np.array([0.9, 0.4, 0.5, 0.1] * 3),
        np.full(12, 0.5),
        [True, None, None, False] * 3,
        images,
        replicates=50,
    )
    assert found.auc == pytest.approx(0.75) and found.brier_base == pytest.approx(0.25)
    assert found.brier == pytest.approx((0.01 + 0.36 + 0.25 + 0.01) / 4)
    assert (found.suggested, found.suggested_right, found.suggested_base) == (6, 6, 3)
    with pytest.raises(NotApplicable, match="one severity"):
        severity_quality(np.ones(12, bool), np.ones(12), np.ones(12), [None] * 12, images)
    with pytest.raises(NotApplicable, match="too few"):
        severity_quality(truth[:4], np.ones(4), np.ones(4), [None] * 4, images[:4])
