"""Tests of :mod:`heldout.curate.contexts.distance`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import NotApplicable, NotFound, UserError
from heldout.curate.contexts.describe import find_siblings
from heldout.curate.contexts.distance import (
    PairedProfiles,
    distance,
    divergence,
    make_profiles,
)
from heldout.curate.contexts.graph import meta_graph
from heldout.curate.contexts.subsets import Subsets
from tests.curate.contexts.contexts_examples import (
    class_sets,
    published_objects,
    published_sets,
    slow_pairs,
    subsets_from,
)

# Distances: what the default promises, on generated data; the published one on published data.


Sets = dict[str, set[str]]
QUICK: dict[str, Any] = {"minimum": 1, "replicates": 20}


@st.composite
def collections(draw: st.DrawFn) -> tuple[Sets, list[str], list[str]]:
    """Subsets of a class, and two collections of them."""
    sets = draw(class_sets())
    names = st.lists(st.sampled_from(sorted(sets)), min_size=1, max_size=3, unique=True)
    return sets, draw(names), draw(names)


@given(drawn=collections(), threshold=st.sampled_from([0.0, 0.2, 0.6]))
def test_defined_between_zero_and_one_symmetric_and_zero_on_itself(
    drawn: tuple[Sets, list[str], list[str]], threshold: float
) -> None:
    sets, a, b = drawn
    source = subsets_from(sets)
    there = distance(source, a, b, threshold=threshold, **QUICK)
    back = distance(source, b, a, threshold=threshold, **QUICK)
    assert 0.0 <= there.value <= 1.0
    assert there.low is not None and there.high is not None
    assert 0.0 <= there.low <= there.value + 1e-12 <= there.high + 2e-12 <= 1.0 + 3e-12
    assert there.value == pytest.approx(back.value, abs=1e-9)
    assert (there.low, there.high) == pytest.approx((back.low, back.high), abs=1e-9)
    itself = distance(source, a, a, threshold=threshold, **QUICK)
    assert (itself.value, itself.low, itself.high) == (0.0, 0.0, 0.0)


@given(
    drawn=collections(),
    threshold=st.sampled_from([0.2, 0.5]),
    touching=st.booleans(),
    more=st.integers(10, 40),
)
def test_unchanged_by_an_isolated_node(
    drawn: tuple[Sets, list[str], list[str]], threshold: float, touching: bool, more: int
) -> None:
    """A subset of images of its own, or with so few of others' that no edge reaches it."""
    sets, a, b = drawn
    lonely = {f"new-{i}" for i in range(more)}
    if touching:
        lonely |= {sorted(sets[a[0]])[0]}
        if any(1 / min(len(lonely), len(sets[name])) >= threshold for name in sets):
            lonely = {f"new-{i}" for i in range(more)}
    grown = {**sets, "cat(lonely)": lonely}
    graph = meta_graph(subsets_from(grown), "cat", minimum=1, threshold=threshold)
    assert not graph.weights[graph.subsets.index("cat(lonely)")].any()
    before = distance(subsets_from(sets), a, b, threshold=threshold, **QUICK)
    after = distance(subsets_from(grown), a, b, threshold=threshold, **QUICK)
    assert after.value == pytest.approx(before.value, abs=1e-9)
    assert (after.low, after.high) == pytest.approx((before.low, before.high), abs=1e-9)


@given(sets=class_sets(), data=st.data())
def test_plain_distances_obey_the_triangle(sets: Sets, data: st.DataObject) -> None:
    profiles = make_profiles(subsets_from(sets))
    names = st.lists(st.sampled_from(sorted(sets)), min_size=1, max_size=3, unique=True)
    a, b, c = (profiles.collection(data.draw(names)) for _ in range(3))

    def plain(x: Any, y: Any) -> float:
        return math.sqrt(divergence(x, y).plain)

    assert plain(a, c) <= plain(a, b) + plain(b, c) + 1e-9


