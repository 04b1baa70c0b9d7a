"""Samplers: which candidates of each class become the test set, and why the others do not.

Plain values in, plain values out. The first reason against a candidate counts, in the order of
:data:`REASONS`, so that the counts of reasons and of eligible candidates add up to all candidates.

==========  ================================================================================
threshold   images of the previous revision first, then a draw; frequency at least the threshold
matched     as many from each bin of frequencies as the original set of the class has
top         the highest frequencies; ties by votes, then images of the previous revision, then id
random      images of the previous revision first, then a draw; votes are not asked for
annotated   the same, among candidates with enough votes
==========  ================================================================================

By default an image is drawn by the hash of its id and the seed (:class:`HashDraws`): a draw depends
neither on the order of candidates nor on other classes. :class:`PublishedDraws` draws as ImageNetV2
did, from one generator in the order of classes.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args

from heldout.core.errors import UserError
from heldout.curate.crowd.stopping import BINS
from heldout.data.testset.hashing import row_hash

Sampler = Literal["threshold", "matched", "top", "random", "annotated"]
SAMPLERS: tuple[Sampler, ...] = get_args(Sampler)
Reason = Literal["blacklisted", "few_votes", "below_threshold", "near_duplicate", "unreviewed"]
REASONS: tuple[Reason, ...] = get_args(Reason)
"""Why a candidate may not be drawn, in the published order; the first that holds counts."""


@dataclass(frozen=True, slots=True)
class VotedCandidate:
    """What is known of one candidate for its class.

    ``frequency``  selections over votes; 0 without votes
    ``settled``    asking about it has stopped by a rule, however few its votes are
    """

    image_id: str
    frequency: float = 0.0
    votes: int = 0
    settled: bool = False
    blacklisted: bool = False
    near_duplicate: bool = False
    unreviewed: bool = False


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What a sampler asks of candidates, and how many images of a class it draws.

    ``votes``       fewest votes of a candidate; 0 asks for none
    ``thresholds``  class -> its own threshold in place of ``threshold``
    ``upward``      fill a bin that lacks candidates from the nearest higher one that has some
    """

    sampler: Sampler = "threshold"
    per_class: int = 10
    votes: int = 10
    threshold: float = 0.7
    thresholds: Mapping[str, float] = field(default_factory=dict)
    upward: bool = False

    @property
    def originals(self) -> int:
        """Fewest images of the original set that a target may rest on: 20 for 10, as published."""
        return 2 * self.per_class

    def threshold_of(self, class_id: str) -> float | None:
        """The least frequency that a class asks for; None where the sampler asks for none."""
        if self.sampler != "threshold":
            return None
        return self.thresholds.get(class_id, self.threshold)


def reason_against(
    candidate: VotedCandidate, *, votes: int, threshold: float | None = None
) -> Reason | None:
    """The first reason why a candidate may not be drawn; None where there is none.

    >>> reason_against(VotedCandidate("a", 0.6, 10, near_duplicate=True), votes=10, threshold=0.7)
    'below_threshold'
    """
    if candidate.blacklisted:
        return "blacklisted"
    if candidate.votes < votes and not candidate.settled:
        return "few_votes"
    if threshold is not None and candidate.frequency < threshold:
        return "below_threshold"
    if candidate.near_duplicate:
        return "near_duplicate"
    return "unreviewed" if candidate.unreviewed else None


class Draws(Protocol):
    """Where chance comes from."""

    def sample(self, ids: Collection[str], n: int) -> list[str]:
        """``n`` of some ids, all of them where there are fewer."""
        ...

    def carry(self, ids: Sequence[str], n: int) -> list[str]:
        """At most ``n`` ids of the previous revision, given in its order."""
        ...


class HashDraws:
    """Ids in the order of their hashes: fewer are the first of more, whatever order they come in."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def sample(self, ids: Collection[str], n: int) -> list[str]:
        """The ``n`` ids of the smallest hashes, ties by id."""
        if not ids or n <= 0:
            return []
        ordered = sorted(ids)
        hashes = row_hash(ordered, seed=self._seed).tolist()
        return [name for _, name in sorted(zip(hashes, ordered, strict=True))][:n]

    def carry(self, ids: Sequence[str], n: int) -> list[str]:
        """As :meth:`sample`: the order of the previous revision does not matter."""
        return self.sample(ids, n)


class PublishedDraws:
    """Python's generator, asked in the published order.

    Where all of some ids are wanted it is not asked: revision a-24, in which a class took its last
    candidate, has the order of such a draw. The published code, of a later date, would ask.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def sample(self, ids: Collection[str], n: int) -> list[str]:
        """``random.sample`` of the sorted ids; all of them, sorted, where there are no more."""
        ordered = sorted(ids)
        return ordered if n >= len(ordered) else self.random.sample(ordered, n)

    def carry(self, ids: Sequence[str], n: int) -> list[str]:
        """All in the order of the previous revision; ``random.sample`` where there are too many."""
        return list(ids) if len(ids) <= n else self.random.sample(list(ids), n)


