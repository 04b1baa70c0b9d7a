"""What is unique about each subset: the contexts it has more often than its class, and its siblings.

The *lift* of a context in a subset is its rate there over its rate in the class: cat(bathroom)
shows a sink five times as often as cats do. Its interval is Wilson's for the rate in the subset, at
a level that holds for all contexts of the subset at once, over the rate in the class; a context
counts as over-represented where the whole interval lies above 1.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from heldout.curate.contexts.communities import Communities, find_communities
from heldout.curate.contexts.graph import edge_weights
from heldout.curate.contexts.names import subset_name
from heldout.curate.contexts.overlap import overlap_matrix, shared_images
from heldout.curate.contexts.parameters import ContextsParameters
from heldout.curate.contexts.profiles import make_profiles
from heldout.curate.contexts.siblings import Sibling, find_siblings
from heldout.curate.contexts.subsets import Subsets

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
            title = subset_name(subject, f"#{number} {mine.context_of[largest]}")
            communities[title] = tuple(mine.names[node] for node in members)
    return described, communities
