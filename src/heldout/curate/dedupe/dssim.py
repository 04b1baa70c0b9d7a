"""Structural dissimilarity of images of 256 × 256, exact, with a bound that skips most pairs.

DSSIM = (1 − SSIM) / 2 as published: the mean of S over all windows of 35 × 35 pixels that lie in the
image and over the three channels, as scikit-image computes it (uniform filter, sample covariance).

**The same bits everywhere.** With n = 35² pixels in a window, X = Σx, XX = Σx², XY = Σxy and so on,
and V = n·ΣXX − X², n times a window's sum of squared deviations,

    S = (2·X·Y + c1) · (2·(n·XY − X·Y) + c2)  /  ((X² + Y² + c1) · (Vx + Vy + c2))

where c1 = C1·n² and c2 = C2·n·(n − 1) are whole numbers of sixteenths. Each of the four factors is such
a number below 2^40, so float64 holds it exactly, whether or not a processor contracts a product and a
sum. What remains are two products and a quotient, each rounded once: IEEE 754 leaves no choice. S is
then rounded to a whole number of 2^-40, and the sum of those is an int64: neither the order of windows,
nor blocks, threads or the device change a bit. Identical images have S = 1 in every window, so 0.

**The bound.** Writing S = L · (1 − W / (Vx + Vy + c2)), with W the V of the difference x − y:

- The windows at positions 4i − 3 … 4i along an axis all contain the 32 pixels from 4i on. A cell is
  such a group of up to 4 × 4 windows, its core the 32 × 32 pixels they share: 8 × 8 blocks of 4 × 4.
- A sum of squared deviations only shrinks when pixels are left out (the rest has a mean of its own,
  which fits better), and when those of a block are replaced by their mean (convexity). With d the
  difference of the sums of a block, over the 64 blocks of the core, it is Σd²/16 − (Σd)²/1024, so
  W ≥ E = n·(64·Σd² − (Σd)²) / 1024 for every window of the cell.
- Vx + Vy is at most the sum of the largest Vx and the largest Vy in the cell.
- L = 1 − (X − Y)² / (X² + Y² + c1) is largest where X and Y, each between its least and greatest in
  the cell, are as close as they get. For X < Y the fraction falls when X grows or Y shrinks; where the
  two ranges meet it is 0.

S is at most the product of both bounds, the second one taken as 0 where it is negative (L > 0). The
sum over cells, times their windows, is the *ceiling* of a pair. It is computed in float64 from whole
numbers, as sums of non-negative terms with a few roundings each: off by less than 1e-11 of itself.
Together with what rounding S to 2^-40 may add, 147,852 · 2^-41, this is far below ``_MARGIN``, a
thousandth of a window, by which a pair must fail before it is skipped. Where a ceiling does not decide,
windows are computed row after row, until they and the ceilings of the rows to come decide.
"""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from heldout.core.errors import UserError
from heldout.core.extras import require
from heldout.curate.dedupe.nearest import Nearest, merge

SIDE, WINDOW = 256, 35
_ROW = SIDE * 3  # values of a row of pixels, channels side by side
_PLACES = SIDE - WINDOW + 1  # of a window along an axis
WINDOWS = _PLACES**2 * 3
_UNIT = 1 << 40
_C1 = 9757814.0625  # (0.01 · 255)² · 35⁴, exactly
_C2 = 87748636.5  # (0.03 · 255)² · 35² · (35² − 1), exactly
_MARGIN = 2.0**-10  # of a window
_SKIPPED = -(1 << 61)  # less than any total
_BLOCKS, _CELLS, _BANDS = 64, 57, 15  # along an axis; a band is four rows of cells
# Rows are padded in compiled code, so that loops have whole vectors: of sums, windows, cells.
_SUMS, _WIDE, _NARROW = _ROW + 64, 704, 192
_ENERGY = 64 * 1225 / 1024
_FIRST = 45  # rows of windows in the first 12 rows of cells, after which GPUs skip pairs
_TILE = 4  # candidates whose cells stay in a core's cache while those of all references pass


