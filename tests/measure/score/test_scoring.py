"""Score records: intervals, slices, worst slices, ranks, counts; and what they must not depend on."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import NotApplicable
from heldout.core.records import to_json
from heldout.data.labels import subset_map
from heldout.measure.score.compare import compare
from heldout.measure.score.estimate import counts, rank_scores, scores
from heldout.measure.score.fits import fit_lines
from heldout.measure.score.measure import measure
from heldout.stats.intervals import wilson
from heldout.stats.multiple import worst_slice_interval
from tests.measure.score.worlds import World, single_label, space_of, world_testset, worlds

EVERY = ["top1", "top2", "mean_per_class", "nll", "brier", "ece", "top1_weighted"]


def big_world(n: int = 120, models: int = 3, classes: int = 4, seed: int = 0) -> World:
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    logits = {}
    for m in range(models):
        values = rng.normal(size=(n, classes))
        values[np.arange(n), labels] += 0.6 + 0.4 * m
        logits[f"m{m}"] = values.tolist()
    return single_label(labels.tolist(), classes, logits)


def columns(n: int) -> dict[str, Any]:
    rng = np.random.default_rng(n)
    return {
        "domain": rng.choice(["a", "b", "c"], n).tolist(),
        "photographer": [f"p{i}" for i in rng.integers(0, 40, n)],
        "weight": rng.uniform(0.5, 2.0, n).tolist(),
    }


def test_plain_accuracy_is_wilson() -> None:
    world = big_world()
    (measured,) = measure(world_testset(world), world.predictions())
    for record, column in zip(scores(measured), measured.values.T, strict=True):
        limits = wilson(int(column.sum()), 120)
        assert (record.value, record.low, record.high) == (column.mean(), limits.low, limits.high)
        assert (record.n, record.slice, record.truth) == (120, "all", "original")
        assert (record.interval, record.level) == ("wilson", 0.95)
        assert record.testset_hash == measured.testset.card.content_hash


def test_estimates_lie_in_their_intervals() -> None:
    world = big_world()
    for measured in measure(
        world_testset(world, **columns(120)), world.predictions(), metrics=EVERY
    ):
        for cluster in (None, "photographer"):
            for record in scores(measured, cluster=cluster, by=["domain"], replicates=200):
                assert record.low is not None and record.high is not None
                assert record.low <= record.value <= record.high
                assert record.interval
                if cluster:
                    assert record.interval.startswith("cluster")


def test_image_and_model_order_do_not_matter() -> None:
    """Not even for the resampled limits, to the last digit."""
    world = big_world()
    extra = columns(120)
    rng = np.random.default_rng(5)
    options: dict[str, Any] = {"by": ["domain", "class"], "replicates": 100, "minimum_n": 5}
    straight = measure(world_testset(world, **extra), world.predictions(), metrics=EVERY)
    order = rng.permutation(120).tolist()
    shuffled = [
        world.prediction(model, order=rng.permutation(120).tolist())
        for model in reversed(world.logits)
    ]
    other = measure(world_testset(world, order, **extra), shuffled, metrics=EVERY)
    for a, b in zip(straight, other, strict=True):
        for cluster in (None, "photographer"):
            one = {(r.model, r.metric, r.slice): r for r in scores(a, cluster=cluster, **options)}
            two = {(r.model, r.metric, r.slice): r for r in scores(b, cluster=cluster, **options)}
            assert one == two


def test_fits_do_not_depend_on_order() -> None:
    new, old = big_world(seed=1, models=12), big_world(n=200, seed=2, models=12)
    fits = []
    for reverse in (False, True):
        pair = []
        for world, name in ((new, "new"), (old, "old")):
            predictions = world.predictions()
            order = list(range(len(world.images)))
            if reverse:
                predictions, order = predictions[::-1], order[::-1]
            pair += measure(world_testset(world, order, name=name), predictions)
        fits.append(fit_lines(pair[:1], pair[1]))
    assert fits[0] == fits[1]
    assert {fit.axes for fit in fits[0]} == {"linear", "probit", "logit"}


def test_seeds_decide_and_a_new_truth_changes_nothing() -> None:
    from heldout.data.testset import make_testset

    world = big_world()
    testset = world_testset(world)
    (measured,) = measure(testset, world.predictions(), metrics=["brier"])
    first = scores(measured, seed=1, replicates=100)
    assert first == scores(measured, seed=1, replicates=100)
    assert first != scores(measured, seed=2, replicates=100)
    grown = make_testset(
        testset.card,
        images=testset.images,
        truths={**testset.truths, "other": testset.truths["original"].slice(3)},
        label_space=testset.label_space,
    )
    (again,) = measure(grown, world.predictions(), metrics=["brier"], truth="original")
    for a, b in zip(first, scores(again, seed=1, replicates=100), strict=True):
        assert replace(a, testset_hash="") == replace(b, testset_hash="")


def test_a_slice_of_one_image_has_a_value_without_an_interval() -> None:
    world = big_world(9)
    testset = world_testset(world, domain=["one"] + ["many"] * 8)
    nll, top1 = measure(testset, world.predictions(), metrics=["nll", "top1"])
    found = {r.slice: r for r in scores(nll, by=["domain"], replicates=50) if r.model == "m0"}
    alone = found["domain=one"]
    assert (alone.n, alone.low, alone.high, alone.interval, alone.level) == (
        1,
        None,
        None,
        None,
        None,
    )
    assert math.isfinite(alone.value)
    assert found["domain=many"].low is not None
    assert all(r.low is not None for r in scores(top1, by=["domain"]))


def test_too_few_clusters_leave_the_interval_out_and_say_why() -> None:
    world = big_world()
    few = ["p1", "p2"] * 60
    many = [f"p{i % 40}" for i in range(120)]
    testset = world_testset(world, few=few, many=many, domain=["rare"] * 7 + ["usual"] * 113)
    (measured,) = measure(testset, world.predictions())
    for record in scores(measured, cluster="few"):
        assert record.low is None and record.high is None and record.interval is None
        assert "2 clusters (few) are too few" in record.reason
    found = {r.slice: r for r in scores(measured, cluster="many", by=["domain"], replicates=50)}
    assert found["domain=rare"].interval is None
    assert found["domain=usual"].interval is not None
    with pytest.raises(NotApplicable, match="several values per image"):
        world_members = world_testset(world, members=[("i000", "context", "sea")])
        scores(measure(world_members, world.predictions())[0], cluster="context")


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=12, max_size=60),
    st.integers(1, 12),
)
def test_worst_slice(rows: list[tuple[int, bool]], minimum: int) -> None:
    world = single_label(
        [0] * len(rows), 2, {"m": [(1, 0) if right else (0, 1) for _, right in rows]}
    )
    testset = world_testset(world, domain=[f"d{d}" for d, _ in rows])
    (measured,) = measure(testset, world.predictions())
    worst = [
        r for r in scores(measured, by=["domain"], minimum_n=minimum) if r.statistic == "worst"
    ]
    groups: dict[str, list[bool]] = {}
    for d, right in sorted(rows, key=lambda row: row[0]):
        groups.setdefault(f"domain=d{d}", []).append(right)
    large = {name: hits for name, hits in groups.items() if len(hits) >= minimum}
    if len(large) < 2:
        assert worst == []
        return
    name, hits = min(
        large.items(), key=lambda item: (sum(item[1]) / len(item[1]), -len(item[1]), item[0])
    )
    (record,) = worst
    assert (record.slice, record.n, record.value) == (name, len(hits), sum(hits) / len(hits))
    limits = worst_slice_interval(
        [sum(h) for h in large.values()], [len(h) for h in large.values()]
    )
    assert (record.low, record.high) == (limits.interval.low, limits.interval.high)


def test_ranks_go_by_value_and_then_by_name() -> None:
    right, wrong = (1, 0), (0, 1)
    world = single_label(
        [0] * 40,
        2,
        {"c": [right] * 20 + [wrong] * 20, "a": [wrong] * 20 + [right] * 20, "b": [right] * 40},
    )
    (measured,) = measure(world_testset(world), world.predictions())
    found = {r.model: r for r in rank_scores(measured)}
    assert {name: r.value for name, r in found.items()} == {"b": 1, "a": 2, "c": 3}
    assert found["b"].high == 1 and found["a"].low == 2
    assert found["a"].name == "top1_rank"
    (nll,) = measure(world_testset(world), world.predictions(), metrics=["nll"])
    with pytest.raises(NotApplicable, match="ranks are of plain accuracies"):
        rank_scores(nll)


@settings(max_examples=40, deadline=None)
@given(worlds())
def test_counts(world: World) -> None:
    group = (
        measure(
            world_testset(world), world.predictions(), metrics=["accepted", "mla_micro", "real"]
        )
        if any(not i.problematic for i in world.images)
        else []
    )
    if not group:
        return
    found = {(c.name, c.model): c.value for c in counts(group)}
    assert all(c.testset == "made" for c in counts(group))
    empty = sum(not image.correct for image in world.images)
    aside = sum(image.problematic for image in world.images)
    left = {"accepted": 0, "mla_micro": aside, "real": empty}
    if len(set(left.values())) > 1:
        for name, value in left.items():
            assert found.get((f"n_left_out_{name}", None), 0) == value
    else:
        assert found.get(("n_left_out", None), 0) == left["real"]
    for model in world.logits:
        failed = sum(row is None for row in world.logits[model])
        assert found.get(("n_failed", model), 0) == failed
        assert ("n_unreviewed", model) in found  # told also when it is none


def test_unknown_is_counted_by_rank() -> None:
    source = space_of(4)
    label_map = subset_map(source, ["c2", "c3"], name="two", reading="restricted")
    world = single_label([0, 1], 2, {"m": [(9, 8, 2, 1), (9, 1, 0, 8)]})
    testset = world_testset(world, space=label_map.target)
    stored = [world.prediction("m", space=source, keep="topk", k=2)]
    group = measure(testset, stored, metrics=["top1", "top2"], label_map=label_map)
    assert {c.name: c.value for c in counts(group)} == {"n_unknown": 1, "n_unknown_top2": 2}
    assert scores(group[0])[0].label_map == "subset:two:restricted"


def test_a_slice_that_weighs_nothing_has_no_record() -> None:
    labels = [0, 1] * 6
    logits = [[float(c == label) for c in range(2)] for label in labels]
    world = single_label(labels, 2, {"m": logits, "n": logits[::-1]})
    testset = world_testset(world, weight=[0.0] * 4 + [1.0] * 8, place=["in"] * 4 + ["out"] * 8)
    (measured,) = measure(testset, world.predictions(), metrics=["top1_weighted"])
    found = scores(measured, by=["place"], replicates=50)
    assert {r.slice for r in found} == {"all", "place=out"}
    compared = compare(measured, [("m", "n")], by=["place"], replicates=50)
    assert {r.slice for r in compared} == {"all", "place=out"}
    to_json([*found, *compared])  # nothing is NaN
    with pytest.raises(NotApplicable, match="weigh nothing"):
        measured.select(np.arange(4)).estimates()


def test_ranks_know_which_images_belong_together() -> None:
    rng = np.random.default_rng(0)
    film = np.arange(400) // 20
    labels = [0] * 400
    right = {"a": rng.random(20) < 0.75, "b": rng.random(20) < 0.5}
    logits = {m: [[1.0, 0.0] if hit[f] else [0.0, 1.0] for f in film] for m, hit in right.items()}
    world = single_label(labels, 2, logits)
    few = [f"f{number // 4}" for number in film]
    testset = world_testset(world, film=[f"f{number}" for number in film], few=few)
    (measured,) = measure(testset, world.predictions())
    plain = {r.model: (r.low, r.high) for r in rank_scores(measured)}
    assert plain == {"a": (1.0, 1.0), "b": (2.0, 2.0)}  # as if 400 images had been drawn
    clustered = rank_scores(measured, cluster="film")
    assert [(r.value, r.low, r.high) for r in clustered] == [(1.0, 1.0, 2.0), (2.0, 1.0, 2.0)]
    assert {r.interval for r in clustered} == {"cluster-max-t"}
    for record in rank_scores(measured, cluster="few"):
        assert (record.low, record.high, record.interval, record.level) == (None,) * 4
        assert record.reason is not None and record.reason.startswith(
            "5 clusters (few) are too few"
        )
