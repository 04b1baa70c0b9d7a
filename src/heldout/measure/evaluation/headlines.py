"""What a person reads first: the scores, what may be stated of them, how many images it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from heldout.stats.intervals import normal_quantile, t_quantile
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


def claims(leading: Sequence[Measured], records: Sequence[Record], job: Evaluation) -> list[Claim]:
    """Everything that a report may state of the first metric of each set, and where it may not.

    ``records`` hold the comparisons of models.

    All statements of a report hold together at the level asked for: it is shared evenly among the
    kinds that are possible here, and inside a kind among everything that was looked at, on all sets.
    """
    by_name = {item.testset.name: item for item in leading}
    base = by_name.get(str(job.baseline))
    pairs = [
        (_images(base, shared, job), _images(item, shared, job))
        for item in leading
        if base is not None and item is not base and item.metric.name == base.metric.name
        if item.metric.counted and (shared := [m for m in item.models if m in base.models])
    ]
    makers: list[Callable[[float], Iterator[Claim]]] = []
    whole = [r for r in records if isinstance(r, Comparison) and r.slice == ALL and r.p is not None]
    if whole:
        makers.append(lambda share: _differences(by_name, whole, share, job.request.level))
    sliced = [i for i in leading if i.metric.counted and job.slices(i.testset)]
    if sliced:
        makers.append(lambda share: _hard_slices(sliced, job, share))
    if pairs:
        makers.append(lambda share: _changes(pairs, share, job.request.level))
    if any(len(old.measured.models) > 1 for old, _ in pairs):
        makers.append(lambda share: _rank_changes(pairs, share, job.request.level))
    return [claim for make in makers for claim in make(1.0 / len(makers))]


@dataclass(frozen=True, eq=False)
class _Images:
    """A measurement with every image once, and the clusters of the images."""

    measured: Measured
    clusters: np.ndarray | None


def _images(item: Measured, models: Sequence[str], job: Evaluation) -> _Images:
    once, cluster = item.of_models(models).one_row_per_image(), job.cluster(item.testset)
    return _Images(once, None if cluster is None else cluster_codes(once, cluster))


def _subject(item: Measured) -> dict[str, Any]:
    return {"testset": item.testset.name, "truth": item.truth, "metric": item.metric.name}


def _differences(
    measured: Mapping[str, Measured], comparisons: Sequence[Comparison], share: float, level: float
) -> Iterator[Claim]:
    """Models told apart; their comparisons are corrected among themselves already."""
    wider = normal_quantile(1.0 - (1.0 - level) * share) / normal_quantile(level)
    for name, item in measured.items():
        found = [c for c in comparisons if (c.testset, c.metric) == (name, item.metric.name)]
        if not found:
            continue
        made = []
        for c in found:
            sign = -1.0 if merit(c.metric, c.difference) < 0 else 1.0
            gap, limits = sign * c.difference, (None, None)
            if c.low is not None and c.high is not None:
                ends = (c.difference + wider * (end - c.difference) for end in (c.low, c.high))
                low, high = sorted(sign * end for end in ends)
                limits = low, high
            p = min(float(c.p or 0.0) / share, 1.0)
            clear = limits[0] is not None and not limits[0] <= 0.0 <= limits[1]
            made.append(
                Claim(
                    kind="difference",
                    **_subject(item),
                    stated=p <= 1.0 - level and clear,
                    model=c.model if sign > 0 else c.other,
                    other=c.other if sign > 0 else c.model,
                    n=c.n,
                    family=len(found),
                    level=level,
                    difference=gap,
                    low=limits[0],
                    high=limits[1],
                    p=p,
                )
            )
        yield from _stated(made)


def _stated(made: Sequence[Claim]) -> Iterator[Claim]:
    """The claims that can be stated; else one that says that none can, of the least p."""
    told = [claim for claim in made if claim.stated]
    yield from told
    if made and not told:
        least = min(made, key=lambda claim: 1.0 if claim.p is None else claim.p)
        if len(made) > 1 or least.kind == "slice":  # that one was least says nothing of it
            none = dict.fromkeys(("model", "difference", "low", "high"))
            other = None if least.kind == "difference" else least.other
            least = replace(least, slice=ALL, where="", other=other, told=0, **none)
        yield least


def _hard_slices(measured: Sequence[Measured], job: Evaluation, share: float) -> Iterator[Claim]:
    """Slices on which a model is right less often than on all other images of the set."""
    looked: list[tuple[Measured, str, Partition, SliceGaps]] = []
    for item in measured:
        cluster = job.cluster(item.testset)
        clusters = None if cluster is None else cluster_codes(item, cluster)
        if clusters is None and len(item.first_row_of_image) < len(item):
            clusters = item.rows  # rows of one image were drawn together
        by = job.slices(item.testset)
        for entry, part in zip(by, partitions(item, by), strict=True):
            large = np.bincount(part.codes, minlength=len(part.names)) >= job.request.minimum_n
            part = part.of_slices(np.flatnonzero(large))
            if part.names:
                rows, count = part.positions, len(part.names)
                gaps = slice_gaps(item.values, rows, part.codes, count=count, clusters=clusters)
                looked.append((item, entry, part, gaps))
    family = sum(gaps.p.size for *_, gaps in looked)
    level = job.request.level
    for item in measured:
        classes, made = class_names(item.space), []
        for part, gaps in ((part, gaps) for one, _, part, gaps in looked if one is item):
            corrected = np.minimum(gaps.p * family / share, 1.0)
            for m, model in enumerate(item.models):
                told = np.flatnonzero(corrected[:, m] <= 1.0 - level)
                low = told[gaps.inside[told, m].argmin()] if len(told) else corrected[:, m].argmin()
                at, apart = (int(low), m), 1.0 - (1.0 - level) * share / family
                limits = gaps.limits(at, apart) if len(told) else (None, None)
                made.append(
                    Claim(
                        kind="slice",
                        **_subject(item),
                        stated=bool(len(told)),
                        model=model,
                        slice=part.names[at[0]],
                        where=slice_text(parse_slice(part.names[at[0]]), classes),
                        n=int(gaps.n[at[0]]),
                        family=family,
                        level=level,
                        difference=float(gaps.inside[at] - gaps.outside[at]),
                        low=limits[0],
                        high=limits[1],
                        p=float(corrected[at]),
                        told=len(told),
                    )
                )
        yield from _stated(made)


def _changes(
    pairs: Sequence[tuple[_Images, _Images]], share: float, level: float
) -> Iterator[Claim]:
    """Scores that differ from the baseline's; the mean over models has the mean of their limits.

    The two sets are taken to share no images.
    """
    from scipy.special import stdtr

    family = sum(len(old.measured.models) for old, _ in pairs)
    for old, new in pairs:
        means, variances, degrees = zip(*(_mean(one) for one in (old, new)), strict=True)
        gap, error = means[1] - means[0], np.sqrt(variances[0] + variances[1])
        free = float(min(degrees))
        if free < MINIMUM_CLUSTERS - 1:
            continue
        half = t_quantile(1.0 - (1.0 - level) * share / family, free) * error
        with np.errstate(divide="ignore", invalid="ignore"):
            tail = 2.0 * stdtr(free, -np.abs(gap) / error)
        p = np.minimum(np.where(error > 0, tail, 1.0) * family / share, 1.0)
        fields: dict[str, Any] = _subject(new.measured) | {
            "kind": "change",
            "other": old.measured.testset.name,
            "n": len(new.measured),
            "family": family,
            "level": level,
        }
        made = [
            Claim(
                **fields,
                stated=bool(p[m] <= 1.0 - level),
                model=model,
                difference=float(gap[m]),
                low=float(gap[m] - half[m]),
                high=float(gap[m] + half[m]),
                p=float(p[m]),
            )
            for m, model in enumerate(new.measured.models)
        ]
        if len(made) > 1:
            middle, wide = float(gap.mean()), float(half.mean())
            ends = {"low": middle - wide, "high": middle + wide}
            clear = bool(abs(middle) > wide)
            made.insert(0, Claim(**fields, stated=clear, difference=middle, **ends))
        yield from _stated(made)


def _mean(images: _Images) -> tuple[np.ndarray, np.ndarray, float]:
    """Each model's mean with its variance, and the degrees of freedom of that."""
    values, none = images.measured.values, np.zeros(len(images.measured), dtype=np.int64)
    found = slice_means(values, none, count=1, clusters=images.clusters).contrast([1.0])
    return found.value, np.square(found.error), float(found.degrees.min())


