"""Published truths of ImageNet images: multi-label, ReaL, the list ImageNet-M; matching of image ids."""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from heldout.core.arrays import load_arrays
from heldout.core.errors import BadFile, LabelError, MismatchError, NotFound, UserError
from heldout.core.files import existing_file, read_json, sha256_file
from heldout.core.schema import read
from heldout.core.tables import read_table_file, require_column, text_ids
from heldout.data.images.sources import EXTENSIONS
from heldout.data.labels.label_space import ClassFinder, LabelSpace, class_finder
from heldout.data.published.annotations import text_lines
from heldout.data.testset.subset import subset
from heldout.data.testset.tables import truth_table
from heldout.data.testset.testset import TestSet

if TYPE_CHECKING:
    import pyarrow as pa


_VERSIONS = {
    "3d2068a392410a04cee532732c1f0c298e8c69535e1c391a062412ce9bc86602": "3.0.0",
    "d83e9bff374c631aae8439eb064c7019acc56e1b3bc3f56b8380c2a710b0220b": "2020, score cut 0.8",
}
"""SHA-256 of published truth files that do not say their version themselves."""


@dataclass(frozen=True, eq=False)
class TruthFile:
    """A truth read from a file: what ``add_truth(testset, name, table, provenance=...)`` takes.

    ``name``        what to call the truth unless the user says otherwise
    ``provenance``  ``kind`` (single, real or multilabel), ``source`` (file name), ``sha256``,
                    ``version``, ``counts``, ``matching`` of image ids, and what else was found
    ``notes``       what a person should know about the file, one line each
    """

    name: str
    table: pa.Table
    provenance: dict[str, Any]
    notes: tuple[str, ...] = ()


def provenance(
    kind: str,
    path: Path,
    *,
    counts: Mapping[str, int],
    version: str | None = None,
    **further: Any,
) -> dict[str, Any]:
    """The provenance of a truth; ``version`` is looked up by the file's hash where not given."""
    digest = sha256_file(path)
    return {
        "kind": kind,
        "source": path.name,
        "sha256": digest,
        "version": version or _VERSIONS.get(digest, "unknown"),
        "counts": dict(counts),
        **further,
    }


def original_classes(testset: TestSet) -> dict[str, str]:
    """The one class of each image under a set's single-label truth, if it has one: ``original``,
    else the first of kind ``single``.
    """
    single = [name for name, where in testset.card.truths.items() if where.get("kind") == "single"]
    truth = "original" if "original" in testset.truths else next(iter(single), None)
    if truth is None:
        return {}
    table = testset.truth(truth)
    classes: dict[str, str] = {}
    for image, label in zip(
        table["image_id"].to_pylist(), table["class_id"].to_pylist(), strict=True
    ):
        if label is not None and classes.setdefault(image, label) != label:
            raise MismatchError(
                f"truth {truth} of {testset.name} gives image {image!r} two classes",
                fix="name a truth with one class per image",
            )
    return classes


_ILSVRC = re.compile(r"ILSVRC2012_(?:val|test)_\d{8}(?=\Z|[._])")
_VALIDATION = re.compile(r"ILSVRC2012_val_(\d{8})")


@dataclass(frozen=True)
class Match:
    """Which image of a test set each published id means.

    ``image_ids``   the set's id for each published id, or None where the set has no such image
    ``exact``       how many ids are equal
    ``by_name``     how many differ in folder or file ending only
    ``missing``     how many published ids the set does not have
    ``unmentioned`` how many images of the set the file does not mention
    """

    image_ids: tuple[str | None, ...]
    exact: int
    by_name: int
    missing: int
    unmentioned: int

    def to_dict(self) -> dict[str, Any]:
        """How the ids were matched, for a provenance."""
        rule = "file name without folder and ending" if self.by_name else "equal ids"
        return {
            "rule": rule,
            "exact": self.exact,
            "by_name": self.by_name,
            "not_in_testset": self.missing,
            "not_in_file": self.unmentioned,
        }

    def notes(self) -> list[str]:
        """What a person should know about the matching, if anything."""
        found = []
        if self.by_name:
            found.append(
                f"{self.by_name:,} images were matched by file name, without folder and ending"
            )
        if self.missing:
            found.append(f"{self.missing:,} images of the file are not in the test set: left out")
        return found


