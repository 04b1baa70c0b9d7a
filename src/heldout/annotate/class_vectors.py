"""Vectors of classes, ready for assignment: unit rows, equal ones kept once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from heldout.errors import UserError
from heldout.models.unit_vectors import unit_rows


@dataclass(frozen=True, eq=False)
class ClassVectors:
    """Distinct class vectors and the classes that have each of them.

    ``rows``     float32 (distinct, d), unit rows, in the order of the lowest class of each
    ``offsets``  int64 (distinct + 1,): the classes of row r are ``members[offsets[r]:offsets[r+1]]``
    ``members``  int64 (classes,), ascending within a row

    Classes of one text have one vector. They are tied for every image, to the bit, so the product
    is computed once for them and the tie is told instead of decided by chance.
    """

    rows: np.ndarray
    offsets: np.ndarray
    members: np.ndarray

    def __len__(self) -> int:
        return len(self.members)

    @property
    def dimension(self) -> int:
        """Of the vectors."""
        return int(self.rows.shape[1])

    @property
    def counts(self) -> np.ndarray:
        """How many classes have each row, int64 (distinct,)."""
        return np.diff(self.offsets)

    @property
    def shared(self) -> tuple[tuple[int, ...], ...]:
        """Groups of classes that cannot be told apart, each ascending."""
        found = np.flatnonzero(self.counts > 1)
        return tuple(
            tuple(self.members[self.offsets[row] : self.offsets[row + 1]].tolist()) for row in found
        )


def class_vectors(vectors: np.ndarray) -> ClassVectors:
    """Class vectors (classes, d) of any length as unit rows, equal ones together."""
    matrix = np.asarray(vectors)
    if matrix.ndim != 2 or not len(matrix) or matrix.dtype.kind != "f":
        raise UserError(
            f"class vectors are {matrix.dtype} {matrix.shape}", fix="give floats, one row a class"
        )
    rows = unit_rows(matrix)
    rows += 0  # -0 becomes 0: equal numbers, equal bytes
    bad = np.flatnonzero(np.isnan(rows[:, 0]))
    if len(bad):
        raise UserError(
            f"the vector of class {bad[0]} (counted from 0) has no direction",
            fix="it is all zeros, or has NaN or infinity in it: make the vectors again",
        )
    # Rows by a digest of their bytes: sorting whole rows would take several copies of them.
    known: dict[bytes, int] = {}
    row_of = np.empty(len(rows), np.int64)
    first: list[int] = []
    for place, row in enumerate(rows):
        found = known.setdefault(hashlib.blake2b(row.data, digest_size=20).digest(), len(known))
        row_of[place] = found
        if found == len(first):
            first.append(place)
    members = np.argsort(row_of, kind="stable").astype(np.int64)
    counts = np.bincount(row_of, minlength=len(first))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return ClassVectors(rows if len(first) == len(rows) else rows[first], offsets, members)
