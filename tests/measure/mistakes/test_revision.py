"""Revisions of a truth: labels move to where the panel says, and the card says how."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import NotApplicable, UserError
from heldout.data.judgements.judgement import Judgement
from heldout.data.labels import LabelSpace
from heldout.data.published.answers import read_mistakes, write_mistakes
from heldout.data.testset import Card, TestSet, image_table, make_testset, truth_table
from heldout.measure.mistakes.panel import Key, Ruling
from heldout.measure.mistakes.reviewed_accuracy import (
    LISTS,
    next_revision,
    problematic_images,
    revise_truth,
    rulings_hash,
)

BASE = "multilabel"
SPACE = LabelSpace.from_ids("letters", ["a", "b", "c", "d"])


def ruled(image: str, prediction: str, answer: str) -> Ruling:
    return Ruling(image, prediction, answer, None, None, 1, (0, 0, 1))


def by_key(*made: Ruling) -> dict[Key, Ruling]:
    return {ruling.key: ruling for ruling in made}


def listed(rows: Sequence[tuple[list[str], list[str], list[str]]], truth: str = BASE) -> TestSet:
    ids = [f"i{n}" for n in range(len(rows))]
    table = truth_table(
        ids,
        ["a"] * len(rows),
        correct=[row[0] for row in rows],
        unclear=[row[1] for row in rows],
        wrong=[row[2] for row in rows],
    )
    return make_testset(
        Card(name="letters-1", label_space="letters"),
        images=image_table({"image_id": ids}),
        truths={truth: table},
        label_space=SPACE,
    )


_list = st.lists(st.sampled_from(SPACE.ids), max_size=3, unique=True)


@settings(max_examples=100)
@given(
    st.lists(st.tuples(_list, _list, _list), min_size=2, max_size=4),
    st.dictionaries(
        st.tuples(st.sampled_from(["i0", "i1"]), st.sampled_from(SPACE.ids)),
        st.sampled_from(LISTS),
        min_size=1,
    ),
)
def test_each_ruling_decides_its_label_and_nothing_else(
    rows: list[tuple[list[str], list[str], list[str]]], said: dict[Key, str]
) -> None:
    made = by_key(*(ruled(*key, answer) for key, answer in said.items()))
    found = revise_truth(listed(rows), BASE, made, rule="majority")
    for number, (row, after) in enumerate(zip(rows, found.table.to_pylist(), strict=True)):
        for label in SPACE.ids:
            before = {name for name, labels in zip(LISTS, row, strict=True) if label in labels}
            now = {name for name in LISTS if label in after[name]}
            key = (f"i{number}", label)
            assert now == ({said[key]} if key in said else before)
        touched = any(key[0] == f"i{number}" for key in said)
        nothing = touched and not (after["correct"] or after["unclear"])
        assert after["problematic"] == nothing
    counts = found.provenance["counts"]
    assert counts["ruled"] == len(said) and counts["added"] + counts["moved"] <= len(said)


def test_labels_both_correct_and_wrong_are_told_and_a_ruling_settles_them() -> None:
    rows = [(["a", "b"], [], ["b", "c"]), (["a"], [], ["a"]), (["a"], [], [])]
    other = by_key(ruled("i2", "b", "unclear"))
    found = revise_truth(listed(rows), BASE, other, rule="majority")
    assert found.provenance["counts"]["correct_and_wrong"] == 2
    assert any("both correct and wrong: the hit wins" in text for text in found.notes)
    ruling = by_key(ruled("i0", "b", "wrong"))
    settled = revise_truth(listed(rows), BASE, ruling, rule="majority")
    assert settled.provenance["counts"]["correct_and_wrong"] == 1
    assert settled.table.to_pylist()[0]["correct"] == ["a"]


def test_provenance_names_what_it_revises() -> None:
    made = by_key(ruled("i0", "b", "correct"))
    first = listed([(["a"], [], [])], "original")
    found = revise_truth(first, "original", made, rule="unanimous", people=2)
    where = found.provenance
    assert (where["kind"], where["revises"], where["rule"]) == (
        "multilabel",
        "original",
        "unanimous",
    )
    assert where["people"] == 2 and where["rulings_sha256"] == rulings_hash(made.values())
    assert len(where["revises_hash"]) == 64
    review = Judgement(
        question="review", subject={"image_id": "i0"}, answer="problematic", who="ann"
    )
    flagged = revise_truth(first, "original", made, rule="majority", judgements=[review])
    assert flagged.table.to_pylist()[0]["problematic"]
    elsewhere = by_key(ruled("x", "b", "wrong"))
    with pytest.raises(NotApplicable, match="no ruling is about an image of truth original"):
        revise_truth(first, "original", elsewhere, rule="majority")


def test_reviews_flag_images() -> None:
    judgements = [
        Judgement(question="review", subject={"image_id": i}, answer=answer, who="ann")
        for i, answer in (("i1", "problematic"), ("i2", "reviewed"), ("i3", "blacklisted"))
    ]
    assert problematic_images(judgements) == {"i1", "i3"}


def test_names_of_revisions() -> None:
    assert next_revision("original", ["original"]) == "original-2"
    assert next_revision("multilabel-2", ["multilabel", "multilabel-2"]) == "multilabel-3"


def test_published_files_are_written_as_they_are_read(tmp_path: Path) -> None:
    verdicts = {
        ("i1", "b"): ("Fine-grained error", "Major"),
        ("i0", "c"): ("Spurious Correlation", "Borderline"),
    }
    path = tmp_path / "m_mistakes.json"
    assert write_mistakes(path, verdicts, classes=SPACE.ids) == 2
    back = {
        (j.subject["image_id"], j.subject["prediction"]): j.answer
        for j in read_mistakes(path, classes=SPACE.ids)
    }
    assert back == {
        key: {"category": category, "severity": severity}
        for key, (category, severity) in verdicts.items()
    }
    two = {("i1", "b"): ("Other", "Major"), ("i1", "c"): ("Other", "Major")}
    with pytest.raises(UserError, match="two mistakes"):
        write_mistakes(path, two, classes=SPACE.ids)
    with pytest.raises(UserError, match="has no number"):
        write_mistakes(path, {("i1", "z"): ("Other", "Major")}, classes=SPACE.ids)
