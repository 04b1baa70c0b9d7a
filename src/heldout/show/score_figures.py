"""Figures of scores: the rows and the words of each; charts.py draws them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from heldout.core.errors import UserError
from heldout.core.records import with_limits
from heldout.measure.score.fits import AXES, from_axes
from heldout.measure.score.memberships import weighted_line
from heldout.measure.score.records import Comparison, Fit, Score, Summary
from heldout.measure.score.slices import CLASS, parse_slice, value_words
from heldout.show import charts
from heldout.show.axes import CurveAxis, domain, position, tick_axis, ticks
from heldout.show.charts import Figure, Row, Spec, figure, number
from heldout.show.mistake_figures import learning_figures, mistake_figures
from heldout.show.view import Change, ReportView, SlicePanel, SliceScores
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
    points_cell,
    score_cell,
    signed,
    value_text,
)

FloatArray = npt.NDArray[np.float64]
MOST_VALUES, MOST_BARS = 40, 24
"""Values of a column of names, above which a heat map, or bars, show the lowest only."""
FEW = 8
"""Images of a value of names below which a bar says next to nothing."""
_MOST_METRICS = 7
_SETS_A_FIGURE = 4
_MOST_PAIRS = 60
_STRIP = 0.15  # the part of a curve's height that the bars of images take


def all_figures(view: ReportView) -> list[Figure]:
    """Every figure that the records support, in the order of the page."""
    found = [*scatter_figures(view), *overview_figures(view)]
    sets = list(view.changes)
    for start in range(0, len(sets), _SETS_A_FIGURE):
        found.append(change_figure(view, sets[start : start + _SETS_A_FIGURE]))
    for figures in (slice_figures, property_figures):
        found += [figure for panel in view.panels for figure in figures(view, panel)]
    found += [*learning_figures(view.learning), *mistake_figures(view.mistakes, view.data.columns)]
    return charts.with_unique_names([*found, *comparison_figures(view)])


# ---- accuracy on a new test set against the baseline ---------------------------------------------


def confidence_band(fit: Fit, at: FloatArray) -> FloatArray:
    """The band of a line at ``at`` (n,): rows of x, low and high (n, 3); none without an interval."""
    if fit.covariance is None or fit.slope_high is None or fit.covariance[0] <= 0:
        return np.empty((0, 3))
    slope, both, intercept = fit.covariance
    rise, start = fit.line
    quantile = (fit.slope_high - rise) / np.sqrt(slope)
    half = quantile * np.sqrt(np.maximum(slope * at**2 + 2 * both * at + intercept, 0.0))
    middle = rise * at + start
    return np.stack([at, middle - half, middle + half], axis=1)


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
    if np.ptp(both) <= 2.2 * max(np.ptp(x_domain), np.ptp(y_domain)):
        x_domain = y_domain = both  # one scale for both where that wastes little room
    _name_some(rows, x_domain)
    name, models = metric_name(view.metric), plural(len(rows), "model")
    x, y = (
        number(
            key, tick_axis(axes, *ends, f"{name} on {where}"), domain=ends, nice=False, zero=False
        )
        for key, ends, where in (("x", x_domain, baseline), ("y", y_domain, testset))
    )
    titles = {"model": "model", "x_text": baseline, "y_text": testset, "change": "change"}
    layers = [charts.line(line_ends(1.0, 0.0, x_domain, y_domain), x, y, identity=True)]
    caption, alt = f"{models}; dashed: equal accuracy.", ""
    if fit is not None:
        titles["off"] = "off the line"
        slope = f"{fit.line[0]:.3f}"
        if fit.slope_low is not None and fit.slope_high is not None:
            slope += f" ({fit.slope_low:.3f} to {fit.slope_high:.3f})"
        of = plural(fit.models, "model")
        caption += f" Line: slope {slope}, R² {fit.r2:.3f}, through {of}."
        alt = f" The fitted line has slope {fit.line[0]:.2f} and R² {fit.r2:.3f}."
        band = confidence_band(fit, np.linspace(*x_domain, 48)).tolist()
        if band:
            layers.append(charts.band([{"x": a, "y": b, "y2": c} for a, b, c in band], x, y))
            caption += f" Band: pointwise, of the line; {fit.interval}."
        elif fit.reason:
            caption += f" No interval: {fit.reason}."
        fitted = line_ends(*fit.line, x_domain, y_domain)
        layers.append(charts.line(fitted, x, y))
    below = sum(c.difference < 0 for c in changes)
    mean = sum(c.difference for c in changes) / len(changes)
    return figure(
        ("accuracy", testset, axes),
        f"Scatter plot on {axes} axes of {name} of {models} on {testset} against {baseline}. "
        f"{below} lie below the identity line; the mean change is {points(mean)} points.{alt}",
        title=testset,
        group=testset,
        choice=axes,
        caption=caption + interval_names(_both_scores(changes), " Bars: {}."),
        titles=titles,
        width=440,
        height=440,
        square=True,
        layer=[*layers, charts.crossed_points(rows, x, y, titles)],
    )


def _both_scores(changes: Iterable[Change]) -> list[Score]:
    return [score for change in changes for score in (change.old, change.new)]


def _scatter_row(axes: str, change: Change, fit: Fit | None) -> Row:
    row: Row = {"model": change.model, "label_left": "", "label_right": ""}
    for key, score in (("x", change.old), ("y", change.new)):
        ends = zip(("", "_low", "_high"), limits(score.value, score).values(), strict=True)
        row |= {key + end: position(value, axes, n=score.n) for end, value in ends}
        text = f"{percent(score.value, digits=2)}{PERCENT}"
        row[f"{key}_text"] = str(replace(score_cell(score), text=text))
    row["change"] = f"{points(change.difference, digits=2)} points"
    if fit is not None:
        slope, intercept = fit.line
        expected = float(from_axes(np.array([slope * row["x"] + intercept]), axes)[0])
        row["residual"] = change.new.value - expected
        row["off"] = f"{points(row['residual'], digits=2)} points"
    return row


def _name_some(rows: Sequence[Row], x_domain: Sequence[float]) -> None:
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
    slope: float, intercept: float, x_domain: Sequence[float], y_domain: Sequence[float]
) -> list[dict[str, float]]:
    """The two ends of a line, cut to the plot; none where it passes by."""
    low, high = x_domain
    if slope:
        ends = sorted((edge - intercept) / slope for edge in y_domain)
        low, high = max(low, ends[0]), min(high, ends[1])
    elif not y_domain[0] <= intercept <= y_domain[1]:
        return []
    return [{"x": x, "y": slope * x + intercept} for x in (low, high)] if low <= high else []


# ---- all models on one test set, and their changes -----------------------------------------------


def overview_figures(view: ReportView) -> Iterator[Figure]:
    """For each test set that no scatter shows: every model's scores that are shares.

    Scores that forgive mistakes have a figure of their own, beside the mistakes.
    """
    covered = {*view.new_testsets, view.baseline} if view.new_testsets else set()
    metrics = [m for m in dict.fromkeys((view.metric, *view.metrics)) if not forgives(m)]
    for testset in view.testsets:
        found = {
            metric: scores
            for metric in metrics
            if is_share(metric) and (scores := view.overall(testset, metric=metric))
        }
        if found and testset not in covered:
            yield _overview(testset, dict(list(found.items())[:_MOST_METRICS]))


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
            "text": str(score_cell(s)),
        }
        for s in scores
    ]
    ends = [value_text(first, end([s.value for s in lead.values()])) for end in (min, max)]
    return figure(
        ("scores", testset),
        f"Dot plot of {', '.join(names)} of {plural(len(models), 'model')} on {testset}. "
        f"{names[0]}: {ends[0]} to {ends[1]}.",
        section="accuracy",
        title=testset,
        group=testset,
        caption=f"Models in order of {names[0]}." + interval_names(scores, " Intervals: {}."),
        **charts.dot_plot(
            rows,
            "model",
            models,
            {"model": "model", "metric": "metric", "text": "score"},
            names[0] if len(names) == 1 else "score",
            names=names,
        ),
    )


def change_figure(view: ReportView, sets: Sequence[str]) -> Figure:
    """A dot plot of every model's change from the baseline to a few test sets."""
    found = [change for name in sets for change in view.changes[name]]
    mean = _means((c.model, c.difference) for c in found)
    order = sorted(mean, key=lambda m: (-mean[m], m))
    rows = [
        {
            "model": c.model,
            "testset": c.testset,
            "series": sets.index(c.testset),
            **limits(c.difference, c, 100),
            "text": str(points_cell(c.difference, c, 2, 1, " points")),
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
    by_set = _means((c.testset, c.difference) for c in found)
    spread = "; ".join(f"{name} {points(value)} on average" for name, value in by_set.items())
    metric = metric_name(view.metric)
    how = " Intervals: Newcombe's square-and-add of the two ({})."
    return figure(
        ("changes",),
        f"Dot plot of the change in {metric} of {plural(len(order), 'model')} from "
        f"{view.baseline}: {spread}.",
        title=f"Change from {view.baseline}",
        caption=f"New minus baseline, {metric}; models in order of their mean change."
        + interval_names(_both_scores(found), how),
        **charts.dot_plot(
            rows, "model", order, titles, "change (points)", names=sets, differences=True
        ),
    )


def _means(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    """By name: the mean of its values."""
    found: dict[str, list[float]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: sum(several) / len(several) for name, several in found.items()}


# ---- slices --------------------------------------------------------------------------------------


def slice_figures(view: ReportView, panel: SlicePanel) -> Iterator[Figure]:
    """The figures of one panel by the types of its columns; columns of plain text have none.

    One column: bars or a curve. Two: a heat map. Of more columns the tables show the scores.
    """
    kinds = [kind.kind for kind in panel.types]
    if "text" in kinds or len(kinds) > 2:
        return
    if len(kinds) == 2:
        yield _heat_map(view, panel)
    elif kinds == ["categorical"]:
        yield from _bars(view, panel)
    else:
        yield from _curves(view, panel)


def _slice_figure(
    view: ReportView,
    panel: SlicePanel,
    form: str,
    extra: str,
    *,
    variant: str = "",
    whole: bool = True,
    params: Mapping[str, Any] | None = None,
    **parts: Any,
) -> Figure:
    """A panel's figure; ``form`` opens its description, ``extra`` ends its caption.

    ``variant`` names a further figure of the panel; ``whole`` says whether the score on the whole
    set is drawn.
    """
    title = f"{panel.title}, {variant}" if variant else panel.title
    caption = interval_names(panel.every, "Intervals: {}.")
    if not caption and panel.every[0].reason:
        caption = f"No intervals: {panel.every[0].reason}."
    elif whole and panel.overall:
        caption += " Dashed: the model on the whole set."
    values = [score.value for score in panel.every]
    ends = [value_text(panel.every[0].metric, end(values)) for end in (min, max)]
    return figure(
        ("slices", panel.testset, *panel.columns, *([variant] if variant else [])),
        f"{form} of {metric_name(view.metric)} on {panel.testset} by {title} for "
        f"{', '.join(panel.shown)}: {ends[0]} to {ends[1]} over all models.",
        title=title,
        group=panel.testset,
        columns=panel.columns,
        caption=(caption + extra).strip(),
        params={"shown": list(panel.shown), **(params or {})},
        **parts,
    )


def _score_row(score: Score) -> Row:
    text = str(score_cell(score))
    return {
        "model": score.model,
        **limits(score.value, score),
        "text": text,
        "n": count(score.n),
    }


def _value_axis(view: ReportView) -> Spec:
    """The axis of the metric: percent for shares."""
    name = metric_name(view.metric)
    return charts.percent_axis(name) if is_share(view.metric) else {"title": name, "tickCount": 6}


def _overall(panel: SlicePanel, way: str) -> Spec:
    """A dashed rule for each model on show: its score on the whole test set."""
    known = [model for model in panel.scores if model in panel.overall]
    rows = [{"model": model, "overall": panel.overall[model].value} for model in known]
    return charts.overall_line(way, rows, several=panel.several)


def _worst(
    view: ReportView, means: Mapping[str, float], most: int = MOST_VALUES
) -> tuple[list[str], str]:
    """At most some values, the worst first; and words where others are left out."""
    ordered = sorted(means, key=lambda value: (merit(view.metric, means[value]), value))
    if len(ordered) <= most:
        return ordered, ""
    end = "lowest" if higher_is_better(view.metric) else "highest"
    return ordered[:most], f" The {most} {end} of {len(ordered):,} values"


def _bars(view: ReportView, panel: SlicePanel) -> Iterator[Figure]:
    column = panel.columns[0]
    means = _means((parse_slice(s.slice)[column], s.value) for s in panel.every if s.n >= FEW)
    if not means:
        return
    small = len(panel.values()) - len(means)
    worst, cut = _worst(view, means, MOST_BARS)
    extra = f"{cut} as observed; some of them are by chance." if cut else ""
    if small:
        extra += f" Of {plural(small, 'further value')} there are fewer than {FEW} images."
    values = [v for v in panel.values() if v in worst] if panel.types[0].order else worst
    classes = panel.classes if column == CLASS else {}
    names = [classes.get(value, value) for value in values]
    titles = {"model": "model", "at": column, "text": "score", "n": "images"}
    x = number("value", _value_axis(view))
    rows = [
        _score_row(scores[value,]) | {"at": name}
        for scores in panel.scores.values()
        for value, name in zip(values, names, strict=True)
        if (value,) in scores
    ]
    yield _slice_figure(
        view,
        panel,
        "Bars",
        extra,
        rows=rows,
        titles=titles,
        names=panel.shown,
        height=(8 + 10 * len(panel.shown)) * len(values),
        grows=True,
        encoding={"y": charts.names_down("at", names, grid=False)},
        layer=[charts.grouped_bars(x, titles, several=panel.several), _overall(panel, "x")],
    )


def _curves(view: ReportView, panel: SlicePanel) -> Iterator[Figure]:
    """The curve; of a circular column also relative to each model's own maximum."""
    axis = CurveAxis(tuple(panel.values()), panel.types[0], panel.column_title())
    yield _curve(view, panel, axis)
    tops = [max(s.value for s in scores.values()) for scores in panel.scores.values()]
    if axis.closes and is_share(view.metric) and min(tops) > 0:
        yield _curve(view, panel, axis, relative=True)


def _curve(
    view: ReportView, panel: SlicePanel, axis: CurveAxis, *, relative: bool = False
) -> Figure:
    rows = axis.laid(_curve_rows(panel.scores, relative=relative))
    titles = {"model": "model", axis.label: panel.columns[0], "text": "score", "n": "images"}
    strip = bool(panel.summaries)
    y = _height(view, rows, strip=strip, relative=relative)
    colour, shape = (charts.slots(looks, several=panel.several) for looks in charts.SLOT_LOOKS)
    shown: Spec = {"transform": charts.SHOWN, "encoding": {"color": colour}}
    layers: list[Spec] = []
    extra = ""
    if len(panel.scores) > len(panel.shown):
        layers.append(charts.range_of_models(y))
        extra += f" Grey: the range of all {len(panel.scores)} models."
    size = 34 if len(axis.values) <= 24 else 16 if len(axis.values) <= 60 else 7
    curves = charts.curves(y, titles, {"shape": shape}, axis.order, size)
    layers.append({**shown, "layer": curves})
    if panel.balanced and not relative:
        data = charts.values(axis.laid(_curve_rows(panel.balanced)))
        dashed = charts.dashed_curve(y, titles, axis.order)
        layers.append({"data": data, **shown, "layer": dashed})
        extra += " Dashed: only the units present at every value."
    half = [] if relative else _half_of_maximum(panel, axis)
    if half:
        encoding = {"color": colour, "y": y}
        data = charts.values(half)
        layers.append({"data": data, **shown, "encoding": encoding, "layer": charts.diamonds()})
        extra += " Diamond: half of the maximum; its line is the interval."
    whole = not strip and not relative
    if whole:
        layers.append(_overall(panel, "y"))
    if axis.closes:
        extra += " The axis comes round: its right end repeats the left."
    if relative:
        extra += (
            " Each model is divided by its own highest value, whose chance is not in the bands."
        )
    more: Spec = {}
    if strip:
        most = max(score.n for score in panel.every)
        layers = [_images(panel, axis, most), {"layer": layers}]
        more = {"resolve": {"scale": {"y": "independent"}}}
        extra += f" Grey bars: images at each value, {count(most)} at most."
    form = "Closed curve" if axis.closes else "Curve"
    return _slice_figure(
        view,
        panel,
        f"{form}, relative to the maximum," if relative else form,
        extra,
        rows=rows,
        titles=titles,
        names=panel.shown,
        height=330,
        encoding={"x": axis.channel()},
        layer=layers,
        more=more,
        variant="relative" if relative else "",
        whole=whole,
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
    axis = _value_axis(view)
    if relative:
        axis["title"] = "share of the model’s own maximum"
    if not strip or not is_share(view.metric):
        return number("value", axis, zero=False)
    low = max(0.0, min(min(row["low"], row["value"]) for row in rows))
    high = max(max(row["high"], row["value"]) for row in rows)
    high = high if relative else min(high, 1.0)
    high = high if high > low else low + 0.1
    low = 0.0 if low < 0.25 * high else low
    axis["values"] = [round(tick, 6) for tick in ticks("linear", low, high, most=6)]
    span = high - low
    ends = [low - span * _STRIP / (1 - _STRIP), high + 0.02 * span]
    return number("value", axis, domain=ends, nice=False)


def _images(panel: SlicePanel, axis: CurveAxis, most: int) -> Spec:
    """Bars under the curve: how many images each value has."""
    images: dict[str, int] = {}
    for score in panel.every:
        (value,) = parse_slice(score.slice).values()
        images[value] = max(score.n, images.get(value, 0))
    rows = axis.laid([{"at": value, "images": n} for value, n in images.items()])
    for row in rows:
        row["n"] = count(row["images"])
        if axis.places is not None:
            row["at"], row["to"] = axis.bar(row["at"])
    x = {"x": axis.channel()} | ({} if axis.places is None else {"x2": {"field": "to"}})
    return charts.strip_of_bars(x, rows, most / (_STRIP * 0.8), axis.label)


def _half_of_maximum(panel: SlicePanel, axis: CurveAxis) -> list[Row]:
    """Where each model has half of its maximum, with the interval; none on a circle."""
    rows: list[Row] = []
    if axis.places is None or axis.closes:
        return rows
    for r in panel.summaries:
        if (r.name, r.support) != ("critical_value", "all") or r.value in (None, axis.sizes[0]):
            continue
        if r.model in panel.scores:
            top = max(score.value for score in panel.scores[str(r.model)].values())
            # An interval that is open on one side reaches to the end of the axis.
            ends = (r.value, r.value) if r.low is None and r.high is None else axis.ends
            low, high = (e if v is None else v for e, v in zip(ends, (r.low, r.high), strict=True))
            at = {"model": r.model, "at": r.value, "value": 0.5 * top}
            rows.append(at | {"from": low, "to": high})
    return rows


def _heat_map(view: ReportView, panel: SlicePanel) -> Figure:
    """The first model on show, one cell per pair of values; y grows downwards, as in an image."""
    values = [panel.values(place) for place in (0, 1)]
    across = panel.across
    if not panel.is_grid and len(values[0]) > max(len(values[1]), 12):
        across = 1  # long lists of names read better downwards
    down = 1 - across
    left_out = ""
    for place in (across, down):
        if len(values[place]) > MOST_VALUES and panel.types[place].kind == "categorical":
            worst, cut = _worst(view, _weighted_means(panel, place))
            values[place] = [value for value in values[place] if value in worst]
            left_out += f"{cut} of {panel.columns[place]}."
    xs, ys = values[across], values[down]
    rows = [
        _score_row(score)
        | {"at": at[across], "row": at[down], "x": xs.index(at[across]), "y": ys.index(at[down])}
        | {"cell": f"{100 * score.value:.0f}" if is_share(view.metric) else f"{score.value:.2f}"}
        for scores in panel.scores.values()
        for at, score in scores.items()
        if at[across] in xs and at[down] in ys
    ]
    titles = {
        "model": "model",
        "at": panel.columns[across],
        "row": panel.columns[down],
        "text": "score",
        "n": "images",
    }
    crossed = len({(row["x"], row["y"]) for row in rows}) < len(xs) * len(ys)
    parts = charts.heat_map(
        rows,
        list(map(value_words, xs)),
        list(map(value_words, ys)),
        titles,
        (panel.column_title(across), panel.column_title(down)),
        {"zero": False},
        percent=is_share(view.metric),
        cells="cell",
        crossed=True,
    )
    parts["params"]["heading"] = f"{panel.title}: "
    return _slice_figure(
        view,
        panel,
        "Heat map",
        " The first model on show is drawn; the scale spans its lowest to its highest cell."
        + (" Crossed out: no images." if crossed else "")
        + left_out,
        whole=False,
        square=panel.is_grid and 0.5 <= len(xs) / len(ys) <= 2,
        more=charts.first_shown(),
        **parts,
    )


def _weighted_means(panel: SlicePanel, position: int) -> dict[str, float]:
    """By value of one column: the mean score of its images."""
    hits: Counter[str] = Counter()
    n: Counter[str] = Counter()
    for scores in panel.scores.values():
        for at, score in scores.items():
            hits[at[position]] += score.value * score.n  # type: ignore[assignment]
            n[at[position]] += score.n
    return {value: total / max(n[value], 1) for value, total in hits.items()}


# ---- slices against a number that they have ------------------------------------------------------


def property_figures(view: ReportView, panel: SlicePanel) -> Iterator[Figure]:
    """One figure for every number that the values of a single column have."""
    if len(panel.columns) > 1:
        return
    values = set(panel.values())
    found: dict[str, dict[str, Summary]] = {}
    for record in panel.summaries:
        if record.model is None and record.value is not None and record.at in values:
            found.setdefault(record.name, {})[str(record.at)] = record
    for name, numbers in found.items():
        yield _property(view, panel, name, numbers)


def _property(
    view: ReportView, panel: SlicePanel, name: str, numbers: Mapping[str, Summary]
) -> Figure:
    rows: list[Row] = []
    lines: list[Row] = []
    for model, scores in panel.scores.items():
        here = [(numbers[at], score) for (at,), score in scores.items() if at in numbers]
        rows += [
            _score_row(s) | {"at": r.at, "x": r.value, "x_text": with_limits(r, ".3f")}
            for r, s in here
        ]
        lines += _fitted(model, [(r.value or 0.0, s.value, s.n) for r, s in here])
    words = name.replace("_", " ")
    slopes = ", ".join(
        f"{r.model} {points_cell(r.value, r)}"
        for r in panel.summaries
        if (r.name, r.at) == ("slope", name) and r.model in panel.shown and r.value is not None
    )
    titles = {
        "model": "model",
        "at": panel.columns[0],
        "x_text": words,
        "text": "score",
        "n": "images",
    }
    x = number("x", {"title": words, "grid": False}, zero=False)
    y = number("value", _value_axis(view), zero=False)
    layers = charts.points(lines, x, y, titles, several=panel.several)
    return _slice_figure(
        view,
        panel,
        "Points",
        slopes and f" Points of accuracy per unit of {words}: {slopes}.",
        rows=rows,
        titles=titles,
        names=panel.shown,
        height=340,
        layer=[*layers, _overall(panel, "y")],
        variant=f"against {words}",
    )


def _fitted(model: str, at: Sequence[tuple[float, float, int]]) -> list[Row]:
    """The two ends of a model's least-squares line, slices weighted by their images."""
    if len(at) < 3 or len({x for x, _, _ in at}) < 2:
        return []
    x, y, n = np.array(at, dtype=np.float64).T
    intercept, slope = weighted_line(x, y, n)
    ends = (float(x.min()), float(x.max()))
    return [{"model": model, "x": end, "value": intercept + slope * end} for end in ends]


# ---- pairs of models -----------------------------------------------------------------------------


def comparison_figures(view: ReportView) -> Iterator[Figure]:
    """For each test set and metric that is a share: one row per pair, largest gain first."""
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for c in view.comparisons:
        if not parse_slice(c.slice) and is_share(c.metric):
            groups.setdefault((c.testset, c.metric), []).append(c)
    for (testset, metric), group in groups.items():
        ordered = sorted(group, key=lambda c: (-c.difference, c.model, c.other))
        kept = sorted(ordered, key=lambda c: -abs(c.difference))[:_MOST_PAIRS]
        yield _comparison(view, testset, metric, [c for c in ordered if c in kept], len(group))


def _comparison(
    view: ReportView, testset: str, metric: str, pairs: Sequence[Comparison], of: int
) -> Figure:
    name = metric_name(metric)
    rows: list[Row] = [
        {
            "pair": f"{c.model} − {c.other}",
            **limits(c.difference, c, 100),
            "sure": view.is_stated(c),
            "text": str(points_cell(c.difference, c, 2, 2, " points")),
            "p": p_text(c.p) or "none",
        }
        for c in pairs
    ]
    cut = f" The {len(pairs)} largest of {of}." if of > len(pairs) else ""
    tests = sorted({c.test for c in pairs if c.test})
    return figure(
        ("comparisons", testset, metric),
        f"Differences in {name} on {testset} for {plural(of, 'pair')} of models: "
        f"{rows[-1]['text']} to {rows[0]['text']}.",
        title=f"{name} on {testset}",
        group=testset,
        caption="First model minus second; blue where the two are told apart."
        + (f" Test: {', '.join(tests)}." if tests else "")
        + cut,
        **charts.dot_plot(
            rows,
            "pair",
            [row["pair"] for row in rows],
            {"pair": "models", "text": "difference", "p": "p"},
            f"difference in {name} (points)",
            differences=True,
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
    if (np.abs(matrix[np.isfinite(matrix)]) > 1 + 1e-9).any():
        raise UserError("a matrix with values outside −1 to 1", fix="divide by its largest value")
    cells: list[Row] = [
        {
            "x": x,
            "y": y,
            "row": rows[y],
            "column": columns[x],
            "value": float(matrix[y, x]),
            "text": signed(float(matrix[y, x]), digits=2),
        }
        for y, x in np.argwhere(np.isfinite(matrix)).tolist()
    ]
    lowest = min(cells, key=lambda cell: float(cell["value"]), default=None)
    said = f" Lowest: {lowest['text']} at {lowest['row']}, {lowest['column']}." if lowest else ""
    return figure(
        ("matrix", title),
        f"Heat map: {title}. {len(rows)} rows, {len(columns)} columns.{said}",
        section="slices",
        title=title,
        caption="",
        width=max(360, min(900, 46 * len(columns) + 190)),
        **charts.heat_map(
            cells,
            list(columns),
            list(rows),
            {"row": row_title, "column": column_title, "text": value_title},
            (column_title, row_title),
            {"domain": [-1, 1]},
            percent=False,
            cells="text",
        ),
    )
