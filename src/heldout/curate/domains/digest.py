"""A hash of rows that does not depend on their order, computed while they pass by.

Each row's id, class, domain and similarity give a number of 64 bits; the sums of these numbers, and of
a second mix of them, are hashed with how many rows there were. It tells whether the rows are those
that a set was made from. It is no protection against somebody who makes rows to fit.
"""

from __future__ import annotations

import hashlib
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heldout.core.files import canonical_json
from heldout.curate.domains.capping import id_texts
from heldout.curate.domains.reading import Coder, Codes, Reader, Seen
from heldout.data.testset.hashing import row_hash

_ODD = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93], dtype=np.uint64)
Numbers = NDArray[np.uint64]


class Digest:
    """The running hash of a pass; batches may come from several threads, in any order."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        self._sums = [0, 0]
        self._rows = 0
        self._names: dict[int, Numbers] = {}

    def add(self, seen: Seen, classes: Codes, domains: Codes) -> None:
        """Take in one batch with the codes of its classes and domains."""
        numbers = _id_numbers(seen.batch.column(self._reader.id))
        numbers += self._named(self._reader.classes, 1)[classes]
        numbers += self._named(self._reader.domains, 2)[domains]
        if seen.keys is not None:
            keys = seen.keys if seen.complete.all() else np.where(seen.complete, seen.keys, 0)
            numbers += keys.astype(np.uint64) * _ODD[1]
        _mix(numbers)
        first = int(numbers.sum(dtype=np.uint64))
        numbers *= _ODD[2]
        numbers ^= numbers >> np.uint64(29)
        second = int(numbers.sum(dtype=np.uint64))
        with self._lock:
            self._sums[0] += first
            self._sums[1] += second
            self._rows += len(numbers)

    def hexdigest(self) -> str:
        """The hash, 64 hexadecimal digits."""
        reader = self._reader
        columns = [reader.id, reader.class_column, reader.domain, reader.similarity]
        sums = [f"{total % (1 << 64):016x}" for total in self._sums]
        text = canonical_json([columns, self._rows, sums])
        return hashlib.sha256(text.encode()).hexdigest()

    def _named(self, coder: Coder, seed: int) -> Numbers:
        """The number of each name of a column, by code; the last one is for null."""
        known = self._names.get(seed)
        if known is None or len(known) <= len(coder.names):
            known = np.append(row_hash(list(coder.names), seed=seed), np.uint64(0))
            self._names[seed] = known
        return known


def _id_numbers(column: Any) -> Numbers:
    import pyarrow as pa

    if pa.types.is_integer(column.type):
        whole = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        numbers: Numbers = whole.view(np.uint64) * _ODD[0]
        return numbers
    return row_hash(id_texts(column).fill_null(""), seed=0)


def _mix(numbers: Numbers) -> None:
    """The finaliser of SplitMix64, in place."""
    numbers ^= numbers >> np.uint64(30)
    numbers *= np.uint64(0xBF58476D1CE4E5B9)
    numbers ^= numbers >> np.uint64(27)
    numbers *= np.uint64(0x94D049BB133111EB)
    numbers ^= numbers >> np.uint64(31)