def _rank_changes(
    pairs: Sequence[tuple[_Images, _Images]], share: float, level: float
) -> Iterator[Claim]:
    """Models whose rank intervals on the two sets have no rank in common."""
    several = [(old, new) for old, new in pairs if len(old.measured.models) > 1]
    apart = 1.0 - (1.0 - level) * share / (2 * len(several))
    for old, new in several:
        models = new.measured.models
        try:
            before, after = (
                rank_intervals(one.measured.values, models, level=apart, clusters=one.clusters)
                for one in (old, new)
            )
        except NotApplicable:  # too few clusters; the scores say so
            continue
        yield from _stated(
            [
                Claim(
                    kind="rank",
                    **_subject(new.measured),
                    stated=bool(before.low[m] > after.high[m] or after.low[m] > before.high[m]),
                    model=model,
                    other=old.measured.testset.name,
                    n=len(new.measured),
                    family=len(models),
                    level=level,
                    difference=float(before.rank[m] - after.rank[m]),
                    low=float(before.low[m] - after.high[m]),
                    high=float(before.high[m] - after.low[m]),
                )
                for m, model in enumerate(models)
            ]
        )


# ---- in words ------------------------------------------------------------------------------------


class Statement(NamedTuple):
    """The number that leads, its unit, and the rest of the sentence."""

    number: str
    unit: str
    text: str

    def __str__(self) -> str:
        return f"{self.number} {self.unit}".strip() + f": {self.text}"


