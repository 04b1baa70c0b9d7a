"""Precision, recall and confusions against counting in loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from heldout.core.errors import NotApplicable
from heldout.measure.score.estimate import class_counts, class_scores, scores
from heldout.measure.score.measure import measure
from heldout.stats.intervals import wilson
from tests.measure.score.worlds import World, single_label, world_testset, worlds


@settings(max_examples=60, deadline=None)
@given(worlds(lists=False))
def test_precision_and_recall(world: World) -> None:
    recall, precision = measure(
        world_testset(world), world.predictions(), metrics=["recall", "precision"]
    )
    for model in world.logits:
        pairs = [
            (image.label, (world.guesses(model, row) or [-1])[0])
            for row, image in enumerate(world.images)
        ]
        for measured, side in ((recall, 0), (precision, 1)):
            expected = {}
            for c in range(world.classes):
                group = [pair for pair in pairs if pair[side] == c]
                if group:
                    expected[f"class=c{c}"] = (sum(a == b for a, b in group), len(group))
            found = {r.slice: r for r in scores(measured) if r.model == model}
            assert found.keys() == expected.keys()
            for name, (k, n) in expected.items():
                record, limits = found[name], wilson(k, n)
                assert (record.n, record.value) == (n, k / n)
                assert (record.low, record.high) == (limits.low, limits.high)
                assert record.interval == "wilson" and record.metric == measured.metric.name
            counted = [c for c in class_counts(measured) if c.model in (model, None)]
            assert sum(c.value for c in counted) == world.classes - len(expected)


def test_precision_and_recall_of_clusters_are_clustered() -> None:
    """Ten copies of each image say no more than one; a class of few clusters has no interval."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.r_[np.zeros(30, int), np.ones(30, int), np.full(5, 2)], 10)
    guess = np.repeat(np.where(rng.random(65) < 0.7, labels[::10], 1 - labels[::10] % 2), 10)
    world = single_label(labels.tolist(), 3, {"m": np.eye(3)[guess].tolist()})
    film = [f"f{i // 10}" for i in range(len(labels))]
    measured = measure(
        world_testset(world, film=film), world.predictions(), metrics=["recall", "precision"]
    )
    for item in measured:
        plain = {r.slice: r for r in scores(item)}
        clustered = {r.slice: r for r in scores(item, cluster="film", replicates=400)}
        assert plain.keys() == clustered.keys()
        for name in ("class=c0", "class=c1"):
            one, all_ = clustered[name], plain[name]
            assert (one.value, one.n) == pytest.approx((all_.value, all_.n))
            assert one.interval in ("cluster-beta-binomial", "cluster-bootstrap-studentised")
            assert one.high - one.low > 2.2 * (all_.high - all_.low)  # type: ignore[operator]
        few = clustered["class=c2"]
        assert few.low is None and "clusters (film) are too few" in str(few.reason)


def test_never_guessed_is_counted_not_null() -> None:
    world = single_label([0, 1], 3, {"m": [(1, 0, 0)] * 2, "n": [(1, 0, 0), (0, 1, 0)]})
    recall, precision = measure(
        world_testset(world), world.predictions(), metrics=["recall", "precision"]
    )
    assert [(c.name, c.value, c.model) for c in class_counts(precision)] == [
        ("n_classes_never_guessed", 2, "m"),
        ("n_classes_never_guessed", 1, "n"),
    ]
    assert [(c.name, c.value, c.model) for c in class_counts(recall)] == [
        ("n_classes_without_images", 1, None)
    ]
    assert [r.value for r in class_scores(precision)] == [0.5, 1.0, 1.0]


def test_several_correct_labels() -> None:
    """Under a multi-label truth a guess is precise if any label of the image is it."""
    from tests.measure.score.worlds import Image

    world = World(3, (Image("a", 0, (0, 2)), Image("b", 1, (1,))), {"m": ((0, 0, 1), (0, 0, 1))})
    recall, precision = measure(
        world_testset(world), world.predictions(), metrics=["recall", "precision"]
    )
    assert [(r.slice, r.value) for r in class_scores(recall)] == [
        ("class=c0", 1.0),
        ("class=c1", 0.0),
    ]
    assert [(r.slice, r.value, r.n) for r in class_scores(precision)] == [("class=c2", 0.5, 2)]


def test_what_has_no_one_number() -> None:
    world = single_label([0, 1], 2, {"m": [(1, 0)] * 2})
    (recall,) = measure(world_testset(world), world.predictions(), metrics=["recall"])
    with pytest.raises(NotApplicable, match="a score for each class"):
        recall.estimates()
    assert np.isfinite([r.value for r in scores(recall, by=["class"])]).all()
