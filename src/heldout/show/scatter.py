"""Accuracy on a new test set against accuracy on the baseline, a point a model.

The figure of Recht et al. (2019), "Do ImageNet Classifiers Generalize to ImageNet?": the identity
line, the line through the models, and its confidence band.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heldout.measure.score.fits import AXES, from_axes
from heldout.measure.score.records import Fit, Score
from heldout.show import theme
from heldout.show.axes import domain, position, tick_axis
from heldout.show.data import Headline
from heldout.show.figure import Figure, slug
from heldout.show.wording import (
    PERCENT,
    interval_names,
    is_share,
    metric_name,
    percent,
    plural,
    points,
    range_text,
)

_BAND_STEPS = 48
_LABEL_AT_MOST = 5


@dataclass(frozen=True, kw_only=True)
class Band:
    """The confidence band of a line, in the positions of its axes: arrays of one length."""

    x: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def confidence_band(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    at: NDArray[np.float64],
    *,
    level: float = 0.95,
) -> Band:
    """The pointwise band of the mean in ordinary least squares: ``ŷ ± t·s·√(1/n + (x−x̄)²/Sxx)``.

    ``x`` and ``y`` are the models' positions, ``at`` where the band is wanted; ``s`` is the
    residual deviation with n − 2 degrees of freedom. Needs three models and two distinct x.
    """
    from scipy.special import stdtrit

    n = len(x)
    centre = x.mean()
    sxx = float(((x - centre) ** 2).sum())
    slope = float(((x - centre) * (y - y.mean())).sum()) / sxx
    line = y.mean() + slope * (at - centre)
    residual = y - y.mean() - slope * (x - centre)
    s = np.sqrt(float((residual**2).sum()) / (n - 2))
    t = float(stdtrit(n - 2, 0.5 + level / 2))
    half = t * s * np.sqrt(1 / n + (at - centre) ** 2 / sxx)
    return Band(x=at, low=line - half, high=line + half)


def scatter_figures(headline: Headline) -> Iterable[Figure]:
    """For each new test set: the scatter on linear axes, and on every axes that has a fit."""
    if headline.baseline is None or not is_share(headline.metric):
        return
    for testset in headline.new_testsets:
        fits = {
            fit.axes: fit
            for fit in reversed(headline.fits)
            if (fit.testset, fit.baseline, fit.metric)
            == (testset, headline.baseline, headline.metric)
        }
        for name in AXES:
            if name == "linear" or name in fits:
                yield _figure(headline, testset, name, fits.get(name))


def _figure(headline: Headline, testset: str, axes: str, fit: Fit | None) -> Figure:
    baseline = str(headline.baseline)
    old, new = headline.overall(baseline), headline.overall(testset)
    models = [model for model in headline.models if model in old and model in new]
    rows = [_row(axes, old[model], new[model], fit) for model in models]
    xs, ys = [row["x"] for row in rows], [row["y"] for row in rows]
    x_domain = domain([row[key] for row in rows for key in ("x", "x_low", "x_high")])
    y_domain = domain([row[key] for row in rows for key in ("y", "y_low", "y_high")])
    both = (min(x_domain[0], y_domain[0]), max(x_domain[1], y_domain[1]))
    spread = max(x_domain[1] - x_domain[0], y_domain[1] - y_domain[0])
    if both[1] - both[0] <= 2.2 * spread:  # one scale for both where that wastes little room
        x_domain = y_domain = both
    _choose_labels(rows, x_domain)
    band = _band(fit, np.array(xs), np.array(ys), x_domain)

    x_scale = {"domain": list(x_domain), "nice": False, "zero": False}
    y_scale = {"domain": list(y_domain), "nice": False, "zero": False}
    x: theme.Spec = {
        "field": "x",
        "type": "quantitative",
        "scale": x_scale,
        "axis": tick_axis(axes, *x_domain, f"{metric_name(headline.metric)} on {baseline}"),
    }
    y: theme.Spec = {
        "field": "y",
        "type": "quantitative",
        "scale": y_scale,
        "axis": tick_axis(axes, *y_domain, f"{metric_name(headline.metric)} on {testset}"),
    }
    layers = [
        _line_layer(_line(1.0, 0.0, x_domain, y_domain), theme.MUTED, x, y, dash=[5, 4]),
    ]
    if band is not None:
        layers.append(_band_layer(band, x, y))
    if fit is not None:
        line = _line(fit.slope, fit.intercept, x_domain, y_domain)
        layers.append(_line_layer(line, theme.VERMILLION, x, y))
    titles = {"model": "model", "x_text": baseline, "y_text": testset, "change": "change"}
    if fit is not None:
        titles["off"] = "off the line"
    layers += _point_layers(rows, x, y, titles)
    return Figure(
        name=slug("accuracy", testset, axes),
        section="accuracy",
        title=testset,
        group=testset,
        choice=axes,
        caption=_caption(headline, testset, models, fit, band),
        spec=theme.base(
            width=440,
            height=440,
            square=True,
            titles=titles,
            description=_alt(headline, testset, axes, old, new, models, fit),
            layer=layers,
        ),
    )


def _row(axes: str, old: Score, new: Score, fit: Fit | None) -> dict[str, Any]:
    row: dict[str, Any] = {"model": old.model, "label_left": "", "label_right": ""}
    for key, score in (("x", old), ("y", new)):
        low = score.value if score.low is None else score.low
        high = score.value if score.high is None else score.high
        row[key] = position(score.value, axes, n=score.n)
        row[f"{key}_low"] = position(low, axes, n=score.n)
        row[f"{key}_high"] = position(high, axes, n=score.n)
        ends = range_text(score.metric, score.low, score.high)
        row[f"{key}_text"] = f"{percent(score.value, digits=2)}{PERCENT}" + (
            f" ({ends})" if ends else ""
        )
    row["change"] = f"{points(new.value - old.value, digits=2)} points"
    if fit is not None:
        expected = float(from_axes(np.array([fit.slope * row["x"] + fit.intercept]), axes)[0])
        row["residual"] = new.value - expected
        row["off"] = f"{points(row['residual'], digits=2)} points"
    return row


def _choose_labels(rows: list[dict[str, Any]], x_domain: tuple[float, float]) -> None:
    """Name the best, the worst and the models farthest from the line; the rest on hover."""
    if len(rows) <= _LABEL_AT_MOST:
        named = list(range(len(rows)))
    else:
        by_y = sorted(range(len(rows)), key=lambda i: rows[i]["y"])
        named = [by_y[-1], by_y[0]]
        if "residual" in rows[0]:
            by_residual = sorted(range(len(rows)), key=lambda i: rows[i]["residual"])
            named += [by_residual[0], by_residual[-1]]
    middle, (low, high) = sum(x_domain) / 2, x_domain
    placed: list[int] = []
    for i in named:
        near = any(abs(rows[i]["y"] - rows[j]["y"]) < 0.05 * (high - low) for j in placed)
        if i not in placed and not near:
            placed.append(i)
            rows[i]["label_left" if rows[i]["x"] > middle else "label_right"] = rows[i]["model"]


def _line(
    slope: float, intercept: float, x_domain: tuple[float, float], y_domain: tuple[float, float]
) -> list[dict[str, float]]:
    """The two ends of a line, cut to the plot."""
    ends = list(x_domain)
    if slope:
        ends += [(edge - intercept) / slope for edge in y_domain]
    inside = [
        x
        for x in ends
        if x_domain[0] - 1e-9 <= x <= x_domain[1] + 1e-9
        and y_domain[0] - 1e-9 <= slope * x + intercept <= y_domain[1] + 1e-9
    ]
    if not inside:
        return []
    return [{"x": x, "y": slope * x + intercept} for x in (min(inside), max(inside))]


def _band(
    fit: Fit | None,
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    x_domain: tuple[float, float],
) -> Band | None:
    """The band around the fit, where the fit is the least-squares line of just these models."""
    if fit is None or fit.models != len(x) or len(x) < 3 or np.ptp(x) == 0:
        return None
    slope, intercept = np.polyfit(x, y, 1)
    if not np.allclose([slope, intercept], [fit.slope, fit.intercept], rtol=1e-3, atol=1e-3):
        return None
    return confidence_band(x, y, np.linspace(*x_domain, _BAND_STEPS))


def _line_layer(
    ends: Sequence[dict[str, float]],
    colour: str,
    x: theme.Spec,
    y: theme.Spec,
    *,
    dash: Sequence[int] = (),
) -> theme.Spec:
    mark: theme.Spec = {"type": "line", "color": colour, "strokeWidth": 1.5, "clip": True}
    if dash:
        mark |= {"strokeDash": list(dash), "strokeWidth": 1.2}
    return {"data": theme.values(ends), "mark": mark, "encoding": {"x": x, "y": y}}


def _band_layer(band: Band, x: theme.Spec, y: theme.Spec) -> theme.Spec:
    rows = [
        {"x": float(at), "y": float(low), "y2": float(high)}
        for at, low, high in zip(band.x, band.low, band.high, strict=True)
    ]
    return {
        "data": theme.values(rows),
        "mark": {"type": "area", "color": theme.VERMILLION, "opacity": 0.16, "clip": True},
        "encoding": {"x": x, "y": y, "y2": {"field": "y2"}},
    }


def _point_layers(
    rows: Sequence[dict[str, Any]], x: theme.Spec, y: theme.Spec, titles: Mapping[str, str]
) -> list[theme.Spec]:
    bar = {"type": "rule", "color": theme.BLUE, "opacity": 0.45, "strokeWidth": 1}
    label = {"type": "text", "fontSize": 10.5, "color": theme.INK, "limit": 170}
    halo = {"stroke": "white", "strokeWidth": 3, "strokeOpacity": 0.9}  # keeps names off the lines
    text_y = {"field": "y", "type": "quantitative", "scale": y["scale"]}
    return [
        {
            "data": theme.values(rows),
            "encoding": {"x": x},
            "layer": [
                {
                    "mark": bar,
                    "encoding": {
                        "y": {**y, "field": "y_low"},
                        "y2": {"field": "y_high"},
                    },
                },
                {
                    "mark": bar,
                    "encoding": {
                        "x": {**x, "field": "x_low"},
                        "x2": {"field": "x_high"},
                        "y": y,
                    },
                },
                {
                    "mark": {
                        "type": "point",
                        "filled": True,
                        "size": 46,
                        "color": theme.BLUE,
                        "opacity": 0.9,
                        "stroke": "white",
                        "strokeWidth": 0.6,
                    },
                    "encoding": {"y": y, "tooltip": theme.tooltip(titles)},
                },
                *(
                    {
                        "mark": {**label, **look, **at},
                        "encoding": {
                            "y": text_y,
                            "text": {"field": field, "type": "nominal"},
                        },
                    }
                    for look in (halo, {})
                    for field, at in (
                        ("label_left", {"align": "right", "dx": -7, "dy": -9}),
                        ("label_right", {"align": "left", "dx": 7, "dy": 10}),
                    )
                ),
            ],
        }
    ]


def _caption(
    headline: Headline, testset: str, models: Sequence[str], fit: Fit | None, band: Band | None
) -> str:
    shown = [
        headline.overall(name)[model]
        for name in (str(headline.baseline), testset)
        for model in models
    ]
    parts = [f"{plural(len(models), 'model')}; dashed: equal accuracy."]
    if fit is not None:
        parts.append(
            f"Line: slope {fit.slope:.3f}{_ends(fit.slope_low, fit.slope_high)}, "
            f"R² {fit.r2:.3f}, through {plural(fit.models, 'model')}."
        )
    if band is not None:
        parts.append(f"Band: pointwise 95{PERCENT} of the line over models.")
    names = interval_names(shown)
    if names:
        parts.append(f"Bars: {names}.")
    return " ".join(parts)


def _ends(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" ({low:.3f} to {high:.3f})"


def _alt(
    headline: Headline,
    testset: str,
    axes: str,
    old: dict[str, Score],
    new: dict[str, Score],
    models: Sequence[str],
    fit: Fit | None,
) -> str:
    change = sum(new[m].value - old[m].value for m in models) / len(models)
    below = sum(new[m].value < old[m].value for m in models)
    line = f" The fitted line has slope {fit.slope:.2f} and R² {fit.r2:.3f}." if fit else ""
    return (
        f"Scatter plot on {axes} axes of {metric_name(headline.metric)} of "
        f"{plural(len(models), 'model')} on {testset} against {headline.baseline}. "
        f"{below} lie below the identity line; the mean change is {points(change)} points.{line}"
    )