NONE = "none"
"""The number of a statement that says that nothing can be stated."""
_NAMED = 4


def statements(records: Sequence[Record]) -> list[Statement]:
    """What the claims among some records say, a sentence for each test set and kind."""
    groups: dict[tuple[str, str], list[Claim]] = {}
    for record in records:
        if isinstance(record, Claim):
            groups.setdefault((record.testset, record.kind), []).append(record)
    words = {"difference": _of_models, "slice": _of_slices, "change": _of_change, "rank": _of_ranks}
    return [words[kind](found, records) for (_, kind), found in groups.items()]


def _evidence(claim: Claim) -> str:
    """The limits and p of a claim."""
    ends = [_number(claim, end) for end in (claim.low, claim.high) if end is not None]
    parts = ([f"interval {ends[0]} to {ends[1]}"] if ends else []) + (
        [] if claim.p is None else ["p < 0.001" if claim.p < 0.001 else f"p {claim.p:.3f}"]
    )
    return ", ".join(parts)


def _number(claim: Claim, value: float | None) -> str:
    form = "+.0f" if claim.kind == "rank" else "+%1" if is_share(claim.metric) else "+.3f"
    return formatted(value or 0.0, form).replace("-", "−")


def _leads(claim: Claim) -> tuple[str, str]:
    return _number(claim, claim.difference), "points" if is_share(claim.metric) else ""


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _of_models(found: Sequence[Claim], records: Sequence[Record]) -> Statement:
    first = found[0]
    about = f"by {first.metric} on {first.testset}"
    if not first.stated:
        text = f"no two of the models can be told apart {about}: {first.family} pairs compared, "
        if first.model is not None:
            text = f"{first.model} and {first.other} cannot be told apart {about}: difference "
            text += f"{_leads(first)[0]}, "
        return Statement(NONE, "", text + _evidence(first))
    if first.family == 1:
        text = f"{first.model} over {first.other} {about}; {_evidence(first)}"
        return Statement(*_leads(first), text)
    scores = {
        r.model: merit(r.metric, r.value)
        for r in records
        if isinstance(r, Score) and (r.testset, r.metric) == (first.testset, first.metric)
        if (r.slice, r.statistic) == (ALL, "value")
    }
    best, *others = sorted(scores, key=lambda model: (-scores[model], model))
    behind = {claim.other for claim in found if claim.model == best}
    ties = [model for model in others if model not in behind]
    text = f"told apart {about}; {best} is better than {len(behind)} of {len(others)} others"
    if ties:
        text += f" and cannot be told from {_listed(ties)}"
    return Statement(f"{len(found):,} of {first.family:,}", "pairs of models", text)


def _of_slices(found: Sequence[Claim], records: Sequence[Record]) -> Statement:
    first = min(found, key=lambda claim: claim.difference or 0.0)
    looked = f"{first.family:,} looked at, counted for every model"
    if not first.stated:
        text = f"no slice of {first.testset} can be told from its other images: {looked}"
        return Statement(NONE, "", f"{text}, {_evidence(first)}")
    told = sum(claim.told for claim in found)
    text = (
        f"{first.model}, {first.metric} on the {first.n:,} images of {first.testset} with {first.where}, "
        f"less that on its other images; {_evidence(first)}; the lowest of {told:,} slices that can be "
        f"told from the rest, of {looked}"
    )
    return Statement(*_leads(first), text)


def _of_change(found: Sequence[Claim], records: Sequence[Record]) -> Statement:
    first = found[0]
    about = f"{first.metric} on {first.testset} less that on {first.other}"
    if not first.stated:
        shown = "" if first.difference is None else f"{_leads(first)[0]}, "
        text = f"no change can be told from chance in {about}: {shown}{_evidence(first)}"
        return Statement(NONE, "", text)
    if first.model is not None and first.family == 1:
        return Statement(*_leads(first), f"{first.model}, {about}; {_evidence(first)}")
    gaps = [claim.difference or 0.0 for claim in found if claim.model is not None]
    fell = sum(gap < 0 for gap in gaps)
    text = f"of the models, {fell} are certain to lie lower and {len(gaps) - fell} higher"
    if first.model is None:
        return Statement(*_leads(first), f"mean of all models, {about}; {_evidence(first)}; {text}")
    return Statement(f"{len(gaps)}", "models", f"changed, {about}; {text}")


def _of_ranks(found: Sequence[Claim], records: Sequence[Record]) -> Statement:
    first = found[0]
    between = f"from {first.other} to {first.testset}"
    if not first.stated:
        text = f"no model is certain to change rank {between}: the intervals of all {first.family} overlap"
        return Statement(NONE, "", text)
    moved = [f"{claim.model} ({_number(claim, claim.difference)})" for claim in found]
    text = f"certain to change rank {between}: {_listed(moved)}"
    return Statement(f"{len(found)} of {first.family}", "models", text)


def headline_lines(records: Sequence[Record]) -> Iterator[str]:
    """What may be stated, and where the slices are."""
    yield from map(str, statements(records))
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
