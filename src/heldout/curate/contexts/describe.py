"""What is unique about each subset, and counts of a whole set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from heldout.core.errors import NotFound
from heldout.core.files import read_versioned_json
from heldout.curate.contexts.distance import Collection, Profiles, divergence, make_profiles, xlog2
from heldout.curate.contexts.graph import (
    Communities,
    edge_weights,
    find_communities,
    overlap_matrix,
    shared_images,
)
from heldout.curate.contexts.parameters import ContextsParameters
from heldout.curate.contexts.subsets import Candidates, IntArray, Subsets
from heldout.data.labels.label_space import LabelSpace
from heldout.data.published.metashift import join_subset_name

FloatArray = npt.NDArray[np.float64]
_SHORTLIST = 8
"""How many of the likeliest are measured: few images can put the third or the tenth first."""


@dataclass(frozen=True)
class Sibling:
    """Another subset of the class, and the default distance to it."""

    name: str
    distance: float


def find_siblings(
    profiles: Profiles, most: int
) -> tuple[list[tuple[Sibling, ...]], list[tuple[Sibling, ...]]]:
    """The nearest and the farthest subsets of each, ``most`` of both; one class only.

    How alike two profiles are (Bhattacharyya's coefficient: one matrix product for all pairs) says
    which could be; the distance then puts the 8 likeliest in order, on either side. That is all of
    them in a class of 9 subsets or fewer. In the published attribute file it misses the nearest of 1
    and the farthest of none of 1,912 attribute subsets of 8 images and more, and the nearest of 8 and
    the farthest of 3 of the 2,525 subsets of co-occurring objects.
    """
    names = profiles.subsets.names
    packed = [Packed(profiles.collection(name)) for name in names]
    roots = np.sqrt(np.array([each.whole.profile for each in packed]))
    alike = (roots @ roots.T).round(9)
    known: dict[tuple[int, int], float] = {}

    def apart(place: int, other: int) -> float:
        key = (min(place, other), max(place, other))
        if key not in known:
            nothing = alike[place, other] == 0.0 and not (roots[place] * roots[other]).any()
            known[key] = 1.0 if nothing else quick_divergence(packed[key[0]], packed[key[1]]) ** 0.5
        return known[key]

    looked_at = max(most, _SHORTLIST)
    near: list[tuple[Sibling, ...]] = []
    far: list[tuple[Sibling, ...]] = []
    for place in range(len(names)):
        order = np.argsort(-alike[place], kind="stable")
        others = order[order != place].tolist()
        close = [(apart(place, other), other) for other in others[:looked_at]]
        wide = [(apart(place, other), other) for other in others[::-1][:looked_at]]
        near.append(_listed(names, sorted(close)[:most]))
        far.append(_listed(names, sorted(wide, key=lambda pair: (-pair[0], pair[1]))[:most]))
    return near, far


def _listed(names: Sequence[str], found: Sequence[tuple[float, int]]) -> tuple[Sibling, ...]:
    return tuple(Sibling(names[place], value) for value, place in found)


@dataclass(frozen=True, eq=False)
class Packed:
    """A subset of one class with all that its distances to others have in common.

    Entries are counted by *cell*: the context, and how many contexts the image has.
    """

    whole: Collection

    @cached_property
    def entries(self) -> IntArray:
        """For each entry, its cell as one number."""
        lengths = np.repeat(self.whole.lengths, self.whole.lengths)
        return lengths * self.whole.width + self.whole.columns

    @cached_property
    def cells(self) -> tuple[IntArray, IntArray, IntArray]:
        """The context of each distinct cell, how often it comes, and the cell of each entry."""
        codes, cell_of, counts = np.unique(self.entries, return_inverse=True, return_counts=True)
        return codes % self.whole.width, counts.astype(np.int64), cell_of.reshape(-1)

    @cached_property
    def profile(self) -> Logged:
        """The profile."""
        return Logged(self.whole.profile)

    @cached_property
    def scaled(self) -> Logged:
        """The profile less one image that had nothing: ``p n / (n - 1)``."""
        return Logged(self.whole.profile * (len(self.whole) / (len(self.whole) - 1)))

    @cached_property
    def reduced(self) -> Logged:
        """For each cell, what is left at its context without an image of the cell."""
        contexts, _, cell_of = self.cells
        share = np.zeros(len(contexts))
        share[cell_of] = self.whole.values / (len(self.whole) - 1)
        return Logged(np.maximum(self.scaled.values[contexts] - share, 0.0))


class Logged:
    """Numbers with ``x log2 x`` of each, which every distance needs again."""

    def __init__(self, values: FloatArray, logs: FloatArray | None = None) -> None:
        self.values = values
        self.logs = xlog2(values) if logs is None else logs

    def at(self, places: IntArray) -> Logged:
        """Some of them."""
        return Logged(self.values[places], self.logs[places])

    def against(self, other: Logged) -> FloatArray:
        """What each context adds to the divergence of two profiles."""
        middle = xlog2(0.5 * (self.values + other.values))
        found: FloatArray = 0.5 * (self.logs + other.logs) - middle
        return found


def quick_divergence(a: Packed, b: Packed) -> float:
    """The mended divergence of two subsets of one class, as :func:`divergence` has it."""
    if len(a.whole) > len(b.whole):
        a, b = b, a
    mine, theirs = a.whole, b.whole
    n, m = len(mine), len(theirs)
    if n < 2:
        return divergence(mine, theirs).mended
    place = np.searchsorted(theirs.images, mine.images)
    place[place == m] = 0
    shared = theirs.images[place] == mine.images
    both = int(shared.sum())
    (at_a, alone_a, cell_a), (at_b, alone_b, cell_b) = a.cells, b.cells
    total = 0.0
    if both:
        found = np.zeros(m, dtype=bool)
        found[place[shared]] = True
        chosen_a, chosen_b = np.repeat(shared, mine.lengths), np.repeat(found, theirs.lengths)
        if not np.array_equal(a.entries[chosen_a], b.entries[chosen_b]):
            return divergence(mine, theirs).mended  # a context that one of them alone counts
        in_a = np.bincount(cell_a[chosen_a], minlength=len(at_a))
        in_b = np.bincount(cell_b[chosen_b], minlength=len(at_b))
        alone_a, alone_b = alone_a - in_a, alone_b - in_b
        of_a, of_b = np.nonzero(in_a)[0], np.nonzero(in_b)[0]  # the same cells, in one order
        base = a.scaled.against(b.scaled)
        less = a.reduced.at(of_a).against(b.reduced.at(of_b))
        change = in_a[of_a] * (less - base[at_a[of_a]])
        total += both * float(base.sum()) + float(change.sum())
    total += _left_out(a, alone_a, n - both, b.profile)
    total += _left_out(b, alone_b, m - both, a.profile)
    images = n + m - both
    plain = float(a.profile.against(b.profile).sum())
    return min(max(images * plain - (images - 1) * (total / images), 0.0), 1.0)


def _left_out(one: Packed, counts: IntArray, images: int, other: Logged) -> float:
    """The sum, over images that one alone has, of the divergence without the image."""
    if not images:
        return 0.0
    contexts = one.cells[0]
    base = one.scaled.against(other)
    change = counts * (one.reduced.against(other.at(contexts)) - base[contexts])
    return images * float(base.sum()) + float(change.sum())


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
class Unique:
    """What is known of one subset; ``text`` says it in words.

    ``community``  the number of its community in the class's graph, from 1, the largest
    ``lifts``      contexts over-represented in it, the surest first
    """

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


def class_communities(
    subsets: Subsets, parameters: ContextsParameters, *, seed: int
) -> Communities:
    """The communities of the subsets of one class."""
    weights = edge_weights(
        overlap_matrix(subsets, measure=parameters.measure), parameters.threshold
    )
    return find_communities(weights, method=parameters.communities, seed=seed)


def unique_subsets(
    subsets: Subsets,
    communities: Communities,
    *,
    threshold: float = 0.2,
    measure: Any = "overlap",
    siblings: int = SIBLINGS,
) -> tuple[Unique, ...]:
    """What is unique about each subset of one class, in their order.

    ``siblings``  how many of the nearest and of the farthest are listed
    """
    sizes, whole = subsets.sizes, len(subsets.image_ids)
    lifts = _lifts(subsets)
    number = {node: k for k, members in enumerate(communities, 1) for node in members}
    near: list[tuple[Sibling, ...]] = [()] * len(subsets)
    far = near
    if siblings:
        profiles = make_profiles(subsets, threshold=threshold, measure=measure)
        near, far = find_siblings(profiles, siblings)
    return tuple(
        Unique(
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


def _lifts(subsets: Subsets) -> list[tuple[Lift, ...]]:
    from heldout.stats.intervals import wilson
    from heldout.stats.multiple import simultaneous_level

    found: list[tuple[Lift, ...]] = [()] * len(subsets)
    others = len(subsets) - 1
    if others < 1:
        return found
    shared = shared_images(subsets).tocoo()
    apart = shared.row != shared.col
    rows, columns, counts = shared.row[apart], shared.col[apart], shared.data[apart]
    if not len(rows):
        return found
    sizes = subsets.sizes
    base = sizes[columns] / len(subsets.image_ids)
    rate = counts / sizes[rows]
    limits = wilson(counts, sizes[rows], level=simultaneous_level(LEVEL, others))
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
    described: dict[str, Any] = {}
    communities: dict[str, tuple[str, ...]] = {}
    for subject in kept.subjects:
        mine = kept.of(subject)
        found = class_communities(mine, parameters, seed=seed)
        for unique in unique_subsets(
            mine,
            found,
            threshold=parameters.threshold,
            measure=parameters.measure,
            siblings=SIBLINGS if len(kept) <= MANY else 0,
        ):
            described[unique.name] = unique.to_dict()
        for number, members in enumerate(found, 1):
            largest = max(members, key=lambda node: (int(mine.sizes[node]), -node))
            title = join_subset_name(subject, f"#{number} {mine.context_of[largest]}")
            communities[title] = tuple(mine.names[node] for node in members)
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


def read_statistics(folder: Path) -> dict[str, Any]:
    """The statistics of a set in its folder, as :func:`statistics` made them."""
    path = folder / STATISTICS
    if not path.is_file():
        raise NotFound(
            f"no {STATISTICS} in {folder}", fix="make the set with heldout build contexts"
        )
    return read_versioned_json(path, version=1)
