"""Zero-shot assignment: the nearest classes of each image, exact, and named similarities."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from heldout.core.errors import UserError
from heldout.models.adapters.model import unit_rows

BLOCK = 512
"""Images of a block, at most."""
MOST_TIES = 100
"""Classes that are listed as tied with a label, at most; lowest first."""
_CELLS = 1 << 24
"""Cosines of a block, at most: 64 MB."""
_SLICE_CELLS = 1 << 21
"""Cosines that a thread looks at, at most. Where all classes tie, all of them are candidates."""
_PAIRS_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class ClassVectors:
    """Distinct class vectors and the classes that have each of them.

    ``rows``     float32 (distinct, d), unit rows, in the order of the lowest class of each
    ``offsets``  int64 (distinct + 1,): the classes of row r are ``members[offsets[r]:offsets[r+1]]``
    ``members``  int64 (classes,), ascending within a row

    Classes of one text have one vector. They are tied for every image, to the bit, so the product
    is computed once for them and the tie is stated instead of decided by chance.
    """

    rows: np.ndarray
    offsets: np.ndarray
    members: np.ndarray

    def __len__(self) -> int:
        return len(self.members)

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
            f"class vectors are {matrix.dtype} {matrix.shape}", fix="give floats, one row per class"
        )
    rows = unit_rows(matrix)
    rows += 0  # -0 becomes 0: equal numbers, equal bytes
    bad = np.flatnonzero(np.isnan(rows[:, 0]))
    if len(bad):
        raise UserError(
            f"the vector of class {bad[0]} (counted from 0) has no direction",
            fix="it is all zeros, or has NaN or infinity in it: make the vectors again",
        )
    known: dict[bytes, int] = {}
    row_of = np.array([known.setdefault(row.tobytes(), len(known)) for row in rows])
    first = np.unique(row_of, return_index=True)[1]
    members = np.argsort(row_of, kind="stable").astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(row_of))]).astype(np.int64)
    return ClassVectors(rows if len(first) == len(rows) else rows[first], offsets, members)


@dataclass(frozen=True, eq=False)
class Assigned:
    """What assignment says of n images. A vector without a direction has label -1 and NaN.

    ``topk``     int32 (n, k): classes, best first, of exact ties the lowest first
    ``topk_cosine``  float32 (n, k): their cosines
    ``margin``   float32 (n,): by how much the first leads the next; 0 for a tie; NaN for one class
    ``ties``     int64 (pairs, 2): (image, class) of other classes with exactly the first's cosine
    ``lse``      T -> float64 (n,): ``log Σ exp(T·cosine)`` over all classes
    """

    topk: np.ndarray
    topk_cosine: np.ndarray
    margin: np.ndarray
    ties: np.ndarray
    lse: Mapping[float, np.ndarray]

    def __len__(self) -> int:
        return len(self.topk)

    @property
    def label(self) -> np.ndarray:
        """The nearest class, int32 (n,)."""
        return self.topk[:, 0]

    @property
    def cosine(self) -> np.ndarray:
        """Its cosine, float32 (n,)."""
        return self.topk_cosine[:, 0]

    def softmax(self, temperature: float) -> np.ndarray:
        """``exp(T·cosine) / Σ exp(T·cosine)`` of the label, float64 (n,)."""
        made: np.ndarray = np.exp(
            temperature * self.cosine.astype(np.float64) - self.lse[temperature]
        )
        return made


def assign(
    vectors: np.ndarray,
    classes: ClassVectors,
    *,
    k: int = 1,
    temperatures: Sequence[float] = (),
    workers: int | None = None,
) -> Assigned:
    """Nearest classes of all rows of ``vectors`` (n, d), an array or a memory map of floats.

    ``k``             how many classes to keep of each image
    ``temperatures``  the T for which ``log Σ exp(T·cosine)`` is kept
    """
    return _joined(
        list(assign_blocks(vectors, classes, k=k, temperatures=temperatures, workers=workers))
    )


def _joined(parts: Sequence[Assigned]) -> Assigned:
    """Parts of one list of images, in order, as one."""
    shifts = np.cumsum([0, *map(len, parts)])[:-1]
    return Assigned(
        topk=np.concatenate([part.topk for part in parts]),
        topk_cosine=np.concatenate([part.topk_cosine for part in parts]),
        margin=np.concatenate([part.margin for part in parts]),
        ties=np.concatenate(
            [part.ties + np.array([shift, 0]) for part, shift in zip(parts, shifts, strict=True)]
        ),
        lse={t: np.concatenate([part.lse[t] for part in parts]) for t in parts[0].lse},
    )


def check_top_k(k: int, classes: int) -> None:
    """Refuse more classes of an image than there are."""
    if not 1 <= k <= classes:
        raise UserError(f"top {k} of {classes} classes", fix=f"use 1 to {classes}")


def assign_blocks(
    vectors: np.ndarray,
    classes: ClassVectors,
    *,
    k: int = 1,
    temperatures: Sequence[float] = (),
    workers: int | None = None,
) -> Iterator[Assigned]:
    """:func:`assign` block by block, in order: at most ``BLOCK`` images each, one empty for none."""
    if vectors.ndim != 2 or vectors.shape[1] != classes.rows.shape[1]:
        raise UserError(
            f"image vectors are {vectors.shape}, class vectors have {classes.rows.shape[1]} numbers",
            fix="both must come from one encoder",
        )
    check_top_k(k, len(classes))
    chosen = tuple(map(float, temperatures))
    depth = min(max(k, 2), len(classes))
    distinct = len(classes.rows)
    rows = min(max(_CELLS // distinct, 1), BLOCK)
    step = min(max(_SLICE_CELLS // distinct, 1), rows)
    cosines = np.empty((rows, distinct), np.float32)
    block = np.empty((rows, classes.rows.shape[1]), np.float32)
    weights = classes.counts.astype(np.float32)
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        for start in range(0, max(len(vectors), 1), rows):
            given = unit_rows(vectors[start : start + rows])
            good = ~np.isnan(given).any(axis=1)
            # The last block is filled up, so that no sum depends on the number of images.
            block[:] = 0
            block[: len(given)][good] = given[good]
            np.matmul(block, classes.rows.T, out=cosines)

            def treat(first: int, stop: int = len(given), good: np.ndarray = good) -> Assigned:
                part = slice(first, min(first + step, stop))
                labels, found, ties = best_classes(
                    block[part], cosines[part], product_error(block.shape[1]), classes, depth
                )
                lse = _log_sums(cosines[part], weights, chosen)
                # Rows without a direction have no label.
                kept = good[part]
                labels[~kept], found[~kept], lse[~kept] = -1, np.nan, np.nan
                lead = found[:, 0] - found[:, 1] if depth > 1 else np.full(len(found), np.nan)
                return Assigned(
                    topk=labels[:, :k],
                    topk_cosine=found[:, :k],
                    margin=lead.astype(np.float32),
                    ties=ties[kept[ties[:, 0]]],
                    lse={t: lse[:, place] for place, t in enumerate(chosen)},
                )

            # Of no image at all, one empty part.
            yield _joined(list(pool.map(treat, range(0, max(len(given), 1), step))))


def product_error(dimension: int) -> float:
    """How far a float32 product of unit rows may be off.

    A float32 sum of d products in any order is off by at most d·2⁻²⁴ of the sum of their sizes,
    which for unit rows is at most 1 by Cauchy and Schwarz.
    """
    return 1.0001 * ((dimension + 8) * 2.0**-24 + 2.0**-22)


def best_classes(
    block: np.ndarray, fast: np.ndarray, error: float, space: ClassVectors, depth: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The best ``depth`` classes of unit rows, given cosines that are off by at most ``error``.

    As :func:`choose` gives them.

    ``fast``  float32 (n, distinct rows of ``space``)

    No class below the k-th best by more than both their errors can be a candidate.
    """
    place = max(fast.shape[1] - depth, 0)
    least = np.partition(fast, place, axis=1)[:, place] - np.float32(2 * error)
    rows, columns = np.nonzero(fast >= least[:, None])
    exact = exact_cosines(block, rows, space.rows, columns)
    return choose(rows, columns, exact, n=len(fast), k=depth, space=space)


