"""Figures of scores: the rows and the words of each; charts.py draws them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from heldout.core.errors import UserError
from heldout.measure.score.fits import AXES, from_axes
from heldout.measure.score.memberships import weighted_line
from heldout.measure.score.records import Comparison, Fit, Score, Summary
from heldout.measure.score.slices import ALL, parse_slice
from heldout.show import charts, theme
from heldout.show.axes import CurveAxis, domain, position, tick_axis, ticks
from heldout.show.charts import Figure, Row, number, slug
from heldout.show.mistake_figures import learning_figures, mistake_figures
from heldout.show.theme import Spec
from heldout.show.view import Change, Panel, ReportView, SliceScores
from heldout.show.wording import (
    PERCENT,
    count,
    forgives,
    higher_is_better,
    interval_names,
    is_share,
    limits,
    merit,
    metric_name,
    p_text,
    percent,
    plural,
    points,
    points_range,
    range_text,
    signed,
    value_text,
    value_words,
)

MOST_VALUES = 40
"""Values of a column of names, above which a figure shows the worst only."""
_MOST_SHEETS = 8  # values of the third column of three, above which nobody would look at all
_MOST_METRICS = 7
_SETS_A_FIGURE = 4
_MOST_PAIRS = 60
_MOST_CURVES = 4
_SURE = 0.05
_STRIP = 0.15  # the part of a curve's height that the bars of images take
_MOST_NUMBERED_CELLS = 144
_MOST_ACROSS = 12
_LEAN = 0.64  # the height of a name at 40 degrees, as a share of its length


def all_figures(view: ReportView) -> list[Figure]:
    """Every figure that the records support, in the order of the page."""
    found = [*scatter_figures(view), *overview_figures(view)]
    sets = list(view.changes)
    for start in range(0, len(sets), _SETS_A_FIGURE):
        found.append(change_figure(view, sets[start : start + _SETS_A_FIGURE]))
    if sets and min(map(len, view.changes.values())) >= 3:
        found.append(rank_figure(view))
    found += [figure for panel in view.panels for figure in slice_figures(view, panel)]
    found += [figure for panel in view.panels for figure in property_figures(view, panel)]
    found += [*learning_figures(view.learning), *mistake_figures(view.mistakes, view.data.columns)]
    found += [*comparison_figures(view), *comparison_curves(view)]
    return charts.with_unique_names(found)


# ---- accuracy on a new test set against the baseline ---------------------------------------------


def confidence_band(
    x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], at: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The 95 % band of the mean in ordinary least squares: ``ŷ ± t·s·√(1/n + (x−x̄)²/Sxx)``.

    ``x`` and ``y`` are the models' positions, ``at`` where the band is wanted; ``s`` is the
    residual deviation with n − 2 degrees of freedom. Needs three models and two distinct x.
    """
    from scipy.special import stdtrit

    n, centre = len(x), x.mean()
    sxx = float(((x - centre) ** 2).sum())
    slope = float(((x - centre) * (y - y.mean())).sum()) / sxx
    line = y.mean() + slope * (at - centre)
    residual = y - y.mean() - slope * (x - centre)
    s = np.sqrt(float((residual**2).sum()) / (n - 2))
    half = float(stdtrit(n - 2, 0.975)) * s * np.sqrt(1 / n + (at - centre) ** 2 / sxx)
    return line - half, line + half


def scatter_figures(view: ReportView) -> Iterator[Figure]:
    """For each new test set: one point per model on linear axes, and on all axes that have a fit.

    The figure of Recht et al. (2019), "Do ImageNet Classifiers Generalize to ImageNet?": the
    identity line, the line through the models, and its confidence band.
    """
    for testset, changes in view.changes.items():
        key = (testset, view.baseline, view.metric)
        fits = {f.axes: f for f in view.fits[::-1] if (f.testset, f.baseline, f.metric) == key}
        for axes in AXES:
            if axes == "linear" or axes in fits:
                yield _scatter(view, changes, axes, fits.get(axes))


