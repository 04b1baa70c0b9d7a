"""ImageNetV2's revisions: a test set's list with how it was drawn, and the reviews of its classes.

Every revision is kept as a file. A class that was reviewed stays reviewed in the next revision if it
was not problematic and its images are the same (:func:`carried_reviews`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from heldout.core import schema
from heldout.core.errors import BadFile
from heldout.core.workspace import slug
from heldout.data.judgements.for_testset import class_reviews_about
from heldout.data.judgements.judgement import Judgement
from heldout.data.labels.label_space import LabelSpace
from heldout.data.published.imagenetv2 import read_imagenetv2, read_order, read_review
from heldout.data.testset.testset import TestSet

FILE, REVIEW_FILE = "revision.json", "review.json"
"""The documents of a test set that hold its revision and the reviews of its classes."""
FLAGS = ("class_reviewed", "class_problematic")
"""The columns of a test set that say of every image how its class was reviewed."""


class Revision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published dataset file; its fields in the published order, those that it lacks left out.

    A field that is not known is refused: it would be lost when the file is written again.

    ``image_filenames``  (image, class) in the order of the set
    ``is_valid``         whether every class is full
    ``starting_from``    the file of the previous revision
    """

    sampling_function: str | UnsetType = UNSET
    target_size: int | UnsetType = UNSET
    selection_frequency_threshold: float | UnsetType = UNSET
    histogram_bins: list[float] | UnsetType = UNSET
    min_num_annotations: int | UnsetType = UNSET
    min_num_annotations_candidates: int | UnsetType = UNSET
    min_num_annotations_val: int | UnsetType = UNSET
    min_num_val_images_per_wnid: int | UnsetType = UNSET
    near_duplicate_review_targets: dict[str, float] | UnsetType = UNSET
    time_string: str | UnsetType = UNSET
    username: str | UnsetType = UNSET
    seed: int | UnsetType = UNSET
    image_filenames: list[tuple[str, str]]
    is_valid: bool | UnsetType = UNSET
    allow_upward_sampling: bool | UnsetType = UNSET
    starting_from: str | UnsetType = UNSET
    wnid_thresholds: dict[str, float] | UnsetType = UNSET
    output_filename: str | UnsetType = UNSET

    def to_json(self) -> str:
        """The file's text, as it was published."""
        return _text(msgspec.to_builtins(self))


def read_revision(path: Path) -> Revision:
    """A dataset file of the published shape."""
    read_order(path)  # says what is wrong with its list of images
    return schema.read(path, Revision, fix="give a dataset file of ImageNetV2's shape")


def read_listed(path: Path, *, review: Path | None = None) -> TestSet:
    """The test set of a dataset file; classes that are not all ImageNet's are a space of their own."""
    classes = {label for _, label in read_order(path)}
    space = LabelSpace.load("imagenet-1k")
    if not all(label in space for label in classes):
        space = LabelSpace.from_ids(f"{slug(path.stem)}-classes", sorted(classes))
    return read_imagenetv2(path, label_space=space, review=review)


def _text(value: Any, *, sort: bool = False) -> str:
    return json.dumps(value, indent=2, sort_keys=sort)


class ClassReview(NamedTuple):
    """What reviewers said of a class of one revision."""

    reviewed: bool = False
    problematic: bool = False


def carried_reviews(
    reviews: Mapping[str, ClassReview],
    before: Mapping[str, Collection[str]],
    after: Mapping[str, Collection[str]],
) -> dict[str, ClassReview]:
    """The reviews of a revision's classes that hold from the start.

    ``reviews``  those of the previous revision; ``before`` and ``after`` are class -> images

    >>> known = {"a": ClassReview(True), "b": ClassReview(True), "c": ClassReview(True, True)}
    >>> old = {"a": {"1"}, "b": {"2"}, "c": {"3"}}
    >>> found = carried_reviews(known, old, {**old, "b": {"4"}})
    >>> [label for label, review in found.items() if review.reviewed]
    ['a']
    """
    return {
        label: ClassReview(
            reviewed=review.reviewed
            and not review.problematic
            and set(before.get(label, ())) == set(after.get(label, ()))
        )
        for label, review in ((each, reviews.get(each, ClassReview())) for each in sorted(after))
    }


def class_reviews(testset: TestSet, address: str | Path | None = None) -> dict[str, ClassReview]:
    """How the classes of a test set were reviewed: what its columns hold, and judgements over it.

    ``address``  :attr:`~heldout.core.workspace.Workspace.judgements`; without it columns alone
    """
    found: dict[str, ClassReview] = {}
    if all(flag in testset.images.column_names for flag in FLAGS):
        columns = (testset.images[name].to_pylist() for name in ("image_id", *FLAGS))
        flags = {image: given for image, *given in zip(*columns, strict=True)}
        for label, images in images_by_class(testset).items():
            reviewed, problematic = zip(*(flags[image] for image in images), strict=True)
            if any(flag is not None for flag in (*reviewed, *problematic)):
                found[label] = ClassReview(any(reviewed), any(problematic))
    said = [] if address is None else class_reviews_about(testset, address)
    return found | judged_classes(said)


def judged_classes(judgements: Iterable[Judgement]) -> dict[str, ClassReview]:
    """The reviews that judgements of classes give; problematic is what anybody calls so."""
    found: dict[str, ClassReview] = {}
    for given in judgements:
        known = found.get(given.subject["class_id"], ClassReview())
        found[given.subject["class_id"]] = ClassReview(
            known.reviewed or given.evidence.get("reviewed", True),
            known.problematic or given.answer == "problematic",
        )
    return found


def images_by_class(testset: TestSet) -> dict[str, list[str]]:
    """Class -> its images, sorted, in the default truth."""
    truth = testset.truth()
    found: dict[str, list[str]] = {}
    for image, label in sorted(
        zip(truth["image_id"].to_pylist(), truth["class_id"].to_pylist(), strict=True),
        key=lambda row: row[0],
    ):
        if label is not None:
            found.setdefault(label, []).append(image)
    return dict(sorted(found.items()))


def read_reviews(path: Path) -> dict[str, ClassReview]:
    """A review file: class -> reviewed, problematic."""
    return {
        label: ClassReview(bool(given.reviewed), bool(given.problematic))
        for label, given in read_review(path).items()
    }


def reviews_json(reviews: Mapping[str, ClassReview]) -> str:
    """The text of a review file, as it was published."""
    return _text({label: review._asdict() for label, review in reviews.items()}, sort=True)


def review_file_of(path: Path, place: Path) -> Path:
    """The review file of a dataset file: ``place`` itself, or ``<name>_review.json`` in a folder."""
    found = place / f"{path.stem}_review.json" if place.is_dir() else place
    if not found.is_file():
        raise BadFile(found, "is not there", fix=f"give the review file of {path.name}")
    return found
