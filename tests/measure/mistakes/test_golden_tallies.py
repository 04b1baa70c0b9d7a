"""Tallies of the published mistakes: the tables of ImageNet Mistakes come out again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from heldout.data.labels import LabelSpace
from heldout.data.published.answers import read_mistakes
from heldout.data.published.imagenetv2 import read_imagenetv2
from heldout.measure.mistakes.panel import (
    kinds_of,
    listed_predictions,
    read_mistake_file,
    with_truth_file,
)
from heldout.measure.mistakes.tally import Study, forgiven, tally
from heldout.measure.mistakes.verdicts import mistakes_of, verdicts
from heldout.measure.score.measure import measure

VIT3B = {
    ("Fine-grained error", "Borderline"): 53,
    ("Fine-grained error", "Major"): 87,
    ("Fine-grained error", "Minor"): 101,
    ("Fine-grained error with OOV", "Borderline"): 10,
    ("Fine-grained error with OOV", "Major"): 22,
    ("Fine-grained error with OOV", "Minor"): 22,
    ("Fine-grained with Multilabel Options", "Major"): 1,
    ("Non-prototypical", "Borderline"): 9,
    ("Non-prototypical", "Major"): 7,
    ("Non-prototypical", "Minor"): 14,
    ("Spurious Correlation", "Borderline"): 2,
    ("Spurious Correlation", "Major"): 37,
    ("Spurious Correlation", "Minor"): 13,
}


@pytest.mark.shared
def test_the_published_table_comes_out_again(shared_data: Path) -> None:
    folder = shared_data / "mistakes"
    path = folder / "vit3b_mistakes.json"
    space = LabelSpace.load("imagenet-1k")
    file = read_mistake_file(path, label_space=space)
    order = shared_data / "imagenetv2/datasets/imagenet-validation-original.json"
    testset, _ = with_truth_file(read_imagenetv2(order, name="val"), folder / "multilabel.csv")
    truth = testset.card.default_truth
    listed = [listed_predictions(testset, file, truth=truth)[0]]
    found = verdicts(testset, listed, truth=truth)
    mistakes = mistakes_of(found)
    kinds = kinds_of(mistakes, judgements=read_mistakes(path))
    study = Study(verdicts=found, mistakes=mistakes, kinds=kinds)
    records = tally(study)
    table = Counter(
        {
            (r.category, r.severity): r.n
            for r in records
            if r.slice == "all" and r.basis == "judged" and "all" not in (r.category, r.severity)
        }
    )
    assert table == VIT3B
    margins = {(r.category, r.severity): r for r in records if (r.slice, r.basis) == ("all", "all")}
    assert (margins["all", "all"].n, margins["all", "all"].of) == (378, 18_692)
    assert margins["all", "Major"].n == 154
    groups = {r.slice: r.of for r in records if "class_group" in r.slice}
    assert groups == {
        "class_group=organism": 7_624,
        "class_group=artifact": 10_184,
        "class_group=other": 1_596,
    }
    measured = measure(testset, listed, metrics=["mla_micro"], truth=truth)
    value = {
        m.metric.name: float(m.estimates()[0]) for m in (*measured, *forgiven(study, measured))
    }
    right = 18_692 - 378
    assert value == {
        "mla_micro": pytest.approx(right / 18_692),
        "mla_micro_minor": pytest.approx((right + 241 + 54 + 1) / 18_692),
        "mla_micro_explained": pytest.approx(1.0),
        "mla_micro_judged_minor": pytest.approx((right + 74 + 150) / 18_692),
    }