def slow_rows(sets: Sets, names: list[str], linked: set[str]) -> dict[str, dict[str, float]]:
    """Image -> context -> share, by plain loops."""
    rows = {}
    for image in set().union(*(sets[name] for name in names)):
        own = [n for n in sets if image in sets[n] and (n in linked or n in names)]
        rows[image] = {name: 1 / len(own) for name in own}
    return rows


def slow_divergence(a: dict[str, dict[str, float]], b: dict[str, dict[str, float]]) -> float:
    """The divergence as its definition has it: the mean of two relative entropies to the middle."""

    def profile(rows: dict[str, dict[str, float]]) -> dict[str, float]:
        total: dict[str, float] = {}
        for row in rows.values():
            for context, share in row.items():
                total[context] = total.get(context, 0.0) + share / len(rows)
        return total

    p, q = profile(a), profile(b)
    found = 0.0
    for one, other in ((p, q), (q, p)):
        for context, share in one.items():
            found += 0.5 * share * math.log2(2 * share / (share + other.get(context, 0.0)))
    return found


@given(drawn=collections(), threshold=st.sampled_from([0.0, 0.3, 0.6]))
def test_divergence_is_the_slow_one(
    drawn: tuple[Sets, list[str], list[str]], threshold: float
) -> None:
    sets, a, b = drawn
    subsets = subsets_from(sets)
    profiles = make_profiles(subsets, threshold=threshold)
    graph = meta_graph(subsets, "cat", minimum=1, threshold=threshold)
    linked = {graph.subsets[i] for edge in graph.edges for i in edge[:2]}
    one, other = slow_rows(sets, a, linked), slow_rows(sets, b, linked)
    found = divergence(profiles.collection(a), profiles.collection(b))
    plain = slow_divergence(one, other)
    assert found.plain == pytest.approx(plain, abs=1e-9)
    images = sorted({*one, *other})
    without = [
        slow_divergence(
            {i: row for i, row in one.items() if i != image},
            {i: row for i, row in other.items() if i != image},
        )
        for image in images
    ]
    n = len(images)
    corrected = n * plain - (n - 1) * sum(without) / n
    assert found.corrected == pytest.approx(min(max(corrected, 0.0), 1.0), abs=1e-8)


@given(drawn=collections(), seed=st.integers(0, 9))
def test_replicates_count_images(drawn: tuple[Sets, list[str], list[str]], seed: int) -> None:
    """A replicate with whole weights is the divergence of images written down that often."""
    sets, a, b = drawn
    profiles = make_profiles(subsets_from(sets), threshold=0.0)
    one, other = profiles.collection(a), profiles.collection(b)
    images = np.union1d(one.images, other.images)
    weights = np.random.default_rng(seed).integers(1, 4, size=len(images))
    linked = {profiles.subsets.names[i] for i in np.nonzero(profiles.linked)[0]}
    ids = profiles.subsets.image_ids

    def repeated(names: list[str]) -> dict[str, dict[str, float]]:
        rows = slow_rows(sets, names, linked)
        times = dict(zip(ids[images].tolist(), weights.tolist(), strict=True))
        return {f"{i}/{k}": row for i, row in rows.items() for k in range(times[i])}

    plain, corrected = PairedProfiles(one, other).divergence(weights.astype(float))
    rows = repeated(a), repeated(b)
    expected = slow_divergence(*rows)
    assert plain == pytest.approx(expected, abs=1e-9)
    draws = sorted({*rows[0], *rows[1]})
    without = [
        slow_divergence(*({i: row for i, row in side.items() if i != draw} for side in rows))
        for draw in draws
    ]
    n = len(draws)
    assert corrected == pytest.approx(n * expected - (n - 1) * sum(without) / n, abs=1e-7)
    assert PairedProfiles(one, other).divergence(np.zeros(len(images))) == (1.0, 1.0)


