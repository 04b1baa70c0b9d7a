"""Queues that come back filled in: what is read, what is skipped, and what is refused by line."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from heldout.core.errors import BadFile, LabelError, MismatchError, UserError
from heldout.core.workspace import Workspace
from heldout.data.importing.judgements import (
    ANSWERED,
    ASKED,
    ImportedAnswers,
    import_judgement_file,
    is_queue,
    judgement_format,
    read_filled,
)
from heldout.data.judgements.files import write_judgements
from heldout.data.judgements.for_testset import judgements_about
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.store import JudgementStore
from heldout.data.labels import LabelSpace
from heldout.data.testset import Card, TestSet, image_table, make_testset, save, truth_table

SPACE = LabelSpace.from_ids("letters", ["a", "b", "c"])
IMAGES = ["i1", "i2", "i3", "i4"]


@pytest.fixture
def testset(tmp_path: Path) -> TestSet:
    made = make_testset(
        Card(name="letters-1", label_space=SPACE.name, truths={"original": {"kind": "single"}}),
        images=image_table({"image_id": IMAGES}),
        truths={"original": truth_table(IMAGES, ["a", "b", "c", "a"])},
        label_space=SPACE,
    )
    return save(made, Workspace(tmp_path).testsets / "letters-1")


def filled(path: Path, rows: Sequence[Mapping[str, str]]) -> Path:
    """A queue with some cells filled in."""
    columns = (*ASKED, *ANSWERED)
    common = {"testset": "letters-1", "queue": "0123456789ab", "aim": "accuracy"}
    with path.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, columns, restval="")
        writer.writeheader()
        writer.writerows({**common, **row} for row in rows)
    return path


def row(
    image: str, prediction: str, answer: str = "", *more: str, who: str = "ann"
) -> dict[str, str]:
    category, severity = (*more, "", "")[:2]
    return {
        "image_id": image,
        "prediction": prediction,
        "answer": answer,
        "category": category,
        "severity": severity,
        "who": who,
    }


def test_a_row_gives_a_label_and_a_mistake(testset: TestSet, tmp_path: Path) -> None:
    path = filled(
        tmp_path / "q.csv",
        [
            row("i1", "b", "Wrong", "fine grained with OOV", "major"),
            row("i2", "c", "correct"),
            row("i3", "a", "", "Spurious Correlation", "Borderline"),
            row("i4", "b", "", "multi-label or synonym"),
            row("i4", "c"),
        ],
    )
    assert is_queue(path) and judgement_format(path) == "queue"
    found = read_filled(path, testset=testset)
    assert found.empty == 1
    said = [(j.question, j.subject["image_id"], j.answer) for j in found.judgements]
    assert said == [
        ("label", "i1", "wrong"),
        ("mistake", "i1", {"category": "Fine-grained error with OOV", "severity": "Major"}),
        ("label", "i2", "correct"),
        ("label", "i3", "wrong"),
        ("mistake", "i3", {"category": "Spurious Correlation", "severity": "Borderline"}),
        ("label", "i4", "correct"),
    ]
    assert {j.who for j in found.judgements} == {"ann"}
    assert found.judgements[0].evidence == {"queue": "0123456789ab", "aim": "accuracy"}
    assert found.judgements[0].testset == "letters-1"


def test_json_lines_read_the_same(testset: TestSet, tmp_path: Path) -> None:
    rows = [row("i1", "b", "wrong", "Other", "Minor"), row("i2", "c", "unclear")]
    one = read_filled(filled(tmp_path / "q.csv", rows), testset=testset)
    lines = [
        {"testset": "letters-1", "queue": "0123456789ab", "aim": "accuracy", "labels": ["a"], **r}
        for r in rows
    ]
    path = tmp_path / "q.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    assert is_queue(path)
    other = read_filled(path, testset=testset)
    assert [j.judgement_id for j in one.judgements] == [j.judgement_id for j in other.judgements]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([row("i9", "b", "wrong")], "line 2: image 'i9' is not in test set letters-1"),
        ([row("i1", "z", "wrong")], "line 2: class 'z' is not in label space letters"),
        ([row("i1", "", "wrong")], "an answer without a class"),
        ([row("", "b", "wrong")], "an answer without an image_id"),
        ([row("i1", "b", "maybe")], "'maybe' is no answer"),
        ([row("i1", "b", "wrong", "Other")], "category 'Other' alone"),
        ([row("i1", "b", "wrong", "", "Major")], "severity 'Major' alone"),
        ([row("i1", "b", "wrong", "Strange", "Major")], "'Strange' is no category"),
        ([row("i1", "b", "wrong", "Other", "Huge")], "'Huge' is no severity"),
        (
            [row("i1", "b", "correct", "Other", "Major")],
            "a prediction that is correct has the category",
        ),
        ([row("i1", "b", "wrong", "Multi-label or synonym")], "no category of a wrong prediction"),
        ([row("i1", "b", "wrong", who="")], "an answer that nobody gave"),
        (
            [row("i1", "b", "wrong"), row("i2", "c", "correct"), row("i1", "b", "correct")],
            "line 4: ann says correct of b in image 'i1', and wrong in line 2",
        ),
    ],
)
def test_refused_with_the_line(
    testset: TestSet, tmp_path: Path, rows: list[dict[str, str]], words: str
) -> None:
    path = filled(tmp_path / "q.csv", rows)
    with pytest.raises(BadFile, match=r"q\.csv: line") as caught:
        read_filled(path, testset=testset)
    assert words in caught.value.message
    assert caught.value.fix
    with pytest.raises(BadFile):
        import_judgement_file(path, Workspace(tmp_path))
    assert not judgements_about(testset, Workspace(tmp_path).judgements), "all or none"


def test_two_reviewers_may_differ_and_a_repeat_counts_once(
    testset: TestSet, tmp_path: Path
) -> None:
    path = filled(
        tmp_path / "q.csv",
        [row("i1", "b", "wrong"), row("i1", "b", "correct", who="bob"), row("i1", "b", "wrong")],
    )
    found = read_filled(path, testset=testset)
    assert len(found.judgements) == 2


def test_a_name_on_the_command_line_stands_for_empty_cells(
    testset: TestSet, tmp_path: Path
) -> None:
    path = filled(
        tmp_path / "q.csv", [row("i1", "b", "wrong", who=""), row("i2", "c", "wrong", who="bob")]
    )
    assert [j.who for j in read_filled(path, testset=testset, who="ann").judgements] == [
        "ann",
        "bob",
    ]


def test_importing_again_adds_nothing_and_a_change_of_mind_is_said(
    testset: TestSet, tmp_path: Path
) -> None:
    place = Workspace(tmp_path)
    path = filled(tmp_path / "q.csv", [row("i1", "b", "wrong", "Other", "Major"), row("i2", "c")])
    assert import_judgement_file(path, place) == ImportedAnswers(2, 0, empty=1)
    assert import_judgement_file(path, place) == ImportedAnswers(0, 2, empty=1)
    again = filled(tmp_path / "r.csv", [row("i1", "b", "wrong", "Other", "Minor")])
    with pytest.raises(MismatchError, match=r"said .*Major.* before"):
        import_judgement_file(again, place)
    assert import_judgement_file(again, place, revise=True) == ImportedAnswers(1, 1, replaced=1)
    with JudgementStore(place.judgements) as store:
        (stands,) = store.current(question="mistake")
        assert isinstance(stands.answer, Mapping) and stands.answer["severity"] == "Minor"
        assert store.count(question="mistake") == 2, "the earlier answer stays as history"
    dated = filled(
        tmp_path / "s.csv", [{**row("i1", "b", "correct"), "when": "2026-05-01T10:00:00Z"}]
    )
    assert import_judgement_file(dated, place) == ImportedAnswers(2, 0, replaced=1)
    assert standing(place) == [("label", "correct")], "who calls it right takes the verdict back"
    assert import_judgement_file(dated, place) == ImportedAnswers(0, 1)
    back = filled(tmp_path / "u.csv", [row("i1", "b", "wrong", "Other", "Minor")])
    assert import_judgement_file(back, place, revise=True) == ImportedAnswers(2, 0, replaced=1)
    verdict = {"category": "Other", "severity": "Minor"}
    assert standing(place) == [("label", "wrong"), ("mistake", verdict)]


def standing(place: Workspace) -> list[tuple[str, object]]:
    with JudgementStore(place.judgements) as store:
        return [(j.question, j.answer) for j in store.current()]


@pytest.mark.parametrize("linked", [True, False])
def test_a_revision_stands_however_many_answers_came_before(
    testset: TestSet, tmp_path: Path, linked: bool
) -> None:
    place = Workspace(tmp_path)
    for number, answer in enumerate(["wrong", "unclear"], 1):
        when = f"2026-0{number}-01T00:00:00Z"
        if linked:
            path = filled(tmp_path / f"{number}.csv", [{**row("i1", "b", answer), "when": when}])
        else:
            path = tmp_path / f"{number}.jsonl"
            write_judgements(path, [label("i1", answer, when=when)])
        import_judgement_file(path, place)
    last = filled(tmp_path / "last.csv", [row("i1", "b", "correct")])
    assert import_judgement_file(last, place, revise=True).replaced == 1
    assert standing(place) == [("label", "correct")]
    if linked:  # a dated answer that is read again is known, and changes nothing
        assert import_judgement_file(tmp_path / "1.csv", place) == ImportedAnswers(0, 1)
        assert standing(place) == [("label", "correct")]


def test_a_verdict_and_a_right_answer_contradict_each_other(
    testset: TestSet, tmp_path: Path
) -> None:
    place = Workspace(tmp_path)
    verdict = Judgement(
        question="mistake",
        subject={"image_id": "i1", "prediction": "b"},
        answer={"category": "Other", "severity": "Major"},
        who="ann",
    )
    write_judgements(tmp_path / "t.jsonl", [verdict])
    import_judgement_file(tmp_path / "t.jsonl", place)
    path = filled(tmp_path / "q.csv", [row("i1", "b", "correct")])
    with pytest.raises(MismatchError, match=r"says correct .* and said .*Major.* before"):
        import_judgement_file(path, place)
    import_judgement_file(path, place, revise=True)
    assert standing(place) == [("label", "correct")]


def test_answers_for_another_set_with_the_same_ids_are_apart(
    testset: TestSet, tmp_path: Path
) -> None:
    place = Workspace(tmp_path)
    card = testset.card.updated(name="letters-2")
    other = save(
        make_testset(card, images=testset.images, truths=dict(testset.truths), label_space=SPACE),
        place.testsets / "letters-2",
    )
    one = filled(tmp_path / "1.csv", [row("i1", "b", "wrong")])
    rows = [{**row("i1", "b", "correct"), "testset": "letters-2"}]
    assert import_judgement_file(one, place).added == 1
    assert import_judgement_file(filled(tmp_path / "2.csv", rows), place) == ImportedAnswers(1, 0)
    for each, answer in ((testset, "wrong"), (other, "correct")):
        assert [j.answer for j in judgements_about(each, place.judgements)] == [answer]


def test_a_set_that_was_renamed_is_named_on_the_command_line(
    testset: TestSet, tmp_path: Path
) -> None:
    place = Workspace(tmp_path)
    path = filled(tmp_path / "q.csv", [{**row("i1", "b", "wrong"), "testset": "old-name"}])
    assert import_judgement_file(path, place, testset=testset).added == 1
    assert [j.testset for j in judgements_about(testset, place.judgements)] == ["letters-1"]


def test_a_table_that_says_something_else_than_before_is_refused(
    testset: TestSet, tmp_path: Path
) -> None:
    place = Workspace(tmp_path)
    path = tmp_path / "t.jsonl"
    write_judgements(path, [label("i1", "wrong"), label("i2", "wrong")])
    assert import_judgement_file(path, place) == ImportedAnswers(2, 0)
    assert import_judgement_file(path, place) == ImportedAnswers(0, 2)
    other = tmp_path / "u.jsonl"
    write_judgements(other, [label("i3", "wrong"), label("i1", "correct")])
    with pytest.raises(BadFile, match=r"ann says correct of .* and said wrong before"):
        import_judgement_file(other, place)
    with JudgementStore(place.judgements) as store:
        assert store.count() == 2, "all or none"
    write_judgements(other, [label("i1", "correct", when="2026-05-01T10:00:00Z")])
    assert import_judgement_file(other, place) == ImportedAnswers(1, 0)
    with pytest.raises(UserError, match="--revise are for a filled queue"):
        import_judgement_file(other, place, revise=True)
    with JudgementStore(place.judgements) as store:
        (second,) = store.current(subject={"image_id": "i2", "class_id": "b"})
    write_judgements(
        path, [replace(label("i2", "correct"), supersedes=second.judgement_id, judgement_id="")]
    )
    assert import_judgement_file(path, place) == ImportedAnswers(1, 0)
    assert standing(place) == [("label", "correct"), ("label", "correct")]


def test_a_queue_that_names_no_set_needs_one(testset: TestSet, tmp_path: Path) -> None:
    path = filled(tmp_path / "q.csv", [{**row("i1", "b", "wrong"), "testset": ""}])
    with pytest.raises(BadFile, match="does not say which test set"):
        import_judgement_file(path, Workspace(tmp_path))
    assert import_judgement_file(path, Workspace(tmp_path), testset=testset).added == 1


def label(image: str, answer: str, *, who: str = "ann", when: str | None = None) -> Judgement:
    return Judgement(
        question="label",
        subject={"image_id": image, "class_id": "b"},
        answer=answer,
        who=who,
        when=when,
    )


def test_a_table_is_checked_too(testset: TestSet, tmp_path: Path) -> None:
    place = Workspace(tmp_path)
    path = tmp_path / "t.jsonl"
    write_judgements(path, [label("i1", "wrong"), label("i1", "correct")])
    with pytest.raises(BadFile, match=r"ann answers label about .* with wrong and with correct"):
        import_judgement_file(path, place)
    write_judgements(path, [label("i9", "wrong")])
    with pytest.raises(BadFile, match="image 'i9' is not in test set letters-1"):
        import_judgement_file(path, place, testset=testset)
    when = "2026-05-01T10:00:00Z"
    write_judgements(path, [label("i1", "wrong"), label("i1", "correct", when=when)])
    assert import_judgement_file(path, place, testset=testset).added == 2
    with pytest.raises(UserError, match="--who and --revise are for"):
        import_judgement_file(path, place, who="ann")


def test_judgements_about_a_set_leave_out_other_sets(testset: TestSet, tmp_path: Path) -> None:
    address = Workspace(tmp_path).judgements
    assert judgements_about(testset, address) == []
    assert not (tmp_path / "judgements.db").exists(), "reading makes no table"
    other = Judgement(
        question="label",
        subject={"image_id": "i1", "class_id": "c"},
        answer="wrong",
        who="ann",
        testset="numbers-1",
    )
    with JudgementStore(address) as store:
        store.add([label("i1", "wrong"), label("elsewhere", "wrong"), other])
    assert [j.subject for j in judgements_about(testset, address)] == [
        {"image_id": "i1", "class_id": "b"}
    ]


def test_unknown_things_have_errors_of_their_own(testset: TestSet) -> None:
    from heldout.data.judgements.for_testset import SubjectCheck

    check = SubjectCheck(testset)
    with pytest.raises(MismatchError):
        check(label("i9", "wrong"))
    with pytest.raises(LabelError):
        check(
            Judgement(
                question="mistake",
                subject={"image_id": "i1", "prediction": "z"},
                answer={"category": "Other", "severity": "Major"},
                who="ann",
            )
        )
