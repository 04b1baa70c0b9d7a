"""Published answers of people: ImageNet Mistakes, label errors, the raters behind ReaL."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from heldout.core.arrays import load_arrays
from heldout.core.errors import BadFile, UserError
from heldout.core.files import read_json, write_text
from heldout.data.judgements.consensus import Panel, from_codes, subject_key
from heldout.data.judgements.judgement import CATEGORIES, QUESTIONS, SEVERITIES, Judgement


def class_ids(classes: Sequence[str] | None) -> Sequence[str]:
    """The ids in order: ``classes``, or those of ImageNet-1k (WordNet ids) when it is None."""
    if classes is not None:
        return classes
    from heldout.data.labels import LabelSpace

    return LabelSpace.load("imagenet-1k").ids


def class_of(number: object, ids: Sequence[str], path: Path, where: str) -> str:
    """The id of class ``number``; a number outside the label space is the file's fault."""
    if type(number) is not int or not 0 <= number < len(ids):
        raise BadFile(
            path,
            f"{where} names class {number!r}",
            fix=f"class numbers run from 0 to {len(ids) - 1}; give the right list of classes",
        )
    return ids[number]


def _folded(text: object) -> str:
    return " ".join(str(text).replace("-", " ").split()).casefold()


_CATEGORY = {
    **{_folded(name): name for name in CATEGORIES},
    # One category is published under two spellings.
    "fine grained with oov": "Fine-grained error with OOV",
    "fine grained": "Fine-grained error",
}
_SEVERITY = {_folded(name): name for name in SEVERITIES}


def category_name(text: object) -> str | None:
    """A category in our spelling, whatever its hyphens and capitals; None if it is none.

    >>> category_name("fine grained with OOV")
    'Fine-grained error with OOV'
    """
    return _CATEGORY.get(_folded(text))


def severity_name(text: object) -> str | None:
    """A severity in our spelling; None if it is none."""
    return _SEVERITY.get(_folded(text))


def read_mistakes(path: Path, *, classes: Sequence[str] | None = None) -> Iterator[Judgement]:
    """``{image: {"top_prediction", "failure category", "failure severity"}}`` as ``mistake``.

    The subject is (image, prediction), whichever model made it: two files that hold the same
    mistake give the same judgement. Spelling variants of a category become one.
    """
    ids = class_ids(classes)
    rows = read_json(path)
    if not isinstance(rows, dict):
        raise BadFile(path, "is not a JSON object of images", fix="choose the right file")
    for image_id, row in sorted(rows.items()):
        values = row if isinstance(row, dict) else {}
        category = category_name(values.get("failure category"))
        severity = severity_name(values.get("failure severity"))
        if category is None or severity is None:
            raise BadFile(
                path,
                f"{image_id} has category {values.get('failure category')!r} and severity "
                f"{values.get('failure severity')!r}",
                fix=f"use one of {', '.join(CATEGORIES)}; and one of {', '.join(SEVERITIES)}",
            )
        prediction = class_of(values.get("top_prediction"), ids, path, image_id)
        yield Judgement(
            question="mistake",
            subject={"image_id": image_id, "prediction": prediction},
            answer={"category": category, "severity": severity},
            who="imagenet-mistakes-panel",
            source=path.name,
        )


