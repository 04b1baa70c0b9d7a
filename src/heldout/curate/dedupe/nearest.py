"""The nearest vectors of every vector, exact and in blocks, on CPUs and GPUs.

Distances are squared L2. Of bytes (pixels, bits) they are whole numbers. Of float32 vectors they are
*defined* as a computation in float64, so that every machine gives the same bits: squares of the
differences, added by halves, ``x[:h] + x[h:]``, padded with zeros to a power of two. Of equal distances
the smaller row comes first. Neither blocks, threads, the device nor the library of matrix products
change a bit of the result.

**How.** For a candidate x the nearest y has the largest score s = x·y − ‖y‖²/2, and a matrix product
gives scores for a block of pairs. A computed score is off by at most e, so s lies between score − e and
score + e. The k-th largest of score − e, over all blocks so far, is a limit that the k nearest do reach;
pairs with score + e below it are out. The few others are computed as defined. Nothing is assumed about
the data: where the bound cannot tell vectors apart, they are all computed.

**The bound of bytes is 0.** Less 128, values lie in −128…127 and products within ±2^14. In float32 a sum
of 1,024 of them is a whole number up to 2^24, as is every part of it, so no order of additions rounds.
With int32 a GPU adds 130,944 of them, of at most 2^17 − 1. The sums of such pieces are added in float64.

**The bound of floats.** Both sides are scaled by one power of two, so that no norm exceeds 2^15, and
moved by one vector near the middle of the data, which changes no distance and makes norms, and with
them the bound, small. Let X and Y be the real vectors after that, x and y what is multiplied, and
h = ‖Y‖²/2 − a constant (another shift of all scores alike). Then, with norms at least those of both:

- |X·Y − x·y| ≤ ‖X‖·‖Y − y‖ + ‖X − x‖·‖y‖. The differences are those of the subtraction, at most
  2^-24 of the norm, and for half precision the norm of what rounding took away, which is measured.
- h comes from a sum of squares in float32: off by at most (d/2 + 4)·2^-24·‖Y‖².
- A sum of K products in any order and grouping, with or without fused operations, is off by at most
  K·u/(1 − K·u) times the sum of their sizes, here at most ‖x‖·‖y‖ + |h|; u is 2^-24, and 2^-22 on
  tensor cores, which align and cut addends at the largest one: at most a unit in its last place for
  each addend and one for the sum, where rounding takes half a unit.
- Values that underflow add a constant, far below the rest unless all vectors of a block are tiny.

Norms of y enter as the largest of a block. So references are taken in the order of their norms, and
outliers loosen the bound for themselves alone.

**Many copies.** A vector with k equal ones before it is nobody's neighbour and is left out at once, so
that ten thousand copies of one placeholder do not tie with each other for everybody.
"""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Protocol

import numpy as np

from heldout.core.errors import UserError
from heldout.core.extras import require

_NORM = 15
"""Vectors are scaled to norms of at most 2^15: elements, and norms in two factors, fit half precision."""
_EXACT = 1024  # products of two bytes less 128 that float32 adds without rounding
_EXACT_INT = 130_944  # the same in int32, less than 2^17 and a multiple of 128


@dataclass(frozen=True, eq=False)
class Nearest:
    """The nearest references of each candidate, nearest first.

    ``rows``       rows of the references, int64 (n, k); -1 where there are fewer than k
    ``distances``  float64 (n, k); infinity where there are fewer
    """

    rows: np.ndarray
    distances: np.ndarray


def merge(parts: Sequence[Nearest], k: int) -> Nearest:
    """The ``k`` nearest in all parts together, for the same candidates; of equal ones the smaller row."""
    rows = np.concatenate([part.rows for part in parts], axis=1)
    distances = np.concatenate([part.distances for part in parts], axis=1)
    if (missing := k - rows.shape[1]) > 0:
        rows = np.pad(rows, ((0, 0), (0, missing)), constant_values=-1)
        distances = np.pad(distances, ((0, 0), (0, missing)), constant_values=math.inf)
    order = np.lexsort((rows, distances), axis=1)[:, :k]
    return Nearest(
        np.take_along_axis(rows, order, axis=1), np.take_along_axis(distances, order, axis=1)
    )