def _scatter(view: ReportView, changes: Sequence[Change], axes: str, fit: Fit | None) -> Figure:
    baseline, testset = str(view.baseline), changes[0].testset
    rows = [_scatter_row(axes, change, fit) for change in changes]
    x_domain, y_domain = (
        domain([row[key + end] for row in rows for end in ("", "_low", "_high")]) for key in "xy"
    )
    both = (min(x_domain[0], y_domain[0]), max(x_domain[1], y_domain[1]))
    spread = max(x_domain[1] - x_domain[0], y_domain[1] - y_domain[0])
    if both[1] - both[0] <= 2.2 * spread:  # one scale for both where that wastes little room
        x_domain = y_domain = both
    _name_some(rows, x_domain)
    name, models = metric_name(view.metric), plural(len(rows), "model")
    x, y = (
        number(
            key,
            {"domain": list(ends), "nice": False, "zero": False},
            axis=tick_axis(axes, *ends, f"{name} on {where}"),
        )
        for key, ends, where in (("x", x_domain, baseline), ("y", y_domain, testset))
    )
    titles = {"model": "model", "x_text": baseline, "y_text": testset, "change": "change"}
    layers = [charts.line(line_ends(1.0, 0.0, x_domain, y_domain), x, y, identity=True)]
    caption = f"{models}; dashed: equal accuracy."
    alt = ""
    if fit is not None:
        titles["off"] = "off the line"
        slope = f"{fit.slope:.3f}"
        if fit.slope_low is not None and fit.slope_high is not None:
            slope += f" ({fit.slope_low:.3f} to {fit.slope_high:.3f})"
        caption += f" Line: slope {slope}, R² {fit.r2:.3f}, through {plural(fit.models, 'model')}."
        alt = f" The fitted line has slope {fit.slope:.2f} and R² {fit.r2:.3f}."
        if _is_line_of(fit, rows):
            at = np.linspace(*x_domain, 48)
            xs, ys = (np.array([row[key] for row in rows]) for key in "xy")
            low, high = confidence_band(xs, ys, at)
            band = zip(at.tolist(), low.tolist(), high.tolist(), strict=True)
            layers.append(charts.band([{"x": a, "y": b, "y2": c} for a, b, c in band], x, y))
            caption += f" Band: pointwise 95{PERCENT} of the line over models."
        ends = line_ends(fit.slope, fit.intercept, x_domain, y_domain)
        layers.append(charts.line(ends, x, y))
    intervals = interval_names(score for c in changes for score in (c.old, c.new))
    below = sum(c.difference < 0 for c in changes)
    mean = sum(c.difference for c in changes) / len(changes)
    return Figure(
        name=slug("accuracy", testset, axes),
        section="accuracy",
        title=testset,
        group=testset,
        choice=axes,
        caption=caption + (f" Bars: {intervals}." if intervals else ""),
        spec=charts.chart(
            width=440,
            height=440,
            square=True,
            titles=titles,
            description=f"Scatter plot on {axes} axes of {name} of {models} on {testset} against "
            f"{baseline}. {below} lie below the identity line; the mean change is {points(mean)} "
            f"points.{alt}",
            layer=[*layers, charts.crossed_points(rows, x, y, titles)],
        ),
    )


def _scatter_row(axes: str, change: Change, fit: Fit | None) -> Row:
    row: Row = {"model": change.model, "label_left": "", "label_right": ""}
    for key, score in (("x", change.old), ("y", change.new)):
        ends = zip(("", "_low", "_high"), limits(score.value, score).values(), strict=True)
        row |= {key + end: position(value, axes, n=score.n) for end, value in ends}
        text = f"{percent(score.value, digits=2)}{PERCENT}"
        row[f"{key}_text"] = text + range_text(score.metric, score.low, score.high, brackets=True)
    row["change"] = f"{points(change.difference, digits=2)} points"
    if fit is not None:
        expected = float(from_axes(np.array([fit.slope * row["x"] + fit.intercept]), axes)[0])
        row["residual"] = change.new.value - expected
        row["off"] = f"{points(row['residual'], digits=2)} points"
    return row


def _name_some(rows: Sequence[Row], x_domain: tuple[float, float]) -> None:
    """Name the best, the worst and the models farthest from the line; the rest on hover."""
    named = list(rows)
    if len(rows) > 5:
        by_y = sorted(rows, key=lambda row: row["y"])
        named = [by_y[-1], by_y[0]]
        if "residual" in rows[0]:
            off = sorted(rows, key=lambda row: row["residual"])
            named += [off[0], off[-1]]
    low, high = x_domain
    placed: list[Row] = []
    for row in named:
        if all(abs(row["y"] - other["y"]) >= 0.05 * (high - low) for other in placed):
            placed.append(row)
            row["label_left" if row["x"] > (low + high) / 2 else "label_right"] = row["model"]


def line_ends(
    slope: float, intercept: float, x_domain: tuple[float, float], y_domain: tuple[float, float]
) -> list[dict[str, float]]:
    """The two ends of a line, cut to the plot; none where it passes by."""
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


def _is_line_of(fit: Fit, rows: Sequence[Row]) -> bool:
    """Whether a fit is the least-squares line of just these models, so that it has a band."""
    x, y = (np.array([row[key] for row in rows]) for key in "xy")
    if fit.models != len(x) or len(x) < 3 or np.ptp(x) == 0:
        return False
    ours = np.polyfit(x, y, 1)
    return bool(np.allclose(ours, [fit.slope, fit.intercept], rtol=1e-3, atol=1e-3))


# ---- all models on one test set, and their changes -----------------------------------------------


def overview_figures(view: ReportView) -> Iterator[Figure]:
    """For each test set that no scatter shows: every model's scores that are shares.

    Scores that forgive mistakes have a figure of their own, beside the mistakes.
    """
    covered = {*view.new_testsets, view.baseline} if view.new_testsets else set()
    metrics = dict.fromkeys((view.metric, *view.metrics))
    for testset in view.testsets:
        found = {
            metric: view.overall(testset, metric=metric)
            for metric in metrics
            if testset not in covered and is_share(metric) and not forgives(metric)
        }
        kept = [metric for metric, scores in found.items() if scores][:_MOST_METRICS]
        if kept:
            yield _overview(testset, {metric: found[metric] for metric in kept})


