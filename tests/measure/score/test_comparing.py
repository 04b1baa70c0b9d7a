"""Comparisons against direct differences, and their tests against the statistics room."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from heldout.core.errors import NotApplicable
from heldout.measure.score.compare import adjusted, compare
from heldout.measure.score.measure import measure
from heldout.stats.multiple import holm
from heldout.stats.paired import mcnemar_exact, paired_difference
from tests.measure.score.test_scoring import EVERY, big_world, columns
from tests.measure.score.worlds import World, single_label, world_testset, worlds


@settings(max_examples=60, deadline=None)
@given(worlds(lists=False))
def test_plain_accuracy_is_mcnemar_and_tango(world: World) -> None:
    (measured,) = measure(world_testset(world), world.predictions())
    (record,) = compare(measured, [("m0", "m1")])
    a, b = (
        [world.guesses(m, r)[:1] == [i.label] for r, i in enumerate(world.images)]
        for m in ("m0", "m1")
    )
    only_a = sum(x and not y for x, y in zip(a, b, strict=True))
    only_b = sum(y and not x for x, y in zip(a, b, strict=True))
    limits = paired_difference(only_a, only_b, len(a))
    assert record.difference == pytest.approx((sum(a) - sum(b)) / len(a))
    assert (record.low, record.high) == (limits.low, limits.high)
    assert record.p == mcnemar_exact(only_a, only_b)
    assert (record.test, record.n) == ("exact McNemar", len(a))


def test_every_metric_compares() -> None:
    world = big_world()
    testset = world_testset(world, **columns(120))
    for measured in measure(testset, world.predictions(), metrics=EVERY):
        (record,) = compare(measured, [("m2", "m0")], replicates=200)
        difference = measured.estimates()[2] - measured.estimates()[0]
        assert record.difference == pytest.approx(difference)
        assert record.low is not None and record.high is not None and record.p is not None
        assert record.low <= record.difference <= record.high
        assert 0 <= record.p <= 1
        if not measured.metric.counted:
            assert record.test == "paired bootstrap"
            # p and interval come from one distribution
            assert (record.p < 0.05) == (not record.low <= 0 <= record.high)


@pytest.mark.parametrize("metric", EVERY)
def test_swapping_two_models_turns_the_sign(metric: str) -> None:
    world = big_world()
    (measured,) = measure(
        world_testset(world, **columns(120)), world.predictions(), metrics=[metric]
    )
    (there,) = compare(measured, [("m0", "m1")], replicates=100)
    (back,) = compare(measured, [("m1", "m0")], replicates=100)
    assert there.difference == pytest.approx(-back.difference)
    assert there.p == pytest.approx(back.p)
    assert there.low == pytest.approx(-back.high) and there.high == pytest.approx(-back.low)  # type: ignore[operator]


def test_losses_above_one_are_compared() -> None:
    """Values of a loss have no bounds; they once were taken for fractions."""
    world = single_label(
        [1] * 30, 2, {"a": [(9.0, 0.0)] * 30, "b": [(float(i % 7), 0.0) for i in range(30)]}
    )
    (measured,) = measure(world_testset(world), world.predictions(), metrics=["nll"])
    (record,) = compare(measured, [("a", "b")])
    assert record.difference > 1 and record.p is not None and record.p < 0.01


def test_many_comparisons_are_holms() -> None:
    world = big_world()
    testset = world_testset(world, **columns(120))
    (measured,) = measure(testset, world.predictions())
    pairs = [("m0", "m1"), ("m0", "m2")]
    found = compare(measured, pairs, by=["domain"])
    assert [r.slice for r in found[:4]] == ["all", "domain=a", "domain=b", "domain=c"]
    raw = []
    for record in found:
        rows = (
            slice(None)
            if record.slice == "all"
            else np.flatnonzero(
                [f"domain={d}" == record.slice for d in testset.images["domain"].to_pylist()]
            )
        )
        a, b = (measured.column(m)[rows] for m in (record.model, record.other))
        raw.append(mcnemar_exact(int((a & ~b).sum()), int((b & ~a).sum())))
    assert [r.p for r in found] == pytest.approx(holm(raw))
    assert all(r.test == "exact McNemar, Holm over 8" for r in found)


def test_comparisons_without_p_are_left_as_they_are() -> None:
    world = big_world(10)
    testset = world_testset(world, domain=["one"] + ["many"] * 9)
    (measured,) = measure(testset, world.predictions(), metrics=["nll"])
    found = {r.slice: r for r in compare(measured, [("m0", "m1")], by=["domain"], replicates=50)}
    alone = found["domain=one"]
    assert (alone.p, alone.low, alone.high, alone.test, alone.n) == (None, None, None, None, 1)
    assert found["all"].test == "paired bootstrap, Holm over 2"
    assert adjusted([alone]) == [alone]
    assert adjusted([replace(alone, p=0.04)]) == [replace(alone, p=0.04)]


def test_equal_models_do_not_differ() -> None:
    world = single_label([0, 1] * 10, 2, {"a": [(1, 0)] * 20, "b": [(1, 0)] * 20})
    for measured in measure(
        world_testset(world), world.predictions(), metrics=["top1", "nll", "ece"]
    ):
        (record,) = compare(measured, [("a", "b")], replicates=50)
        assert (record.difference, record.p) == (0, 1)


def test_scores_a_class_are_not_compared() -> None:
    world = big_world()
    (measured,) = measure(world_testset(world), world.predictions(), metrics=["precision"])
    with pytest.raises(NotApplicable, match="a score for each class"):
        compare(measured, [("m0", "m1")])


def test_a_calibration_difference_without_spread_has_the_p_of_a_sign_test() -> None:
    """Every image gives the same gap: 12 images say as much as 12 tosses, not that p is 0."""
    logits = {"sure": [(2.0, 0.0)] * 12, "unsure": [(0.5, 0.0)] * 12}
    world = single_label([0] * 12, 2, logits)
    (measured,) = measure(world_testset(world), world.predictions(), metrics=["ece"])
    (record,) = compare(measured, [("sure", "unsure")], replicates=100)
    assert record.difference < -0.2 and record.p == pytest.approx(2 * 0.5**12)
