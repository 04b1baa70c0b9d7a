"""Files of mistakes: read, summed up, compared, and laid beside a truth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from heldout.core.errors import BadFile, MismatchError
from heldout.data.judgements.files import write_judgements
from heldout.data.judgements.judgement import Judgement
from heldout.measure.mistakes.panel import (
    MistakeFile,
    file_agreement,
    listed_predictions,
    read_mistake_file,
)
from heldout.measure.mistakes.verdicts import verdicts
from tests.measure.mistakes.made import set_of_kind
from tests.measure.score.worlds import Image, World, space_of

FINE, OOV = "Fine-grained error", "Fine-grained error with OOV"


def _row(prediction: int, category: str = FINE, severity: str = "Major") -> dict[str, Any]:
    return {
        "top_prediction": prediction,
        "failure category": category,
        "failure severity": severity,
    }


def _write(path: Path, rows: dict[str, Any]) -> Path:
    path.write_text(json.dumps(rows))
    return path


def test_spelling_and_folding(tmp_path: Path) -> None:
    path = _write(
        tmp_path / "mine_mistakes.json",
        {
            "b": _row(1, "Fine-grained with OOV", "Borderline"),
            "a": _row(2, OOV, "Minor"),
            "c": _row(0, FINE, "Major"),
        },
    )
    found = read_mistake_file(path, label_space=space_of(3))
    assert found.name == "mine" and len(found) == 3
    assert list(found.verdicts) == [("a", "c2"), ("b", "c1"), ("c", "c0")]
    assert found.table() == {(FINE, "Major"): 1, (OOV, "Borderline"): 1, (OOV, "Minor"): 1}
    assert found.table(fold=True) == {(FINE, "Major"): 1, (OOV, "Minor"): 2}


def test_judgements_of_several_reviewers(tmp_path: Path) -> None:
    def judged(image: str, who: str, category: str, severity: str) -> Judgement:
        return Judgement(
            question="mistake",
            subject={"image_id": image, "prediction": "c1"},
            answer={"category": category, "severity": severity},
            who=who,
        )

    rows = [
        judged("a", "ann", FINE, "Major"),
        judged("a", "bob", FINE, "Minor"),
        judged("a", "cyd", FINE, "Major"),
        judged("b", "ann", FINE, "Minor"),
        judged("b", "bob", "Other", "Minor"),
    ]
    for ending in (".jsonl", ".csv", ".parquet"):
        path = tmp_path / f"panel{ending}"
        write_judgements(path, rows)
        found = read_mistake_file(path, label_space=space_of(3))
        assert found.verdicts == {("a", "c1"): (FINE, "Major"), ("b", "c1"): ("unclear", "Minor")}
    vote = Judgement(
        question="vote", subject={"image_id": "a", "class_id": "b"}, answer="selected", who="x"
    )
    write_judgements(tmp_path / "votes.jsonl", [vote])
    with pytest.raises(BadFile, match="holds no judgements of mistakes"):
        read_mistake_file(tmp_path / "votes.jsonl", label_space=space_of(3))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({}, "names no mistakes"),
        ({"a": _row(3)}, "names class 3"),
        ({"a": _row(1, "Ghost")}, "category 'Ghost'"),
        ({"a": _row(1, FINE, "Huge")}, "severity 'Huge'"),
        ({"a": 5}, "category None"),
    ],
)
def test_bad_files(tmp_path: Path, rows: dict[str, Any], message: str) -> None:
    with pytest.raises(BadFile, match=message):
        read_mistake_file(_write(tmp_path / "x.json", rows), label_space=space_of(3))


def test_agreement_of_two_files() -> None:
    one = MistakeFile(
        Path("one_mistakes.json"),
        {("a", "c0"): (FINE, "Major"), ("b", "c1"): (FINE, "Minor"), ("c", "c2"): (OOV, "Major")},
    )
    other = MistakeFile(
        Path("other_mistakes.json"),
        {("a", "c0"): (FINE, "Major"), ("b", "c1"): (OOV, "Minor"), ("c", "c0"): (OOV, "Major")},
    )
    found = file_agreement(one, other)
    assert (found.first, found.second, found.images, found.shared) == ("one", "other", 3, 2)
    assert (found.same_category, found.same_severity, found.same) == (1, 2, 1)


WORLD = World(
    4,
    (
        Image("val_1.JPEG", 0, (0, 1), (), (2,)),
        Image("val_2.JPEG", 1, (), (1,), ()),
        Image("val_3.JPEG", 2, (2,), (), ()),
        Image("val_4.JPEG", 3, (3,), (), (), True),
    ),
)


def test_right_wherever_the_file_is_silent(tmp_path: Path) -> None:
    path = _write(tmp_path / "m_mistakes.json", {"val_1": _row(2), "val_3": _row(0), "x": _row(1)})
    testset = set_of_kind(WORLD, "multilabel")
    listed, missing = listed_predictions(testset, read_mistake_file(path, label_space=space_of(4)))
    assert missing == 1 and listed.model == "m"
    assert listed.topk[:, 0].tolist() == [2, 1, 0, 3]
    found = verdicts(testset, [listed])
    assert found.wrong[:, 0].tolist() == [True, False, True]


def test_one_prediction_an_image() -> None:
    file = MistakeFile(
        Path("m.json"),
        {("val_1.JPEG", "c2"): (FINE, "Major"), ("val_1.JPEG", "c3"): (FINE, "Major")},
    )
    with pytest.raises(MismatchError, match="several predictions for image 'val_1"):
        listed_predictions(set_of_kind(WORLD, "multilabel"), file)


def test_no_image_in_common(tmp_path: Path) -> None:
    path = _write(tmp_path / "m.json", {"elsewhere": _row(2)})
    file = read_mistake_file(path, label_space=space_of(4))
    with pytest.raises(MismatchError, match="none of its 1 images"):
        listed_predictions(set_of_kind(WORLD, "multilabel"), file)