def _overview(testset: str, found: Mapping[str, Mapping[str, Score]]) -> Figure:
    names = [metric_name(metric) for metric in found]
    scores = [score for by_model in found.values() for score in by_model.values()]
    first, lead = next(iter(found.items()))
    models = sorted(
        {score.model for score in scores},
        key=lambda m: (-lead[m].value if m in lead else 1.0, m),
    )
    rows = [
        {
            "model": s.model,
            "metric": metric_name(s.metric),
            "series": list(found).index(s.metric),
            **limits(s.value, s),
            "text": f"{value_text(s.metric, s.value)} {range_text(s.metric, s.low, s.high)}".strip(),
        }
        for s in scores
    ]
    axis = charts.percent_axis(names[0] if len(names) == 1 else "score", orient="top")
    titles = {"model": "model", "metric": "metric", "text": "score"}
    best = models[0]
    value = f", {value_text(first, lead[best].value)}" if best in lead else ""
    intervals = interval_names(scores)
    return Figure(
        name=slug("scores", testset),
        section="accuracy",
        title=testset,
        group=testset,
        caption=f"Models in order of {names[0]}."
        + (f" Intervals: {intervals}." if intervals else ""),
        spec=charts.dot_plot(
            rows,
            number("value", {"zero": False}, axis=axis),
            "model",
            models,
            titles,
            names=names,
            height=20 * len(models),
            description=f"Dot plot of {', '.join(names)} of {plural(len(models), 'model')} on "
            f"{testset}. Highest {names[0]}: {best}{value}.",
        ),
    )


def change_figure(view: ReportView, sets: Sequence[str]) -> Figure:
    """A dot plot of every model's change from the baseline to a few test sets."""
    found = [change for name in sets for change in view.changes[name]]
    by_model: dict[str, list[float]] = {}
    for c in found:
        by_model.setdefault(c.model, []).append(c.difference)
    mean = {model: sum(values) / len(values) for model, values in by_model.items()}
    order = sorted(mean, key=lambda m: (-mean[m], m))
    rows = [
        {
            "model": c.model,
            "testset": c.testset,
            "series": sets.index(c.testset),
            **limits(c.difference, c, 100),
            "text": _points_text(c.difference, c, digits=2, range_digits=1),
            "old": value_text(c.old.metric, c.old.value),
            "new": value_text(c.new.metric, c.new.value),
        }
        for c in found
    ]
    titles = {
        "model": "model",
        "testset": "test set",
        "text": "change",
        "old": "baseline",
        "new": "new",
    }
    spread = []
    for name in sets:
        changes = view.changes[name]
        average = sum(c.difference for c in changes) / len(changes)
        spread.append(f"{name} {points(average)} on average")
    intervals = interval_names(score for c in found for score in (c.old, c.new))
    metric = metric_name(view.metric)
    axis = {"title": "change (points)", "orient": "top", "tickCount": 6}
    return Figure(
        name="changes",
        section="changes",
        title=f"Change from {view.baseline}",
        caption=f"New minus baseline, {metric}; models in order of their mean change."
        + (f" Intervals: Newcombe's square-and-add of the two ({intervals})." if intervals else ""),
        spec=charts.dot_plot(
            rows,
            number("value", {"zero": True}, axis=axis),
            "model",
            order,
            titles,
            names=sets,
            differences=True,
            height=(13 + 6 * len(sets)) * len(order),
            description=f"Dot plot of the change in {metric} of {plural(len(order), 'model')} from "
            f"{view.baseline}: {'; '.join(spread)}. Highest: {order[0]}; lowest: {order[-1]}.",
        ),
    )


def _points_text(difference: float, record: Any, *, digits: int, range_digits: int) -> str:
    ends = points_range(record.low, record.high, digits=range_digits, brackets=True)
    return f"{points(difference, digits=digits)} points{ends}"


def rank_figure(view: ReportView) -> Figure:
    """Ranks from the baseline through every new test set, the widest movers in colour."""
    sets = [str(view.baseline), *view.changes]
    models = [m for m in view.models if all(m in view.overall(name) for name in sets)]
    places, ranks = {}, {}
    for name in sets:
        # Equal scores share a rank, but each line has a place of its own.
        places[name] = {m: k for k, m in enumerate(view.ranked(models, name), start=1)}
        ranks[name] = view.ranks(name, models)
    gain = {
        m: sum(ranks[sets[0]][m] - ranks[name][m] for name in sets[1:]) / (len(sets) - 1)
        for m in models
    }
    ordered = sorted(models, key=lambda m: (gain[m], m))
    falling = [m for m in ordered[:3] if gain[m] <= -1]
    rising = [m for m in ordered[-3:] if gain[m] >= 1]
    rows = [
        {
            "line": line,
            "model": model,
            "set": place,
            "testset": name,
            "place": places[name][model],
            "move": "rises" if model in rising else "falls" if model in falling else "others",
            "rank": f"{ranks[name][model]} of {len(models)}",
            "value": value_text(view.metric, view.overall(name)[model].value),
            "left": model if place == 0 else "",
            "right": model if place == len(sets) - 1 else "",
        }
        for line, model in enumerate(models)
        for place, name in enumerate(sets)
    ]
    moves = [
        f"{way}: {', '.join(names)}."
        for way, names in (("rising", rising[::-1]), ("falling", falling))
        if names
    ]
    return Figure(
        name="ranks",
        section="changes",
        title="Ranks",
        caption=f"Rank by {metric_name(view.metric)} among the {len(models)} models on every set; "
        "in colour the three that rise and fall most on average. Hover to follow a model.",
        spec=charts.slopes(
            rows,
            sets,
            models,
            {"model": "model", "testset": "test set", "rank": "rank", "value": "score"},
            description=f"Lines from each model's rank on {sets[0]} to its rank on "
            f"{', '.join(sets[1:])}; "
            + (" ".join(moves) or "no model moves by more than a rank on average."),
        ),
    )


# ---- slices --------------------------------------------------------------------------------------


