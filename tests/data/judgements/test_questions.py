from __future__ import annotations

import msgspec
import pytest
from hypothesis import given

from heldout.core.errors import UserError
from heldout.data.judgements.judgement import QUESTIONS, Judgement, Question

from .strategies import any_judgement


@given(any_judgement())
def test_every_judgement_made_by_the_rules_passes_its_question(judgement: Judgement) -> None:
    QUESTIONS[judgement.question].check(judgement)


@pytest.mark.parametrize(
    ("question", "subject", "answer", "says"),
    [
        ("vote", {"image_id": "a"}, "selected", "class_id"),
        ("vote", {"image_id": "a", "class_id": "b", "x": "y"}, "selected", "image_id"),
        ("vote", {"image_id": "a", "class_id": "b"}, "yes", "selected"),
        ("vote", {"image_id": "a", "class_id": "b"}, {"category": "x"}, "selected"),
        ("duplicate", {"image_id": "b", "other_id": "a"}, "duplicate", "sort"),
        ("duplicate", {"image_id": "a", "other_id": "a"}, "duplicate", "sort"),
        ("mistake", {"image_id": "a", "prediction": "b"}, "Major", "category, severity"),
        (
            "mistake",
            {"image_id": "a", "prediction": "b"},
            {"category": "Fine-grained error", "severity": "Awful"},
            "Borderline",
        ),
        ("mistake", {"image_id": "a", "prediction": "b"}, {"severity": "Major"}, "category"),
    ],
)
def test_a_wrong_subject_or_answer_is_refused_with_what_is_allowed(
    question: str, subject: dict[str, str], answer: str | dict[str, str], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        QUESTIONS[question].check(
            Judgement(question=question, subject=subject, answer=answer, who="w")
        )


def test_a_question_survives_json_and_an_open_question_takes_any_text() -> None:
    mine = Question(kind="caption", subjects=(("image_id",),), text="What is it?")
    for question in (mine, *QUESTIONS.values()):
        assert msgspec.json.decode(msgspec.json.encode(question), type=Question) == question
    mine.check(Judgement(question="caption", subject={"image_id": "a"}, answer="a cat", who="w"))


def test_a_question_needs_a_name_and_a_subject() -> None:
    with pytest.raises(UserError, match="kind of question"):
        Question(kind="a b", subjects=(("image_id",),))
    with pytest.raises(UserError, match="subject"):
        Question(kind="a", subjects=())
