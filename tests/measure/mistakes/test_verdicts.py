"""Verdicts against plain loops, and against the scores that count the same images."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import NotApplicable, NotFound, UserError
from heldout.data.labels import LabelMap
from heldout.data.testset import make_testset
from heldout.measure.mistakes.verdicts import (
    NOTHING,
    RIGHT,
    WRONG,
    Collapse,
    verdicts,
    verdicts_by_truth,
)
from heldout.measure.score.measure import measure
from tests.measure.mistakes.made import counted, has_reviews, plain_state, set_of_kind
from tests.measure.score.test_label_maps import mapped_worlds
from tests.measure.score.worlds import Image, World, single_label, world_testset, worlds

KINDS = st.sampled_from(["single", "real", "multilabel"])


@settings(max_examples=120)
@given(worlds(), KINDS, st.randoms())
def test_states_and_guesses(world: World, kind: str, random: object) -> None:
    order = list(range(len(world.images)))
    random.shuffle(order)  # type: ignore[attr-defined]
    found = verdicts(set_of_kind(world, kind, order), world.predictions())
    rows = list(counted(world, kind))
    assert found.image_ids == tuple(image.id for _, image in rows)
    assert found.left_out == len(world.images) - len(rows)
    assert found.reviewed == has_reviews(world, kind)
    assert found.models == tuple(world.logits)
    for m, model in enumerate(found.models):
        expected = [plain_state(world, kind, model, row) for row, _ in rows]
        assert found.guesses[:, m].tolist() == [guess for guess, _ in expected]
        assert found.states[:, m].tolist() == [state for _, state in expected]
    assert (found.wrong == (found.states != RIGHT)).all()
    assert found.truth.labels.tolist() == [image.label for _, image in rows]


@settings(max_examples=60)
@given(worlds(), st.sampled_from([("single", "top1"), ("multilabel", "mla_micro")]))
def test_wrong_is_what_scores_count(world: World, which: tuple[str, str]) -> None:
    kind, metric = which
    if kind == "single":  # top-1 knows no unclear labels
        images = tuple(Image(i.id, i.label, i.correct, (), i.wrong) for i in world.images)
        world = World(world.classes, images, world.logits)
    testset = set_of_kind(world, kind)
    (measured,) = measure(testset, world.predictions(), metrics=[metric])
    found = verdicts(testset, world.predictions())
    assert (measured.rows == found.truth.rows).all()
    assert (measured.values == ~found.wrong).all()
    assert measured.left_out == found.left_out
    assert found.hashes == measured.hashes


@settings(max_examples=60)
@given(mapped_worlds())
def test_label_maps(made: tuple[LabelMap, World, World]) -> None:
    label_map, in_target, in_source = made
    for world, space in ((in_target, label_map.target), (in_source, label_map.source)):
        testset = world_testset(world, space=space)
        outputs = [world.prediction(model, space=label_map.source) for model in world.logits]
        try:
            (measured,) = measure(testset, outputs, metrics=["recall"], label_map=label_map)
        except NotApplicable:
            with pytest.raises(NotApplicable, match="no image to count"):
                verdicts(testset, outputs, label_map=label_map)
            continue
        found = verdicts(testset, outputs, label_map=label_map)
        assert (found.wrong == ~measured.values).all()
        assert measured.guesses is not None
        assert (found.guesses == measured.guesses).all()
        # A guess that is no class of the set is wrong, but it is an answer.
        foreign = (found.guesses < 0) & (found.states != NOTHING)
        assert (found.states[foreign] == WRONG).all()


@settings(max_examples=40)
@given(worlds())
def test_several_truths_at_once(world: World) -> None:
    made = world_testset(world)
    testset = make_testset(
        made.card.updated(truths={"original": {}, "panel": {"kind": "multilabel"}}),
        images=made.images,
        truths={"original": made.truth(), "panel": made.truth()},
        label_space=made.label_space,
    )
    outputs = world.predictions()
    both = verdicts_by_truth(testset, iter(outputs), truths=["panel", "original"])
    for found in both:
        alone = verdicts(testset, outputs, truth=found.truth.name)
        assert (alone.states == found.states).all()
        assert (alone.guesses == found.guesses).all()
    assert [found.truth.name for found in both] == ["panel", "original"]


def test_a_label_both_correct_and_wrong_is_right() -> None:
    images = (Image("a", 0, (0, 1), (), (1, 2)), Image("b", 0, (0,), (2,), (2,)))
    logits = {"m": ((0.0, 1.0, 0.0), (0.0, 0.0, 1.0))}
    found = verdicts(
        set_of_kind(World(3, images, logits), "multilabel"), World(3, images, logits).predictions()
    )
    assert found.states.tolist() == [[RIGHT], [RIGHT]]


def test_collapse_is_directed_and_one_step() -> None:
    world = single_label([0, 1, 2], 3, {"m": [(0, 1, 0), (0, 0, 1), (1, 0, 0)]})
    testset, outputs = world_testset(world), world.predictions()
    assert verdicts(testset, outputs).wrong.all()
    table = Collapse("t", {"c0": ("c1",), "c1": ("c2",)})
    found = verdicts(testset, outputs, collapse=table)
    # c0 may be called c1 and c1 may be called c2; neither c2 -> c0, nor anything in two steps.
    assert found.wrong[:, 0].tolist() == [False, False, True]
    two = single_label([0], 3, {"m": [(0, 0, 1)]})
    assert verdicts(world_testset(two), two.predictions(), collapse=table).wrong.all()


def test_of_models() -> None:
    world = single_label([0, 1], 2, {"m": [(1, 0), (1, 0)], "o": [(0, 1), (0, 1)]})
    found = verdicts(world_testset(world), world.predictions())
    turned = found.of_models(["o", "m"])
    assert turned.models == ("o", "m")
    assert (turned.states == found.states[:, ::-1]).all()
    assert turned.hashes == found.hashes[::-1]
    with pytest.raises(UserError, match="there is m, o"):
        found.of_models(["x"])


def test_what_is_refused() -> None:
    world = single_label([0, 1], 2, {"m": [(1, 0), (0, 1)]})
    testset = world_testset(world)
    with pytest.raises(UserError, match="m is there twice"):
        verdicts(testset, [*world.predictions(), *world.predictions()])
    with pytest.raises(UserError, match="no models"):
        verdicts(testset, [])
    with pytest.raises(NotFound, match="no truth 'real'"):
        verdicts(testset, world.predictions(), truth="real")
    nothing = World(2, (Image("a", 0), Image("b", 1)), world.logits)
    with pytest.raises(NotApplicable, match="no image to count"):
        verdicts(world_testset(nothing), world.predictions())


def test_many_models_keep_small_arrays() -> None:
    world = single_label([0, 1], 2, {f"m{i}": [(1, 0), (0, 1)] for i in range(5)})
    found = verdicts(world_testset(world), world.predictions())
    assert found.guesses.dtype == np.int32 and found.states.dtype == np.int8
    assert found.guesses.shape == (2, 5)
