"""Search for splits: train and test domains of classes that lie about a given distance apart."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from heldout.core.errors import UserError
from heldout.curate.contexts.distances import Distance, profile_distance
from heldout.curate.contexts.distances import distance as distance_between
from heldout.curate.contexts.domain_split import Domain, shared_images
from heldout.curate.contexts.graph import MINIMUM
from heldout.curate.contexts.profiles import Profiles, make_profiles
from heldout.curate.contexts.split_candidates import (
    ClassShift,
    class_shifts,
    domain_names,
    hundredths,
)
from heldout.curate.contexts.subsets import Subsets


@dataclass(frozen=True, kw_only=True)
class FoundSplit:
    """A split that fits what was asked; ``off`` is the largest distance from the one wanted."""

    classes: tuple[ClassShift, ...]
    off: float

    @property
    def images(self) -> int:
        """Images of all classes, train and test."""
        return sum(item.train_images + item.test_images for item in self.classes)

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return {"off": self.off, "classes": [item.to_dict() for item in self.classes]}


def search_splits(
    subsets: Subsets,
    classes: Sequence[str],
    *,
    distance: float,
    images: int,
    minimum: int = MINIMUM,
    limit: int = 10,
    replicates: int = 200,
    seed: int = 0,
) -> tuple[FoundSplit, ...]:
    """Splits in which each class's train and test lie about ``distance`` apart, best first.

    ``images``      at least so many to train and to test, of each class
    ``minimum``     smaller subsets are left out
    ``replicates``  for the interval of the distances that are returned; 0 for none

    The best split is the one whose class farthest from ``distance`` is nearest to it; of those that
    are off by the same number of whole hundredths, the one with more images. Different splits have
    different domains for some class.
    """
    if images < 1 or limit < 1:
        raise UserError(f"{images} images and {limit} splits", fix="give 1 or more")
    wanted = list(dict.fromkeys(classes))
    if not wanted:
        raise UserError("no class to split", fix="name one or more")
    mixed = shared_images(subsets, wanted) if len(wanted) > 1 else np.empty(0, dtype=np.int64)
    lists = [
        class_shifts(
            subsets,
            label,
            distance=distance,
            images=images,
            minimum=minimum,
            without=mixed,
        )
        for label in wanted
    ]
    found = _best_splits(lists, distance, limit)
    profiles = {label: _profiles(subsets, label, minimum) for label in wanted}
    return tuple(
        FoundSplit(
            classes=tuple(
                _with_interval(item, profiles[item.label], replicates, seed)
                for item in split.classes
            ),
            off=split.off,
        )
        for split in found
    )


def _best_splits(
    lists: Sequence[Sequence[ClassShift]], distance: float, limit: int
) -> list[FoundSplit]:
    """The best combinations of one shift a class; few of all that there are get made.

    Those that are off by so many hundredths fall apart by the first class that is off by just so
    many: classes before it are off by less, those after it by no more.
    """
    off = [[hundredths(item.distance.value - distance) for item in items] for items in lists]
    found: list[FoundSplit] = []
    for level in sorted(set(itertools.chain(*off))):
        if len(found) >= limit:
            break
        made: list[FoundSplit] = []
        for first in range(len(lists)):
            least = [level if place == first else 0 for place in range(len(lists))]
            most = [level - (place < first) for place in range(len(lists))]
            chosen = [
                [item for item, each in zip(*pair, strict=True) if low <= each <= high]
                for pair, low, high in zip(zip(lists, off, strict=True), least, most, strict=True)
            ]
            made += itertools.islice(_largest_first(chosen, distance), limit)
        found += sorted(made, key=lambda split: (-split.images, split.off))
    return found[:limit]


def _largest_first(lists: Sequence[Sequence[ClassShift]], distance: float) -> Iterator[FoundSplit]:
    """Combinations of one shift a class by their images, then by how far they are off."""
    if not all(lists):
        return
    ordered = [
        sorted(
            items,
            key=lambda item: (
                -(item.train_images + item.test_images),
                abs(item.distance.value - distance),
            ),
        )
        for items in lists
    ]

    def entry(places: tuple[int, ...]) -> tuple[int, float, tuple[int, ...], FoundSplit]:
        chosen = tuple(items[place] for items, place in zip(ordered, places, strict=True))
        off = max(abs(item.distance.value - distance) for item in chosen)
        split = FoundSplit(classes=chosen, off=off)
        return -split.images, off, places, split

    start = (0,) * len(ordered)
    waiting, met = [entry(start)], {start}
    while waiting:
        *_, places, split = heapq.heappop(waiting)
        yield split
        # What comes next in one class is never better, so the best of the rest waits here.
        for place in range(len(ordered)):
            then = (*places[:place], places[place] + 1, *places[place + 1 :])
            if then[place] < len(ordered[place]) and then not in met:
                met.add(then)
                heapq.heappush(waiting, entry(then))


def _profiles(subsets: Subsets, label: str, minimum: int) -> Profiles:
    return make_profiles(subsets.of(label).at_least(minimum))


def _with_interval(item: ClassShift, profiles: Profiles, replicates: int, seed: int) -> ClassShift:
    found = profile_distance(
        profiles.collection(domain_names(item.train)),
        profiles.collection(item.test.subsets),
        replicates=replicates,
        seed=seed,
    )
    return replace(item, distance=found)


def nearest_training(
    subsets: Subsets,
    tests: Sequence[Domain],
    *,
    distance: float,
    images: int = 1,
    minimum: int = MINIMUM,
) -> list[Domain]:
    """For the test domains of each class, the training domains nearest to ``distance`` from them."""
    merged = _by_class(tests)
    classes = list(merged)
    mixed = shared_images(subsets, classes) if len(classes) > 1 else np.empty(0, dtype=np.int64)
    found: list[Domain] = []
    for label, names in merged.items():
        best = class_shifts(
            subsets,
            label,
            distance=distance,
            images=images,
            test=Domain(name=label, subsets=names),
            minimum=minimum,
            without=mixed,
            least_test=1,
        )[0]
        found += best.train
    return found


def split_distances(
    subsets: Subsets,
    train: Sequence[Domain],
    test: Sequence[Domain],
    *,
    minimum: int = MINIMUM,
    replicates: int = 1000,
    seed: int = 0,
) -> dict[str, Distance]:
    """For each class that is tested, the distance from all that it trains on to all of its test."""
    trained, tested = _by_class(train), _by_class(test)
    found = {}
    for label, names in tested.items():
        if label not in trained:
            raise UserError(f"class {label!r} is tested and never trained", fix="give it contexts")
        found[label] = distance_between(
            subsets,
            trained[label],
            names,
            minimum=minimum,
            replicates=replicates,
            seed=seed,
        )
    return found


def _by_class(domains: Sequence[Domain]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for domain in domains:
        names = (*found.get(domain.label, ()), *domain.subsets)
        found[domain.label] = tuple(dict.fromkeys(names))
    return found
