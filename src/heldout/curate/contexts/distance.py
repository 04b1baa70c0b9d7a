"""How far two subsets, or two merged collections of subsets, lie apart; with an interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from heldout.core.errors import NotApplicable, UserError
from heldout.core.records import Table
from heldout.curate.contexts.graph import (
    MINIMUM,
    THRESHOLD,
    connected_components,
    edge_weights,
    overlaps,
)
from heldout.curate.contexts.requests import Measure, Mode
from heldout.curate.contexts.subsets import IntArray, Subsets, hint
from heldout.data.published.metashift import join_subset_name, split_subset_name

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Collection:
    """The images of one subset, or of several merged, with the contexts they show.

    ``names``   its subsets, sorted
    ``images``  int64 (n,): positions of its images, sorted, each once
    ``rows``    ``csr_array`` of float64, (n, contexts): what each context has of an image; rows sum to 1
    """

    names: tuple[str, ...]
    images: IntArray
    rows: Any

    def __len__(self) -> int:
        return len(self.images)

    @cached_property
    def profile(self) -> FloatArray:
        """Float64 (contexts,): how likely each context is; sums to 1."""
        total = np.bincount(self.rows.indices, self.rows.data, self.rows.shape[1])
        mean: FloatArray = total / len(self)
        return mean

    def among(self, images: IntArray) -> Any:
        """Its rows among those of more images, sorted; rows of others are empty."""
        from scipy.sparse import csr_array

        ends = np.zeros(len(images) + 1, dtype=np.int64)
        ends[np.searchsorted(images, self.images) + 1] = np.diff(self.rows.indptr)
        shape = (len(images), self.rows.shape[1])
        return csr_array((self.rows.data, self.rows.indices, np.cumsum(ends)), shape=shape)


@dataclass(frozen=True, eq=False)
class Profiles:
    """The profiles of the subsets of some classes, and of collections of them.

    ``subsets``   of enough images
    ``linked``    bool (subsets,): those that share an edge with another of their class
    """

    subsets: Subsets
    linked: npt.NDArray[np.bool_]

    @cached_property
    def _by_class(self) -> Mapping[str, tuple[IntArray, Any]]:
        """For each class the positions of its subsets, and who is in them: ``csr_array``."""
        of, table = np.array(self.subsets.subject_of), self.subsets.matrix
        places = {subject: np.flatnonzero(of == subject) for subject in self.subsets.subjects}
        return {subject: (mine, table[:, mine].tocsr()) for subject, mine in places.items()}

    @cached_property
    def _contexts(self) -> tuple[IntArray, int]:
        """The context of each subset as a number, and how many contexts there are."""
        names, numbers = np.unique(self.subsets.context_of, return_inverse=True)
        return numbers, len(names)

    def collection(self, names: Sequence[str] | str) -> Collection:
        """The collection of one or more subsets, merged: an image of several counts once."""
        chosen = (names,) if isinstance(names, str) else tuple(sorted(set(names)))
        groups: dict[str, list[int]] = {}
        for name in chosen:
            place = self.subsets.position(name)
            groups.setdefault(self.subsets.subject_of[place], []).append(place)
        parts = [self._of_class(subject, groups[subject]) for subject in sorted(groups)]
        if len(parts) == 1:
            return replace(parts[0], names=chosen)
        # An image of two classes counts once, with the mean of its rows.
        images = np.unique(np.concatenate([part.images for part in parts]))
        rows = sum(part.among(images) for part in parts)
        return Collection(chosen, images, rows.multiply(1 / rows.sum(axis=1)[:, None]).tocsr())

    def _of_class(self, subject: str, places: Sequence[int]) -> Collection:
        """The collection of subsets of one class."""
        from scipy.sparse import csr_array

        starts, (contexts, width) = self.subsets.starts, self._contexts
        mine, table = self._by_class[subject]
        images = [self.subsets.images[starts[p] : starts[p + 1]] for p in places]
        chosen = np.unique(np.concatenate(images))
        near = table[chosen]
        beside = mine[near.indices]
        keep = self.linked[beside] | np.isin(beside, places)
        rows = np.repeat(np.arange(len(chosen)), np.diff(near.indptr))[keep]
        values = (1.0 / np.bincount(rows))[rows]
        shape = (len(chosen), width)
        return Collection(
            (), chosen, csr_array((values, (rows, contexts[beside[keep]])), shape=shape)
        )


def make_profiles(
    subsets: Subsets,
    *,
    threshold: float = THRESHOLD,
    measure: Measure = "overlap",
    shared: Any = None,
) -> Profiles:
    """The profiles of subsets of one or more classes; edges as in the meta-graph.

    ``shared``  images that two subsets share, where they are counted already
    """
    near = overlaps(subsets, measure=measure, shared=shared).tocoo()
    edge = (near.row != near.col) & (near.data >= threshold) & (near.data > 0)
    linked = np.zeros(len(subsets), dtype=bool)
    linked[near.row[edge]] = True
    return Profiles(subsets, linked)


class Divergence(NamedTuple):
    """``plain``, as the profiles have it, and ``corrected`` for small samples, in bits, 0 to 1."""

    plain: float
    corrected: float


class PairedProfiles:
    """Two collections beside each other, to measure again and again with other weights.

    ``images``  int64 (n,): the images of either, sorted
    """

    def __init__(self, a: Collection, b: Collection) -> None:
        self.images = np.union1d(a.images, b.images)
        rows_a, rows_b = a.among(self.images), b.among(self.images)
        self._in_a, self._in_b = (np.diff(rows.indptr) > 0 for rows in (rows_a, rows_b))
        # Added as complex numbers, entries of both meet: real parts are of a, imaginary ones of b.
        entries = rows_a + 1j * rows_b
        self._lengths, self._columns = np.diff(entries.indptr), entries.indices.astype(np.intp)
        self._of_a, self._of_b = entries.data.real, entries.data.imag
        self._width = entries.shape[1]
        # Who has an image: a alone (0), b alone (1), both (2).
        self._who = self._in_a + 2 * self._in_b - 1
        self._cells = np.repeat(self._who * self._width, self._lengths) + self._columns

    def divergence(self, weights: FloatArray) -> Divergence:
        """``H((p + q) / 2) - (H(p) + H(q)) / 2`` in bits, where images count ``weights`` times.

        Profiles of few images are ragged, and so diverge even where the images come from one
        place: 25 against 25 images of one source show 0.1 bits. ``corrected`` is the jackknife
        estimate ``n J - (n - 1) mean(J without image i)`` over all n images of both collections, not
        cut at 0 and 1, so that its spread is seen. An image in both is left out of both. Where
        one collection has no image, nothing is shared and the divergence is 1.
        """
        mass_a, mass_b = float(weights[self._in_a].sum()), float(weights[self._in_b].sum())
        if mass_a <= 0 or mass_b <= 0:
            return Divergence(1.0, 1.0)
        count = np.repeat(weights, self._lengths)
        p = np.bincount(self._columns, self._of_a * count, self._width) / mass_a
        q = np.bincount(self._columns, self._of_b * count, self._width) / mass_b
        plain = float(divergence_terms(p, q).sum())
        if mass_a <= 1 or mass_b <= 1:
            return Divergence(plain, plain)
        # Without one draw, a profile of n is p n / (n - 1), less what the draw had.
        p1 = np.outer(mass_a / (mass_a - np.array([1, 0, 1])), p)
        q1 = np.outer(mass_b / (mass_b - np.array([0, 1, 1])), q)
        base = divergence_terms(p1, q1)
        less_p = np.maximum(p1.take(self._cells) - self._of_a / (mass_a - 1), 0.0)
        less_q = np.maximum(q1.take(self._cells) - self._of_b / (mass_b - 1), 0.0)
        change = divergence_terms(less_p, less_q) - base.take(self._cells)
        images = np.bincount(self._who, weights, 3)
        total = float((images * base.sum(axis=1)).sum() + (count * change).sum())
        n = float(weights.sum())
        return Divergence(plain, n * plain - (n - 1) * (total / n))


def divergence(a: Collection, b: Collection) -> Divergence:
    """How far two profiles diverge; both values are cut at 0 and 1."""
    pair = PairedProfiles(a, b)
    found = pair.divergence(np.ones(len(pair.images)))
    return Divergence(*(min(max(value, 0.0), 1.0) for value in found))


def plain_divergences(profiles: FloatArray) -> FloatArray:
    """The divergences (n, n) of every pair of profiles (n, width), not corrected.

    Profiles have few of all contexts: where the other has none, a term depends on the one alone.
    """
    own, alone = _xlog2(profiles).sum(axis=1), _xlog2(0.5 * profiles)
    whole = alone.sum(axis=1)
    found = np.zeros((len(profiles), len(profiles)))
    for first, other in enumerate(profiles):  # each pair once
        there = np.flatnonzero(other)
        both = _xlog2(0.5 * (profiles[first:, there] + other[there])) - alone[first:, there]
        half = 0.5 * (own[first:] + own[first])
        found[first:, first] = half - whole[first:] - both.sum(axis=1)
    found = np.clip(found, 0.0, 1.0)
    return np.maximum(found, found.T)


def divergence_terms(p: FloatArray, q: FloatArray) -> FloatArray:
    """What each context adds to the divergence."""
    return 0.5 * (_xlog2(p) + _xlog2(q)) - _xlog2(0.5 * (p + q))


def _xlog2(x: FloatArray) -> FloatArray:
    """``x log2 x``, 0 at 0."""
    found: FloatArray = x * np.log2(np.where(x > 0, x, 1.0))
    return found


DIMENSIONS = 5


def spectral_positions(weights: FloatArray) -> FloatArray:
    """Places of the nodes, (n, 5), as networkx lays them out below 500 nodes.

    ``weights``  (n, n), symmetric, zero diagonal. The solver does not know that, as the original:
                 it matters where the graph is not connected.
    """
    if len(weights) < 3:
        raise NotApplicable(
            f"a graph of {len(weights)} nodes has no spectral layout",
            fix="use the default distance, or a smaller minimum",
        )
    found = np.linalg.eig(np.diag(weights.sum(axis=1)) - weights)
    order = np.argsort(np.real(found.eigenvalues))[1 : DIMENSIONS + 1]
    places: FloatArray = np.real(found.eigenvectors)[:, order]
    places = places - places.mean(axis=0)
    largest = np.abs(places).max()
    return places / largest if largest > 0 else places


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
    ``testset``         the set that it was measured in, where that is known, and its hash
    """

    record: ClassVar[str] = "distance"
    table: ClassVar[Table] = Table(
        "",
        (
            *("a", "b", "mode", "distance=value:.3f[]"),
            *("images a=images_a:,", "images b=images_b:,", "in both=shared:,"),
        ),
    )
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
    testset: str | None = None
    testset_hash: str | None = None

    @property
    def text(self) -> str:
        """The value with its interval."""
        if self.low is None or self.high is None:
            return f"{self.value:.3f}"
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def distance(
    subsets: Subsets,
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
) -> Distance:
    """The distance between two subsets, or between collections of them.

    ``default``    the square root of the Jensen-Shannon divergence (base 2) between their context
                   profiles: a metric (Endres and Schindelin 2003), defined for every pair. Corrected
                   for the number of images by the jackknife, with an interval from a bootstrap
                   over images. ``replicates=0`` leaves the interval out.
    ``published``  that of MetaShift's code, the mean Euclidean distance between the nodes of ``a``
                   and ``b`` (:func:`spectral_positions`), noted as meaningless where the graph is
                   not connected. ``nodes`` merges subsets into the
                   nodes of the graph: node name -> its subsets; otherwise the subsets of the class
                   are the nodes.
    """
    one, other = ((n,) if isinstance(n, str) else tuple(dict.fromkeys(n)) for n in (a, b))
    if not one or not other:
        raise UserError("a collection of no subsets", fix="name at least one")
    if mode == "published":
        return _published(
            subsets, one, other, threshold=threshold, measure=measure, minimum=minimum, nodes=nodes
        )
    mine = chosen_classes(subsets, (*one, *other), minimum)
    profiles = make_profiles(mine, threshold=threshold, measure=measure)
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
    shared = int(np.isin(a.images, b.images).sum())
    found = divergence(a, b)
    same = len(a) == len(b) == shared and np.array_equal(a.profile, b.profile)
    limits: tuple[float | None, float | None, str | None] = (None, None, None)
    notes = []
    if same:
        limits = (0.0, 0.0, "exact")
        if a.names != b.names:
            notes.append("both hold the same images")
    else:
        if replicates:
            limits = _interval(a, b, found, replicates, level, seed)
        if min(len(a), len(b)) < 2:
            notes.append("one of them has a single image: the value is not corrected for that")
    low, high, name = limits
    return Distance(
        a=a.names,
        b=b.names,
        value=0.0 if same else math.sqrt(found.corrected),
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

    Each replicate is corrected as the value is, so that its spread is that of the value. What the
    jackknife leaves of the bias was a quarter to a third of what it takes away, at 25 images a
    side (docs/decisions/0006-contexts.md): the lower limit allows for a third.
    """
    from heldout.stats.bootstrap import resample_weights
    from heldout.stats.intervals import interval_from_replicates

    pair = PairedProfiles(a, b)
    n = len(pair.images)
    draws = []
    for weights in resample_weights(np.random.default_rng(seed), n, replicates=replicates):
        counts = np.rint(weights * ((n - 1) / n))
        draws.append([pair.divergence(row).corrected for row in counts])
    fewest = min(len(a), len(b))
    limits = interval_from_replicates(
        found.corrected,
        np.concatenate(draws),
        level=level,
        method="t",
        bounds=(0.0, 1.0),
        units=fewest,
        degrees_of_freedom=max(fewest - 1, 1),
    )
    low = float(limits.low) - max(found.plain - found.corrected, 0.0) / 3
    return math.sqrt(max(low, 0.0)), math.sqrt(float(limits.high)), "bootstrap-t"


def chosen_classes(subsets: Subsets, names: Sequence[str], minimum: int) -> Subsets:
    """The subsets of enough images of the classes that ``names`` are of."""
    subjects = {split_subset_name(name).subject for name in names}
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
    subsets: Subsets,
    a: tuple[str, ...],
    b: tuple[str, ...],
    *,
    threshold: float,
    measure: Measure,
    minimum: int,
    nodes: Mapping[str, Sequence[str]] | None,
) -> Distance:
    if nodes:
        members = merged_nodes(subsets, nodes)
    else:
        members = chosen_classes(subsets, (*a, *b), minimum)
        if len(members.subjects) > 1:
            raise NotApplicable(
                "the published distance is inside one class, and these are "
                f"{', '.join(members.subjects)}",
                fix="use the default distance",
            )
    names = members.names
    # Nodes have any names; as subsets of one class they overlap as those do.
    alike = replace(members, names=tuple(join_subset_name("node", name) for name in names))
    weights = edge_weights(overlaps(alike, measure=measure).toarray(), threshold)
    places = {name: place for place, name in enumerate(names)}
    for name in (*a, *b):
        if name not in places:
            raise NotApplicable(f"{name!r} is not a node of the graph", fix=hint(name, names))
    one, other = [places[name] for name in a], [places[name] for name in b]
    layout = spectral_positions(weights)
    apart = layout[one, None, :] - layout[None, other, :]
    parts = connected_components(weights)
    notes = []
    if len(parts) > 1:
        notes.append(
            f"the graph of {len(names)} nodes falls into {len(parts)} parts, where the published "
            "distance is not defined: the value depends on the solver. Use the default distance"
        )
    mine, theirs = (
        np.unique(np.concatenate([members.members(name) for name in each])) for each in (a, b)
    )
    return Distance(
        a=a,
        b=b,
        value=float(np.sqrt(np.square(apart).sum(axis=2)).mean()),
        low=None,
        high=None,
        mode="published",
        images_a=len(mine),
        images_b=len(theirs),
        shared=int(np.isin(mine, theirs).sum()),
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