def slice_figures(view: ReportView, panel: Panel) -> Iterator[Figure]:
    """The figures of one panel by the types of its columns; columns of plain text have none.

    One column: bars or a curve. Two: a heat map. Three: one for each value of the shortest.
    """
    kinds = [kind.kind for kind in panel.types]
    if "text" in kinds or len(kinds) > 3:
        return
    if len(kinds) == 3:
        yield from _sheets(view, panel)
    elif len(kinds) == 2:
        yield _heat_map(view, panel)
    elif kinds == ["categorical"]:
        yield _bars(view, panel)
    else:
        yield from _curves(view, panel)


def _slice_figure(
    view: ReportView,
    panel: Panel,
    form: str,
    extra: str,
    *,
    height: int,
    layer: Sequence[Spec],
    variant: str = "",
    columns: tuple[str, ...] = (),
    whole: bool = True,
    legend: bool = True,
    params: Mapping[str, Any] | None = None,
    **parts: Any,
) -> Figure:
    """A panel's figure; ``form`` opens its description, ``extra`` ends its caption.

    ``variant`` names a further figure of the panel, ``columns`` those by which figures share a
    place; ``whole`` says whether the score on the whole set is drawn.
    """
    title = panel.title + (f", {variant}" if variant else "")
    intervals = interval_names(panel.every)
    caption = f"Intervals: {intervals}." if intervals else ""
    if whole and panel.overall:
        caption += " Dashed: the model on the whole set."
    if not intervals and panel.every[0].reason:
        caption = f"No intervals: {panel.every[0].reason}."
    lowest = min(panel.every, key=lambda s: (s.value, s.slice))
    return Figure(
        name=slug("slices", panel.testset, *panel.columns, *([variant] if variant else [])),
        section="slices",
        title=title,
        group=panel.testset,
        columns=columns or panel.columns,
        variant=variant,
        caption=(caption + extra).strip(),
        spec=charts.chart(
            width=520,
            height=height,
            description=f"{form} of {metric_name(view.metric)} on {panel.testset} by {title} for "
            f"{', '.join(panel.shown)}. Lowest of all models: "
            f"{value_text(lowest.metric, lowest.value)} by {lowest.model} where {lowest.slice}.",
            params={"shown": list(panel.shown), **(params or {})},
            names=panel.shown if legend else (),
            layer=layer,
            **parts,
        ),
    )


def _score_row(score: Score) -> Row:
    ends = range_text(score.metric, score.low, score.high, brackets=True)
    return {
        "model": score.model,
        **limits(score.value, score),
        "text": value_text(score.metric, score.value) + ends,
        "n": count(score.n),
    }


def _value_axis(metric: str) -> Spec:
    """The axis of a metric: percent for shares."""
    name = metric_name(metric)
    return charts.percent_axis(name) if is_share(metric) else {"title": name, "tickCount": 6}


def _overall(panel: Panel, way: str) -> Spec:
    """A dashed rule for each model on show: its score on the whole test set."""
    rows = [
        {"model": model, "overall": panel.overall[model].value}
        for model in panel.scores
        if model in panel.overall
    ]
    return charts.overall_line(rows, way, legend=len(panel.scores) > 1)


def _worst(view: ReportView, means: Mapping[str, float]) -> tuple[list[str], str]:
    """Values, the worst first, at most :data:`MOST_VALUES`; and words for those that are left out."""
    ordered = sorted(means, key=lambda value: (merit(view.metric, means[value]), value))
    end = "lowest" if higher_is_better(view.metric) else "highest"
    cut = f" The {MOST_VALUES} {end} of {len(ordered)} values"
    return ordered[:MOST_VALUES], cut if len(ordered) > MOST_VALUES else ""


def _bars(view: ReportView, panel: Panel) -> Figure:
    by_value: dict[str, list[float]] = {}
    for score in panel.every:
        by_value.setdefault(parse_slice(score.slice)[panel.columns[0]], []).append(score.value)
    means = {value: sum(scores) / len(scores) for value, scores in by_value.items()}
    worst, cut = _worst(view, means)
    values = [v for v in panel.values() if v in worst] if panel.types[0].order else worst
    titles = {"model": "model", "at": panel.columns[0], "text": "score", "n": "images"}
    x = number("value", axis=_value_axis(view.metric))
    rows = [
        _score_row(scores[value,]) | {"at": value}
        for scores in panel.scores.values()
        for value in values
        if (value,) in scores
    ]
    return _slice_figure(
        view,
        panel,
        "Bars",
        f"{cut}." if cut else "",
        titles=titles,
        height=(8 + 10 * len(panel.shown)) * len(values),
        grows=True,
        rows=rows,
        encoding={"y": charts.rows_of_names("at", values, paddingInner=0.28)},
        layer=[
            charts.grouped_bars(x, titles, legend=len(panel.scores) > 1),
            _overall(panel, "x"),
        ],
    )


def _curves(view: ReportView, panel: Panel) -> Iterator[Figure]:
    """The curve; of a circular column also relative to each model's own maximum."""
    axis = CurveAxis(tuple(panel.values()), panel.types[0], panel.column_title())
    yield _curve(view, panel, axis)
    tops = [max(s.value for s in scores.values()) for scores in panel.scores.values()]
    if axis.closes and is_share(view.metric) and min(tops) > 0:
        yield _curve(view, panel, axis, relative=True)


