"""One block of images through all tiles of classes: candidates and sums, in memory that is fixed."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from heldout.annotate.candidates import MOST_TIES, Best, choose, exact_cosines
from heldout.annotate.class_vectors import ClassVectors
from heldout.annotate.products import Product

BLOCK = 512
"""Images of a block. Fixed, and the last block is filled up, so that no sum depends on N."""
TILE = 32_768
"""Classes of a tile, at most: 64 MB of cosines. Each product waits for all its threads at its end,
so few and large ones are best, above all on a busy machine."""
_SLICE = 64
_CHUNK = 2048
"""Rows and columns that a thread treats at once: with their exponentials they stay in its cache."""
_GROUP = 256
_UNSHIFTED = 60.0
"""Up to this T sums of ``exp(T·c)`` need no shift: they cannot leave float32's range."""
_MOST_CANDIDATES = 2_000_000
"""Candidates of a block before they are thinned out."""
_NONE = np.float32(-4.0)
"""Below every cosine, whatever its rounding: what is known before anything was looked at."""
_FILLING = np.float32(-16.0)
"""In columns that are no class; below every bound, so that they are never candidates."""


@dataclass(frozen=True, eq=False)
class BlockResult:
    """The best classes of a block, and ``log Σ exp(T·c)`` for each T: float64 (n, temperatures)."""

    best: Best
    lse: np.ndarray


