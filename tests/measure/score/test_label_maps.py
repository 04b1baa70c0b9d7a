"""Measuring through label maps, both readings, against loops."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import LabelError
from heldout.data.labels import LabelMap, LabelSpace, subset_map
from heldout.measure.score.measure import measure
from tests.measure.score.worlds import World, single_label, space_of, world_testset


@st.composite
def mapped_worlds(draw: st.DrawFn) -> tuple[LabelMap, World, World]:
    """A map without overlap, a set labelled in its target, and a set labelled in its source."""
    n = draw(st.integers(2, 7))
    k = draw(st.integers(1, n))
    owner = draw(st.lists(st.integers(-1, k - 1), min_size=n, max_size=n))
    for target, source in enumerate(draw(st.permutations(range(n)))[:k]):
        owner[source] = target
    accepted = tuple(tuple(s for s in range(n) if owner[s] == t) for t in range(k))
    reading = draw(st.sampled_from(["restricted", "full"]))
    source = LabelSpace.from_ids("source", [f"s{i}" for i in range(n)])
    target = LabelSpace.from_ids("target", [f"t{i}" for i in range(k)])
    label_map = LabelMap("made", "many-to-one", source, target, accepted, reading)
    images = draw(st.integers(1, 10))
    row = st.one_of(st.none(), st.permutations(range(n)).map(lambda p: tuple(float(v) for v in p)))
    logits = {"m": [draw(row) for _ in range(images)]}
    inside = single_label(
        draw(st.lists(st.integers(0, k - 1), min_size=images, max_size=images)), k, logits
    )
    clean = single_label(
        draw(st.lists(st.integers(0, n - 1), min_size=images, max_size=images)), n, logits
    )
    return label_map, inside, clean


def guessed(label_map: LabelMap, logits: tuple[float, ...] | None) -> list[int]:
    """Targets best first; -1 where the guess is no target (only under ``full``)."""
    if logits is None:
        return []
    order = sorted(range(len(logits)), key=lambda c: (-logits[c], c))
    targets = [next((t for t, s in enumerate(label_map.accepted) if c in s), -1) for c in order]
    if label_map.reading == "full":
        return targets
    return list(dict.fromkeys(t for t in targets if t >= 0))


@settings(max_examples=80, deadline=None)
@given(mapped_worlds(), st.booleans())
def test_both_readings(case: tuple[LabelMap, World, World], logits: bool) -> None:
    label_map, world, _ = case
    n = len(label_map.source)
    testset = world_testset(world, space=label_map.target)
    predictions = [
        world.prediction("m", space=label_map.source, keep="logits" if logits else "topk", k=n)
    ]
    top1, top2 = measure(testset, predictions, metrics=["top1", "top2"], label_map=label_map)
    for row, image in enumerate(world.images):
        targets = guessed(label_map, world.logits["m"][row])
        assert top1.values[row, 0] == (targets[:1] == [image.label])
        assert top2.values[row, 0] == (image.label in targets[:2])


@settings(max_examples=60, deadline=None)
@given(mapped_worlds())
def test_clean_baseline_of_the_same_classes(case: tuple[LabelMap, World, World]) -> None:
    """A set labelled in the source is cut down to the images of the target's classes."""
    label_map, _, world = case
    owner = {s: t for t, sources in enumerate(label_map.accepted) for s in sources}
    kept = [row for row, image in enumerate(world.images) if image.label in owner]
    testset = world_testset(world, space=label_map.source)
    predictions = [world.prediction("m", space=label_map.source)]
    if not kept:
        return
    (measured,) = measure(testset, predictions, label_map=label_map)
    assert measured.left_out == len(world.images) - len(kept)
    assert measured.space is label_map.target
    assert measured.groups.tolist() == [owner[world.images[row].label or 0] for row in kept]
    for place, row in enumerate(kept):
        targets = guessed(label_map, world.logits["m"][row])
        assert measured.values[place, 0] == (targets[:1] == [owner[world.images[row].label or 0]])