def _curve(view: ReportView, panel: Panel, axis: CurveAxis, *, relative: bool = False) -> Figure:
    rows = axis.laid(_curve_rows(panel.scores, relative=relative))
    titles = {"model": "model", axis.label: panel.columns[0], "text": "score", "n": "images"}
    strip, legend = bool(panel.summaries), len(panel.scores) > 1
    y = _height(view, rows, strip=strip, relative=relative)
    colour = charts.slots(theme.SLOTS, legend=legend)
    shown: Spec = {"transform": charts.SHOWN, "encoding": {"color": colour}}
    layers: list[Spec] = []
    extra = ""
    if len(panel.scores) > len(panel.shown):
        layers.append(charts.range_of_models(y))
        extra += f" Grey: the range of all {len(panel.scores)} models."
    n = len(axis.values)
    size = 34 if n <= 24 else 16 if n <= 60 else 7
    shape = charts.slots(theme.SHAPES, legend=legend)
    curves = charts.curves(y, titles, shape=shape, order=axis.order, size=size)
    layers.append({**shown, "layer": curves})
    if not relative:
        if panel.balanced:
            even = axis.laid(_curve_rows(panel.balanced))
            dashed = charts.dashed_curve(y, titles, axis.order)
            layers.append({"data": charts.values(even), **shown, "layer": dashed})
            extra += " Dashed: only the units present at every value."
        half = _half_of_maximum(panel, axis)
        if half:
            encoding = {"color": colour, "y": y}
            data = {"data": charts.values(half), **shown, "encoding": encoding}
            layers.append({**data, "layer": charts.diamonds()})
            extra += " Diamond: half of the maximum; its line is the interval."
        if not strip:
            layers.append(_overall(panel, "y"))
    if axis.closes:
        extra += " The axis comes round: its right end repeats the left."
    if relative:
        extra += (
            " Each model is divided by its own highest value, whose chance is not in the bands."
        )
    parts: Spec = {"layer": layers}
    if strip:
        most = max(score.n for score in panel.every)
        parts = {
            "layer": [_images(panel, axis, most), {"layer": layers}],
            "resolve": {"scale": {"y": "independent"}},
        }
        extra += f" Grey bars: images at each value, {count(most)} at most."
    form = "Closed curve" if axis.closes else "Curve"
    return _slice_figure(
        view,
        panel,
        f"{form}, relative to the maximum," if relative else form,
        extra,
        titles=titles,
        height=340 if strip else 320,
        rows=rows,
        encoding={"x": axis.channel()},
        variant="relative" if relative else "",
        whole=not strip and not relative,
        legend=legend,
        **parts,
    )


def _curve_rows(scores: SliceScores, *, relative: bool = False) -> list[Row]:
    rows = []
    for by_value in scores.values():
        top = max(score.value for score in by_value.values()) if relative else 1.0
        for (value,), score in by_value.items():
            row = _score_row(score) | {"at": value}
            rows.append(row | {key: row[key] / top for key in ("value", "low", "high")})
    return rows


def _height(view: ReportView, rows: Sequence[Row], *, strip: bool, relative: bool) -> Spec:
    """The vertical axis; with a strip of bars its lower part is kept free for them."""
    axis = _value_axis(view.metric)
    if relative:
        axis["title"] = "share of the model’s own maximum"
    if not strip or not is_share(view.metric):
        return number("value", {"zero": False}, axis=axis)
    low = max(0.0, min(min(row["low"], row["value"]) for row in rows))
    high = max(max(row["high"], row["value"]) for row in rows)
    high = high if relative else min(high, 1.0)
    high = high if high > low else low + 0.1
    low = 0.0 if low < 0.25 * high else low
    axis["values"] = [round(tick, 6) for tick in ticks("linear", low, high, most=6)]
    span = high - low
    ends = [low - span * _STRIP / (1 - _STRIP), high + 0.02 * span]
    return number("value", {"domain": ends, "nice": False}, axis=axis)


def _images(panel: Panel, axis: CurveAxis, most: int) -> Spec:
    """Bars under the curve: how many images each value has."""
    images: dict[str, int] = {}
    for by_value in panel.scores.values():
        for (value,), score in by_value.items():
            images[value] = max(score.n, images.get(value, 0))
    rows = axis.laid([{"at": value, "images": n} for value, n in images.items()])
    for row in rows:
        row["n"] = count(row["images"])
        if axis.places is not None:
            row["at"], row["to"] = axis.bar(row["at"])
    x = {"x": axis.channel()} | ({"x2": {"field": "to"}} if axis.places is not None else {})
    return charts.strip_of_bars(x, rows, most / (_STRIP * 0.8), axis.label)


def _half_of_maximum(panel: Panel, axis: CurveAxis) -> list[Row]:
    """Where each model has half of its maximum, with the interval; none on a circle."""
    if axis.places is None or axis.closes:
        return []
    first, last = axis.ends
    rows = []
    for r in panel.summaries:
        if (r.name, r.support) != ("critical_value", "all") or r.value in (None, axis.sizes[0]):
            continue
        if r.model is None or r.model not in panel.scores:
            continue
        top = max(score.value for score in panel.scores[r.model].values())
        # An interval that is open on one side reaches to the end of the axis.
        known = r.low is not None or r.high is not None
        low, high = (first, last) if known else (r.value, r.value)
        rows.append(
            {
                "model": r.model,
                "at": r.value,
                "value": 0.5 * top,
                "from": low if r.low is None else r.low,
                "to": high if r.high is None else r.high,
            }
        )
    return rows


