"""Agreement and severity numbers against plain definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import NotApplicable
from heldout.measure.mistakes.quality import agreement, kappa_of, weighted_auc
from heldout.stats.agreement import cohen_kappa


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
