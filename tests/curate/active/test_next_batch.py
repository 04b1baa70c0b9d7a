from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from heldout.core.errors import BadFile, ExistsError, NotApplicable, UserError
from heldout.curate.active.classifier import Logistic
from heldout.curate.active.next_batch import (
    FIELDS,
    next_batch,
    out_of_fold,
    read_labels,
    write_batch,
)
from heldout.curate.active.strategies import parse_strategy
from heldout.curate.active.task import LabelingTask, make_problem
from tests.curate.active.conftest import made_problem


def half_labelled(labelled: int = 60) -> LabelingTask:
    whole = made_problem()
    known = [
        whole.classes[label] if row < labelled else None for row, label in enumerate(whole.labels)
    ]
    return make_problem(
        "made",
        ids=whole.ids,
        labels=known,
        domains=[whole.domain_names[place] for place in whole.domains],
        features=whole.features,
        parts=["train"] * len(whole),
    )


@pytest.mark.parametrize(
    "text",
    ["random", "margin+error", "atc:margin+estimated-error", "k-centre+uniform", "badge+worst"],
)
def test_a_batch_is_new_images_in_the_number_asked_for(text: str) -> None:
    problem = half_labelled()
    rows, standing = next_batch(problem, Logistic(), parse_strategy(text), budget=25, seed=1)
    chosen = {problem.ids.index(row["image_id"]) for row in rows}
    assert len(chosen) == 25 and (problem.labels[list(chosen)] < 0).all()
    assert sum(row.chosen for row in standing) == 25
    assert sum(row.labelled for row in standing) == 60
    again, _ = next_batch(problem, Logistic(), parse_strategy(text), budget=25, seed=1)
    assert again == rows


def test_margin_takes_the_least_sure_first() -> None:
    rows, _ = next_batch(half_labelled(), Logistic(), parse_strategy("margin"), budget=30)
    margins = [row["margin"] for row in rows]
    assert margins == sorted(margins)


def test_no_image_is_judged_by_a_classifier_that_saw_it() -> None:
    """With a class of one image the fold that holds it cannot know the class."""
    problem = half_labelled()
    labels = problem.labels.copy()
    labels[:60] = np.where(np.arange(60) == 7, 2, labels[:60] % 2)
    changed = LabelingTask(**{**problem.__dict__, "labels": labels})
    labelled = np.flatnonzero(labels >= 0)
    logits = out_of_fold(changed, Logistic(), labelled, folds=5, seed=0)
    assert logits[7].argmax() != 2
    assert logits.shape == (60, 3) and np.isfinite(logits).all()
    for folds in (1, 61):
        with pytest.raises(UserError, match="folds of 60 labelled"):
            out_of_fold(changed, Logistic(), labelled, folds=folds, seed=0)


def test_the_first_batch_needs_no_labels() -> None:
    problem = half_labelled(0)
    for text in ("random+uniform", "k-centre"):
        rows, _ = next_batch(problem, Logistic(), parse_strategy(text), budget=9)
        answers = {(row["predicted"], row["confidence"], row["margin"]) for row in rows}
        assert len(rows) == 9 and answers == {(None, None, None)}
    with pytest.raises(NotApplicable, match="begin with random or k-centre"):
        next_batch(problem, Logistic(), parse_strategy("margin"), budget=9)


@pytest.mark.parametrize("budget", [0, 181])
def test_budgets_that_cannot_be_met(budget: int) -> None:
    with pytest.raises(UserError, match="has 180 without a label"):
        next_batch(half_labelled(), Logistic(), parse_strategy("random"), budget=budget)


def test_a_file_to_fill_in(tmp_path: Path) -> None:
    problem = half_labelled()
    paths = dict.fromkeys(problem.ids, "a,b.jpg")
    strategy = parse_strategy("margin+error")
    rows, _ = next_batch(problem, Logistic(), strategy, budget=4, paths=paths)
    write_batch(rows, tmp_path / "next.csv")
    with (tmp_path / "next.csv").open(newline="") as handle:
        read = list(csv.DictReader(handle))
    assert tuple(read[0]) == FIELDS and [row["rank"] for row in read] == list("1234")
    assert read[0]["path"] == "a,b.jpg"
    with pytest.raises(UserError, match=r"ends in \.csv"):
        write_batch(rows, tmp_path / "next.xlsx")


def test_labels_are_read_from_both_kinds_of_file(tmp_path: Path) -> None:
    table, lines = tmp_path / "a.csv", tmp_path / "a.jsonl"
    table.write_text("class_id,image_id,who\ncat,a,x\n,b,x\ncat,a,y\n", encoding="utf-8-sig")
    lines.write_text(
        '{"image_id": "a", "class_id": "cat"}\n\n{"image_id": "b", "class_id": null}\n'
    )
    assert read_labels(table) == read_labels(lines) == {"a": "cat"}


def test_a_batch_is_filled_in_and_read_back(tmp_path: Path) -> None:
    """What was asked is answered in the same file; empty lines are no labels."""
    rows, _ = next_batch(half_labelled(), Logistic(), parse_strategy("random"), budget=3)
    rows[1]["class_id"] = "c1"
    table = tmp_path / "next.csv"
    write_batch(rows, table)
    image = rows[1]["image_id"]
    assert read_labels(table) == read_labels(table, table) == {image: "c1"}
    other = tmp_path / "other.csv"
    other.write_text(f"image_id,class_id\n{image},c2\n")
    with pytest.raises(BadFile, match="'c2' here and 'c1' before"):
        read_labels(table, other)


def test_labels_that_people_gave_are_never_written_over(tmp_path: Path) -> None:
    rows, _ = next_batch(half_labelled(), Logistic(), parse_strategy("random"), budget=3)
    write_batch(rows, tmp_path / "next.csv")
    write_batch(rows, tmp_path / "next.csv")  # nothing is filled in yet
    table = tmp_path / "next.csv"
    head, first, *rest = table.read_text().splitlines(keepends=True)
    cells = first.split(",")
    cells[FIELDS.index("class_id")] = "c1"
    table.write_text("".join([head, ",".join(cells), *rest]))
    before = table.read_bytes()
    with pytest.raises(ExistsError, match=r"next\.csv holds 1 labels"):
        write_batch(rows, table)
    assert table.read_bytes() == before


def test_ids_may_hold_what_ends_a_line_elsewhere(tmp_path: Path) -> None:
    rows = [dict.fromkeys(FIELDS) | {"image_id": "a\u2028b\x85.jpg", "class_id": "cat"}]
    table = tmp_path / "next.csv"
    write_batch(rows, table)
    assert read_labels(table) == {"a\u2028b\x85.jpg": "cat"}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "image_id,class\na,b\n", "line 2 has no image_id and class_id"),
        ("a.csv", "image_id,class_id\na,cat\na,dog\n", "'a' is 'dog' here and 'cat' before"),
        ("a.csv", "image_id,class_id\n,cat\n", "line 2 has no image_id and class_id"),
        ("a.csv", 'image_id,class_id\n"' + "a" * 200_000 + '",b\n', "is not valid CSV"),
        ("a.jsonl", "{\n", "line 1 is not a JSON object"),
        ("a.jsonl", "[1]\n", "line 1 is not a JSON object"),
        ("a.jsonl", '{"image_id": "a", "class_id": 3}\n', "class_id is not text"),
    ],
)
def test_labels_that_cannot_be_read(tmp_path: Path, name: str, text: str, said: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(BadFile, match=said):
        read_labels(path)
