"""What is unique about each subset, and counts of a whole set."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypedDict

import numpy as np
import numpy.typing as npt

from heldout.core.engine.executors import worker_count
from heldout.core.errors import NotFound
from heldout.core.records import Table
from heldout.core.schema import convert, read_facts
from heldout.curate.contexts.distance import Profiles, divergence, make_profiles, plain_divergences
from heldout.curate.contexts.graph import (
    Communities,
    edge_weights,
    find_communities,
    overlaps,
    shared_images,
)
from heldout.curate.contexts.requests import ContextsParameters
from heldout.curate.contexts.subsets import Candidates, Subsets, read_subsets
from heldout.data.labels.label_space import LabelSpace
from heldout.data.published.metashift import join_subset_name
from heldout.data.testset.testset import TestSet


@dataclass(frozen=True)
class Sibling:
    """Another subset of the class, and the default distance to it."""

    name: str
    distance: float


def find_siblings(
    profiles: Profiles, most: int
) -> tuple[list[tuple[Sibling, ...]], list[tuple[Sibling, ...]]]:
    """The nearest and the farthest subsets of each, at most ``most`` of both; one class only.

    They are chosen by the divergence of profiles as they are, equal ones by name, and listed by the
    distance that is shown, which is corrected for the number of images.
    """
    names = profiles.subsets.names
    collections = [profiles.collection(name) for name in names]
    table = np.array([collection.profile for collection in collections])
    # Rounded: the same order on every machine.
    apart = plain_divergences(table).round(9)

    @cache
    def known(place: int, other: int) -> float:
        if not (table[place] * table[other]).any():
            return 1.0  # nothing is shared, whichever image is left out
        return float(divergence(collections[place], collections[other]).corrected ** 0.5)

    def listed(place: int, order: npt.NDArray[np.int64], sign: int) -> tuple[Sibling, ...]:
        chosen = [
            (sign * known(min(place, other), max(place, other)), other)
            for other in order[order != place][:most].tolist()
        ]
        return tuple(Sibling(names[other], sign * value) for value, other in sorted(chosen))

    near = [listed(place, np.argsort(row, kind="stable"), 1) for place, row in enumerate(apart)]
    far = [listed(place, np.argsort(-row, kind="stable"), -1) for place, row in enumerate(apart)]
    return near, far


LEVEL = 0.95
_SHOWN = 5
SIBLINGS = 2
MANY = 20_000
"""In a set of more subsets, siblings are left to be found class by class, when a graph is asked for."""


@dataclass(frozen=True)
class Lift:
    """How much more often a context is in a subset than in its class.

    ``images``  of the subset with the context; ``rate`` and ``class_rate`` are shares
    """

    context: str
    images: int
    rate: float
    class_rate: float
    lift: float
    low: float
    high: float


@dataclass(frozen=True)
class SubsetDescription:
    """What is known of one subset; ``text`` says it in words.

    ``community``  the number of its community in the class's graph, from 1, the largest
    ``lifts``      contexts over-represented in it, the surest first
    """

    record: ClassVar[str] = "subset"
    table: ClassVar[Table] = Table(
        "{subject}",
        (
            *("subset=name", "community:d", "more often with=lifted"),
            *("nearest=near", "farthest=far", "images:,"),
        ),
    )
    name: str
    subject: str
    context: str
    images: int
    share_of_class: float
    community: int
    lifts: tuple[Lift, ...]
    nearest: tuple[Sibling, ...]
    farthest: tuple[Sibling, ...]

    @property
    def lifted(self) -> str:
        """The surest contexts, as a table shows them; so are the nearest and farthest siblings."""
        return ", ".join(f"{lift.context} {lift.lift:.1f}×" for lift in self.lifts[:3])

    @property
    def near(self) -> str:  # noqa: D102
        return "".join(f"{item.name} {item.distance:.2f}" for item in self.nearest[:1])

    @property
    def far(self) -> str:  # noqa: D102
        return "".join(f"{item.name} {item.distance:.2f}" for item in self.farthest[:1])

    @property
    def text(self) -> str:
        """The same in words."""
        said = [f"{self.images:,} images, {100 * self.share_of_class:.3g} % of {self.subject}"]
        if self.lifts:
            listed = ", ".join(
                f"{lift.context} ({lift.lift:.3g} times, at least {lift.low:.3g})"
                for lift in self.lifts[:3]
            )
            said.append(f"more often than other {self.subject} images with {listed}")
        else:
            said.append("no context is surely more frequent than in its class")
        for word, siblings in (("nearest", self.nearest), ("farthest", self.farthest)):
            if siblings:
                said.append(f"{word} {siblings[0].name} ({siblings[0].distance:.2f})")
        return "; ".join(said)

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object, ``text`` first, numbers to six digits: the same on every machine."""
        return {"text": self.text, **_rounded(asdict(self))}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value


