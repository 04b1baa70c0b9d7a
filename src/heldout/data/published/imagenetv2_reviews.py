"""ImageNetV2's reviews, blacklist and near duplicates.

The class reviews, the blacklist and the list of near duplicates do not say who answered or when:
all answers stand under one name, without a time.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any

from heldout.core.errors import BadFile
from heldout.core.files import read_json
from heldout.data.judgements.judgement import Judgement, pair_subject

WHO = "imagenetv2-authors"
_REVIEW_ENDING = "_review"


def read_class_reviews(
    path: Path, *, testset: str | None = None, who: str = WHO
) -> Iterator[Judgement]:
    """``{class: {"reviewed": bool, "problematic": bool}}`` as ``review`` judgements.

    The subject is (test set, class). A class that is neither reviewed nor problematic has no
    answer, so it gives no judgement. ``testset`` is the file's name without ``_review`` unless
    given.
    """
    name = testset or path.stem.removesuffix(_REVIEW_ENDING)
    for class_id, marks in sorted(_object(path, "classes and their marks").items()):
        flags = [marks.get(key) for key in ("reviewed", "problematic")] if _is(marks) else [None]
        if not all(isinstance(flag, bool) for flag in flags):
            raise BadFile(
                path,
                f"{class_id} has no reviewed and problematic marks",
                fix='write {"reviewed": true, "problematic": false}',
            )
        reviewed, problematic = flags
        if not reviewed and not problematic:
            continue
        yield Judgement(
            question="review",
            subject={"testset": name, "class_id": class_id},
            answer="problematic" if problematic else "reviewed",
            who=who,
            evidence={} if reviewed else {"reviewed": False},
            source=path.name,
            testset=name,
        )


def read_blacklist(path: Path, *, who: str = WHO) -> Iterator[Judgement]:
    """``{image: reason}`` as ``review`` judgements: blacklisted, the reason as evidence."""
    for image_id, reason in sorted(_object(path, "images and reasons").items()):
        if not isinstance(reason, str):
            raise BadFile(path, f"{image_id} has no reason", fix="give the reason as text")
        yield Judgement(
            question="review",
            subject={"image_id": image_id},
            answer="blacklisted",
            who=who,
            evidence={"reason": reason},
            source=path.name,
        )


def read_near_duplicates(
    path: Path, *, override: Path | None = None, who: str = WHO
) -> Iterator[Judgement]:
    """``{image: [images]}`` as ``duplicate`` judgements, one a pair, whichever side listed it.

    ``evidence["roots"]`` names the images under which the pair is listed, so nothing is lost.
    ``override`` is a list of images that stay in the test set although they have duplicates.
    An image listed as its own duplicate is left out, with a warning.
    """
    roots: dict[tuple[str, str], list[str]] = {}
    selves = 0
    for root, others in sorted(_object(path, "images and their duplicates").items()):
        for other in _ids(path, root, others):
            if other == root:
                selves += 1
                continue
            pair = (min(root, other), max(root, other))
            roots.setdefault(pair, []).append(root)
    if selves:
        warnings.warn(
            f"{path}: {selves} images are listed as duplicates of themselves; left out",
            stacklevel=2,
        )
    for (one, other), listed in sorted(roots.items()):
        yield Judgement(
            question="duplicate",
            subject=pair_subject(one, other),
            answer="duplicate",
            who=who,
            evidence={"roots": sorted(set(listed))},
            source=path.name,
        )
    if override is not None:
        for image_id in sorted(set(_ids(override, "the list", read_json(override)))):
            yield Judgement(
                question="duplicate",
                subject={"image_id": image_id},
                answer="keep",
                who=who,
                source=override.name,
            )


def read_duplicate_reviews(
    path: Path, near_duplicates: Path, *, zone: tzinfo = UTC
) -> Iterator[Judgement]:
    """Who looked at which pair when, as ``duplicate`` judgements.

    ``path`` holds ``{image: {metric: {"reviewer", "date", "references": [images]}}}``: the pairs
    that a reviewer saw. Those in ``near_duplicates`` were judged duplicates, the others different.
    The dates name no time zone; they are taken as ``zone``, and kept as written in the evidence.
    """
    listed = {
        frozenset((root, other))
        for root, others in _object(near_duplicates, "images and their duplicates").items()
        for other in _ids(near_duplicates, root, others)
    }
    for image_id, metrics in sorted(_object(path, "images and their reviews").items()):
        if not _is(metrics):
            raise BadFile(path, f"{image_id} has no reviews", fix="write reviews by metric")
        for metric, review in sorted(metrics.items()):
            where = f"{image_id}, {metric}"
            who, when = _reviewer(path, where, review, zone)
            evidence = {
                "metric": metric,
                "date": review["date"],
                **({"threshold": review["threshold"]} if "threshold" in review else {}),
            }
            for other in sorted(set(_ids(path, where, review.get("references")))):
                if other != image_id:
                    yield Judgement(
                        question="duplicate",
                        subject=pair_subject(image_id, other),
                        answer="duplicate"
                        if frozenset((image_id, other)) in listed
                        else "different",
                        who=who,
                        when=when,
                        evidence={"seen_from": image_id, **evidence},
                        source=path.name,
                    )


def _reviewer(path: Path, where: str, review: Any, zone: tzinfo) -> tuple[str, datetime]:
    try:
        moment = datetime.fromisoformat(review["date"])
        who = review["reviewer"]
        if not isinstance(who, str) or not who:
            raise TypeError
    except (KeyError, TypeError, ValueError):
        raise BadFile(
            path, f"{where} has no reviewer and date", fix="give both, the date as ISO 8601"
        ) from None
    return who, moment if moment.tzinfo else moment.replace(tzinfo=zone)


def _is(value: object) -> bool:
    return isinstance(value, dict)


def _object(path: Path, what: str) -> dict[str, Any]:
    value = read_json(path)
    if not isinstance(value, dict):
        raise BadFile(path, f"is not a JSON object of {what}", fix="choose the right file")
    return value


def _ids(path: Path, where: str, value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise BadFile(path, f"{where} is not a list of images", fix="list image ids as text")
    return value