def _simulated(
    shift: float, images: int, rng: np.random.Generator, context: str, start: int
) -> Sets:
    """Images of dog(context) whose other contexts come from one place, or from another, by chance."""
    found: Sets = {f"dog({context})": set()}
    for i in range(images):
        image = f"{start + i:06d}"
        found[f"dog({context})"].add(image)
        place = "far" if rng.random() < shift else "near"
        for number in rng.choice(6, size=2, replace=False):
            found.setdefault(f"dog({place}-{number})", set()).add(image)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_a_known_shift_is_ranked_right_whatever_the_sizes(seed: int) -> None:
    """Small and large subsets, mixed from two places: distance follows the mixture, not the size."""
    rng = np.random.default_rng(seed)
    shifts = [0.0, 0.25, 0.5, 0.75, 1.0]
    sizes = [40, 900, 60, 900, 300]
    sets: Sets = {}
    for k, (shift, size) in enumerate(zip(shifts, sizes, strict=True)):
        for name, ids in _simulated(shift, size, rng, f"test-{k}", 10_000 * (k + 1)).items():
            sets.setdefault(name, set()).update(ids)
    for name, ids in _simulated(0.0, 400, rng, "train", 0).items():
        sets.setdefault(name, set()).update(ids)
    source = subsets_from(sets)
    found = [
        distance(source, "dog(train)", f"dog(test-{k})", replicates=200) for k in range(len(shifts))
    ]
    values = [each.value for each in found]
    assert values == sorted(values)
    # Ends that differ by as much as half of the mixture are apart even at their limits.
    for near, far in ((0, 2), (1, 3), (2, 4)):
        high, low = found[near].high, found[far].low
        assert high is not None and low is not None
        assert high < low
    merged = distance(source, "dog(train)", ["dog(test-0)", "dog(test-4)"], replicates=0)
    assert values[0] < merged.value < values[-1]
    assert merged.low is None and merged.level is None


def test_images_of_one_place_are_near_though_profiles_of_few_are_ragged() -> None:
    """Two draws of 30 from one place: the plain divergence sees a distance where there is none."""
    rng = np.random.default_rng(0)
    plain, corrected = [], []
    for _ in range(40):
        rows = [set(rng.choice(12, size=3, replace=False).tolist()) for _ in range(60)]
        sets: Sets = {}
        for i, contexts in enumerate(rows):
            for c in contexts:
                sets.setdefault(f"dog(c{c})", set()).add(f"{i:02d}")
        # The halves share a context of all, so that only chance tells them apart.
        sets["dog(all)"] = {f"{i:02d}" for i in range(60)}
        profiles = make_profiles(subsets_from(sets), threshold=0.0)
        whole = profiles.collection("dog(all)")
        halves = [_half(whole, np.arange(30)), _half(whole, np.arange(30, 60))]
        found = divergence(*halves)
        plain.append(found.plain)
        corrected.append(found.corrected)
    assert np.mean(plain) > 0.02
    assert np.mean(corrected) < 0.35 * np.mean(plain)  # what is left is from cutting at 0


def _half(whole: Any, rows: npt.NDArray[np.int64]) -> Any:
    from dataclasses import replace

    return replace(whole, images=whole.images[rows], rows=whole.rows[rows])


def test_nothing_in_common_is_one_with_room_below() -> None:
    source = subsets_from(
        {"cat(a)": {str(i) for i in range(30)}, "cat(b)": {str(i) for i in range(100, 140)}}
    )
    found = distance(source, "cat(a)", "cat(b)")
    assert found.value == 1.0
    assert found.high == 1.0
    assert found.low is not None and 0.8 < found.low < 1.0  # 30 images cannot rule out a few


def test_collections_of_two_classes() -> None:
    sets = {
        "cat(sofa)": {"1", "2", "3"},
        "dog(sofa)": {"3", "4", "5"},
        "cat(bed)": {"6", "7"},
        "dog(grass)": {"8", "9"},
    }
    source = subsets_from(sets)
    alike = distance(source, "cat(sofa)", "dog(sofa)", **QUICK)
    assert alike.value == 0.0  # sofas alone, whoever is on them
    assert (alike.images_a, alike.images_b, alike.shared) == (3, 3, 1)
    mixed = distance(source, ["cat(sofa)", "dog(sofa)"], ["cat(bed)", "dog(grass)"], **QUICK)
    assert (mixed.images_a, mixed.value) == (5, 1.0)


