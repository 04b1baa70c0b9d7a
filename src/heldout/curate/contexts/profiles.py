"""Context profiles: how the images of a collection of subsets spread over contexts.

An image of the collection is drawn, then one of its contexts: the profile is how likely each
context is. Contexts that no edge links to another subset of their class are left out (but for the
collection's own), so that listing them or not changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from heldout.core.errors import UserError
from heldout.curate.contexts.overlap import Measure, overlaps
from heldout.curate.contexts.subsets import IntArray, Subsets

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

    @property
    def table(self) -> Any:
        """The same as a ``csr_array`` (n, width)."""
        from scipy.sparse import csr_array

        starts = np.concatenate([[0], np.cumsum(self.lengths)])
        return csr_array((self.values, self.columns, starts), shape=(len(self), self.width))


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
        if not chosen:
            raise UserError("a collection of no subsets", fix="name at least one")
        groups: dict[str, list[int]] = {}
        for name in chosen:
            place = self.subsets.position(name)
            groups.setdefault(self.subsets.subject_of[place], []).append(place)
        parts = [self._rows(groups[subject]) for subject in sorted(groups)]
        joined = parts[0] if len(parts) == 1 else _joined(parts, len(self.contexts))
        return Collection(chosen, *joined, len(self.contexts))

    def _rows(self, places: Sequence[int]) -> _Rows:
        """The rows of subsets of one class."""
        subsets = self.subsets
        images = [subsets.images[subsets.starts[p] : subsets.starts[p + 1]] for p in places]
        chosen = images[0] if len(images) == 1 else np.unique(np.concatenate(images))
        near = self._by_class[subsets.subject_of[places[0]]][chosen]
        keep = self.linked[near.indices] | np.isin(near.indices, places)
        rows = np.repeat(np.arange(len(chosen)), np.diff(near.indptr))[keep]
        lengths = np.bincount(rows, minlength=len(chosen))
        values = np.repeat(1.0 / lengths, lengths)
        return _Rows(chosen, lengths, self._context[near.indices[keep]], values)


class _Rows(NamedTuple):
    images: IntArray
    lengths: IntArray
    columns: IntArray
    values: FloatArray


def _joined(parts: Sequence[_Rows], width: int) -> _Rows:
    """Rows of several classes: an image that is of two counts once, with the mean of its rows."""
    every = np.concatenate([part.images for part in parts])
    images, codes = np.unique(every, return_inverse=True)
    codes = codes.reshape(-1)
    lengths = np.concatenate([part.lengths for part in parts])
    share = np.repeat(1.0 / np.bincount(codes)[codes], lengths)
    keys = np.repeat(codes, lengths) * width + np.concatenate([part.columns for part in parts])
    cells, entries = np.unique(keys, return_inverse=True)
    shares = share * np.concatenate([part.values for part in parts])
    values = np.bincount(entries.reshape(-1), weights=shares).astype(np.float64)
    rows, columns = np.divmod(cells, width)
    return _Rows(images, np.bincount(rows, minlength=len(images)), columns, values)


def make_profiles(
    subsets: Subsets, *, threshold: float = 0.2, measure: Measure = "overlap"
) -> Profiles:
    """The profiles of subsets of one or more classes; edges as in the meta-graph."""
    near = overlaps(subsets, measure=measure).tocoo()
    edge = (near.row != near.col) & (near.data >= threshold) & (near.data > 0)
    linked = np.zeros(len(subsets), dtype=bool)
    linked[near.row[edge]] = True
    return Profiles(subsets, linked, tuple(sorted(set(subsets.context_of))))
