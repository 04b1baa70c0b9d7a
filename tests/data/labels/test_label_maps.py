from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from heldout.core.errors import LabelError, MismatchError
from heldout.data.labels import LabelMap, LabelSpace, identity_map, many_to_one_map, subset_map

N = LabelSpace.from_ids("n", list("abcdef"))
TWO = many_to_one_map(N, {"X": ["e", "b"], "Y": ["d"]}, name="two", reading="full")
NESTED = many_to_one_map(
    N, {"dog": ["a"], "animal": ["a", "b"]}, name="nested", reading="full", allow_overlap=True
)


@st.composite
def maps(draw: st.DrawFn) -> LabelMap:
    """A random many-to-one map without overlap, under either reading."""
    n = draw(st.integers(1, 9))
    k = draw(st.integers(1, n))
    owner = draw(st.lists(st.integers(-1, k - 1), min_size=n, max_size=n))
    for target, source in enumerate(draw(st.permutations(range(n)))[:k]):
        owner[source] = target  # so that no accepted set is empty
    accepted = tuple(tuple(s for s in range(n) if owner[s] == t) for t in range(k))
    source = LabelSpace.from_ids("n", [f"s{i}" for i in range(n)])
    target = LabelSpace.from_ids("k", [f"t{i}" for i in range(k)])
    reading = draw(st.sampled_from(["restricted", "full"]))
    return LabelMap("made", "many-to-one", source, target, accepted, reading)


def ranked(label_map: LabelMap, rng: np.random.Generator, rows: int) -> NDArray[np.float64]:
    """Logits without ties."""
    n = len(label_map.source)
    return np.stack([rng.permutation(n) for _ in range(rows)]).astype(np.float64)


def test_accepted_sets_in_every_form() -> None:
    assert TWO.accepted == ((1, 4), (3,))
    assert TWO.accepted_ids("X") == ("b", "e")
    assert TWO.csr.indptr.tolist() == [0, 2, 3]
    assert TWO.csr.indices.tolist() == [1, 4, 3]
    assert TWO.target_of_source.tolist() == [-1, 0, -1, 1, 0, -1]


def test_full_and_restricted_readings_differ() -> None:
    topk = np.array([[0, 4, 3], [3, 1, 4], [0, 2, 5]], dtype=np.int16)
    assert TWO.map_topk(topk).tolist() == [[-1, 0, 1], [1, 0, 0], [-1, -1, -1]]
    restricted = TWO.restrict_topk(topk)
    assert restricted.targets.tolist() == [[0, 1, -1], [1, 0, -1], [-1, -1, -1]]
    assert restricted.known.tolist() == [2, 2, 0]
    assert restricted.unknown().tolist() == [False, False, True]
    assert restricted.unknown(2).tolist() == [False, False, True]
    assert restricted.unknown(5).tolist() == [False, False, True]  # only two targets exist
    truth = np.array([0, 1, 1])
    assert TWO.judge_topk(topk, truth)[:, 0].tolist() == [False, True, False]
    assert replace(TWO, reading="restricted").judge_topk(topk, truth)[:, 0].tolist() == [
        True,
        True,
        False,
    ]
    assert not TWO.read_topk(topk).unknown(5).any()


def test_a_missing_prediction_stays_missing() -> None:
    topk = np.array([[-1, -1], [1, -1]])
    assert TWO.map_topk(topk).tolist() == [[-1, -1], [0, -1]]
    assert TWO.judge_topk(topk, np.array([0, 0])).tolist() == [[False, False], [True, False]]
    assert NESTED.judge_topk(topk, np.array([1, 1])).tolist() == [[False, False], [True, False]]


def test_overlapping_targets_each_keep_their_own_set() -> None:
    topk = np.array([[0], [1], [1], [5]])
    truth = np.array([1, 1, 0, 1])
    # b is an animal and no dog: a shared list would call the third one right.
    assert NESTED.judge_topk(topk, truth)[:, 0].tolist() == [True, True, False, False]
    assert NESTED.overlaps == (0,)
    with pytest.raises(LabelError, match="several targets"):
        NESTED.map_topk(topk)
    with pytest.raises(LabelError, match="no argmax over K"):
        replace(NESTED, reading="restricted")


def test_the_best_accepted_class_stands_for_its_target() -> None:
    logits = np.log(np.array([[0.30, 0.20, 0.05, 0.25, 0.18, 0.02]]))
    restricted = replace(TWO, reading="restricted")
    assert np.allclose(np.exp(restricted.map_logits(logits)), [[0.20, 0.25]])


def test_logits_keep_their_dtype_and_nan_and_infinity() -> None:
    logits = np.zeros((3, 6), dtype=np.float16)
    logits[1, 4] = np.nan
    logits[2] = -np.inf
    out = TWO.map_logits(logits)
    assert out.dtype == np.float16
    assert np.isnan(out).tolist() == [[False, False], [True, False], [False, False]]
    assert np.isneginf(out[2]).all()


def test_logits_against_a_plain_maximum() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(9000, 6))
    expected = np.stack([logits[:, [1, 4]].max(axis=1), logits[:, 3]], axis=1)
    assert np.array_equal(TWO.map_logits(logits), expected)


def test_identity_changes_nothing() -> None:
    same = identity_map(N)
    topk = np.array([[0, 5, 3], [2, 1, 0]])
    logits = np.random.default_rng(1).normal(size=(4, 6))
    assert same.describe() == "identity"
    assert np.array_equal(same.map_topk(topk), topk)
    assert np.array_equal(same.restrict_topk(topk).targets, topk)
    assert np.array_equal(same.map_logits(logits), logits)


