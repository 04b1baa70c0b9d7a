"""Readers of published files, on small files of the same shape."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heldout.core.errors import BadFile, NotFound
from heldout.data.judgements.consensus import panel
from heldout.data.judgements.judgement import QUESTIONS, Judgement
from heldout.data.judgements.store import JudgementStore
from heldout.data.published.answers import (
    choice_as_labels,
    read_label_errors,
    read_mistakes,
    read_real_answers,
    read_real_panel,
)
from heldout.data.published.imagenetv2 import (
    read_blacklist,
    read_class_reviews,
    read_duplicate_overrides,
    read_duplicate_reviews,
    read_near_duplicates,
)

from .test_panel import same

CLASSES = ("n00", "n01", "n02")


def written(tmp_path: Path, value: object, name: str = "file.json") -> Path:
    path = tmp_path / name
    path.write_text(json.dumps(value))
    return path


def stored_twice(tmp_path: Path, judgements: list[Judgement]) -> None:
    """Every reader's judgements fit their questions, and reading again adds nothing."""
    with JudgementStore(tmp_path / "j.db") as store:
        assert store.add(judgements).added == len(judgements)
        assert store.add(judgements).added == 0


def test_class_reviews(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {
            "n02": {"reviewed": True, "problematic": True},
            "n00": {"reviewed": True, "problematic": False, "more": 1},
            "n01": {"reviewed": False, "problematic": False},
            "n03": {"reviewed": False, "problematic": True},
        },
        "set-a-1_review.json",
    )
    made = list(read_class_reviews(path))
    assert [(j.subject["class_id"], j.answer, j.evidence) for j in made] == [
        ("n00", "reviewed", {}),
        ("n02", "problematic", {}),
        ("n03", "problematic", {"reviewed": False}),
    ]
    assert {(j.testset, j.subject["testset"], j.source) for j in made} == {
        ("set-a-1", "set-a-1", "set-a-1_review.json")
    }
    stored_twice(tmp_path, made)


def test_blacklist(tmp_path: Path) -> None:
    made = list(read_blacklist(written(tmp_path, {"b": "drawing", "a": "too big"})))
    assert [(j.subject, j.answer, j.evidence) for j in made] == [
        ({"image_id": "a"}, "blacklisted", {"reason": "too big"}),
        ({"image_id": "b"}, "blacklisted", {"reason": "drawing"}),
    ]
    stored_twice(tmp_path, made)


def test_near_duplicates_are_pairs_whichever_side_lists_them(tmp_path: Path) -> None:
    path = written(tmp_path, {"a": ["b", "c"], "b": ["d", "a"], "c": ["c"], "e": []})
    override = written(tmp_path, ["b"], "override.json")
    made = [*read_near_duplicates(path), *read_duplicate_overrides(override)]
    assert [(j.subject, j.answer, j.evidence) for j in made] == [
        (
            {"image_id": "a", "other_id": "b"},
            "duplicate",
            {"roots": ["a", "b"], "places": {"b": [1]}},
        ),
        ({"image_id": "a", "other_id": "c"}, "duplicate", {"roots": ["a"]}),
        ({"image_id": "b", "other_id": "d"}, "duplicate", {"roots": ["b"], "places": {"b": [0]}}),
        ({"image_id": "c", "other_id": "c"}, "duplicate", {"roots": ["c"]}),
        ({"image_id": "e", "other_id": "e"}, "different", {"roots": ["e"]}),
        ({"image_id": "b"}, "keep", {}),
    ]
    stored_twice(tmp_path, made)


def test_duplicate_reviews_say_who_found_pairs_different(tmp_path: Path) -> None:
    listed = written(tmp_path, {"b": ["a"]}, "near.json")
    review = {"reviewer": "r", "date": "2018-08-26 18:51:00.765547", "references": ["b", "c", "a"]}
    path = written(tmp_path, {"a": {"l2": {**review, "threshold": 1.5}}})
    made = list(read_duplicate_reviews(path, listed))
    assert [(j.subject["other_id"], j.answer, j.evidence["place"]) for j in made] == [
        ("b", "duplicate", 0),
        ("c", "different", 1),
        ("a", "different", 2),
    ]
    assert {(j.who, j.when) for j in made} == {("r", "2018-08-26T18:51:00.765547Z")}
    assert made[0].evidence == {
        "seen_from": "a",
        "metric": "l2",
        "date": "2018-08-26 18:51:00.765547",
        "threshold": 1.5,
        "place": 0,
    }
    stored_twice(tmp_path, made)


def label_error(**change: object) -> dict[str, object]:
    return {
        "id": 293,
        "given_original_label": 0,
        "our_guessed_label": 2,
        "mturk": {"given": 2, "guessed": 1, "neither": 1, "both": 1},
        **change,
    }


