from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.measure.score.fits import from_axes
from heldout.measure.score.records import Fit
from heldout.show.axes import position, ticks
from heldout.show.exports import figures
from heldout.show.score_figures import confidence_band, line_ends
from heldout.show.view import ReportData

from .records import everything, fits, score, scores


def band_by_matrices(x: np.ndarray, y: np.ndarray, at: float) -> tuple[float, float]:
    """The textbook way: the variance of a prediction from the covariance of the coefficients."""
    from scipy.stats import t

    design = np.column_stack([np.ones_like(x), x])
    inverse = np.linalg.inv(design.T @ design)
    beta = inverse @ design.T @ y
    variance = ((y - design @ beta) ** 2).sum() / (len(x) - 2)
    where = np.array([1.0, at])
    half = t.ppf(0.975, len(x) - 2) * math.sqrt(variance * where @ inverse @ where)
    return float(where @ beta - half), float(where @ beta + half)


def test_the_band_equals_the_textbook_formula() -> None:
    rng = np.random.default_rng(7)
    x = rng.uniform(0.5, 0.9, 12)
    y = 1.1 * x - 0.2 + rng.normal(0, 0.02, 12)
    at = np.array([0.4, 0.7, 1.0])
    band = confidence_band(x, y, at)
    for place, low, high in zip(at, *band, strict=True):
        assert (low, high) == pytest.approx(band_by_matrices(x, y, place), rel=1e-9)


def test_the_band_covers_the_true_line_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    x = np.linspace(0.5, 0.9, 15)
    hits = 0
    for _ in range(2000):
        noisy = 0.3 + 0.6 * x + rng.normal(0, 0.05, 15)
        low, high = confidence_band(x, noisy, np.array([0.55]))
        hits += bool(low[0] <= 0.3 + 0.6 * 0.55 <= high[0])
    assert 0.935 <= hits / 2000 <= 0.965


@given(
    slope=st.floats(-3, 3),
    intercept=st.floats(-1, 1),
    x0=st.floats(-2, 0),
    x1=st.floats(0.1, 2),
    y0=st.floats(-2, 0),
    y1=st.floats(0.1, 2),
)
def test_a_line_is_cut_to_the_plot(
    slope: float, intercept: float, x0: float, x1: float, y0: float, y1: float
) -> None:
    ends = line_ends(slope, intercept, (x0, x1), (y0, y1))
    assert len(ends) in (0, 2)
    for end in ends:
        assert x0 - 1e-6 <= end["x"] <= x1 + 1e-6
        assert y0 - 1e-6 <= end["y"] <= y1 + 1e-6
    dense = np.linspace(x0, x1, 200)
    inside = (slope * dense + intercept >= y0 + 1e-6) & (slope * dense + intercept <= y1 - 1e-6)
    if inside.any():
        assert ends[0]["x"] <= dense[inside].min() and ends[1]["x"] >= dense[inside].max()


@pytest.mark.parametrize("axes", ["linear", "probit", "logit"])
def test_extreme_scores_have_a_finite_place(axes: str) -> None:
    low, high = position(0.0, axes, n=100), position(1.0, axes, n=100)
    assert math.isfinite(low) and math.isfinite(high) and low < high


@pytest.mark.parametrize("axes", ["linear", "probit", "logit"])
@given(low=st.floats(0.01, 0.6), width=st.floats(0.005, 0.35))
def test_ticks_are_few_round_and_inside(axes: str, low: float, width: float) -> None:
    ends = position(low, axes, n=10**6), position(low + width, axes, n=10**6)
    found = ticks(axes, *ends)
    assert 2 <= len(found) <= 11
    assert found == sorted(set(found))
    percents = 100 * from_axes(np.array(found), axes)
    assert np.allclose(percents, np.round(percents, 2), atol=1e-5)
    assert all(ends[0] - 1e-6 <= tick <= ends[1] + 1e-6 for tick in found)


def points_of(spec: dict) -> list[dict]:
    return spec["layer"][-1]["data"]["values"]


def test_points_lie_at_the_scores_and_residuals_at_the_line() -> None:
    data = everything()
    spec = figures(data)["accuracy-new-linear"]
    ant = next(row for row in points_of(spec) if row["model"] == "ant")
    assert (ant["x"], ant["y"]) == (0.9, 0.83)
    assert ant["change"] == "−7.00 points"
    fit = next(
        r for r in data.records if isinstance(r, Fit) and (r.testset, r.axes) == ("new", "linear")
    )
    assert ant["residual"] == pytest.approx(0.83 - fit.slope * 0.9 - fit.intercept, abs=1e-6)


def test_a_line_of_other_models_has_no_band() -> None:
    models = ["a", "b", "c", "d"]
    whole = scores(models, ["old", "new"], metrics=["top1"])
    lines = fits(whole, "old")

    def areas(records: list) -> int:
        found = figures(ReportData(title="", records=[*whole, *records], baseline="old"))
        return sum(
            layer.get("mark", {}).get("type") == "area"
            for layer in found["accuracy-new-linear"]["layer"]
        )

    assert areas(lines) == 1
    assert areas([dataclasses.replace(line, models=9) for line in lines]) == 0
    assert areas([dataclasses.replace(line, slope=line.slope + 0.5) for line in lines]) == 0


def test_models_without_both_scores_are_left_out() -> None:
    records = [score("a", "old", 8, 10), score("b", "old", 7, 10), score("b", "new", 6, 10)]
    spec = figures(ReportData(title="", records=records, baseline="old"))["accuracy-new-linear"]
    assert [row["model"] for row in points_of(spec)] == ["b"]
