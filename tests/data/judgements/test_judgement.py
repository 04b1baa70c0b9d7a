"""Tests of :mod:`heldout.data.judgements.judgement`."""

from __future__ import annotations

import hashlib
import json
import pickle
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given

from heldout.core.errors import UserError
from heldout.data.judgements.judgement import (
    FIELDS,
    QUESTIONS,
    Judgement,
    Question,
    from_texts,
    pair_subject,
    to_texts,
    utc_time,
)

from .strategies import any_judgement, vote

# judgement


def test_equal_content_gives_an_equal_id_whatever_the_order_of_keys_and_the_source() -> None:
    one = Judgement(
        question="vote",
        subject={"image_id": "a", "class_id": "b"},
        answer="selected",
        who="w",
        when="2018-12-13T10:53:50+01:00",
        evidence={"x": (1, 2), "a": None},
        source="one.json",
    )
    other = Judgement(
        question="vote",
        subject={"class_id": "b", "image_id": "a"},
        answer="selected",
        who="w",
        when=datetime(2018, 12, 13, 9, 53, 50, tzinfo=UTC),
        evidence={"a": None, "x": [1, 2]},
        source="another.json",
    )
    assert one.judgement_id == other.judgement_id
    assert one.when == "2018-12-13T09:53:50.000000Z"
    assert one.evidence == {"a": None, "x": [1, 2]}
    assert hash(one) == hash(other)


def test_the_id_is_the_one_the_documentation_describes() -> None:
    made = vote("a", "w", evidence={"grid": "g"})
    content = "\n".join(
        [
            '["vote","selected","w",null,null,null]',
            '{"class_id":"c","image_id":"a"}',
            '{"grid":"g"}',
        ]
    )
    assert made.judgement_id == hashlib.sha256(content.encode()).hexdigest()[:32]


@pytest.mark.parametrize(
    "change",
    [
        {"question": "label", "answer": "correct"},
        {"subject": {"image_id": "a", "class_id": "other"}},
        {"answer": "not-selected"},
        {"who": "v"},
        {"when": "2020-01-01T00:00:00Z"},
        {"evidence": {"grid": "g"}},
        {"testset": "t"},
        {"supersedes": "x"},
    ],
)
def test_any_other_content_gives_another_id(change: dict[str, object]) -> None:
    base: dict[str, object] = {
        "question": "vote",
        "subject": {"image_id": "a", "class_id": "b"},
        "answer": "selected",
        "who": "w",
    }
    assert Judgement(**base).judgement_id != Judgement(**{**base, **change}).judgement_id  # type: ignore[arg-type]


@given(any_judgement())
def test_texts_give_back_the_same_judgement(judgement: Judgement) -> None:
    row = to_texts(judgement)
    assert tuple(row) == FIELDS
    assert json.loads(row["subject"] or "") == judgement.subject
    back = from_texts(row)
    assert back == judgement
    assert back.judgement_id == judgement.judgement_id
    assert pickle.loads(pickle.dumps(judgement)) == judgement


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"who": ""}, "who"),
        ({"who": None}, "who"),
        ({"who": "a\0b"}, "who"),
        ({"who": "\ud800"}, "Unicode"),
        ({"question": ""}, "question"),
        ({"subject": {}}, "subject"),
        ({"subject": "a"}, "subject"),
        ({"subject": {"image_id": 3}}, "write numbers as text"),
        ({"subject": {"image_id": ""}}, "not empty"),
        ({"answer": ""}, "answer"),
        ({"answer": '{"a":1}'}, "brace"),
        ({"answer": {"category": 1}}, "text"),
        ({"when": "yesterday"}, "not a time"),
        ({"when": "2018-12-13T09:53:50"}, "no time zone"),
        ({"when": "0001-01-01T00:00:00+14:00"}, "not a time"),
        ({"evidence": {"x": float("nan")}}, "JSON"),
        ({"evidence": {"x": object()}}, "JSON"),
        ({"evidence": [1]}, "evidence"),
        ({"evidence": []}, "evidence"),
        ({"testset": ""}, "testset"),
        ({"supersedes": ""}, "supersedes"),
    ],
)
def test_what_cannot_be_stored_is_refused_on_one_line(change: dict[str, object], says: str) -> None:
    fields: dict[str, object] = {
        "question": "vote",
        "subject": {"image_id": "a", "class_id": "b"},
        "answer": "selected",
        "who": "w",
    }
    with pytest.raises(UserError, match=says) as caught:
        Judgement(**{**fields, **change})  # type: ignore[arg-type]
    assert "\n" not in caught.value.line


def test_the_caller_cannot_change_a_judgement_through_what_was_passed_in() -> None:
    subject, evidence = {"image_id": "a", "class_id": "b"}, {"list": [1]}
    made = Judgement(
        question="vote", subject=subject, answer="selected", who="w", evidence=evidence
    )
    subject["image_id"] = "z"
    evidence["list"].append(2)
    assert made.subject["image_id"] == "a"
    assert made.evidence == {"list": [1]}


def test_times_sort_as_text() -> None:
    zone = timezone(timedelta(hours=-7))
    moments = [datetime(2018, 12, 31, 23, 59, 59, n, tzinfo=zone) for n in (0, 1, 10, 999_999)]
    assert sorted(map(utc_time, moments)) == [utc_time(moment) for moment in moments]


def test_a_pair_has_one_subject() -> None:
    assert pair_subject("b", "a") == pair_subject("a", "b") == {"image_id": "a", "other_id": "b"}
    with pytest.raises(UserError, match="itself"):
        pair_subject("a", "a")


# questions


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
    mine = Question(kind="caption", subjects=(("image_id",),))
    for question in (mine, *QUESTIONS.values()):
        assert msgspec.json.decode(msgspec.json.encode(question), type=Question) == question
    mine.check(Judgement(question="caption", subject={"image_id": "a"}, answer="a cat", who="w"))


def test_a_question_needs_a_name_and_a_subject() -> None:
    with pytest.raises(UserError, match="kind of question"):
        Question(kind="a b", subjects=(("image_id",),))
    with pytest.raises(UserError, match="subject"):
        Question(kind="a", subjects=())
    with pytest.raises(UserError, match="subject"):
        Question(kind="a", subjects=(("image_id",), ()))