def nearest_dssim(
    candidates: np.ndarray,
    references: np.ndarray,
    k: int,
    *,
    bound: float = math.inf,
    device: str = "auto",
    threads: int | None = None,
    memory: int = 2**29,
) -> Nearest:
    """The ``k`` references nearest to each candidate, of those at most ``bound`` away.

    ``candidates`` and ``references`` are uint8 (n, 196608) and (m, 196608): images of 256 × 256 × 3.
    Of equal distances the smaller row comes first. ``memory`` is bytes of scratch; ``device`` is
    ``cpu``, ``cuda`` or ``auto``. Neither they nor ``threads`` change the result.
    """
    ours, theirs = _images(candidates), _images(references)
    compare = _comparison(device, threads or os.cpu_count() or 1)
    # An image takes 0.35 MB with a copy of its pixels, a pair of images less than 200 bytes.
    size = min(max(memory >> 20, 1), 1024)
    found = [Nearest(np.empty((0, k), np.int64), np.empty((0, k)))]
    for _, some in _parts(ours, size):
        best = Nearest(np.full((len(some), k), -1, np.int64), np.full((len(some), k), math.inf))
        for first, others in _parts(theirs, size) if k else ():
            best = _improve(best, compare(some, others), bound, first)
        found.append(best)
    return Nearest(
        np.concatenate([part.rows for part in found]),
        np.concatenate([part.distances for part in found]),
    )


def dssim(one: np.ndarray, other: np.ndarray) -> float:
    """Structural dissimilarity of two images, uint8 (256, 256, 3): 0 if identical, at most 1."""
    first, second = (np.asarray(image).reshape(1, -1) for image in (one, other))
    return float(nearest_dssim(first, second, 1, device="cpu", threads=1).distances[0, 0])


def _images(flat: np.ndarray) -> np.ndarray:
    """The rows of pixels of images, (n, 256, 768), a view."""
    if flat.dtype != np.uint8 or flat.ndim != 2 or flat.shape[1] != SIDE * _ROW:
        raise ValueError(f"images of {flat.dtype} {flat.shape}, not of uint8 (n, {SIDE * _ROW})")
    return np.asarray(flat).reshape(len(flat), SIDE, _ROW)


def _parts(images: np.ndarray, size: int) -> Iterator[tuple[int, np.ndarray]]:
    for start in range(0, len(images), size):
        # Code is compiled for each kind of array that comes: here always one that could be written.
        yield start, np.require(images[start : start + size], requirements=["C", "W"])


def _comparison(
    device: str, threads: int
) -> Callable[[np.ndarray, np.ndarray], CpuPairs | TorchPairs]:
    """What compares candidates with references on the device."""
    if device not in ("auto", "cpu", "cuda"):
        raise UserError(f"{device!r} is not a device to compare on", fix="use auto, cpu or cuda")
    if device == "cuda" or (device == "auto" and importlib.util.find_spec("torch")):
        torch = require("torch", extra="torch", purpose="comparing images on a GPU")
        if torch.cuda.is_available():
            return lambda ours, theirs: TorchPairs(ours, theirs, "cuda")
        if device == "cuda":
            raise UserError("torch has no CUDA device here", fix="use the device cpu or auto")
    return lambda ours, theirs: CpuPairs(ours, theirs, threads)


def _improve(best: Nearest, pairs: CpuPairs | TorchPairs, bound: float, first: int) -> Nearest:
    """The nearest so far, and among the references of ``pairs``, whose rows start at ``first``.

    The k most promising pairs of a candidate come first: their k-th distance may rule out the others.
    """
    k = best.rows.shape[1]
    order = np.argsort(-pairs.ceilings, axis=1, kind="stable")
    for rows in (order[:, :k], order[:, k:]):
        limits = np.minimum(bound, best.distances[:, -1])
        least = WINDOWS * (1 - 2 * limits) - _MARGIN
        hopeful = np.take_along_axis(pairs.ceilings, rows, axis=1) >= least[:, None]
        ours, places = np.nonzero(hopeful)
        totals = pairs.totals(ours, rows[ours, places], least[ours])
        distances = np.full(rows.shape, math.inf)
        # The difference is exact; it is rounded once, as is the quotient.
        distances[ours, places] = np.where(
            totals == _SKIPPED, math.inf, (WINDOWS * _UNIT - totals) / (2.0 * WINDOWS * _UNIT)
        )
        distances[distances > bound] = math.inf
        found = Nearest(np.where(np.isinf(distances), -1, rows + first), distances)
        best = merge([best, found], k)
    return best


