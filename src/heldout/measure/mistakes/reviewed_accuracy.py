"""Accuracy after review: intervals that allow for unreviewed predictions, and revised truths."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from heldout.core.errors import NotApplicable
from heldout.core.files import canonical_json, sha256_text
from heldout.core.records import Count, Table, counts
from heldout.data.judgements.consensus import current_answers
from heldout.data.judgements.judgement import Judgement
from heldout.data.testset import TestSet
from heldout.data.testset.hashing import hash_table
from heldout.data.testset.tables import truth_table
from heldout.measure.mistakes.panel import Ruling
from heldout.measure.mistakes.review_queue import OpenPairs
from heldout.measure.mistakes.verdicts import RIGHT, Key
from heldout.measure.score.records import Score
from heldout.stats.bootstrap import bootstrap_mean, equal_weights
from heldout.stats.intervals import Interval, interval_from_error, t_quantile, wilson
from heldout.stats.prediction_powered import Powered, drawing_chances, prediction_powered

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class ReviewedAccuracy:
    """What is known of one model's accuracy once a panel's rulings are laid over a truth.

    ``n``            images that count
    ``lower``, ``upper``  if everything open is wrong, or right
    ``open``         predictions that nobody has ruled on; ``answered`` those that were open and have
                     a ruling, ``drawn`` those of them that the estimate generalises from
    ``overruled``    predictions on which the panel says otherwise than the truth
    ``value``        the estimate; None where nothing was drawn and something is open
    ``review``       where the accuracy on these very images lies, once all is reviewed
    ``interval``     the same for images like these: the images are a sample as well
    ``reason``       why there is no estimate
    """

    record: ClassVar[str] = "reviewed_accuracy"
    table: ClassVar[Table] = Table(
        "{testset}, truth {truth}: accuracy in percent",
        (
            "model", "n:,", "open:,", "answered:,", "at least=lower:%3", "at most=upper:%3",
            "estimate=value:%3[]", "once all is reviewed=reviewed",
        ),
    )  # fmt: skip
    testset: str
    truth: str
    model: str
    n: int
    lower: float
    upper: float
    open: int
    answered: int
    drawn: int
    overruled: int
    value: float | None
    review: Interval | None
    interval: Interval | None
    reason: str | None = None

    @property
    def low(self) -> float | None:
        """The lower limit for images like these."""
        return None if self.interval is None else float(self.interval.low)

    @property
    def high(self) -> float | None:
        """The upper limit for images like these."""
        return None if self.interval is None else float(self.interval.high)

    @property
    def reviewed(self) -> str:
        """Where the accuracy on these very images lies, in percent."""
        known = self.review
        return "" if known is None else f"{100 * known.low:.3f} to {100 * known.high:.3f}"


def reviewed_accuracies(
    pairs: OpenPairs,
    rulings: Mapping[Key, Ruling],
    *,
    level: float = 0.95,
    seed: int = 0,
    replicates: int = 1000,
) -> tuple[ReviewedAccuracy, ...]:
    """The accuracy of every model, with rulings laid over the truth.

    A ruling holds for its (image, prediction) whatever the truth says of it; unclear counts as
    right. The sample that a model's estimate generalises from is the head of the queue, up to the
    first of the model's own pairs that has no ruling.
    """
    answers, drawn = pairs.answers(rulings)
    # Answers that came another way are known whatever the order; the queue is about the others.
    asked = drawn | np.isnan(answers)
    overruled = _overruled(pairs, rulings)
    found = []
    for m, model in enumerate(pairs.verdicts.models):
        mine = pairs.made[:, m]
        right = (pairs.verdicts.states[:, m] == RIGHT).astype(np.float64)
        otherwise = ~np.isnan(overruled[:, m])
        right[otherwise] = overruled[otherwise, m]
        base = float(pairs.weights @ right)
        share = pairs.weights[pairs.rows]
        decided = mine & ~np.isnan(answers)
        lower = base + float(share[decided] @ answers[decided])
        rest = mine & np.isnan(answers)
        upper = lower + float(share[rest].sum())
        threshold = float(pairs.keys[rest].min()) if rest.any() else np.inf
        sample = mine & drawn & (pairs.keys < threshold)
        chances = drawing_chances(pairs.sizes, threshold)
        powered, reason = _powered(pairs, mine & asked, sample, answers, chances, level)
        value, review, interval = None, None, None
        if powered is not None or not rest.any():
            expected = right.copy()
            expected[pairs.rows[decided]] = answers[decided]
            doubt = np.zeros(len(right))
            outside = base + float(share[decided & ~asked] @ answers[decided & ~asked])
            if powered is None:
                value, review = lower, Interval(lower, lower, "complete", level)
            else:
                mass = float(share[mine & asked].sum())
                value, review = _scaled(powered, outside, mass, lower, upper)
                filled = np.zeros(len(pairs))
                filled[mine & asked] = powered.fitted
                expected[pairs.rows[rest]] = filled[rest]
                doubt[pairs.rows[rest]] = filled[rest] * (1.0 - filled[rest])
            images = _image_interval(pairs, expected, doubt, value, level, seed, replicates)
            interval = _together(value, review, images, level)
        found.append(
            ReviewedAccuracy(
                testset=pairs.verdicts.testset.name,
                truth=pairs.verdicts.truth.name,
                model=model,
                n=len(pairs.verdicts),
                lower=lower,
                upper=upper,
                open=int(rest.sum()),
                answered=int(decided.sum()),
                drawn=int(sample.sum()),
                overruled=int(otherwise.sum()),
                value=value,
                review=review,
                interval=interval,
                reason=reason,
            )
        )
    return tuple(found)


def _overruled(pairs: OpenPairs, rulings: Mapping[Key, Ruling]) -> np.ndarray:
    """Where a panel overrules a truth's lists: 1 or 0 as it says, NaN elsewhere; (rows, models)."""
    verdicts, space = pairs.verdicts, pairs.verdicts.truth.space
    found = np.full(verdicts.states.shape, np.nan)
    place: dict[str, list[int]] = {}
    for row, image in enumerate(verdicts.image_ids):
        place.setdefault(image, []).append(row)
    still_open = set(pairs.pairs)
    for key, ruling in rulings.items():
        if key in still_open or key[1] not in space:
            continue
        rows = place.get(key[0], [])
        says = verdicts.guesses[rows] == space.index(key[1])
        other = says & (~verdicts.wrong[rows] != ruling.accepted)
        found[rows] = np.where(other, float(ruling.accepted), found[rows])
    return found


