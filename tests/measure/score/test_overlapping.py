"""Many overlapping slices of one set of images: each image once, classes kept apart, worst honest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import NotApplicable, UserError
from heldout.data.labels import Class, LabelSpace
from heldout.data.testset import (
    Card,
    ColumnType,
    TestSet,
    image_table,
    make_testset,
    membership_table,
    truth_table,
)
from heldout.measure.score.estimate import scores
from heldout.measure.score.measure import measure
from heldout.measure.score.memberships import membership_records, overlapping_slices
from heldout.measure.score.records import Summary
from heldout.measure.score.slices import partitions
from heldout.models.predictions import Predictions

SPACE = LabelSpace("pets", (Class("cat"), Class("dog"), Class("n1", ("tree (oak)", "oak"))))
SUBSET = ColumnType(kind="categorical", multi=True, of_class=True)

Rows = Mapping[str, Mapping[str, Sequence[str]]]  # image -> class -> contexts


def pets(rows: Rows, **columns: Sequence[object]) -> TestSet:
    """Images with a row for each class, and subsets class(context)."""
    names = {"cat": "cat", "dog": "dog", "n1": "tree (oak)"}
    pairs = [(image, one) for image, classes in rows.items() for one in classes]
    members = [
        (image, "subset", f"{names[one]}({context})")
        for image, classes in rows.items()
        for one, contexts in classes.items()
        for context in contexts
    ]
    return make_testset(
        Card(name="pets", label_space="pets", columns={"subset": SUBSET}),
        images=image_table({"image_id": list(rows), **{k: list(v) for k, v in columns.items()}}),
        truths={"original": truth_table([p[0] for p in pairs], [p[1] for p in pairs])},
        label_space=SPACE,
        memberships=membership_table(members),
    )


def guesses(testset: TestSet, said: Mapping[str, str], model: str = "m") -> Predictions:
    return Predictions(
        model=model,
        image_ids=pa.array(list(said), pa.string()),
        topk=np.array([[SPACE.ids.index(one)] for one in said.values()], dtype=np.int32),
        label_space=SPACE,
    )


BOTH: Rows = {
    "a": {"cat": ["sofa", "bed"], "dog": ["sofa"]},
    "b": {"cat": ["sofa"]},
    "c": {"dog": ["sofa", "park"]},
    "d": {"dog": ["park"], "n1": ["park"]},
    "e": {"n1": ["park", "park (north)"]},
}
SAID = {"a": "cat", "b": "cat", "c": "cat", "d": "dog", "e": "n1"}


def test_a_value_holds_the_rows_of_its_own_class_alone() -> None:
    testset = pets(BOTH)
    (measured,) = measure(testset, [guesses(testset, SAID)])
    found = {s.slice: (s.n, s.value) for s in scores(measured, by=["subset"]) if "=" in s.slice}
    assert found == {
        "subset=cat(bed)": (1, 1.0),
        "subset=cat(sofa)": (2, 1.0),
        "subset=dog(park)": (2, 0.5),
        "subset=dog(sofa)": (2, 0.0),  # image a is called a cat, which is wrong for its dog
        "subset=tree%20(oak)(park)": (2, 0.5),
        "subset=tree%20(oak)(park%20(north))": (1, 1.0),
    }


def test_a_plain_membership_holds_all_rows_of_its_images() -> None:
    testset = pets(BOTH)
    plain = testset.card.updated(columns={"subset": ColumnType(kind="categorical", multi=True)})
    from dataclasses import replace

    (measured,) = measure(replace(testset, card=plain), [guesses(testset, SAID)])
    (found,) = partitions(measured, ["subset"])
    assert {name: len(rows) for name, rows in found.slices().items()}["subset=cat(sofa)"] == 3


def test_crossed_with_another_column_classes_stay_apart() -> None:
    testset = pets(BOTH, light=["day", "night", "day", "day", "night"])
    (measured,) = measure(testset, [guesses(testset, SAID)])
    found = {s.slice: s.n for s in scores(measured, by=["subset&light"]) if "&" in s.slice}
    assert found["light=day&subset=cat(sofa)"] == 1
    assert found["light=night&subset=cat(sofa)"] == 1
    assert found["light=day&subset=dog(sofa)"] == 2
    assert sum(found.values()) == 10  # every (row, subset) pair once


def test_only_a_membership_can_be_of_classes() -> None:
    with pytest.raises(UserError, match="membership"):
        ColumnType(kind="categorical", of_class=True)
    plain = msgspec.to_builtins(SUBSET)
    assert msgspec.convert(plain, ColumnType) == SUBSET and plain["of_class"] is True


def by_name(records: Sequence[Summary], model: str = "m") -> dict[str, Summary]:
    return {r.name: r for r in records if r.model == model}


def test_means_count_images_slices_and_classes_once() -> None:
    testset = pets(BOTH)
    (measured,) = measure(testset, [guesses(testset, SAID)])
    found = by_name(membership_records(measured, "subset"))
    # a: cat right, dog wrong; b right; c wrong; d: dog right, tree wrong; e right.
    assert found["image_mean"].value == pytest.approx((0.5 + 1 + 0 + 0.5 + 1) / 5)
    assert found["image_mean"].n == 5
    (whole,) = scores(measured)
    assert (whole.slice, whole.n) == ("all", 5)
    assert whole.value == pytest.approx(found["image_mean"].value)
    slices = [1.0, 1.0, 0.5, 0.0, 0.5, 1.0]
    assert found["group_mean"].value == pytest.approx(np.mean(slices))
    assert found["class_mean"].value == pytest.approx(np.mean([1.0, 0.25, 0.75]))


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[list[int]], list[bool]]:
    n = draw(st.integers(3, 12))
    slices = draw(
        st.lists(
            st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True),
            min_size=2,
            max_size=6,
        )
    )
    return slices, draw(st.lists(st.booleans(), min_size=n, max_size=n))


def made(slices: list[list[int]], right: list[bool]) -> TestSet:
    rows = {
        f"i{i:02d}": {"cat": [f"s{j}" for j, inside in enumerate(slices) if i in inside]}
        for i in range(len(right))
    }
    return pets(rows)


@given(cases())
def test_pulls_are_those_of_removing_a_little_of_an_image(
    case: tuple[list[list[int]], list[bool]],
) -> None:
    slices, right = case
    testset = made(slices, right)
    said = {f"i{i:02d}": "cat" if hit else "dog" for i, hit in enumerate(right)}
    (measured,) = measure(testset, [guesses(testset, said)])
    found = overlapping_slices(measured, "subset")
    weights = np.linspace(0.2, 1.0, len(found))
    step = 1e-6
    inside = sorted({i for members in slices for i in members})
    for place, image in enumerate(inside):

        def moved(extra: float, image: int = image) -> float:
            mass = np.ones(len(right))
            mass[image] += extra
            hit = np.array(right, dtype=float)
            total = 0.0
            for weight, members in zip(weights, slices, strict=True):
                total += weight * float((mass * hit)[members].sum() / mass[members].sum())
            return total

        slope = (moved(step) - moved(-step)) / (2 * step)
        assert found.influence(weights)[place, 0] == pytest.approx(slope, abs=1e-6)


def test_the_average_over_overlapping_slices_holds_its_level() -> None:
    rng = np.random.default_rng(11)
    slices = [sorted(rng.choice(240, size, replace=False).tolist()) for size in (30, 60, 60, 120)]
    chance = 0.55 + 0.4 * rng.random(240)
    true = np.mean([chance[members].mean() for members in slices])
    naive, ours = [], []
    testset = made(slices, [True] * 240)
    for _ in range(120):
        right = rng.random(240) < chance
        said = {f"i{i:02d}": "cat" if hit else "dog" for i, hit in enumerate(right)}
        (measured,) = measure(testset, [guesses(testset, said)])
        found = overlapping_slices(measured, "subset")
        ours_mean = by_name(membership_records(measured, "subset"))["group_mean"]
        assert ours_mean.value is not None and ours_mean.low is not None
        assert ours_mean.high is not None
        ours.append(ours_mean.low <= true <= ours_mean.high)
        apart = np.sqrt((found.means[:, 0] * (1 - found.means[:, 0]) / found.n).sum()) / 4
        naive.append(abs(ours_mean.value - true) < 1.96 * apart)
    assert np.mean(ours) >= 0.93
    assert np.mean(naive) < np.mean(ours)


def test_clusters_of_images_are_drawn_together() -> None:
    rng = np.random.default_rng(2)
    right = np.repeat(rng.random(60) < 0.6, 4).tolist()  # four frames of each film agree
    testset = made([list(range(240)), list(range(0, 240, 2))], right)
    said = {f"i{i:02d}": "cat" if hit else "dog" for i, hit in enumerate(right)}
    (measured,) = measure(testset, [guesses(testset, said)])
    films = np.array([int(testset.image_ids[int(r)].as_py()[1:]) // 4 for r in measured.rows])
    alone = by_name(membership_records(measured, "subset"))["group_mean"]
    records = membership_records(measured, "subset", clusters=films)
    together = by_name(records)
    wide = (together["group_mean"].high or 0) - (together["group_mean"].low or 0)
    assert wide > 1.7 * ((alone.high or 0) - (alone.low or 0))
    assert together["group_mean"].interval == "cluster-wilson"
    assert set(together) == {"image_mean", "group_mean"}  # the rest needs images drawn one by one
    few = by_name(membership_records(measured, "subset", clusters=films // 10))
    assert few["group_mean"].value == together["group_mean"].value
    for name in ("image_mean", "group_mean"):
        assert few[name].low is None and "6 clusters are too few" in str(few[name].reason)


def test_the_worst_of_many_small_slices_is_corrected() -> None:
    rng = np.random.default_rng(5)
    slices = [list(range(30 * j, 30 * j + 30)) for j in range(40)]
    right = (rng.random(1200) < 0.8).tolist()
    testset = made(slices, right)
    said = {f"i{i:02d}": "cat" if hit else "dog" for i, hit in enumerate(right)}
    (measured,) = measure(testset, [guesses(testset, said)])
    records = membership_records(measured, "subset")
    worst = by_name(records)["worst_value"]
    assert worst.value is not None and worst.value < 0.67  # by luck alone
    assert worst.high is not None and worst.high > 0.8
    assert worst.at is not None and worst.at.startswith("cat(")


def test_other_metrics_are_refused() -> None:
    testset = pets(BOTH)
    (per_class,) = measure(testset, [guesses(testset, SAID)], metrics=["mean_per_class"])
    with pytest.raises(NotApplicable, match="not a plain accuracy"):
        overlapping_slices(per_class, "subset")