# ------------------------------------------------------------------------------ compiled, on CPUs


class _Kernels(NamedTuple):
    """The functions of this section, compiled."""

    window_sums: Callable[..., None]
    cell_limits: Callable[..., None]
    ceilings: Callable[..., None]
    totals: Callable[..., None]


@cache
def _kernels() -> _Kernels:
    """Compiled once for a machine, in some seconds."""
    numba = require("numba", extra="dedupe", purpose="comparing images by dssim")
    # Division as in NumPy: one that may raise an error is not made into vectors.
    compiled = numba.njit(nogil=True, cache=True, error_model="numpy")
    return _Kernels(*map(compiled, (_window_sums, _cell_limits, _ceilings, _totals)))


class CpuPairs:
    """All pairs of some candidates and references, (n, 256, 768) and (m, 256, 768), on CPUs.

    ``ceilings`` (n, m) is what Σ S of each pair is at most.
    """

    def __init__(self, candidates: np.ndarray, references: np.ndarray, threads: int) -> None:
        self._candidates, self._references, self._threads = candidates, references, threads
        ours, theirs = self._tables(candidates), self._tables(references)
        self._bands = np.empty((len(candidates), len(references), _BANDS))

        def fill(at: int) -> None:
            some = slice(at, at + _TILE)
            _kernels().ceilings(*(table[some] for table in ours), *theirs, self._bands[some])

        self._each(fill, range(0, len(candidates), _TILE))
        self.ceilings = self._bands.sum(axis=2)

    def totals(self, ours: np.ndarray, theirs: np.ndarray, least: np.ndarray) -> np.ndarray:
        """Σ S of each pair of rows in units of 2^-40; ``_SKIPPED`` if it is under ``least`` windows."""
        order = np.lexsort((ours, theirs, ours // _TILE))
        ours, theirs, least = ours[order], theirs[order], least[order]
        starts = np.flatnonzero(np.diff(ours // _TILE, prepend=-1))
        stops = np.append(starts[1:], len(ours))
        totals = np.empty(len(ours), np.int64)

        def fill(at: int) -> None:
            part = slice(starts[at], stops[at])
            first = ours[part.start] // _TILE * _TILE
            images = self._candidates[first : first + _TILE]
            sums = np.stack([_sums(image) for image in images])
            bands = self._bands[ours[part], theirs[part]]
            _kernels().totals(
                images, sums, ours[part] - first, self._references, theirs[part], least[part], bands,
                totals[part],
            )  # fmt: skip

        self._each(fill, range(len(starts)))
        found = np.empty_like(totals)
        found[order] = totals
        return found

    def _tables(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The sums of the blocks of each image, and the limits of its cells."""
        blocks = np.zeros((len(images), _BLOCKS, _NARROW), np.int16)
        limits = np.zeros((len(images), 3, _CELLS, _NARROW), np.float32)

        def fill(at: int) -> None:
            _kernels().cell_limits(images[at], _sums(images[at]), blocks[at], limits[at])

        self._each(fill, range(len(images)))
        return blocks, limits

    def _each(self, work: Callable[[int], None], numbers: range) -> None:
        _kernels()
        with ThreadPoolExecutor(self._threads) as pool:
            for _ in pool.map(work, numbers):
                pass


def _sums(image: np.ndarray) -> np.ndarray:
    """X and XX of all windows, int32 (2, 222, 704); the last columns are padding."""
    sums = np.empty((2, _PLACES, _WIDE), np.int32)
    _kernels().window_sums(image, sums)
    return sums


def _window_sums(image: Any, out: Any) -> None:
    """X and XX of all windows: sums down the columns that slide, then along the row by doubling.

    35 = 4 · 8 + 2 + 1; the values of a channel are 3 places apart. The two quantities lie one after
    the other in ``down``; what runs from one into the other lies in the padding.
    """
    down = np.zeros(2 * _SUMS, np.int32)
    two, eight = np.zeros(2 * _SUMS, np.int32), np.zeros(2 * _SUMS, np.int32)
    for row in range(SIDE):
        new, old = image[row], image[max(row - WINDOW, 0)]
        slides = np.int32(row >= WINDOW)
        for j in range(_ROW):
            x, gone = np.int32(new[j]), np.int32(old[j]) * slides
            down[j] += x - gone
            down[_SUMS + j] += x * x - gone * gone
        if row < WINDOW - 1:
            continue
        for j in range(2 * _SUMS - 3):
            two[j] = down[j] + down[j + 3]
        for j in range(2 * _SUMS - 18):
            eight[j] = two[j] + two[j + 6] + two[j + 12] + two[j + 18]
        for part in range(2):
            box = out[part, row - WINDOW + 1]
            for j in range(_WIDE):
                i = part * _SUMS + j
                wide = eight[i] + eight[i + 24] + eight[i + 48] + eight[i + 72]
                box[j] = wide + two[i + 96] + down[i + 102]


def _cell_limits(image: Any, sums: Any, blocks: Any, limits: Any) -> None:
    """Sums of blocks of 4 × 4; of every cell the least X, the greatest X and the greatest V."""
    for row in range(SIDE):
        for column in range(SIDE):
            for channel in range(3):
                blocks[row // 4, column // 4 * 3 + channel] += image[row, column * 3 + channel]
    low, high, spread = np.empty(_WIDE), np.empty(_WIDE), np.empty(_WIDE)
    for cell in range(_CELLS):
        low[:], high[:], spread[:] = np.inf, 0.0, 0.0
        for row in range(max(4 * cell - 3, 0), min(4 * cell, _PLACES - 1) + 1):
            for j in range(_WIDE):
                x, x2 = np.float64(sums[0, row, j]), np.float64(sums[1, row, j])
                low[j], high[j] = min(low[j], x), max(high[j], x)
                spread[j] = max(spread[j], 1225.0 * x2 - x * x)
        for j in range(3 * _CELLS):
            least, most, wide = np.inf, 0.0, 0.0
            for column in range(max(4 * (j // 3) - 3, 0), min(4 * (j // 3), _PLACES - 1) + 1):
                i = 3 * column + j % 3
                least, most, wide = min(least, low[i]), max(most, high[i]), max(wide, spread[i])
            limits[0, cell, j], limits[1, cell, j] = least, most  # float32 holds them exactly
            # V is rounded up: its nearest float32 is at most 2^-24 of it away.
            limits[2, cell, j] = wide * (1 + 2.0**-22)


def _ceilings(blocks: Any, limits: Any, other_blocks: Any, other_limits: Any, out: Any) -> None:
    """What S can add up to in each band of every pair, (n, m, bands)."""
    down = np.zeros(512, np.int32)  # Σd, from 256 on Σd²
    two, four = np.zeros(512, np.int32), np.zeros(512, np.int32)
    band = np.zeros(_NARROW)
    for m in range(len(other_blocks)):
        for n in range(len(blocks)):
            down[:], band[:] = 0, 0.0
            for row in range(_BLOCKS):
                x, y = blocks[n, row], other_blocks[m, row]
                back, slides = max(row - 8, 0), np.int32(row >= 8)
                x_old, y_old = blocks[n, back], other_blocks[m, back]
                for j in range(_NARROW):
                    d = np.int32(x[j]) - np.int32(y[j])
                    gone = (np.int32(x_old[j]) - np.int32(y_old[j])) * slides
                    down[j] += d - gone
                    down[256 + j] += d * d - gone * gone
                if row < 7:
                    continue
                for j in range(512 - 3):
                    two[j] = down[j] + down[j + 3]
                for j in range(512 - 6):
                    four[j] = two[j] + two[j + 6]
                cell = row - 7
                rows = 1.0 if cell in (0, _CELLS - 1) else 4.0  # of windows
                low, high, spread = limits[n, 0, cell], limits[n, 1, cell], limits[n, 2, cell]
                other_low, other_high = other_limits[m, 0, cell], other_limits[m, 1, cell]
                other_spread = other_limits[m, 2, cell]
                for j in range(_NARROW):
                    total = np.float64(four[j] + four[j + 12])
                    power = np.float64(four[256 + j] + four[256 + j + 12])
                    e = (64.0 * power - total * total) * (1225.0 / 1024.0)
                    v = np.float64(spread[j]) + np.float64(other_spread[j]) + _C2
                    nearest = max(low[j], min(high[j], other_low[j]))
                    a = np.float64(nearest)
                    b = np.float64(max(other_low[j], min(other_high[j], nearest)))
                    q = a * a + b * b + _C1
                    band[j] += rows * ((q - (a - b) * (a - b)) * max(v - e, 0.0) / (q * v))
                if cell % 4 == 3 or cell == _CELLS - 1:
                    # Four columns of windows in a cell, one in the first and the last.
                    ends = band[:3].sum() + band[3 * (_CELLS - 1) : 3 * _CELLS].sum()
                    out[n, m, cell // 4] = 4.0 * band[3 : 3 * (_CELLS - 1)].sum() + ends
                    band[:] = 0.0


def _totals(
    images: Any, sums: Any, ours: Any, others: Any, rows: Any, least: Any, bands: Any, out: Any
) -> None:
    """Σ S of the images in ``ours`` with the others in ``rows``, sorted by ``rows``.

    As :func:`_window_sums`: Y and YY once for all images that come with the same other one, XY for
    each. Where the rows so far and the bands to come stay under ``least``, ``_SKIPPED``.
    """
    down, two = np.zeros(2 * _SUMS, np.int32), np.zeros(2 * _SUMS, np.int32)
    eight, box = np.zeros(2 * _SUMS, np.int32), np.zeros(2 * _SUMS, np.int32)
    products, columns = np.empty((_TILE, _SUMS), np.int32), np.empty((_TILE, _WIDE))
    rest = np.zeros((_TILE, _BANDS + 1))
    stop = 0
    while stop < len(rows):
        start = stop
        other = others[rows[start]]
        while stop < len(rows) and rows[stop] == rows[start]:
            for band in range(_BANDS - 1, -1, -1):
                rest[stop - start, band] = rest[stop - start, band + 1] + bands[stop, band]
            out[stop] = 0
            stop += 1
        down[:], products[:], columns[:] = 0, 0, 0.0
        left = stop - start
        for row in range(SIDE):
            back, slides = max(row - WINDOW, 0), np.int32(row >= WINDOW)
            at = row - WINDOW + 1
            other_new, other_old = other[row], other[back]
            for j in range(_ROW):
                y, gone = np.int32(other_new[j]), np.int32(other_old[j]) * slides
                down[j] += y - gone
                down[_SUMS + j] += y * y - gone * gone
            if at >= 0:
                for j in range(2 * _SUMS - 3):
                    two[j] = down[j] + down[j + 3]
                for j in range(2 * _SUMS - 18):
                    eight[j] = two[j] + two[j + 6] + two[j + 12] + two[j + 18]
                for j in range(2 * _SUMS - 102):
                    wide = eight[j] + eight[j + 24] + eight[j + 48] + eight[j + 72]
                    box[j] = wide + two[j + 96] + down[j + 102]
            for pair in range(start, stop):
                if out[pair] == _SKIPPED:
                    continue
                new, old = images[ours[pair], row], images[ours[pair], back]
                product, column = products[pair - start], columns[pair - start]
                for j in range(_ROW):
                    gone = np.int32(other_old[j]) * slides
                    product[j] += (
                        np.int32(new[j]) * np.int32(other_new[j]) - np.int32(old[j]) * gone
                    )
                if at < 0:
                    continue
                for j in range(_SUMS - 3):
                    two[j] = product[j] + product[j + 3]
                for j in range(_SUMS - 18):
                    eight[j] = two[j] + two[j + 6] + two[j + 12] + two[j + 18]
                sum_row, square_row = sums[ours[pair], 0, at], sums[ours[pair], 1, at]
                for j in range(_WIDE):
                    wide = eight[j] + eight[j + 24] + eight[j + 48] + eight[j + 72]
                    xy = np.float64(wide + two[j + 96] + product[j + 102])
                    x, y1 = np.float64(sum_row[j]), np.float64(box[j])
                    both = np.float64(square_row[j] + box[_SUMS + j])
                    mixed, power = 2.0 * x * y1, x * x + y1 * y1
                    above = (mixed + _C1) * (2450.0 * xy - mixed + _C2)
                    below = (power + _C1) * (1225.0 * both - power + _C2)
                    column[j] += np.rint(above / below * _UNIT)  # whole, below 2^53: exact
                if at % 16 == 12:  # a band ends
                    reached = column[: 3 * _PLACES].sum() / _UNIT
                    if reached + rest[pair - start, at // 16 + 1] < least[pair]:
                        out[pair] = _SKIPPED
                        left -= 1
            if not left:
                break
        for pair in range(start, stop):
            if out[pair] != _SKIPPED:
                for j in range(3 * _PLACES):
                    out[pair] += np.int64(columns[pair - start, j])


# ------------------------------------------------------------------------------- torch, on GPUs


class TorchPairs:
    """As :class:`CpuPairs`, by torch.

    S is computed by operations on whole numbers and float64, each a step of its own, which torch rounds
    as IEEE 754 says on every device. For ceilings Σd²/16 − (Σd)²/1024 is 1/16 of the squared distance of
    two vectors, the sums of 64 blocks less their mean, so a matrix product gives those of all pairs. What
    is added stays below 4e11 and what it is divided by above 8e7: rounding in whatever order moves a
    ceiling by less than 1e-5 of a window.
    """

    def __init__(self, candidates: np.ndarray, references: np.ndarray, device: str) -> None:
        import torch

        self._torch = torch
        free = torch.cuda.mem_get_info(device)[0] // 4 if device != "cpu" else 2**28
        self._batch = max(1, free >> 24)  # of pairs, 16 MB each
        tables = []
        for side in (candidates, references):
            pixels = torch.from_numpy(np.array(side)).reshape(-1, SIDE, SIDE, 3).permute(0, 3, 1, 2)
            parts = [self._tables(part.to(device)) for part in pixels.split(self._batch)]
            tables.append([torch.cat(table) for table in zip(*parts, strict=True)])
        self._images = [table[:3] for table in tables]
        ours, theirs = (table[3:] for table in tables)
        # A row of cells takes six numbers for each cell and pair.
        size = max(1, free // (len(references) * 3 * _CELLS * 6 * 8))
        tiles = zip(*(table.split(size) for table in ours), strict=True)
        self._halves = torch.cat([self._ceilings(tile, theirs) for tile in tiles], dim=1)
        self.ceilings: np.ndarray = self._halves.sum(0).cpu().numpy()

    def totals(self, ours: np.ndarray, theirs: np.ndarray, least: np.ndarray) -> np.ndarray:
        """As of :class:`CpuPairs`; pairs are skipped after the first rows of windows, or not."""
        torch = self._torch
        device = self._halves.device
        totals = torch.full((len(ours),), _SKIPPED, device=device)
        given = [torch.from_numpy(values).to(device) for values in (ours, theirs, least)]
        for part in torch.arange(len(ours), device=device).split(self._batch):
            n, m, needed = (values[part] for values in given)
            first = self._windows(n, m, 0, _FIRST)
            left = first.double() / _UNIT + self._halves[1, n, m] >= needed
            part, n, m = part[left], n[left], m[left]
            totals[part] = first[left] + self._windows(n, m, _FIRST, _PLACES)
        found: np.ndarray = totals.cpu().numpy()
        return found

    def _windows(self, n: Any, m: Any, start: int, stop: int) -> Any:
        """Σ S of pairs over some rows of windows, in units of 2^-40."""
        (images, *sums), (others, *other_sums) = self._images
        image, other = (
            pixels[:, :, start : stop + WINDOW - 1][rows]
            for pixels, rows in ((images, n), (others, m))
        )
        x, x2 = (table[:, :, start:stop][n] for table in sums)
        y, y2 = (table[:, :, start:stop][m] for table in other_sums)
        xy = self._box(image.int() * other, WINDOW).double()
        both, x, y = x2.add_(y2).double(), x.double(), y.double()
        mixed, power = (x * y).mul_(2.0), x.square_().add_(y.square_())
        above = xy.mul_(2450.0).sub_(mixed).add_(_C2).mul_(mixed.add_(_C1))
        below = both.mul_(1225.0).sub_(power).add_(_C2).mul_(power.add_(_C1))
        return above.div_(below).mul_(_UNIT).round_().long().sum(dim=(1, 2, 3))

    def _box(self, values: Any, size: int) -> Any:
        """Sums over all squares of ``size``, int32 (n, 3, height, width); none reaches 2^31."""
        for axis in (2, 3):
            running = values.cumsum(axis, dtype=self._torch.int32)
            count = running.shape[axis] - size
            values = running.narrow(axis, size - 1, count + 1).clone()
            values.narrow(axis, 1, count).sub_(running.narrow(axis, 0, count))
        return values

    def _tables(self, pixels: Any) -> tuple[Any, ...]:
        """Pixels, X and XX of windows; sums of blocks, the least and greatest X and V of cells."""
        torch = self._torch
        pixels = pixels.contiguous()
        values = pixels.int()
        x, x2 = self._box(values, WINDOW), self._box(values * values, WINDOW)
        # The first and the last cell have one window along an axis, here four times.
        at = torch.arange(-3, 4 * _CELLS - 3, device=x.device).clamp(0, _PLACES - 1)
        cells, spread = (
            table[:, :, at][..., at].reshape(-1, 3, _CELLS, 4, _CELLS, 4).double()
            for table in (x, 1225 * x2.long() - x.long() ** 2)
        )
        blocks = values.reshape(-1, 3, _BLOCKS, 4, _BLOCKS, 4).sum((3, 5)).double()
        axes = (3, 5)
        return pixels, x, x2, blocks, cells.amin(axes), cells.amax(axes), spread.amax(axes)

    def _ceilings(self, ours: tuple[Any, ...], theirs: list[Any]) -> Any:
        """What S can add up to in the first rows of windows and in the others, (2, n, m)."""
        torch = self._torch
        columns = torch.full((3, _CELLS), 4.0, dtype=torch.float64, device=ours[0].device)
        columns[:, [0, -1]] = 1.0
        total = columns.new_zeros(2, len(ours[0]), len(theirs[0]))
        for cell in range(_CELLS):
            vectors, limits = [], []
            for blocks, *tables in (ours, theirs):
                near = blocks[:, :, cell : cell + 8].unfold(3, 8, 1).permute(1, 3, 0, 2, 4)
                near = near.reshape(3 * _CELLS, -1, 64)
                vectors.append(near - near.mean(dim=2, keepdim=True))
                limits.append([t[:, :, cell].permute(1, 2, 0).flatten(0, 1) for t in tables])
            low, high, spread = (table[:, :, None] for table in limits[0])
            other_low, other_high, other_spread = (table[:, None] for table in limits[1])
            energy = [v.square().sum(2) * _ENERGY for v in vectors]
            v = spread + other_spread + _C2
            # v − e, where e is the energy of the one, of the other, less twice that of their product
            left = torch.bmm(vectors[0] * (2 * _ENERGY), vectors[1].transpose(1, 2))
            left += spread - energy[0][:, :, None] + _C2
            left += other_spread - energy[1][:, None]
            a = torch.minimum(high, other_low)
            a = torch.maximum(a, low, out=a)
            b = torch.minimum(other_high, a)
            b = torch.maximum(b, other_low, out=b)
            q = (a * a).addcmul_(b, b).add_(_C1)
            s = left.clamp_(min=0.0).div_(v)
            s.addcmul_(s, a.sub_(b).square_().div_(q), value=-1)
            rows = 1.0 if cell in (0, _CELLS - 1) else 4.0
            total[int(cell > _FIRST // 4)] += rows * torch.tensordot(columns.flatten(), s, dims=1)
        return total
