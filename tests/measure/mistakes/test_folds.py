"""Folds: no image in two of them, every answer in each, whatever the order."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from heldout.measure.mistakes.categories import grouped_folds


@given(
    st.lists(st.tuples(st.integers(0, 20), st.sampled_from("aab")), min_size=4, max_size=60),
    st.integers(2, 5),
    st.randoms(use_true_random=False),
)
def test_images_stay_together_and_order_does_not_matter(
    rows: list[tuple[int, str]], folds: int, random: object
) -> None:
    images, answers = [f"i{i}" for i, _ in rows], [a for _, a in rows]
    found = grouped_folds(images, answers, folds, rng=np.random.default_rng(1))
    assert set(found.tolist()) <= set(range(folds))
    together = dict(zip(images, found.tolist(), strict=True))
    assert all(together[image] == fold for image, fold in zip(images, found, strict=True))
    order = list(range(len(rows)))
    random.shuffle(order)  # type: ignore[attr-defined]
    mixed = grouped_folds(
        [images[i] for i in order],
        [answers[i] for i in order],
        folds,
        rng=np.random.default_rng(1),
    )
    assert [together[images[i]] for i in order] == mixed.tolist()


def test_a_rare_answer_is_in_every_fold() -> None:
    images = [f"i{i}" for i in range(100)]
    answers = ["rare"] * 10 + ["usual"] * 90
    found = grouped_folds(images, answers, 5, rng=np.random.default_rng(0))
    assert np.bincount(found[:10]).tolist() == [2] * 5
    assert np.bincount(found).tolist() == [20] * 5