def _sheets(view: ReportView, panel: Panel) -> Iterator[Figure]:
    """Three columns: a heat map of two for each value of the third, all on one scale of colours."""
    third = min(range(3), key=lambda place: (len(panel.values(place)), -place))
    if len(panel.values(third)) > _MOST_SHEETS:
        return
    first, second = (place for place in range(3) if place != third)
    every = [score.value for score in panel.every]
    for value in panel.values(third):
        sheet = replace(
            panel,
            columns=(panel.columns[first], panel.columns[second]),
            types=(panel.types[first], panel.types[second]),
            scores={
                model: {
                    (at[first], at[second]): s for at, s in scores.items() if at[third] == value
                }
                for model, scores in panel.scores.items()
            },
        )
        yield _heat_map(
            view,
            sheet,
            variant=f"{panel.columns[third]} {value_words(value)}",
            of=panel.columns,
            places=(panel.values(first), panel.values(second)),
            ends=(min(every), max(every)),
        )


def _heat_map(
    view: ReportView,
    panel: Panel,
    *,
    variant: str = "",
    of: tuple[str, ...] = (),
    places: tuple[list[str], list[str]] | None = None,
    ends: tuple[float, float] | None = None,
) -> Figure:
    """The first model on show, one cell per pair of values; y grows downwards, as in an image.

    ``variant``  names one of several maps of the columns ``of``; ``places`` are their common values
                 of the two columns, and ``ends`` those of their common scale
    """
    values = places or (panel.values(0), panel.values(1))
    across = panel.across
    if not panel.is_grid and len(values[0]) > max(len(values[1]), _MOST_ACROSS):
        across = 1  # long lists of names read better downwards
    down = 1 - across
    kept, left_out = {}, ""
    for place in (across, down):
        kept[place], cut = _kept_values(view, panel, place, values[place])
        left_out += f"{cut} of {panel.columns[place]}." if cut else ""
    xs, ys = kept[across], kept[down]
    rows = [
        _score_row(score)
        | {"at": at[across], "row": at[down], "x": xs.index(at[across]), "y": ys.index(at[down])}
        | {"cell": f"{100 * score.value:.0f}" if is_share(view.metric) else f"{score.value:.2f}"}
        for scores in panel.scores.values()
        for at, score in scores.items()
        if at[across] in xs and at[down] in ys
    ]
    there = {(row["x"], row["y"]) for row in rows}
    holes = [
        {"x": x, "y": y} for y in range(len(ys)) for x in range(len(xs)) if (x, y) not in there
    ]
    widest = max(map(len, xs))
    tilted = widest > 5
    tall = 440 if panel.is_grid else 16 * len(ys) + 110
    height = max(180, min(max(440, tall), 34 * len(ys) + 40))
    if tilted:  # names that lean on the cells take their height, not that of the cells
        height += round(_LEAN * min(220, theme.LETTER * widest))
    numbered = len(xs) * len(ys) <= _MOST_NUMBERED_CELLS
    titles = {
        "model": "model",
        "at": panel.columns[across],
        "row": panel.columns[down],
        "text": "score",
        "n": "images",
    }
    legend = {
        "orient": "right",
        "direction": "vertical",
        "gradientLength": min(200, height - 80),  # title and axis take the rest
        "tickCount": 5,
    } | ({"labelExpr": charts.PERCENT_LABEL} if is_share(view.metric) else {})
    scale = {"zero": False, "range": list(theme.SEQUENTIAL)}
    layers = [charts.crossed_out(holes, small=not numbered)] if holes else []
    layers.append(charts.cells(scale | ({"domain": list(ends)} if ends else {}), legend, titles))
    if numbered:
        layers.append(charts.cell_numbers("cell"))
    # Where cells are too narrow for their numbers, the colour alone speaks.
    hide = {"below": 24 * len(xs) + 110, "set": {f"layer.{len(layers) - 1}.mark.opacity": 0}}
    scope = (
        f"the lowest to the highest cell of {' × '.join(of)}, of all models"
        if ends
        else "its lowest to its highest cell"
    )
    return _slice_figure(
        view,
        panel,
        "Heat map",
        f" The first model on show is drawn; the scale spans {scope}."
        + (" Crossed out: no images." if holes else "")
        + left_out,
        titles=titles,
        height=height,
        rows=rows,
        title=charts.heading(),
        transform=charts.first_shown(ends),
        encoding={
            "x": charts.grid_axis(
                "x",
                "across",
                len(xs),
                panel.column_title(across),
                labelAngle=-40 if tilted else 0,
                # A few tilted names have room, though the boxes around them overlap.
                labelOverlap=not tilted or len(xs) > _MOST_ACROSS,
            ),
            "y": charts.grid_axis("y", "down", len(ys), panel.column_title(down)),
        },
        narrow=[hide] if numbered else (),
        square=panel.is_grid and 0.5 <= len(xs) / len(ys) <= 2,
        layer=layers,
        params={
            "heading": f"{panel.title}{variant and ', '}{variant}: ",
            "across": list(map(value_words, xs)),
            "down": list(map(value_words, ys)),
        },
        variant=variant,
        columns=of,
        whole=False,
        legend=False,
    )


def _kept_values(
    view: ReportView, panel: Panel, position: int, values: Sequence[str]
) -> tuple[Sequence[str], str]:
    """The values of a column in their order; of many names only those with the worst scores."""
    if len(values) <= MOST_VALUES or panel.types[position].kind != "categorical":
        return values, ""
    sums: dict[str, list[float]] = {}
    for scores in panel.scores.values():
        for at, score in scores.items():
            total = sums.setdefault(at[position], [0.0, 0.0])
            total[0] += score.value * score.n
            total[1] += score.n
    worst, cut = _worst(view, {value: a / max(n, 1.0) for value, (a, n) in sums.items()})
    return [value for value in values if value in worst], cut


