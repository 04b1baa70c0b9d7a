"""The published label files, to the count."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heldout.data.importing import (
    read_imagenet_m,
    read_imagenetv2,
    read_multilabel,
    read_real,
    read_real_scores,
)
from heldout.data.published.truths import validation_number
from heldout.data.testset import TestSet

pytestmark = pytest.mark.shared


@pytest.fixture(scope="module")
def validation(shared_data: Path) -> TestSet:
    return read_imagenetv2(shared_data / "imagenetv2/datasets/imagenet-validation-original.json")


def test_multilabel_statistics(shared_data: Path, validation: TestSet) -> None:
    truth = read_multilabel(shared_data / "mistakes/multilabel.csv", testset=validation)
    where = truth.provenance
    assert where["version"] == "3.0.0" and where["original_differs"] == 0
    assert where["counts"] == {
        "images": 20_000,
        "problematic": 1_308,
        "correct_labels": 24_465,
        "correct_images": 19_549,
        "unclear_labels": 475,
        "unclear_images": 355,
        "wrong_labels": 60_555,
        "wrong_images": 13_524,
    }
    assert where["conflicts"] == {"correct_and_wrong": 358, "repeated_labels": 1}
    rows = truth.table.to_pylist()
    assert len(rows) == 20_000
    kept = sum(len(row["correct"]) + len(row["unclear"]) + len(row["wrong"]) for row in rows)
    assert kept == 24_465 + 475 + 60_555 - 1  # the table is without the one repeat
    mistakes = json.loads((shared_data / "mistakes/vit3b_mistakes.json").read_text())
    wrong = {row["image_id"]: set(row["wrong"]) for row in rows}
    ids = validation.label_space.ids
    assert all(ids[m["top_prediction"]] in wrong[image] for image, m in mistakes.items())


def test_real_as_released_and_at_its_cut(shared_data: Path, validation: TestSet) -> None:
    folder = shared_data / "mistakes/real"
    real = read_real(folder / "real.json", testset=validation)
    counts = real.provenance["counts"]
    assert (counts["images"], counts["empty"]) == (50_000, 3_163)
    assert (counts["labels"], counts["several_labels"]) == (57_553, 7_443)
    assert counts["original_is_right"] == 42_164
    assert real.provenance["version"] == "2020, score cut 0.8"
    scores = read_real_scores(folder / "scores.npz", testset=validation, cut=0.8)
    assert scores.table.equals(real.table)
    assert scores.provenance["counts"]["kept_original"] == 25_111
    published = json.loads((folder / "real.json").read_text())
    ids = validation.label_space.ids
    for row in real.table.to_pylist():
        number = validation_number(row["image_id"])
        assert number is not None
        assert {ids[label] for label in published[number - 1]} == set(row["correct"])
    strict = read_real_scores(folder / "scores.npz", testset=validation, cut=0.95)
    assert (
        strict.provenance["counts"]["labels"] < 57_553 < strict.provenance["counts"]["images"] * 2
    )
    assert strict.name == "real-0.95"


def test_a_hard_subset_of_the_published_truth(
    shared_data: Path, validation: TestSet, tmp_path: Path
) -> None:
    truth = read_multilabel(shared_data / "mistakes/multilabel.csv", testset=validation)
    parent = TestSet(
        validation.card.updated(truths={**validation.card.truths, "multilabel": truth.provenance}),
        validation.images,
        {**validation.truths, "multilabel": truth.table},
        validation.memberships,
        validation.label_space,
    )
    mistakes = json.loads((shared_data / "mistakes/vit3b_mistakes.json").read_text())
    major = [image for image, m in mistakes.items() if m["failure severity"] == "Major"]
    (tmp_path / "major.json").write_text(json.dumps(major))
    made = read_imagenet_m(tmp_path / "major.json", parent=parent, name="vit3b-major")
    assert len(made) == len(made.truth()) == 154
    assert made.card.default_truth == "multilabel"
