"""ImageNet-M is reported as a count and as a share."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from heldout import evaluate
from heldout.data.labels import LabelSpace
from heldout.data.testset import Card, image_table, make_testset, truth_table
from heldout.models.predictions import Predictions

SPACE = LabelSpace.from_ids("abc", ["a", "b", "c"])


def test_count_and_share_agree_and_no_image_is_left_out() -> None:
    ids = ["w", "x", "y", "z"]
    truth = truth_table(
        ids,
        ["a", "a", "b", "c"],
        correct=[["a"], [], ["b", "c"], ["c"]],
        unclear=[[], ["b"], [], []],
        problematic=[False, True, False, False],
    )
    testset = make_testset(
        Card(name="m", label_space="abc", truths={"multilabel": {"kind": "multilabel"}}),
        images=image_table({"image_id": ids}),
        truths={"multilabel": truth},
        label_space=SPACE,
    )
    outputs = Predictions(
        model="m",
        image_ids=pa.array(ids),
        topk=np.array([[0], [1], [0], [2]], np.int32),
        label_space=SPACE,
    )
    results = evaluate(outputs, testset, metrics=["accepted"])
    (score,) = results.scores
    assert (score.n, score.value) == (4, 0.75)
    assert [(c.name, c.value) for c in results.counts if c.name == "n_accepted"] == [
        ("n_accepted", 3)
    ]
