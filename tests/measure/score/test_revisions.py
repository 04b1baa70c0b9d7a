"""Predictions pooled by image id, and scores of revisions that they cover in part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import LabelError, NotApplicable
from heldout.core.records import Count
from heldout.data.testset import Card, TestSet, image_table, make_testset, truth_table
from heldout.measure.score.records import Score
from heldout.measure.score.revisions import pool_predictions, score_revisions, spread_over
from heldout.models.predictions import Predictions
from heldout.stats.intervals import wilson
from tests.measure.score.worlds import space_of

SPACE = space_of(3)


def outputs(rows: dict[str, int | None], *, model: str = "m", k: int = 2) -> Predictions:
    """First guesses by image; None is a failure."""
    topk = [[-1] * k if g is None else [(g + r) % 3 for r in range(k)] for g in rows.values()]
    return Predictions(
        model=model,
        image_ids=pa.array(list(rows), pa.string()),
        topk=np.array(topk, dtype=np.int32).reshape(len(rows), k),
        label_space=SPACE,
        failures={i: "broken" for i, g in enumerate(rows.values()) if g is None},
    )


def revision(name: str, labels: dict[str, int]) -> TestSet:
    ids = list(labels)
    return make_testset(
        Card(name=name, label_space=SPACE.name),
        images=image_table({"image_id": ids}),
        truths={"original": truth_table(ids, [SPACE.ids[c] for c in labels.values()])},
        label_space=SPACE,
    )


def test_one_prediction_is_laid_out_on_many_images() -> None:
    spread, covered = spread_over(outputs({"b": 2}), revision("r", {"a": 0, "b": 1, "c": 2}))
    assert spread.topk[:, 0].tolist() == [-1, 2, -1] and covered.tolist() == [False, True, False]


guess = st.one_of(st.none(), st.integers(0, 2))
stored = st.dictionaries(st.sampled_from("abcdefgh"), guess, min_size=1)


@settings(max_examples=80, deadline=None)
@given(st.lists(stored, min_size=1, max_size=3))
def test_pooling(sets: list[dict[str, int | None]]) -> None:
    pooled, disagreements = pool_predictions([outputs(rows) for rows in sets])
    expected: dict[str, int | None] = {}
    differ = set()
    for rows in sets:
        for image, first in rows.items():
            if image not in expected or expected[image] is None:
                expected[image] = first if first is not None else expected.get(image)
            elif first is not None and first != expected[image]:
                differ.add(image)
    found = dict(
        zip(
            pooled.image_ids.to_pylist(),
            pooled.topk[:, 0].tolist(),
            strict=True,
        )
    )
    assert found == {image: -1 if first is None else first for image, first in expected.items()}
    assert disagreements == len(differ)
    failed = [pooled.image_ids[row].as_py() for row in pooled.failures]
    assert sorted(failed) == sorted(image for image, first in expected.items() if first is None)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.sampled_from("abcdefghij"), st.integers(0, 2), min_size=1),
    st.lists(stored, min_size=1, max_size=2),
)
def test_scores_state_their_coverage(
    labels: dict[str, int], sets: list[dict[str, int | None]]
) -> None:
    records = score_revisions([revision("r-1", labels)], {"m": [outputs(rows) for rows in sets]})
    known: dict[str, int | None] = {}
    for rows in sets:
        for image, first in rows.items():
            if known.get(image) is None:
                known[image] = first
    covered = [image for image in labels if image in known]
    told = {r.name: r.value for r in records if isinstance(r, Count)}
    assert (told["n_images"], told["n_predicted"]) == (len(labels), len(covered))
    found = [r for r in records if isinstance(r, Score)]
    if not covered:
        assert found == []
        return
    (record,) = found
    hits = sum(known[image] == labels[image] for image in covered)
    limits = wilson(hits, len(covered))
    assert (record.n, record.value) == (len(covered), hits / len(covered))
    assert (record.low, record.high) == (limits.low, limits.high)
    assert record.slice == ("all" if len(covered) == len(labels) else "predicted=true")
    assert record.testset == "r-1"


def test_several_revisions_models_and_metrics() -> None:
    sets = [revision("r-1", {"a": 0, "b": 1}), revision("r-2", {"b": 1, "c": 2, "d": 0})]
    given: dict[str, Any] = {
        "m": [outputs({"a": 0, "b": 1}), outputs({"b": 2, "c": 2})],
        "n": [outputs({"c": 1, "d": 0}, model="n")],
    }
    records = score_revisions(
        sets, given, metrics=["top1", "top2", "mean_per_class"], replicates=50
    )
    found = {(r.testset, r.model, r.metric): r for r in records if isinstance(r, Score)}
    assert found["r-1", "m", "top1"].value == 1
    assert found["r-2", "m", "top1"].n == 2
    assert found["r-2", "n", "top2"].value == 1
    assert found["r-2", "n", "mean_per_class"].value == 0.5
    assert ("r-1", "n", "top1") not in found
    disagree = [r for r in records if isinstance(r, Count) and r.name == "n_disagreements"]
    assert {(r.model, r.value) for r in disagree} == {("m", 1)}


def test_what_cannot_be_pooled() -> None:
    other = Predictions(
        model="m",
        image_ids=pa.array(["a"]),
        topk=np.zeros((1, 1), np.int32),
        label_space=space_of(4),
    )
    with pytest.raises(LabelError, match="on one set and"):
        pool_predictions([outputs({"a": 0}), other])
    with pytest.raises(NotApplicable):
        score_revisions([revision("r-1", {"a": 0})], {"m": [outputs({"a": 0})]}, metrics=["nll"])
    with pytest.raises(NotApplicable, match="recall is not scored on revisions"):
        score_revisions([revision("r-1", {"a": 0})], {"m": [outputs({"a": 0})]}, metrics=["recall"])


def test_the_fewest_ranks_are_kept() -> None:
    pooled, _ = pool_predictions([outputs({"a": 0}, k=3), outputs({"b": 1}, k=2)])
    assert pooled.topk.tolist() == [[0, 1], [1, 2]]
