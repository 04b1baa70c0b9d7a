"""Effective robustness, its interval, and the built-in lines."""

from __future__ import annotations

import math
import runpy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from heldout.core.errors import MismatchError, NotApplicable, NotFound, UserError
from heldout.data.labels import subset_map
from heldout.data.testset import Card, image_table, make_testset, truth_table
from heldout.measure.score.estimate import Estimates
from heldout.measure.score.fits import (
    Axes,
    Population,
    ReferenceLine,
    effective_robustness,
    from_axes,
    line_between,
    published_line,
    published_lines,
    reference_line,
    robustness_scores,
    to_axes,
)
from heldout.measure.score.measure import measure
from heldout.stats.intervals import wilson
from tests.measure.score.test_scoring import big_world
from tests.measure.score.worlds import hits, measured_of, single_label, space_of, world_testset

ROOT = Path(__file__).parents[3]


def population(
    n: int = 60, *, axes: Axes = "logit", noise: float = 0.05, seed: int = 0
) -> Population:
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.4, 0.9, n)
    y = from_axes(0.9 * to_axes(x, axes) - 0.5 + rng.normal(0, noise, n), axes)
    return Population(tuple(f"m{i}" for i in range(n)), x, y, "val", "new", 0)


def estimated(p: Sequence[float], n: int) -> Estimates:
    """Accuracies of ``n`` images drawn one by one."""
    return Estimates(np.array(p), wilson(np.array(p) * n, n))


CERTAIN = ReferenceLine(
    testset="new",
    baseline="val",
    axes="logit",
    slope=1.0,
    intercept=0.0,
    r2=1.0,
    models=9,
    covariance=(0, 0, 0),
)


@given(st.floats(0.05, 0.95), st.floats(0.0, 1.0))
def test_the_identity_line_gives_the_difference(x: float, y: float) -> None:
    many = 10**12
    found = effective_robustness(estimated([x], many), estimated([y], many), CERTAIN, n_x=many)
    assert found.value[0] == pytest.approx(y - x)
    for limits in (found.interval.low, found.interval.high):
        assert limits[0] == pytest.approx(y - x, abs=1e-5)


def test_value_is_the_distance_from_the_line() -> None:
    reference = reference_line(population())
    x, y = 0.7, 0.65
    logit = reference.slope * math.log(x / (1 - x)) + reference.intercept
    found = effective_robustness(estimated([x], 500), estimated([y], 500), reference, n_x=500)
    assert found.value[0] == pytest.approx(y - 1 / (1 + math.exp(-logit)))
    assert found.interval.low[0] < found.value[0] < found.interval.high[0]


def test_uncertainties_add_in_squares() -> None:
    x, y = estimated([0.7], 100), estimated([0.6], 100)
    limits = wilson(60, 100)
    both = effective_robustness(x, y, CERTAIN, n_x=100)
    below = math.hypot(0.6 - limits.low, wilson(70, 100).high - 0.7)
    assert both.value[0] - both.interval.low[0] == pytest.approx(below)
    reference = reference_line(population())
    wide = effective_robustness(x, y, reference, n_x=100)
    band = reference.band(x.value)
    assert wide.value[0] - wide.interval.low[0] > band[1][0] - reference.at(x.value)[0]


def test_limits_stay_possible() -> None:
    found = effective_robustness(estimated([0.0, 1.0], 5), estimated([1.0, 0.0], 5), CERTAIN, n_x=5)
    assert (found.interval.low >= -1).all() and (found.interval.high <= 1).all()
    assert np.isfinite(found.value).all()


