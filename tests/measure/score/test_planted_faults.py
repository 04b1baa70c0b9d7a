"""Known faults of published evaluations, planted: they cannot pass unseen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from heldout.core.errors import HeldoutError
from heldout.data.labels import LabelSpace
from heldout.measure.score.estimate import scores
from heldout.measure.score.measure import measure
from heldout.models.predictions import Predictions

from .factor_worlds import FactorWorld, factor_world, rising

FOLDERS = {"bagel": 931, "koala": 105, "lemon": 951, "printer": 742, "starfish": 327, "zebra": 340}


def of_imagenet(seed: int = 0) -> FactorWorld:
    """Six classes of a thousand, in folders whose alphabetical places are 0 to 5."""
    return factor_world(
        {"size": [0.1, 0.3, 0.5, 0.7]},
        rising,
        objects=12,
        classes=6,
        models=("oak",),
        seed=seed,
        space=LabelSpace.load("imagenet-1k"),
        space_labels=list(FOLDERS.values()),
    )


def in_folder_places(world: FactorWorld) -> Predictions:
    """The same outputs, written as places among the folders: the fault."""
    (given,) = world.predictions
    place = {index: number for number, index in enumerate(FOLDERS.values())}
    topk = np.array([[place[int(row[0])]] for row in given.topk], dtype=np.int32)
    return replace(given, model="folder places", topk=topk)


def test_a_model_of_folder_places_cannot_be_measured_as_one_of_ids() -> None:
    """Outputs that say which classes they are of are refused, not compared by place."""
    world = of_imagenet()
    space = LabelSpace(
        "folders", tuple(LabelSpace.load("imagenet-1k").classes[i] for i in FOLDERS.values())
    )
    with pytest.raises(HeldoutError, match="folders"):
        measure(world.testset, [replace(in_folder_places(world), label_space=space)])


def test_missing_predictions_are_refused_by_name_and_never_shift_the_others() -> None:
    world = of_imagenet()
    (given,) = world.predictions
    kept = np.arange(len(given.topk)) != 7
    shorter = replace(given, image_ids=given.image_ids.filter(kept), topk=given.topk[kept])
    with pytest.raises(HeldoutError, match=r"1 of .* images"):
        measure(world.testset, [shorter])
    # Said to be missing, an image counts as wrong; every other one keeps its own answer.
    topk = given.topk.copy()
    topk[7] = -1
    failed = replace(given, topk=topk, failures={7: "no prediction"})
    whole, lacking = world.measured(), measure(world.testset, [failed])[0]
    hole = {int(np.flatnonzero(whole.rows == 7)[0])}
    rest = [row for row in range(len(whole)) if row not in hole]
    assert (whole.values[rest] == lacking.values[rest]).all()
    assert not lacking.values[list(hole)].any() and lacking.failed == (1,)
    assert {r.slice: r.n for r in scores(lacking, by=["size"])} == {
        r.slice: r.n for r in scores(whole, by=["size"])
    }