def _powered(
    pairs: OpenPairs,
    mine: np.ndarray,
    sample: np.ndarray,
    answers: np.ndarray,
    chances: np.ndarray,
    level: float,
) -> tuple[Powered | None, str | None]:
    """The share of a model's asked pairs that is acceptable, or why it cannot be told."""
    if not mine.any():
        return None, None
    observed = np.where(sample, answers, np.nan)[mine]
    if np.isnan(observed).all():
        return None, "no answer to the head of the queue: heldout mistakes queue writes it"
    try:
        found = prediction_powered(
            observed,
            pairs.odds[mine],
            chances[mine],
            weights=pairs.weights[pairs.rows[mine]],
            level=level,
        )
    except NotApplicable as refused:
        return None, refused.message
    return found, None


def _scaled(
    powered: Powered, base: float, mass: float, lower: float, upper: float
) -> tuple[float, Interval]:
    """From a share of the asked pairs to an accuracy, inside what is possible."""

    def accuracy(share: float) -> float:
        return min(max(base + mass * share, lower), upper)

    interval = powered.interval
    value = accuracy(powered.value)
    low, high = accuracy(float(interval.low)), accuracy(float(interval.high))
    return value, Interval(min(low, value), max(high, value), interval.method, interval.level)


def _image_interval(
    pairs: OpenPairs,
    expected: np.ndarray,
    doubt: np.ndarray,
    value: float,
    level: float,
    seed: int,
    replicates: int,
) -> Interval:
    """What the choice of images adds, were everything reviewed.

    ``expected`` is 1, 0, or the chance of an open one to be right, whose own spread is ``doubt``.
    """
    n = len(expected)
    if np.ptp(pairs.weights) == 0:
        return wilson(min(value * n, n), n, level=level)
    made = bootstrap_mean(
        expected,
        rng=np.random.default_rng([seed, 1]),
        replicates=replicates,
        level=level,
        strata=pairs.verdicts.truth.labels,
        weights=equal_weights(pairs.verdicts.truth.labels),
    )
    error = float(np.sqrt(made.standard_error**2 + np.square(pairs.weights) @ doubt))
    return interval_from_error(
        value,
        error,
        quantile=t_quantile(level, made.degrees_of_freedom),
        level=level,
        bounds=(0.0, 1.0),
        units=made.units,
    )


