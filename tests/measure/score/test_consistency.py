"""Error consistency against Geirhos et al.'s formula in loops, and Cohen's kappa."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings

from heldout.core.errors import NotApplicable, UserError
from heldout.measure.score.compare import consistency_records, error_consistency
from heldout.measure.score.measure import measure
from heldout.stats.agreement import cohen_kappa
from tests.measure.score.worlds import World, single_label, world_testset, worlds


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
                assert found.error[i, j] == pytest.approx(slow_error(right[a], right[b]), abs=1e-6)


def slow_error(a: list[bool], b: list[bool]) -> float:
    """Fleiss, Cohen and Everitt's formula, cell by cell."""
    n = len(a)
    cells = {
        (x, y): sum(p == x and q == y for p, q in zip(a, b, strict=True)) / n
        for x in (True, False)
        for y in (True, False)
    }
    row = {x: cells[x, True] + cells[x, False] for x in (True, False)}
    column = {y: cells[True, y] + cells[False, y] for y in (True, False)}
    po = cells[True, True] + cells[False, False]
    pe = row[True] * column[True] + row[False] * column[False]
    total = sum(
        cells[x, x] * ((1 - pe) - (row[x] + column[x]) * (1 - po)) ** 2 for x in (True, False)
    )
    total += (1 - po) ** 2 * sum(
        cells[x, y] * (column[x] + row[y]) ** 2 for x, y in cells if x != y
    )
    total -= (po * pe - 2 * pe + po) ** 2
    return math.sqrt(max(total, 0) / n) / (1 - pe) ** 2


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
    assert found["a", "copy"].difference == 1 and found["a", "copy"].low is None
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