@dataclass(frozen=True, kw_only=True)
class Bin:
    """One bin of frequencies of a class.

    ``originals``  images of the original set in it; ``target`` images to draw from it
    ``eligible``   candidates that may be drawn; ``images`` those that were
    ``upward``     images drawn from a higher bin in its place
    """

    originals: int
    target: int
    eligible: int
    images: tuple[str, ...]
    upward: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ClassDraw:
    """The images that were drawn of a class, in the order of the draws.

    ``target``    images that were asked for
    ``eligible``  candidates without a reason against them
    ``excluded``  image -> the first reason against it
    ``carried``   images of the previous revision that stay; ``gone`` those that the pool has not
    ``bins``      for ``matched``: every bin, the lowest first
    """

    class_id: str
    target: int
    images: tuple[str, ...]
    eligible: int
    excluded: Mapping[str, Reason]
    carried: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    bins: tuple[Bin, ...] = ()

    @property
    def is_short(self) -> bool:
        """Whether it has fewer images than were asked for."""
        return len(self.images) < self.target

    @property
    def originals(self) -> int:
        """Images of the original set that the target of its bins rests on."""
        return sum(part.originals for part in self.bins)

    @property
    def reasons(self) -> dict[Reason, int]:
        """How many candidates each reason excludes, in the published order."""
        found = Counter(self.excluded.values())
        return {reason: found[reason] for reason in REASONS}


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What was drawn.

    ``classes``  by class id
    ``rows``     (image, class) in the order of the set: classes in order, or as was published
    ``few``      classes whose target rests on too few images of the original set
    """

    classes: tuple[ClassDraw, ...]
    rows: tuple[tuple[str, str], ...]
    few: tuple[str, ...] = ()

    @property
    def short(self) -> tuple[ClassDraw, ...]:
        """The classes with fewer images than were asked for."""
        return tuple(drawn for drawn in self.classes if drawn.is_short)

    @property
    def is_valid(self) -> bool:
        """Whether every class is full, and every target rests on enough images."""
        return not self.short and not self.few

    @property
    def reasons(self) -> dict[Reason, int]:
        """How many candidates each reason excludes, of all classes."""
        return {reason: sum(drawn.reasons[reason] for drawn in self.classes) for reason in REASONS}


def sample(
    candidates: Mapping[str, Iterable[VotedCandidate]],
    rule: Rule,
    *,
    seed: int,
    previous: Mapping[str, Sequence[str]] | None = None,
    originals: Mapping[str, Collection[float]] | None = None,
    legacy: bool = False,
) -> Sample:
    """Draw a test set.

    ``candidates``  class -> its candidates, in any order; a class without any is short
    ``previous``    class -> the images of the previous revision, in the order of its file
    ``originals``   for ``matched``: class -> frequencies of images of the original set
    ``legacy``      draw as published: one generator in the order of classes, previous images in
                    the order of their file, the whole list shuffled last (``random`` is not)
    """
    if rule.sampler == "matched" and originals is None:
        raise UserError(
            "matched draws by the frequencies of an original set", fix="give one, with its votes"
        )
    draws = PublishedDraws(seed) if legacy else HashDraws(seed)
    before, like = previous or {}, originals or {}
    classes = tuple(
        _class_draw(
            label, tuple(candidates[label]), rule, before.get(label, ()), like.get(label, ()), draws
        )
        for label in sorted(candidates)
    )
    few = tuple(
        drawn.class_id
        for drawn in classes
        if rule.sampler == "matched" and drawn.originals < rule.originals
    )
    return Sample(classes=classes, rows=_rows(classes, rule.sampler, draws), few=few)


def _rows(
    classes: Iterable[ClassDraw], sampler: Sampler, draws: Draws
) -> tuple[tuple[str, str], ...]:
    """The order of the set: by class, or as it was published."""
    published = isinstance(draws, PublishedDraws)
    rows = [
        (image, drawn.class_id)
        for drawn in classes
        # Samples of original images were published sorted within classes.
        for image in (
            sorted(drawn.images)
            if published and sampler in ("random", "annotated")
            else drawn.images
        )
    ]
    if isinstance(draws, PublishedDraws) and sampler != "random":
        draws.random.shuffle(rows)
    return tuple(rows)


def _class_draw(
    class_id: str,
    candidates: Sequence[VotedCandidate],
    rule: Rule,
    previous: Sequence[str],
    originals: Collection[float],
    draws: Draws,
) -> ClassDraw:
    eligible: dict[str, VotedCandidate] = {}
    excluded: dict[str, Reason] = {}
    asked = 0 if rule.sampler == "random" else rule.votes
    for candidate in sorted(candidates, key=lambda one: one.image_id):
        reason = reason_against(candidate, votes=asked, threshold=rule.threshold_of(class_id))
        if reason is None:
            eligible[candidate.image_id] = candidate
        else:
            excluded[candidate.image_id] = reason
    before = list(dict.fromkeys(previous))
    bins: tuple[Bin, ...] = ()
    if rule.sampler == "matched":
        bins = match(eligible, before, originals, rule, draws)
        images = [image for part in bins for image in (*part.images, *part.upward)]
    elif rule.sampler == "top":
        images = best(eligible, before, rule.per_class)
    else:
        carried = draws.carry([i for i in before if i in eligible], rule.per_class)
        kept = set(carried)
        others = [image for image in eligible if image not in kept]
        images = [*carried, *draws.sample(others, rule.per_class - len(carried))]
    known = set(before)
    return ClassDraw(
        class_id=class_id,
        target=rule.per_class,
        images=tuple(images),
        eligible=len(eligible),
        excluded=excluded,
        carried=tuple(image for image in images if image in known),
        gone=tuple(sorted(known - eligible.keys() - excluded.keys())),
        bins=bins,
    )


def best(eligible: Mapping[str, VotedCandidate], previous: Collection[str], n: int) -> list[str]:
    """The ``n`` candidates selected most often; ties by votes, previous images, the larger id."""
    kept = set(previous)
    return sorted(
        eligible,
        key=lambda i: (eligible[i].frequency, eligible[i].votes, i in kept, i),
        reverse=True,
    )[:n]


def bin_of(frequency: float) -> int:
    """The bin of a frequency; an edge belongs to the higher one.

    >>> [bin_of(frequency) for frequency in (0.0, 0.2, 0.79, 0.8, 1.0)]
    [0, 1, 3, 4, 4]
    """
    return bisect_right(BINS, frequency)


def scaled(histogram: Sequence[int], total: int) -> list[int]:
    """A histogram with this sum and the same shares: largest remainders, ties to the higher bin.

    Remainders are compared exactly; ImageNetV2 compared rounded ones, in which two that are equal
    may differ in their last digit.

    >>> scaled([0, 1, 2, 5, 12], 10)
    [0, 0, 1, 3, 6]
    """
    whole = sum(histogram)
    if not whole:
        return [0] * len(histogram)
    parts = [divmod(total * n, whole) for n in histogram]
    made = [floor for floor, _ in parts]
    by_remainder = sorted(range(len(parts)), key=lambda i: (parts[i][1], i), reverse=True)
    for place in by_remainder[: total - sum(made)]:
        made[place] += 1
    return made


def match(
    eligible: Mapping[str, VotedCandidate],
    previous: Sequence[str],
    originals: Collection[float],
    rule: Rule,
    draws: Draws,
) -> tuple[Bin, ...]:
    """Images of each bin, as many as the frequencies of the original set ask for.

    Images of the previous revision come first within a bin. With ``rule.upward`` what a bin lacks
    is taken from the nearest higher bin with candidates left, again previous images first.
    """
    width = len(BINS) + 1
    counted = Counter(map(bin_of, originals))
    histogram = [counted[place] for place in range(width)]
    target = scaled(histogram, rule.per_class)
    members: list[list[str]] = [[] for _ in range(width)]
    for image, candidate in eligible.items():
        members[bin_of(candidate.frequency)].append(image)
    # All previous images are looked at before anything new is drawn: the published order of draws.
    chosen = [
        draws.carry([i for i in previous if i in own], n)
        for own, n in zip(map(set, members), target, strict=True)
    ]
    left: list[list[str]] = []
    for part, mine, n in zip(members, chosen, target, strict=True):
        taken = set(mine)
        mine += draws.sample([image for image in part if image not in taken], n - len(mine))
        taken.update(mine)
        left.append([image for image in part if image not in taken])
    higher: list[tuple[str, ...]] = [()] * width
    if rule.upward:
        for place in range(width):
            lacking = target[place] - len(chosen[place])
            higher[place] = _from_above(left[place + 1 :], previous, lacking, draws)
    return tuple(
        Bin(
            originals=histogram[place],
            target=target[place],
            eligible=len(members[place]),
            images=tuple(chosen[place]),
            upward=higher[place],
        )
        for place in range(width)
    )


def _from_above(
    left: Sequence[list[str]], previous: Sequence[str], n: int, draws: Draws
) -> tuple[str, ...]:
    """``n`` candidates of higher bins, the nearest bin first; they are taken out of ``left``."""
    found: list[str] = []
    for part in left:
        while part and len(found) < n:
            before = [image for image in previous if image in part]
            image = draws.carry(before, len(before))[0] if before else draws.sample(part, 1)[0]
            part.remove(image)
            found.append(image)
    return tuple(found)