# ---- slices against a number that they have ------------------------------------------------------


def property_figures(view: ReportView, panel: Panel) -> Iterator[Figure]:
    """One figure for every number that the values of a single column have."""
    if len(panel.columns) != 1:
        return
    values = set(panel.values())
    found: dict[str, dict[str, Summary]] = {}
    for record in panel.summaries:
        if record.model is None and record.value is not None and record.at in values:
            found.setdefault(record.name, {})[str(record.at)] = record
    for name, numbers in found.items():
        yield _property(view, panel, name, numbers)


def _property(view: ReportView, panel: Panel, name: str, numbers: Mapping[str, Summary]) -> Figure:
    rows: list[Row] = []
    lines: list[Row] = []
    for model, scores in panel.scores.items():
        here = [(numbers[at], score) for (at,), score in scores.items() if at in numbers]
        for record, score in here:
            digits = [
                None if end is None else signed(end, digits=3, plus=False)
                for end in (record.value, record.low, record.high)
            ]
            ends = f" ({digits[1]}–{digits[2]})" if digits[1] and digits[2] else ""
            text = f"{digits[0]}{ends}"
            rows.append(_score_row(score) | {"at": record.at, "x": record.value, "x_text": text})
        lines += _fitted(model, [(r.value or 0.0, s.value, s.n) for r, s in here])
    words = name.replace("_", " ")
    x = number("x", {"zero": False}, axis={"title": words, "grid": False})
    y = number("value", {"zero": False}, axis=_value_axis(view.metric))
    titles = {
        "model": "model",
        "at": panel.columns[0],
        "x_text": words,
        "text": "score",
        "n": "images",
    }
    legend = len(panel.scores) > 1
    return _slice_figure(
        view,
        panel,
        "Points",
        _slopes(panel, name),
        titles=titles,
        height=340,
        rows=rows,
        layer=[*charts.points(x, y, titles, lines, legend=legend), _overall(panel, "y")],
        variant=f"against {words}",
        legend=legend,
    )


def _fitted(model: str, at: Sequence[tuple[float, float, int]]) -> list[Row]:
    """The two ends of a model's least-squares line, slices weighted by their images."""
    if len(at) < 3 or len({x for x, _, _ in at}) < 2:
        return []
    x, y, n = np.array(at, dtype=np.float64).T
    intercept, slope = weighted_line(x, y, n)
    ends = (float(x.min()), float(x.max()))
    return [{"model": model, "x": end, "value": intercept + slope * end} for end in ends]


def _slopes(panel: Panel, name: str) -> str:
    """The slopes of the models on show, in words."""
    found = [
        f"{r.model} {points(r.value)}{points_range(r.low, r.high, brackets=True)}"
        for r in panel.summaries
        if (r.name, r.at) == ("slope", name) and r.model in panel.shown and r.value is not None
    ]
    if not found:
        return ""
    return f" Points of accuracy per unit of {name.replace('_', ' ')}: {', '.join(found)}."


# ---- pairs of models -----------------------------------------------------------------------------


def comparison_figures(view: ReportView) -> Iterator[Figure]:
    """For each test set and metric that is a share: one row per pair, largest gain first."""
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for c in view.comparisons:
        if c.slice == ALL and is_share(c.metric):
            groups.setdefault((c.testset, c.metric), []).append(c)
    for (testset, metric), group in groups.items():
        ordered = sorted(group, key=lambda c: (-c.difference, c.model, c.other))
        kept = sorted(ordered, key=lambda c: -abs(c.difference))[:_MOST_PAIRS]
        yield _comparison(testset, metric, [c for c in ordered if c in kept], len(group))


def _comparison(testset: str, metric: str, pairs: Sequence[Comparison], of: int) -> Figure:
    name = metric_name(metric)
    rows: list[Row] = [
        {
            "pair": f"{c.model} − {c.other}",
            **limits(c.difference, c, 100),
            "sure": c.low is not None and c.high is not None and (c.low > 0 or c.high < 0),
            "text": _points_text(c.difference, c, digits=2, range_digits=2),
            "p": p_text(c.p) or "none",
        }
        for c in pairs
    ]
    titles = {"pair": "models", "text": "difference", "p": "p"}
    axis = {"title": f"difference in {name} (points)", "orient": "top", "tickCount": 6}
    cut = f" The {len(pairs)} largest of {of}." if of > len(pairs) else ""
    return Figure(
        name=slug("comparisons", testset, metric),
        section="comparisons",
        title=f"{name} on {testset}",
        group=testset,
        caption="First model minus second; blue where the interval leaves out zero."
        + _tests(pairs)
        + cut,
        spec=charts.dot_plot(
            rows,
            number("value", {"zero": True}, axis=axis),
            "pair",
            [row["pair"] for row in rows],
            titles,
            differences=True,
            height=22 * len(rows),
            description=f"Differences in {name} on {testset} for {plural(of, 'pair')} of models; "
            f"largest: {rows[0]['pair']}, {rows[0]['text']}.",
        ),
    )


def _tests(pairs: Sequence[Comparison]) -> str:
    tests = sorted({c.test for c in pairs if c.test})
    return f" Test: {', '.join(tests)}." if tests else ""


