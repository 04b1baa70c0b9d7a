"""Which candidates of a pool are asked about, and why others are not.

ImageNetV2's exclusions (``generate_hit_candidates.py``) in its order; the first that holds counts,
so that the counts of all reasons and of the candidates asked about add up to the pool.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from heldout.core.workspace import Workspace
from heldout.curate.crowd.stopping import USUAL_VOTES, StoppingRules
from heldout.data.judgements.for_testset import judgements_about, votes_about
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.resolution import near_duplicates
from heldout.data.judgements.workers import selection_frequency
from heldout.data.testset import TestSet


class Candidate(NamedTuple):
    """An image, and the class of which people are asked whether it shows one."""

    image_id: str
    class_id: str


@dataclass(frozen=True, kw_only=True)
class PoolJudgements:
    """What people have said of the candidates so far.

    ``votes``        (image, class) -> selections and votes that count
    ``blacklisted``  images that are never to be used
    ``duplicates``   candidates that are near duplicates of an image outside the pool
    """

    votes: Mapping[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    blacklisted: Collection[str] = ()
    duplicates: Collection[str] = ()

    @classmethod
    def of(cls, pool: TestSet, workspace: Workspace) -> PoolJudgements:
        """As the workspace's judgements have it."""
        images = set(pool.image_ids.to_pylist())
        reviews = judgements_about(pool, workspace.judgements, questions=("review",))
        pairs = [
            pair
            for pair, verdict in near_duplicates(pool, workspace).verdicts.items()
            if verdict.answer == "duplicate"
        ]
        return cls(
            votes=vote_counts(votes_about([pool], workspace.judgements)),
            blacklisted={r.subject["image_id"] for r in reviews if r.answer == "blacklisted"},
            # Of two candidates that are duplicates both are asked about: votes help to choose.
            duplicates={image for pair in pairs if not images.issuperset(pair) for image in pair},
        )


NOTHING_SAID = PoolJudgements()


def vote_counts(votes: Iterable[Judgement]) -> dict[tuple[str, str], tuple[int, int]]:
    """(image, class) -> how often it was selected, and by how many votes."""
    return {(f.image_id, f.class_id): (f.selected, f.n) for f in selection_frequency(votes)}


def candidates_of(pool: TestSet) -> list[Candidate]:
    """The candidates that have a class in the default truth, in its order."""
    truth = pool.truth()
    rows = zip(truth["image_id"].to_pylist(), truth["class_id"].to_pylist(), strict=True)
    return [Candidate(image, label) for image, label in rows if label is not None]


@dataclass(frozen=True)
class Asked:
    """The candidates to ask about, in the order in which they were given, and the others by reason.

    ``votes_saved``  votes that those which are settled lack, and do not need
    """

    candidates: tuple[Candidate, ...]
    left_out: Mapping[str, int]
    votes_saved: int = 0


def select(
    candidates: Sequence[Candidate],
    standing: PoolJudgements = NOTHING_SAID,
    *,
    votes: int = USUAL_VOTES,
    stopping: StoppingRules | None = None,
    excluded: Mapping[str, str] | None = None,
    classes: int | None = None,
    controls: Collection[str] = (),
) -> Asked:
    """Leave out what need not or must not be asked about.

    ``votes``     how many votes for its own class are enough for a candidate
    ``stopping``  when fewer are enough, as its fate is decided: it is settled
    ``excluded``  classes that are not asked about, with the reason
    ``classes``   how many classes are asked about: the first by id that have candidates left
    ``controls``  images that are shown as controls, so that their class is known

    >>> select([Candidate("a", "cat"), Candidate("b", "dog")], classes=1).left_out
    {'over_the_number_of_classes': 1}
    """
    reason_of = excluded or {}
    kept: list[Candidate] = []
    reasons: Counter[str] = Counter()
    saved = 0
    for candidate in candidates:
        selected, n = standing.votes.get(candidate, (0, 0))
        if candidate.image_id in controls:
            reason = "controls"
        elif n >= votes:
            reason = "enough_votes"
        elif stopping and stopping.of(candidate.class_id).settled((n - selected, selected)):
            reason = "settled"
            saved += votes - n
        elif candidate.image_id in standing.blacklisted:
            reason = "blacklisted"
        elif candidate.image_id in standing.duplicates:
            reason = "near_duplicates_of_references"
        elif candidate.class_id in reason_of:
            reason = f"excluded_class: {reason_of[candidate.class_id]}"
        else:
            kept.append(candidate)
            continue
        reasons[reason] += 1
    if classes is not None:
        first = set(sorted({candidate.class_id for candidate in kept})[:classes])
        over = len(kept)
        kept = [candidate for candidate in kept if candidate.class_id in first]
        if over := over - len(kept):
            reasons["over_the_number_of_classes"] = over
    return Asked(tuple(kept), dict(reasons), saved)
