"""Zero-shot assignment: which class is nearest to each image, for any number of both.

Images come in blocks, classes in tiles; a tile of cosines lives in the cache, leaves what is needed
of it, and is overwritten by the next. Memory depends on neither number.

Of a row of cosines c there remain the candidates for the best k and the sum of ``exp(T·c)`` for
each T. Candidates are the classes whose fast cosine is within twice its rounding error of the k-th
best; :mod:`heldout.annotate.candidates` decides among them exactly.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from heldout.annotate.class_vectors import ClassVectors
from heldout.annotate.products import check_precision, make_product
from heldout.annotate.tiles import BLOCK, Tiles
from heldout.errors import UserError
from heldout.models.unit_vectors import unit_rows


@dataclass(frozen=True, eq=False)
class Assigned:
    """What assignment says of n images. A vector without a direction has label -1 and NaN.

    ``label``    int32 (n,): the nearest class, of exact ties the lowest
    ``cosine``   float32 (n,): its cosine
    ``margin``   float32 (n,): by how much it leads the next class; 0 for a tie; NaN for one class
    ``ties``     int64 (pairs, 2): (image, class) of other classes with exactly the same cosine
    ``lse``      T -> float64 (n,): ``log Σ exp(T·cosine)`` over all classes
    ``topk``     int32 (n, k), best first; ``topk_cosine`` float32 (n, k)
    """

    label: np.ndarray
    cosine: np.ndarray
    margin: np.ndarray
    ties: np.ndarray
    lse: Mapping[float, np.ndarray]
    topk: np.ndarray
    topk_cosine: np.ndarray

    def __len__(self) -> int:
        return len(self.label)

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
    precision: str = "float32",
    workers: int | None = None,
) -> Assigned:
    """Nearest classes of all rows of ``vectors`` (n, d), an array or a memory map of floats.

    ``k``             how many classes to keep of each image
    ``temperatures``  the T for which ``log Σ exp(T·cosine)`` is kept
    ``precision``     of the fast product; labels, cosines, margins and ties do not depend on it
    """
    parts = list(
        assign_blocks(
            vectors,
            classes,
            k=k,
            temperatures=temperatures,
            precision=precision,
            workers=workers,
        )
    )
    shifts = np.cumsum([0, *map(len, parts)])
    ties = [
        part.ties + np.array([shift, 0]) for part, shift in zip(parts, shifts[:-1], strict=True)
    ]
    return Assigned(
        label=np.concatenate([part.label for part in parts]),
        cosine=np.concatenate([part.cosine for part in parts]),
        margin=np.concatenate([part.margin for part in parts]),
        ties=np.concatenate(ties),
        lse={t: np.concatenate([part.lse[t] for part in parts]) for t in parts[0].lse},
        topk=np.concatenate([part.topk for part in parts]),
        topk_cosine=np.concatenate([part.topk_cosine for part in parts]),
    )


def check_assigning(classes: int, *, k: int, precision: str) -> None:
    """Refuse what cannot be asked of so many classes."""
    if not 1 <= k <= classes:
        raise UserError(f"top {k} of {classes} classes", fix=f"use 1 to {classes}")
    check_precision(precision)


def assign_blocks(
    vectors: np.ndarray,
    classes: ClassVectors,
    *,
    k: int = 1,
    temperatures: Sequence[float] = (),
    precision: str = "float32",
    workers: int | None = None,
) -> Iterator[Assigned]:
    """:func:`assign` block by block, in order: at most 512 images each, one empty for none."""
    if vectors.ndim != 2 or vectors.shape[1] != classes.dimension:
        raise UserError(
            f"image vectors are {vectors.shape}, class vectors have {classes.dimension} numbers",
            fix="both must come from one encoder",
        )
    check_assigning(len(classes), k=k, precision=precision)
    chosen = tuple(dict.fromkeys(map(float, temperatures)))
    if any(not 0 < t < 1e6 for t in chosen):
        raise UserError(f"temperatures {chosen}", fix="use numbers above 0, such as 1 or 100")
    product = make_product(classes.rows, precision)
    depth = min(max(k, 2), len(classes))
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        tiles = Tiles(classes, product, depth=depth, temperatures=chosen, pool=pool)
        for start in range(0, max(len(vectors), 1), BLOCK):
            found = tiles.assign(unit_rows(vectors[start : start + BLOCK]))
            cosines = found.best.cosines
            lead = cosines[:, 0] - cosines[:, 1] if depth > 1 else np.full(len(cosines), np.nan)
            yield Assigned(
                label=found.best.classes[:, 0],
                cosine=cosines[:, 0],
                margin=lead.astype(np.float32),
                ties=found.best.ties,
                lse={t: found.lse[:, place] for place, t in enumerate(chosen)},
                topk=found.best.classes[:, :k],
                topk_cosine=cosines[:, :k],
            )
