"""ImageNetV2's JSON: dataset files, reviews, blacklist and near duplicates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Annotated, Any

import msgspec

from heldout.core import schema
from heldout.core.errors import BadFile, LabelError, NotFound
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
_FIXED = ("image_id", "source")
_NOT_PARAMETERS = {
    "image_filenames",
    "seed",
    "sampling_function",
    "output_filename",
    "starting_from",
}


class _ClassInfo(msgspec.Struct):
    """One class of ``class_info.json``; it has further fields."""

    cid: int
    wnid: str
    synset: tuple[str, ...] = ()
    gloss: str = ""


def read_class_info(path: Path) -> LabelSpace:
    """The label space of a ``class_info.json``: a list of {cid, wnid, synset, gloss}.

    A catalogue that is ImageNet-1k's becomes the built-in ``imagenet-1k``.
    """
    rows = schema.read(path, list[_ClassInfo], fix="give ImageNetV2's class_info.json")
    rows.sort(key=lambda row: row.cid)
    if not rows or [row.cid for row in rows] != list(range(len(rows))):
        raise BadFile(
            path, "has class ids that are not 0, 1, 2, …", fix="number the classes without gaps"
        )
    classes = tuple(Class(row.wnid, row.synset, row.wnid, row.gloss) for row in rows)
    try:
        space = LabelSpace("classes", classes)
    except LabelError as error:
        raise BadFile(path, error.message, fix=error.fix) from None
    known = LabelSpace.load("imagenet-1k")
    if known.fingerprint == space.fingerprint:
        return known
    return LabelSpace(f"classes-{space.fingerprint[:8]}", classes)


def read_order(path: Path) -> list[tuple[str, str]]:
    """The (image id, class id) rows of a dataset file, in its order."""
    return _rows(_object(path, "a dataset"), path)


def _rows(value: dict[str, Any], path: Path) -> list[tuple[str, str]]:
    try:
        rows = msgspec.convert(value.get("image_filenames"), list[tuple[str, str]])
    except msgspec.ValidationError:
        raise BadFile(
            path,
            "has no list image_filenames of [image, class] pairs",
            fix="give a dataset file of ImageNetV2's shape",
        ) from None
    if not rows:
        raise BadFile(path, "lists no images", fix="give a dataset file with images")
    seen: set[str] = set()
    for image, _ in rows:
        if image in seen:
            raise BadFile(path, f"lists image {image!r} twice", fix="keep it under one class")
        seen.add(image)
    return rows


def read_imagenetv2(
    path: Path,
    *,
    name: str | None = None,
    label_space: LabelSpace | None = None,
    review: Path | None = None,
) -> TestSet:
    """A test set from a dataset file and its review file; row order is the file's.

    Reviews (class -> reviewed, problematic) become two columns, which ``audit`` counts.
    """
    value = _object(path, "a dataset")
    rows = _rows(value, path)
    space = label_space or LabelSpace.load("imagenet-1k")
    columns: dict[str, Any] = {
        "image_id": [image for image, _ in rows],
        "source": [part_of(image) for image, _ in rows],
    }
    if review is not None:
        marks = read_review(review)
        for flag in ("reviewed", "problematic"):
            columns[f"class_{flag}"] = [getattr(marks.get(label), flag, None) for _, label in rows]
    types = {name: ColumnType(kind="categorical") for name in columns if name not in _FIXED}
    digest = sha256_file(path)
    parents: list[dict[str, Any]] = [{"file": path.name, "sha256": digest}]
    if review is not None:
        parents.append({"file": review.name, "sha256": sha256_file(review)})
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


class _Review(msgspec.Struct):
    """What a review file says of one class; it may have further fields."""

    reviewed: bool | None = None
    problematic: bool | None = None


def read_review(path: Path) -> dict[str, _Review]:
    """A review file: class -> reviewed, problematic."""
    return _object(path, "classes, each reviewed and problematic or not", _Review)


WHO = "imagenetv2-authors"


def read_class_reviews(path: Path) -> Iterator[Judgement]:
    """``{class: {"reviewed": bool, "problematic": bool}}`` as ``review`` judgements.

    The subject is (test set, class); the set is called as the file without ``_review``. A class that
    is neither reviewed nor problematic has no answer, so it gives no judgement.
    """
    name = path.stem.removesuffix("_review")
    for class_id, marks in sorted(read_review(path).items()):
        if None in (marks.reviewed, marks.problematic):
            raise BadFile(
                path,
                f"{class_id} has no reviewed and problematic marks",
                fix='write {"reviewed": true, "problematic": false}',
            )
        if not marks.reviewed and not marks.problematic:
            continue
        yield Judgement(
            question="review",
            subject={"testset": name, "class_id": class_id},
            answer="problematic" if marks.problematic else "reviewed",
            who=WHO,
            evidence={} if marks.reviewed else {"reviewed": False},
            source=path.name,
            testset=name,
        )


def read_blacklist(path: Path) -> Iterator[Judgement]:
    """``{image: reason}`` as ``review`` judgements: blacklisted, the reason as evidence."""
    for image_id, reason in sorted(_object(path, "images and reasons", str).items()):
        yield Judgement(
            question="review",
            subject={"image_id": image_id},
            answer="blacklisted",
            who=WHO,
            evidence={"reason": reason},
            source=path.name,
        )


def read_near_duplicates(path: Path, *, override: Path | None = None) -> Iterator[Judgement]:
    """``{image: [images]}`` as ``duplicate`` judgements, one per pair, whichever side listed it.

    ``evidence["roots"]`` names the images under which the pair is listed, so nothing is lost.
    ``override`` is a list of images that stay in the test set although they have duplicates.
    An image listed as its own duplicate is left out.
    """
    roots: dict[tuple[str, str], list[str]] = {}
    for root, others in sorted(_duplicates(path).items()):
        for other in set(others) - {root}:
            roots.setdefault((min(root, other), max(root, other)), []).append(root)
    for (one, other), listed in sorted(roots.items()):
        yield Judgement(
            question="duplicate",
            subject=pair_subject(one, other),
            answer="duplicate",
            who=WHO,
            evidence={"roots": sorted(set(listed))},
            source=path.name,
        )
    if override is not None:
        for image_id in sorted(set(schema.read(override, list[_Id], fix="list image ids"))):
            yield Judgement(
                question="duplicate",
                subject={"image_id": image_id},
                answer="keep",
                who=WHO,
                source=override.name,
            )


def read_duplicate_reviews(
    path: Path, near_duplicates: Path | None = None, *, zone: tzinfo = UTC
) -> Iterator[Judgement]:
    """Who looked at which pair when, as ``duplicate`` judgements.

    ``path`` holds ``{image: {metric: {"reviewer", "date", "references": [images]}}}``: the pairs
    that a reviewer saw. Those in ``near_duplicates``, by default the file ``near_duplicates.json``
    beside it, were judged duplicates, the others different. The dates name no time zone; they are
    taken as ``zone``, and kept as written in the evidence.
    """
    near_duplicates = near_duplicates or path.with_name("near_duplicates.json")
    if not near_duplicates.is_file():
        raise NotFound(
            f"{path} does not say which of its pairs are duplicates",
            fix=f"put {near_duplicates.name} beside it",
        )
    listed = {
        frozenset((root, other))
        for root, others in _duplicates(near_duplicates).items()
        for other in others
    }
    for image_id, metrics in sorted(
        _object(path, "images and their reviews", dict[str, _PairReview]).items()
    ):
        for metric, review in sorted(metrics.items()):
            try:
                when = datetime.fromisoformat(review.date)
            except ValueError:
                what = f"{image_id}, {metric} has the date {review.date!r}"
                raise BadFile(path, what, fix="give it as ISO 8601") from None
            evidence = {"seen_from": image_id, "metric": metric, "date": review.date}
            if review.threshold is not msgspec.UNSET:
                evidence["threshold"] = review.threshold
            for other in sorted(set(review.references) - {image_id}):
                known = frozenset((image_id, other)) in listed
                yield Judgement(
                    question="duplicate",
                    subject=pair_subject(image_id, other),
                    answer="duplicate" if known else "different",
                    who=review.reviewer,
                    when=when if when.tzinfo else when.replace(tzinfo=zone),
                    evidence=evidence,
                    source=path.name,
                )


_Id = Annotated[str, msgspec.Meta(min_length=1)]


class _PairReview(msgspec.Struct):
    """Who looked at the references of an image by one metric, and when."""

    reviewer: _Id
    date: str
    references: list[_Id]
    threshold: Any = msgspec.UNSET


def _duplicates(path: Path) -> dict[str, list[str]]:
    return _object(path, "images and their duplicates", list[_Id])


def _object(path: Path, what: str, kind: Any = Any) -> dict[str, Any]:
    """A JSON object with values of one kind; a wrong one is named by its key."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise BadFile(path, f"is not a JSON object of {what}", fix="choose the right file")
    found = {}
    for key, entry in value.items():
        try:
            found[key] = msgspec.convert(entry, kind)
        except msgspec.ValidationError as error:
            plain = str(error).replace("`", "")
            fix = f"give a JSON object of {what}"
            raise BadFile(path, f"{key}: {plain}", fix=fix) from None
    return found
