"""ReaL: reassessed labels of ImageNet validation images, and the raters' answers behind them."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from heldout.core.arrays import load_arrays
from heldout.core.errors import BadFile, MismatchError, UserError
from heldout.core.files import existing_file, read_json
from heldout.data.judgements.consensus import Panel, from_codes, subject_key
from heldout.data.judgements.judgement import QUESTIONS, Judgement
from heldout.data.labels.label_space import LabelSpace
from heldout.data.published.mistakes import class_ids, class_of
from heldout.data.published.truth_file import (
    TruthFile,
    original_classes,
    provenance,
    validation_number,
)
from heldout.data.testset.tables import truth_table
from heldout.data.testset.testset import TestSet

RELEASED_CUT = 0.8
"""``real.json`` holds the labels of ``scores.npz`` at or above this score."""


def read_real(
    path: Path,
    *,
    testset: TestSet,
    label_space: LabelSpace | None = None,
    original: str | None = None,
    version: str | None = None,
) -> TruthFile:
    """The ReaL truth of a test set, from ``real.json``: a list of label lists by validation number.

    List i belongs to ``ILSVRC2012_val_{i+1:08d}``; the set's images are found by that number in
    their ids. An empty list means that no label is right: the metric ``real`` leaves it out.
    """
    space = label_space or LabelSpace.load("imagenet-1k")
    value = read_json(path)
    if not isinstance(value, list) or not value:
        raise BadFile(path, "is not a list of lists of class indices", fix="give ReaL's real.json")
    for number, labels in enumerate(value, start=1):
        if not isinstance(labels, list) or not all(
            type(label) is int and 0 <= label < len(space) for label in labels
        ):
            raise BadFile(
                path,
                f"list {number} is not a list of class indices in 0..{len(space) - 1}",
                fix="give ReaL's real.json, or name its label space",
            )
    numbers = _numbers(testset, path, last=len(value))
    lists = {image: sorted(set(value[number - 1])) for image, number in numbers.items()}
    repeated = sum(len(value[number - 1]) - len(lists[image]) for image, number in numbers.items())
    return _truth(path, testset, space, lists, original, version, {"repeated_labels": repeated})


def read_real_scores(
    path: Path,
    *,
    testset: TestSet,
    cut: float = RELEASED_CUT,
    label_space: LabelSpace | None = None,
    original: str | None = None,
    version: str | None = None,
) -> TruthFile:
    """The ReaL truth at a score cut, from ``scores.npz``: labels with ``score >= cut`` are right.

    ``tensor`` holds a score in 0..1 for each of the (file, class index) pairs of ``info``.
    Validation images without any pair were not put to raters and keep their original label, so
    the set needs a truth with one class an image.
    """
    if not (math.isfinite(cut) and 0 <= cut <= 1):
        raise UserError(f"{cut} is no score cut", fix="give a number from 0 to 1, such as 0.8")
    space = label_space or LabelSpace.load("imagenet-1k")
    scores, pairs = load_arrays(path, "tensor", "info")
    right, scored = _scored_labels(scores, pairs, path, cut=cut, classes=len(space))
    numbers = _numbers(testset, path, last=None)
    known = original_classes(testset, original)
    lists: dict[str, list[int]] = {}
    for image, number in numbers.items():
        if number in scored:
            lists[image] = sorted(right.get(number, ()))
        elif image in known:
            lists[image] = [space.index(known[image])]
        else:
            raise MismatchError(
                f"{path.name}: image {image!r} has no scores, and {testset.name} no original class "
                "for it",
                fix="add a truth with one class an image first",
            )
    kept = sum(number not in scored for number in numbers.values())
    if kept == len(numbers):
        raise MismatchError(
            f"{path.name}: none of its images is in test set {testset.name}",
            fix="check that the file belongs to this test set",
        )
    version = version or f"score cut {cut:g}"
    name = "real" if cut == RELEASED_CUT else f"real-{cut:g}"
    found = {"kept_original": kept}
    return _truth(path, testset, space, lists, original, version, found, name=name, cut=cut)


def _scored_labels(
    scores: np.ndarray, pairs: np.ndarray, path: Path, *, cut: float, classes: int
) -> tuple[dict[int, list[int]], set[int]]:
    """Validation number -> labels at or above the cut, and the numbers that have scores at all."""
    if (
        scores.ndim != 1
        or not np.issubdtype(scores.dtype, np.floating)
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
    right: dict[int, list[int]] = {}
    seen: set[tuple[int, int]] = set()
    for (file, label), score in zip(pairs.astype(str).tolist(), scores.tolist(), strict=True):
        number = validation_number(file)
        if number is None or not label.isdecimal() or int(label) >= classes:
            raise BadFile(
                path,
                f"has the pair ({file!r}, {label!r})",
                fix="pairs are a validation file and a class index",
            )
        if (number, int(label)) in seen:
            raise BadFile(path, f"has two scores for class {label} of {file}", fix="keep one")
        seen.add((number, int(label)))
        if score >= cut:
            right.setdefault(number, []).append(int(label))
    return right, {number for number, _ in seen}


def _numbers(testset: TestSet, path: Path, *, last: int | None) -> dict[str, int]:
    """The set's validation images with their numbers, in the set's order."""
    numbers: dict[str, int] = {}
    taken: dict[int, str] = {}
    for image in testset.image_ids.to_pylist():
        number = validation_number(image)
        if number is None:
            continue
        if number in taken:
            raise MismatchError(
                f"{path.name}: {taken[number]!r} and {image!r} of {testset.name} are both "
                f"validation image {number}",
                fix="keep one of them",
            )
        if last is not None and not 1 <= number <= last:
            raise MismatchError(
                f"{path.name}: has {last} lists and none for {image!r}",
                fix="give the whole real.json",
            )
        taken[number] = image
        numbers[image] = number
    if not numbers:
        raise MismatchError(
            f"{path.name}: test set {testset.name} has no images named ILSVRC2012_val_…",
            fix="ReaL labels are of the ImageNet validation images",
        )
    return numbers


def _truth(
    path: Path,
    testset: TestSet,
    space: LabelSpace,
    lists: dict[str, list[int]],
    original: str | None,
    version: str | None,
    found: dict[str, int],
    *,
    name: str = "real",
    **further: Any,
) -> TruthFile:
    known = original_classes(testset, original)
    correct = [[space.ids[label] for label in labels] for labels in lists.values()]
    table = truth_table(list(lists), [known.get(image) for image in lists], correct=correct)
    counts = {
        "images": len(lists),
        "empty": sum(not labels for labels in correct),
        "labels": sum(map(len, correct)),
        "several_labels": sum(len(labels) > 1 for labels in correct),
        "original_is_right": sum(
            known.get(image) in labels for image, labels in zip(lists, correct, strict=True)
        ),
        **found,
    }
    matching: dict[str, Any] = {
        "rule": "validation number in the image id",
        "not_in_file": len(testset) - len(lists),
    }
    where = provenance("real", path, counts=counts, version=version, matching=matching, **further)
    notes = [f"{counts['empty']:,} images have no right label: left out of the metric real"]
    if matching["not_in_file"]:
        notes.append(f"{matching['not_in_file']:,} images of {testset.name} are not in the file")
    return TruthFile(name, table, where, tuple(notes))


IntArray = npt.NDArray[np.int64]
_ANSWERS = ("wrong", "unclear", "correct")  # no, maybe, yes: the tensor's last axis
_FIX = "fetch the file again"


@dataclass(frozen=True, eq=False)
class _Answers:
    """Who gave which answer about which pair, in codes; ``pairs`` are (image, class id)."""

    pairs: list[tuple[str, str]]
    raters: list[str]
    rater: IntArray
    pair: IntArray
    answer: IntArray


def read_real_answers(
    path: Path,
    *,
    classes: Sequence[str] | None = None,
    images: Collection[str] | None = None,
    prefix: str = "real",
) -> Iterator[Judgement]:
    """Each answer as a ``label`` judgement about (image, class): yes is correct, maybe unclear.

    ``images`` restricts to these images. Raters are named ``<prefix>-<id>``.
    """
    found = _read(path, classes, images, prefix)
    for rater, pair, answer in zip(
        found.rater.tolist(), found.pair.tolist(), found.answer.tolist(), strict=True
    ):
        image_id, class_id = found.pairs[pair]
        yield Judgement(
            question="label",
            subject={"class_id": class_id, "image_id": image_id},
            answer=_ANSWERS[answer],
            who=found.raters[rater],
            source=path.name,
        )


def read_real_panel(
    path: Path,
    *,
    classes: Sequence[str] | None = None,
    images: Collection[str] | None = None,
    prefix: str = "real",
) -> Panel:
    """The same answers as a panel at once, for consensus over all of them in seconds."""
    found = _read(path, classes, images, prefix)
    keys = [subject_key({"image_id": image, "class_id": name}) for image, name in found.pairs]
    order = QUESTIONS["label"].answers
    recode = np.array([order.index(answer) for answer in _ANSWERS])
    subjects, subject = _compact(keys, found.pair)
    workers, worker = _compact(found.raters, found.rater)
    return from_codes("label", subjects, workers, order, subject, worker, recode[found.answer])


def _compact(names: list[str], codes: IntArray) -> tuple[tuple[str, ...], IntArray]:
    """Sorted names that occur, and the codes renumbered to them."""
    used = sorted(np.unique(codes).tolist(), key=names.__getitem__)
    number = np.zeros(len(names), dtype=np.int64)
    number[used] = np.arange(len(used))
    return tuple(names[code] for code in used), number[codes]


def _read(
    path: Path, classes: Sequence[str] | None, images: Collection[str] | None, prefix: str
) -> _Answers:
    ids = class_ids(classes)
    with _members(existing_file(path, "file of ReaL answers")) as archive:
        info, raters = _array(path, archive, "info"), _array(path, archive, "ids")
        if info.ndim != 2 or info.shape[1] != 2 or info.dtype.kind != "U" or raters.ndim != 1:
            raise BadFile(path, "holds no (image, class) pairs and rater ids", fix=_FIX)
        pairs = [
            (image, class_of(_number(text), ids, path, image)) for image, text in info.tolist()
        ]
        wanted = None
        if images is not None:
            chosen = frozenset(images)
            wanted = np.array([image in chosen for image, _ in pairs], dtype=bool)
        if not len(raters):
            raise BadFile(path, "holds no raters", fix=_FIX)
        columns: list[tuple[IntArray, IntArray, IntArray]] = []
        for rater, cells in enumerate(_slabs(path, archive, (len(raters), len(pairs), 3))):
            if not np.isin(cells, (0, 1)).all() or (cells.sum(axis=1) > 1).any():
                raise BadFile(path, f"rater {raters[rater]} gave two answers at once", fix=_FIX)
            pair, answer = np.nonzero(cells if wanted is None else cells * wanted[:, None])
            columns.append((np.full(len(pair), rater, dtype=np.int64), pair, answer))
    names = [f"{prefix}-{rater}" for rater in raters.tolist()]
    who, what, which = (np.concatenate(column) for column in zip(*columns, strict=True))
    return _Answers(pairs, names, who, what, which)


def _number(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() else text


@contextmanager
def _members(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError) as error:
        raise BadFile(path, f"is not a readable .npz file ({error})", fix=_FIX) from None


def _open(path: Path, archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    try:
        return archive.open(f"{name}.npy")
    except KeyError:
        raise BadFile(
            path, f"holds no array {name!r}", fix="choose raters.npz or golden.npz"
        ) from None


def _array(path: Path, archive: zipfile.ZipFile, name: str) -> npt.NDArray[Any]:
    with _open(path, archive, name) as handle:
        array: npt.NDArray[Any] = np.lib.format.read_array(handle, allow_pickle=False)
    return array


def _slabs(
    path: Path, archive: zipfile.ZipFile, shape: tuple[int, int, int]
) -> Iterator[npt.NDArray[Any]]:
    """The tensor one rater at a time: arrays of shape (pairs, 3)."""
    with _open(path, archive, "tensor") as handle:
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(np.lib.format.read_magic(handle))
        if read_header is None:
            raise BadFile(path, "holds an array of an unknown version", fix=_FIX)
        found, fortran, dtype = read_header(handle)
        if found != shape or fortran or dtype.kind not in "buif":
            raise BadFile(
                path, f"holds answers of shape {found}, its raters and pairs say {shape}", fix=_FIX
            )
        size = shape[1] * shape[2] * dtype.itemsize
        for _ in range(shape[0]):
            data = handle.read(size)
            if len(data) != size:
                raise BadFile(path, "breaks off", fix=_FIX)
            yield np.frombuffer(data, dtype=dtype).reshape(shape[1:])