def write_mistakes(
    path: Path,
    verdicts: Mapping[tuple[str, str], tuple[str, str]],
    *,
    classes: Sequence[str] | None = None,
) -> int:
    """Write (image, prediction) -> (category, severity) in the published form; how many.

    The form holds one mistake per image, as it is about one model: two of an image are refused.
    Images are sorted. There is no schema version in it, as the published files have none.
    """
    number = {label: place for place, label in enumerate(class_ids(classes))}
    rows: dict[str, dict[str, str | int]] = {}
    for (image_id, prediction), (category, severity) in sorted(verdicts.items()):
        if image_id in rows:
            raise UserError(
                f"{image_id} has two mistakes, and a file of this form holds one per image",
                fix="export the mistakes of one model with --model",
            )
        if prediction not in number:
            raise UserError(
                f"{image_id}: class {prediction!r} has no number", fix="give the right classes"
            )
        rows[image_id] = {
            "top_prediction": number[prediction],
            "failure category": category,
            "failure severity": severity,
        }
    write_text(path, json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
    return len(rows)


_FIX = "fetch the file again"
_Count = Annotated[int, msgspec.Meta(ge=0)]
_ANSWERS = QUESTIONS["choice"].answers
_AS_LABELS = {
    "given": ("correct", "wrong"),
    "guessed": ("wrong", "correct"),
    "both": ("correct", "correct"),
    "neither": ("wrong", "wrong"),
}


class _LabelError(msgspec.Struct):
    """One suspected error and its votes, by answer; it has further fields."""

    id: int
    mturk: dict[str, Any]
    given_original_label: Any = None
    our_guessed_label: Any = None


def read_label_errors(path: Path, *, classes: Sequence[str] | None = None) -> Iterator[Judgement]:
    """Each vote as a ``choice`` judgement about (image, given class, guessed class).

    ``id`` is the number of an ILSVRC validation image. Only totals are published, so the
    workers ``mturk-1``, ``mturk-2``, ... are places in the count, not people, and carry
    ``evidence["anonymous"]``: who agreed with whom cannot be asked of them.
    """
    ids = class_ids(classes)
    rows = read_json(path)
    if not isinstance(rows, list):
        raise BadFile(path, "is not a JSON list of suspected errors", fix="choose the right file")
    for number, row in enumerate(rows):
        where = f"entry {number}"
        try:
            entry = msgspec.convert(row, _LabelError)
            votes = msgspec.convert([entry.mturk.get(answer) for answer in _ANSWERS], list[_Count])
        except msgspec.ValidationError:
            what = f"{where} has no id and no votes for {', '.join(_ANSWERS)}"
            raise BadFile(path, what, fix=_FIX) from None
        subject = {
            "image_id": f"ILSVRC2012_val_{entry.id:08d}.JPEG",
            "class_id": class_of(entry.given_original_label, ids, path, where),
            "other_class_id": class_of(entry.our_guessed_label, ids, path, where),
        }
        every = [a for a, n in zip(_ANSWERS, votes, strict=True) for _ in range(n)]
        for place, answer in enumerate(every, 1):
            yield Judgement(
                question="choice",
                subject=subject,
                answer=answer,
                who=f"mturk-{place}",
                evidence={"anonymous": True},
                source=path.name,
            )


def choice_as_labels(judgements: Iterable[Judgement]) -> Iterator[Judgement]:
    """Each ``choice`` as two ``label`` judgements, one per class, to be pooled with other labels.

    The choice stays in the evidence.
    """
    for judgement in judgements:
        if judgement.question != "choice" or judgement.answer_key not in _AS_LABELS:
            raise UserError(
                f"{judgement.question} = {judgement.answer_key} is not a choice between two labels",
                fix="pass judgements of the question choice",
            )
        for key, answer in zip(
            ("class_id", "other_class_id"), _AS_LABELS[judgement.answer_key], strict=True
        ):
            yield Judgement(
                question="label",
                subject={
                    "image_id": judgement.subject["image_id"],
                    "class_id": judgement.subject[key],
                },
                answer=answer,
                who=judgement.who,
                when=judgement.when,
                evidence={**judgement.evidence, "choice": judgement.judgement_id},
                source=judgement.source,
                testset=judgement.testset,
            )


IntArray = npt.NDArray[np.int64]
_LABELS = ("wrong", "unclear", "correct")  # no, maybe, yes: the tensor's last axis


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
    pairs, raters, codes = _read(path, classes, images, prefix)
    for rater, pair, answer in zip(*(code.tolist() for code in codes), strict=True):
        image_id, class_id = pairs[pair]
        yield Judgement(
            question="label",
            subject={"class_id": class_id, "image_id": image_id},
            answer=_LABELS[answer],
            who=raters[rater],
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
    pairs, raters, (rater, pair, answer) = _read(path, classes, images, prefix)
    keys = [subject_key({"image_id": image, "class_id": name}) for image, name in pairs]
    order = QUESTIONS["label"].answers
    recode = np.array([order.index(answer) for answer in _LABELS])
    subjects, subject = _compact(keys, pair)
    workers, worker = _compact(raters, rater)
    return from_codes("label", subjects, workers, order, subject, worker, recode[answer])


def _compact(names: list[str], codes: IntArray) -> tuple[tuple[str, ...], IntArray]:
    """Sorted names that occur, and the codes renumbered to them."""
    used = sorted(np.unique(codes).tolist(), key=names.__getitem__)
    number = np.zeros(len(names), dtype=np.int64)
    number[used] = np.arange(len(used))
    return tuple(names[code] for code in used), number[codes]


def _read(
    path: Path, classes: Sequence[str] | None, images: Collection[str] | None, prefix: str
) -> tuple[list[tuple[str, str]], list[str], tuple[IntArray, ...]]:
    """Pairs (image, class id) and raters; then who answered about which pair what, in codes."""
    ids = class_ids(classes)
    info, raters, tensor = load_arrays(path, "info", "ids", "tensor")
    if (
        info.ndim != 2
        or info.shape[1] != 2
        or info.dtype.kind != "U"
        or raters.ndim != 1
        or not len(raters)
    ):
        raise BadFile(path, "holds no (image, class) pairs and rater ids", fix=_FIX)
    shape = (len(raters), len(info), 3)
    if tensor.shape != shape or tensor.dtype.kind not in "buif":
        what = f"holds answers of shape {tensor.shape}, its raters and pairs say {shape}"
        raise BadFile(path, what, fix=_FIX)
    odd = ((tensor != 0) & (tensor != 1)).any(axis=(1, 2)) | (tensor.sum(axis=2) > 1).any(axis=1)
    if odd.any():
        raise BadFile(path, f"rater {raters[odd.argmax()]} gave two answers at once", fix=_FIX)
    pairs = [
        (image, class_of(int(text) if text.isdecimal() else text, ids, path, image))
        for image, text in info.tolist()
    ]
    rater, pair, answer = np.nonzero(tensor)
    if images is not None:
        chosen = frozenset(images)
        wanted = np.array([image in chosen for image, _ in pairs], dtype=bool)[pair]
        rater, pair, answer = rater[wanted], pair[wanted], answer[wanted]
    return pairs, [f"{prefix}-{one}" for one in raters.tolist()], (rater, pair, answer)
