"""The MTurk votes of cleanlab's label-errors study: five a suspected error, published as totals.

C. G. Northcutt, A. Athalye and J. Mueller, "Pervasive label errors in test sets destabilize machine
learning benchmarks", NeurIPS Datasets and Benchmarks 2021.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from heldout.core.errors import BadFile, UserError
from heldout.core.files import read_json
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.questions import QUESTIONS
from heldout.data.published.class_numbers import class_ids, class_of

_ANSWERS = QUESTIONS["choice"].answers
_AS_LABELS = {
    "given": ("correct", "wrong"),
    "guessed": ("wrong", "correct"),
    "both": ("correct", "correct"),
    "neither": ("wrong", "wrong"),
}


def read_label_errors(
    path: Path,
    *,
    classes: Sequence[str] | None = None,
    image_name: str = "ILSVRC2012_val_{:08d}.JPEG",
) -> Iterator[Judgement]:
    """Each vote as a ``choice`` judgement about (image, given class, guessed class).

    ``id`` is the validation number, filled into ``image_name``. Only totals are published, so the
    workers ``mturk-1``, ``mturk-2``, ... are places in the count, not people, and carry
    ``evidence["anonymous"]``: who agreed with whom cannot be asked of them.
    """
    ids = class_ids(classes)
    rows = read_json(path)
    if not isinstance(rows, list):
        raise BadFile(path, "is not a JSON list of suspected errors", fix="choose the right file")
    for number, row in enumerate(rows):
        where = f"entry {number}"
        totals = _totals(path, where, row)
        subject = {
            "image_id": image_name.format(row["id"]),
            "class_id": class_of(row.get("given_original_label"), ids, path, where),
            "other_class_id": class_of(row.get("our_guessed_label"), ids, path, where),
        }
        votes = [answer for answer in _ANSWERS for _ in range(totals[answer])]
        for place, answer in enumerate(votes, 1):
            yield Judgement(
                question="choice",
                subject=subject,
                answer=answer,
                who=f"mturk-{place}",
                evidence={"anonymous": True},
                source=path.name,
            )


def _totals(path: Path, where: str, row: Any) -> dict[str, int]:
    found = row.get("mturk") if isinstance(row, dict) else None
    totals = found if isinstance(found, dict) else {}
    counts = [totals.get(answer) for answer in _ANSWERS]
    whole = all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in counts)
    if not whole or not isinstance(row.get("id"), int):
        raise BadFile(
            path,
            f"{where} has no id and no votes for {', '.join(_ANSWERS)}",
            fix="fetch the file again",
        )
    return {answer: totals[answer] for answer in _ANSWERS}


def choice_as_labels(judgements: Iterable[Judgement]) -> Iterator[Judgement]:
    """Each ``choice`` as two ``label`` judgements, one a class, to be pooled with other labels.

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
