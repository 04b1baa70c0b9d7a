"""Revisions and reviews: read and written as published, and which reviews hold in the next one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.cli.app import invoke
from heldout.core.errors import BadFile
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.store import JudgementStore
from heldout.data.published.imagenetv2_revisions import (
    ClassReview,
    carried_reviews,
    class_reviews,
    judged_classes,
    read_listed,
    read_reviews,
    read_revision,
    reviews_json,
)
from tests.cli.conftest import write

CONSECUTIVE = [
    (f"imagenetv2-{name}-{number}", f"imagenetv2-{name}-{number + 1}")
    for name, numbers in {"a": range(22, 25), "b": range(20, 23), "c": range(9, 12)}.items()
    for number in numbers
]


def by_class(path: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for image, label in read_revision(path).image_filenames:
        found.setdefault(label, set()).add(image)
    return found


@pytest.mark.shared
def test_all_published_files_are_written_as_they_were(shared_data: Path) -> None:
    root = shared_data / "imagenetv2"
    files = sorted((root / "datasets").glob("*.json"))
    assert len(files) == 20
    for file in files:
        assert read_revision(file).to_json() == file.read_text().rstrip("\n"), file.name
    reviews = sorted((root / "reviews").glob("*.json"))
    assert len(reviews) == 21
    for file in reviews:
        assert reviews_json(read_reviews(file)) == file.read_text().rstrip("\n"), file.name


@pytest.mark.shared
@pytest.mark.parametrize(("before", "after"), CONSECUTIVE)
def test_no_published_review_was_lost(shared_data: Path, before: str, after: str) -> None:
    root = shared_data / "imagenetv2"
    old, new = (by_class(root / "datasets" / f"{name}.json") for name in (before, after))
    reviews, later = (
        read_reviews(root / "reviews" / f"{name}_review.json") for name in (before, after)
    )
    carried = carried_reviews(reviews, old, new)
    assert [c for c, mark in carried.items() if mark.reviewed and not later[c].reviewed] == []
    expected = {
        label
        for label in new
        if reviews[label].reviewed and not reviews[label].problematic and old[label] == new[label]
    }
    assert {label for label, mark in carried.items() if mark.reviewed} == expected


@pytest.mark.shared
def test_the_documented_command(shared_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = shared_data / "imagenetv2"
    files = [str(root / "datasets" / f"imagenetv2-a-{n}.json") for n in (23, 24)]
    assert invoke(["diff", *files, "--reviews", str(root / "reviews"), "--json"]) == 0
    changed, reviews = json.loads(capsys.readouterr().out)
    assert (changed["counts"]["only_in_a"], changed["counts"]["only_in_b"]) == (3, 2)
    assert reviews == {
        "record": "reviews carried",
        "a": "imagenetv2-a-23",
        "b": "imagenetv2-a-24",
        "carried": 998,
        "problematic": 2,
        "changed": 0,
        "reviewed": 1000,
        "lost": [],
    }


LISTS = {
    "one": {"a": ["1", "2"], "b": ["3"], "c": ["4"]},
    "two": {"a": ["2", "1"], "b": ["5"], "c": ["4"]},
}


def files(tmp_path: Path, marks: dict[str, dict[str, Any]]) -> list[str]:
    """Two revisions of three classes with their review files."""
    for name, classes in LISTS.items():
        rows = [[image, label] for label, images in classes.items() for image in images]
        write(tmp_path / f"{name}.json", {"image_filenames": rows, "seed": 1})
    for name, marked in marks.items():
        full = {
            label: {"reviewed": True, "problematic": False, **marked.get(label, {})}
            for label in "abc"
        }
        write(tmp_path / "reviews" / f"{name}_review.json", full)
    return [str(tmp_path / f"{name}.json") for name in LISTS]


def test_a_lost_review_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marks = {"one": {}, "two": {"a": {"reviewed": False}, "b": {"reviewed": False}}}
    paths = files(tmp_path, marks)
    one, two = (str(tmp_path / "reviews" / f"{name}_review.json") for name in LISTS)
    for given_reviews in (
        ["--reviews", str(tmp_path / "reviews")],
        ["--reviews", one, "--reviews", two],
    ):
        assert invoke(["diff", *paths, *given_reviews, "--json"]) == 1
        reviews = json.loads(capsys.readouterr().out)[1]
        assert (reviews["lost"], reviews["carried"], reviews["changed"]) == (["a"], 2, 1)
    assert invoke(["diff", *paths, "--reviews", str(tmp_path / "reviews")]) == 1
    assert "review lost: a" in capsys.readouterr().out
    problem = {"one": {"a": {"problematic": True}}, "two": {"a": {"reviewed": False}}}
    paths = files(tmp_path, problem)
    assert invoke(["diff", *paths, "--reviews", str(tmp_path / "reviews"), "--json"]) == 0
    reviews = json.loads(capsys.readouterr().out)[1]
    assert (reviews["lost"], reviews["carried"], reviews["problematic"]) == ([], 1, 1)
    assert invoke(["diff", *paths, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 1, "without reviews nothing is said of them"
    for wrong in ([one], [str(tmp_path)], [one, two, one]):
        options = [word for path in wrong for word in ("--reviews", path)]
        assert invoke(["diff", *paths, *options]) == 2


@given(
    st.dictionaries(st.sampled_from("abcd"), st.builds(ClassReview, st.booleans(), st.booleans())),
    st.dictionaries(st.sampled_from("abcd"), st.sets(st.sampled_from("123"))),
    st.dictionaries(st.sampled_from("abcd"), st.sets(st.sampled_from("123"))),
)
def test_a_review_is_carried_only_with_its_images(reviews: Any, before: Any, after: Any) -> None:
    carried = carried_reviews(reviews, before, after)
    assert list(carried) == sorted(after)
    for label, mark in carried.items():
        known = reviews.get(label, ClassReview())
        same = before.get(label, set()) == after[label]
        assert mark == ClassReview(known.reviewed and not known.problematic and same, False)
    assert carried_reviews(carried, after, after) == carried


def test_an_unknown_field_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "x.json", {"image_filenames": [["1", "a"]], "sede": 3})
    with pytest.raises(BadFile, match=r"unknown field 'sede'; did you mean 'seed'"):
        read_revision(file)
    twice = write(tmp_path / "y.json", {"image_filenames": [["1", "a"], ["1", "b"]]})
    with pytest.raises(BadFile, match="twice"):
        read_revision(twice)


def said(label: str, answer: str, who: str = "ann", **evidence: Any) -> Judgement:
    return Judgement(
        question="review",
        subject={"testset": "one", "class_id": label},
        answer=answer,
        who=who,
        evidence=evidence,
        testset="one",
    )


def test_reviews_of_columns_and_of_people(tmp_path: Path) -> None:
    paths = files(tmp_path, {"one": {"b": {"problematic": True}, "c": {"reviewed": False}}})
    review = tmp_path / "reviews" / "one_review.json"
    testset = read_listed(Path(paths[0]), review=review)
    own = {"a": ClassReview(True), "b": ClassReview(True, True), "c": ClassReview()}
    assert class_reviews(testset) == own
    assert class_reviews(read_listed(Path(paths[0]))) == {}
    with JudgementStore(tmp_path / "judgements.db") as store:
        store.add([said("b", "reviewed"), said("c", "problematic", reviewed=False)])
    found = class_reviews(testset, tmp_path / "judgements.db")
    assert found == {**own, "b": ClassReview(True), "c": ClassReview(False, True)}
    both = [said("a", "reviewed"), said("a", "problematic", "bob", reviewed=False)]
    assert judged_classes(both) == {"a": ClassReview(True, True)}
