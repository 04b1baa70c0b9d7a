"""Every metric against loops over plain lists."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings

from heldout.core.errors import NotApplicable, UserError
from heldout.measure.score.measure import measure
from heldout.measure.score.metrics import get_metric
from tests.measure.score.worlds import Image, World, single_label, world_testset, worlds

Hit = Callable[[Image, list[int]], bool]


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def top(k: int) -> Hit:
    return lambda image, guesses: any(guess in image.correct for guess in guesses[:k])


def in_correct(image: Image, guesses: list[int]) -> bool:
    return bool(guesses) and guesses[0] in image.correct


def accepted(image: Image, guesses: list[int]) -> bool:
    return bool(guesses) and (guesses[0] in image.correct or guesses[0] in image.unclear)


def judged(image: Image, guesses: list[int]) -> bool:
    return bool(guesses) and guesses[0] in (*image.correct, *image.unclear, *image.wrong)


def upper(image: Image, guesses: list[int]) -> bool:
    return accepted(image, guesses) or (bool(guesses) and not judged(image, guesses))


OVER_IMAGES: dict[str, tuple[Callable[[Image], bool], Hit]] = {
    "top1": (lambda image: bool(image.correct), top(1)),
    "top2": (lambda image: bool(image.correct), top(2)),
    "real": (lambda image: bool(image.correct), in_correct),
    "mla_micro": (lambda image: not image.problematic, accepted),
    "accepted": (lambda image: True, accepted),
}
OVER_CLASSES: dict[str, tuple[Callable[[Image], bool], Hit]] = {
    "mean_per_class": (lambda image: bool(image.correct), in_correct),
    "mla": (lambda image: not image.problematic, accepted),
    "mla_correct_only": (lambda image: not image.problematic, in_correct),
    "mla_upper": (lambda image: not image.problematic, upper),
}


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_metrics_over_images(world: World) -> None:
    found = measure(world_testset(world), world.predictions(), metrics=list(OVER_IMAGES))
    for measured, (name, (include, hit)) in zip(found, OVER_IMAGES.items(), strict=True):
        assert measured.metric.name == name
        counted = [row for row, image in enumerate(world.images) if include(image)]
        assert measured.left_out == len(world.images) - len(counted)
        for m, model in enumerate(measured.models):
            hits = [hit(world.images[row], world.guesses(model, row)) for row in counted]
            assert measured.values[:, m].tolist() == hits
            assert measured.estimates()[m] == pytest.approx(mean(list(map(float, hits))))
            assert measured.failed[m] == sum(world.logits[model][row] is None for row in counted)


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_metrics_over_classes(world: World) -> None:
    for name, (include, hit) in OVER_CLASSES.items():
        counted = [row for row, image in enumerate(world.images) if include(image)]
        if not counted:
            continue
        (measured,) = measure(
            world_testset(world), world.predictions(), metrics=[name], absent_classes="skip"
        )
        for m, model in enumerate(measured.models):
            groups = defaultdict(list)
            for row in counted:
                image = world.images[row]
                groups[image.label].append(float(hit(image, world.guesses(model, row))))
            expected = mean([mean(values) for values in groups.values()])
            assert measured.estimates()[m] == pytest.approx(expected)
            if measured.metric.reviewed:
                unseen = [
                    bool(guesses) and not judged(world.images[row], guesses)
                    for row in counted
                    for guesses in [world.guesses(model, row)]
                ]
                assert measured.unreviewed[m] == sum(unseen)


def test_a_label_both_correct_and_wrong_is_a_hit_and_repeats_change_nothing() -> None:
    images = (
        Image("a", 0, correct=(0, 0), wrong=(0,)),
        Image("b", 1, correct=(1,), unclear=(0,), wrong=(0,)),
        Image("c", 1, correct=(1,), wrong=(0,)),
        Image("d", 0, correct=(0,), problematic=True),
    )
    world = World(2, images, {"m": ((1.0, 0.0),) * 4})
    found = measure(
        world_testset(world), world.predictions(), metrics=["mla", "mla_micro", "mla_upper"]
    )
    assert found[0].estimates().tolist() == [(1 + 1 / 2) / 2]
    assert found[1].estimates().tolist() == [2 / 3]
    assert found[1].left_out == 1
    assert found[2].unreviewed == (0,)


def test_absent_classes_are_an_error_or_skipped() -> None:
    world = single_label([0, 0, 2], 4, {"m": [(1, 0, 0, 0)] * 3})
    testset = world_testset(world)
    with pytest.raises(
        NotApplicable, match=r"2 of 4 classes have no image in .* such as c1 \(class 1\)"
    ):
        measure(testset, world.predictions(), metrics=["mean_per_class"])
    (measured,) = measure(
        testset, world.predictions(), metrics=["mean_per_class"], absent_classes="skip"
    )
    assert measured.estimates().tolist() == [0.5]


def test_classes_are_needed_to_average_over_them() -> None:
    world = World(2, (Image("a", None, (0,)), Image("b", 1, (1,))), {"m": ((1.0, 0.0),) * 2})
    testset, predictions = world_testset(world), world.predictions()
    with pytest.raises(NotApplicable, match="has images without a class"):
        measure(testset, predictions, metrics=["mla"])
    assert measure(testset, predictions, metrics=["real"])[0].estimates().tolist() == [0.5]


def test_no_image_to_count() -> None:
    world = World(2, (Image("a", 0), Image("b", 1)), {"m": ((1.0, 0.0),) * 2})
    with pytest.raises(NotApplicable, match="has no image to count"):
        measure(world_testset(world), world.predictions(), metrics=["top1"])


@settings(max_examples=40, deadline=None)
@given(worlds(lists=False))
def test_weighted_accuracy(world: World) -> None:
    weights = [float(1 + row % 3) for row in range(len(world.images))]
    testset = world_testset(world, weight=weights)
    for name, k in (("top1_weighted", 1), ("top2_weighted", 2)):
        (measured,) = measure(testset, world.predictions(), metrics=[name])
        for m, model in enumerate(measured.models):
            hits = [
                w * top(k)(i, world.guesses(model, r))
                for r, (i, w) in enumerate(zip(world.images, weights, strict=True))
            ]
            assert measured.estimates()[m] == pytest.approx(math.fsum(hits) / math.fsum(weights))


@pytest.mark.parametrize("weights", [[1.0, None], [-1.0, 2.0], [0.0, 0.0], [math.inf, 1.0]])
def test_bad_weights_are_refused(weights: list[float | None]) -> None:
    world = single_label([0, 1], 2, {"m": [(1, 0)] * 2})
    with pytest.raises(NotApplicable, match="weight"):
        measure(
            world_testset(world, weight=weights), world.predictions(), metrics=["top1_weighted"]
        )


@pytest.mark.parametrize(
    "name",
    [
        "top0",
        "top",
        "ece0",
        "nope",
        "",
        "mla_weighted",
        "ece_weighted",
        "top1_weighted_weighted",
        "precision_weighted",
    ],
)
def test_names_that_are_no_metric(name: str) -> None:
    with pytest.raises(UserError):
        get_metric(name)


def test_names_keep_their_meaning() -> None:
    assert get_metric("top10").ranks == 10
    assert get_metric("ece").bins == get_metric("ece15").bins
    assert get_metric("ece_mass").about.endswith("15 bins of equal mass")
    assert not get_metric("top1_weighted").counted and get_metric("top1").counted
    assert not get_metric("mla").counted and get_metric("mla_micro").counted
    assert not get_metric("nll").higher_is_better


def test_top_k_beyond_what_is_stored() -> None:
    world = single_label([2, 0], 3, {"m": [(3, 2, 1), (1, 2, 3)]})
    testset = world_testset(world)
    with_logits = world.predictions(k=1)
    assert measure(testset, with_logits, metrics=["top3"])[0].estimates().tolist() == [1.0]
    assert measure(testset, with_logits, metrics=["top2"])[0].estimates().tolist() == [0.0]
    with pytest.raises(NotApplicable, match="top2 needs 2 guesses, m keeps 1"):
        measure(testset, world.predictions(keep="topk", k=1), metrics=["top2"])
    every = world.predictions(keep="topk", k=3)  # all there are: top 5 of 3 classes is certain
    assert measure(testset, every, metrics=["top5"])[0].estimates().tolist() == [1.0]
    with pytest.raises(NotApplicable, match="nll needs logits, m keeps only its top 3"):
        measure(testset, every, metrics=["nll"])


def test_one_model_twice_is_refused() -> None:
    world = single_label([0, 1], 2, {"m": [(1, 0)] * 2})
    with pytest.raises(UserError, match="m is there twice"):
        measure(world_testset(world), world.predictions() * 2)
    with pytest.raises(UserError, match="no models"):
        measure(world_testset(world), [])


def test_column_and_models() -> None:
    world = single_label([0, 1], 2, {"b": [(1, 0)] * 2, "a": [(0, 1)] * 2})
    (measured,) = measure(world_testset(world), world.predictions())
    assert measured.models == ("b", "a")
    assert measured.column("a").tolist() == [False, True]
    assert measured.of_models(["a"]).values.tolist() == [[False], [True]]
    assert measured.select(np.array([1])).values.tolist() == [[False, True]]
    with pytest.raises(UserError, match="no model 'c'"):
        measured.column("c")
