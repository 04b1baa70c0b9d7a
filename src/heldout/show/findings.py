"""What the numbers say, in sentences: the first thing a reader sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heldout.measure.mistakes.forgiving import EXPLAINED_CATEGORIES
from heldout.measure.mistakes.kinds import JUDGED
from heldout.measure.mistakes.tallying import ALL, MAJOR
from heldout.measure.score.records import Score
from heldout.show.changes import Change, changes
from heldout.show.data import Headline
from heldout.show.mistakes import MistakePart, mistake_parts
from heldout.show.panels import Panel, panels, slice_text
from heldout.show.wording import (
    count,
    higher_is_better,
    is_share,
    merit,
    metric_name,
    plural,
    points,
    range_text,
    value_text,
)

_WORST = 10
_FEW = 8  # images of a slice below which its score says next to nothing
_MOST_SETS = 6
_MOST_HARDEST = 2


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One result: the number that leads, its unit, and the sentence around it."""

    number: str
    unit: str
    text: str


@dataclass(frozen=True, kw_only=True)
class SliceGap:
    """How far the models fall on one slice below their own score on the whole test set.

    ``mean`` and ``gap`` are means over the models that have both scores; ``lowest`` is the
    slice's lowest score.
    """

    testset: str
    slice: str
    text: str
    n: int
    models: int
    mean: float
    gap: float
    lowest: Score


def findings(headline: Headline) -> list[Finding]:
    """The main results, each with its leading number; all of them stand in the tables too."""
    found: list[Finding] = []
    if headline.new_testsets and is_share(headline.metric):
        found += [
            _change(headline, testset, changes(headline, testset))
            for testset in headline.new_testsets[:_MOST_SETS]
        ]
    else:
        found += [
            _best(headline, testset)
            for testset in headline.testsets[:_MOST_SETS]
            if headline.overall(testset)
        ]
    hardest = [gaps[0] for gaps in worst_slices(headline).values() if gaps[0].n >= _FEW]
    hardest = sorted(hardest, key=lambda gap: gap.gap)[:_MOST_HARDEST]
    found += [_hardest(headline, gap) for gap in hardest]
    parts = mistake_parts(headline)[:_MOST_HARDEST]
    return found + [_mistakes(part) for part in parts if _explained(part)]


def slice_gaps(headline: Headline, testset: str) -> list[SliceGap]:
    """Every slice of a test set by mean gap, widest loss first; higher-is-better shares only."""
    if not is_share(headline.metric) or not higher_is_better(headline.metric):
        return []
    found = [
        gap
        for panel in panels(headline)
        if panel.testset == testset
        for gap in _gaps(headline, panel)
    ]
    return sorted(found, key=lambda gap: (gap.gap, gap.slice))


def worst_slices(headline: Headline) -> dict[str, list[SliceGap]]:
    """By test set: its hardest slices, where models fall below their own overall score.

    Slices of a few images are left out where there are larger ones: of many slices of three images,
    some are always at zero.
    """
    listed = {}
    for testset in headline.testsets:
        gaps = [gap for gap in slice_gaps(headline, testset) if gap.gap < 0]
        listed[testset] = ([gap for gap in gaps if gap.n >= _FEW] or gaps)[:_WORST]
    return {testset: gaps for testset, gaps in listed.items() if gaps}


def _gaps(headline: Headline, panel: Panel) -> list[SliceGap]:
    overall = headline.overall(panel.testset)
    by_values: dict[tuple[str, ...], list[Score]] = {}
    for model, scores in panel.scores.items():
        if model in overall:
            for values, score in scores.items():
                by_values.setdefault(values, []).append(score)
    return [
        SliceGap(
            testset=panel.testset,
            slice=scores[0].slice,
            text=slice_text(dict(zip(panel.columns, values, strict=True))),
            n=max(score.n for score in scores),
            models=len(scores),
            mean=sum(score.value for score in scores) / len(scores),
            gap=sum(score.value - overall[score.model].value for score in scores) / len(scores),
            lowest=min(scores, key=lambda score: (score.value, score.model)),
        )
        for values, scores in by_values.items()
    ]


def _change(headline: Headline, testset: str, found: Sequence[Change]) -> Finding:
    mean = sum(change.difference for change in found) / len(found)
    name = metric_name(headline.metric)
    start = f"{name[0].upper()}{name[1:]} {'falls' if mean < 0 else 'rises'}"
    where = f"from {headline.baseline} to {testset}"
    if len(found) == 1:
        ends = found[0]
        text = f"{start} {where} ({found[0].model})"
        if ends.low is not None and ends.high is not None:
            text += f", interval {points(ends.low)} to {points(ends.high)}"
        return Finding(number=points(mean), unit="points", text=f"{text}.")
    least = min(found, key=lambda c: (c.difference, c.model))
    most = max(found, key=lambda c: (c.difference, c.model))
    moved = sum(change.new_rank != change.old_rank for change in found)
    text = (
        f"{start} {where}, the mean of {plural(len(found), 'model')}: between "
        f"{points(least.difference)} ({least.model}) and {points(most.difference)} "
        f"({most.model}). {moved or 'None'} of them {'changes' if moved == 1 else 'change'} rank."
    )
    for fit in headline.fits:
        if (fit.testset, fit.baseline, fit.metric, fit.axes) == (
            testset,
            headline.baseline,
            headline.metric,
            "linear",
        ):
            text += (
                f" A point more on the baseline goes with {fit.slope:.2f} points more here "
                f"(R² {fit.r2:.3f})."
            )
            break
    return Finding(number=points(mean), unit="points", text=text)


def _best(headline: Headline, testset: str) -> Finding:
    scores = headline.overall(testset)
    best = min(scores.values(), key=lambda s: (-merit(s.metric, s.value), s.model))
    ends = range_text(best.metric, best.low, best.high)
    number, _, unit = value_text(best.metric, best.value).partition("\N{NO-BREAK SPACE}")
    others = "" if len(scores) == 1 else f", the best of {plural(len(scores), 'model')}"
    return Finding(
        number=number,
        unit=unit,
        text=f"{best.model}: {metric_name(best.metric)} on {testset}{others}, over "
        f"{count(best.n)} images{f'; interval {ends}' if ends else ''}.",
    )


def _explained(part: MistakePart) -> int:
    """How many mistakes of the leading model something explains."""
    names = [name for name in part.categories if name in EXPLAINED_CATEGORIES]
    return sum(part.cell(part.models[0], name, ALL) for name in names)


def _mistakes(part: MistakePart) -> Finding:
    model = part.models[0]
    total, explained = part.cell(model, ALL, ALL), _explained(part)
    major = part.cell(model, ALL, MAJOR)
    text = (
        f"Of the {plural(total, 'mistake')} of {model} on {part.testset}, {count(explained)} are "
        "fine-grained, or context or an unusual image explains them"
    )
    judged = part.get(model, basis=JUDGED)
    if judged is not None and judged.n:
        text += f"; people judged {count(judged.n)}, and {count(major)} to be Major"
    number, _, unit = value_text("top1", explained / total).partition("\N{NO-BREAK SPACE}")
    return Finding(number=number, unit=unit, text=f"{text}.")


def _hardest(headline: Headline, gap: SliceGap) -> Finding:
    mean = f" (mean of {plural(gap.models, 'model')})" if gap.models > 1 else ""
    return Finding(
        number=points(gap.gap),
        unit="points",
        text=f"The hardest slice of {gap.testset} is {gap.text}: "
        f"{value_text(headline.metric, gap.mean)} on {plural(gap.n, 'image')}, that far below the "
        f"whole set{mean}.",
    )
