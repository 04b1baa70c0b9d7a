"""The list of mistakes against plain loops."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.data.testset import Card, image_table, make_testset, truth_table
from heldout.measure.mistakes.verdicts import (
    NOTHING,
    RIGHT,
    UNREVIEWED,
    Mistake,
    mistakes_of,
    verdicts,
)
from heldout.models.predictions import Predictions
from tests.measure.mistakes.made import counted, plain_state, set_of_kind
from tests.measure.score.worlds import World, single_label, space_of, world_testset, worlds


@settings(max_examples=120)
@given(worlds(models=3), st.sampled_from(["single", "multilabel"]))
def test_against_loops(world: World, kind: str) -> None:
    found = mistakes_of(verdicts(set_of_kind(world, kind), world.predictions()))
    expected: dict[tuple[str, str], Mistake] = {}
    for row, image in counted(world, kind):
        for model in world.logits:
            guess, state = plain_state(world, kind, model, row)
            if state in (RIGHT, NOTHING):
                continue
            listed = list(dict.fromkeys([*image.correct, *image.unclear]))
            if image.label in listed:
                listed = [image.label, *(c for c in listed if c != image.label)]
            key = (image.id, f"c{guess}")
            before = expected[key].models if key in expected else ()
            expected[key] = Mistake(
                image.id,
                f"c{guess}",
                tuple(f"c{c}" for c in listed),
                f"c{image.label}",
                (*before, model),
                state != UNREVIEWED,
            )
    assert list(found) == [expected[key] for key in sorted(expected)]
    assert found.keys == sorted(expected)


def test_sorted_by_id_and_not_by_position() -> None:
    world = single_label([0] * 2, 12, {"m": [_hot(10), _hot(10)], "o": [_hot(2), _hot(2)]})
    found = mistakes_of(verdicts(world_testset(world), world.predictions()))
    assert [(m.image_id, m.prediction) for m in found] == [
        ("i000", "c10"), ("i000", "c2"), ("i001", "c10"), ("i001", "c2"),
    ]  # fmt: skip


def test_no_mistakes() -> None:
    world = single_label([0, 1], 2, {"m": [_hot(0, 2), _hot(1, 2)]})
    assert mistakes_of(verdicts(world_testset(world), world.predictions())).keys == []


def test_rows_of_one_image_belong_together() -> None:
    space = space_of(4)
    testset = make_testset(
        Card(name="made", label_space="made"),
        images=image_table({"image_id": ["a", "b"]}),
        truths={"original": truth_table(["a", "a", "b"], ["c0", "c1", "c0"])},
        label_space=space,
    )
    outputs = [
        Predictions(
            model=model,
            image_ids=pa.array(["a", "b"], pa.string()),
            topk=np.array(guesses, dtype=np.int32),
            label_space=space,
        )
        for model, guesses in {"m": [[1], [3]], "o": [[2], [0]]}.items()
    ]
    found = mistakes_of(verdicts(testset, outputs))
    # m says c1 of image a: wrong for its row c0, right for its row c1, so it is no mistake.
    assert [(m.image_id, m.prediction, m.acceptable, m.models) for m in found] == [
        ("a", "c2", ("c0", "c1"), ("o",)),
        ("b", "c3", ("c0",), ("m",)),
    ]


def _hot(place: int, size: int = 12) -> tuple[float, ...]:
    return tuple(float(c == place) for c in range(size))