def test_label_errors_are_votes_without_people(tmp_path: Path) -> None:
    made = list(read_label_errors(written(tmp_path, [label_error()]), classes=CLASSES))
    assert [(j.who, j.answer) for j in made] == [
        ("mturk-1", "given"),
        ("mturk-2", "given"),
        ("mturk-3", "guessed"),
        ("mturk-4", "both"),
        ("mturk-5", "neither"),
    ]
    assert made[0].subject == {
        "image_id": "ILSVRC2012_val_00000293.JPEG",
        "class_id": "n00",
        "other_class_id": "n02",
    }
    assert panel(made).anonymous
    stored_twice(tmp_path, made)
    labels = list(choice_as_labels(made))
    answers = panel(labels)
    assert answers.anonymous
    assert answers.counts().tolist() == [[3, 0, 2], [2, 0, 3]]  # given: 2 + both; guessed: 1 + both
    stored_twice(tmp_path / "labels", labels)


def test_mistakes_are_keyed_by_image_and_prediction_and_spelled_one_way(tmp_path: Path) -> None:
    rows = {
        "b.JPEG": ("Fine-grained with OOV", "Minor"),
        "a.JPEG": ("Fine-grained error with OOV", "major"),
        "c.JPEG": ("Spurious Correlation", "Borderline"),
    }
    path = written(
        tmp_path,
        {
            image: {"top_prediction": 1, "failure category": category, "failure severity": severity}
            for image, (category, severity) in rows.items()
        },
    )
    made = list(read_mistakes(path, classes=CLASSES))
    assert [(j.subject, j.answer) for j in made] == [
        (
            {"image_id": "a.JPEG", "prediction": "n01"},
            {"category": "Fine-grained error with OOV", "severity": "Major"},
        ),
        (
            {"image_id": "b.JPEG", "prediction": "n01"},
            {"category": "Fine-grained error with OOV", "severity": "Minor"},
        ),
        (
            {"image_id": "c.JPEG", "prediction": "n01"},
            {"category": "Spurious Correlation", "severity": "Borderline"},
        ),
    ]
    stored_twice(tmp_path, made)


def real_file(tmp_path: Path, **change: Any) -> Path:
    """Three raters, four pairs: answers (rater, pair, no/maybe/yes) as one-hot cells."""
    tensor = np.zeros((3, 4, 3))
    for rater, pair, answer in ((0, 0, 2), (0, 1, 0), (1, 0, 1), (1, 3, 2), (2, 3, 0)):
        tensor[rater, pair, answer] = 1
    arrays: dict[str, Any] = {
        "tensor": tensor,
        "info": np.array([["v2", "0"], ["v2", "2"], ["v1", "1"], ["v1", "0"]]),
        "ids": np.array([17, 5, 101]),
        **change,
    }
    path = tmp_path / "raters.npz"
    np.savez_compressed(
        path, **{name: array for name, array in arrays.items() if array is not None}
    )
    return path


def test_real_answers_are_labels(tmp_path: Path) -> None:
    path = real_file(tmp_path)
    made = list(read_real_answers(path, classes=CLASSES))
    rows = {(j.who, j.subject["image_id"], j.subject["class_id"], j.answer) for j in made}
    assert rows == {
        ("real-17", "v2", "n00", "correct"),
        ("real-17", "v2", "n02", "wrong"),
        ("real-5", "v2", "n00", "unclear"),
        ("real-5", "v1", "n00", "correct"),
        ("real-101", "v1", "n00", "wrong"),
    }
    stored_twice(tmp_path, made)
    some = list(read_real_answers(path, classes=CLASSES, images={"v1"}, prefix="gold"))
    assert {(j.who, j.answer) for j in some} == {("gold-5", "correct"), ("gold-101", "wrong")}