def test_merged_collections_count_images_once() -> None:
    sets = {"cat(a)": {"1", "2", "3"}, "cat(b)": {"2", "3", "4"}, "cat(c)": {"8", "9"}}
    found = distance(subsets_from(sets), ["cat(a)", "cat(b)"], "cat(c)", **QUICK)
    assert (found.images_a, found.images_b, found.shared) == (4, 2, 0)


def test_the_seed_moves_the_interval_alone() -> None:
    sets = {"cat(a)": set("123456"), "cat(b)": set("456789"), "cat(c)": set("2468")}
    source = subsets_from(sets)
    one = distance(source, "cat(a)", "cat(b)", minimum=1, seed=1, replicates=50)
    other = distance(source, "cat(a)", "cat(b)", minimum=1, seed=2, replicates=50)
    assert one.value == other.value
    assert one.high != other.high
    assert one == distance(source, "cat(a)", "cat(b)", minimum=1, seed=1, replicates=50)


def test_what_cannot_be_measured_is_refused() -> None:
    source = subsets_from({"cat(sofa)": {"1", "2"}, "cat(bed)": {"2"}, "dog(sofa)": {"2"}})
    with pytest.raises(NotFound, match=r"did you mean cat\(sofa\)"):
        distance(source, "cat(sofas)", "cat(bed)", minimum=1)
    with pytest.raises(NotApplicable, match="no class 'cow': there is cat, dog"):
        distance(source, "cow(sofa)", "cat(bed)")
    with pytest.raises(NotApplicable, match="has 2 images, fewer than 25"):
        distance(source, "cat(sofa)", "cat(bed)")
    with pytest.raises(UserError, match="a collection of no subsets"):
        distance(source, [], "cat(bed)")
    with pytest.raises(NotApplicable, match="inside one class"):
        distance(source, "cat(sofa)", "dog(sofa)", mode="published", minimum=1)
    with pytest.raises(NotApplicable, match="a graph of 2 nodes"):
        distance(source, "cat(sofa)", "cat(bed)", mode="published", minimum=1)


# The 13 merged communities of dogs between which MetaShift's paper states distances.
COMMUNITIES = {
    "bag": "bag backpack purse",
    "bed": "blanket bed sheet remote_control pillow lamp couch books curtain",
    "bench": "bench trash_can",
    "bike": "basket woman bike bicycle",
    "boat": "frisbee rope flag trees boat",
    "box": "box container food table plate cup",
    "cabinet": "floor clothes towel door rug cabinet",
    "surfboard": "water surfboard sand",
    "shelf": "desk screen laptop shelf picture chair",
    "cap": "cap scarf jacket toy collar tie",
    "grass": "house grass horse cow sheep animal",
    "sofa": "sofa television carpet phone book",
    "vehicle": "car motorcycle truck bike basket bicycle skateboard",
}
TRAINED = (("cabinet", "bed"), ("bag", "box"), ("bench", "bike"), ("boat", "surfboard"))


@pytest.fixture(scope="module")
def dogs(shared_data: Path) -> Subsets:
    """Contexts of dogs as the published script has them: images that show a cat too left out."""
    shown = published_objects(published_sets(shared_data))
    alone = {image: words for image, words in shown.items() if not {"cat", "dog"} <= words}
    return subsets_from({n: i for n, i in slow_pairs(alone).items() if n.startswith("dog(")})