def comparison_curves(view: ReportView) -> Iterator[Figure]:
    """For each single ordered or circular column: the differences of pairs of models along it."""
    known: dict[tuple[str, tuple[str, ...]], Panel] = {
        (panel.testset, panel.columns): panel
        for panel in view.panels
        if len(panel.columns) == 1 and panel.types[0].kind in ("ordered", "circular", "grid")
    }
    groups: dict[tuple[str, str, tuple[str, ...]], dict[str, dict[str, Comparison]]] = {}
    for c in view.comparisons:
        parts = parse_slice(c.slice)
        if is_share(c.metric) and (c.testset, tuple(parts)) in known:
            pairs = groups.setdefault((c.testset, c.metric, tuple(parts)), {})
            (value,) = parts.values()
            pairs.setdefault(f"{c.model} − {c.other}", {})[value] = c
    for (testset, metric, columns), pairs in groups.items():
        yield _comparison_curve(known[testset, columns], metric, pairs)


def _comparison_curve(
    panel: Panel, metric: str, pairs: Mapping[str, Mapping[str, Comparison]]
) -> Figure:
    column, name = panel.columns[0], metric_name(metric)
    axis = CurveAxis(tuple(panel.values()), panel.types[0], panel.column_title())
    names = list(pairs)[:_MOST_CURVES]
    left_out = len(pairs) - len(names)
    rows = [
        {
            "at": value,
            "model": pair,
            "series": place,
            **limits(c.difference, c, 100),
            "sure": c.p is not None and c.p < _SURE,
            "text": _points_text(c.difference, c, digits=1, range_digits=1),
            "p": p_text(c.p) or "none",
        }
        for place, pair in enumerate(names)
        for value, c in pairs[pair].items()
    ]
    every = [c for pair in names for c in pairs[pair].values()]
    widest = max(every, key=lambda c: abs(c.difference))
    titles = {"model": "models", axis.label: column, "text": "difference", "p": "p"}
    y_axis = {"title": f"difference in {name} (points)", "tickCount": 6}
    y = number("value", {"zero": True}, axis=y_axis)
    colour = charts.series(names, theme.CATEGORIES)
    return Figure(
        name=slug("comparisons", panel.testset, metric, column),
        section="comparisons",
        title=f"{name} on {panel.testset} along {column}",
        group=panel.testset,
        caption="First model minus second, with the interval of each value by itself. Filled: p "
        f"below {_SURE:g} after the correction for all values."
        + _tests(every)
        + (f" {left_out} more pairs are in the table." if left_out else ""),
        spec=charts.chart(
            width=720,
            height=300,
            titles=titles,
            names=names,
            rows=axis.laid(rows),
            encoding={"x": axis.channel()},
            layer=[
                charts.zero_line("y", y),
                *charts.curves(y, titles, colour=colour, order=axis.order),
            ],
            description=f"Differences in {name} on {panel.testset} along {column} for "
            f"{', '.join(names)}; widest: {points(widest.difference)} points where {widest.slice}.",
        ),
    )


# ---- any matrix ----------------------------------------------------------------------------------


def matrix_figure(
    values: npt.ArrayLike,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str,
    row_title: str = "row",
    column_title: str = "column",
    value_title: str = "value",
) -> Figure:
    """The matrix ``values`` (rows, columns), each from −1 to 1 or NaN where it is not known.

    The scale always spans −1 to 1, so that two such figures can be laid side by side.
    """
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.shape != (len(rows), len(columns)) or not matrix.size:
        raise UserError(
            f"a matrix of shape {matrix.shape} with {len(rows)} row and {len(columns)} column names"
        )
    if (np.abs(matrix[np.isfinite(matrix)]) > 1 + 1e-9).any():
        raise UserError("a matrix with values outside −1 to 1", fix="divide by its largest value")
    cells: list[Row] = [
        {
            "x": int(x),
            "y": int(y),
            "row": rows[y],
            "column": columns[x],
            "value": float(matrix[y, x]),
            "text": signed(float(matrix[y, x]), digits=2),
        }
        for y, x in np.argwhere(np.isfinite(matrix))
    ]
    titles = {"row": row_title, "column": column_title, "text": value_title}
    legend = {
        "orient": "right",
        "direction": "vertical",
        "gradientLength": 160,
        "values": [-1, -0.5, 0, 0.5, 1],
        "format": "+.1f",
    }
    layers = [charts.cells({"domain": [-1, 1], "range": list(theme.DIVERGING)}, legend, titles)]
    if matrix.size <= 200:
        layers.append(charts.cell_numbers("text", diverging=True))
    lowest = min(cells, key=lambda cell: float(cell["value"]), default=None)
    said = f" Lowest: {lowest['text']} at {lowest['row']}, {lowest['column']}." if lowest else ""
    return Figure(
        name=slug("matrix", title),
        section="slices",
        title=title,
        caption="",
        spec=charts.chart(
            width=max(360, min(900, 46 * len(columns) + 190)),
            height=max(180, min(900, 28 * len(rows) + 130)),
            description=f"Heat map: {title}. {len(rows)} rows, {len(columns)} columns.{said}",
            titles=titles,
            params={"across": list(columns), "down": list(rows)},
            rows=cells,
            encoding={
                "x": charts.grid_axis(
                    "x", "across", len(columns), column_title, labelAngle=-40, labelOverlap=True
                ),
                "y": charts.grid_axis("y", "down", len(rows), row_title, labelOverlap=True),
            },
            layer=layers,
        ),
    )