def _together(value: float, review: Interval, images: Interval, level: float) -> Interval:
    """Two independent errors, each with limits of its own, as one interval (Zou and Donner 2008)."""
    low = value - float(np.hypot(value - review.low, max(value - images.low, 0.0)))
    high = value + float(np.hypot(review.high - value, max(images.high - value, 0.0)))
    method = images.method if review.width == 0 else f"{images.method}+{review.method}"
    return Interval(max(low, 0.0), min(high, 1.0), method, level)


def accuracy_records(
    pairs: OpenPairs, found: tuple[ReviewedAccuracy, ...], *, metric: str, level: float = 0.95
) -> list[Score | Count]:
    """Score and count records of accuracies under ``metric``.

    ``<metric>_lower`` and ``<metric>_upper`` are bounds. ``<metric>_estimate`` has the interval for
    images like these, ``<metric>_review`` the same value with the interval for these very images.
    """
    verdicts = pairs.verdicts
    records: list[Score | Count] = []
    for item, predictions_hash in zip(found, verdicts.hashes, strict=True):
        scores: list[tuple[str, float, Interval | None]]
        scores = [("lower", item.lower, None), ("upper", item.upper, None)]
        if item.value is not None:
            scores += [("estimate", item.value, item.interval), ("review", item.value, item.review)]
        records += [
            Score(
                model=item.model,
                testset=verdicts.testset.name,
                truth=verdicts.truth.name,
                metric=f"{metric}_{name}",
                n=item.n,
                value=value,
                low=None if interval is None else float(interval.low),
                high=None if interval is None else float(interval.high),
                interval=None if interval is None else interval.method,
                level=None if interval is None else level,
                label_map=verdicts.label_map,
                testset_hash=verdicts.testset.card.content_hash,
                predictions_hash=predictions_hash,
                reason="a bound, not an estimate" if interval is None else None,
            )
            for name, value, interval in scores
        ]
        numbers = {
            f"n_{name}": getattr(item, name) for name in ("open", "answered", "drawn", "overruled")
        }
        records += counts(numbers, model=item.model, testset=verdicts.testset.name)
    return records


LISTS = ("correct", "unclear", "wrong")


@dataclass(frozen=True, eq=False)
class TruthRevision:
    """A truth with rulings laid over it.

    ``provenance``  for the card: kind, the truth that it revises with its hash, rule, people, the
                    hash of the rulings, and counts
    ``notes``       what a person should know
    """

    table: pa.Table
    provenance: dict[str, Any]
    notes: tuple[str, ...]


