"""ImageNet Mistakes: the panel's verdicts on wrong predictions, with category and severity.

V. Vasudevan et al., "When does dough become a bagel? Analyzing the remaining mistakes on ImageNet",
NeurIPS 2022.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from heldout.core.errors import BadFile, UserError
from heldout.core.files import read_json, write_text
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.questions import CATEGORIES, SEVERITIES
from heldout.data.published.class_numbers import class_ids, class_of

WHO = "imagenet-mistakes-panel"


def _folded(text: object) -> str:
    return " ".join(str(text).replace("-", " ").split()).casefold()


_CATEGORY = {
    **{_folded(name): name for name in CATEGORIES},
    # One category is published under two spellings.
    "fine grained with oov": "Fine-grained error with OOV",
    "fine grained": "Fine-grained error",
}
_SEVERITY = {_folded(name): name for name in SEVERITIES}


def category_name(text: str) -> str | None:
    """A category in our spelling, whatever its hyphens and capitals; None if it is none.

    >>> category_name("fine grained with OOV")
    'Fine-grained error with OOV'
    """
    return _CATEGORY.get(_folded(text))


def severity_name(text: str) -> str | None:
    """A severity in our spelling; None if it is none."""
    return _SEVERITY.get(_folded(text))


def read_mistakes(
    path: Path, *, classes: Sequence[str] | None = None, who: str = WHO
) -> Iterator[Judgement]:
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
        category = _CATEGORY.get(_folded(values.get("failure category")))
        severity = _SEVERITY.get(_folded(values.get("failure severity")))
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
            who=who,
            source=path.name,
        )


def write_mistakes(
    path: Path,
    verdicts: Mapping[tuple[str, str], tuple[str, str]],
    *,
    classes: Sequence[str] | None = None,
) -> int:
    """Write (image, prediction) -> (category, severity) in the published form; how many.

    The form holds one mistake an image, as it is about one model: two of an image are refused.
    Images are sorted. There is no schema version in it, as the published files have none.
    """
    number = {label: place for place, label in enumerate(class_ids(classes))}
    rows: dict[str, dict[str, str | int]] = {}
    for (image_id, prediction), (category, severity) in sorted(verdicts.items()):
        if image_id in rows:
            raise UserError(
                f"{image_id} has two mistakes, and a file of this form holds one an image",
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
