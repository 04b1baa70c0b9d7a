"""What a person reads first: the scores, what may be stated of them, how many images it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from heldout.core.errors import NotApplicable, UserError
from heldout.core.records import Table, formatted
from heldout.measure.evaluation.resolve import Evaluation
from heldout.measure.score.measure import Measured
from heldout.measure.score.metrics import is_share, merit
from heldout.measure.score.records import Claim, Comparison, Record, Score
from heldout.measure.score.slices import (
    ALL,
    Partition,
    class_names,
    cluster_codes,
    parse_slice,
    partitions,
    slice_text,
)
from heldout.stats.bootstrap import MINIMUM_CLUSTERS
from heldout.stats.intervals import t_quantile
from heldout.stats.multiple import rank_intervals
from heldout.stats.slices import SliceGaps, slice_gaps, slice_means


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


# ---- what may be stated --------------------------------------------------------------------------


def claims(
    leading: Sequence[Measured], records: Sequence[Record], job: Evaluation
) -> Iterator[Claim]:
    """Everything that a report may state of the first metric of each set, and where it may not.

    All statements of a report hold together at the level asked for: it is shared evenly among the
    kinds that are possible here, and inside a kind among everything that was looked at, on all sets.
    ``records`` hold the comparisons of models, which are corrected among themselves already.
    """
    first = {(item.testset.name, item.metric.name) for item in leading}
    compared = [
        r
        for r in records
        if isinstance(r, Comparison) and (r.testset, r.metric) in first
        if r.slice == ALL and r.p is not None
    ]
    counted = [item for item in leading if item.metric.counted]
    base = next((item for item in counted if item.testset.name == job.baseline), None)
    both = [
        (_images(base, models, job), _images(item, models, job))
        for item in counted
        if base is not None and item is not base and item.metric.name == base.metric.name
        if (models := [model for model in item.models if model in base.models])
    ]
    possible: dict[Callable[..., Iterator[Claim]], Sequence[Any]] = {
        _differences: compared,
        _hard_slices: [item for item in counted if job.slices(item.testset)],
        _changes: both,
        _rank_changes: [pair for pair in both if len(pair[0][0].models) > 1],
    }
    possible = {make: given for make, given in possible.items() if given}
    error = (1.0 - job.request.level) / max(len(possible), 1)
    groups: dict[tuple[str, str], list[Claim]] = {}
    for make, given in possible.items():
        for claim in make(given, job, error):
            groups.setdefault((claim.kind, claim.testset), []).append(claim)
    images = {item.testset.name: len(item.first_row_of_image) for item in leading}
    for (kind, name), group in groups.items():
        stated = [claim for claim in group if claim.stated]
        if not stated and (len(group) > 1 or kind == "slice"):
            stated = [_nothing(group, images[name])]
        yield from stated or group


def _nothing(group: Sequence[Claim], n: int) -> Claim:
    """That none of some claims can be stated; which of them came nearest says nothing."""
    first = group[0]
    about = {name: getattr(first, name) for name in ("kind", "testset", "truth", "metric")}
    about |= {"family": first.family, "level": first.level, "stated": False, "told": 0, "n": n}
    least = min((claim.p for claim in group if claim.p is not None), default=None)
    return Claim(**about, other=None if first.kind == "difference" else first.other, p=least)


def _images(
    item: Measured, models: Sequence[str], job: Evaluation
) -> tuple[Measured, np.ndarray | None]:
    """A measurement of some models with every image once, and the clusters of the images."""
    once, cluster = item.of_models(models).one_row_per_image(), job.cluster(item.testset)
    return once, None if cluster is None else cluster_codes(once, cluster)


def _claim(kind: str, item: Measured, job: Evaluation, **fields: Any) -> Claim:
    subject = item.subject(None)
    about = {name: subject[name] for name in ("testset", "truth", "metric")}
    return Claim(kind=kind, level=job.request.level, **about, **fields)


def _differences(compared: Sequence[Comparison], job: Evaluation, error: float) -> Iterator[Claim]:
    level = job.request.level
    family = Counter(c.testset for c in compared)
    for c in compared:
        swapped = merit(c.metric, c.difference) < 0
        sign, p = -1.0 if swapped else 1.0, min(float(c.p or 0.0) * (1.0 - level) / error, 1.0)
        ends = sorted(sign * end for end in (c.low, c.high) if end is not None) or (None, None)
        yield Claim(
            kind="difference",
            **{name: getattr(c, name) for name in ("testset", "truth", "metric", "n")},
            stated=p <= 1.0 - level,
            model=c.other if swapped else c.model,
            other=c.model if swapped else c.other,
            family=family[c.testset],
            level=level,
            difference=sign * c.difference,
            low=ends[0],
            high=ends[-1],
            p=p,
        )


def _hard_slices(measured: Sequence[Measured], job: Evaluation, error: float) -> Iterator[Claim]:
    """The lowest slice of each entry and model of those that lie below all other images of the set."""
    looked: list[tuple[Measured, Partition, SliceGaps]] = []
    for item in measured:
        cluster = job.cluster(item.testset)
        clusters = None if cluster is None else cluster_codes(item, cluster)
        if clusters is None and len(item.first_row_of_image) < len(item):
            clusters = item.rows  # rows of one image were drawn together
        for part in partitions(item, job.slices(item.testset)):
            n = np.bincount(part.codes, minlength=len(part.names))
            part = part.of_slices(np.flatnonzero(n >= job.request.minimum_n))
            if part.names:
                where = part.positions, part.codes
                gaps = slice_gaps(item.values, *where, count=len(part.names), clusters=clusters)
                looked.append((item, part, gaps))
    family = sum(gaps.p.size for *_, gaps in looked)
    for item, part, gaps in looked:
        p = np.minimum(gaps.p * family * (1.0 - job.request.level) / error, 1.0)
        for m, model in enumerate(item.models):
            told = np.flatnonzero(p[:, m] <= 1.0 - job.request.level)
            at = int(told[gaps.inside[told, m].argmin()] if len(told) else p[:, m].argmin()), m
            low, high = gaps.limits(at, 1.0 - error / family)
            name = part.names[at[0]]
            yield _claim(
                "slice",
                item,
                job,
                stated=bool(len(told)),
                model=model,
                slice=name,
                where=slice_text(parse_slice(name), class_names(item.space)),
                n=int(gaps.n[at[0]]),
                family=family,
                difference=float(gaps.inside[at] - gaps.outside[at]),
                low=low,
                high=high,
                p=float(p[at]),
                told=len(told),
            )


_Pairs = Sequence[tuple[tuple[Measured, np.ndarray | None], tuple[Measured, np.ndarray | None]]]


def _changes(pairs: _Pairs, job: Evaluation, error: float) -> Iterator[Claim]:
    """Scores that differ from the baseline's, and the mean of them with the mean of their limits.

    The two sets are taken to share no images.
    """
    from scipy.special import stdtr

    family = sum(len(old.models) for (old, _), _ in pairs)
    for pair in pairs:
        (old, _), (new, _) = pair
        means = [
            slice_means(
                item.values, np.zeros(len(item), dtype=np.int64), count=1, clusters=clusters
            ).contrast([1.0])
            for item, clusters in pair
        ]
        free = float(min(found.degrees.min() for found in means))
        if free < MINIMUM_CLUSTERS - 1:
            continue
        gap, spread = means[1].value - means[0].value, np.hypot(means[0].error, means[1].error)
        half = t_quantile(1.0 - error / family, free) * spread
        p = 2.0 * stdtr(free, -np.abs(gap) / np.maximum(spread, 1e-12)) * (spread > 0) + (
            spread == 0
        )
        p = np.minimum(p * family * (1.0 - job.request.level) / error, 1.0)
        about = {"other": old.testset.name, "n": len(new), "family": family}
        each: list[Any] = list(zip(new.models, gap, half, p, strict=True))
        if len(each) > 1:
            each = [(None, gap.mean(), half.mean(), None), *each]
        for model, middle, wide, chance in each:
            yield _claim(
                "change",
                new,
                job,
                **about,
                stated=bool(abs(middle) > wide),
                model=model,
                difference=float(middle),
                low=float(middle - wide),
                high=float(middle + wide),
                p=None if chance is None else float(chance),
            )


def _rank_changes(pairs: _Pairs, job: Evaluation, error: float) -> Iterator[Claim]:
    """Models whose rank intervals on the two sets have no rank in common."""
    for pair in pairs:
        (old, _), (new, _) = pair
        try:
            before, after = (
                rank_intervals(
                    item.values,
                    item.models,
                    rng=np.random.default_rng(job.request.seed),
                    level=1.0 - error / (2 * len(pairs)),
                    clusters=clusters,
                )
                for item, clusters in pair
            )
        except NotApplicable:  # too few clusters; the scores say so
            continue
        for m, model in enumerate(new.models):
            low, high = int(before.low[m] - after.high[m]), int(before.high[m] - after.low[m])
            yield _claim(
                "rank",
                new,
                job,
                stated=not low <= 0 <= high,
                model=model,
                other=old.testset.name,
                n=len(new),
                family=len(new.models),
                difference=float(before.rank[m] - after.rank[m]),
                low=float(low),
                high=float(high),
            )


# ---- in words ------------------------------------------------------------------------------------

_STATED = {
    "difference": "{model} over {other} by {metric} on {testset}",
    "slice": "{model} on the {n:,} images of {testset} with {where}, {metric} less that on its other "
    "images",
    "change": "{model}, {metric} on {testset} less that on {other}",
    "rank": "{model} from {other} to {testset}",
}
_NONE = {
    "difference": "{both} be told apart by {metric} on {testset}",
    "slice": "no slice of {testset} can be told from its other images",
    "change": "no {metric} on {testset} can be told from that on {other}",
    "rank": "no model is certain to change rank from {other} to {testset}",
}
_LOOKED = {
    "difference": "pairs of models",
    "slice": "slices and models",
    "change": "scores",
    "rank": "models",
}
_MOST_TIES = 4


class Statement(NamedTuple):
    """The number that leads, its unit, and the rest of the sentence."""

    number: str
    unit: str
    text: str


def statements(records: Sequence[Record]) -> Iterator[Statement]:
    """What the claims among some records say, a sentence for each kind and test set."""
    groups: dict[tuple[str, str], list[Claim]] = {}
    for record in records:
        if isinstance(record, Claim):
            groups.setdefault((record.kind, record.testset), []).append(record)
    for (kind, _), found in groups.items():
        mean = [claim for claim in found if claim.model is None]
        first = (mean or sorted(found, key=lambda c: -abs(c.difference or 0.0)))[0]
        both = f"{first.model} and {first.other} cannot" if first.model else "no two models can"
        known = vars(first) | {"model": first.model or "mean of all models", "both": both}
        share = is_share(first.metric)
        form = "+.0f" if kind == "rank" else "+%1" if share else "+.3f"
        gap, low, high = (
            formatted(end or 0.0, form).replace("-", "−")
            for end in (first.difference, first.low, first.high)
        )
        text = (_STATED if first.stated else _NONE)[kind].format_map(known)
        if first.difference is not None:
            text += f"; interval {low} to {high}" if first.stated else f": {gap} ({low} to {high})"
        if first.p is not None:
            text += ", p < 0.001" if first.p < 0.001 else f", p {first.p:.3f}"
        if first.family > 1:
            told = sum(claim.told for claim in found if claim.model is not None)
            text += f"; stated for {told:,} of " if first.stated else "; "
            text += f"{first.family:,} {_LOOKED[kind]}"
        if kind == "difference" and first.stated and first.family > 1:
            text += _ties(found, records)
        unit = "ranks" if kind == "rank" else "points" if share else ""
        yield Statement(*((gap, unit) if first.stated else ("none", "")), text)


def _ties(found: Sequence[Claim], records: Sequence[Record]) -> str:
    """Which models the best cannot be told from."""
    first = found[0]
    scores = {
        r.model: merit(r.metric, r.value)
        for r in records
        if isinstance(r, Score) and (r.testset, r.metric) == (first.testset, first.metric)
        if (r.slice, r.statistic) == (ALL, "value")
    }
    best, *others = sorted(scores, key=lambda model: (-scores[model], model))
    behind = {claim.other for claim in found if claim.model == best}
    ties = [model for model in others if model not in behind]
    if not ties:
        return f". {best} is the best"
    more = f" and {len(ties) - _MOST_TIES} more" if len(ties) > _MOST_TIES else ""
    return f". {best}, first as observed, cannot be told from {', '.join(ties[:_MOST_TIES])}{more}"


def headline_lines(records: Sequence[Record]) -> Iterator[str]:
    """What may be stated, and where the slices are."""
    for number, unit, text in statements(records):
        yield text if number == "none" else f"{number} {unit}".rstrip() + f": {text}"
    slices = {(r.testset, r.slice) for r in records if isinstance(r, Score) and r.slice != ALL}
    if slices:
        yield f"{len(slices):,} slices: --full lists them, and a report draws them"


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