def _log_sums(
    cosines: np.ndarray, weights: np.ndarray, temperatures: Sequence[float]
) -> np.ndarray:
    """``log Σ exp(T·c)`` of each row for each T: float64 (n, temperatures)."""
    made = np.empty((len(cosines), len(temperatures)))
    top = cosines.max(axis=1)
    for place, temperature in enumerate(temperatures):
        powers = cosines - top[:, None]
        powers *= np.float32(temperature)
        np.exp(powers, out=powers)
        powers *= weights
        sums = powers.sum(axis=1, dtype=np.float64)
        made[:, place] = np.log(sums) + temperature * top.astype(np.float64)
    return made


def exact_cosines(
    images: np.ndarray, rows: np.ndarray, classes: np.ndarray, columns: np.ndarray
) -> np.ndarray:
    """Dot products of pairs of unit rows, rounded once to float32: (pairs,).

    Products of float32 numbers are exact in float64, and so nearly is their sum.
    """
    made = np.empty(len(rows), np.float32)
    for start in range(0, len(rows), _PAIRS_AT_ONCE):
        part = slice(start, start + _PAIRS_AT_ONCE)
        a = images[rows[part]].astype(np.float64)
        a *= classes[columns[part]]
        made[part] = a.sum(axis=1)
    return made


