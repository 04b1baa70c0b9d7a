"""Tests of :mod:`heldout.measure.score.compare`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from heldout.core.errors import NotApplicable, NotFound
from heldout.measure.score.compare import compare
from heldout.measure.score.estimate import scores
from heldout.measure.score.measure import measure
from heldout.measure.score.slices import cluster_column, unit_codes, unit_columns
from heldout.stats.intervals import t_quantile

from .factor_worlds import factor_world, rising, size_world

# Clusters and units: which column, which rows, and paired comparisons that respect them.


def test_the_card_says_what_to_cluster_by_and_the_user_may_say_otherwise() -> None:
    testset = size_world().testset
    assert cluster_column(testset, None) == "object"
    assert cluster_column(testset, "background") == "background"
    assert cluster_column(testset, "none") is None
    plain = size_world(declared=False).testset
    assert cluster_column(plain, None) is None
    with pytest.raises(NotFound, match="no column 'nothing'"):
        scores(size_world().measured(), cluster=cluster_column(testset, "nothing"))


def test_a_unit_is_what_is_repeated_with_all_factors_but_the_one_that_is_read() -> None:
    world = factor_world(
        {"angle": [1, 91], "size": [0.1, 0.2]},
        rising,
    )
    testset = world.testset
    assert unit_columns(testset, ["angle"], None) == ["object", "background", "size"]
    assert unit_columns(testset, ["size"], None) == ["object", "background", "angle"]
    assert unit_columns(testset, ["size"], "object & size") == ["object"]
    card = testset.card.updated(units=())
    assert unit_columns(replace(testset, card=card), ["angle"], None) == ["object", "size"]
    assert unit_columns(size_world(declared=False).testset, ["size"], None) == []


def test_units_are_rows_that_share_all_values() -> None:
    world = size_world(objects=3)
    measured = world.measured()
    codes = unit_codes(measured, ["object", "background"])
    images = [world.images[row] for row in measured.rows]
    for i, one in enumerate(images):
        for j, other in enumerate(images):
            same = all(one[c] == other[c] for c in ("object", "background"))
            assert (codes[i] == codes[j]) == same


def test_paired_differences_at_every_value_are_clustered() -> None:
    world = size_world(keep=lambda image: True)
    measured = world.measured()
    found = {
        r.slice: r
        for r in compare(measured, [("oak", "yew")], by=["size"], cluster="object", replicates=4000)
    }
    assert len(found) == 9
    for size in (0.1, 0.5):
        record = found[f"size={size}"]
        means = [
            np.mean(world.rows("oak", size=size, object=f"object {o}"))
            - np.mean(world.rows("yew", size=size, object=f"object {o}"))
            for o in range(12)
        ]
        half = t_quantile(0.95, 11) * np.std(means, ddof=1) / np.sqrt(12)
        assert record.difference == pytest.approx(np.mean(means))
        assert record.high - record.low == pytest.approx(2 * half, rel=0.06)
        assert record.test == "paired cluster bootstrap, Holm over 9"


def test_a_comparison_of_few_clusters_has_no_p_and_says_why() -> None:
    measured = size_world(objects=5).measured()
    for record in compare(measured, [("oak", "yew")], by=["size"], cluster="object"):
        assert record.p is None and record.low is None
        assert "clusters (object) are too few" in record.reason


def test_a_comparison_of_slices_alone_leaves_the_whole_out_of_the_correction() -> None:
    measured = size_world(keep=lambda image: True).measured()
    found = compare(
        measured, [("oak", "yew")], by=["size"], whole=False, cluster="object", replicates=50
    )
    assert "all" not in {r.slice for r in found}
    assert all(r.test.endswith("Holm over 8") for r in found)


def test_memberships_cannot_say_what_belongs_together() -> None:

    from .worlds import single_label, world_testset

    world = single_label([0, 1, 0], 2, {"m": [(1, 0), (1, 0), (1, 0)]})
    testset = world_testset(world, members=[("i000", "context", "sea"), ("i000", "context", "sky")])
    (measured,) = measure(testset, world.predictions())
    with pytest.raises(NotApplicable, match="several values per image"):
        unit_codes(measured, ["context"])


def test_clustered_scores_of_slices_are_wider_where_objects_share_their_fate() -> None:
    world = factor_world(
        {"size": [0.1, 0.2]},
        lambda image, ease: float(ease[0] > 0),
        objects=30,
        backgrounds=8,
    )
    wide = {r.slice: r for r in scores(world.measured(), by=["size"], cluster="object")}
    thin = {r.slice: r for r in scores(world.measured(), by=["size"])}
    for name, record in wide.items():
        ratio = (record.high - record.low) / (thin[name].high - thin[name].low)
        assert ratio > 2  # eight images an object say what one says
