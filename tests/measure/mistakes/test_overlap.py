"""Two models side by side, against counting in loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import UserError
from heldout.measure.mistakes.between_models import Overlap, changed_images, changes, overlaps
from heldout.measure.mistakes.verdicts import RIGHT, verdicts
from heldout.measure.score.measure import measure
from heldout.stats.agreement import cohen_kappa
from heldout.stats.intervals import wilson
from tests.measure.mistakes.made import counted, plain_state, set_of_kind
from tests.measure.score.worlds import World, single_label, world_testset, worlds

KINDS = st.sampled_from(["single", "multilabel"])


@settings(max_examples=80)
@given(worlds(models=3), KINDS)
def test_overlaps(world: World, kind: str) -> None:
    made = verdicts(set_of_kind(world, kind), world.predictions())
    found = overlaps(made)
    assert [(o.model, o.other) for o in found] == [("m0", "m1"), ("m0", "m2"), ("m1", "m2")]
    for item in found:
        pairs = [
            (plain_state(world, kind, item.model, row), plain_state(world, kind, item.other, row))
            for row, _ in counted(world, kind)
        ]
        wrong = [a for a, _ in pairs if a[1] != RIGHT]
        other = [b for _, b in pairs if b[1] != RIGHT]
        shared = [(a, b) for a, b in pairs if a[1] != RIGHT and b[1] != RIGHT]
        assert (item.n, item.wrong, item.other_wrong) == (len(pairs), len(wrong), len(other))
        assert item.shared == len(shared)
        assert item.same == sum(a[0] == b[0] and a[0] >= 0 for a, b in shared)
        assert item.expected == pytest.approx(len(wrong) * len(other) / len(pairs))
        if wrong:
            limits = wilson(len(shared), len(wrong))
            assert (item.share, item.low, item.high) == (
                len(shared) / len(wrong), limits.low, limits.high,
            )  # fmt: skip
        else:
            assert item.share is None and item.low is None and item.high is None
    if kind == "multilabel":
        (measured,) = measure(made.testset, world.predictions(), metrics=["mla_micro"])
        for item in found:
            a, b = (measured.column(name) for name in (item.model, item.other))
            if 0 < a.sum() + b.sum() < 2 * len(a):
                assert item.kappa == pytest.approx(cohen_kappa(a, b), abs=1e-6)
            else:
                assert item.kappa is None
    turned, _ = overlaps(made, "m1")
    assert (turned.model, turned.other) == ("m1", "m0")
    assert (turned.shared, turned.same) == (found[0].shared, found[0].same)
    assert (turned.wrong, turned.other_wrong) == (found[0].other_wrong, found[0].wrong)


def test_shared_mistakes_in_clusters() -> None:
    """Ten copies of each of 24 images: as wide as 24 images are, not 240."""
    rng = np.random.default_rng(0)
    wrong = {"a": np.full(24, True), "b": rng.random(24) < 0.6}
    logits = {m: [(0, 1) if w else (1, 0) for w in v.repeat(10)] for m, v in wrong.items()}
    world = single_label([0] * 240, 2, logits)
    films = {
        "film": [f"f{i // 10}" for i in range(240)],
        "few": [f"f{i // 60}" for i in range(240)],
    }
    testset = world_testset(world, **films)

    def found(column: str | None) -> Overlap:
        card = testset.card.updated(clusters=column)
        return overlaps(verdicts(replace(testset, card=card), world.predictions()))[0]

    plain, clustered, few = found(None), found("film"), found("few")
    k = int(wrong["b"].sum())
    assert (plain.low, plain.high) == (wilson(k * 10, 240).low, wilson(k * 10, 240).high)
    expected = wilson(k, 24)
    assert clustered.low == pytest.approx(expected.low, abs=0.02)
    assert clustered.high == pytest.approx(expected.high, abs=0.02)
    assert plain.share == clustered.share == few.share == k / 24
    assert few.low is None and few.high is None and plain.reason is None
    assert few.reason == "4 clusters (few) are too few for an interval, which needs 8"


@settings(max_examples=80)
@given(worlds(), KINDS)
def test_changes(world: World, kind: str) -> None:
    made = verdicts(set_of_kind(world, kind), world.predictions())
    found = changes(made, "m0", "m1")
    expected: dict[str, list[tuple[str, str | None, str | None]]]
    expected = {"fixed": [], "new": [], "shared": []}
    same = []
    for row, image in counted(world, kind):
        (old, before), (new, after) = (plain_state(world, kind, m, row) for m in ("m0", "m1"))
        if before == RIGHT and after == RIGHT:
            continue
        change = (
            "shared" if before != RIGHT and after != RIGHT else "fixed" if after == RIGHT else "new"
        )
        names = tuple(None if guess < 0 else f"c{guess}" for guess in (old, new))
        expected[change].append((image.id, *names))  # type: ignore[arg-type]
        if change == "shared":
            same.append(old == new and old >= 0)
    images = changed_images(found)
    for change, rows in expected.items():
        listed = [i for i in images if i.change == change]
        assert [(i.image_id, i.old_prediction, i.new_prediction) for i in listed] == rows
        assert len(found.rows[change]) == len(rows)  # type: ignore[index]
    assert found.same.tolist() == same
    assert [i.change for i in images] == sorted(
        (i.change for i in images), key=["fixed", "new", "shared"].index
    )
    back = changes(made, "m1", "m0")
    for one, other in (("fixed", "new"), ("new", "fixed"), ("shared", "shared")):
        assert back.rows[one].tolist() == found.rows[other].tolist()  # type: ignore[index]


def test_what_is_refused() -> None:
    world = single_label([0, 1], 2, {"m": [(1, 0), (0, 1)]})
    made = verdicts(world_testset(world), world.predictions())
    with pytest.raises(UserError, match="is one model"):
        overlaps(made)
    with pytest.raises(UserError, match="compared with itself"):
        changes(made, "m", "m")
    with pytest.raises(UserError, match="no model 'x'"):
        changes(made, "m", "x")
