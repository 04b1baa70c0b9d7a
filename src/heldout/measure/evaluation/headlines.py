"""What a person reads first: the scores, the worst slice, what got worse, how many images it takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from heldout.core.errors import UserError
from heldout.core.records import Table
from heldout.measure.score.measure import Measured
from heldout.measure.score.metrics import is_share, merit
from heldout.measure.score.records import Comparison, Record, Score
from heldout.measure.score.slices import ALL


@dataclass(frozen=True, kw_only=True)
class Headline:
    """A score on a whole test set: of one set a column a metric, of several a column a set."""

    record: ClassVar[str] = "headline"
    table: ClassVar[Table] = Table("{title}", ("model", "n:,", "shown"), across="column")
    title: str
    model: str
    n: int | None
    column: str
    shown: str


def headlines(records: Sequence[Record]) -> list[Headline]:
    """The scores on whole sets, best model first; of several sets only the leading metric."""
    scores = [
        r for r in records if isinstance(r, Score) and (r.slice, r.statistic) == (ALL, "value")
    ]
    if not scores:
        return []
    sets = list(dict.fromkeys(score.testset for score in scores))
    leading = scores[0].metric
    first = {s.model: merit(leading, s.value) for s in reversed(scores) if s.metric == leading}
    best = sorted(scores, key=lambda score: -first.get(score.model, -np.inf))
    unit = ", percent" if is_share(leading) else ""
    if len(sets) == 1:
        title = f"{sets[0]}, truth {scores[0].truth}{unit}"
        return [
            Headline(title=title, model=s.model, n=s.n, column=s.metric, shown=s.shown)
            for s in best
        ]
    order = {name: place for place, name in enumerate(sets)}
    return [
        Headline(title=f"{leading}{unit}", model=s.model, n=None, column=s.testset, shown=s.shown)
        for s in sorted(best, key=lambda s: (-first[s.model], order[s.testset]))
        if s.metric == leading
    ]


def headline_lines(records: Sequence[Record], baseline: str | None) -> Iterator[str]:
    """The worst slice with its n, and the largest drop from the baseline."""
    scores = [record for record in records if isinstance(record, Score)]
    worst = [score for score in scores if score.statistic == "worst"]
    if worst:
        low = min(worst, key=lambda score: merit(score.metric, score.value))
        yield (
            f"worst slice: {low.shown_slice} of {low.testset}: {low.model} has {low.metric} {low.shown} "
            f"on {low.n:,} images"
        )
    slices = {(score.testset, score.slice) for score in scores if score.slice != ALL}
    if slices:
        listed = f"{len(slices):,} slices: --full lists them, and a report draws them"
        yield listed if worst else f"{listed}; none has images enough to be called the worst"
    whole = {
        (s.model, s.testset): s
        for s in reversed(scores)
        if (s.slice, s.statistic, s.metric) == (ALL, "value", scores[0].metric)
    }
    drops = [
        (merit(new.metric, new.value) - merit(new.metric, whole[model, baseline].value), new)
        for (model, testset), new in whole.items()
        if baseline is not None and testset != baseline and (model, baseline) in whole
    ]
    if drops:
        new = min(drops, key=lambda item: item[0])[1]
        fell = sum(change < 0 for change, _ in drops)
        old = whole[new.model, str(baseline)]
        yield (
            f"against {baseline}: {fell} of {len(drops)} scores fell; most: {new.model} on {new.testset}, "
            f"{new.metric} {old.shown} to {new.shown}"
        )


def planning_lines(
    comparisons: Sequence[Comparison], measured: Sequence[Measured], level: float
) -> Iterator[str]:
    """How many images would tell two models apart that these images do not."""
    from heldout.stats.planning import images_for_difference

    found = {item.testset.name: item for item in measured if item.counted}
    for record in comparisons:
        item = found.get(record.testset)
        unsure = record.p is not None and record.p > 1 - level and record.slice == ALL
        if item is None or not unsure or "McNemar" not in (record.test or ""):
            continue
        a, b = (item.column(name).astype(bool) for name in (record.model, record.other))
        disagreement = float((a != b).mean())
        try:
            needed = images_for_difference(
                abs(record.difference), disagreement=disagreement, level=level
            )
        except UserError:  # equal scores, or a difference that no number of images shows
            continue
        yield (
            f"{record.model} and {record.other} are not told apart on {record.testset}: a difference of "
            f"{100 * abs(record.difference):.2f} points would take about {needed:,} images (power 80 %)"
        )
