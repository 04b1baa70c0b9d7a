"""ImageNetV2's JSON: dataset files, reviews, blacklist and near duplicates."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any

from heldout.core import schema
from heldout.core.errors import BadFile, LabelError
from heldout.core.files import read_json, sha256_file
from heldout.core.workspace import slug
from heldout.data.judgements.judgement import Judgement, pair_subject
from heldout.data.labels.label_space import Class, LabelSpace
from heldout.data.testset.columns import ColumnType
from heldout.data.testset.tables import truth_table
from heldout.data.testset.testset import TestSet, imported

ALIASES = {
    "imagenetv2-a-44": ("imagenetv2-threshold0.7",),
    "imagenetv2-b-33": ("imagenetv2-matched-frequency",),
    "imagenetv2-c-12": ("imagenetv2-top-images",),
    "imagenet-validation-original": ("imagenet-val", "imagenet-1k-val"),
}
CITATION = (
    "Recht, Roelofs, Schmidt, Shankar: Do ImageNet Classifiers Generalize to ImageNet? ICML 2019"
)
_PARTS = (
    (re.compile(r"ILSVRC2012_val_\d{8}"), "validation"),
    (re.compile(r"ILSVRC2012_test_\d{8}"), "test"),
    (re.compile(r"n\d{8}_\d+"), "train"),
)
_NOT_PARAMETERS = {
    "image_filenames",
    "seed",
    "sampling_function",
    "output_filename",
    "starting_from",
}


def read_class_info(path: Path) -> LabelSpace:
    """The label space of a ``class_info.json``: a list of {cid, wnid, synset, gloss}.

    A catalogue that is ImageNet-1k's becomes the built-in ``imagenet-1k``.
    """
    rows = read_json(path)
    if not isinstance(rows, list) or not rows:
        raise BadFile(path, "is not a list of classes", fix="give ImageNetV2's class_info.json")
    try:
        ordered = sorted(rows, key=lambda row: int(row["cid"]))
        if [int(row["cid"]) for row in ordered] != list(range(len(rows))):
            raise BadFile(
                path, "has class ids that are not 0, 1, 2, …", fix="number the classes without gaps"
            )
        classes = tuple(
            schema.convert(
                {
                    "id": row["wnid"],
                    "names": row.get("synset", []),
                    "wnid": row["wnid"],
                    "gloss": row.get("gloss", ""),
                },
                Class,
                where=path,
                fix="give ImageNetV2's class_info.json",
            )
            for row in ordered
        )
        space = LabelSpace("classes", classes)
    except (KeyError, TypeError, ValueError) as error:
        raise BadFile(
            path, f"has a class without {error}", fix="each needs cid, wnid, synset and gloss"
        ) from None
    except LabelError as error:
        raise BadFile(path, error.message, fix=error.fix) from None
    known = LabelSpace.load("imagenet-1k")
    if known.fingerprint == space.fingerprint:
        return known
    return LabelSpace(f"classes-{space.fingerprint[:8]}", classes)


def read_order(path: Path) -> list[tuple[str, str]]:
    """The (image id, class id) rows of a dataset file, in its order."""
    value = read_json(path)
    rows = value.get("image_filenames") if isinstance(value, dict) else None
    if not isinstance(rows, list) or not all(
        isinstance(r, list) and len(r) == 2 and all(isinstance(t, str) for t in r) for r in rows
    ):
        raise BadFile(
            path,
            "has no list image_filenames of [image, class] pairs",
            fix="give a dataset file of ImageNetV2's shape",
        )
    if not rows:
        raise BadFile(path, "lists no images", fix="give a dataset file with images")
    seen: set[str] = set()
    for image, _ in rows:
        if image in seen:
            raise BadFile(path, f"lists image {image!r} twice", fix="keep it under one class")
        seen.add(image)
    return [(image, label) for image, label in rows]


def read_imagenetv2(
    path: Path,
    *,
    name: str | None = None,
    label_space: LabelSpace | None = None,
    review: Path | None = None,
    blacklist: Path | None = None,
) -> TestSet:
    """A test set from a dataset file, its review file and the blacklist; row order is the file's.

    The blacklist (image -> reason) becomes the column ``blacklisted``, null for images not on it,
    so that ``audit`` can count it; reviews (class -> reviewed, problematic) become two columns.
    """
    rows = read_order(path)
    value: dict[str, Any] = read_json(path)
    space = label_space or LabelSpace.load("imagenet-1k")
    unknown = sorted({label for _, label in rows} - set(space.ids))
    if unknown:
        raise BadFile(
            path,
            f"has {len(unknown)} classes that label space {space.name} does not have, such as "
            f"{unknown[0]}",
            fix="name the label space with --classes",
        )
    columns: dict[str, Any] = {
        "image_id": [image for image, _ in rows],
        "source": [part_of(image) for image, _ in rows],
    }
    types: dict[str, ColumnType] = {}
    digest = sha256_file(path)
    parents: list[dict[str, Any]] = [{"file": path.name, "sha256": digest}]
    if review is not None:
        marks = read_review(review)
        for flag in ("reviewed", "problematic"):
            columns[f"class_{flag}"] = [marks.get(label, {}).get(flag) for _, label in rows]
            types[f"class_{flag}"] = ColumnType(kind="categorical")
        parents.append({"file": review.name, "sha256": sha256_file(review)})
    if blacklist is not None:
        reasons = read_json(blacklist)
        if not isinstance(reasons, dict):
            raise BadFile(
                blacklist,
                "is not an object of image -> reason",
                fix="give candidate_blacklist.json",
            )
        if not all(isinstance(reason, str) for reason in reasons.values()):
            raise BadFile(
                blacklist, "has a reason that is no text", fix="give every image a reason"
            )
        columns["blacklisted"] = [reasons.get(image) for image, _ in rows]
        types["blacklisted"] = ColumnType(kind="categorical")
        parents.append({"file": blacklist.name, "sha256": sha256_file(blacklist)})
    if value.get("starting_from"):
        parents.append(
            {"name": slug(Path(str(value["starting_from"])).stem), "relation": "earlier revision"}
        )
    chosen = name or slug(path.stem)
    revision = re.search(r"-(\d+)\Z", path.stem)
    return imported(
        chosen,
        label_space=space,
        images=columns,
        truth=truth_table([image for image, _ in rows], [label for _, label in rows]),
        source=path.name,
        sha256=digest,
        provenance={"version": revision.group(1) if revision else "unknown"},
        aliases=ALIASES.get(chosen, ()),
        recipe={
            "name": f"imagenetv2/{value.get('sampling_function', 'unknown')}",
            "parameters": {k: v for k, v in value.items() if k not in _NOT_PARAMETERS},
            "seed": value.get("seed"),
        },
        parents=tuple(parents),
        columns=types,
        citation=CITATION,
    )


def part_of(image: str) -> str:
    """Where an image comes from, by its name alone: validation, test, train, or candidate."""
    return next((part for pattern, part in _PARTS if pattern.match(image)), "candidate")


def read_review(path: Path) -> dict[str, dict[str, bool]]:
    """A review file: class -> {reviewed, problematic}."""
    value = read_json(path)
    if not isinstance(value, dict) or not all(
        isinstance(marks, dict)
        and all(isinstance(marks.get(flag, False), bool) for flag in ("reviewed", "problematic"))
        for marks in value.values()
    ):
        raise BadFile(
            path, "is not a review file", fix="it maps each class to reviewed and problematic"
        )
    return value


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
