"""How far two subsets, or two merged collections of subsets, lie apart; with an interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from heldout.core.errors import NotApplicable, UserError
from heldout.core.records import Table
from heldout.curate.contexts.graph import (
    MINIMUM,
    THRESHOLD,
    connected_components,
    edge_weights,
    overlap_matrix,
    overlaps,
)
from heldout.curate.contexts.requests import Measure
from heldout.curate.contexts.subsets import IntArray, Subsets, hint, read_subsets
from heldout.data.published.metashift import join_subset_name, split_subset_name

if TYPE_CHECKING:
    import pyarrow as pa

    from heldout.data.testset.testset import TestSet


FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Collection:
    """The images of one subset, or of several merged, with the contexts they show.

    ``names``    its subsets, sorted
    ``images``   int64 (n,): positions of its images, sorted, each once
    ``lengths``  int64 (n,): how many contexts each image has
    ``columns``  int64 (entries,): the contexts, image after image
    ``values``   float64 (entries,): what each context has of its image; 1 in all for an image
    ``width``    how many contexts there are
    """

    names: tuple[str, ...]
    images: IntArray
    lengths: IntArray
    columns: IntArray
    values: FloatArray
    width: int

    def __len__(self) -> int:
        return len(self.images)

    @cached_property
    def profile(self) -> FloatArray:
        """Float64 (width,): how likely each context is; sums to 1."""
        total = np.bincount(self.columns, weights=self.values, minlength=self.width)
        mean: FloatArray = total / len(self)
        return mean


@dataclass(frozen=True, eq=False)
class Profiles:
    """The profiles of the subsets of some classes, and of collections of them.

    ``subsets``   of enough images
    ``linked``    bool (subsets,): those that share an edge with another of their class
    ``contexts``  the words that profiles are over, sorted
    """

    subsets: Subsets
    linked: npt.NDArray[np.bool_]
    contexts: tuple[str, ...]

    @cached_property
    def _context(self) -> IntArray:
        """The context of each subset as a position in ``contexts``."""
        places = {context: place for place, context in enumerate(self.contexts)}
        return np.array([places[c] for c in self.subsets.context_of], dtype=np.int64)

    @cached_property
    def _by_class(self) -> Mapping[str, Any]:
        """For each class its membership table: ``csr_array`` (images, subsets), others empty."""
        table = self.subsets.matrix
        found = {}
        for subject in self.subsets.subjects:
            mine = np.array([s == subject for s in self.subsets.subject_of])
            kept = table.copy()
            kept.data = np.repeat(mine.astype(np.int32), np.diff(table.indptr))
            kept.eliminate_zeros()
            found[subject] = kept.tocsr()
        return found

    def collection(self, names: Sequence[str] | str) -> Collection:
        """The collection of one or more subsets, merged: an image of several counts once."""
        chosen = (names,) if isinstance(names, str) else tuple(sorted(set(names)))
        groups: dict[str, list[int]] = {}
        for name in chosen:
            place = self.subsets.position(name)
            groups.setdefault(self.subsets.subject_of[place], []).append(place)
        parts = [self._of_class(groups[subject]) for subject in sorted(groups)]
        return replace(parts[0] if len(parts) == 1 else _joined(parts), names=chosen)

    def _of_class(self, places: Sequence[int]) -> Collection:
        """The collection of subsets of one class."""
        subsets = self.subsets
        images = [subsets.images[subsets.starts[p] : subsets.starts[p + 1]] for p in places]
        chosen = np.unique(np.concatenate(images))
        near = self._by_class[subsets.subject_of[places[0]]][chosen]
        keep = self.linked[near.indices] | np.isin(near.indices, places)
        rows = np.repeat(np.arange(len(chosen)), np.diff(near.indptr))[keep]
        lengths = np.bincount(rows, minlength=len(chosen))
        values = np.repeat(1.0 / lengths, lengths)
        columns = self._context[near.indices[keep]]
        return Collection((), chosen, lengths, columns, values, len(self.contexts))


def _joined(parts: Sequence[Collection]) -> Collection:
    """Several classes: an image that is of two counts once, with the mean of its rows."""
    width = parts[0].width
    every = np.concatenate([part.images for part in parts])
    images, codes = np.unique(every, return_inverse=True)
    lengths = np.concatenate([part.lengths for part in parts])
    share = np.repeat(1.0 / np.bincount(codes)[codes], lengths)
    keys = np.repeat(codes, lengths) * width + np.concatenate([part.columns for part in parts])
    cells, entries = np.unique(keys, return_inverse=True)
    shares = share * np.concatenate([part.values for part in parts])
    values = np.bincount(entries, weights=shares).astype(np.float64)
    rows, columns = np.divmod(cells, width)
    return Collection((), images, np.bincount(rows, minlength=len(images)), columns, values, width)


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
    return Profiles(subsets, linked, tuple(sorted(set(subsets.context_of))))


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
        self._width = a.width
        places = [np.searchsorted(self.images, side.images) for side in (a, b)]
        inside = np.zeros((2, len(self.images)), dtype=bool)
        inside[0, places[0]], inside[1, places[1]] = True, True
        self._in_a, self._in_b = inside
        # Entries of image and context by who has the image: a alone, b alone, both. Only those of
        # both have to be matched, which are few.
        self._parts: list[tuple[IntArray, IntArray, FloatArray | None, FloatArray | None]] = []
        keys, values = [], []
        for which, side in enumerate((a, b)):
            rows = np.repeat(places[which], side.lengths)
            both = inside[1 - which][rows]
            alone = ~both
            own = side.values[alone]
            of_a, of_b = (own, None) if which == 0 else (None, own)
            self._parts.append((rows[alone], side.columns[alone], of_a, of_b))
            keys.append(rows[both] * np.int64(a.width) + side.columns[both])
            values.append(side.values[both])
        cells, codes = np.unique(np.concatenate(keys), return_inverse=True)
        first, second = np.split(codes.reshape(-1), [len(keys[0])])
        rows, columns = np.divmod(cells, np.int64(a.width))
        of_a = np.bincount(first, values[0], len(cells)).astype(np.float64)
        of_b = np.bincount(second, values[1], len(cells)).astype(np.float64)
        self._parts.append((rows, columns, of_a, of_b))

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
        counted = [weights[rows] for rows, *_ in self._parts]
        p, q = np.zeros(self._width), np.zeros(self._width)
        for (_, columns, of_a, of_b), count in zip(self._parts, counted, strict=True):
            if of_a is not None:
                p += np.bincount(columns, of_a * count, self._width)
            if of_b is not None:
                q += np.bincount(columns, of_b * count, self._width)
        p, q = p / mass_a, q / mass_b
        plain = float(divergence_terms(p, q).sum())
        if mass_a <= 1 or mass_b <= 1:
            return Divergence(plain, plain)
        total = 0.0
        for (_, columns, of_a, of_b), count in zip(self._parts, counted, strict=True):
            in_a, in_b = of_a is not None, of_b is not None
            # Without one draw, a profile of n is p n / (n - 1), less what the draw had.
            p1, q1 = p * (mass_a / (mass_a - in_a)), q * (mass_b / (mass_b - in_b))
            base = divergence_terms(p1, q1)
            less_p, less_q = p1[columns], q1[columns]
            if of_a is not None:
                less_p = np.maximum(less_p - of_a / (mass_a - 1), 0.0)
            if of_b is not None:
                less_q = np.maximum(less_q - of_b / (mass_b - 1), 0.0)
            change = divergence_terms(less_p, less_q) - base[columns]
            images = weights[(self._in_a == in_a) & (self._in_b == in_b)]
            total += float(images.sum()) * float(base.sum()) + float((count * change).sum())
        n = float(weights.sum())
        return Divergence(plain, n * plain - (n - 1) * (total / n))


def divergence(a: Collection, b: Collection) -> Divergence:
    """How far two profiles diverge; both values are cut at 0 and 1."""
    pair = PairedProfiles(a, b)
    found = pair.divergence(np.ones(len(pair.images)))
    return Divergence(*(min(max(value, 0.0), 1.0) for value in found))


def plain_divergences(profiles: FloatArray, others: FloatArray | None = None) -> FloatArray:
    """The divergences (n, m) of profiles (n, width) from others (m, width), not corrected.

    Without ``others`` those of every pair of profiles. Profiles have few of all contexts: where the
    other has none, a term depends on the one alone.
    """
    own, alone = _xlog2(profiles).sum(axis=1), _xlog2(0.5 * profiles)
    whole = alone.sum(axis=1)
    found = np.zeros((len(profiles), len(profiles if others is None else others)))
    for place, other in enumerate(profiles if others is None else others):
        first = place if others is None else 0  # each pair once
        there = np.flatnonzero(other)
        both = _xlog2(0.5 * (profiles[first:, there] + other[there])) - alone[first:, there]
        half = 0.5 * (own[first:] + _xlog2(other).sum())
        found[first:, place] = half - whole[first:] - both.sum(axis=1)
    found = np.clip(found, 0.0, 1.0)
    return np.maximum(found, found.T) if others is None else found


def divergence_terms(p: FloatArray, q: FloatArray) -> FloatArray:
    """What each context adds to the divergence."""
    return 0.5 * (_xlog2(p) + _xlog2(q)) - _xlog2(0.5 * (p + q))


def _xlog2(x: FloatArray) -> FloatArray:
    """``x log2 x``, 0 at 0."""
    found: FloatArray = x * np.log2(np.where(x > 0, x, 1.0))
    return found


Solver = Literal["eig", "eigh"]
DIMENSIONS = 5


def spectral_positions(
    weights: FloatArray, *, dimensions: int = DIMENSIONS, solver: Solver = "eig"
) -> FloatArray:
    """Places of the nodes, (n, dimensions), as networkx lays them out below 500 nodes.

    ``weights``  (n, n), symmetric, zero diagonal
    ``solver``   ``eig`` as the original; ``eigh`` knows that the matrix is symmetric. They agree
                 where the graph is connected.
    """
    if dimensions < 1:
        raise UserError(f"{dimensions} dimensions", fix="give 1 or more")
    if len(weights) < 3:
        raise NotApplicable(
            f"a graph of {len(weights)} nodes has no spectral layout",
            fix="use the default distance, or a smaller minimum",
        )
    laplacian = np.diag(weights.sum(axis=1)) - weights
    if solver == "eigh":
        values, vectors = np.linalg.eigh(laplacian)
    elif solver == "eig":
        found = np.linalg.eig(laplacian)
        values, vectors = np.real(found.eigenvalues), np.real(found.eigenvectors)
    else:
        raise UserError(f"no solver {solver!r}", fix="use eig or eigh")
    places: FloatArray = vectors[:, np.argsort(values)[1 : dimensions + 1]]
    places = places - places.mean(axis=0)
    largest = np.abs(places).max()
    return places / largest if largest > 0 else places


def published_distance(
    weights: FloatArray,
    a: Sequence[int],
    b: Sequence[int],
    *,
    dimensions: int = DIMENSIONS,
    solver: Solver = "eig",
) -> float:
    """The mean Euclidean distance between the nodes of ``a`` and those of ``b``."""
    places = spectral_positions(weights, dimensions=dimensions, solver=solver)
    apart = places[list(a), None, :] - places[None, list(b), :]
    return float(np.sqrt(np.square(apart).sum(axis=2)).mean())


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
    source: TestSet | pa.Table | Subsets,
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
                   profiles: a metric (Endres and Schindelin 2003), defined for every pair. Corrected
                   for the number of images by the jackknife, with an interval from a bootstrap
                   over images. ``replicates=0`` leaves the interval out.
    ``published``  the distance of MetaShift's code (:func:`published_distance`), noted as
                   meaningless where the graph is not connected. ``nodes`` merges subsets into the
                   nodes of the graph: node name -> its subsets; otherwise the subsets of the class
                   are the nodes.
    """
    one, other = ((n,) if isinstance(n, str) else tuple(dict.fromkeys(n)) for n in (a, b))
    if not one or not other:
        raise UserError("a collection of no subsets", fix="name at least one")
    subsets = read_subsets(source)
    if not 0.0 <= threshold <= 1.0:
        raise UserError(f"an edge threshold of {threshold}", fix="give 0 to 1")
    if minimum < 1:
        raise UserError(f"a minimum of {minimum} images", fix="give 1 or more")
    if mode == "published":
        return _published(
            subsets,
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
    if replicates < 0 or replicates == 1:
        raise UserError(f"{replicates} bootstrap replicates", fix="give 2 or more, or 0 for none")
    shared = int(np.isin(a.images, b.images).sum())
    notes: list[str] = []
    low: float | None = None
    high: float | None = None
    found = divergence(a, b)
    same = len(a) == len(b) == shared and np.array_equal(a.profile, b.profile)
    value = 0.0 if same else math.sqrt(found.corrected)
    name = None
    if same:
        low, high, name = 0.0, 0.0, "exact"
        if a.names != b.names:
            notes.append("both hold the same images")
    elif replicates:
        low, high, name = _interval(a, b, found, replicates, level, seed)
    if not same and min(len(a), len(b)) < 2:
        notes.append("one of them has a single image: the value is not corrected for that")
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
    dimensions: int,
    solver: Solver,
) -> Distance:
    members = merged_nodes(subsets, nodes) if nodes else _one_class(subsets, (*a, *b), minimum)
    names = members.names
    # Nodes have any names; as subsets of one class they overlap as those do.
    alike = replace(members, names=tuple(join_subset_name("node", name) for name in names))
    weights = edge_weights(overlap_matrix(alike, measure=measure), threshold)
    places = {name: place for place, name in enumerate(names)}
    for name in (*a, *b):
        if name not in places:
            raise NotApplicable(f"{name!r} is not a node of the graph", fix=hint(name, names))
    one, other = [places[name] for name in a], [places[name] for name in b]
    value = published_distance(weights, one, other, dimensions=dimensions, solver=solver)
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
        value=value,
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


def _one_class(subsets: Subsets, names: Sequence[str], minimum: int) -> Subsets:
    found = chosen_classes(subsets, names, minimum)
    if len(found.subjects) > 1:
        raise NotApplicable(
            f"the published distance is inside one class, and these are {', '.join(found.subjects)}",
            fix="use the default distance",
        )
    return found
