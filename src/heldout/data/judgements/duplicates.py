"""What people said of pairs of images, and down to which distance an image was reviewed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Literal, NamedTuple

from heldout.data.judgements.consensus import current_answers
from heldout.data.judgements.judgement import Judgement

THRESHOLD = "threshold"
"""Who decides where a distance was accepted instead of a look; anything that a person says overrules it."""
FIRST = 30
"""Neighbours of an image that are looked at, as ImageNetV2 did it."""
ALL_REVIEWED = 1e100
"""The review threshold of an image whose first neighbours were all reviewed, as ImageNetV2 wrote it."""
REVIEW_TARGETS: Mapping[str, float] = {"l2": 1.2e8, "dssim": 0.2205, "fc7": 1.32e4}
"""Distances down to which ImageNetV2 reviewed its candidates, by metric; ``fc7`` is of VGG-16."""

_SAID: tuple[Literal["duplicate", "different"], ...] = ("duplicate", "different")


class PairVerdict(NamedTuple):
    """What holds of a pair of images.

    ``answer``  what more than half of the people said; ``unresolved`` where no answer has that many
    ``who``     the people; where they disagree with what each said: ``ann: duplicate, bob: different``
    ``when``    when the last of them said it, where that is known
    """

    answer: Literal["duplicate", "different", "unresolved"]
    who: str
    when: str | None


def current_verdicts(
    judgements: Iterable[Judgement], files: Mapping[str, str | None]
) -> dict[tuple[str, str], PairVerdict]:
    """What people said of pairs of different images, by the two ids, the smaller first.

    ``files``  the hashes of the images as they are, by the names that judgements use. An answer that says
               which files were seen holds for these files, and for no others of these names.
    """
    about = (given for given in judgements if _still_holds(given, files))
    found = verdicts(about)
    return {pair: verdict for pair, verdict in found.items() if pair[0] != pair[1]}


def _still_holds(given: Judgement, files: Mapping[str, str | None]) -> bool:
    seen = given.evidence.get("files", {})
    return all(files.get(name) in (None, digest) for name, digest in seen.items())


def verdicts(judgements: Iterable[Judgement]) -> dict[tuple[str, str], PairVerdict]:
    """The verdict on every pair that was judged: each person's latest answer counts once.

    What a threshold decided counts only where no person answered.
    """
    said: dict[tuple[str, str], list[Judgement]] = {}
    for given in current_answers(judgements):
        if given.answer in _SAID and "other_id" in given.subject:
            pair = given.subject["image_id"], given.subject["other_id"]
            said.setdefault(pair, []).append(given)
    return {pair: _verdict(answers) for pair, answers in said.items()}


def _verdict(answers: list[Judgement]) -> PairVerdict:
    people = [given for given in answers if given.who != THRESHOLD] or answers
    votes = Counter(given.answer for given in people)
    answer: Literal["duplicate", "different", "unresolved"] = "unresolved"
    for said in _SAID:
        if 2 * votes[said] > len(people):
            answer = said
    who = [given.who if len(votes) == 1 else f"{given.who}: {given.answer}" for given in people]
    times = (given.when for given in people if answer in ("unresolved", given.answer))
    when = max((str(time) for time in times if time is not None), default=None)
    return PairVerdict(answer, ", ".join(sorted(who)), when)


def listed_counts(listed: Mapping[str, Collection[str]]) -> dict[str, int]:
    """How much a mapping of image -> its duplicates holds; a pair may be listed from both sides.

    >>> listed_counts({"a": ["b", "c"], "b": ["a"], "c": ["c"]})
    {'roots': 3, 'listed': 4, 'pairs': 3, 'with_itself': 1}
    """
    pairs = {frozenset((root, other)) for root, others in listed.items() for other in others}
    return {
        "roots": len(listed),
        "listed": sum(map(len, listed.values())),
        "pairs": len(pairs),
        "with_itself": sum(len(pair) == 1 for pair in pairs),
    }


def reviewed_down_to(
    neighbours: Iterable[tuple[str, float]] | None,
    reviewed: Collection[str],
    *,
    image_id: str = "",
    same_photo: Collection[str] = (),
    first: int = FIRST,
) -> float:
    """Distance of the nearest of an image's first neighbours that nobody has reviewed.

    ``neighbours``  the other image and its distance, nearest first; None: never compared, so 0
    ``reviewed``    images that were compared with this one by a person
    ``image_id``    the image itself, which a published search lists among its neighbours
    ``same_photo``  images made from the same photo, which need no review

    All reviewed gives :data:`ALL_REVIEWED`: neighbours after the first ones are not asked for.

    >>> reviewed_down_to([("a", 0.0), ("b", 2.0), ("c", 3.0)], {"b"}, image_id="a")
    3.0
    """
    if neighbours is None:
        return 0.0
    for place, (other, distance) in enumerate(neighbours):
        if place == first:
            break
        if other != image_id and other not in reviewed and other not in same_photo:
            return distance
    return ALL_REVIEWED


def review_thresholds(
    neighbours: Mapping[str, Mapping[str, Iterable[tuple[str, float]]]],
    reviewed: Mapping[str, Mapping[str, Collection[str]]],
    *,
    metrics: Iterable[str],
    photos: Mapping[str, str] | None = None,
    first: int = FIRST,
) -> dict[str, dict[str, float]]:
    """Image and metric -> :func:`reviewed_down_to`, for searches and reviews as ImageNetV2 kept them.

    ``neighbours``  image -> metric -> other images with distances, nearest first
    ``reviewed``    image -> metric -> other images that somebody compared with it by that metric
    ``metrics``     those that are asked for; one by which an image was never compared gives 0
    ``photos``      image -> the photo that it is from
    """
    of_photo: dict[str, set[str]] = {}
    for image, photo in (photos or {}).items():
        of_photo.setdefault(photo, set()).add(image)
    wanted = tuple(metrics)
    return {
        image: {
            metric: reviewed_down_to(
                by_metric.get(metric),
                frozenset(reviewed.get(image, {}).get(metric, ())),
                image_id=image,
                same_photo=of_photo.get((photos or {}).get(image, ""), ()),
                first=first,
            )
            for metric in wanted
        }
        for image, by_metric in neighbours.items()
    }


def sufficiently_reviewed(thresholds: Mapping[str, float], targets: Mapping[str, float]) -> bool:
    """Whether an image was reviewed beyond the target distance by every metric that has one.

    >>> sufficiently_reviewed({"l2": 1.3e8, "dssim": 1e100}, {"l2": 1.2e8, "dssim": 0.2205})
    True
    """
    return all(thresholds.get(metric, 0.0) > target for metric, target in targets.items())