def name_key(image_id: str) -> str:
    """What stays of an image id without folders and file ending; the number of an ILSVRC image.

    >>> name_key("val/n01440764/ILSVRC2012_val_00000293.JPEG")
    'ILSVRC2012_val_00000293'
    >>> name_key("ILSVRC2012_val_00000293_n01440764.JPEG")
    'ILSVRC2012_val_00000293'
    """
    name = image_id.replace("\\", "/").rsplit("/", 1)[-1]
    known = _ILSVRC.match(name)
    if known:
        return known.group()
    stem, dot, ending = name.rpartition(".")
    return stem if stem and dot + ending.lower() in EXTENSIONS else name


def validation_number(image_id: str) -> int | None:
    """The number in ``ILSVRC2012_val_00000293``, from 1; None for any other image."""
    found = _VALIDATION.fullmatch(name_key(image_id))
    return int(found.group(1)) if found else None


def match_images(testset: TestSet, published: Sequence[str], *, source: str) -> Match:
    """Find each published id in a test set: the equal id, else the one image of the same name.

    A name that several images of the set share, two published ids that mean one image, and a
    file that shares no image with the set are refused. ``source`` names the file in messages.
    """
    ids: list[str] = testset.image_ids.to_pylist()
    known = set(ids)
    by_key: dict[str, list[str]] = {}
    for image in ids:
        by_key.setdefault(name_key(image), []).append(image)
    found: list[str | None] = []
    meant: dict[str, str] = {}
    for given in published:
        fitting = [given] if given in known else by_key.get(name_key(given), [])
        if len(fitting) > 1:
            raise MismatchError(
                f"{source}: {given!r} fits {len(fitting)} images of {testset.name}, such as "
                f"{fitting[0]!r} and {fitting[1]!r}",
                fix="use the ids of the test set in the file",
            )
        found.append(fitting[0] if fitting else None)
        for image_id in fitting:
            if image_id in meant:
                raise MismatchError(
                    f"{source}: names image {image_id!r} of {testset.name} twice, as "
                    f"{meant[image_id]!r} and {given!r}",
                    fix="keep one of them",
                )
            meant[image_id] = given
    if not meant:
        example = f", such as {published[0]!r}" if published else ""
        raise MismatchError(
            f"{source}: none of its {len(published)} images{example} is in test set "
            f"{testset.name}, whose ids look like {ids[0] if ids else '(none)'!r}",
            fix="check that the file belongs to this test set",
        )
    exact = sum(image in known for image in published)
    return Match(
        image_ids=tuple(found),
        exact=exact,
        by_name=len(meant) - exact,
        missing=len(found) - len(meant),
        unmentioned=len(ids) - len(meant),
    )


# The multi-label truth: which labels experts found right for each validation image. Vasudevan,
# Caine, Gontijo-Lopes, Fridovich-Keil, Roelofs: When does dough become a bagel? NeurIPS 2022, after
# Shankar et al., ICML 2020. Published as TFDS imagenet2012_multilabel.

_FIELDS = ("correct", "unclear", "wrong")
_PROPOSED = "proposed_labels"
_FLAGS = {"true": True, "1": True, "false": False, "0": False}


class _Row(NamedTuple):
    """One image as published: class ids in the file's order, repeats kept."""

    image: str
    original: str | None
    labels: Mapping[str, tuple[str, ...]]
    problematic: bool