@settings(max_examples=40, deadline=None)
@given(mapped_worlds())
def test_nll_through_a_map(case: tuple[LabelMap, World, World]) -> None:
    label_map, world, _ = case
    testset = world_testset(world, space=label_map.target)
    predictions = [world.prediction("m", space=label_map.source)]
    (measured,) = measure(testset, predictions, metrics=["nll"], label_map=label_map)
    for row, image in enumerate(world.images):
        logits = world.logits["m"][row] or (0.0,) * len(label_map.source)
        right = label_map.accepted[image.label or 0]
        if label_map.reading == "full":  # the summed probability of all accepted classes
            whole, part = [math.exp(v) for v in logits], [math.exp(logits[c]) for c in right]
        else:  # each target stands for its best class
            whole = [max(math.exp(logits[c]) for c in sources) for sources in label_map.accepted]
            part = [max(math.exp(logits[c]) for c in right)]
        assert measured.values[row, 0] == pytest.approx(-math.log(sum(part) / sum(whole)), abs=1e-6)


def test_stored_top_k_may_not_hold_the_answer() -> None:
    source = space_of(4)
    label_map = subset_map(source, ["c2", "c3"], name="two", reading="restricted")
    world = single_label([0, 1, 0], 2, {"m": [(9, 8, 2, 1), (9, 1, 0, 8), None]})
    testset = world_testset(world, space=label_map.target)
    stored = [world.prediction("m", space=source, keep="topk", k=2)]
    top1, top2 = measure(testset, stored, metrics=["top1", "top2"], label_map=label_map)
    assert top1.values[:, 0].tolist() == [False, True, False]
    assert top1.unknown == (1,)  # the first image's best class is not on file; a failure is known
    assert top2.unknown == (2,)
    (whole,) = measure(testset, [world.prediction("m", space=source)], label_map=label_map)
    assert whole.values[:, 0].tolist() == [True, True, False]
    assert whole.unknown == (0,)


def test_failed_images_are_wrong_under_a_restriction_too() -> None:
    source = space_of(3)
    label_map = subset_map(source, ["c0", "c2"], name="two", reading="restricted")
    world = single_label([0, 0], 2, {"m": [None, (1, 0, 0)]})
    (measured,) = measure(
        world_testset(world, space=label_map.target),
        [world.prediction("m", space=source)],
        label_map=label_map,
    )
    assert measured.values[:, 0].tolist() == [False, True]


def test_guesses_are_classes_of_the_set() -> None:
    source = space_of(4)
    label_map = subset_map(source, ["c2", "c3"], name="two", reading="full")
    world = single_label([0, 1, 0], 2, {"m": [(0, 0, 1, 0), (1, 0, 0, 0), (0, 0, 0, 1)]})
    (measured,) = measure(
        world_testset(world, space=label_map.target),
        [world.prediction("m", space=source)],
        metrics=["recall"],
        label_map=label_map,
    )
    assert measured.guesses is not None
    pairs = zip(measured.groups.tolist(), measured.guesses[:, 0].tolist(), strict=True)
    assert sorted(pairs) == [(0, 0), (0, 1), (1, -1)]


def test_spaces_that_do_not_fit() -> None:
    world = single_label([0, 1], 2, {"m": [(1, 0, 0)] * 2})
    testset = world_testset(world)
    with pytest.raises(LabelError, match="m predicts made"):
        measure(testset, [world.prediction("m", space=space_of(3))])
    label_map = subset_map(space_of(4, "four"), ["c0", "c1"], name="made", reading="full")
    with pytest.raises(LabelError, match="label map made reads four, m predicts made"):
        measure(testset, [world.prediction("m", space=space_of(3))], label_map=label_map)


def test_restricted_is_never_below_full() -> None:
    rng = np.random.default_rng(3)
    source = space_of(8)
    restricted = subset_map(source, ["c1", "c4", "c6"], name="three", reading="restricted")
    world = single_label(
        rng.integers(0, 3, 50).tolist(), 3, {"m": rng.normal(size=(50, 8)).tolist()}
    )
    testset = world_testset(world, space=restricted.target)
    predictions = [world.prediction("m", space=source)]
    low = measure(testset, predictions, label_map=replace(restricted, reading="full"))[
        0
    ].estimates()[0]
    high = measure(testset, predictions, label_map=restricted)[0].estimates()[0]
    assert low < high
