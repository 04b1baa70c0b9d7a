"""The statistics against slow obvious references, and their error rates on sound data."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.measure.doctor.alignment import align, single_labels
from heldout.measure.doctor.diagnose import diagnose
from heldout.measure.doctor.findings import CODES, percent
from heldout.measure.doctor.id_checks import completed, match_classes
from heldout.measure.doctor.significance import (
    above_chance,
    by_chance,
    expected_hits,
    p_better,
    p_better_twice,
    ranks_that_tell,
)
from heldout.models.predictions.import_arrays import looks_reversed

from .cases import balanced, outputs, predictions, set_of, space_of

LABEL_CODES = {
    "reversed-topk",
    "off-by-one",
    "text-sorted-classes",
    "name-sorted-classes",
    "id-sorted-classes",
    "permuted-labels",
    "swapped-classes",
    "wrong-label-space",
    "rows-in-other-order",
}


@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 3)), min_size=1, max_size=6))
def test_expected_hits_is_the_mean_over_all_pairings(pairs: list[tuple[int, int]]) -> None:
    labels, guesses = (np.array(column) for column in zip(*pairs, strict=True))
    hits = [
        sum(a == b and a >= 0 for a, b in zip(labels, order, strict=True))
        for order in itertools.permutations(guesses.tolist())
    ]
    mean = sum(hits) / len(hits)
    assert expected_hits(labels, guesses, classes=4) == pytest.approx(mean)


def test_a_poisson_tail_is_on_the_safe_side() -> None:
    """Hits of random pairings exceed the level's quantile no more often than the level."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 8, 400)
    guesses = np.where(rng.random(400) < 0.5, 2, rng.integers(0, 8, 400))
    expected = expected_hits(labels, guesses, classes=8)
    tails = [
        by_chance(int((rng.permutation(guesses) == labels).sum()), expected) for _ in range(2000)
    ]
    for level in (0.2, 0.05, 0.01):
        assert np.mean(np.array(tails) <= level) <= level + 3 * math.sqrt(level / 2000)


def test_by_chance_is_the_tail() -> None:
    exact = 1 - sum(math.exp(-3) * 3**i / math.factorial(i) for i in range(5))
    assert by_chance(5, 3.0) == pytest.approx(exact)
    assert by_chance(0, 3.0) == 1.0
    assert by_chance(1, 0.0) == 0.0


def test_better_is_mcnemars_tail() -> None:
    candidate = np.array([True] * 9 + [False] * 1 + [True] * 5)
    given_hits = np.array([False] * 9 + [True] * 1 + [True] * 5)
    assert p_better(candidate, given_hits) == pytest.approx(11 / 1024)


def test_a_reading_must_win_twice() -> None:
    labels = np.zeros(400, dtype=int)
    second_right = np.tile([1, 0], (400, 1))  # what a set of a model's own mistakes looks like
    first_right = np.tile([0, 1], (400, 1))
    assert p_better_twice(first_right, second_right, labels, ranks=2) == 1.0
    assert p_better_twice(first_right, np.tile([2, 1], (400, 1)), labels, ranks=2) < 1e-100


def test_ranks_that_tell() -> None:
    assert [ranks_that_tell(5, k) for k in (2, 10, 20, 49, 50, 1000)] == [1, 1, 2, 4, 5, 5]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 7), st.integers(2, 9), st.integers(0, 2**31), st.integers(1, 3), st.booleans()
)
def test_matching_equals_the_dense_assignment(
    classes: int, positions: int, seed: int, k: int, plain: bool
) -> None:
    from scipy.optimize import linear_sum_assignment

    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 60))
    labels = rng.integers(0, classes, n)
    topk = rng.integers(-1, positions, (n, k))
    present = np.full(positions, -1)
    if plain:
        both = min(classes, positions)
        present[:both] = np.arange(both)
    weights = np.zeros((classes, positions))
    for rank in range(k):
        for label, guess in zip(labels, topk[:, rank], strict=True):
            if guess >= 0:
                weights[label, guess] += 1 / (rank + 1)
    rows, columns = linear_sum_assignment(-weights)
    found = match_classes(labels, topk, classes=classes, positions=positions, present=present)
    kept = found[found >= 0]
    assert len(set(kept.tolist())) == len(kept)
    total = sum(weights[c, p] for c, p in enumerate(found) if p >= 0)
    # Ties may be broken towards the present reading, and never at the cost of evidence.
    assert total >= weights[rows, columns].sum() - 1e-9 - 0.5 / k * classes
    if not plain:
        assert total == pytest.approx(weights[rows, columns].sum())


def test_completed_gives_every_id_a_class() -> None:
    assert completed(np.array([2, -1, -1]), np.arange(3)).tolist() == [2, 1, 0]
    relabel = completed(np.array([2, -1, 1]), np.arange(3))
    assert sorted(relabel.tolist()) == [0, 1, 2]
    assert relabel[2] == 0 and relabel[1] == 2
    wide = completed(np.array([3, -1]), np.array([0, 1, -1, -1]))
    assert wide.tolist() == [-1, 1, -1, 0]