def choose(
    rows: np.ndarray,
    columns: np.ndarray,
    cosines: np.ndarray,
    *,
    n: int,
    k: int,
    space: ClassVectors,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The best ``k`` classes of ``n`` images from candidate pairs (image, distinct row, cosine).

    Classes int32 (n, k), best first, ties by the lowest class, -1 where there is none; their cosines
    float32 (n, k), NaN where there is none; int64 (pairs, 2): (image, class) of other classes with
    exactly the best cosine.

    The pairs of an image must hold all rows that are among its best ``k``, and all that tie with
    the first.
    """
    counts = space.counts[columns]
    row = np.repeat(rows, counts)
    cosine = np.repeat(cosines, counts)
    # The classes of each pair's distinct row, one after another.
    ends = np.cumsum(counts)
    inside = np.arange(len(row)) - np.repeat(ends - counts, counts)
    label = space.members[np.repeat(space.offsets[columns], counts) + inside]
    order = np.lexsort((label, -cosine, row))
    row, cosine, label = row[order], cosine[order], label[order]
    starts = np.searchsorted(row, np.arange(n + 1))
    place = np.arange(len(row)) - starts[row]
    kept = place < k
    classes = np.full((n, k), -1, np.int32)
    best = np.full((n, k), np.nan, np.float32)
    classes[row[kept], place[kept]] = label[kept]
    best[row[kept], place[kept]] = cosine[kept]
    tied = (place > 0) & (place <= MOST_TIES) & (cosine == best[row, 0])
    return classes, best, np.stack([row[tied], label[tied]], axis=1).astype(np.int64)


@dataclass(frozen=True)
class Similarity:
    """A named similarity; ``temperature`` is the T of those that have one."""

    kind: str
    temperature: float | None = None

    @property
    def column(self) -> str:
        """The name of its column.

        >>> Similarity("softmax", 1.0).column, Similarity("margin").column
        ('similarity_softmax_1', 'margin')
        """
        if self.kind == "margin":
            return "margin"
        suffix = "" if self.temperature is None else f"_{self.temperature:g}"
        return f"similarity_{self.kind}{suffix}"

    def values(self, found: Assigned) -> np.ndarray:
        """Its value for each image, (n,); NaN where there is none."""
        if self.temperature is None:
            return found.cosine if self.kind == "cosine" else found.margin
        softmax = self.kind == "softmax"
        return found.softmax(self.temperature) if softmax else found.lse[self.temperature]


def parse_similarities(text: str, *, scale: float | None = None) -> tuple[Similarity, ...]:
    """Similarities by name, separated by commas; ``scale`` is what ``softmax@scale`` stands for.

    >>> [s.column for s in parse_similarities("cosine,softmax@1,margin")]
    ['similarity_cosine', 'similarity_softmax_1', 'margin']
    """
    found: dict[Similarity, None] = {}
    for name in text.split(","):
        kind, at, value = name.strip().partition("@")
        if kind in ("cosine", "margin") and not at:
            found[Similarity(kind)] = None
        elif kind in ("softmax", "lse") and at:
            found[Similarity(kind, _temperature(name, value, scale))] = None
        else:
            raise UserError(
                f"no similarity {name.strip()!r}", fix="use cosine, softmax@T, margin or lse@T"
            )
    return tuple(found)


def temperatures_of(similarities: Sequence[Similarity]) -> tuple[float, ...]:
    """The T that assignment must keep sums for."""
    return tuple(dict.fromkeys(s.temperature for s in similarities if s.temperature is not None))


def _temperature(name: str, value: str, scale: float | None) -> float:
    if value == "scale":
        if scale is None:
            raise UserError(f"{name}: precomputed vectors have no scale", fix="give T as a number")
        return float(f"{scale:g}")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 < number < 1e6:
        raise UserError(
            f"{name}: T is not a number above 0", fix="such as softmax@1 or softmax@100"
        )
    return number
