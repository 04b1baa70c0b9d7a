"""Tests of :mod:`heldout.measure.score.compare`."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.special import ndtri

from heldout.core.errors import NotApplicable, NotFound, UserError
from heldout.measure.score.compare import (
    compare,
    consistency_records,
    error_consistency,
    kappa_of,
)
from heldout.measure.score.estimate import scores
from heldout.measure.score.measure import measure
from heldout.measure.score.slices import cluster_column, unit_codes, unit_columns
from heldout.stats.agreement import cohen_kappa, kappa_variance
from heldout.stats.intervals import t_quantile
from tests.measure.score.worlds import World, single_label, world_testset, worlds

from .factor_worlds import factor_world, rising, size_world

# Clusters and units: which column, which rows, and paired comparisons that respect them.


def test_the_card_says_what_to_cluster_by_and_the_user_may_say_otherwise() -> None:
    testset = size_world().testset
    assert cluster_column(testset, None) == "object"
    assert cluster_column(testset, "background") == "background"
    assert cluster_column(testset, "none") is None
    plain = size_world(declared=False).testset
    assert cluster_column(plain, None) is None
    with pytest.raises(NotFound, match="no column 'nothing'"):
        scores(size_world().measured(), cluster=cluster_column(testset, "nothing"))


def test_a_unit_is_what_is_repeated_with_all_factors_but_the_one_that_is_read() -> None:
    world = factor_world(
        {"angle": [1, 91], "size": [0.1, 0.2]},
        rising,
    )
    testset = world.testset
    assert unit_columns(testset, ["angle"], None) == ["object", "background", "size"]
    assert unit_columns(testset, ["size"], None) == ["object", "background", "angle"]
    assert unit_columns(testset, ["size"], "object & size") == ["object"]
    card = testset.card.updated(units=())
    assert unit_columns(replace(testset, card=card), ["angle"], None) == ["object", "size"]
    assert unit_columns(size_world(declared=False).testset, ["size"], None) == []


def test_units_are_rows_that_share_all_values() -> None:
    world = size_world(objects=3)
    measured = world.measured()
    codes = unit_codes(measured, ["object", "background"])
    images = [world.images[row] for row in measured.rows]
    for i, one in enumerate(images):
        for j, other in enumerate(images):
            same = all(one[c] == other[c] for c in ("object", "background"))
            assert (codes[i] == codes[j]) == same


def test_paired_differences_at_every_value_are_clustered() -> None:
    world = size_world(keep=lambda image: True)
    measured = world.measured()
    found = {
        r.slice: r
        for r in compare(measured, [("oak", "yew")], by=["size"], cluster="object", replicates=4000)
    }
    assert len(found) == 9
    for size in (0.1, 0.5):
        record = found[f"size={size}"]
        means = [
            np.mean(world.rows("oak", size=size, object=f"object {o}"))
            - np.mean(world.rows("yew", size=size, object=f"object {o}"))
            for o in range(12)
        ]
        half = t_quantile(0.95, 11) * np.std(means, ddof=1) / np.sqrt(12)
        assert record.difference == pytest.approx(np.mean(means))
        assert record.high - record.low >= 1.5 * 2 * half  # of nine, that hold together
        assert (record.p <= 0.05) == (not record.low <= 0 <= record.high)
        assert record.test == "paired cluster score, simultaneous over 9"


def test_a_comparison_of_few_clusters_has_no_p_and_says_why() -> None:
    measured = size_world(objects=5).measured()
    for record in compare(measured, [("oak", "yew")], by=["size"], cluster="object"):
        assert record.p is None and record.low is None
        assert "clusters (object) are too few" in record.reason


def test_a_comparison_of_slices_alone_leaves_the_whole_out_of_the_correction() -> None:
    measured = size_world(keep=lambda image: True).measured()
    found = compare(
        measured, [("oak", "yew")], by=["size"], whole=False, cluster="object", replicates=50
    )
    assert "all" not in {r.slice for r in found}
    assert all(r.test.endswith("simultaneous over 8") for r in found)


def test_memberships_cannot_say_what_belongs_together() -> None:

    from .worlds import single_label, world_testset

    world = single_label([0, 1, 0], 2, {"m": [(1, 0), (1, 0), (1, 0)]})
    testset = world_testset(world, members=[("i000", "context", "sea"), ("i000", "context", "sky")])
    (measured,) = measure(testset, world.predictions())
    with pytest.raises(NotApplicable, match="several values per image"):
        unit_codes(measured, ["context"])


def test_clustered_scores_of_slices_are_wider_where_objects_share_their_fate() -> None:
    world = factor_world(
        {"size": [0.1, 0.2]},
        lambda image, ease: float(ease[0] > 0),
        objects=30,
        backgrounds=8,
    )
    wide = {r.slice: r for r in scores(world.measured(), by=["size"], cluster="object")}
    thin = {r.slice: r for r in scores(world.measured(), by=["size"])}
    for name, record in wide.items():
        ratio = (record.high - record.low) / (thin[name].high - thin[name].low)
        assert ratio > 2  # eight images an object say what one says


# Error consistency against Geirhos et al.'s formula in loops, and Cohen's kappa.


@settings(max_examples=80, deadline=None)
@given(worlds(lists=False, models=3))
def test_against_the_formula(world: World) -> None:
    (measured,) = measure(world_testset(world), world.predictions())
    found = error_consistency(measured)
    right = {
        m: [world.guesses(m, r)[:1] == [i.label] for r, i in enumerate(world.images)]
        for m in world.logits
    }
    for i, a in enumerate(found.models):
        for j, b in enumerate(found.models):
            n = len(world.images)
            same = sum(x == y for x, y in zip(right[a], right[b], strict=True)) / n
            p, q = sum(right[a]) / n, sum(right[b]) / n
            expected = p * q + (1 - p) * (1 - q)
            assert found.observed[i, j] == pytest.approx(same)
            assert found.expected[i, j] == pytest.approx(expected)
            if p == q and p in (0, 1):
                assert math.isnan(found.kappa[i, j])
            else:
                assert found.kappa[i, j] == pytest.approx((same - expected) / (1 - expected))
                assert found.kappa[i, j] == pytest.approx(cohen_kappa(right[a], right[b]))
                # The nearer limit is where the spread there puts 1.96 errors between the two.
                mean = [(sum(x) + 0.5) / (n + 1) for x in (right[a], right[b])]
                for limit in (found.low[i, j], found.high[i, j]):
                    if abs(limit) < 1 - 1e-9:
                        error = math.sqrt(kappa_variance(limit, *mean) / n)
                        far = abs(limit - found.kappa[i, j])
                        assert far == pytest.approx(1.959964 * error, abs=1e-6)


def slow_variance(kappa: float, a: float, b: float) -> float:
    """Fleiss, Cohen and Everitt's formula, cell by cell, of the table with these margins."""
    pe = a * b + (1 - a) * (1 - b)
    po = kappa * (1 - pe) + pe
    both = (po - 1 + a + b) / 2
    cells = {(1, 1): both, (1, 0): a - both, (0, 1): b - both, (0, 0): 1 - a - b + both}
    assert min(cells.values()) >= 0
    row, column = {1: a, 0: 1 - a}, {1: b, 0: 1 - b}
    total = sum(cells[x, x] * ((1 - pe) - (row[x] + column[x]) * (1 - po)) ** 2 for x in (0, 1))
    total += (1 - po) ** 2 * sum(
        cells[x, y] * (column[x] + row[y]) ** 2 for x, y in cells if x != y
    )
    total -= (po * pe - 2 * pe + po) ** 2
    return total / (1 - pe) ** 4