def revise_truth(
    testset: TestSet,
    base: str,
    rulings: Mapping[Key, Ruling],
    *,
    rule: str,
    people: int = 1,
    judgements: Iterable[Judgement] = (),
) -> TruthRevision:
    """The truth ``base`` of a test set with every ruling on its images applied.

    A ruling moves its label into the list that it names and out of the others. An image of which
    no label is acceptable any more is problematic, and so is one that a ``review`` among
    ``judgements`` calls so. Where nobody ruled, the lists stay as they are: a label that they call both
    correct and wrong stays in both, and the hit wins; how many images have one is counted.
    """
    by_image: dict[str, list[Ruling]] = {}
    for ruling in rulings.values():
        if ruling.prediction in testset.label_space:
            by_image.setdefault(ruling.image_id, []).append(ruling)
    flagged, table = problematic_images(judgements), testset.truth(base)
    rows = table.to_pylist()
    counts = dict.fromkeys(
        ("ruled", "added", "moved", "correct_and_wrong", "nothing_acceptable", "problematic"), 0
    )
    columns: dict[str, list[Any]] = {name: [] for name in (*LISTS, "problematic")}
    used: dict[Key, Ruling] = {}
    for row in rows:
        lists = {name: list(dict.fromkeys(row[name])) for name in LISTS}
        mine = by_image.get(row["image_id"], [])
        for ruling in mine:
            used[ruling.key] = ruling
            _apply(lists, ruling, counts)
        counts["correct_and_wrong"] += bool({*lists["correct"]} & {*lists["wrong"]})
        empty = bool(mine) and not (lists["correct"] or lists["unclear"])
        counts["nothing_acceptable"] += empty
        bad = bool(row["problematic"]) or empty or row["image_id"] in flagged
        counts["problematic"] += bad
        for name in LISTS:
            columns[name].append(lists[name])
        columns["problematic"].append(bad)
    if not used and not flagged:
        raise NotApplicable(
            f"no ruling is about an image of truth {base}", fix="import judgements of this set"
        )
    counts["ruled"] = len(used)
    revised = truth_table(
        [row["image_id"] for row in rows], [row["class_id"] for row in rows], **columns
    )
    provenance = {
        "kind": "multilabel",
        "source": "judgements",
        "revises": base,
        "revises_hash": hash_table(table),
        "rule": rule,
        "people": people,
        "rulings_sha256": rulings_hash(used.values()),
        "counts": counts,
    }
    return TruthRevision(revised, provenance, tuple(_notes(counts)))


def _apply(lists: dict[str, list[str]], ruling: Ruling, counts: dict[str, int]) -> None:
    label = ruling.prediction
    before = [name for name in LISTS if label in lists[name]]
    if not before:
        counts["added"] += 1
    elif before != [ruling.answer]:
        counts["moved"] += 1
    for name in LISTS:
        if name != ruling.answer and label in lists[name]:
            lists[name].remove(label)
    if label not in lists[ruling.answer]:
        lists[ruling.answer].append(label)


def _notes(counts: Mapping[str, int]) -> Iterable[str]:
    yield (
        f"{counts['ruled']:,} rulings: {counts['added']:,} labels new to the lists, "
        f"{counts['moved']:,} in another list than before"
    )
    if counts["correct_and_wrong"]:
        yield (
            f"{counts['correct_and_wrong']:,} images have a label both correct and wrong: "
            "the hit wins"
        )
    if counts["nothing_acceptable"]:
        yield (
            f"{counts['nothing_acceptable']:,} images have no acceptable label left: "
            "they are problematic now"
        )


def rulings_hash(rulings: Iterable[Ruling]) -> str:
    """SHA-256 over rulings, whatever their order."""
    parts = sorted(
        [r.image_id, r.prediction, r.answer, r.category or "", r.severity or "", str(r.people)]
        for r in rulings
    )
    return sha256_text(canonical_json(parts))


def problematic_images(judgements: Iterable[Judgement]) -> set[str]:
    """Images that some reviewer calls problematic or blacklists (question ``review``)."""
    return {
        judgement.subject["image_id"]
        for judgement in current_answers(judgements)
        if judgement.question == "review"
        and "image_id" in judgement.subject
        and judgement.answer in ("problematic", "blacklisted")
    }


def next_revision(base: str, known: Iterable[str]) -> str:
    """A name for the next revision of a truth: ``multilabel``, then ``multilabel-2``, …

    >>> next_revision("multilabel", ["original", "multilabel", "multilabel-2"])
    'multilabel-3'
    """
    stem = re.sub(r"-\d+\Z", "", base)
    taken = set(known)
    return next(name for n in count(2) if (name := f"{stem}-{n}") not in taken)
