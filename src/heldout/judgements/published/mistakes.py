"""ImageNet Mistakes: the panel's verdicts on wrong predictions, with category and severity.

V. Vasudevan et al., "When does dough become a bagel? Analyzing the remaining mistakes on ImageNet",
NeurIPS 2022.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from heldout.errors import BadFile
from heldout.files import read_json
from heldout.judgements.judgement import Judgement
from heldout.judgements.published.class_numbers import class_ids, class_of
from heldout.judgements.questions import CATEGORIES, SEVERITIES

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