class Tiles:
    """The buffers of one assignment. ``depth`` is how many classes are kept of an image."""

    def __init__(
        self,
        classes: ClassVectors,
        product: Product,
        *,
        depth: int,
        temperatures: Sequence[float],
        pool: ThreadPoolExecutor,
        tile: int = TILE,
        most_candidates: int = _MOST_CANDIDATES,
    ) -> None:
        self._classes, self._product, self._depth = classes, product, depth
        self._temperatures = tuple(temperatures)
        self._pool = pool
        self._most = most_candidates
        distinct = len(classes.rows)
        # Enough groups that the k-th best of their largest values is a useful bound.
        self._group = _GROUP
        while self._group > 16 and distinct // self._group < 4 * depth:
            self._group //= 2
        width = min(_up(tile, self._group), _up(distinct, self._group))
        self._scores = np.empty((BLOCK, width), np.float32)
        self._tiles = [(a, min(a + width, distinct)) for a in range(0, distinct, width)]
        # Columns that fill up the last group count nothing.
        self._weights = np.zeros(len(self._tiles) * width, np.float32)
        self._weights[:distinct] = classes.counts

    def assign(self, block: np.ndarray) -> BlockResult:
        """Treat up to ``BLOCK`` unit rows, float32 (n, d); rows of NaN get no class."""
        n = len(block)
        good = ~np.isnan(block).any(axis=1)
        full = np.zeros((BLOCK, self._classes.dimension), np.float32)
        full[:n][good] = block[good]
        state = _State(full, self._product.load(full), self._depth, len(self._temperatures))
        slices = [slice(a, a + _SLICE) for a in range(0, n, _SLICE)]
        for start, stop in self._tiles:
            width = _up(stop - start, self._group)
            self._product.multiply(start, stop, self._scores[:, : stop - start])
            self._scores[:, stop - start : width] = _FILLING
            weights = self._weights[start : start + width]

            def treat(
                rows: slice, start: int = start, width: int = width, weights: np.ndarray = weights
            ) -> None:
                self._treat(state, rows, self._scores[rows, :width], start, weights)

            for _ in self._pool.map(treat, slices):
                pass
            if state.pending > self._most:
                state.settle(self._classes)
        state.settle(self._classes)
        return self._result(state, good)

    def _treat(
        self, state: _State, rows: slice, scores: np.ndarray, start: int, weights: np.ndarray
    ) -> None:
        """Take from a slice of a tile what is needed of it: sums, and candidates."""
        groups = scores.reshape(len(scores), -1, self._group)
        largest = np.empty(groups.shape[:2], np.float32)
        for first in range(0, scores.shape[1], _CHUNK):
            columns = slice(first, first + _CHUNK)
            some = slice(first // self._group, (first + _CHUNK) // self._group)
            np.max(groups[:, some], axis=2, out=largest[:, some])
            self._sum(state, rows, scores[:, columns], largest[:, some], weights[columns])
        least = state.raise_bounds(rows, largest)
        row, group = np.nonzero(largest >= least[:, None])
        near = groups[row, group]
        place = np.flatnonzero(near >= least[row][:, None])
        which, column = np.divmod(place, self._group)
        column += start + group[which] * self._group
        state.add(rows, row[which] + rows.start, column, near.ravel()[place])

    def _sum(
        self,
        state: _State,
        rows: slice,
        scores: np.ndarray,
        largest: np.ndarray,
        weights: np.ndarray,
    ) -> None:
        """Add ``exp(T·c)`` of a chunk; for large T relative to the row's largest c so far."""
        for place, temperature in enumerate(self._temperatures):
            if temperature <= _UNSHIFTED:
                made = scores * np.float32(temperature) if temperature != 1 else scores
                state.sums[rows, place] += np.exp(made) @ weights
                continue
            before = state.top[rows, place]
            top = np.maximum(before, largest.max(axis=1))
            made = scores - top[:, None]
            made *= np.float32(temperature)
            np.exp(made, out=made)
            shrink = np.exp(temperature * (before.astype(np.float64) - top))
            state.sums[rows, place] = state.sums[rows, place] * shrink + made @ weights
            state.top[rows, place] = top

    def _result(self, state: _State, good: np.ndarray) -> BlockResult:
        n = len(good)
        row, column, cosine = state.settled
        kept = (row < n) & good[np.minimum(row, n - 1)] if n else np.zeros(len(row), bool)
        best = choose(
            row[kept], column[kept], cosine[kept], n=n, k=self._depth, space=self._classes
        )
        lse = np.log(state.sums[:n])
        for place, temperature in enumerate(self._temperatures):
            if temperature > _UNSHIFTED:
                lse[:, place] += temperature * state.top[:n, place].astype(np.float64)
        lse[~good] = np.nan
        return BlockResult(best, lse)


class _State:
    """What is known of a block after some tiles; slices of rows are treated by different threads."""

    def __init__(self, block: np.ndarray, error: np.ndarray, depth: int, sums: int) -> None:
        self._block, self._error, self._depth = block, error, depth
        self.top = np.full((len(block), sums), _NONE, np.float32)
        self.sums = np.zeros((len(block), sums))
        # As many classes as this has columns reach its least value, before rounding errors.
        self._bounds = np.full((len(block), depth), _NONE, np.float32)
        self._found: dict[int, list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = {}
        empty = np.zeros(0, np.int64)
        self.settled = (empty, empty, np.zeros(0, np.float32))

    @property
    def pending(self) -> int:
        """Candidates whose exact cosines are not known yet."""
        return sum(len(part[0]) for parts in self._found.values() for part in parts)

    def raise_bounds(self, rows: slice, largest: np.ndarray) -> np.ndarray:
        """The least fast cosine with which a class is a candidate, (rows,), given more groups."""
        both = np.concatenate([self._bounds[rows], largest], axis=1)
        self._bounds[rows] = np.partition(both, -self._depth, axis=1)[:, -self._depth :]
        least: np.ndarray = self._bounds[rows].min(axis=1) - 2 * self._error[rows]
        return least

    def add(self, rows: slice, row: np.ndarray, column: np.ndarray, fast: np.ndarray) -> None:
        """Note candidates: row of the block, distinct class row, fast cosine."""
        self._found.setdefault(rows.start, []).append((row, column, fast))

    def settle(self, classes: ClassVectors) -> None:
        """Compute candidates' cosines exactly and keep those that can still be among the best."""
        parts = [part for key in sorted(self._found) for part in self._found[key]]
        self._found.clear()
        if not parts:
            return
        row, column, fast = (np.concatenate(each) for each in zip(*parts, strict=True))
        still = fast >= (self._bounds.min(axis=1) - 2 * self._error)[row]
        row, column = row[still], column[still]
        cosine = exact_cosines(self._block, row, classes.rows, column)
        before = self.settled
        row = np.concatenate([before[0], row])
        column = np.concatenate([before[1], column])
        cosine = np.concatenate([before[2], cosine])
        order = np.lexsort((column, -cosine, row))
        row, column, cosine = row[order], column[order], cosine[order]
        place = np.arange(len(row)) - np.searchsorted(row, row)
        kept = place < self._depth + MOST_TIES
        self.settled = (row[kept], column[kept], cosine[kept])
        # What is known exactly is a bound without the error of the fast product.
        last = place == self._depth - 1
        sure = cosine[last] + self._error[row[last]]
        self._bounds[row[last]] = np.maximum(self._bounds[row[last]], sure[:, None])


def _up(number: int, step: int) -> int:
    """The next multiple."""
    return -(-number // step) * step