def read_multilabel(path: Path, *, testset: TestSet) -> TruthFile:
    """The multi-label truth of a test set, from TFDS's source JSON (``.json``) or a CSV export.

    JSON: ``initial_annots`` {image: {correct, wrong, unclear: [WordNet id]}}, keys absent when
    empty, and ``problematic_images``; the original class comes from the set's single-label truth.
    CSV: ``id``, ``original_label``, ``correct_multi_labels`` or ``proposed_labels``,
    ``unclear_multi_labels``, ``wrong_multi_labels``, ``is_problematic``, classes as indices
    separated by commas. Other columns are left out.

    A label that is both correct and wrong stays in both lists, and metrics look at ``correct``
    first: correct takes precedence. Repeats in a list are dropped. Both are counted in the
    provenance. Images that the set does not have are left out and counted.
    """
    existing_file(path, "multi-label file")
    known = original_classes(testset)
    version = None
    if path.suffix.lower() == ".json":
        rows = _json_rows(path, testset.label_space)
        if named := re.search(r"v(\d+\.\d+\.\d+)", path.name):
            version = named[1]
    else:
        rows = _csv_rows(path, testset.label_space)
    match = match_images(testset, [row.image for row in rows], source=path.name)
    kept = [
        (image, row) for image, row in zip(match.image_ids, rows, strict=True) if image is not None
    ]
    classes = [row.original or known.get(image) for image, row in kept]
    if None in classes:
        raise MismatchError(
            f"{path.name}: image {kept[classes.index(None)][0]!r} has no original class",
            fix=f"add a truth with one class per image to {testset.name} first",
        )
    disagree = sum(
        known.get(image, row.original) != row.original for image, row in kept if row.original
    )
    if disagree > len(kept) / 2:
        raise MismatchError(
            f"{path.name}: the original class of {disagree} of {len(kept)} images is another in "
            f"{testset.name}",
            fix="the file is of another set, or its class indices are of another label space",
        )
    published = [row for _, row in kept]
    table = truth_table(
        [image for image, _ in kept],
        classes,
        problematic=[row.problematic for row in published],
        **{field: [list(dict.fromkeys(r.labels[field])) for r in published] for field in _FIELDS},
    )
    counts = {"images": len(published), "problematic": sum(row.problematic for row in published)}
    for field in _FIELDS:
        counts[f"{field}_labels"] = sum(len(row.labels[field]) for row in published)
        counts[f"{field}_images"] = sum(bool(row.labels[field]) for row in published)
    both = sum(not {*row.labels["correct"]}.isdisjoint(row.labels["wrong"]) for row in published)
    given = [labels for row in published for labels in row.labels.values()]
    repeated = sum(len(labels) - len(set(labels)) for labels in given)
    where = provenance(
        "multilabel",
        path,
        version=version,
        counts=counts,
        conflicts={"correct_and_wrong": both, "repeated_labels": repeated},
        matching=match.to_dict(),
        original_differs=disagree,
    )
    notes = match.notes()
    for count, what in (
        (both, "images have a label both correct and wrong: the hit wins"),
        (repeated, "labels are repeated in a list: kept once"),
        (disagree, f"original labels differ from those of {testset.name}"),
    ):
        if count:
            notes.append(f"{count:,} {what}")
    return TruthFile("multilabel", table, where, tuple(notes))


def _json_rows(path: Path, space: LabelSpace) -> list[_Row]:
    value = read_json(path)
    annotations = value.get("initial_annots") if isinstance(value, dict) else None
    if not isinstance(annotations, dict) or not annotations:
        raise BadFile(
            path, "has no object initial_annots", fix="give human_accuracy_v3.0.0.json of TFDS"
        )
    flagged = value.get("problematic_images", {})
    if not isinstance(flagged, dict | list):
        raise BadFile(path, "problematic_images is not an object", fix="fetch the file again")
    find = class_finder(space, "id")
    rows = []
    for image, given in sorted(annotations.items()):
        lists = {f: given.get(f, []) for f in _FIELDS} if isinstance(given, dict) else {}
        if not lists or not all(isinstance(labels, list) for labels in lists.values()):
            raise BadFile(
                path, f"image {image!r} has no lists of labels", fix="fetch the file again"
            )
        labels = {field: _classes(lists[field], find, path, image) for field in _FIELDS}
        rows.append(_Row(image, None, labels, image in flagged))
    return rows


def _csv_rows(path: Path, space: LabelSpace) -> list[_Row]:
    table = read_table_file(path)
    images = text_ids(require_column(table, "id", path, "the image"), path)
    cells = {"original": require_column(table, "original_label", path, "the class").to_pylist()}
    for field in _FIELDS:
        name = f"{field}_multi_labels"
        if field == "correct" and name not in table.column_names:
            name = _PROPOSED if _PROPOSED in table.column_names else name
        cells[field] = require_column(table, name, path, f"the {field} labels").to_pylist()
    flags = require_column(table, "is_problematic", path, "problematic images").to_pylist()
    find = class_finder(space, "index")
    rows = []
    for number, image in enumerate(images):
        flag = _FLAGS.get(str(flags[number]).strip().lower())
        if flag is None:
            raise BadFile(
                path,
                f"image {image!r} has is_problematic {flags[number]!r}",
                fix="write True or False",
            )
        labels = {}
        for field, values in cells.items():
            cell = values[number]
            parts = [] if cell is None else [part.strip() for part in str(cell).split(",")]
            labels[field] = _classes(parts, find, path, image)
        first = labels.pop("original")
        if len(first) != 1:
            raise BadFile(
                path, f"image {image!r} has {len(first)} original labels", fix="give exactly one"
            )
        rows.append(_Row(image, first[0], labels, flag))
    return rows


def _classes(values: Iterable[Any], find: ClassFinder, path: Path, image: str) -> tuple[str, ...]:
    try:
        return tuple(find(value).id for value in values)
    except LabelError as error:
        raise BadFile(path, f"image {image!r}: {error.message}", fix=error.fix) from None