def nearest(
    candidates: np.ndarray,
    references: np.ndarray,
    k: int,
    *,
    device: str = "auto",
    threads: int | None = None,
    memory: int = 2**29,
) -> Nearest:
    """The ``k`` references nearest to each candidate by squared L2.

    Both are uint8 (n, d) and (m, d), or both float32, and may be mapped into memory.

    ``device``   cpu, cuda or auto: a GPU if torch has one
    ``threads``  threads on the CPU, all cores by default. Without ONNX Runtime products are NumPy's,
                 whose threads follow the environment (OMP_NUM_THREADS)
    ``memory``   bytes of scratch on the CPU, where a vector and its product fit at least; on a GPU
                 blocks follow from its free memory
    """
    kinds = {(side.dtype.name, side.shape[1:]) for side in (candidates, references)}
    kind, shape = next(iter(kinds))
    if len(kinds) > 1 or len(shape) != 1 or kind not in ("uint8", "float32"):
        raise ValueError(
            f"vectors are {candidates.dtype} {candidates.shape} and {references.dtype} "
            f"{references.shape}, not both uint8 or both float32, of one length"
        )
    arrays = _arrays(device, threads or os.cpu_count() or 1, memory)
    return in_parts(arrays, candidates, references, k)


def in_parts(arrays: Arrays, candidates: np.ndarray, references: np.ndarray, k: int) -> Nearest:
    """As :func:`nearest`, of parts that the arrays can hold at once."""
    found = [_nothing(0, k)]
    first = 0
    with arrays.context():
        for ours in arrays.parts(candidates):
            best = _nothing(len(ours), k)
            side = arrays.put(ours)
            start = 0
            for theirs in arrays.parts(references):
                rows, distances = search(arrays, side, arrays.put(theirs), k, (first, start))
                rows, distances = arrays.take(rows), arrays.take(distances)
                best = merge([best, Nearest(np.where(rows < 0, -1, rows + start), distances)], k)
                start += len(theirs)
            found.append(best)
            first += len(ours)
    return Nearest(
        np.concatenate([part.rows for part in found]),
        np.concatenate([part.distances for part in found]),
    )


def _nothing(n: int, k: int) -> Nearest:
    return Nearest(np.full((n, k), -1, np.int64), np.full((n, k), math.inf))