def unique_subsets(
    subsets: Subsets,
    communities: Communities,
    *,
    threshold: float = 0.2,
    measure: Any = "overlap",
    siblings: int = SIBLINGS,
    shared: Any = None,
) -> tuple[SubsetDescription, ...]:
    """What is unique about each subset of one class, in their order.

    ``siblings``  how many of the nearest and of the farthest are listed
    ``shared``    images that two subsets share, where they are counted already
    """
    sizes, whole = subsets.sizes, len(subsets.image_ids)
    shared = shared_images(subsets) if shared is None else shared
    lifts = _lifts(subsets, shared)
    number = {node: k for k, members in enumerate(communities, 1) for node in members}
    near: list[tuple[Sibling, ...]] = [()] * len(subsets)
    far = near
    if siblings:
        profiles = make_profiles(subsets, threshold=threshold, measure=measure, shared=shared)
        near, far = find_siblings(profiles, siblings)
    return tuple(
        SubsetDescription(
            name=name,
            subject=subsets.subject_of[place],
            context=subsets.context_of[place],
            images=int(sizes[place]),
            share_of_class=int(sizes[place]) / whole,
            community=number[place],
            lifts=lifts[place],
            nearest=near[place],
            farthest=far[place],
        )
        for place, name in enumerate(subsets.names)
    )


def _lifts(subsets: Subsets, counted: Any) -> list[tuple[Lift, ...]]:
    from heldout.stats.intervals import wilson
    from heldout.stats.multiple import simultaneous_level

    found: list[tuple[Lift, ...]] = [()] * len(subsets)
    shared = counted.tocoo()
    apart = shared.row != shared.col
    rows, columns, counts = shared.row[apart], shared.col[apart], shared.data[apart]
    if not len(rows):
        return found
    sizes = subsets.sizes
    base = sizes[columns] / len(subsets.image_ids)
    rate = counts / sizes[rows]
    limits = wilson(counts, sizes[rows], level=simultaneous_level(LEVEL, len(subsets) - 1))
    low, high = limits.low / base, limits.high / base
    # Above 1 even for a context that every image of the class has, where rounding alone could be.
    sure = np.nonzero(low > 1.0 + 1e-12)[0]
    order = sure[np.lexsort((columns[sure], -low[sure], rows[sure]))]
    starts = np.searchsorted(rows[order], np.arange(len(subsets) + 1))
    for place in range(len(subsets)):
        chosen = order[starts[place] : starts[place + 1]][:_SHOWN]
        found[place] = tuple(
            Lift(
                subsets.context_of[int(columns[e])],
                int(counts[e]),
                float(rate[e]),
                float(base[e]),
                float(rate[e] / base[e]),
                float(low[e]),
                float(high[e]),
            )
            for e in chosen.tolist()
        )
    return found


def describe_subsets(
    kept: Subsets, parameters: ContextsParameters, *, seed: int
) -> tuple[dict[str, Any], dict[str, tuple[str, ...]]]:
    """For every class: subset -> what is unique about it as JSON; and community -> its subsets."""

    def of_class(subject: str) -> tuple[dict[str, Any], dict[str, tuple[str, ...]]]:
        mine = kept.of(subject)
        shared = shared_images(mine)
        near = overlaps(mine, measure=parameters.measure, shared=shared).toarray()
        weights = edge_weights(near, parameters.threshold)
        found = find_communities(weights, method=parameters.communities, seed=seed)
        unique = unique_subsets(
            mine,
            found,
            threshold=parameters.threshold,
            measure=parameters.measure,
            siblings=SIBLINGS if len(kept) <= MANY else 0,
            shared=shared,
        )
        titled = {}
        for number, members in enumerate(found, 1):
            largest = max(members, key=lambda node: (int(mine.sizes[node]), -node))
            title = join_subset_name(subject, f"#{number} {mine.context_of[largest]}")
            titled[title] = tuple(mine.names[node] for node in members)
        return {each.name: each.to_dict() for each in unique}, titled

    described: dict[str, Any] = {}
    communities: dict[str, tuple[str, ...]] = {}
    # NumPy leaves other threads room: two cores take two thirds of the time of one.
    with ThreadPoolExecutor(worker_count(None)) as pool:
        for subsets, titled in pool.map(of_class, kept.subjects):
            described |= subsets
            communities |= titled
    return described, communities


