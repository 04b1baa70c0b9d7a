"""Lines against numpy and scipy, and intervals that resample models and images."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import linregress
from scipy.stats import t as student

from heldout.core.errors import NotApplicable, UserError
from heldout.measure.score.fits import (
    AXES,
    Axes,
    Noise,
    corrected_line,
    fit_lines,
    fit_points,
    from_axes,
    line,
    to_axes,
)
from heldout.measure.score.measure import measure
from tests.measure.score.test_scoring import big_world, columns
from tests.measure.score.worlds import hits, measured_of, single_label, world_testset

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
    for name in ("slope", "intercept"):
        low, value, high = (getattr(fit, f"{name}{end}") for end in ("_low", "", "_high"))
        assert low < value < high
        assert getattr(fit, f"corrected_{name}") == pytest.approx(value)
    assert fit.covariance is not None
    for name, variance in (("slope", fit.covariance[0]), ("intercept", fit.covariance[2])):
        reach = getattr(fit, f"{name}_high") - getattr(fit, name)
        assert reach == pytest.approx(student.ppf(0.975, 28) * np.sqrt(variance), rel=1e-4)
    assert fit.r2 == pytest.approx(expected.rvalue**2)
    order = rng.permutation(30)
    again = fit_points(x[order], y[order], axes=axes, testset="new", baseline="old")
    assert again.slope_low == pytest.approx(fit.slope_low, rel=1e-9)


def test_without_noise_the_covariance_is_the_jackknife() -> None:
    """Leaving out one model at a time is the slow way to the same variance."""
    rng = np.random.default_rng(2)
    x = rng.normal(0, 1, 25)
    y = 0.9 * x - 0.1 + rng.normal(0, 0.2, 25)
    left = np.array([np.polyfit(np.delete(x, m), np.delete(y, m), 1) for m in range(25)])
    jackknife = 24 * np.cov(left.T, bias=True)
    assert corrected_line(x, y).covariance == pytest.approx(jackknife, rel=0.02)


def test_known_noise_is_taken_off() -> None:
    """Points moved by errors of known covariance, shared by x and y: on average the line is back."""
    rng = np.random.default_rng(5)
    true = np.linspace(-1, 1, 40)
    mix = rng.normal(0, 0.05, (20, 80)) + np.tile(rng.normal(0, 0.1, (20, 1)), 80)
    whole = mix.T @ mix + 0.04 * np.eye(80)
    noise = Noise(whole[:40, :40], whole[40:, 40:], whole[:40, 40:], 1e6, "images")
    slopes, found = [], []
    for error in rng.multivariate_normal(np.zeros(80), whole, 2000):
        x, y = true + error[:40], 0.8 * true + 0.1 + error[40:]
        slopes.append(line(x, y).slope)
        fit = corrected_line(x, y, noise)
        found.append([fit.slope, fit.intercept])
    assert abs(np.median(slopes) - 0.8) > 0.03
    assert np.median(found, axis=0) == pytest.approx([0.8, 0.1], abs=0.015)
    # Nothing here is drawn but the errors: the variance counts them once, not for models as well.
    spread = np.sqrt(np.diagonal(np.cov(np.transpose(found))))
    assert np.sqrt(np.diagonal(fit.covariance)) == pytest.approx(spread, rel=0.3)


def coverage(
    worlds: int,
    models: int,
    clusters: np.ndarray,
    *,
    film: float,
    spread: float,
    seed: int,
    image: float = 0.8,
) -> tuple[float, list[str]]:
    """How often the interval of a slope of 1 on probit axes holds it, and why there is none."""
    rng = np.random.default_rng(seed)
    hit, reasons = [], []
    for _ in range(worlds):
        skill = 0.7 + spread * rng.standard_normal(models)
        other = skill - 0.3 + 0.03 * rng.standard_normal(models)
        new, old = (
            measured_of(
                hits(rng, ndtr(s), clusters, film=film, image=image), name, clusters=clusters
            )
            for s, name in ((other, "new"), (skill, "old"))
        )
        (fit,) = fit_lines([new], old, axes=["probit"])
        if fit.reason is not None or fit.slope_low is None or fit.slope_high is None:
            reasons.append(str(fit.reason))
        else:
            hit.append(fit.slope_low <= 1 <= fit.slope_high)
    return float(np.mean(hit)) if hit else np.nan, reasons


def test_the_interval_covers_where_images_are_few() -> None:
    """67 models on 300 images: resampling around a slope that noise has flattened held 13 %."""
    held, reasons = coverage(100, 67, np.arange(300), film=0.0, spread=0.1, seed=0)
    assert held >= 0.9 and not reasons


def test_the_interval_covers_where_images_come_in_films() -> None:
    """Images drawn one by one held 62 %."""
    films = np.arange(800) // 20
    held, reasons = coverage(100, 30, films, film=0.4, image=0.4, spread=0.2, seed=1)
    assert held >= 0.9 and len(reasons) <= 5


def test_too_few_films_or_models_or_too_much_noise_is_said() -> None:
    _, (reason,) = coverage(1, 20, np.arange(300) // 60, film=0.1, spread=0.2, seed=2)
    assert "5 clusters (film) are too few" in reason
    _, (reason,) = coverage(1, 20, np.arange(300) // 20, film=0.1, spread=0.2, seed=2)
    assert reason == "15 clusters (film) are too few for the interval of a line, which needs 16"
    _, (reason,) = coverage(1, 6, np.arange(300), film=0.0, spread=0.3, seed=3)
    assert reason == "6 models are too few for the interval of a line, which needs 12"
    _, (reason,) = coverage(1, 30, np.arange(100), film=0.0, spread=0.02, seed=4)
    assert "of the spread of the models on old is noise" in reason


def test_the_same_images_in_both_sets_move_both() -> None:
    """A new set that is the old one again: the line is the identity, whatever the noise."""
    rng = np.random.default_rng(6)
    skill = ndtr(0.7 + 0.1 * rng.standard_normal(40))
    old = measured_of(hits(rng, skill, np.arange(300)), "old")
    again = replace(old, testset=replace(old.testset, card=old.testset.card.updated(name="new")))
    for fit in fit_lines([again], old):
        assert (fit.slope, fit.intercept) == pytest.approx((1, 0))
        assert fit.slope_high is not None and fit.slope_high - 1 < 1e-6


def test_fits_of_measured_models() -> None:
    new, old = big_world(seed=1, models=13), big_world(n=200, seed=2, models=12)
    (a,) = measure(world_testset(new, name="new"), new.predictions())
    (b,) = measure(world_testset(old, name="old"), old.predictions())
    found = {fit.axes: fit for fit in fit_lines([a], b)}
    for axes, fit in found.items():
        x = to_axes(b.estimates(), axes, n=200)
        y = to_axes(a.estimates()[:12], axes, n=120)
        ols = np.polyfit(x, y, 1)
        assert (fit.slope, fit.intercept) == pytest.approx(tuple(ols))
        assert fit.models == 12 and fit.testset == "new" and fit.baseline == "old"
        if fit.reason is None:  # twelve models say less than their images do
            assert fit.slope_high is not None and fit.covariance is not None
            reach = student.ppf(0.975, 10) * np.sqrt(fit.covariance[0])
            assert fit.slope_high - fit.corrected_slope == pytest.approx(reach, rel=1e-4)
    assert any(fit.reason is None for fit in found.values())


@pytest.mark.parametrize("metric", ["top1", "mean_per_class", "top1_weighted", "nll"])
def test_every_mean_has_a_line(metric: str) -> None:
    world = big_world(400, models=12)
    made = [
        measure(
            world_testset(world, name=name, **columns(400)), world.predictions(), metrics=[metric]
        )[0]
        for name in ("new", "old")
    ]
    (fit,) = fit_lines(made[:1], made[1], axes=["linear"], cluster="none")
    assert fit.slope == pytest.approx(1, abs=1e-6)  # the same images, the same errors


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


def test_axes_that_a_metric_cannot_stand_on() -> None:
    world = big_world(models=4)
    nll, ece = measure(world_testset(world), world.predictions(), metrics=["nll", "ece"])
    with pytest.raises(NotApplicable, match="nll is not a fraction, so it has no probit axes"):
        fit_lines([nll], nll)
    (fit,) = fit_lines([nll], nll, axes=["linear"])
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