@pytest.mark.parametrize(
    ("kappa", "a", "b"), [(0.3, 0.7, 0.8), (0.0, 0.9, 0.6), (0.7, 0.95, 0.96), (-0.05, 0.9, 0.9)]
)
def test_the_variance_of_kappa_is_the_published_formula(kappa: float, a: float, b: float) -> None:
    assert float(kappa_variance(kappa, a, b)) == pytest.approx(slow_variance(kappa, a, b))


@pytest.mark.parametrize(
    ("clusters", "accuracy", "together"),
    [(None, 0.97, 0.0), (20, 0.8, 0.35), (12, 0.95, 0.35), (25, 0.95, 0.25)],
)
def test_limits_of_kappa_cover(clusters: int | None, accuracy: float, together: float) -> None:
    """With 25 clusters at 0.95, 91 % covered before, and 42 % as if images were drawn one by one.

    Of 400 sets at most 30 intervals may miss: at 95 % more has a chance of 1 in 100.
    """
    rng, missed, n = np.random.default_rng(4), 0, 20 * (clusters or 12)
    ease = float(ndtri(accuracy))
    # kappa of two answers whose normal factors correlate by 0.5, from a large sample
    pair = rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], 1_000_000) < ease
    true = cohen_kappa(pair[:, 0], pair[:, 1])
    groups, first = np.arange(n) // 20, np.arange(0, 20, 2)
    for _ in range(40):  # of ten pairs of models
        shared = np.sqrt(together) * rng.standard_normal((n, 10))[groups]
        shared += np.sqrt(0.5 - together) * rng.standard_normal((n, 10))
        right = shared.repeat(2, axis=1) + np.sqrt(0.5) * rng.standard_normal((n, 20)) < ease
        found = kappa_of(right, None if clusters is None else groups)
        low, high = (limits[first, first + 1] for limits in (found.low, found.high))
        missed += int((~((low <= true) & (true <= high))).sum())
    assert missed <= 30


