from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.measure.score.fits import from_axes
from heldout.measure.score.records import Fit
from heldout.show.axes import domain, position, ticks
from heldout.show.exports import figures
from heldout.show.score_figures import all_figures, confidence_band, line_ends
from heldout.show.view import ReportData, ReportView

from .records import everything, fits, score, scores


def test_the_band_is_the_interval_of_the_line() -> None:
    """At a distance of one from 0 the line is slope + intercept; their variances add up there."""
    (fit, *_) = fits(scores(["a", "b", "c", "d"], ["old", "new"], metrics=["top1"]), "old")
    (_, low, high) = confidence_band(fit, np.array([1.0]))[0]
    assert (low + high) / 2 == pytest.approx(fit.slope + fit.intercept)
    # The slope's own limits lie two standard errors of 0.05 away.
    assert (high - low) / 2 == pytest.approx(2 * math.sqrt(0.0025 - 2 * 0.0015 + 0.0016))


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


@pytest.mark.parametrize("axes", ["probit", "logit"])
def test_round_tens_stay_where_ticks_are_thinned(axes: str) -> None:
    found = ticks(axes, position(0.35, axes, n=10**6), position(0.85, axes, n=10**6))
    percents = {round(100 * share) for share in from_axes(np.array(found), axes)}
    assert {40, 50, 60, 70, 80} <= percents and not {45, 55, 65} & percents


def test_a_domain_holds_its_positions_with_some_air() -> None:
    assert domain([0.7, 0.2, 0.5]) == pytest.approx((0.17, 0.73))
    assert domain([0.5]) == pytest.approx((0.45, 0.55))


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


def test_there_is_a_scatter_on_linear_axes_and_on_those_of_every_fit() -> None:
    found = [name for name in figures(everything()) if name.startswith("accuracy-new-")]
    assert found == ["accuracy-new-linear", "accuracy-new-logit"]
    whole = scores(["a", "b", "c"], ["old", "new"], metrics=["top1"])
    bare = ReportData(title="", records=whole, baseline="old")
    assert [name for name in figures(bare) if "accuracy" in name] == ["accuracy-new-linear"]


def test_a_line_without_an_interval_has_no_band_and_says_why() -> None:
    whole = scores(["a", "b", "c", "d"], ["old", "new"], metrics=["top1"])
    lines = fits(whole, "old")

    def drawn(records: list) -> tuple[int, str]:
        view = ReportView(ReportData(title="", records=[*whole, *records], baseline="old"))
        (found,) = [f for f in all_figures(view) if f.name == "accuracy-new-linear"]
        areas = sum(layer.get("mark", {}).get("type") == "area" for layer in found.spec["layer"])
        return areas, found.caption

    areas, caption = drawn(lines)
    assert areas == 1 and "Band: pointwise, of the line; errors in variables" in caption
    bare = {"covariance": None, "interval": None, "slope_low": None, "slope_high": None}
    few = [dataclasses.replace(line, **bare, reason="4 models are too few") for line in lines]
    areas, caption = drawn(few)
    assert areas == 0 and "No interval: 4 models are too few." in caption


def test_models_without_both_scores_are_left_out() -> None:
    records = [score("a", "old", 8, 10), score("b", "old", 7, 10), score("b", "new", 6, 10)]
    spec = figures(ReportData(title="", records=records, baseline="old"))["accuracy-new-linear"]
    assert [row["model"] for row in points_of(spec)] == ["b"]


def test_both_axes_have_one_scale_unless_that_wastes_the_room() -> None:
    def scales(*new: int) -> list[list[float]]:
        records = [score(m, "old", 80 + 5 * k, 100) for k, m in enumerate("abc")]
        records += [score(m, "new", n, 100) for m, n in zip("abc", new, strict=True)]
        spec = figures(ReportData(title="", records=records, baseline="old"))
        (identity, *_) = spec["accuracy-new-linear"]["layer"]
        return [list(identity["encoding"][way]["scale"]["domain"]) for way in "xy"]

    near, far = scales(75, 80, 86), scales(10, 12, 14)
    assert near[0] == near[1]
    assert far[0][0] > 0.6 and far[1][1] < 0.3


def test_the_best_the_worst_and_those_farthest_off_the_line_are_named() -> None:
    old = (50, 55, 60, 65, 70, 75, 80, 90)
    new = (40, 45, 50, 41, 72, 65, 70, 80)  # on a line, but for the fourth and the fifth
    records: list = [
        score(m, t, k, 100)
        for t, row in (("old", old), ("new", new))
        for m, k in zip("abcdefgh", row, strict=True)
    ]
    records += fits(records, "old")
    spec = figures(ReportData(title="", records=records, baseline="old"))["accuracy-new-linear"]
    rows = points_of(spec)
    # Names stand on the side where there is room. Of the two lowest, beside each other, one has its.
    assert {row["label_left"] for row in rows} == {"", "e", "h"}
    assert {row["label_right"] for row in rows} == {"", "a"}
