"""From a matte to a cut-out: cleaning, the tight crop, and what is wrong with it, in words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heldout.core.errors import UserError
from heldout.core.schema import Document
from heldout.curate.cutouts.photos import Matte

THRESHOLD = 0.5
"""A pixel belongs to the object where the matte is at least this."""
LARGE = 0.1
"""A part counts as large from this share of the largest part."""
_NEARLY_ALL = 0.8  # from this share of the photo on, a rectangle is not an object
_SIDE = 512  # shape and edges are measured on a matte of at most this longest side
_BAND = 0.02  # half width of the band around the edge, as a share of the longest side


@dataclass(frozen=True, kw_only=True)
class Cleaning:
    """What is done to a matte.

    ``soft``   keep the matte as opacity, and nothing else; otherwise pixels are in or out
    ``stray``  parts smaller than this share of the largest part are removed
    ``holes``  holes smaller than this share of the object are filled; larger ones are taken for
               real, such as a mug's handle
    """

    stray: float = 0.0
    holes: float = 0.0
    soft: bool = False


FOUND = Cleaning(stray=0.1, holes=0.02)
"""What a program has found is freed of specks and pinholes."""


@dataclass(frozen=True, eq=False)
class Cleaned:
    """A cut-out: (h, w, 4) uint8, and its box in the photo as left, top, width, height.

    Without any pixel of the object both are empty.
    """

    pixels: np.ndarray
    box: tuple[int, int, int, int]


def cut(pixels: np.ndarray, matte: Matte, cleaning: Cleaning) -> Cleaned:
    """The object of a photo: cleaned, and cropped tightly around its visible pixels."""
    alpha = _opacity(matte, cleaning)
    box = _bounds(alpha)
    if box is None:
        return Cleaned(np.zeros((0, 0, 4), np.uint8), (0, 0, 0, 0))
    rows, columns = box
    left, top = columns.start, rows.start
    made = np.dstack([pixels[box], alpha[box]])
    return Cleaned(made, (left, top, columns.stop - left, rows.stop - top))


def _bounds(mask: np.ndarray) -> tuple[slice, slice] | None:
    """Rows and columns of the smallest box around what is not 0."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        return None
    return (
        slice(int(rows[0]), int(rows[-1]) + 1),
        slice(int(columns[0]), int(columns[-1]) + 1),
    )


def _opacity(matte: Matte, cleaning: Cleaning) -> np.ndarray:
    """The matte after cleaning, (h, w) uint8."""
    if cleaning.soft:
        return np.asarray(np.rint(matte * 255), np.uint8)
    inside = without_stray(matte >= THRESHOLD, cleaning.stray)
    return fill_holes(inside, cleaning.holes).astype(np.uint8) * np.uint8(255)


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

    A hole is background that does not reach the border of the photo.
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


class MaskStatistics(Document, frozen=True, kw_only=True):
    """What is measured of a matte before it is cleaned.

    ``mask_fraction``    share of the photo that is the object
    ``parts``            large parts: at least a tenth of the largest
    ``box_fill``         share of the object's own bounding box that is the object
    ``border_fraction``  share of the photo's border pixels that are the object
    ``edge_confidence``  mean of |2 m − 1| over a band around the edge, m being the matte; 1 for
                         an outline that is in or out
    ``short_side``       shorter side of the cut-out in pixels
    """

    mask_fraction: float
    parts: int
    box_fill: float
    border_fraction: float
    edge_confidence: float
    short_side: int


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a cut-out must keep to; one that does not is flagged, with the reason."""

    min_fraction: float = 0.03
    max_fraction: float = 0.95
    max_parts: int = 2
    max_box_fill: float = 0.98
    max_border: float = 0.25
    min_confidence: float = 0.6
    min_side: int = 16

    def __post_init__(self) -> None:
        shares = (self.max_fraction, self.max_box_fill, self.max_border, self.min_confidence)
        if not all(0 <= s <= 1 for s in shares) or not 0 <= self.min_fraction <= self.max_fraction:
            raise UserError("a limit of the check is not a share", fix="give numbers from 0 to 1")


def measure(matte: Matte, *, short_side: int) -> MaskStatistics:
    """What is checked; ``short_side`` is that of the cut-out."""
    inside = matte >= THRESHOLD
    small = _reduced(matte)
    shape = small >= THRESHOLD
    bounds = _bounds(inside)
    return MaskStatistics(
        mask_fraction=round(float(inside.mean()), 6),
        parts=_parts(shape),
        box_fill=0.0 if bounds is None else round(float(inside[bounds].mean()), 6),
        border_fraction=round(_border(inside), 6),
        edge_confidence=round(_confidence(small, shape), 6),
        short_side=short_side,
    )


def reasons(found: MaskStatistics, limits: Limits) -> tuple[str, ...]:
    """Why the check flags a cut-out, one phrase each; empty where it is good.

    >>> empty = MaskStatistics(
    ...     mask_fraction=0, parts=0, box_fill=0, border_fraction=0, edge_confidence=0, short_side=0
    ... )
    >>> reasons(empty, Limits())
    ('no object',)
    """
    if not found.parts or not found.short_side:
        return ("no object",)
    said = []
    share = found.mask_fraction
    if share < limits.min_fraction:
        said.append(f"covers {share:.1%} of the photo, less than {limits.min_fraction:.0%}")
    if share > limits.max_fraction:
        said.append(f"covers {share:.1%} of the photo, more than {limits.max_fraction:.0%}")
    elif share > _NEARLY_ALL and found.box_fill > limits.max_box_fill:
        said.append("a plain rectangle of nearly the whole photo: nothing was cut away")
    if found.parts > limits.max_parts:
        said.append(f"in {found.parts} large parts, more than {limits.max_parts}")
    if found.border_fraction > limits.max_border:
        border = f"touches {found.border_fraction:.0%} of the border"
        said.append(f"{border}, more than {limits.max_border:.0%}")
    if found.edge_confidence < limits.min_confidence:
        edge = f"edge confidence {found.edge_confidence:.2f}"
        said.append(f"{edge}, below {limits.min_confidence:.2f}")
    if found.short_side < limits.min_side:
        said.append(f"{found.short_side} pixels on its short side, below {limits.min_side}")
    return tuple(said)


def _reduced(matte: Matte) -> Matte:
    from PIL import Image

    height, width = matte.shape
    scale = _SIDE / max(height, width)
    if scale >= 1:
        return matte
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return np.asarray(Image.fromarray(matte.astype(np.float32)).resize(size, Image.Resampling.BOX))


def _parts(shape: np.ndarray) -> int:
    from scipy import ndimage

    labels, _ = ndimage.label(shape)
    sizes = np.bincount(labels.ravel())[1:]
    return int((sizes >= LARGE * sizes.max()).sum()) if sizes.size else 0


def _border(inside: np.ndarray) -> float:
    if min(inside.shape) < 2:
        return float(inside.mean())
    border = (inside[0], inside[-1], inside[1:-1, 0], inside[1:-1, -1])
    return float(np.concatenate(border).mean())


def _confidence(matte: Matte, shape: np.ndarray) -> float:
    from scipy import ndimage

    if not shape.any():
        return 0.0
    if shape.all():
        return float(np.abs(2 * matte - 1).mean())
    reach = max(2.0, _BAND * max(matte.shape))
    away = np.where(
        shape, ndimage.distance_transform_edt(shape), ndimage.distance_transform_edt(~shape)
    )
    return float(np.abs(2 * matte[away <= reach] - 1).mean())