def test_worst_first_needs_a_rising_right_end() -> None:
    rng = np.random.default_rng(0)
    labels = np.zeros(1000, dtype=int)

    def columns(*rates: float) -> np.ndarray:
        return np.stack([np.where(rng.random(1000) < r, 0, 1) for r in rates], axis=1)

    assert looks_reversed(columns(0.05, 0.1, 0.6), labels)
    assert not looks_reversed(columns(0.0, 0.4, 0.2), labels)  # its own mistakes
    assert not looks_reversed(columns(0.6, 0.1, 0.05), labels)
    assert not looks_reversed(columns(0.3, 0.3, 0.32), labels)
    assert not looks_reversed(columns(0.0, 0.5), labels)  # two columns cannot tell
    assert looks_reversed(columns(0.1, 0.8), labels)
    assert not looks_reversed(columns(0.9), labels)


@pytest.mark.parametrize(
    ("classes", "each", "k"), [(2, 100, 1), (3, 50, 2), (10, 30, 5), (50, 10, 5), (200, 5, 5)]
)
@pytest.mark.parametrize("accuracy", [0.0, 0.02, 0.3, 0.9])
def test_sound_models_of_any_kind_raise_no_finding_about_labels(
    classes: int, each: int, k: int, accuracy: float
) -> None:
    for seed in range(6):
        labels = balanced(classes, each, seed=seed, sort=bool(seed % 2))
        testset = set_of(labels, space_of(classes))
        floor = max(accuracy, 1.5 / classes)
        topk = outputs(labels, classes, k=k, accuracy=floor, seed=seed)
        codes = {f.code for f in diagnose(testset, predictions(testset, topk))}
        assert not codes & LABEL_CODES, (seed, codes)


@pytest.mark.parametrize(("classes", "n", "k"), [(2, 500, 1), (10, 500, 5), (100, 2000, 5)])
def test_random_outputs_are_at_chance_and_nothing_else(classes: int, n: int, k: int) -> None:
    chance = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, classes, n)
        testset = set_of(labels, space_of(classes))
        topk = np.argsort(rng.random((n, classes)), axis=1)[:, :k]
        codes = {f.code for f in diagnose(testset, predictions(testset, topk))}
        assert codes <= {"at-chance"}, codes
        chance += "at-chance" in codes
    assert chance >= 10  # a random model passes for better than chance once in a hundred


def test_the_split_does_not_depend_on_the_order_of_rows() -> None:
    labels = balanced(100, 20)
    order = np.random.default_rng(0).permutation(100)
    topk = order[outputs(labels, 100)]
    one = set_of(labels, space_of(100))
    shuffle = np.random.default_rng(1).permutation(len(labels))
    ids = np.array(one.image_ids.to_pylist())[shuffle].tolist()
    two = set_of(labels[shuffle], space_of(100), ids=ids)
    a = diagnose(one, predictions(one, topk))[0]
    b = diagnose(two, predictions(two, topk[shuffle]))[0]
    assert a.evidence == b.evidence


def test_images_without_a_class_are_left_out() -> None:
    import pyarrow as pa

    labels = balanced(20, 20)
    testset = set_of(labels, space_of(20))
    topk = outputs(labels, 20)
    table = testset.truths["original"].slice(50)
    from heldout.data.testset import make_testset

    partial = make_testset(
        testset.card,
        images=testset.images,
        truths={"original": table},
        label_space=testset.label_space,
    )
    case = align(partial, predictions(partial, topk), labels=single_labels(partial))
    assert case.n == 350
    assert diagnose(partial, predictions(partial, topk)) == []
    assert isinstance(partial.image_ids, pa.Array)


def test_percent_and_codes() -> None:
    assert percent(0.99999) == "99.999 %" and percent(1.0) == "100 %"
    assert set(CODES.values()) == {"error", "warning", "note"}


def test_above_chance_knows_how_little_random_pairing_varies() -> None:
    """Against pairings drawn at random, also where one class has nearly all images."""
    rng = np.random.default_rng(0)
    for classes, share in ((2, 0.5), (2, 0.9), (3, 0.6), (20, 0.1)):
        rest = (1 - share) / (classes - 1)
        labels = rng.choice(classes, 120, p=[share] + [rest] * (classes - 1))
        guesses = np.where(rng.random(120) < 0.5, labels, rng.permutation(labels))
        drawn = [rng.permutation(guesses) for _ in range(400)]
        p = np.array([above_chance(labels, one, classes=classes) for one in drawn])
        assert (p < 0.01).mean() < 0.03
        hits = np.array([(labels == one).sum() for one in drawn])
        assert above_chance(labels, guesses, classes=classes) <= (
            (hits >= (labels == guesses).sum()).mean() + 0.05
        )
    assert above_chance(np.zeros(60, int), np.zeros(60, int), classes=2) > 0.01  # nothing to tell