def test_kappas_of_clusters_are_as_sure_as_what_is_new_in_them() -> None:
    """A cluster of one image is an image, and one of four copies is one image too."""
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((300, 1))
    hits = shared + rng.standard_normal((300, 3)) < [0.5, 0.8, 1.5]
    images = np.arange(300)
    copies, groups = np.repeat(hits, 4, axis=0), np.repeat(images, 4)
    plain, thin = kappa_of(hits), kappa_of(copies)
    several_rows = kappa_of(copies, groups, part=np.full(len(copies), 0.25))
    assert several_rows.n == 300
    for found in (kappa_of(hits, images), kappa_of(copies, groups), several_rows):
        for a, b in combinations(range(3), 2):
            assert found.kappa[a, b] == pytest.approx(plain.kappa[a, b])
            width = found.high[a, b] - found.low[a, b]
            assert width == pytest.approx(plain.high[a, b] - plain.low[a, b], rel=0.05)
            assert width > 1.8 * (thin.high[a, b] - thin.low[a, b])


def test_kappas_of_few_clusters_have_no_interval() -> None:
    world = single_label([0] * 20, 2, {m: [(1, 0)] * 12 + [(0, 1)] * 8 for m in "ab"})
    testset = world_testset(world, group=[f"g{i % 5}" for i in range(20)])
    (measured,) = measure(testset, world.predictions())
    (record,) = consistency_records(measured, cluster="group")
    assert record.low is None and "5 clusters (group) are too few" in str(record.reason)


def test_independent_and_equal_models() -> None:
    rng = np.random.default_rng(0)
    n = 4000
    errors = {name: rng.random(n) < 0.3 for name in ("a", "b")}
    errors["copy"] = errors["a"]
    errors["other"] = ~errors["a"]
    world = single_label(
        [0] * n, 2, {m: [(0, 1) if e else (1, 0) for e in given] for m, given in errors.items()}
    )
    (measured,) = measure(world_testset(world), world.predictions())
    found = {(r.model, r.other): r for r in consistency_records(measured)}
    assert set(found) == set(combinations(errors, 2))
    independent = found["a", "b"]
    assert independent.low is not None and independent.high is not None
    assert independent.low < 0 < independent.high and independent.high < 0.1
    assert found["a", "copy"].difference == 1 == found["a", "copy"].high
    assert 0.99 < found["a", "copy"].low < 1
    assert found["a", "other"].difference < -0.7
    assert independent.metric == "error_consistency" and independent.p is None
    assert independent.test is not None and "observed agreement" in independent.test
    assert consistency_records(measured, [("b", "a")])[0].difference == independent.difference
    with pytest.raises(UserError, match="no model 'c'"):
        consistency_records(measured, [("a", "c")])


def test_the_interval_covers() -> None:
    """Of 200 draws of two half-dependent models, the 95 % interval misses at most 22."""
    rng = np.random.default_rng(1)
    n, missed = 300, 0
    # right with 0.7; b copies a half of the time: kappa is exactly one half
    for _ in range(200):
        a = rng.random(n) < 0.7
        b = np.where(rng.random(n) < 0.5, a, rng.random(n) < 0.7)
        world = single_label(
            [0] * n, 2, {m: [(1, 0) if e else (0, 1) for e in v] for m, v in (("a", a), ("b", b))}
        )
        (measured,) = measure(world_testset(world), world.predictions(keep="topk"))
        (record,) = consistency_records(measured)
        assert record.low is not None and record.high is not None
        missed += not record.low <= 0.5 <= record.high
    assert missed <= 22


def test_pairs_without_kappa_are_left_out() -> None:
    world = single_label([0, 0], 2, {"a": [(1, 0)] * 2, "b": [(1, 0)] * 2, "c": [(1, 0), (0, 1)]})
    (measured,) = measure(world_testset(world), world.predictions())
    assert [(r.model, r.other, r.difference) for r in consistency_records(measured)] == [
        ("a", "c", 0.0),
        ("b", "c", 0.0),
    ]
    (nll,) = measure(world_testset(world), world.predictions(), metrics=["nll"])
    with pytest.raises(NotApplicable, match="no hits and misses"):
        error_consistency(nll)
