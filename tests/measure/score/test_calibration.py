"""Calibration against plain Python with exact fractions of exponentials."""

from __future__ import annotations

import math
from decimal import Decimal, getcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import NotApplicable, UserError
from heldout.measure.score.estimate import scores
from heldout.measure.score.measure import measure
from heldout.measure.score.metrics import Bins, expected_calibration_error
from heldout.measure.score.truth import log_sum_exp
from tests.measure.score.worlds import World, single_label, world_testset, worlds

getcontext().prec = 60


def probabilities(world: World, model: str, row: int) -> list[float]:
    """Softmax in many digits; the uniform guess for a failure."""
    logits = world.logits[model][row]
    if logits is None:
        return [1 / world.classes] * world.classes
    powers = [Decimal(value).exp() for value in logits]
    return [float(power / sum(powers)) for power in powers]


def slow_ece(confidence: list[float], hits: list[bool], count: int) -> float:
    """Guo et al.'s definition with bins ((b - 1) / B, b / B]."""
    total = 0.0
    for b in range(count):
        inside = [
            i
            for i, c in enumerate(confidence)
            if (b / count < c <= (b + 1) / count) or (b == 0 and c == 0)
        ]
        if inside:
            accuracy = sum(hits[i] for i in inside) / len(inside)
            average = math.fsum(confidence[i] for i in inside) / len(inside)
            total += len(inside) / len(confidence) * abs(accuracy - average)
    return total


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_nll_and_brier(world: World) -> None:
    nll, brier = measure(world_testset(world), world.predictions(), metrics=["nll", "brier"])
    counted = [row for row, image in enumerate(world.images) if image.correct]
    for m, model in enumerate(nll.models):
        for place, row in enumerate(counted):
            p = probabilities(world, model, row)
            right = set(world.images[row].correct)
            assert nll.values[place, m] == pytest.approx(
                -math.log(sum(p[c] for c in right)), abs=1e-9
            )
            target = [1 / len(right) if c in right else 0.0 for c in range(world.classes)]
            expected = sum((a - b) ** 2 for a, b in zip(p, target, strict=True))
            assert brier.values[place, m] == pytest.approx(expected, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(worlds(lists=False, maximum=30))
def test_ece_end_to_end(world: World) -> None:
    (measured,) = measure(world_testset(world), world.predictions(), metrics=["ece7"])
    for m, model in enumerate(measured.models):
        p = [probabilities(world, model, row) for row in range(len(world.images))]
        hits = [
            world.guesses(model, row)[:1] == [image.label] for row, image in enumerate(world.images)
        ]
        found = measured.confidence[:, m]  # type: ignore[index]
        assert found == pytest.approx([max(row) for row in p])
        assert measured.estimates()[m] == pytest.approx(slow_ece(found.tolist(), hits, 7))


@given(
    st.lists(
        st.tuples(st.integers(0, 60).map(lambda v: v / 60), st.booleans()), min_size=1, max_size=60
    ),
    st.integers(1, 20),
)
def test_ece_of_equal_width(pairs: list[tuple[float, bool]], bins: int) -> None:
    confidence, hits = [c for c, _ in pairs], [h for _, h in pairs]
    found = expected_calibration_error(np.array(confidence), np.array(hits), bins=bins)
    assert found == pytest.approx(slow_ece(confidence, hits, bins))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60, unique=True), st.integers(1, 10))
def test_bins_of_equal_mass_hold_equally_many(confidence: list[float], bins: int) -> None:
    codes = Bins(bins, "mass").codes(np.array(confidence))
    sizes = np.bincount(codes, minlength=bins)
    assert sizes.max() - sizes.min() <= 1
    order = np.argsort(confidence)
    assert (np.diff(codes[order]) >= 0).all()


def test_equal_confidences_share_a_bin_of_equal_mass() -> None:
    codes = Bins(3, "mass").codes(np.array([0.5, 0.2, 0.5, 0.5, 0.5, 0.9]))
    assert codes.tolist() == [0, 0, 0, 0, 0, 2]


def test_bins_must_be() -> None:
    with pytest.raises(UserError, match="0 bins"):
        Bins(0)


def test_the_loss_stays_finite_where_probabilities_vanish() -> None:
    world = single_label([1, 0], 2, {"m": [(60000.0, -60000.0), (0.0, 0.0)]})
    for dtype in ("<f2", "<f4", "<f8"):
        (measured,) = measure(world_testset(world), world.predictions(dtype=dtype), metrics=["nll"])
        expected = float(np.dtype(dtype).type(60000)) - float(np.dtype(dtype).type(-60000))
        assert measured.values[:, 0] == pytest.approx([expected, math.log(2)])


def test_probability_zero_is_refused_for_nll_and_fine_for_brier() -> None:
    world = single_label([1, 0], 2, {"m": [(0.0, -math.inf), (0.0, -math.inf)]})
    testset = world_testset(world)
    with pytest.raises(
        NotApplicable, match="nll of m on made is infinite: 1 images have probability 0"
    ):
        measure(testset, world.predictions(), metrics=["nll"])
    (brier,) = measure(testset, world.predictions(), metrics=["brier"])
    assert brier.values[:, 0].tolist() == [2.0, 0.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_no_numbers_are_refused(bad: float) -> None:
    world = single_label([1, 0], 2, {"m": [(0.0, bad), (0.0, 1.0)]})
    with pytest.raises(NotApplicable, match="NaN or infinite logits for 1 images, such as 'i000'"):
        measure(world_testset(world), world.predictions(), metrics=["nll"])


def test_half_precision_is_computed_in_double() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, (200, 50)).astype(np.float16)
    exact = [math.log(math.fsum(math.exp(float(v)) for v in row)) for row in logits]
    assert log_sum_exp(logits) == pytest.approx(exact, abs=1e-12)


def test_failed_images_are_the_uniform_guess() -> None:
    world = single_label([0, 1], 4, {"m": [None, (0, 9, 0, 0)]})
    nll, brier, ece, top1 = measure(
        world_testset(world), world.predictions(), metrics=["nll", "brier", "ece", "top1"]
    )
    assert nll.values[0, 0] == pytest.approx(math.log(4))
    assert brier.values[0, 0] == pytest.approx(1 - 1 / 4)
    assert ece.confidence is not None and ece.confidence[0, 0] == pytest.approx(1 / 4)
    assert ece.values[0, 0] == pytest.approx(-1 / 4)
    assert top1.values[:, 0].tolist() == [False, True]
    assert top1.failed == (1,)


def calibrated_world(n: int, shift: float, seed: int) -> World:
    """Two classes; the first guess is right with its confidence less ``shift``."""
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0.6, 0.99, n)
    right = rng.random(n) < confidence - shift
    logit = np.log(confidence / (1 - confidence))
    return single_label(np.where(right, 0, 1).tolist(), 2, {"m": [(float(v), 0.0) for v in logit]})


@pytest.mark.parametrize("shift", [0.0, 0.05, 0.2])
def test_the_interval_of_ece_covers(shift: float) -> None:
    """Of 40 sets the 95 % interval misses at most 6: the chance of more is below one in 5,000."""
    missed = 0
    for seed in range(40):
        world = calibrated_world(400, shift, seed)
        (measured,) = measure(world_testset(world), world.predictions(), metrics=["ece"])
        (record,) = scores(measured, replicates=200, seed=seed)
        assert record.low is not None and record.high is not None
        assert 0 <= record.low <= record.value <= record.high <= 1
        missed += not record.low <= shift <= record.high
    assert missed <= 6
    assert record.interval == "plain-bootstrap-basic-or-t, 15 bins of equal width"
