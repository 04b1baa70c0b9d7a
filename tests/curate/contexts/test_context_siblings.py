"""Siblings: the nearest and the farthest subsets of a class."""

from __future__ import annotations

import numpy as np
import pytest

from heldout.curate.contexts.describe import find_siblings
from heldout.curate.contexts.distance import divergence, make_profiles
from tests.curate.contexts.contexts_examples import subsets_from


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
