"""From a matte to a cut-out: stray parts, holes, edges, and the tight crop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from heldout.core.errors import UserError
from heldout.curate.cutouts.cutout import Matte

THRESHOLD = 0.5
"""A pixel belongs to the object where the matte is at least this."""


@dataclass(frozen=True, kw_only=True)
class Cleaning:
    """What is done to a matte.

    ``stray``    parts smaller than this share of the largest part are removed
    ``holes``    holes smaller than this share of the object are filled; larger ones are taken for
                 real, such as a mug's handle
    ``soft``     keep the matte as opacity; otherwise pixels are in or out
    ``feather``  pixels over which the edge fades, inwards: nothing outside becomes visible
    """

    stray: float = 0.0
    holes: float = 0.0
    soft: bool = False
    feather: int = 0

    def __post_init__(self) -> None:
        for name in ("stray", "holes"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name} {getattr(self, name)}", fix="give a share from 0 to 1")
        if not 0 <= self.feather <= 64:
            raise UserError(f"feather {self.feather}", fix="give 0 to 64 pixels")

    @property
    def identity(self) -> Mapping[str, Any]:
        """The settings, as JSON values."""
        return asdict(self)


FOR_OUTLINES = Cleaning(soft=True)
"""What a person has drawn is left as it is."""

FOR_SEGMENTERS = Cleaning(stray=0.1, holes=0.02)
"""What a program has found is freed of specks and pinholes."""


@dataclass(frozen=True, eq=False)
class Cleaned:
    """A cut-out: (h, w, 4) uint8, and its box in the photograph as left, top, width, height.

    Without any pixel of the object both are empty.
    """

    pixels: np.ndarray
    box: tuple[int, int, int, int]

    @property
    def empty(self) -> bool:
        """Whether nothing was cut out."""
        return self.pixels.size == 0


def cut(pixels: np.ndarray, matte: Matte, cleaning: Cleaning) -> Cleaned:
    """The object of a photograph: cleaned, and cropped tightly around its visible pixels."""
    alpha = _opacity(matte, cleaning)
    rows, columns = np.flatnonzero(alpha.any(axis=1)), np.flatnonzero(alpha.any(axis=0))
    if not len(rows):
        return Cleaned(np.zeros((0, 0, 4), np.uint8), (0, 0, 0, 0))
    top, left = int(rows[0]), int(columns[0])
    bottom, right = int(rows[-1]) + 1, int(columns[-1]) + 1
    alpha = alpha[top:bottom, left:right]
    made = np.dstack([pixels[top:bottom, left:right], alpha])
    return Cleaned(made, (left, top, right - left, bottom - top))


def _opacity(matte: Matte, cleaning: Cleaning) -> np.ndarray:
    """The matte after cleaning, (h, w) uint8."""
    inside = matte >= THRESHOLD
    kept = without_stray(inside, cleaning.stray) if cleaning.stray else inside
    filled = fill_holes(kept, cleaning.holes) if cleaning.holes else kept
    if cleaning.soft:
        value = matte
        if cleaning.stray and (kept != inside).any():
            value = np.where(_belongs(kept, inside), value, 0)
        value = np.where(filled & ~kept, 1, value)
        alpha = np.rint(value * 255).astype(np.uint8)
    else:
        alpha = filled.astype(np.uint8) * np.uint8(255)
    if cleaning.feather and alpha.any():
        depth = _depth(alpha > 0)
        alpha = np.rint(alpha * np.minimum(1, depth / (cleaning.feather + 1))).astype(np.uint8)
    return np.asarray(alpha)


def without_stray(inside: np.ndarray, share: float) -> np.ndarray:
    """Parts of at least ``share`` of the largest part; parts touch at sides, not at corners."""
    from scipy import ndimage

    labels, count = ndimage.label(inside)
    if count < 2:
        return inside
    sizes = np.bincount(labels.ravel())
    sizes[0] = 0
    return np.asarray((sizes >= share * sizes.max())[labels] & inside)


def fill_holes(inside: np.ndarray, share: float) -> np.ndarray:
    """The object with holes of less than ``share`` of its pixels filled.

    A hole is background that does not reach the border of the photograph.
    """
    from scipy import ndimage

    labels, count = ndimage.label(~inside)
    if not count:
        return inside
    sizes = np.bincount(labels.ravel())
    small = sizes < share * inside.sum()
    small[0] = False
    for edge in (labels[0], labels[-1], labels[:, 0], labels[:, -1]):
        small[edge] = False
    return np.asarray(inside | small[labels])


def _belongs(kept: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Pixels whose nearest pixel of any part is one of a kept part."""
    from scipy import ndimage

    rows, columns = ndimage.distance_transform_edt(
        ~inside, return_distances=False, return_indices=True
    )
    return np.asarray(kept[rows, columns])


def _depth(visible: np.ndarray) -> np.ndarray:
    """Distance of each visible pixel to the nearest that is not; the frame's edge counts as one."""
    from scipy import ndimage

    return np.asarray(ndimage.distance_transform_edt(np.pad(visible, 1)))[1:-1, 1:-1]