STATISTICS = "statistics.json"
"""The document of a set that holds them."""


def statistics(found: Candidates, space: LabelSpace, classes: Mapping[str, str]) -> dict[str, Any]:
    """As JSON: ``counts``; ``sizes`` of the kept subsets; ``classes``, largest first; ``merged``.

    ``coverage`` of a class is the share of its images with any context that kept subsets hold.
    """
    kept = found.kept
    rows = []
    for subject in kept.subjects:
        mine = kept.of(subject)
        largest = int(np.argmax(mine.sizes))
        rows.append(
            {
                "class": classes[subject],
                "subject": subject,
                "subsets": len(mine),
                "images": len(mine.image_ids),
                "coverage": len(mine.image_ids) / found.images[subject],
                "largest": mine.names[largest],
                "largest_images": int(mine.sizes[largest]),
                "median_images": float(np.median(mine.sizes)),
            }
        )
    sizes = kept.sizes
    return {
        "counts": dict(found.counts),
        "label_space": space.name,
        "sizes": {
            "least": int(sizes.min()),
            "median": float(np.median(sizes)),
            "mean": float(sizes.mean()),
            "most": int(sizes.max()),
            "memberships": int(sizes.sum()),
        },
        "classes": sorted(rows, key=lambda row: (-int(str(row["images"])), str(row["subject"]))),
        "merged": {word: list(meant) for word, meant in sorted(found.merged.items())},
    }


@dataclass(frozen=True, kw_only=True)
class ContextTotals:
    """What a set of subsets amounts to; ``least``, ``median`` and ``most`` images of a subset."""

    record: ClassVar[str] = "contexts"
    table: ClassVar[Table] = Table(
        "{testset}",
        (
            *("classes:,", "subsets:,", "images:,", "subsets of a class=subsets_per_class:.1f"),
            *("images of a subset=images_per_subset:.1f", "least:,", "median:.0f", "most:,"),
        ),
    )
    testset: str
    classes: int
    subsets: int
    images: int
    memberships: int
    subsets_per_class: float
    images_per_subset: float
    least: int
    median: float
    most: int


@dataclass(frozen=True, kw_only=True)
class ContextClass:
    """A class: its subsets, and the share of its images (``coverage``) that are in one of them."""

    record: ClassVar[str] = "class in context"
    table: ClassVar[Table] = Table(
        "{testset}: classes, the share of their images that is in a subset in percent",
        (
            *("class=subject", "subsets:,", "images:,", "in a subset=coverage:%1"),
            *("median subset=median_images:.0f", "largest", "its images=largest_images:,"),
        ),
    )
    testset: str = ""
    subject: str
    subsets: int
    images: int
    coverage: float
    median_images: float
    largest: str
    largest_images: int


class _Statistics(TypedDict):
    counts: dict[str, int]
    classes: list[dict[str, Any]]


@dataclass(frozen=True, eq=False)
class ContextStatistics:
    """The statistics of a set as it was built.

    ``counts``  of candidates, and of what is left of them after each rule
    ``sizes``   images of each subset, int64 (n,)
    """

    totals: ContextTotals
    classes: tuple[ContextClass, ...]
    counts: Mapping[str, int]
    sizes: npt.NDArray[np.int64]


def read_statistics(testset: TestSet) -> ContextStatistics:
    """The statistics that ``build contexts`` wrote beside a set."""
    path = (testset.folder or Path()) / STATISTICS
    if testset.folder is None or not path.is_file():
        raise NotFound(
            f"{testset.name} has no {STATISTICS}", fix="name a set that heldout build contexts made"
        )
    found = read_facts(path, _Statistics, newest=1, fix="build the set again")
    rows = convert(found["classes"], tuple[ContextClass, ...], where=path)
    sizes = read_subsets(testset).sizes
    totals = ContextTotals(
        testset=testset.name,
        classes=len(rows),
        subsets=len(sizes),
        images=len(testset),
        memberships=int(sizes.sum()),
        subsets_per_class=len(sizes) / len(rows),
        images_per_subset=float(sizes.mean()),
        least=int(sizes.min()),
        median=float(np.median(sizes)),
        most=int(sizes.max()),
    )
    classes = tuple(replace(row, testset=testset.name) for row in rows)
    return ContextStatistics(totals, classes, found["counts"], sizes)
