"""ImageNetV2's JSON: dataset files, reviews, blacklist and near duplicates."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, tzinfo
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import msgspec

from heldout.core import schema
from heldout.core.errors import BadFile, LabelError, NotFound
from heldout.core.files import read_json, sha256_file
from heldout.core.workspace import slug
from heldout.data.judgements.consensus import current_answers, standing_answers
from heldout.data.judgements.duplicates import verdicts
from heldout.data.judgements.judgement import Judgement
from heldout.data.labels.label_space import Class, LabelSpace
from heldout.data.labels.wordnet import BUILT_IN
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


def read_classes(text: str) -> LabelSpace:
    """The label space that ``--classes`` names: built in, a label-space file or class_info.json."""
    if text in BUILT_IN:
        return LabelSpace.load(text)
    path = Path(text)
    if not path.is_file():
        raise NotFound(
            f"no label space {text!r}", fix=f"give a file, or one of {', '.join(BUILT_IN)}"
        )
    value = read_json(path)
    return read_class_info(path) if isinstance(value, list) else LabelSpace.read(path)


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


def read_near_duplicates(path: Path) -> Iterator[Judgement]:
    """``{image: [images]}`` as ``duplicate`` judgements, one per pair, whichever side listed it.

    ``evidence["roots"]`` names the images under which the pair is listed. Lists are sorted; of one
    that is not, ``evidence["places"]`` says where in it the image is. An image that is listed under
    itself is a pair with itself, and an empty list says that this pair is ``different``:
    :func:`near_duplicates` makes the same lists again.
    """
    listed = _duplicates(path)
    places: dict[tuple[str, str], dict[str, list[int]]] = {}
    for root, others in listed.items():
        for place, other in enumerate(others):
            pair = min(root, other), max(root, other)
            places.setdefault(pair, {}).setdefault(root, []).append(place)
        if not others:
            places[root, root] = {root: []}
    for (one, other), by_root in sorted(places.items()):
        unsorted = {root: at for root, at in sorted(by_root.items()) if not _in_order(listed[root])}
        yield Judgement(
            question="duplicate",
            subject={"image_id": one, "other_id": other},
            answer="duplicate" if any(by_root.values()) else "different",
            who=WHO,
            evidence={"roots": sorted(by_root)} | ({"places": unsorted} if unsorted else {}),
            source=path.name,
        )


def read_duplicate_overrides(path: Path) -> Iterator[Judgement]:
    """``[images]`` that stay in the test set although they have duplicates, as ``keep`` judgements."""
    listed = schema.read(path, list[_Id], fix="give a JSON list of image ids")
    for image_id in sorted(set(listed)):
        places = [place for place, other in enumerate(listed) if other == image_id]
        yield Judgement(
            question="duplicate",
            subject={"image_id": image_id},
            answer="keep",
            who=WHO,
            evidence={} if _in_order(listed) else {"places": places},
            source=path.name,
        )


def read_duplicate_reviews(
    path: Path, near_duplicates: Path | None = None, *, zone: tzinfo = UTC
) -> Iterator[Judgement]:
    """Who looked at which pair when, as ``duplicate`` judgements.

    ``path`` holds ``{image: {metric: {"reviewer", "date", "references": [images]}}}``: the pairs
    that a reviewer saw. Those in ``near_duplicates``, by default the file ``near_duplicates.json``
    beside it, were judged duplicates, the others different. The dates name no time zone; they are
    taken as ``zone``, and kept as written in the evidence. Of references that are not sorted
    ``evidence["place"]`` is kept; a review without any is one of the image with itself, with
    ``evidence["references"]`` empty: :func:`duplicate_reviews` makes the same reviews again.
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
        if not metrics:
            raise BadFile(path, f"{image_id} has no review", fix="leave the image out")
        for metric, review in sorted(metrics.items()):
            try:
                when = datetime.fromisoformat(review.date)
            except ValueError:
                what = f"{image_id}, {metric} has the date {review.date!r}"
                raise BadFile(path, what, fix="give it as ISO 8601") from None
            seen: dict[str, Any] = {"seen_from": image_id, "metric": metric, "date": review.date}
            if review.threshold is not msgspec.UNSET:
                seen["threshold"] = review.threshold
            if not review.references:
                seen["references"] = []
            in_order = _in_order(review.references)
            for place, other in enumerate(review.references or [image_id]):
                known = frozenset((image_id, other)) in listed
                yield Judgement(
                    question="duplicate",
                    subject={
                        "image_id": min(image_id, other),
                        "other_id": max(image_id, other),
                    },
                    answer="duplicate" if known else "different",
                    who=review.reviewer,
                    when=when if when.tzinfo else when.replace(tzinfo=zone),
                    evidence=seen if in_order else {**seen, "place": place},
                    source=path.name,
                )


