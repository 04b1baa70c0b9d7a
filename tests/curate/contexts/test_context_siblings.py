"""Siblings: the quick distance is the plain one, and the nearest are the nearest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.curate.contexts.describe import Packed, find_siblings, quick_divergence
from heldout.curate.contexts.distance import divergence, make_profiles
from tests.curate.contexts.contexts_examples import class_sets, subsets_from


@given(sets=class_sets(), threshold=st.sampled_from([0.0, 0.3, 0.7]))
def test_quick_divergences_are_the_plain_ones(sets: dict[str, set[str]], threshold: float) -> None:
    profiles = make_profiles(subsets_from(sets), threshold=threshold)
    for a in sets:
        for b in sets:
            one, other = profiles.collection(a), profiles.collection(b)
            found = quick_divergence(Packed(one), Packed(other))
            assert found == pytest.approx(divergence(one, other).mended, abs=1e-9)


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
            other: divergence(profiles.collection(name), profiles.collection(other)).mended ** 0.5
            for other in sets
            if other != name
        }
        ordered = sorted(distances, key=distances.__getitem__)
        assert [s.name for s in near[place]] == ordered[:2]
        assert far[place][0].name == ordered[-1]
        for sibling in (*near[place], *far[place]):
            assert sibling.distance == pytest.approx(distances[sibling.name], abs=1e-9)


def test_few_images_do_not_hide_the_nearest_and_the_farthest() -> None:
    """Mending takes more from small subsets, so that the likeliest by profile is often not it."""
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
            apart = sorted(
                divergence(mine, profiles.collection(other)).mended ** 0.5
                for other in sets
                if other != name
            )
            assert [s.distance for s in near[place]] == pytest.approx(apart[:2], abs=1e-6)
            assert [s.distance for s in far[place]] == pytest.approx(apart[:-3:-1], abs=1e-6)
