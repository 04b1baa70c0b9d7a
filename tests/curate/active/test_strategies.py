"""Tests of :mod:`heldout.curate.active.strategies`."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import NotApplicable, UserError
from heldout.curate.active.strategies import (
    ALLOCATORS,
    SELECTORS,
    DomainStatus,
    SelectorInput,
    atc_threshold,
    badge,
    exponential_clocks,
    group_thresholds,
    in_order,
    k_centre,
    levelling,
    parse_allocator,
    parse_selector,
    proportional,
)
from heldout.data.testset.hashing import derived_seed, row_hash

# allocators


NAN = float("nan")


def standing(**changes: Any) -> DomainStatus:
    values = {
        "sizes": np.array([60, 30, 10]),
        "labelled": np.array([12, 6, 2]),
        "capacities": np.array([48, 24, 8]),
        "errors": np.array([0.1, 0.2, 0.5]),
        "losses": np.array([0.5, 1.0, 2.5]),
        "confidences": np.array([0.9, 0.6, 0.8]),
        "validation_confidences": np.array([0.5, 0.6, 0.8]),
        "estimated_errors": np.array([0.3, 0.3, 0.6]),
    } | changes
    return DomainStatus(**values)


def quota(name: str, budget: int = 8, **changes: Any) -> list[int]:
    found = parse_allocator(name)(standing(**changes), budget)
    assert found is not None
    return found.tolist()


def test_every_allocator_by_hand() -> None:
    assert parse_allocator("none")(standing(), 8) is None
    assert quota("ambient", 10) == [6, 3, 1]
    assert quota("uniform", 9) == [3, 3, 3]
    assert quota("error", 8) == [1, 2, 5]
    assert quota("loss", 8) == [1, 2, 5]
    weights = np.exp([0.5, 1.0, 2.5])
    assert quota("exp-loss", 100, capacities=np.array([500, 500, 500])) == [
        round(100 * w / weights.sum()) for w in weights
    ]
    assert quota("estimated-error", 8) == [2, 2, 4]
    assert quota("worst", 8) == [0, 0, 8]
    assert quota("worst", 10) == [0, 2, 8]  # the worst has 8 left: the next worst gets the rest
    assert quota("interpolate:0.5", 12, capacities=np.array([50, 50, 50])) == [2, 2, 8]
    assert quota("interpolate:0", 9) == quota("uniform", 9)
    assert quota("interpolate:1", 8) == quota("worst", 8)
    assert quota("least-labelled", 8) == [0, 2, 6]
    assert quota("lowest-confidence", 8) == [0, 8, 0]
    assert quota("lowest-confidence:validation", 8) == [8, 0, 0]


def test_interpolation_spends_alpha_and_one_minus_alpha() -> None:
    """The published code adds alpha of both; the parts must sum to the whole budget."""
    roomy = np.array([1000, 1000, 1000])
    for alpha in (0.2, 0.25, 0.5, 0.9):
        found = quota(f"interpolate:{alpha}", 300, capacities=roomy)
        each = Fraction(300) * (1 - Fraction(alpha)) / 3
        assert sum(found) == 300
        assert abs(found[0] - each) < 1 and abs(found[2] - (300 * Fraction(alpha) + each)) < 1


def test_domains_without_a_number() -> None:
    errors = np.array([0.1, NAN, 0.5])
    assert quota("error", 9, errors=errors) == [1, 3, 5]  # counts as the mean, 0.3
    assert quota("worst", 33, errors=errors) == [25, 0, 8]
    assert quota("worst", 70, errors=errors) == [48, 14, 8]  # last of all
    nothing = np.full(3, NAN)
    for name in ("error", "worst", "interpolate"):
        with pytest.raises(NotApplicable, match="no domain has an error rate"):
            quota(name, errors=nothing)


def test_no_error_anywhere_gives_equal_parts() -> None:
    assert quota("error", 9, errors=np.zeros(3)) == [3, 3, 3]


@given(
    st.sampled_from([name for name in ALLOCATORS if name != "none"]),
    st.lists(st.integers(0, 9), min_size=3, max_size=3),
    st.lists(st.sampled_from([0.0, 0.2, 0.7, NAN]), min_size=3, max_size=3),
    st.data(),
)
def test_the_budget_is_met_and_capacities_hold(
    name: str, room: list[int], numbers: list[float], data: st.DataObject
) -> None:
    budget = data.draw(st.integers(0, sum(room)))
    values = np.array([0.4 if np.isnan(numbers).all() else v for v in numbers])
    found = quota(
        name,
        budget,
        capacities=np.array(room),
        errors=values,
        losses=values,
        confidences=values,
        estimated_errors=values,
    )
    assert sum(found) == budget
    assert all(0 <= f <= r for f, r in zip(found, room, strict=True))


@pytest.mark.parametrize(
    "text", ["", "best", "interpolate:2", "interpolate:x", "worst:3", "lowest-confidence:pool"]
)
def test_texts_that_name_no_allocator(text: str) -> None:
    with pytest.raises(UserError):
        parse_allocator(text)


@pytest.mark.parametrize("text", [*ALLOCATORS, "interpolate:0.25", "lowest-confidence:validation"])
def test_names_are_read_back(text: str) -> None:
    assert parse_allocator(text).name == text
    assert parse_allocator(parse_allocator(text).name) == parse_allocator(text)


# quotas


@st.composite
def requests(draw: st.DrawFn) -> tuple[list[float], list[int], int]:
    size = draw(st.integers(1, 6))
    weights = draw(
        st.lists(st.sampled_from([0.0, 0.1, 0.3, 1.0, 2.5, 7.0]), min_size=size, max_size=size)
    )
    room = draw(st.lists(st.integers(0, 12), min_size=size, max_size=size))
    return weights, room, draw(st.integers(0, sum(room)))


def exact_shares(weights: list[float], room: list[int], budget: int) -> list[Fraction]:
    """min(room, s * weight) with the s that spends the budget: every breakpoint is tried."""
    known = [Fraction(w) for w in weights]
    if sum(r for w, r in zip(known, room, strict=True) if w) < budget:
        rest = budget - sum(r for w, r in zip(known, room, strict=True) if w)
        empty = [r if not w else 0 for w, r in zip(known, room, strict=True)]
        spread = exact_shares([1.0 if r else 0.0 for r in empty], empty, rest)
        return [Fraction(r) if w else s for w, r, s in zip(known, room, spread, strict=True)]
    points = sorted(
        {Fraction(r) / w for w, r in zip(known, room, strict=True) if w} | {Fraction(0)}
    )

    def spent(s: Fraction) -> Fraction:
        return sum((min(Fraction(r), s * w) for w, r in zip(known, room, strict=True)), Fraction(0))

    below = max(p for p in points if spent(p) <= budget)
    slope = sum(w for w, r in zip(known, room, strict=True) if w and Fraction(r) / w > below)
    scale = below if not slope else below + (budget - spent(below)) / slope
    return [min(Fraction(r), scale * w) for w, r in zip(known, room, strict=True)]


@given(requests())
def test_proportional_is_the_largest_remainder_of_exact_shares(
    request_: tuple[list[float], list[int], int],
) -> None:
    weights, room, budget = request_
    got = proportional(weights, room, budget).tolist()
    assert sum(got) == budget
    assert all(0 <= g <= r for g, r in zip(got, room, strict=True))
    shares = exact_shares(weights, room, budget)
    assert sum(shares) == budget
    assert all(abs(g - s) < 1 for g, s in zip(got, shares, strict=True))
    up = [s - int(s) for g, s in zip(got, shares, strict=True) if g > s]
    down = [s - int(s) for g, s in zip(got, shares, strict=True) if g < s]
    assert not up or not down or min(up) >= max(down)


@given(requests())
def test_in_order_fills_one_group_after_the_other(
    request_: tuple[list[float], list[int], int],
) -> None:
    weights, room, budget = request_
    order = sorted(range(len(room)), key=lambda g: (-weights[g], g))
    slots = [group for group in order for _ in range(room[group])][:budget]
    assert (
        in_order(order, room, budget).tolist()
        == np.bincount(np.array(slots, int), minlength=len(room)).tolist()
    )


@given(requests(), st.lists(st.integers(0, 9), min_size=6, max_size=6))
def test_levelling_gives_one_at_a_time(
    request_: tuple[list[float], list[int], int], held: list[int]
) -> None:
    _, room, budget = request_
    counts = [0] * len(room)
    for _ in range(budget):
        open_ = [g for g in range(len(room)) if counts[g] < room[g]]
        counts[min(open_, key=lambda g: (held[g] + counts[g], g))] += 1
    assert levelling(held[: len(room)], room, budget).tolist() == counts


# selectors


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


def test_all_candidates_can_be_chosen() -> None:
    v = view(1)
    for text in TEXTS:
        assert sorted(parse_selector(text)(v, 14).tolist()) == list(range(14))


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
def test_names_are_read_back_selectors(text: str) -> None:
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