def _in_order(listed: list[str]) -> bool:
    """Whether a list is sorted and names nothing twice, so that its order need not be kept."""
    return all(one < other for one, other in pairwise(listed))


def near_duplicates(judgements: Iterable[Judgement]) -> dict[str, list[str]]:
    """The pairs that are duplicates as ``near_duplicates.json`` has them: image -> images.

    A pair that :func:`read_near_duplicates` did not read is listed under the smaller id.
    """
    given = standing_answers(judgements)
    held = {pair for pair, verdict in verdicts(given).items() if verdict.answer == "duplicate"}
    roots: dict[tuple[str, str], dict[str, list[float]]] = {pair: {} for pair in held}
    found: dict[str, list[tuple[float, str]]] = {}
    for judgement in given:
        pair = judgement.subject["image_id"], judgement.subject.get("other_id", "")
        evidence = judgement.evidence
        for root in evidence.get("roots", ()):
            if pair in roots:
                roots[pair].setdefault(root, []).extend(evidence.get("places", {}).get(root, ()))
            elif judgement.answer == "different":
                found.setdefault(root, [])  # an empty list
    for (one, other), by_root in roots.items():
        for root, places in (by_root or {one: []}).items():
            entry = other if root == one else one
            at = sorted(set(places)) or [math.inf]
            found.setdefault(root, []).extend((place, entry) for place in at)
    return {root: [other for _, other in sorted(found[root])] for root in sorted(found)}


def duplicate_overrides(judgements: Iterable[Judgement]) -> list[str]:
    """The images that stay although they have duplicates: ``near_duplicate_resolution_override.json``."""
    found: dict[str, set[float]] = {}
    for judgement in current_answers(judgements):
        if judgement.answer == "keep" and "other_id" not in judgement.subject:
            places = judgement.evidence.get("places", ())
            found.setdefault(judgement.subject["image_id"], set()).update(places)
    places = [(at, image) for image, known in found.items() for at in (known or {math.inf})]
    return [image for _, image in sorted(places)]


def duplicate_reviews(judgements: Iterable[Judgement]) -> dict[str, dict[str, dict[str, Any]]]:
    """Who compared an image with which others, by metric: ``nearest_neighbor_reviews_v2.json``.

    Listed are answers with a time whose evidence says ``seen_from`` and ``metric``. Where several
    reviews are of one image and metric, the last is named; references of the others follow its own.
    """
    reviews: dict[tuple[str, str], list[Judgement]] = {}
    for judgement in standing_answers(judgements):
        evidence = judgement.evidence
        timed = "date" in evidence or judgement.when is not None
        if timed and {"seen_from", "metric"} <= evidence.keys() and "other_id" in judgement.subject:
            reviews.setdefault((evidence["seen_from"], evidence["metric"]), []).append(judgement)
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for (image_id, metric), given in sorted(reviews.items()):
        found.setdefault(image_id, {})[metric] = _review_of(image_id, given)
    return found


def _review_of(image_id: str, given: list[Judgement]) -> dict[str, Any]:
    """The review of one image by one metric that some judgements are."""
    last = max(given, key=lambda judgement: judgement.recency)
    evidence = last.evidence
    entries: set[tuple[bool, float, str]] = set()
    for judgement in given:
        one, other = judgement.subject["image_id"], judgement.subject["other_id"]
        if judgement.evidence.get("references") != []:
            earlier = (judgement.who, judgement.when) != (last.who, last.when)
            place = judgement.evidence.get("place", math.inf)
            entries.add((earlier, place, other if one == image_id else one))
    references: list[str] = []
    for earlier, place, other in sorted(entries):
        # Only places of the last review tell that it lists a reference twice.
        if (place < math.inf and not earlier) or other not in references:
            references.append(other)
    review = {"reviewer": last.who, "date": evidence.get("date", last.when)}
    more = {"threshold": evidence["threshold"]} if "threshold" in evidence else {}
    return {**review, "references": references, **more}


_Id = Annotated[str, msgspec.Meta(min_length=1)]


class _PairReview(msgspec.Struct, forbid_unknown_fields=True):
    """Who looked at the references of an image by one metric, and when.

    A field that is not known is refused: it would be lost when the reviews are written again.
    """

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