def test_describe_says_kind_name_and_reading() -> None:
    part = subset_map(N, ["c", "a"], name="part", reading="restricted")
    assert part.describe() == "subset:part:restricted"
    assert replace(part, reading="full").describe() == "subset:part:full"
    assert TWO.describe() == "many-to-one:two:full"
    assert part == subset_map(N, ["c", "a"], name="part", reading="restricted")
    assert part != replace(part, reading="full")
    with pytest.raises(FrozenInstanceError):
        part.name = "other"  # type: ignore[misc]


@settings(deadline=None)
@given(maps(), st.integers(0, 2**32 - 1))
def test_top_k_of_all_classes_agrees_with_logits(label_map: LabelMap, seed: int) -> None:
    logits = ranked(label_map, np.random.default_rng(seed), 6)
    topk = np.argsort(-logits, axis=1)
    read = label_map.read_topk(topk)
    if label_map.reading == "full":
        best = label_map.target_of_source[logits.argmax(axis=1)]
    else:
        best = label_map.map_logits(logits).argmax(axis=1)
    assert np.array_equal(read.targets[:, 0], best)
    assert not read.unknown(len(label_map.target)).any()
    restricted = label_map.restrict_topk(topk)
    order = np.argsort(-label_map.map_logits(logits), axis=1)
    assert np.array_equal(restricted.targets[:, : len(label_map.target)], order)


@settings(deadline=None)
@given(maps(), st.integers(0, 2**32 - 1), st.integers(1, 9))
def test_restricted_top_k_against_a_slow_loop(label_map: LabelMap, seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    topk = np.argsort(-ranked(label_map, rng, 5), axis=1)[:, :k]
    result = label_map.restrict_topk(topk)
    for row, targets, known in zip(topk, result.targets, result.known, strict=True):
        expected: list[int] = []
        for source in row:
            for target, sources in enumerate(label_map.accepted):
                if source in sources and target not in expected:
                    expected.append(target)
        assert targets.tolist() == expected + [-1] * (len(row) - len(expected))
        assert known == len(expected)


@settings(deadline=None)
@given(maps(), st.integers(0, 2**32 - 1), st.integers(1, 9))
def test_bounds_hold_and_restricted_is_never_below_full(
    label_map: LabelMap, seed: int, stored: int
) -> None:
    rng = np.random.default_rng(seed)
    complete = np.argsort(-ranked(label_map, rng, 8), axis=1)
    truth = rng.integers(0, len(label_map.target), 8)
    if label_map.reading == "full":
        loose = many_to_one_map(
            label_map.source,
            {t: label_map.accepted_ids(t) for t in label_map.target.ids},
            name="made",
            reading="restricted",
        )
    else:
        loose = label_map
    for k in range(1, min(stored, complete.shape[1]) + 1):
        exact = loose.judge_topk(complete, truth)[:, :k].any(axis=1)
        kept = loose.read_topk(complete[:, :stored])
        low = kept.hits(truth)[:, :k].any(axis=1)
        high = low | kept.unknown(k)
        assert (low <= exact).all()
        assert (exact <= high).all()
        full = replace(label_map, reading="full").judge_topk(complete, truth)[:, :k].any(axis=1)
        assert (full <= exact).all()


@settings(deadline=None)
@given(maps(), st.integers(0, 2**32 - 1))
def test_judging_by_sets_equals_judging_by_targets(label_map: LabelMap, seed: int) -> None:
    rng = np.random.default_rng(seed)
    full = replace(label_map, reading="full")
    topk = np.argsort(-ranked(full, rng, 6), axis=1)
    truth = rng.integers(0, len(full.target), 6)
    hits = full.judge_topk(topk, truth)
    for i, row in enumerate(topk):
        assert hits[i].tolist() == [source in full.accepted[truth[i]] for source in row]


@pytest.mark.parametrize(
    ("accepted", "message"),
    [
        (((0,), ()), r"no class of n is accepted for Y \(Y\)"),
        (((0, 1), (1, 2)), r"b \(b\) is accepted for X \(X\), Y \(Y\)"),
    ],
)
def test_bad_maps_are_refused(accepted: tuple[tuple[int, ...], ...], message: str) -> None:
    with pytest.raises(LabelError, match=message):
        LabelMap("m", "many-to-one", N, TWO.target, accepted, "full")


def test_bad_choices_are_refused() -> None:
    with pytest.raises(LabelError, match="'best' is not a reading"):
        replace(TWO, reading="best")  # type: ignore[arg-type]


def test_bad_arrays_are_refused() -> None:
    for topk in (np.array([[6]]), np.array([[-2]])):
        with pytest.raises(LabelError, match="outside -1 to 5"):
            TWO.map_topk(topk)
    with pytest.raises(LabelError, match="not an index"):
        TWO.map_topk(np.array([[0.5]]))
    with pytest.raises(MismatchError, match=r"shape \(2, 5\) for the 6 classes"):
        TWO.map_logits(np.zeros((2, 5)))
    for label_map in (TWO, NESTED):
        with pytest.raises(MismatchError, match="1 truths for 2 predictions"):
            label_map.judge_topk(np.array([[0], [1]]), np.array([0]))
        with pytest.raises(LabelError, match="truth index 2 is outside 0 to 1"):
            label_map.judge_topk(np.array([[0]]), np.array([2]))
    assert TWO.map_topk(np.zeros((0, 5), dtype=np.int16)).shape == (0, 5)
    assert TWO.restrict_topk(np.zeros((0, 5), dtype=np.int16)).targets.shape == (0, 5)
