"""Lines against numpy and scipy, and intervals that resample models and images."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import linregress

from heldout.core.errors import NotApplicable, UserError
from heldout.measure.score.fits import (
    AXES,
    Axes,
    fit_lines,
    fit_points,
    from_axes,
    line,
    line_replicates,
    replicate_means,
    to_axes,
)
from heldout.measure.score.measure import measure
from tests.measure.score.test_scoring import big_world, columns
from tests.measure.score.worlds import single_label, world_testset

fractions = st.lists(st.floats(0.01, 0.99), min_size=3, max_size=12)


@given(fractions, st.data())
def test_line_is_least_squares(x: list[float], data: st.DataObject) -> None:
    y = data.draw(st.lists(st.floats(0.01, 0.99), min_size=len(x), max_size=len(x)))
    assume(np.ptp(x) > 1e-3 and np.ptp(y) > 1e-3)
    found = line(np.array(x), np.array(y))
    slope, intercept = np.polyfit(x, y, 1)
    other = linregress(x, y)
    assert found.slope == pytest.approx(slope, rel=1e-6, abs=1e-9)
    assert found.intercept == pytest.approx(intercept, rel=1e-6, abs=1e-9)
    assert found.r2 == pytest.approx(other.rvalue**2, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("axes", AXES)
@given(st.floats(0.001, 0.999))
def test_axes_and_back(axes: Axes, p: float) -> None:
    place = to_axes(np.array([p]), axes)
    expected = {"linear": p, "probit": NormalDist().inv_cdf(p), "logit": np.log(p / (1 - p))}[axes]
    assert place[0] == pytest.approx(expected)
    assert from_axes(place, axes)[0] == pytest.approx(p)


def test_the_ends_are_half_an_image_inside() -> None:
    assert from_axes(to_axes(np.array([0.0, 1.0]), "logit", n=50), "logit") == pytest.approx(
        [0.01, 0.99]
    )
    assert to_axes(np.array([0.0, 1.0]), "linear", n=50).tolist() == [0, 1]
    with pytest.raises(UserError, match="no axes 'cubic'"):
        to_axes(np.array([0.5]), "cubic")


@pytest.mark.parametrize("axes", AXES)
def test_points(axes: Axes) -> None:
    rng = np.random.default_rng(2)
    x = rng.uniform(0.4, 0.9, 30)
    y = from_axes(0.9 * to_axes(x, axes) - 0.1 + rng.normal(0, 0.01, 30), axes)
    fit = fit_points(x, y, axes=axes, testset="new", baseline="old")
    expected = linregress(to_axes(x, axes), to_axes(y, axes))
    assert fit.slope == pytest.approx(expected.slope)
    assert fit.intercept == pytest.approx(expected.intercept)
    assert (fit.models, fit.axes, fit.testset, fit.baseline) == (30, axes, "new", "old")
    for name in ("slope", "intercept", "r2"):
        low, value, high = (getattr(fit, f"{name}{end}") for end in ("_low", "", "_high"))
        assert low <= value <= high
    order = rng.permutation(30)
    again = fit_points(x[order], y[order], axes=axes, testset="new", baseline="old")
    assert again.slope_low == pytest.approx(fit.slope_low, rel=1e-9)
    assert again.r2_high == pytest.approx(fit.r2_high, rel=1e-9)
    assert fit != fit_points(x, y, axes=axes, testset="new", baseline="old", seed=1)


def test_intervals_of_points_cover() -> None:
    """Of 100 populations on a known line, the 95 % interval of the slope misses at most 14."""
    rng = np.random.default_rng(3)
    missed = 0
    for _ in range(100):
        x = rng.uniform(0.5, 0.9, 40)
        y = from_axes(0.95 * to_axes(x, "logit") - 0.5 + rng.normal(0, 0.05, 40), "logit")
        fit = fit_points(x, y, axes="logit", testset="new", baseline="old", replicates=300)
        assert fit.slope_low is not None and fit.slope_high is not None
        missed += not fit.slope_low <= 0.95 <= fit.slope_high
    assert missed <= 14


def test_fits_of_measured_models() -> None:
    new, old = big_world(seed=1, models=6), big_world(n=200, seed=2, models=5)
    (a,) = measure(world_testset(new, name="new"), new.predictions())
    (b,) = measure(world_testset(old, name="old"), old.predictions())
    found = {fit.axes: fit for fit in fit_lines([a], b, replicates=300)}
    for axes, fit in found.items():
        x = to_axes(b.estimates(), axes, n=200)
        y = to_axes(a.estimates()[:5], axes, n=120)
        slope, intercept = np.polyfit(x, y, 1)
        assert (fit.slope, fit.intercept) == pytest.approx((slope, intercept))
        assert fit.models == 5 and fit.testset == "new" and fit.baseline == "old"
        assert fit.slope_low is not None and fit.slope_high is not None
        assert fit.slope_low < fit.slope < fit.slope_high


@pytest.mark.parametrize("metric", ["top1", "mean_per_class", "top1_weighted", "nll"])
def test_replicates_have_the_right_mean_and_spread(metric: str) -> None:
    world = big_world(400)
    (measured,) = measure(
        world_testset(world, **columns(400)), world.predictions(), metrics=[metric]
    )
    draws = replicate_means(measured, seed=0, replicates=4000)
    assert draws.shape == (4000, 3)
    assert draws.mean(axis=0) == pytest.approx(measured.estimates(), abs=3e-3)
    if metric in ("top1", "nll"):
        error = measured.values.std(axis=0, ddof=1) / np.sqrt(400)
        assert draws.std(axis=0) == pytest.approx(error, rel=0.06)


def test_lines_need_models_that_differ() -> None:
    with pytest.raises(NotApplicable, match="2 models have both accuracies"):
        fit_points(
            np.array([0.1, 0.2]), np.array([0.1, 0.2]), axes="linear", testset="n", baseline="o"
        )
    with pytest.raises(
        NotApplicable, match="3 models with equal accuracies on o or n give no line"
    ):
        fit_points(
            np.full(3, 0.5), np.array([0.1, 0.2, 0.3]), axes="linear", testset="n", baseline="o"
        )
    drawn = line_replicates(
        np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 2.0]), seed=0, replicates=500
    )
    finite = np.isfinite(drawn.slope)
    assert not finite.all() and drawn.slope[finite] == pytest.approx(1.0)


def test_axes_that_a_metric_cannot_stand_on() -> None:
    world = big_world(models=4)
    nll, ece = measure(world_testset(world), world.predictions(), metrics=["nll", "ece"])
    with pytest.raises(NotApplicable, match="nll is not a fraction, so it has no probit axes"):
        fit_lines([nll], nll)
    (fit,) = fit_lines([nll], nll, axes=["linear"], replicates=50)
    assert fit.slope == pytest.approx(1) and fit.r2 == pytest.approx(1)
    with pytest.raises(NotApplicable, match="no line is fitted through ece"):
        fit_lines([ece], ece, axes=["linear"])


def test_models_must_be_on_both() -> None:
    a = single_label([0, 1], 2, {m: [(1, 0)] * 2 for m in "abc"})
    b = single_label([0, 1], 2, {m: [(1, 0)] * 2 for m in "cde"})
    (x,), (y,) = (
        measure(world_testset(w, name=n), w.predictions()) for w, n in ((a, "old"), (b, "new"))
    )
    with pytest.raises(NotApplicable, match="1 models are scored on both new and old"):
        fit_lines([y], x)
