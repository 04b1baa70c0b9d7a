"""How far two subsets, or two merged collections of subsets, lie apart; with an interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from heldout.core.errors import NotApplicable, UserError
from heldout.curate.contexts.divergence import Divergence, divergence, replicate_divergences
from heldout.curate.contexts.graph import (
    MINIMUM,
    THRESHOLD,
    MetaGraph,
    connected_components,
    edge_weights,
)
from heldout.curate.contexts.names import parse_subset, subset_name
from heldout.curate.contexts.overlap import Measure, overlap_matrix
from heldout.curate.contexts.profiles import Collection, Profiles, make_profiles
from heldout.curate.contexts.published_distance import DIMENSIONS, Solver, published_distance
from heldout.curate.contexts.subsets import IntArray, Subsets, hint, read_subsets

if TYPE_CHECKING:
    import pyarrow as pa

    from heldout.data.testset.testset import TestSet

Mode = Literal["default", "published"]
MODES: tuple[Mode, ...] = ("default", "published")
Names = str | Sequence[str]
REPLICATES = 400
"""Enough for a standard error, which is all that the interval takes from them."""


@dataclass(frozen=True, kw_only=True)
class Distance:
    """How far ``a`` lies from ``b``.

    ``value``           default: 0 (the same contexts) to 1 (none in common); published: from 0 up
    ``low``, ``high``   default: the interval at ``level``; None in the published mode
    ``images_a``, ``images_b``, ``shared``  images of each, and of both
    ``notes``           what to know before it is used
    """

    a: tuple[str, ...]
    b: tuple[str, ...]
    value: float
    low: float | None
    high: float | None
    mode: Mode
    images_a: int
    images_b: int
    shared: int
    interval: str | None = None
    level: float | None = None
    notes: tuple[str, ...] = ()


def distance(
    source: TestSet | pa.Table | Subsets | Profiles | MetaGraph,
    a: Names,
    b: Names,
    *,
    mode: Mode = "default",
    threshold: float = THRESHOLD,
    measure: Measure = "overlap",
    minimum: int = MINIMUM,
    replicates: int = REPLICATES,
    level: float = 0.95,
    seed: int = 0,
    nodes: Mapping[str, Sequence[str]] | None = None,
    dimensions: int = DIMENSIONS,
    solver: Solver = "eig",
) -> Distance:
    """The distance between two subsets, or between collections of them.

    ``default``    the square root of the Jensen-Shannon divergence (base 2) between their context
                   profiles: a metric (Endres and Schindelin 2003), defined for every pair. Mended
                   for the number of images by the jackknife, with an interval from a bootstrap
                   over images. ``replicates=0`` leaves the interval out.
    ``published``  the distance of MetaShift's code (:mod:`..published_distance`), noted as
                   meaningless where the graph is not connected. ``nodes`` merges subsets into the
                   nodes of the graph: node name -> its subsets; otherwise the subsets of the class
                   are the nodes. A MetaGraph can be given instead of a set.
    """
    one, other = _named(a), _named(b)
    if not 0.0 <= threshold <= 1.0:
        raise UserError(f"an edge threshold of {threshold}", fix="give 0 to 1")
    if minimum < 1:
        raise UserError(f"a minimum of {minimum} images", fix="give 1 or more")
    if mode == "published":
        return _published(
            source,
            one,
            other,
            threshold=threshold,
            measure=measure,
            minimum=minimum,
            nodes=nodes,
            dimensions=dimensions,
            solver=solver,
        )
    if mode != "default":
        raise UserError(f"no distance {mode!r}", fix=f"use {' or '.join(MODES)}")
    if isinstance(source, MetaGraph):
        raise NotApplicable(
            "the default distance needs the images of subsets, which a graph does not hold",
            fix="give the test set, or mode published",
        )
    if isinstance(source, Profiles):
        profiles = source
    else:
        subsets = chosen_classes(read_subsets(source), (*one, *other), minimum)
        profiles = make_profiles(subsets, threshold=threshold, measure=measure)
    return profile_distance(
        profiles.collection(one),
        profiles.collection(other),
        replicates=replicates,
        level=level,
        seed=seed,
    )


def profile_distance(
    a: Collection,
    b: Collection,
    *,
    replicates: int = REPLICATES,
    level: float = 0.95,
    seed: int = 0,
) -> Distance:
    """The default distance between two collections of one :class:`Profiles`."""
    if replicates < 0 or replicates == 1:
        raise UserError(f"{replicates} bootstrap replicates", fix="give 2 or more, or 0 for none")
    shared = int(np.isin(a.images, b.images).sum())
    notes: list[str] = []
    low: float | None = None
    high: float | None = None
    found = divergence(a, b)
    same = len(a) == len(b) == shared and np.array_equal(a.profile, b.profile)
    value = 0.0 if same else math.sqrt(found.mended)
    name = None
    if same:
        low, high, name = 0.0, 0.0, "exact"
        if a.names != b.names:
            notes.append("both hold the same images")
    elif replicates:
        low, high, name = _interval(a, b, found, replicates, level, seed)
    if not same and min(len(a), len(b)) < 2:
        notes.append("one of them has a single image: the value is not mended for that")
    return Distance(
        a=a.names,
        b=b.names,
        value=value,
        low=low,
        high=high,
        mode="default",
        images_a=len(a),
        images_b=len(b),
        shared=shared,
        interval=name,
        level=None if low is None else level,
        notes=tuple(notes),
    )


def _interval(
    a: Collection, b: Collection, found: Divergence, replicates: int, level: float, seed: int
) -> tuple[float, float, str]:
    """Limits by a bootstrap over the images of both; the same images whatever else there is.

    Each replicate is mended as the value is, so that its spread is that of the value. What the
    jackknife leaves of the bias was a quarter to a third of what it takes away, at 25 images a
    side (docs/decisions/0006-contexts.md): the lower limit allows for a third.
    """
    from heldout.stats.bootstrap import resample_weights
    from heldout.stats.intervals import interval_from_replicates

    n = len(np.union1d(a.images, b.images))
    draws = []
    for weights in resample_weights(
        np.random.default_rng(seed), n, replicates=replicates, minimum_clusters=1
    ):
        counts = np.rint(weights * ((n - 1) / n)).astype(np.int64)
        draws.append(replicate_divergences(a, b, counts)[1])
    fewest = min(len(a), len(b))
    limits = interval_from_replicates(
        found.mended,
        np.concatenate(draws),
        level=level,
        method="t",
        bounds=(0.0, 1.0),
        units=fewest,
        degrees_of_freedom=max(fewest - 1, 1),
    )
    low = float(limits.low) - max(found.plain - found.mended, 0.0) / 3
    return math.sqrt(max(low, 0.0)), math.sqrt(float(limits.high)), "bootstrap-t"


def chosen_classes(subsets: Subsets, names: Sequence[str], minimum: int) -> Subsets:
    """The subsets of enough images of the classes that ``names`` are of."""
    subjects = {parse_subset(name).subject for name in names}
    for subject in sorted(subjects):
        if subject not in subsets.subjects:
            raise NotApplicable(f"no class {subject!r}", fix=hint(subject, subsets.subjects))
    mine = np.array([subject in subjects for subject in subsets.subject_of])
    enough = mine & (subsets.sizes >= minimum)
    for name in names:
        place = subsets.position(name)
        if not enough[place]:
            raise NotApplicable(
                f"{name} has {int(subsets.sizes[place])} images, fewer than {minimum}",
                fix="give a smaller minimum",
            )
    return subsets.take(np.nonzero(enough)[0])


def _published(
    source: Any,
    a: tuple[str, ...],
    b: tuple[str, ...],
    *,
    threshold: float,
    measure: Measure,
    minimum: int,
    nodes: Mapping[str, Sequence[str]] | None,
    dimensions: int,
    solver: Solver,
) -> Distance:
    if isinstance(source, MetaGraph):
        names, sizes, weights, members = source.subsets, source.sizes, source.weights, None
    else:
        table = source.subsets if isinstance(source, Profiles) else read_subsets(source)
        members = merged_nodes(table, nodes) if nodes else _one_class(table, (*a, *b), minimum)
        names, sizes = members.names, members.sizes
        # Nodes have any names; as subsets of one class they overlap as those do.
        alike = replace(members, names=tuple(subset_name("node", name) for name in names))
        weights = edge_weights(overlap_matrix(alike, measure=measure), threshold)
    places = {name: place for place, name in enumerate(names)}
    for name in (*a, *b):
        if name not in places:
            raise NotApplicable(f"{name!r} is no node of the graph", fix=hint(name, names))
    one, other = [places[name] for name in a], [places[name] for name in b]
    value = published_distance(weights, one, other, dimensions=dimensions, solver=solver)
    parts = connected_components(weights)
    notes = []
    if len(parts) > 1:
        notes.append(
            f"the graph of {len(names)} nodes falls into {len(parts)} parts, where the published "
            "distance is not defined: the value depends on the solver. Use the default distance"
        )
    counted = (int(sizes[one].sum()), int(sizes[other].sum()), 0)
    if members is not None:
        mine, theirs = (
            np.unique(np.concatenate([members.members(n) for n in each])) for each in (a, b)
        )
        counted = (len(mine), len(theirs), int(np.isin(mine, theirs).sum()))
    return Distance(
        a=a,
        b=b,
        value=value,
        low=None,
        high=None,
        mode="published",
        images_a=counted[0],
        images_b=counted[1],
        shared=counted[2],
        notes=tuple(notes),
    )


def merged_nodes(subsets: Subsets, nodes: Mapping[str, Sequence[str]]) -> Subsets:
    """Subsets merged into the nodes of a graph, in the order given: node -> its subsets.

    Subsets that are not there add nothing; a node that none of its subsets is there for is refused.
    """
    known, parts = set(subsets.names), list[IntArray]()
    for node, listed in nodes.items():
        there = [name for name in listed if name in known]
        if not there:
            raise NotApplicable(
                f"none of the subsets of {node} is there",
                fix=hint(next(iter(listed), node), subsets.names),
            )
        parts.append(np.unique(np.concatenate([subsets.members(name) for name in there])))
    starts = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
    return Subsets(tuple(nodes), subsets.image_ids, np.concatenate(parts), starts)


def _one_class(subsets: Subsets, names: Sequence[str], minimum: int) -> Subsets:
    found = chosen_classes(subsets, names, minimum)
    if len(found.subjects) > 1:
        raise NotApplicable(
            f"the published distance is inside one class, and these are {', '.join(found.subjects)}",
            fix="use the default distance",
        )
    return found


def _named(names: Names) -> tuple[str, ...]:
    found = (names,) if isinstance(names, str) else tuple(dict.fromkeys(names))
    if not found:
        raise UserError("a collection of no subsets", fix="name at least one")
    return found
