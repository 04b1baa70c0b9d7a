from __future__ import annotations

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import NotApplicable, UserError
from heldout.curate.active.strategies import (
    SELECTORS,
    SelectorInput,
    atc_threshold,
    badge,
    exponential_clocks,
    group_thresholds,
    k_centre,
    parse_selector,
)
from heldout.data.testset.hashing import derived_seed, row_hash

TEXTS = (*SELECTORS, "atc:margin", "atc:entropy:by-domain", "atc:by-domain")


def view(seed: int, n: int = 14, domains: int = 3, *, ties: bool = False) -> SelectorInput:
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, 4)) * 2
    if ties:
        logits = np.round(logits)
    return SelectorInput(
        ids=pa.array([f"i{row}" for row in range(n)]),
        groups=rng.integers(domains, size=n),
        domains=domains,
        seed=seed,
        logits=logits,
        features=rng.normal(size=(n, 5)),
        labelled=rng.normal(size=(3, 5)),
        validation_logits=rng.normal(size=(20, 4)) * 2,
        validation_labels=rng.integers(4, size=20),
        validation_groups=rng.integers(domains - 1, size=20),  # the last domain has none
    )


def random_quota(v: SelectorInput, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.array([rng.integers(0, (v.groups == g).sum() + 1) for g in range(v.domains)])


def softmax(row: np.ndarray) -> list[float]:
    powers = [math.exp(x - max(row)) for x in row]
    return [p / sum(powers) for p in powers]


def slow_score(name: str, row: np.ndarray) -> float:
    p = sorted(softmax(row), reverse=True)
    if name == "least-confidence":
        return p[0]
    if name == "margin":
        return p[0] - p[1]
    if name == "logit-margin":
        ordered = sorted(row, reverse=True)
        return float(ordered[0] - ordered[1])
    return sum(x * math.log(x) for x in p if x > 0)


def slow_threshold(scores: list[float], correct: list[bool]) -> float:
    """The largest score t of a validation image, or infinity, with #(score < t) <= errors."""
    wrong = correct.count(False)
    fitting = [t for t in [*scores, math.inf] if sum(s < t for s in scores) <= wrong]
    return max(fitting)


def slow_select(text: str, v: SelectorInput, budget: int, quota: np.ndarray | None) -> list[int]:
    """Selection as a person would do it with paper: one image after the other."""
    kind, *rest = text.split(":")
    ties = row_hash(v.ids, seed=derived_seed("ties", v.seed)).tolist()
    left = None if quota is None else quota.tolist()
    n = len(v.groups)

    def takers(done: list[int]) -> list[int]:
        open_ = [i for i in range(n) if i not in done]
        if left is None:
            return open_
        taken = [sum(v.groups[i] == g for i in done) for g in range(v.domains)]
        return [i for i in open_ if taken[v.groups[i]] < left[v.groups[i]]]

    assert v.logits is not None and v.features is not None and v.labelled is not None
    assert v.validation_logits is not None and v.validation_labels is not None
    assert v.validation_groups is not None
    key: dict[int, tuple[float, ...]] = {}
    if kind == "random":
        key = {i: (ties[i],) for i in range(n)}
    elif kind == "atc":
        by_domain = bool(rest) and rest[-1] == "by-domain"
        name = rest[0] if rest and rest[0] != "by-domain" else "least-confidence"
        known = [slow_score(name, row) for row in v.validation_logits]
        right = [
            max(range(4), key=lambda c, row=row: row[c]) == label
            for row, label in zip(v.validation_logits, v.validation_labels, strict=True)
        ]
        for i in range(n):
            mine = [
                j
                for j in range(len(known))
                if not by_domain or v.validation_groups[j] == v.groups[i]
            ] or list(range(len(known)))
            limit = slow_threshold([known[j] for j in mine], [right[j] for j in mine])
            score = slow_score(name, v.logits[i])
            key[i] = (1, score, ties[i]) if score >= limit else (0, 0, ties[i])
    elif kind not in ("k-centre", "badge"):
        key = {i: (slow_score(kind, v.logits[i]), ties[i]) for i in range(n)}
    done: list[int] = []
    if key:
        for i in sorted(range(n), key=lambda i: key[i]):
            if i in takers(done) and len(done) < budget:
                done.append(i)
        return done
    if kind == "k-centre":
        while len(done) < budget:
            centres = [*v.labelled, *(v.features[i] for i in done)]
            done.append(
                max(
                    takers(done),
                    key=lambda i: (min(math.dist(v.features[i], c) for c in centres), -ties[i]),
                )
            )
        return done
    gradients = []
    for row, features in zip(v.logits, v.features, strict=True):
        residual = np.array(softmax(row))
        residual[int(np.argmax(row))] -= 1
        gradients.append(np.outer(residual, features).ravel())
    while len(done) < budget:
        open_ = takers(done)
        if not done:
            done.append(max(open_, key=lambda i: float(np.linalg.norm(gradients[i]))))
            continue
        step = len(done)
        clocks = exponential_clocks(v.ids, seed=derived_seed(f"badge {step}", v.seed))
        weights = {
            i: min(float(((gradients[i] - gradients[j]) ** 2).sum()) for j in done) for i in open_
        }
        done.append(min(open_, key=lambda i: clocks[i] / weights[i]))
    return done


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("seed", range(12))
def test_every_selector_against_a_slow_one(text: str, seed: int) -> None:
    v = view(seed)
    selector = parse_selector(text)
    assert selector(v, 6).tolist() == slow_select(text, v, 6, None)
    quota = random_quota(v, seed)
    budget = int(quota.sum())
    got = selector(v, budget, quota).tolist()
    assert got == slow_select(text, v, budget, quota)
    assert np.bincount(v.groups[got], minlength=v.domains).tolist() == quota.tolist()
    assert len(set(got)) == budget


@pytest.mark.parametrize("text", TEXTS)
def test_the_order_of_rows_makes_no_difference(text: str) -> None:
    v = view(3, ties=text not in ("k-centre", "badge"))
    order = np.random.default_rng(0).permutation(len(v.groups))
    assert v.logits is not None and v.features is not None
    shuffled = SelectorInput(
        ids=v.ids.take(pa.array(order)),
        groups=v.groups[order],
        domains=v.domains,
        seed=v.seed,
        logits=v.logits[order],
        features=v.features[order],
        labelled=v.labelled,
        validation_logits=v.validation_logits,
        validation_labels=v.validation_labels,
        validation_groups=v.validation_groups,
    )
    selector = parse_selector(text)
    assert order[selector(shuffled, 7)].tolist() == selector(v, 7).tolist()


def test_all_candidates_can_be_chosen_and_no_more() -> None:
    v = view(1)
    for text in TEXTS:
        assert sorted(parse_selector(text)(v, 14).tolist()) == list(range(14))
        with pytest.raises(UserError, match="15 images are asked for, 14 are left"):
            parse_selector(text)(v, 15)


def test_what_a_selector_lacks_is_said() -> None:
    bare = SelectorInput(ids=pa.array(["a", "b"]), groups=np.zeros(2, int), domains=1, seed=0)
    assert len(parse_selector("random")(bare, 1)) == 1
    for text in ("margin", "atc", "badge"):
        with pytest.raises(NotApplicable, match="needs a trained classifier"):
            parse_selector(text)(bare, 1)
    with pytest.raises(NotApplicable, match="needs features"):
        parse_selector("k-centre")(bare, 1)


@pytest.mark.parametrize("text", ["", "best", "margin:2", "atc:loss", "atc:margin:x"])
def test_texts_that_name_no_selector(text: str) -> None:
    with pytest.raises(UserError):
        parse_selector(text)


@pytest.mark.parametrize("text", TEXTS)
def test_names_are_read_back(text: str) -> None:
    assert parse_selector(text).name == text


scores = st.lists(st.sampled_from([0.1, 0.3, 0.3, 0.5, 0.9]), min_size=1, max_size=8)


@given(scores, st.data())
def test_thresholds_leave_as_many_below_as_are_wrong(
    values: list[float], data: st.DataObject
) -> None:
    correct = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    got = atc_threshold(np.array(values), np.array(correct))
    assert got == slow_threshold(values, correct)
    if len(set(values)) == len(values):
        assert sum(v < got for v in values) == correct.count(False)


def test_thresholds_of_groups() -> None:
    values = np.array([0.1, 0.5, 0.9, 0.2, 0.4])
    correct = np.array([False, True, True, False, False])
    groups = np.array([0, 0, 0, 1, 1])
    limits = group_thresholds(values, correct, groups, 3)
    assert limits.tolist() == [0.5, math.inf, 0.5]


def test_equal_points_are_at_distance_zero() -> None:
    """Large equal vectors: rounding must not make one of them a new centre."""
    points = np.repeat(np.random.default_rng(0).normal(size=(3, 50)) * 1e4, 2, axis=0)
    ties = np.arange(6, dtype=np.uint64)
    chosen = k_centre(points, points[:1], np.zeros(6, int), budget=4, quota=None, ties=ties)
    assert {row // 2 for row in chosen[:2].tolist()} == {1, 2}
    assert chosen[2:].tolist() == sorted(chosen[2:].tolist())  # all at distance 0: by ties


def test_badge_draws_in_proportion_to_squared_distances() -> None:
    """Over many seeds the second choice falls on each image as often as its weight says."""
    rng = np.random.default_rng(5)
    logits, features = rng.normal(size=(5, 3)), rng.normal(size=(5, 2))
    ids = pa.array(list("abcde"))
    counts = np.zeros(5)
    for seed in range(4000):
        pair = badge(logits, features, np.zeros(5, int), budget=2, quota=None, ids=ids, seed=seed)
        counts[pair[1]] += 1
    residuals = np.array([softmax(row) for row in logits])
    residuals[np.arange(5), logits.argmax(axis=1)] -= 1
    gradients = np.einsum("nc,nd->ncd", residuals, features).reshape(5, -1)
    first = int(np.argmax((gradients**2).sum(axis=1)))
    weights = ((gradients - gradients[first]) ** 2).sum(axis=1)
    expected = 4000 * weights / weights.sum()
    others = [i for i in range(5) if i != first]
    statistic = sum((counts[i] - expected[i]) ** 2 / expected[i] for i in others)
    assert counts[first] == 0 and statistic < 16.3  # chi-square, 3 degrees, p = 0.001


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_greedy_k_centre_is_within_twice_the_best(seed: int) -> None:
    """The known bound of the greedy choice, against every possible choice."""
    rng = np.random.default_rng(seed)
    points, labelled = rng.normal(size=(7, 2)), rng.normal(size=(1, 2))
    ties = np.arange(7, dtype=np.uint64)
    chosen = k_centre(points, labelled, np.zeros(7, int), budget=2, quota=None, ties=ties)

    def radius(rows: tuple[int, ...]) -> float:
        centres = np.concatenate([labelled, points[list(rows)]])
        return max(min(math.dist(p, c) for c in centres) for p in points)

    best = min(radius(rows) for rows in itertools.combinations(range(7), 2))
    assert radius(tuple(chosen.tolist())) <= 2 * best + 1e-9