@pytest.mark.parametrize("images", [None, {"v1"}, {"v2", "v9"}])
@pytest.mark.parametrize("dtype", ["float64", "uint8", "bool"])
def test_a_panel_read_at_once_is_that_of_the_judgements(
    tmp_path: Path, images: set[str] | None, dtype: str
) -> None:
    tensor = np.load(real_file(tmp_path))["tensor"].astype(dtype)
    path = real_file(tmp_path, tensor=tensor)
    fast = read_real_panel(path, classes=CLASSES, images=images)
    slow = panel(read_real_answers(path, classes=CLASSES, images=images))
    assert same(fast, slow)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tensor": None}, "no array 'tensor'"),
        ({"tensor": np.zeros((3, 5, 3))}, r"shape \(3, 5, 3\)"),
        ({"tensor": np.ones((3, 4, 3))}, "rater 17 gave two answers"),
        ({"tensor": np.full((3, 4, 3), np.nan)}, "rater 17"),
        ({"tensor": np.full((3, 4, 3), "x")}, "shape"),
        ({"info": np.array([["v2", "9"]] * 4)}, "class 9"),
        ({"info": np.array([["v2", "-1"]] * 4)}, "class '-1'"),
        ({"info": np.array(["v2"] * 4)}, "pairs"),
        ({"ids": np.array([], dtype=int), "tensor": np.zeros((0, 4, 3))}, "rater ids"),
        ({"ids": np.array([{}, {}, {}], dtype=object)}, "npz"),
    ],
)
def test_a_broken_real_file_is_named(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    with pytest.raises(BadFile, match=says) as caught:
        read_real_panel(real_file(tmp_path, **change), classes=CLASSES)
    assert "raters.npz" in caught.value.line


def test_a_real_file_that_breaks_off_is_named(tmp_path: Path) -> None:
    path = real_file(tmp_path)
    whole = path.read_bytes()
    for keep in (0, 10, len(whole) // 2, len(whole) - 30):
        path.write_bytes(whole[:keep])
        with pytest.raises(BadFile, match=r"raters\.npz"):
            list(read_real_answers(path, classes=CLASSES))
    damaged = bytearray(whole)
    damaged[100:140] = bytes(40)
    path.write_bytes(damaged)
    with pytest.raises(BadFile, match=r"raters\.npz"):
        list(read_real_answers(path, classes=CLASSES))


READERS: list[tuple[Callable[[Path], Iterator[Judgement]], object, str]] = [
    (read_class_reviews, [], "not a JSON object"),
    (read_class_reviews, {"n00": True}, "n00"),
    (read_class_reviews, {"n00": {"reviewed": "yes", "problematic": False}}, "n00"),
    (read_blacklist, ["a"], "not a JSON object"),
    (read_blacklist, {"a": None}, "a: Expected str"),
    (read_near_duplicates, {"a": "b"}, "a: Expected"),
    (read_near_duplicates, {"a": [1]}, "a: Expected"),
    (read_near_duplicates, {"a": [""]}, "a: Expected"),
    (read_duplicate_overrides, {"a": 1}, "Expected array"),
    (read_duplicate_overrides, [["a"]], "Expected str"),
    (
        lambda p: read_duplicate_reviews(p, written(p.parent, {}, "n.json")),
        {"a": {}},
        "a has no review",
    ),
    (
        lambda p: read_duplicate_reviews(p, written(p.parent, {}, "n.json")),
        {"a": {"l2": {"reviewer": "r", "date": "2018-08-26", "references": ["b"], "note": "x"}}},
        "a: Object contains unknown field note",
    ),
    (
        lambda p: read_duplicate_reviews(p, written(p.parent, {}, "n.json")),
        {"a": []},
        "a: Expected object",
    ),
    (
        lambda p: read_duplicate_reviews(p, written(p.parent, {}, "n.json")),
        {"a": {"l2": {"reviewer": "r", "date": "soon", "references": []}}},
        "a, l2 has the date 'soon'",
    ),
    (lambda p: read_label_errors(p, classes=CLASSES), {}, "not a JSON list"),
    (lambda p: read_label_errors(p, classes=CLASSES), [label_error(), 3], "entry 1"),
    (lambda p: read_label_errors(p, classes=CLASSES), [label_error(mturk={"given": 5})], "entry 0"),
    (
        lambda p: read_label_errors(p, classes=CLASSES),
        [label_error(our_guessed_label=3)],
        "class 3",
    ),
    (lambda p: read_mistakes(p, classes=CLASSES), [], "not a JSON object"),
    (lambda p: read_mistakes(p, classes=CLASSES), {"a": 3}, "a has category None"),
    (
        lambda p: read_mistakes(p, classes=CLASSES),
        {"a": {"top_prediction": 0, "failure category": "Odd", "failure severity": "Minor"}},
        "'Odd'",
    ),
    (
        lambda p: read_mistakes(p, classes=CLASSES),
        {"a": {"top_prediction": True, "failure category": "Other", "failure severity": "Minor"}},
        "class True",
    ),
]


@pytest.mark.parametrize(("read", "value", "says"), READERS)
def test_bad_content_is_named_with_its_place(
    tmp_path: Path, read: Callable[[Path], Iterator[Judgement]], value: object, says: str
) -> None:
    path = written(tmp_path, value)
    with pytest.raises(BadFile, match=says) as caught:
        list(read(path))
    assert str(path) in caught.value.line
    assert caught.value.fix


@pytest.mark.parametrize(
    "read", [read_blacklist, read_mistakes, read_real_answers, read_label_errors]
)
def test_a_missing_file_is_named(
    tmp_path: Path, read: Callable[[Path], Iterator[Judgement]]
) -> None:
    with pytest.raises(NotFound, match="gone"):
        list(read(tmp_path / "gone"))


def test_class_numbers_are_those_of_imagenet_unless_said(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {"a": {"top_prediction": 999, "failure category": "Other", "failure severity": "Minor"}},
    )
    (made,) = read_mistakes(path)
    assert made.subject["prediction"] == "n15075141"
    assert QUESTIONS["mistake"].check(made) is None
