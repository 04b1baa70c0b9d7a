"""Strategies: how a budget is allotted to domains and which images of a domain are chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from heldout.core.errors import NotApplicable, UserError
from heldout.data.testset.hashing import derived_seed, row_hash


def proportional(
    weights: Sequence[float] | np.ndarray, capacities: Sequence[int] | np.ndarray, budget: int
) -> np.ndarray:
    """``budget`` in proportion to ``weights`` (g,), no group above its capacity; int64 (g,).

    The exact shares are ``min(capacity, s * weight)`` with the one ``s`` that spends the budget;
    largest remainders make them whole (ties: the larger weight, then the lower group). What full
    groups cannot take goes to the others by their weights, and to groups without weight, in equal
    parts, only when all others are full.

    >>> proportional([3, 1, 1], [10, 10, 10], 6).tolist()
    [4, 1, 1]
    >>> proportional([3, 1, 1], [2, 10, 10], 6).tolist()
    [2, 2, 2]
    """
    room = [int(most) for most in capacities]
    shares = [Fraction(float(weight)) for weight in weights]
    counts = [0] * len(room)
    free = [group for group, most in enumerate(room) if most > 0]
    left = budget
    while left:
        if not any(shares[group] for group in free):
            shares = [Fraction(1)] * len(room)
        total = sum((shares[group] for group in free), Fraction(0))
        ideal = {group: left * shares[group] / total for group in free}
        full = [group for group in free if ideal[group] >= room[group]]
        for group in full or free:
            counts[group] = room[group] if full else int(ideal[group])
            left -= counts[group]
        if not full:
            order = sorted(free, key=lambda g: (int(ideal[g]) - ideal[g], -shares[g], g))
            for group in order[:left]:
                counts[group] += 1
            break
        free = [group for group in free if group not in full]
    return np.array(counts, np.int64)


def in_order(
    order: Sequence[int] | np.ndarray, capacities: Sequence[int] | np.ndarray, budget: int
) -> np.ndarray:
    """All of ``budget`` to the first group of ``order``, what it cannot take to the next; (g,).

    >>> in_order([2, 0, 1], [5, 5, 3], 6).tolist()
    [3, 0, 3]
    """
    order = np.asarray(order, np.int64)
    room = np.asarray(capacities, np.int64)[order]
    counts = np.zeros(len(room), np.int64)
    counts[order] = np.clip(budget - (np.cumsum(room) - room), 0, room)
    return counts


def levelling(
    held: Sequence[int] | np.ndarray, capacities: Sequence[int] | np.ndarray, budget: int
) -> np.ndarray:
    """One after the other to the group that then holds least (ties: the lower group); int64 (g,).

    >>> levelling([5, 1, 2], [9, 9, 9], 4).tolist()
    [0, 3, 1]
    """
    # What each group would hold before every label it could get: the lowest come first.
    room = np.asarray(capacities, np.int64)
    group = np.repeat(np.arange(len(room)), room)
    before = np.asarray(held)[group] + np.arange(len(group)) - (np.cumsum(room) - room)[group]
    return np.bincount(group[np.lexsort((group, before))[:budget]], minlength=len(room))


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    """Log-softmax, float64 (n, classes)."""
    values = np.asarray(logits, np.float64)
    values = values - values.max(axis=1, keepdims=True)
    shifted: np.ndarray = values - np.log(np.exp(values).sum(axis=1, keepdims=True))
    return shifted


def confidence(logits: np.ndarray) -> np.ndarray:
    """The highest probability, float64 (n,)."""
    top: np.ndarray = np.exp(log_probabilities(logits).max(axis=1))
    return top


def lead(values: np.ndarray) -> np.ndarray:
    """The highest minus the second of every row, float64 (n,)."""
    if values.shape[1] < 2:
        raise NotApplicable("a margin of one class", fix="use images of two classes or more")
    best = np.partition(np.asarray(values, np.float64), values.shape[1] - 2, axis=1)[:, -2:]
    found: np.ndarray = best[:, 1] - best[:, 0]
    return found


def margin(logits: np.ndarray) -> np.ndarray:
    """The highest probability minus the second, float64 (n,)."""
    return lead(np.exp(log_probabilities(logits)))


def negative_entropy(logits: np.ndarray) -> np.ndarray:
    """``sum p log p``, float64 (n,): 0 where one class has all, ``-log classes`` where all are equal."""
    logs = log_probabilities(logits)
    total: np.ndarray = (np.exp(logs) * logs).sum(axis=1)
    return total


SCORES: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "least-confidence": confidence,
    "margin": margin,
    "logit-margin": lead,
    "entropy": negative_entropy,
}
"""By selector: the number whose lowest values are chosen first."""


def atc_threshold(scores: np.ndarray, correct: np.ndarray) -> float:
    """The threshold: the score of the first validation image that must not lie below it.

    ``scores`` float (n,), higher is surer; ``correct`` bool (n,). ``#(score < t)`` is the number of
    errors, or as near below it as equal scores allow; infinity where all are wrong.

    >>> atc_threshold(np.array([0.2, 0.9, 0.4, 0.7]), np.array([True, True, False, True]))
    0.4
    """
    if not len(scores):
        raise NotApplicable(
            "a threshold needs labelled validation images",
            fix="label some, or use another selector",
        )
    wrong = int(np.count_nonzero(~np.asarray(correct, bool)))
    ordered = np.sort(np.asarray(scores, np.float64))
    return float(ordered[wrong]) if wrong < len(ordered) else float("inf")


def group_thresholds(
    scores: np.ndarray, correct: np.ndarray, groups: np.ndarray, count: int
) -> np.ndarray:
    """A threshold for each group, float64 (count,); groups without validation get that of all."""
    common = atc_threshold(scores, correct)
    found = np.full(count, common)
    for group in range(count):
        mine = groups == group
        if mine.any():
            found[group] = atc_threshold(scores[mine], correct[mine])
    return found


_SAME = 1e-12
"""Distances below this share of the squared lengths are rounding of equal vectors: they count as 0."""


def k_centre(
    features: np.ndarray,
    labelled: np.ndarray,
    groups: np.ndarray,
    *,
    budget: int,
    quota: np.ndarray | None,
    ties: np.ndarray,
) -> np.ndarray:
    """Greedy k-centre: always the candidate farthest from all that is labelled or chosen.

    ``features`` (n, d) of candidates, ``labelled`` (m, d) of the labelled. Euclidean distance in
    float64. Equal distances: the lower of ``ties`` (n,). Nothing labelled: the first is the lowest
    of ``ties``. Rows in the order of choice, int64 (budget,). Sener and Savarese, Active learning
    for convolutional neural networks: a core-set approach, ICLR 2018.
    """
    points = np.asarray(features, np.float64)
    squares = (points * points).sum(axis=1)
    near = np.full(len(points), np.inf)
    for start in range(0, len(labelled), 256):
        block = np.asarray(labelled[start : start + 256], np.float64)
        lengths = (block * block).sum(axis=1)
        scale = squares[:, None] + lengths
        near = np.minimum(near, _gap(scale, points @ block.T).min(axis=1))

    def distances(row: int) -> np.ndarray:
        return _gap(squares + squares[row], points @ points[row])

    def pick(rows: np.ndarray, near: np.ndarray, step: int) -> int:
        return _highest(near, rows, ties)

    return _greedy(near, distances, pick, groups, quota, budget)


def badge(
    logits: np.ndarray,
    features: np.ndarray,
    groups: np.ndarray,
    *,
    budget: int,
    quota: np.ndarray | None,
    ids: Any,
    seed: int,
) -> np.ndarray:
    """BADGE: k-means++ seeding over the gradients that the predicted labels would give.

    An image's gradient is the outer product of ``softmax(logits) - onehot(prediction)`` (classes,)
    and its features (d,). It is never formed: the product of two gradients is the product of the
    two inner products. The first choice is the longest gradient, as in the authors' code; each
    further one is drawn in proportion to the squared distance to the nearest chosen. The draw is a
    race of exponential clocks by hashes of ``ids``, so it does not depend on the order of rows.
    Rows in the order of choice, int64 (budget,). Ash et al., Deep batch active learning by diverse,
    uncertain gradient lower bounds, ICLR 2020.
    """
    logs = log_probabilities(logits)
    residuals = np.exp(logs)
    residuals[np.arange(len(logs)), logs.argmax(axis=1)] -= 1.0
    points = np.asarray(features, np.float64)
    squares = (residuals * residuals).sum(axis=1) * (points * points).sum(axis=1)
    ties = row_hash(ids, seed=derived_seed("badge ties", seed))

    def distances(row: int) -> np.ndarray:
        products = (residuals @ residuals[row]) * (points @ points[row])
        return _gap(squares + squares[row], products)

    def pick(rows: np.ndarray, near: np.ndarray, step: int) -> int:
        if step == 0 or not (near[rows] > 0).any():  # the first, or equal to something chosen
            return _highest(squares if step == 0 else near, rows, ties)
        clocks = exponential_clocks(ids, seed=derived_seed(f"badge {step}", seed))[rows]
        with np.errstate(divide="ignore"):
            return int(rows[np.argmin(clocks / near[rows])])

    return _greedy(np.full(len(points), np.inf), distances, pick, groups, quota, budget)


def _highest(values: np.ndarray, rows: np.ndarray, ties: np.ndarray) -> int:
    """The row of the highest value; of equal ones the lowest of ``ties``."""
    best = rows[values[rows] == values[rows].max()]
    return int(best[np.argmin(ties[best])])


def exponential_clocks(ids: Any, *, seed: int) -> np.ndarray:
    """An exponential number of mean 1 for every id, float64 (n,), never 0 nor infinite.

    The lowest of ``clock / weight`` is a draw in proportion to the weights.
    """
    top = row_hash(ids, seed=seed) >> np.uint64(11)
    clocks: np.ndarray = -np.log((top.astype(np.float64) + 0.5) * 2.0**-53)
    return clocks


def _gap(scale: np.ndarray, products: np.ndarray) -> np.ndarray:
    """Squared distances from the sums of squared lengths and the inner products."""
    found = scale - 2.0 * products
    return np.where(found > _SAME * scale, found, 0.0)


def _greedy(
    near: np.ndarray,
    distances: Callable[[int], np.ndarray],
    pick: Callable[[np.ndarray, np.ndarray, int], int],
    groups: np.ndarray,
    quota: np.ndarray | None,
    budget: int,
) -> np.ndarray:
    """One row after the other, ``pick(rows that may be chosen, distances to the chosen, step)``."""
    left = np.bincount(groups) if quota is None else np.array(quota)
    chosen: list[int] = []
    open_ = left[groups] > 0
    for step in range(budget):
        row = pick(np.flatnonzero(open_), near, step)
        chosen.append(row)
        left[groups[row]] -= 1
        open_[row] = False
        open_ &= left[groups] > 0
        near = np.minimum(near, distances(row))
    return np.array(chosen, np.int64)


ALLOCATORS = (
    "none",
    "ambient",
    "uniform",
    "loss",
    "error",
    "exp-loss",
    "estimated-error",
    "worst",
    "interpolate",
    "least-labelled",
    "lowest-confidence",
)
NEED_VALIDATION = ("loss", "error", "exp-loss", "estimated-error", "worst", "interpolate")


@dataclass(frozen=True, kw_only=True, eq=False)
class DomainStatus:
    """What is known of every domain before an allocation, each (g,); NaN where there is no number.

    ``sizes``      images of the domain in the pool, labelled or not
    ``labelled``   those of them that have a label
    ``capacities`` those that can still be chosen
    ``errors``, ``losses``   on validation images
    ``confidences``, ``validation_confidences``  mean of the highest probability
    ``estimated_errors``     what ATC expects: the share of candidates below the threshold
    """

    sizes: np.ndarray
    labelled: np.ndarray
    capacities: np.ndarray
    errors: np.ndarray
    losses: np.ndarray
    confidences: np.ndarray
    validation_confidences: np.ndarray
    estimated_errors: np.ndarray


@dataclass(frozen=True)
class Allocator:
    """An allocator: its ``name`` as it was written, its kind, its argument where it takes one."""

    name: str
    kind: str
    alpha: float = 0.5
    on_validation: bool = False

    @property
    def needs_validation(self) -> bool:
        """Whether labelled images are needed that were not trained on."""
        return self.kind in NEED_VALIDATION or self.on_validation

    def __call__(self, standing: DomainStatus, budget: int) -> np.ndarray | None:
        """The quota of every domain, int64 (g,); None where there are no quotas."""
        room = standing.capacities
        if self.kind == "none":
            return None
        if self.kind == "least-labelled":
            return levelling(standing.labelled, room, budget)
        if self.kind == "worst":
            return in_order(_descending(standing.errors, "an error rate"), room, budget)
        if self.kind == "lowest-confidence":
            chosen = standing.validation_confidences if self.on_validation else standing.confidences
            return in_order(_descending(-chosen, "a confidence"), room, budget)
        return proportional(self._weights(standing), room, budget)

    def _weights(self, standing: DomainStatus) -> np.ndarray:
        count = len(standing.sizes)
        if self.kind == "ambient":
            return np.asarray(standing.sizes, np.float64)
        if self.kind == "uniform":
            return np.ones(count)
        if self.kind == "error":
            return _known(standing.errors, "an error rate")
        if self.kind == "estimated-error":
            return _known(standing.estimated_errors, "an estimated error rate")
        if self.kind == "interpolate":
            weights = np.full(count, (1.0 - self.alpha) / count)
            order = _descending(standing.errors, "an error rate")
            weights[order[standing.capacities[order] > 0][:1]] += self.alpha
            return weights
        losses = _known(standing.losses, "a loss")
        # Only proportions matter.
        return losses if self.kind == "loss" else np.exp(losses - losses.max())


def parse_allocator(text: str) -> Allocator:
    """The allocator that a text names.

    >>> parse_allocator("interpolate:0.25")
    Allocator(name='interpolate:0.25', kind='interpolate', alpha=0.25, on_validation=False)
    """
    kind, _, rest = text.partition(":")
    if kind not in ALLOCATORS:
        raise UserError(f"no allocator {text!r}", fix=f"use one of {', '.join(ALLOCATORS)}")
    if kind == "interpolate" and rest:
        try:
            alpha = float(rest)
        except ValueError:
            alpha = -1.0
        if not 0 <= alpha <= 1:
            raise UserError(
                f"{text!r}: {rest!r} is not a share", fix="give 0 to 1: interpolate:0.25"
            )
        return Allocator(text, kind, alpha)
    if kind == "lowest-confidence" and rest == "validation":
        return Allocator(text, kind, on_validation=True)
    if rest:
        raise UserError(f"allocator {kind} takes no {rest!r}", fix=f"write {kind}")
    return Allocator(text, kind)


def _known(values: np.ndarray, what: str) -> np.ndarray:
    """The values, those that do not exist replaced by the mean of the others."""
    numbers = np.asarray(values, np.float64)
    there = np.isfinite(numbers)
    if not there.any():
        raise _nothing(what)
    return np.where(there, numbers, numbers[there].mean())


def _descending(values: np.ndarray, what: str) -> np.ndarray:
    """Groups from the highest value down; equal ones in their order, those without a value last."""
    numbers = np.asarray(values, np.float64)
    if not np.isfinite(numbers).any():
        raise _nothing(what)
    order: np.ndarray = np.argsort(np.where(np.isfinite(numbers), -numbers, np.inf), kind="stable")
    return order


def _nothing(what: str) -> NotApplicable:
    return NotApplicable(
        f"no domain has {what}", fix="label some images for validation, or allocate by uniform"
    )


SELECTORS = ("random", *SCORES, "atc", "k-centre", "badge")
_BY_DOMAIN = "by-domain"


@dataclass(frozen=True, kw_only=True, eq=False)
class SelectorInput:
    """What a selector sees: candidates (n), labelled images (m), validation images (v).

    ``ids``       of candidates, an Arrow array of texts; ``groups`` their domains, int64 (n,)
    ``logits``    (n, classes), ``features`` (n, d) of candidates; None where there is no such thing
    ``labelled``  (m, d), features of the labelled
    ``validation_*``  logits (v, classes), labels (v,) and domains (v,)
    ``domains``   how many domains there are
    ``seed``      of this round
    """

    ids: Any
    groups: np.ndarray
    domains: int
    seed: int
    logits: np.ndarray | None = None
    features: np.ndarray | None = None
    labelled: np.ndarray | None = None
    validation_logits: np.ndarray | None = None
    validation_labels: np.ndarray | None = None
    validation_groups: np.ndarray | None = None

    def given(self, name: str, selector: str) -> np.ndarray:
        """A field that a selector needs."""
        value: np.ndarray | None = getattr(self, name)
        if value is None:
            raise NotApplicable(
                f"selector {selector} needs {_NEEDED.get(name, 'labelled validation images')}",
                fix="give them, or choose another such as random",
            )
        return value


_NEEDED = {"logits": "a trained classifier", "features": "features of the images"}


@dataclass(frozen=True)
class Selector:
    """A selector: its ``name`` as it was written, its kind, score and kind of threshold."""

    name: str
    kind: str
    score: str = "least-confidence"
    by_domain: bool = False

    @property
    def needs_model(self) -> bool:
        """Whether a trained classifier is needed."""
        return self.kind not in ("random", "k-centre")

    @property
    def needs_validation(self) -> bool:
        """Whether labelled images are needed that were not trained on."""
        return self.kind == "atc"

    def __call__(
        self, view: SelectorInput, budget: int, quota: np.ndarray | None = None
    ) -> np.ndarray:
        """The chosen candidates, best first, int64 (budget,); ``quota`` of every domain or None."""
        ties = row_hash(view.ids, seed=derived_seed("ties", view.seed))
        if self.kind == "k-centre":
            features = view.given("features", self.name)
            labelled = view.labelled if view.labelled is not None else features[:0]
            return k_centre(features, labelled, view.groups, budget=budget, quota=quota, ties=ties)
        if self.kind == "badge":
            return badge(
                view.given("logits", self.name),
                view.given("features", self.name),
                view.groups,
                budget=budget,
                quota=quota,
                ids=view.ids,
                seed=view.seed,
            )
        return first_of(self._order(view, ties), view.groups, budget, quota)

    def _order(self, view: SelectorInput, ties: np.ndarray) -> np.ndarray:
        if self.kind == "random":
            return np.argsort(ties, kind="stable")
        logits = view.given("logits", self.name)
        if self.kind != "atc":
            return np.lexsort((ties, SCORES[self.kind](logits)))
        score = SCORES[self.score]
        known = view.given("validation_logits", self.name)
        correct = known.argmax(axis=1) == view.given("validation_labels", self.name)
        groups = view.given("validation_groups", self.name)
        if not self.by_domain:
            groups = np.full(len(groups), -1)  # in no domain: the threshold of all counts
        limits = group_thresholds(score(known), correct, groups, view.domains)[view.groups]
        scores = score(logits)
        return np.lexsort((ties, np.where(scores >= limits, scores, -np.inf)))


def first_of(
    order: np.ndarray, groups: np.ndarray, budget: int, quota: np.ndarray | None
) -> np.ndarray:
    """The first of ``order`` (rows, best first), of each group no more than its quota; int64."""
    if quota is None:
        return np.asarray(order[:budget], np.int64)
    ordered = groups[order]
    kept = [np.flatnonzero(ordered == group)[:most] for group, most in enumerate(quota)]
    return np.asarray(order[np.sort(np.concatenate(kept))], np.int64)


def parse_selector(text: str) -> Selector:
    """The selector that a text names.

    >>> parse_selector("atc:margin:by-domain")
    Selector(name='atc:margin:by-domain', kind='atc', score='margin', by_domain=True)
    """
    kind, *rest = text.split(":")
    if kind not in SELECTORS:
        raise UserError(f"no selector {text!r}", fix=f"use one of {', '.join(SELECTORS)}")
    if kind != "atc" and rest:
        raise UserError(f"selector {kind} takes no {rest[0]!r}", fix=f"write {kind}")
    by_domain = bool(rest) and rest[-1] == _BY_DOMAIN
    rest = rest[:-1] if by_domain else rest
    if len(rest) > 1 or (rest and rest[0] not in SCORES):
        raise UserError(
            f"no selector {text!r}", fix=f"write atc:SCORE with one of {', '.join(SCORES)}"
        )
    return Selector(text, kind, rest[0] if rest else "least-confidence", by_domain)


@dataclass(frozen=True)
class Strategy:
    """Which images (selector) and how many of each domain (allocator)."""

    selector: Selector
    allocator: Allocator

    @property
    def name(self) -> str:
        """The text that :func:`parse_strategy` reads; the allocator ``none`` is left out."""
        if self.allocator.kind == "none":
            return self.selector.name
        return f"{self.selector.name}+{self.allocator.name}"

    @property
    def needs_model(self) -> bool:
        """Whether it needs a classifier's outputs on candidates or validation images."""
        return self.selector.needs_model or (
            self.allocator.needs_validation or self.allocator.kind == "lowest-confidence"
        )

    @property
    def needs_validation(self) -> bool:
        """Whether it needs labelled images that were not trained on."""
        return self.selector.needs_validation or self.allocator.needs_validation