# ImageNet-M: the 68 validation images that strong models still get plainly wrong (the same paper).
# A model's result is how many of them it gets right under the multi-label truth.

CITATION = (
    "Vasudevan, Caine, Gontijo-Lopes, Fridovich-Keil, Roelofs: When does dough become a bagel? "
    "Analyzing the remaining mistakes on ImageNet, NeurIPS 2022"
)


def read_image_list(path: Path) -> list[str]:
    """File names from a text file (one per line), a JSON list, or the key ``imagenet_m`` of TFDS's
    source JSON. Empty lines and lines that start with ``#`` are left out; a repeat is refused.
    """
    existing_file(path, "list of images")
    if path.suffix.lower() == ".json":
        value = read_json(path)
        if isinstance(value, dict):
            value = value.get("imagenet_m")
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise BadFile(
                path,
                "is neither a list of file names nor an object with a list imagenet_m",
                fix="give a JSON list, a text file, or human_accuracy_v3.0.0.json of TFDS",
            )
        names = [item.strip() for item in value]
    else:
        lines = text_lines(path, "list of images")
        names = [line for line in lines if line and not line.startswith("#")]
    if not names:
        raise BadFile(path, "lists no images", fix="name each image")
    repeated = [name for name, count in sorted(Counter(names).items()) if count > 1]
    if repeated:
        raise BadFile(path, f"names {repeated[0]!r} twice", fix="name each image once")
    return names


def read_imagenet_m(path: Path, *, parent: TestSet, name: str = "imagenet-m") -> TestSet:
    """ImageNet-M as a subset of ``parent``, judged by its multi-label truth.

    The first truth of kind ``multilabel`` becomes the default truth. Every image of the list must
    be in the parent and have that truth.
    """
    names = read_image_list(path)
    kinds = {name: where.get("kind") for name, where in parent.card.truths.items()}
    judge = next((name for name, kind in kinds.items() if kind == "multilabel"), None)
    if judge is None:
        raise NotFound(
            f"test set {parent.name} has no multi-label truth",
            fix="add one with heldout import truth, from multilabel.csv or "
            "human_accuracy_v3.0.0.json",
        )
    match = match_images(parent, names, source=path.name)
    # Names that mean no image stay as they are: the choice below refuses them.
    chosen = [found or given for given, found in zip(names, match.image_ids, strict=True)]
    made = subset(
        parent,
        chosen,
        name=name,
        recipe={"name": "imagenet-m", "parameters": {"truth": judge}, "seed": None},
        truths=[judge, *(other for other in parent.truths if other != judge)],
        parents=[{"file": path.name, "sha256": sha256_file(path)}],
        citation=CITATION,
        notes=[f"images matched by {match.to_dict()['rule']}"],
    )
    judged = set(parent.truth(judge)["image_id"].to_pylist())
    without = [image for image in chosen if image not in judged]
    if without:
        raise MismatchError(
            f"{path.name}: {len(without)} of {len(names)} images have no truth {judge} in "
            f"{parent.name}, such as {without[0]!r}",
            fix="name another truth, or add the multi-label truth of these images",
        )
    truths = {**made.card.truths, judge: {**made.card.truths[judge], "metrics": ["accepted"]}}
    return replace(made, card=made.card.updated(truths=truths))


RELEASED_CUT = 0.8
"""ReaL's ``real.json`` holds the labels of ``scores.npz`` at or above this score."""


def read_real(path: Path, *, testset: TestSet) -> TruthFile:
    """The ReaL truth of a test set, from ``real.json``: a list of label lists by validation number.

    List i belongs to ``ILSVRC2012_val_{i+1:08d}``; the set's images are found by that number in
    their ids. An empty list means that no label is right: the metric ``real`` leaves it out.
    """
    last = len(testset.label_space) - 1
    kind = list[list[Annotated[int, msgspec.Meta(ge=0, le=last)]]]
    value = read(path, kind, fix="give ReaL's real.json, or name its label space")
    numbers = _validation_numbers(testset, path)
    for image, number in numbers.items():
        if not 1 <= number <= len(value):
            raise MismatchError(
                f"{path.name}: has {len(value)} lists and none for {image!r}",
                fix="give the whole real.json",
            )
    lists = {image: sorted(set(value[number - 1])) for image, number in numbers.items()}
    repeated = sum(len(value[number - 1]) - len(lists[image]) for image, number in numbers.items())
    return _real_truth(path, testset, lists, {"repeated_labels": repeated})


