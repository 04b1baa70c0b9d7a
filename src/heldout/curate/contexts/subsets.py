"""Subsets as one sparse table of images against names, read from the membership ``subset``."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from heldout.core.errors import NotApplicable, NotFound, UserError
from heldout.curate.contexts.names import parse_subset

if TYPE_CHECKING:
    import pyarrow as pa

    from heldout.data.testset.testset import TestSet

COLUMN = "subset"
"""The membership that says which subsets an image is in."""

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Subsets:
    """Which images are in which subsets.

    ``names``      full names, sorted, n of them
    ``image_ids``  sorted, m of them; every one is in some subset
    ``images``     int64 (k,): a position in ``image_ids`` for each membership, sorted by subset,
                   then image
    ``starts``     int64 (n + 1,): where the memberships of each subset begin in ``images``
    """

    names: tuple[str, ...]
    image_ids: npt.NDArray[np.object_]
    images: IntArray
    starts: IntArray

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def sizes(self) -> IntArray:
        """Images of each subset, int64 (n,)."""
        return np.diff(self.starts)

    @cached_property
    def subject_of(self) -> tuple[str, ...]:
        """The subject of each subset."""
        return tuple(parse_subset(name).subject for name in self.names)

    @cached_property
    def context_of(self) -> tuple[str, ...]:
        """The context of each subset."""
        return tuple(parse_subset(name).context for name in self.names)

    @cached_property
    def subjects(self) -> tuple[str, ...]:
        """All subjects, sorted."""
        return tuple(sorted(set(self.subject_of)))

    @cached_property
    def matrix(self) -> Any:
        """The same as a scipy ``csc_array`` of int32 ones, (m, n)."""
        from scipy.sparse import csc_array

        ones = np.ones(len(self.images), dtype=np.int32)
        return csc_array((ones, self.images, self.starts), shape=(len(self.image_ids), len(self)))

    def members(self, name: str) -> IntArray:
        """The images of a subset as sorted positions in ``image_ids``."""
        place = self.position(name)
        return self.images[self.starts[place] : self.starts[place + 1]]

    def position(self, name: str) -> int:
        """Where a subset stands; an unknown one is refused with the nearest names."""
        if name not in self._places:
            parse_subset(name)  # says what is wrong with a name that is none
            raise NotFound(f"no subset {name!r} of enough images", fix=hint(name, self.names))
        return self._places[name]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def take(self, places: Sequence[int] | IntArray) -> Subsets:
        """Some subsets, with the images that are in them."""
        chosen = np.sort(np.asarray(places, dtype=np.int64))
        parts = [self.images[self.starts[p] : self.starts[p + 1]] for p in chosen.tolist()]
        images = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
        known, renumbered = np.unique(images, return_inverse=True)
        return Subsets(
            tuple(self.names[p] for p in chosen.tolist()),
            self.image_ids[known],
            renumbered.astype(np.int64).reshape(-1),
            np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64),
        )

    def of(self, subject: str) -> Subsets:
        """The subsets of one class; an unknown class is refused with the nearest names."""
        places = [p for p, name in enumerate(self.subject_of) if name == subject]
        if not places:
            raise NotFound(f"no class {subject!r}", fix=hint(subject, self.subjects))
        return self.take(places)

    def at_least(self, minimum: int) -> Subsets:
        """The subsets of at least ``minimum`` images; none is refused."""
        if minimum < 1:
            raise UserError(f"a minimum of {minimum} images", fix="give 1 or more")
        places = np.nonzero(self.sizes >= minimum)[0]
        if len(self) and not len(places):
            most = int(np.argmax(self.sizes))
            raise NotApplicable(
                f"no subset reaches {minimum} images: the largest is {self.names[most]} with "
                f"{int(self.sizes[most])}",
                fix="give a smaller minimum",
            )
        return self if len(places) == len(self) else self.take(places)


def read_subsets(source: TestSet | pa.Table | Subsets) -> Subsets:
    """The subsets of a test set, or of a memberships table (image_id, column, value)."""
    import pyarrow.compute as pc

    if isinstance(source, Subsets):
        return source
    name = getattr(source, "name", "the memberships table")
    table: Any = getattr(source, "memberships", source)
    rows = table.filter(pc.equal(table["column"], COLUMN))
    if not len(rows):
        there = ", ".join(sorted(set(table["column"].to_pylist()))) or "none"
        raise NotApplicable(
            f"{name} has no membership {COLUMN!r} (it has {there})",
            fix="make a set with heldout build contexts",
        )
    return make_subsets(rows["image_id"], rows["value"])


def make_subsets(image_ids: Any, names: Any) -> Subsets:
    """Subsets from two columns of equal length, texts or Arrow arrays; repeated rows count once."""
    images, known = encode(image_ids)
    subsets, titles = encode(names)
    keys = np.unique(subsets * max(len(known), 1) + images)
    sizes = np.bincount(keys // max(len(known), 1), minlength=len(titles))
    return Subsets(
        tuple(titles.tolist()),
        known,
        keys % max(len(known), 1),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
    )


def encode(values: Any) -> tuple[IntArray, npt.NDArray[np.object_]]:
    """Positions of values in the sorted list of distinct ones, and that list."""
    import pyarrow as pa
    import pyarrow.compute as pc

    array = values if isinstance(values, pa.ChunkedArray | pa.Array) else pa.array(values)
    array = array.cast(pa.string())
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    known = pc.unique(array)
    known = known.take(pc.sort_indices(known))
    codes = pc.index_in(array, value_set=known).to_numpy(zero_copy_only=False)
    return codes.astype(np.int64), np.array(known.to_pylist(), dtype=np.object_)


def hint(name: str, names: Iterable[str]) -> str:
    """What a user may have meant, for an error's fix."""
    known = sorted(names)
    folded = {text.casefold(): text for text in known}
    near = difflib.get_close_matches(name.casefold(), list(folded), 3, 0.6)
    if near:
        return f"did you mean {', '.join(folded[text] for text in near)}"
    shown = ", ".join(known[:5]) + (f" and {len(known) - 5:,} more" if len(known) > 5 else "")
    return f"there is {shown or 'none'}"
