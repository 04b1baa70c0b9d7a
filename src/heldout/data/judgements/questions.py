"""Questions: what may be asked, about which subjects, and which answers count.

The built-in kinds cover votes, labels, duplicates, reviews and mistakes. A team adds its own with
:class:`Question` and :meth:`heldout.data.judgements.store.JudgementStore.define`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from heldout.core.errors import UserError
from heldout.core.workspace import check_slug
from heldout.data.judgements.judgement import WITHDRAWN, Judgement


@dataclass(frozen=True, kw_only=True)
class Question:
    """One kind of question.

    ``kind``      its name, a slug
    ``subjects``  the sets of ids that a subject may consist of; each a tuple of names
    ``answers``   the plain answers; empty together with ``parts``: any text
    ``parts``     for answers of several parts: the values of each; empty values: any text
    ``truths``    the answers that can be true, for inference; empty: all of them
    ``text``      how it is put to a person
    """

    kind: str
    subjects: tuple[tuple[str, ...], ...]
    answers: tuple[str, ...] = ()
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    truths: tuple[str, ...] = ()
    text: str = ""

    def __post_init__(self) -> None:
        check_slug(self.kind, "a kind of question")
        if not self.subjects or not all(self.subjects):
            raise UserError(
                f"the question {self.kind} names no subject", fix="such as (('image_id',),)"
            )

    def check(self, judgement: Judgement) -> None:
        """Refuse a judgement whose subject or answer does not fit this question."""
        names = sorted(judgement.subject)
        if all(sorted(allowed) != names for allowed in self.subjects):
            known = " or ".join(" + ".join(allowed) for allowed in self.subjects)
            raise UserError(
                f"a {self.kind} judgement is about {' + '.join(names)}", fix=f"it takes {known}"
            )
        pair = judgement.subject
        if "other_id" in pair and "image_id" in pair and pair["image_id"] >= pair["other_id"]:
            raise UserError(
                f"a {self.kind} judgement names its two images out of order",
                fix="sort the two ids, or make the subject with pair_subject",
            )
        answer = judgement.answer
        if answer == WITHDRAWN:
            return
        if isinstance(answer, str):
            if (self.parts and not self.answers) or (self.answers and answer not in self.answers):
                raise UserError(f"{answer!r} does not answer {self.kind}", fix=self._answers())
            return
        if sorted(answer) != sorted(self.parts):
            raise UserError(
                f"a {self.kind} answer has the parts {', '.join(sorted(answer))}",
                fix=self._answers(),
            )
        for name, value in answer.items():
            if self.parts[name] and value not in self.parts[name]:
                raise UserError(
                    f"{value!r} is no {name} of a {self.kind} answer",
                    fix=f"use one of {', '.join(self.parts[name])}",
                )

    def _answers(self) -> str:
        if self.parts:
            return f"give the parts {', '.join(self.parts)}"
        return f"use one of {', '.join(self.answers)}"

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "kind": self.kind,
            "subjects": [list(names) for names in self.subjects],
            "answers": list(self.answers),
            "parts": {name: list(values) for name, values in self.parts.items()},
            "truths": list(self.truths),
            "text": self.text,
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Question:
        """The question that :meth:`to_dict` wrote."""
        return cls(
            kind=value["kind"],
            subjects=tuple(tuple(names) for names in value["subjects"]),
            answers=tuple(value["answers"]),
            parts={name: tuple(values) for name, values in value["parts"].items()},
            truths=tuple(value["truths"]),
            text=value["text"],
        )


CATEGORIES: tuple[str, ...] = (
    "Fine-grained error",
    "Fine-grained error with OOV",
    "Fine-grained with Multilabel Options",
    "Non-prototypical",
    "Spurious Correlation",
    "Other",
)
"""Categories of a mistake, as ImageNet Mistakes publishes them, and ``Other`` for the rest."""

NO_MISTAKE = "Multi-label or synonym"
"""What is proposed or said of a prediction that is right after all; no category of a mistake."""

SEVERITIES: tuple[str, ...] = ("Major", "Minor", "Borderline")
"""Severities of a mistake, worst first; reports fold Borderline into Minor."""

_BUILT_IN = (
    Question(
        kind="vote",
        subjects=(("image_id", "class_id"),),
        answers=("selected", "not-selected"),
        text="Does the image contain at least one object of this class?",
    ),
    Question(
        kind="label",
        subjects=(("image_id", "class_id"),),
        answers=("correct", "unclear", "wrong"),
        truths=("correct", "wrong"),
        text="Is this class a right label for the image?",
    ),
    Question(
        kind="choice",
        subjects=(("image_id", "class_id", "other_class_id"),),
        answers=("given", "guessed", "both", "neither"),
        text="Which is right: the given class, the other one, both or neither?",
    ),
    Question(
        kind="duplicate",
        subjects=(("image_id", "other_id"), ("image_id",)),
        answers=("duplicate", "different", "keep"),
        text="Do the two images show the same scene? (keep: this one stays in the test set.)",
    ),
    Question(
        kind="review",
        subjects=(("testset", "class_id"), ("image_id",)),
        answers=("reviewed", "problematic", "blacklisted"),
        text="Is there anything wrong with these images?",
    ),
    Question(
        kind="mistake",
        subjects=(("image_id", "prediction"),),
        parts={"category": CATEGORIES, "severity": SEVERITIES},
        text="Why is this prediction wrong, and how bad is it?",
    ),
)

QUESTIONS: Mapping[str, Question] = MappingProxyType({q.kind: q for q in _BUILT_IN})
"""The built-in kinds by name."""
