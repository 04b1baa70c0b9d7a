"""The quality gate: what is measured of a cut-out, and what is wrong with it, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from heldout.core.errors import UserError
from heldout.curate.cutouts.cleaning import THRESHOLD
from heldout.curate.cutouts.cutout import Box, Matte

LARGE = 0.1
"""A part counts as large from this share of the largest part."""

_NEARLY_ALL = 0.8  # from this share of the photograph on, a rectangle is no object
_SIDE = 512  # shape and edges are measured on a matte of at most this longest side
_BAND = 0.02  # half width of the band around the edge, as a share of the longest side


@dataclass(frozen=True, kw_only=True)
class Measures:
    """What is measured of a matte before it is cleaned.

    ``mask_fraction``    share of the region (the photograph, or the box) that is the object
    ``parts``            large parts: at least a tenth of the largest
    ``box_fill``         share of the object's own bounding box that is the object
    ``border_fraction``  share of the region's border pixels that are the object
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

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


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
        shares = (
            self.min_fraction,
            self.max_fraction,
            self.max_box_fill,
            self.max_border,
            self.min_confidence,
        )
        if not all(0 <= share <= 1 for share in shares) or self.min_fraction > self.max_fraction:
            raise UserError("a limit of the gate is no share", fix="give numbers from 0 to 1")


FOR_OUTLINES = Limits(min_fraction=0.0, max_parts=4)
"""A drawn outline may be small in its photograph, or cut in parts by what stands before it."""

FOR_SEGMENTERS = Limits()


def measure(matte: Matte, *, short_side: int, box: Box | None = None) -> Measures:
    """What the gate looks at; ``short_side`` is that of the cut-out, ``box`` where was looked."""
    region = _region(matte, box)
    if not region.size:
        region = np.zeros((1, 1), np.float32)
    inside = region >= THRESHOLD
    small = _reduced(region)
    shape = small >= THRESHOLD
    return Measures(
        mask_fraction=round(float(inside.mean()), 6),
        parts=_parts(shape),
        box_fill=round(_box_fill(inside), 6),
        border_fraction=round(_border(inside), 6),
        edge_confidence=round(_confidence(small, shape), 6),
        short_side=short_side,
    )


def reasons(measures: Measures, limits: Limits) -> tuple[str, ...]:
    """Why the gate flags a cut-out, one phrase each; empty where it is good.

    >>> empty = Measures(
    ...     mask_fraction=0, parts=0, box_fill=0, border_fraction=0, edge_confidence=0, short_side=0
    ... )
    >>> reasons(empty, Limits())
    ('no object',)
    """
    if not measures.parts or not measures.short_side:
        return ("no object",)
    found = []
    share = measures.mask_fraction
    if share < limits.min_fraction:
        found.append(f"covers {share:.1%} of the photo, less than {limits.min_fraction:.0%}")
    if share > limits.max_fraction:
        found.append(f"covers {share:.1%} of the photo, more than {limits.max_fraction:.0%}")
    elif share > _NEARLY_ALL and measures.box_fill > limits.max_box_fill:
        found.append("a plain rectangle of nearly the whole photo: nothing was cut away")
    if measures.parts > limits.max_parts:
        found.append(f"in {measures.parts} large parts, more than {limits.max_parts}")
    if measures.border_fraction > limits.max_border:
        found.append(
            f"touches {measures.border_fraction:.0%} of the border, "
            f"more than {limits.max_border:.0%}"
        )
    if measures.edge_confidence < limits.min_confidence:
        found.append(
            f"edge confidence {measures.edge_confidence:.2f}, below {limits.min_confidence:.2f}"
        )
    if measures.short_side < limits.min_side:
        found.append(f"{measures.short_side} pixels on its short side, below {limits.min_side}")
    return tuple(found)


def limits_to_dict(limits: Limits) -> Mapping[str, Any]:
    """As JSON values."""
    return asdict(limits)


def _region(matte: Matte, box: Box | None) -> Matte:
    if box is None:
        return matte
    height, width = matte.shape
    box = box.in_pixels(width, height)
    left, top = max(0, int(np.floor(box.left))), max(0, int(np.floor(box.top)))
    right, bottom = int(np.ceil(box.left + box.width)), int(np.ceil(box.top + box.height))
    return matte[top : max(0, bottom), left : max(0, right)]


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


def _box_fill(inside: np.ndarray) -> float:
    rows, columns = np.flatnonzero(inside.any(axis=1)), np.flatnonzero(inside.any(axis=0))
    if not len(rows):
        return 0.0
    box = inside[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return float(box.mean())


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