@pytest.mark.shared
@pytest.mark.parametrize(
    ("threshold", "parts", "expected"),
    [
        (0.0, 1, [0.193, 0.333, 1.015, 1.064]),
        (0.05, 1, [0.402, 0.545, 1.362, 1.299]),
        (0.10, 1, [0.428, 0.576, 1.245, 1.249]),
        (0.15, 4, None),
        (0.20, 6, [0.0, 0.0, None, None]),
        (0.25, 6, [0.0, 0.0, None, None]),
    ],
)
def test_the_published_distance_on_published_data(
    dogs: Subsets, threshold: float, parts: int, expected: list[float | None] | None
) -> None:
    """Where the graph is connected, the measured values; where not, a warning and what collapses."""
    nodes = {
        f"dog({name})": [f"dog({word.replace('_', ' ')})" for word in words.split()]
        for name, words in COMMUNITIES.items()
    }
    for (one, other), value in zip(TRAINED, expected or [None] * 4, strict=True):
        found = distance(
            dogs,
            [f"dog({one})", f"dog({other})"],
            "dog(shelf)",
            mode="published",
            nodes=nodes,
            threshold=threshold,
        )
        if value is not None:
            assert found.value == pytest.approx(value, abs=6e-4)
        assert found.low is None
        if parts == 1:
            assert found.notes == ()
        else:
            assert f"13 nodes falls into {parts} parts" in found.notes[0]


def test_the_published_distance_of_collections() -> None:
    sets = {f"cat({c})": {str(i) for i in range(3 * k, 3 * k + 5)} for k, c in enumerate("abcd")}
    source = subsets_from(sets)
    found = distance(source, "cat(a)", "cat(d)", mode="published", minimum=1)
    assert (found.images_a, found.images_b) == (5, 5)
    ends = [
        distance(source, x, "cat(d)", mode="published", minimum=1).value
        for x in ("cat(a)", "cat(b)")
    ]
    both = distance(source, ["cat(a)", "cat(b)"], "cat(d)", mode="published", minimum=1)
    assert both.value == pytest.approx(np.mean(ends))
    with pytest.raises(NotApplicable, match="is not a node of the graph"):
        distance(source, "x", "y", mode="published", nodes={"x": ["cat(a)"]})
    with pytest.raises(NotApplicable, match="none of the subsets of x is there"):
        distance(source, "x", "x", mode="published", nodes={"x": ["cat(q)"]})


# Siblings: the nearest and the farthest subsets of a class.


def test_the_nearest_and_the_farthest() -> None:
    rng = np.random.default_rng(4)
    sets: dict[str, set[str]] = {f"cat(c{k})": set() for k in range(8)}
    for i in range(600):
        centre = rng.integers(8)
        for k in range(8):
            if rng.random() < 0.8 * np.exp(-abs(k - centre)):
                sets[f"cat(c{k})"].add(f"{i:03d}")
    profiles = make_profiles(subsets_from(sets))
    near, far = find_siblings(profiles, 2)
    for place, name in enumerate(profiles.subsets.names):
        distances = {
            other: divergence(profiles.collection(name), profiles.collection(other)).corrected
            ** 0.5
            for other in sets
            if other != name
        }
        ordered = sorted(distances, key=distances.__getitem__)
        assert [s.name for s in near[place]] == ordered[:2]
        assert far[place][0].name == ordered[-1]
        for sibling in (*near[place], *far[place]):
            assert sibling.distance == pytest.approx(distances[sibling.name], abs=1e-9)


def test_they_are_ranked_by_profiles_and_shown_with_corrected_distances() -> None:
    for seed in range(12):
        rng = np.random.default_rng(seed)
        size = int(rng.integers(20, 60))
        sets = {
            f"cat(c{k})": set(
                rng.choice(size, int(rng.integers(3, size)), replace=False).astype(str)
            )
            for k in range(int(rng.integers(5, 10)))
        }
        profiles = make_profiles(subsets_from(sets))
        near, far = find_siblings(profiles, 2)
        for place, name in enumerate(profiles.subsets.names):
            mine = profiles.collection(name)
            found = {o: divergence(mine, profiles.collection(o)) for o in sets if o != name}
            ordered = sorted(found, key=lambda other: (round(found[other].plain, 9), other))
            assert {s.name for s in near[place]} == set(ordered[:2])
            assert sorted(found[s.name].plain for s in far[place]) == pytest.approx(
                [found[other].plain for other in ordered[-2:]], abs=1e-9
            )
            assert near[place][0].distance <= near[place][1].distance
            assert far[place][0].distance >= far[place][1].distance
            for sibling in (*near[place], *far[place]):
                assert sibling.distance == pytest.approx(found[sibling.name].corrected ** 0.5)