def read_real_scores(path: Path, *, testset: TestSet, cut: float = RELEASED_CUT) -> TruthFile:
    """The ReaL truth at a score cut, from ``scores.npz``: labels with ``score >= cut`` are right.

    ``tensor`` holds a score in 0..1 for each of the (file, class index) pairs of ``info``.
    Validation images without any pair were not put to raters and keep their original label, so
    the set needs a truth with one class per image.
    """
    if not 0 <= cut <= 1:  # nor is NaN
        raise UserError(f"{cut} is not a score cut", fix="give a number from 0 to 1, such as 0.8")
    space = testset.label_space
    right = _labels_above(path, cut, classes=len(space))
    numbers = _validation_numbers(testset, path)
    known = original_classes(testset)
    lists: dict[str, list[int]] = {}
    for image, number in numbers.items():
        if number in right:
            lists[image] = sorted(right[number])
        elif image in known:
            lists[image] = [space.index(known[image])]
        else:
            raise MismatchError(
                f"{path.name}: image {image!r} has no scores, and {testset.name} no original class "
                "for it",
                fix="add a truth with one class per image first",
            )
    kept = sum(number not in right for number in numbers.values())
    if kept == len(numbers):
        raise MismatchError(
            f"{path.name}: none of its images is in test set {testset.name}",
            fix="check that the file belongs to this test set",
        )
    return _real_truth(path, testset, lists, {"kept_original": kept}, cut=cut)


def _labels_above(path: Path, cut: float, *, classes: int) -> dict[int, set[int]]:
    """Labels at or above the cut by validation number, of every image that has scores at all."""
    scores, pairs = load_arrays(path, "tensor", "info")
    if (
        scores.ndim != 1
        or scores.dtype.kind != "f"
        or pairs.shape != (len(scores), 2)
        or pairs.dtype.kind not in "US"
        or len(scores) == 0
    ):
        raise BadFile(
            path,
            f"has scores of shape {scores.shape} and pairs of shape {pairs.shape}",
            fix="give ReaL's scores.npz: n scores and n pairs of file and class index",
        )
    if not ((scores >= 0) & (scores <= 1)).all():  # NaN fails both
        raise BadFile(path, "has scores that are not in 0..1", fix="fetch the file again")
    right: dict[int, set[int]] = {}
    for (file, label), score in zip(pairs.astype(str).tolist(), scores.tolist(), strict=True):
        number = validation_number(file)
        if number is None or not label.isdecimal() or int(label) >= classes:
            raise BadFile(
                path,
                f"has the pair ({file!r}, {label!r})",
                fix="pairs are a validation file and a class index",
            )
        labels = right.setdefault(number, set())
        if score >= cut:
            labels.add(int(label))
    return right


def _validation_numbers(testset: TestSet, path: Path) -> dict[str, int]:
    """The set's validation images with their numbers, in the set's order."""
    taken: dict[int, str] = {}
    for image in testset.image_ids.to_pylist():
        number = validation_number(image)
        if number is not None and taken.setdefault(number, image) != image:
            raise MismatchError(
                f"{path.name}: {taken[number]!r} and {image!r} of {testset.name} are both "
                f"validation image {number}",
                fix="keep one of them",
            )
    if not taken:
        raise MismatchError(
            f"{path.name}: test set {testset.name} has no images named ILSVRC2012_val_…",
            fix="ReaL labels are of the ImageNet validation images",
        )
    return {image: number for number, image in taken.items()}


def _real_truth(
    path: Path,
    testset: TestSet,
    lists: Mapping[str, Sequence[int]],
    found: Mapping[str, int],
    *,
    cut: float | None = None,
) -> TruthFile:
    known = original_classes(testset)
    correct = [[testset.label_space.ids[label] for label in labels] for labels in lists.values()]
    originals = [known.get(image) for image in lists]
    counts = {
        "images": len(lists),
        "empty": sum(not labels for labels in correct),
        "labels": sum(map(len, correct)),
        "several_labels": sum(len(labels) > 1 for labels in correct),
        "original_is_right": sum(map(operator.contains, correct, originals)),
        **found,
    }
    absent = len(testset) - len(lists)
    where = provenance(
        "real",
        path,
        counts=counts,
        version=None if cut is None else f"score cut {cut:g}",
        matching={"rule": "validation number in the image id", "not_in_file": absent},
        **({} if cut is None else {"cut": cut}),
    )
    notes = [f"{counts['empty']:,} images have no right label: left out of the metric real"]
    if absent:
        notes.append(f"{absent:,} images of {testset.name} are not in the file")
    name = "real" if cut in (None, RELEASED_CUT) else f"real-{cut:g}"
    return TruthFile(
        name, truth_table(list(lists), originals, correct=correct), where, tuple(notes)
    )