def test_the_line_of_a_population() -> None:
    axes: Axes = "logit"
    given = population(axes=axes, noise=0.02)
    found = reference_line(given, source="made")
    slope, intercept = np.polyfit(to_axes(given.x, axes), to_axes(given.y, axes), 1)
    assert (found.slope, found.intercept) == pytest.approx((slope, intercept))
    assert (found.models, found.testset, found.baseline, found.source) == (60, "new", "val", "made")
    # near the middle of the models the line is certain, far out it is not
    low, high = found.band(np.array([0.66, 0.999]))
    width = to_axes(np.clip(high, 1e-6, 1 - 1e-6), axes) - to_axes(
        np.clip(low, 1e-6, 1 - 1e-6), axes
    )
    assert 0 < width[0] < width[1]
    few = replace(found, models=6)
    low, high = few.band(np.array([0.66]))
    place = float(to_axes(np.array([0.66]), axes)[0])
    variance = np.array([place**2, 2 * place, 1]) @ few.covariance
    reach = to_axes(high, axes)[0] - (few.slope * place + few.intercept)
    assert reach == pytest.approx(student.ppf(0.975, 4) * math.sqrt(variance))
    order = np.random.default_rng(1).permutation(60)
    turned = Population(given.models, given.x[order], given.y[order], "val", "new", 0)
    assert reference_line(turned).covariance == pytest.approx(found.covariance)


def test_the_band_covers() -> None:
    """Of 100 populations, the 95 % band of the line at one place misses the true line at most 14 times."""
    missed = 0
    truth = from_axes(0.9 * to_axes(np.array([0.8]), "logit") - 0.5, "logit")[0]
    for seed in range(100):
        low, high = reference_line(population(seed=seed)).band(np.array([0.8]))
        missed += not low[0] <= truth <= high[0]
    assert missed <= 14


def test_records() -> None:
    new, old = big_world(seed=1, models=3), big_world(n=200, seed=2, models=2)
    (a,) = measure(world_testset(new, name="new"), new.predictions())
    (b,) = measure(world_testset(old, name="old"), old.predictions())
    reference = reference_line(population(), source="made")
    records = robustness_scores(a, b, reference)
    assert [r.model for r in records] == ["m0", "m1"]
    for m, record in enumerate(records):
        x, y = b.estimates()[m], a.estimates()[m]
        expected = effective_robustness(
            estimated([x], 200), estimated([y], 120), reference, n_x=200
        )
        assert (record.value, record.low, record.high) == pytest.approx(
            (expected.value[0], expected.interval.low[0], expected.interval.high[0])
        )
        assert (record.metric, record.testset, record.n) == ("effective_robustness", "new", 120)
        assert (
            record.interval is not None
            and "logit line of 60 models (made), baseline old" in record.interval
        )
    (loss,) = measure(world_testset(new), new.predictions(), metrics=["nll"])
    with pytest.raises(NotApplicable, match="nll is not a plain accuracy"):
        robustness_scores(loss, b, reference)
    with pytest.raises(MismatchError, match="no model is measured on both"):
        robustness_scores(a.of_models(["m2"]), b, reference)


def test_clusters_count_in_both_accuracies() -> None:
    """Two sets of 30 films: where images were taken as drawn one by one, 51 % of intervals held."""
    reference = reference_line(population(400, noise=0.01))
    rng, films, held = np.random.default_rng(0), np.arange(600) // 20, []
    for _ in range(60):
        x = np.array([0.7])
        y = reference.at(x)
        old, new = (
            measured_of(hits(rng, p, films, film=0.3, image=0.3), name, clusters=films)
            for p, name in ((x, "old"), (y, "new"))
        )
        (record,) = robustness_scores(new, old, reference)
        assert record.low is not None and record.high is not None
        held.append(record.low <= 0 <= record.high)
    assert np.mean(held) >= 0.9
    assert record.interval is not None and record.interval.startswith("mover over cluster-")
    films = np.arange(600) // 200
    few = [measured_of(hits(rng, x, films), name, clusters=films) for name in ("new", "old")]
    (record,) = robustness_scores(*few, reference)
    assert record.low is None and record.interval is None
    assert record.reason is not None and "3 clusters (film) are too few" in record.reason
    (alone,) = robustness_scores(*few, reference, cluster="none")
    assert alone.interval is not None and alone.interval.startswith("mover over wilson and")