def parse_strategy(text: str) -> Strategy:
    """The strategy that a text names.

    >>> parse_strategy("margin+none").name, parse_strategy("atc+interpolate:0.25").name
    ('margin', 'atc+interpolate:0.25')
    """
    selector, _, allocator = text.partition("+")
    return Strategy(parse_selector(selector), parse_allocator(allocator or "none"))


def parse_strategies(texts: Sequence[str]) -> tuple[Strategy, ...]:
    """Strategies from texts, each once; a text may hold several, separated by commas.

    ``all`` in the place of a selector or an allocator stands for every one of them.

    >>> [strategy.name for strategy in parse_strategies(["random, margin+uniform"])]
    ['random', 'margin+uniform']
    """
    parts = [part.strip() for text in texts for part in text.split(",") if part.strip()]
    found = dict.fromkeys(strategy for part in parts for strategy in _every(part))
    if not found:
        raise UserError("no strategy is named", fix="name some, such as random,margin+error")
    return tuple(found)


def _every(text: str) -> list[Strategy]:
    selector, plus, allocator = text.partition("+")
    if plus and not allocator:
        raise UserError(f"{text!r} ends in +", fix="write SELECTOR+ALLOCATOR, or SELECTOR alone")
    selectors = SELECTORS if selector == "all" else (selector,)
    allocators = ALLOCATORS if allocator == "all" else (allocator or "none",)
    return [parse_strategy(f"{s}+{a}") for a in allocators for s in selectors]