def _arrays(device: str, threads: int, memory: int) -> Arrays:
    """NumPy, or torch on a GPU."""
    if device not in ("auto", "cpu", "cuda"):
        raise UserError(f"{device!r} is not a device to compare on", fix="use auto, cpu or cuda")
    if device == "cuda" or (device == "auto" and importlib.util.find_spec("torch")):
        torch = require("torch", extra="torch", purpose="comparing on a GPU")
        if torch.cuda.is_available():
            return TorchArrays("cuda", torch.cuda.mem_get_info()[0] // 2)
        if device == "cuda":
            raise UserError("torch finds no CUDA device", fix="use device cpu or auto")
    return NumpyArrays(threads, memory)


# ----------------------------------------------------------------------- the search, on any arrays


def search(
    arrays: Arrays, candidates: Any, references: Any, k: int, starts: tuple[int, int] = (0, 0)
) -> tuple[Any, Any]:
    """Rows and distances as in :class:`Nearest`, of and as arrays of one library on one device.

    ``starts``  the rows that errors count from, where both sides are parts of more
    """
    xp, n = arrays.xp, len(candidates)
    rows = xp.full((n, k), -1, dtype=xp.int64)
    distances = xp.full((n, k), math.inf, dtype=xp.float64)
    if not (n and len(references) and k):
        return rows, distances
    floats = str(candidates.dtype).endswith("float32")
    if floats:
        vectors: Any = _Floats(arrays, candidates, references, starts)
    else:
        vectors = _Bytes(arrays, candidates, references)
    order = _without_copies(vectors.squares, references, k, arrays)
    tall, wide, side, waiting = arrays.blocks(candidates.shape[1], floats)
    for start in range(0, n, side):
        stop = min(start + side, n)
        count = max(-(-(stop - start) // tall), min(arrays.threads, -(-(stop - start) // 64)))
        cuts = [start + (stop - start) * i // count for i in range(count + 1)]
        queries = [
            _Queries(arrays, vectors, slice(a, b), k, waiting // count)
            for a, b in itertools.pairwise(cuts)
        ]
        for first in range(0, len(order), wide):
            block = vectors.references(order[first : first + wide])
            arrays.each(partial(_Queries.compare, block=block), queries)
        arrays.each(_Queries.settle, queries)
        for some in queries:
            rows[some.part], distances[some.part] = some.rows, some.distances
    return rows, distances


def _without_copies(squares: Any, vectors: Any, k: int, arrays: Arrays) -> Any:
    """Rows of the vectors in the order of their squared norms, less those with ``k`` copies before."""
    rows = arrays.sort(squares)
    marks = squares[rows]
    (ends,) = arrays.nonzero(marks[1:] != marks[:-1])
    bounds = np.concatenate([[0], arrays.take(ends) + 1, [len(rows)]])
    kept = np.ones(len(rows), bool)
    for run in np.flatnonzero(np.diff(bounds) > k):
        seen: Counter[bytes] = Counter()
        for first in range(bounds[run], bounds[run + 1], 256):
            places = slice(first, min(first + 256, bounds[run + 1]))
            for place, vector in enumerate(arrays.take(vectors[rows[places]]), first):
                digest = hashlib.sha256(vector).digest()
                kept[place] = seen[digest] < k
                seen[digest] += 1
    return rows if kept.all() else rows[arrays.put(kept)]


class _Queries:
    """Some candidates with what is known of their nearest references."""

    def __init__(self, arrays: Arrays, vectors: Any, part: slice, k: int, most: int) -> None:
        """``most``: pairs that may wait for their distance."""
        xp = arrays.xp
        n = part.stop - part.start
        self.part = part
        self.rows = xp.full((n, k), -1, dtype=xp.int64)
        self.distances = xp.full((n, k), math.inf, dtype=xp.float64)
        self._arrays, self._vectors, self._most = arrays, vectors, most
        self._side = vectors.candidates(part)
        self._sure = xp.full((n, k), -math.inf, dtype=xp.float64)  # the largest of score - e
        self._waiting: list[tuple[Any, Any, Any]] = []  # candidate, row, score + e

    @property
    def _limit(self) -> Any:
        return self._arrays.xp.amin(self._sure, 1)

    def compare(self, block: _Block) -> None:
        """Take a block of references into account.

        Columns are looked at in groups, of which only the largest score counts. Those of a group lie
        far apart: neighbours in the order of norms are often alike, and would hide each other.
        """
        xp, k = self._arrays.xp, self.rows.shape[1]
        scores, e = self._vectors.scores(self._side, block)
        width = scores.shape[1]
        groups = min(width, max(4 * k, -(-width // self._arrays.group)))
        peaks = self._arrays.peaks(scores, groups)
        sure = self._arrays.largest(peaks, k) - e[:, None]
        self._sure = self._arrays.largest(xp.concatenate([self._sure, sure], 1), k)
        least = self._limit - e
        rows, group = self._arrays.nonzero(peaks >= least[:, None])
        columns = group[:, None] + xp.arange(0, width, groups)
        columns[columns >= width] = 0  # the last line of columns may not be full
        values = scores[rows[:, None], columns]
        near = values >= least[rows][:, None]
        near[:, 1:] &= columns[:, 1:] > 0
        hit, line = self._arrays.nonzero(near)
        rows, values = rows[hit], values[hit, line] + e[rows[hit]]
        self._waiting.append((rows, block.rows[columns[hit, line]], values))
        if sum(len(some) for some, _, _ in self._waiting) > self._most:
            self.settle()

    def settle(self) -> None:
        """Compute the distances that are waiting, and keep the ``k`` nearest."""
        if not self._waiting:
            return
        xp, (n, k) = self._arrays.xp, self.rows.shape
        ours, theirs, scores = (
            xp.concatenate(column) for column in zip(*self._waiting, strict=True)
        )
        self._waiting = []
        (hopeful,) = self._arrays.nonzero(scores >= self._limit[ours])
        ours, theirs = ours[hopeful], theirs[hopeful]
        distances = self._vectors.distances(ours + self.part.start, theirs, scores[hopeful])
        known, place = self._arrays.nonzero(self.rows >= 0)
        ours = xp.concatenate([known, ours])
        theirs = xp.concatenate([self.rows[known, place], theirs])
        distances = xp.concatenate([self.distances[known, place], distances])
        order = self._arrays.sort(ours, distances, theirs)
        ours = ours[order]
        place = xp.arange(len(ours)) - xp.searchsorted(ours, xp.arange(n))[ours]
        (best,) = self._arrays.nonzero(place < k)
        at = ours[best], place[best]
        self.rows[at], self.distances[at] = theirs[order[best]], distances[order[best]]


@dataclass(frozen=True, eq=False)
class _Block:
    """Vectors as they are multiplied; the bounds are those of floats.

    ``rows``    which they are
    ``matrix``  what is multiplied: the vectors, of floats with columns for h; there may be more rows
    ``norm``    at least the norm of each, before and after rounding
    ``lost``    at least the norm of what rounding took from each
    ``most``    the largest |h|
    """

    rows: Any
    matrix: Any
    norm: Any = None
    lost: Any = None
    most: Any = None


class _Floats:
    """Float32 vectors."""

    def __init__(
        self, arrays: Arrays, candidates: Any, references: Any, starts: tuple[int, int] = (0, 0)
    ) -> None:
        self._arrays, self._sides = arrays, (candidates, references)
        ours, theirs = arrays.squares(candidates), arrays.squares(references)
        for name, squares, start in zip(
            ("candidates", "references"), (ours, theirs), starts, strict=True
        ):
            (bad,) = arrays.nonzero(~arrays.xp.isfinite(squares))
            if len(bad):
                raise UserError(
                    f"{name} have values that are not finite, first in row {start + int(bad[0])}",
                    fix="leave such rows out",
                )
        self.squares = theirs
        largest = math.sqrt(max(float(ours.max()), float(theirs.max())))
        # One less than the norm allowed, for the vector in the middle has its norm too.
        exponent = _NORM - 1 - math.frexp(largest)[1] if largest else 0
        self._scale = 2.0 ** min(max(exponent, -126), 126)
        sample = references[:: -(-len(references) // 1024)]
        self._middle = (sample * self._scale).mean(0)
        # Half the mean square of norms makes most |h| small.
        self._constant = float(((sample * self._scale - self._middle) ** 2).sum(1).mean()) / 2

    def candidates(self, part: slice) -> _Block:
        xp = self._arrays.xp
        return self._block(self._sides[0], xp.arange(part.start, part.stop), None)

    def references(self, rows: Any) -> _Block:
        return self._block(self._sides[1], rows, self._constant)

    def _block(self, vectors: Any, rows: Any, constant: float | None) -> _Block:
        xp, d = self._arrays.xp, vectors.shape[1]
        matrix, squares, lost = self._arrays.ready(
            vectors, rows, self._scale, self._middle, constant
        )
        # Norms are of float32 sums, off by at most d·u and what underflowed.
        u, tiny = 2.0**-24, d * 2.0**-148
        above = 1 + 2 * (d + 8) * u
        norm = xp.sqrt(squares * above + tiny)
        lost = xp.sqrt(lost * above + tiny) + norm * u
        most = abs(squares / 2 - constant).max() if constant is not None else None
        return _Block(rows, matrix, norm + lost, lost, most)

    def scores(self, ours: _Block, theirs: _Block) -> tuple[Any, Any]:
        """Scores of all pairs, and how far those of each candidate may be off."""
        count, u = ours.matrix.shape[1], self._arrays.unit
        norm, lost = theirs.norm.max(), theirs.lost.max()
        e = (
            ours.lost * norm
            + ours.norm * lost
            + count * u / (1 - count * u) * (ours.norm * norm + theirs.most)
            + ((count / 2 + 4) * norm * norm + theirs.most) * 2.0**-24
            + self._arrays.least
        )
        # What e itself, and a limit less e, were rounded by.
        scores = self._arrays.product(ours.matrix, theirs.matrix)
        return scores[: len(ours.rows), : len(theirs.rows)], e * (1 + 2.0**-10)

    def distances(self, ours: Any, theirs: Any, scores: Any) -> Any:
        return self._arrays.exact(*self._sides, ours, theirs)


class _Bytes:
    """Vectors of uint8."""

    def __init__(self, arrays: Arrays, candidates: Any, references: Any) -> None:
        self._arrays, self._sides = arrays, (candidates, references)
        self._ours, self.squares = (arrays.byte_squares(side) for side in self._sides)

    def candidates(self, part: slice) -> _Block:
        return self._block(self._sides[0], self._arrays.xp.arange(part.start, part.stop))

    def references(self, rows: Any) -> _Block:
        return self._block(self._sides[1], rows)

    def _block(self, vectors: Any, rows: Any) -> _Block:
        return _Block(rows, self._arrays.ready_bytes(vectors, rows))

    def scores(self, ours: _Block, theirs: _Block) -> tuple[Any, Any]:
        """Scores of all pairs, exact."""
        products = self._arrays.byte_product(ours.matrix, theirs.matrix)
        scores = products[: len(ours.rows), : len(theirs.rows)]
        scores -= self.squares[theirs.rows] / 2
        return scores, self._arrays.xp.zeros_like(self._ours[ours.rows])

    def distances(self, ours: Any, theirs: Any, scores: Any) -> Any:
        return self._ours[ours] - 2 * scores


# ------------------------------------------------------------------------------ NumPy, and torch


class Arrays(Protocol):
    """A library of arrays, and what is written differently in each.

    ``xp``       the library
    ``threads``  how many parts of the candidates are compared at once
    ``group``    scores in a group of which only the largest counts
    ``unit``     rounding of a sum in :meth:`product`, relative to its addends
    ``least``    what underflow takes from a score
    """

    xp: Any
    threads: int
    group: int
    unit: float
    least: float

    def context(self) -> AbstractContextManager[Any]:
        """Within it arrays are made and compared."""

    def parts(self, vectors: np.ndarray) -> Iterator[np.ndarray]:
        """The vectors in parts that can be held at once."""

    def blocks(self, d: int, floats: bool) -> tuple[int, int, int, int]:
        """Candidates and references in a product; candidates held ready; pairs that may wait."""

    def put(self, array: np.ndarray) -> Any:
        """An array of NumPy as one of these."""

    def take(self, array: Any) -> np.ndarray:
        """The way back."""

    def each(self, work: Callable[[Any], None], items: Sequence[Any]) -> None:
        """Do the work for each item."""

    def nonzero(self, mask: Any) -> tuple[Any, ...]:
        """Where a mask is true, one array for each axis."""

    def sort(self, *keys: Any) -> Any:
        """The order by the first key, then the second, and so on."""

    def largest(self, values: Any, k: int) -> Any:
        """The k largest values of each row, in any order; minus infinity where there are fewer."""

    def peaks(self, scores: Any, groups: int) -> Any:
        """The largest of every ``groups``-th column from each of the first ``groups`` on."""

    def squares(self, vectors: Any) -> Any:
        """Roughly the squared norms of float32 vectors; not finite only if a value is not."""

    def ready(
        self, vectors: Any, rows: Any, scale: float, middle: Any, constant: float | None
    ) -> tuple[Any, Any, Any]:
        """The matrix of these rows, their squared norms, and those of what half precision lost.

        The columns after the vectors give −h of references, for which ``constant`` is given.
        """

    def product(self, ours: Any, theirs: Any) -> Any:
        """``ours @ theirs.T`` in float32."""

    def exact(self, candidates: Any, references: Any, ours: Any, theirs: Any) -> Any:
        """Distances of pairs of float32 vectors as they are defined."""

    def byte_squares(self, vectors: Any) -> Any:
        """Squared norms of uint8 vectors less 128, float64."""

    def ready_bytes(self, vectors: Any, rows: Any) -> Any:
        """These rows of uint8 vectors, as :meth:`byte_product` takes them."""

    def byte_product(self, ours: Any, theirs: Any) -> Any:
        """Products of all pairs of uint8 vectors less 128, float64."""


class NumpyArrays:
    """Arrays in memory; products by ONNX Runtime where it is installed, else by NumPy."""

    xp: Any = np
    group, unit, least = 32, 2.0**-24, 2.0**-100

    def __init__(self, threads: int, memory: int) -> None:
        self.threads, self._memory = threads, memory

    def context(self) -> AbstractContextManager[Any]:
        """Nothing to prepare."""
        return nullcontext()

    def parts(self, vectors: np.ndarray) -> Iterator[np.ndarray]:
        """All at once: they are there, or mapped."""
        yield np.asarray(vectors)

    def blocks(self, d: int, floats: bool) -> tuple[int, int, int, int]:
        """A quarter of the memory each for both sides, for scores, and for pairs that wait."""
        quarter = self._memory // 4
        # A score, and if all are looked at two places and a copy; of bytes the sum and an addend.
        area = quarter // (self.threads * (28 if floats else 40))
        rows = quarter // (4 * (d + 16) if floats else 4 * _EXACT * self.threads)
        cached = 2**24 // (4 * (d + 16) if floats else 4 * _EXACT)
        wide = max(1, min(4096, cached, rows, 2 * math.isqrt(area)))
        # More candidates at once save little, and each has pairs that wait.
        return max(1, min(512, area // wide)), wide, max(1, min(8192, rows)), quarter // 32

    def put(self, array: np.ndarray) -> np.ndarray:
        """Itself."""
        return array

    def take(self, array: np.ndarray) -> np.ndarray:
        """Itself."""
        return array

    def each(self, work: Callable[[Any], None], items: Sequence[Any]) -> None:
        """In threads."""
        if min(self.threads, len(items)) < 2:
            for item in items:
                work(item)
            return
        with ThreadPoolExecutor(self.threads) as pool:
            for _ in pool.map(work, items):
                pass

    def nonzero(self, mask: np.ndarray) -> tuple[np.ndarray, ...]:
        """As NumPy does it."""
        return mask.nonzero()

    def sort(self, *keys: np.ndarray) -> np.ndarray:
        """The last key of NumPy comes first."""
        return np.lexsort(keys[::-1])

    def largest(self, values: np.ndarray, k: int) -> np.ndarray:
        """By partition."""
        if (missing := k - values.shape[1]) > 0:
            return np.pad(values, ((0, 0), (0, missing)), constant_values=-math.inf)
        return np.partition(values, values.shape[1] - k, axis=1)[:, -k:]

    def peaks(self, scores: np.ndarray, groups: int) -> np.ndarray:
        """Line after line of columns."""
        found = scores[:, :groups].copy()
        for start in range(groups, scores.shape[1], groups):
            line = scores[:, start : start + groups]
            some = found[:, : line.shape[1]]
            np.maximum(some, line, out=some)
        return found

    def _pieces(self, count: int, width: int) -> list[slice]:
        """Rows in pieces that stay in a core's cache."""
        size = max(1, 2**17 // max(width, 1))
        return [slice(start, min(start + size, count)) for start in range(0, count, size)]

    def squares(self, vectors: np.ndarray) -> np.ndarray:
        """In float32 where it is wide enough."""
        found = np.empty(len(vectors))

        def fill(rows: slice) -> None:
            some = vectors[rows]
            found[rows] = np.einsum("ij,ij->i", some, some)
            if not 2.0**-80 < found[rows].max() < math.inf:
                wide = some.astype(np.float64)
                found[rows] = np.einsum("ij,ij->i", wide, wide)

        self.each(fill, self._pieces(*vectors.shape))
        return found

    def ready(
        self,
        vectors: np.ndarray,
        rows: np.ndarray,
        scale: float,
        middle: np.ndarray,
        constant: float | None,
    ) -> tuple[np.ndarray, np.ndarray, Any]:
        """One column for h; nothing is lost to half precision."""
        d = vectors.shape[1]
        matrix, squares = np.empty((len(rows), d + 1), np.float32), np.empty(len(rows))

        def fill(places: slice) -> None:
            some = matrix[places, :d]
            np.multiply(vectors[rows[places]], np.float32(scale), out=some)
            np.subtract(some, middle, out=some)
            squares[places] = np.einsum("ij,ij->i", some, some)

        self.each(fill, self._pieces(len(rows), d))
        matrix[:, d] = 1 if constant is None else constant - squares / 2
        return matrix, squares, np.zeros_like(squares)

    def product(self, ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        """By the faster library."""
        return _product()(ours, theirs)

    def exact(
        self, candidates: np.ndarray, references: np.ndarray, ours: np.ndarray, theirs: np.ndarray
    ) -> np.ndarray:
        """Some pairs at a time, so that they stay in a core's cache."""
        distances = np.empty(len(ours))
        for part in self._pieces(len(ours), candidates.shape[1]):
            values = np.subtract(references[theirs[part]], candidates[ours[part]], dtype=np.float64)
            np.multiply(values, values, out=values)
            distances[part] = halves(values)
        return distances

    def byte_squares(self, vectors: np.ndarray) -> np.ndarray:
        """In pieces whose sums float32 holds."""
        squares = np.zeros(len(vectors))

        def fill(rows: slice) -> None:
            for start in range(0, vectors.shape[1], _EXACT):
                some = _centred(vectors[rows, start : start + _EXACT])
                squares[rows] += np.einsum("ij,ij->i", some, some)

        self.each(fill, self._pieces(*vectors.shape))
        return squares

    def ready_bytes(self, vectors: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As they are: four times as large as floats, they are converted piece by piece."""
        return vectors, rows

    def byte_product(
        self, ours: tuple[np.ndarray, np.ndarray], theirs: tuple[np.ndarray, np.ndarray]
    ) -> np.ndarray:
        """In pieces whose sums float32 holds."""
        found = np.zeros((len(ours[1]), len(theirs[1])))
        for start in range(0, ours[0].shape[1], _EXACT):
            part = slice(start, start + _EXACT)
            found += self.product(*(_centred(side[rows, part]) for side, rows in (ours, theirs)))
        return found


def _centred(values: np.ndarray) -> np.ndarray:
    centred: np.ndarray = np.subtract(values, 128, dtype=np.float32)
    return centred


@cache
def _product() -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """What multiplies float32 matrices: ``ours @ theirs.T``, on one thread with ONNX Runtime.

    Its kernels are chosen by what a processor can do; OpenBLAS, which NumPy brings, takes some for
    older ones and then is half as fast.
    """
    if importlib.util.find_spec("onnxruntime") is None:
        return lambda ours, theirs: ours @ theirs.T
    from heldout.models.adapters.onnx import Session
    from heldout.models.adapters.onnx_file import GraphWriter, Value

    graph = GraphWriter("product")
    graph.node("Gemm", "ours", "theirs", output="scores", transB=1)
    sides = [Value("ours", ("n", "d")), Value("theirs", ("m", "d"))]
    session = Session(
        graph.model(sides, [Value("scores", ("n", "m"))]), purpose="comparing vectors"
    )
    return lambda ours, theirs: session.run({"ours": ours, "theirs": theirs}, ["scores"])[0]


def halves(values: Any) -> Any:
    """Sums of the rows of an array, which is overwritten, as a distance is defined.

    >>> halves(np.array([[1.0, 2.0, 3.0]]))
    array([6.])
    """
    width = 1 << (values.shape[1] - 1).bit_length()
    while width > 1:
        width //= 2
        values[:, : values.shape[1] - width] += values[:, width:]
        values = values[:, :width]
    return values[:, 0]


class TorchArrays:
    """Tensors on one device: products of halves on tensor cores, added in float32."""

    threads = 1
    group, unit, least = 128, 2.0**-22, 2.0**-9

    def __init__(self, device: str, memory: int) -> None:
        """``memory``: bytes on the device that may be used."""
        import torch

        self.xp = self._torch = torch
        self._device, self._memory = torch.device(device), memory

    @contextmanager
    def context(self) -> Iterator[None]:
        """Tensors are made on the device; sums of halves are never halves."""
        how = self._torch.backends.cuda.matmul
        before = how.allow_fp16_reduced_precision_reduction
        how.allow_fp16_reduced_precision_reduction = False
        try:
            with self._device, self._torch.inference_mode():
                yield
        finally:
            how.allow_fp16_reduced_precision_reduction = before

    def parts(self, vectors: np.ndarray) -> Iterator[np.ndarray]:
        """An eighth of the memory each, for each side."""
        size = max(1, self._memory // 8 // (vectors.shape[1] * vectors.itemsize))
        for start in range(0, len(vectors), size):
            yield vectors[start : start + size]

    def blocks(self, d: int, floats: bool) -> tuple[int, int, int, int]:
        """An eighth of the memory each for both sides, a half for scores and what is made of them."""
        eighth = self._memory // 8
        area = eighth // 8  # as in NumPy, if all scores are looked at: half the memory
        rows = max(1, eighth // (16 * (d + 64) if floats else 3 * d))
        wide = max(1, min(65_536, rows, 2 * math.isqrt(area)))
        wide = wide // 512 * 512 or wide  # products with odd sizes are half as fast
        return max(1, min(16_384, rows, area // wide)), wide, rows, eighth // 32

    def put(self, array: np.ndarray) -> Any:
        """A copy on the device."""
        return self._torch.from_numpy(np.ascontiguousarray(array)).to(self._device)

    def take(self, array: Any) -> np.ndarray:
        """A copy in memory."""
        found: np.ndarray = array.cpu().numpy()
        return found

    def each(self, work: Callable[[Any], None], items: Sequence[Any]) -> None:
        """One after the other: each fills the device."""
        for item in items:
            work(item)

    def nonzero(self, mask: Any) -> tuple[Any, ...]:
        """As torch does it."""
        found: tuple[Any, ...] = mask.nonzero(as_tuple=True)
        return found

    def sort(self, *keys: Any) -> Any:
        """Stable sorts, the last key first."""
        order = keys[-1].argsort(stable=True)
        for key in keys[-2::-1]:
            order = order[key[order].argsort(stable=True)]
        return order

    def largest(self, values: Any, k: int) -> Any:
        """By selection."""
        if (missing := k - values.shape[1]) > 0:
            return self._torch.nn.functional.pad(values, (0, missing), value=-math.inf)
        return values.topk(k, sorted=False).values

    def peaks(self, scores: Any, groups: int) -> Any:
        """All full lines of columns at once, then the rest."""
        lines, rest = divmod(scores.shape[1], groups)
        found = scores[:, : lines * groups].unflatten(1, (lines, groups)).amax(1)
        if rest:
            self._torch.maximum(found[:, :rest], scores[:, lines * groups :], out=found[:, :rest])
        return found

    def _pieces(self, count: int, width: int) -> list[slice]:
        """Rows of which some copies in float64 fit."""
        size = max(1, self._memory // 8 // (32 * width))
        return [slice(start, min(start + size, count)) for start in range(0, count, size)]

    def squares(self, vectors: Any) -> Any:
        """In float32 where it is wide enough."""
        norm = self._torch.linalg.vector_norm
        found = norm(vectors, dim=1).double()
        if not ((found > 2.0**-40) & (found < math.inf)).all():
            for part in self._pieces(*vectors.shape):
                found[part] = norm(vectors[part].double(), dim=1)
        return found**2

    def ready(
        self, vectors: Any, rows: Any, scale: float, middle: Any, constant: float | None
    ) -> tuple[Any, Any, Any]:
        """Halves; h in three of them, in units of 2^14 (the third holds it to 2^-33 or 2^-11)."""
        torch, d = self._torch, vectors.shape[1]
        norm = torch.linalg.vector_norm
        # Zeros fill it up to sizes that tensor cores take.
        whole = torch.zeros((-(-len(rows) // 64) * 64, -(-(d + 3) // 64) * 64), dtype=torch.float16)
        matrix = whole[: len(rows)]
        some = vectors.index_select(0, rows)
        some *= scale
        some -= middle
        squares = norm(some, dim=1).double() ** 2
        matrix[:, :d] = some
        some -= matrix[:, :d]
        lost = norm(some, dim=1).double() ** 2
        if constant is None:
            matrix[:, d : d + 3] = 2.0**14
        else:
            h = (constant - squares / 2) * 2.0**-14
            for column in range(d, d + 3):
                matrix[:, column] = h
                h = h - matrix[:, column]
        return whole, squares, lost

    def product(self, ours: Any, theirs: Any) -> Any:
        """On tensor cores; elsewhere in float32, for products of halves as good."""
        if self._device.type == "cuda":
            return self._torch.mm(ours, theirs.T, out_dtype=self._torch.float32)
        return ours.float() @ theirs.float().T

    def exact(self, candidates: Any, references: Any, ours: Any, theirs: Any) -> Any:
        """By one kernel that does not fuse products and sums, or one operation after the other."""
        distances, d = self._torch.empty(len(ours), dtype=self._torch.float64), candidates.shape[1]
        kernel = _pairs_kernel() if self._device.type == "cuda" and d <= 2**14 else None
        if kernel is not None and len(ours):
            kernel[(len(ours),)](
                candidates, references, ours, theirs, distances,
                d=d, steps=(d - 1).bit_length(), enable_fp_fusion=False,
            )  # fmt: skip
            return distances
        for part in self._pieces(len(ours), candidates.shape[1]):
            values = references.index_select(0, theirs[part]).double()
            values -= candidates.index_select(0, ours[part])
            values *= values
            distances[part] = halves(values)
        return distances

    def byte_squares(self, vectors: Any) -> Any:
        """In float64, whose root squared is less than a half off."""
        squares = self._torch.empty(len(vectors), dtype=self._torch.float64)
        for part in self._pieces(*vectors.shape):
            values = vectors[part].half().sub_(128)
            squares[part] = self._torch.linalg.vector_norm(values, dim=1, dtype=squares.dtype)
        return (squares**2).round_()

    def ready_bytes(self, vectors: Any, rows: Any) -> Any:
        """Less 128, as int8; zeros fill it up to sizes that tensor cores take."""
        d = vectors.shape[1]
        matrix = self._torch.zeros(
            (max(64, -(-len(rows) // 64) * 64), -(-d // 64) * 64), dtype=self._torch.int8
        )
        some = matrix[: len(rows), :d]
        some.copy_(vectors.index_select(0, rows).bitwise_xor_(128).view(self._torch.int8))
        return matrix

    def byte_product(self, ours: Any, theirs: Any) -> Any:
        """In pieces whose sums int32 holds."""
        found = self._torch.zeros((len(ours), len(theirs)), dtype=self._torch.float64)
        for start in range(0, ours.shape[1], _EXACT_INT):
            part = slice(start, start + _EXACT_INT)
            found += self._torch._int_mm(ours[:, part], theirs[:, part].T)
        return found


@cache
def _pairs_kernel() -> Any:
    """A kernel of Triton: the distance of one pair, by halves; None without Triton."""
    if importlib.util.find_spec("triton") is None:
        return None
    import triton
    import triton.language as tl

    @triton.jit  # type: ignore[untyped-decorator]
    def kernel(x, y, ours, theirs, found, d: tl.constexpr, steps: tl.constexpr):  # type: ignore[no-untyped-def]
        pair = tl.program_id(0).to(tl.int64)
        at = tl.arange(0, 2**steps)
        first = tl.load(x + tl.load(ours + pair) * d + at, mask=at < d, other=0.0)
        second = tl.load(y + tl.load(theirs + pair) * d + at, mask=at < d, other=0.0)
        values = second.to(tl.float64) - first.to(tl.float64)
        values = values * values
        for _ in tl.static_range(steps):
            values = tl.sum(tl.reshape(values, (2, values.shape[0] // 2)), axis=0)
        tl.store(found + pair + tl.arange(0, 1), values)

    return kernel