def test_bad_input() -> None:
    with pytest.raises(UserError, match="fractions, not percent"):
        effective_robustness(Estimates(np.array([70.0]), None), estimated([0.6], 9), CERTAIN, n_x=9)
    with pytest.raises(NotApplicable, match="2 models have both val and new"):
        reference_line(population(2))
    few = population(12)
    with pytest.raises(NotApplicable, match="all models have the same val"):
        reference_line(Population(few.models, np.full(12, 0.5), few.y, "val", "new", 0))


def test_built_in_lines() -> None:
    lines = published_lines()
    assert len({(item.testset, item.baseline, item.source) for item in lines}) == len(lines)
    for item in lines:
        assert 0.3 < item.slope < 2.5 and 0.5 < item.r2 < 1 and item.models > 300
        slope, both, intercept = item.covariance
        assert slope > 0 and intercept > 0 and both**2 < slope * intercept
        assert (
            (item.at(np.linspace(0.1, 0.9, 9)) > 0) & (item.at(np.linspace(0.1, 0.9, 9)) < 1)
        ).all()
    testbed = published_line("imagenetv2-matched-frequency", "imagenet-val")
    assert (round(testbed.slope, 3), round(testbed.intercept, 3), round(testbed.r2, 4)) == (
        0.934,
        -0.496,
        0.9994,
    )
    timm = published_line("imagenetv2-matched-frequency", "imagenet-val", source="timm")
    assert (round(timm.slope, 3), round(timm.intercept, 3), round(timm.r2, 3)) == (
        0.916,
        -0.486,
        0.993,
    )
    with pytest.raises(NotFound, match="no built-in line of imagenet-v9 on imagenet-val"):
        published_line("imagenet-v9", "imagenet-val")
    with pytest.raises(NotFound, match="from timm"):
        published_line("objectnet", "imagenet-val-on-objectnet", source="timm")


def test_lines_are_found_by_alias_and_by_the_classes_left() -> None:
    def named(name: str, aliases: tuple[str, ...], classes: int, space_name: str, images: int = 4):  # type: ignore[no-untyped-def]
        space = space_of(classes, space_name)
        ids = [f"{name}{i}" for i in range(images)]
        return make_testset(
            Card(name=name, label_space=space.name, aliases=aliases),
            images=image_table({"image_id": ids}),
            truths={"original": truth_table(ids, [space.ids[i % classes] for i in range(images)])},
            label_space=space,
        )

    val = named("imagenet-validation-original", ("imagenet-val",), 4, "four")
    v2 = named("imagenetv2-b-33", ("imagenetv2-matched-frequency",), 4, "four")
    assert published_line(v2, val).testset == "imagenetv2-matched-frequency"
    label_map = subset_map(space_of(4, "four"), space_of(2, "imagenet-a"), reading="restricted")
    new = named("imagenet-a", (), 2, "imagenet-a")
    world = single_label([0] * 4, 4, {"m": [(1, 0, 0, 0)] * 4})

    def on(testset):  # type: ignore[no-untyped-def]
        from dataclasses import replace

        made = replace(
            world.prediction("m", space=space_of(4, "four")), image_ids=testset.image_ids
        )
        return measure(testset, [made], label_map=label_map)[0]

    found = line_between(on(new), on(val))
    assert (found.testset, found.baseline) == ("imagenet-a", "imagenet-val-on-imagenet-a")
    assert on(val).left_out == 2


@pytest.mark.shared
def test_the_built_in_lines_derive_again(shared_data: Path) -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "derive_lines.py"))
    derived = tool["derive"](shared_data / "reference")
    assert len(derived) == len(published_lines())
    for made, kept in zip(derived, published_lines(), strict=True):
        assert (made.testset, made.baseline, made.source, made.models) == (
            kept.testset,
            kept.baseline,
            kept.source,
            kept.models,
        )
        for name in ("slope", "intercept", "r2", "covariance"):
            assert getattr(made, name) == pytest.approx(getattr(kept, name), rel=1e-4)
