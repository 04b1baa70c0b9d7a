"""COCO annotations: polygons and run lengths, drawn by our own few lines.

A polygon covers the pixels whose centres lie inside it by the even-odd rule; several polygons of
one object are united. Run lengths count pixels down the columns, background first. In compressed
form they are text: each count is cut into groups of five bits, lowest first, with a sixth bit that
says "more follows" and sign extension; from the fourth on, the difference to the count two places
before is written; 48 is added to each group to make a printable character.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from heldout.core.errors import UserError
from heldout.core.files import canonical_json, sha256_text
from heldout.curate.cutouts.cutout import Matte
from heldout.curate.cutouts.photo import Photo

_LARGEST = 1 << 28  # pixels of a mask that a file may ask for


@dataclass(frozen=True)
class Polygons:
    """The outline of one object as polygons, each ``(x0, y0, x1, y1, …)`` in pixels."""

    width: int
    height: int
    parts: tuple[tuple[float, ...], ...]

    @property
    def identity(self) -> Mapping[str, Any]:
        """A hash of the corners."""
        facts = canonical_json([self.width, self.height, [list(part) for part in self.parts]])
        return {"outline": "polygons", "sha256": sha256_text(facts)}

    def matte(self, photo: Photo) -> Matte:
        """The polygons in the photograph's pixels."""
        return photo.upright(draw_polygons(self.parts, width=self.width, height=self.height))


@dataclass(frozen=True)
class RunLengths:
    """The mask of one object as run lengths: numbers, or COCO's compressed text."""

    width: int
    height: int
    counts: tuple[int, ...] | str

    @property
    def identity(self) -> Mapping[str, Any]:
        """A hash of the counts."""
        counts = self.counts if isinstance(self.counts, str) else list(self.counts)
        facts = canonical_json([self.width, self.height, counts])
        return {"outline": "run lengths", "sha256": sha256_text(facts)}

    def matte(self, photo: Photo) -> Matte:
        """The runs in the photograph's pixels."""
        counts = uncompressed(self.counts) if isinstance(self.counts, str) else self.counts
        return photo.upright(draw_runs(counts, width=self.width, height=self.height))


def draw_polygons(parts: Sequence[Sequence[float]], *, width: int, height: int) -> Matte:
    """The union of polygons, (height, width) float32 of 0 and 1; what lies outside is cut off."""
    _check_size(width, height)
    made = np.zeros((height, width), bool)
    for part in parts:
        made |= _inside(np.asarray(part, np.float64).reshape(-1, 2), width, height)
    return made.astype(np.float32)


def draw_runs(counts: Sequence[int], *, width: int, height: int) -> Matte:
    """Run lengths as a mask; they must be 0 or more, and cover the whole image.

    >>> draw_runs([1, 2, 1], width=2, height=2).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    _check_size(width, height)
    total = sum(counts)  # as Python counts: a number beyond 64 bits is only a wrong one
    if min(counts, default=0) < 0 or total != width * height:
        what = "a negative count" if min(counts, default=0) < 0 else f"counts of {total:,} pixels"
        raise UserError(
            f"run lengths with {what} for an image of {width} × {height}",
            fix="export the annotation again",
        )
    runs = np.asarray(counts, np.int64)
    values = np.zeros(len(runs), np.float32)
    values[1::2] = 1
    return np.repeat(values, runs).reshape(width, height).T.copy()


def uncompressed(text: str) -> tuple[int, ...]:
    """The counts behind COCO's compressed text.

    >>> uncompressed("1230")
    (1, 2, 3, 2)
    """
    counts: list[int] = []
    value = shift = 0
    for character in text:
        group = ord(character) - 48
        if not 0 <= group < 64 or shift > 30:
            raise UserError(
                f"run lengths with {character!r} in them cannot be read",
                fix="export the annotation again",
            )
        value |= (group & 31) << shift
        shift += 5
        if group & 32:
            continue
        if group & 16:
            value -= 1 << shift
        counts.append(value + counts[-2] if len(counts) > 2 else value)
        value = shift = 0
    if shift:
        raise UserError("run lengths that end in the middle", fix="export the annotation again")
    return tuple(counts)


def _inside(corners: np.ndarray, width: int, height: int) -> np.ndarray:
    """Pixels whose centres an even-odd polygon covers.

    Each edge flips, in every row whose centre line it crosses, all pixels to the right of the
    crossing. So an edge marks the first of them, and a running sum along the row does the rest.
    """
    flips = np.zeros((height, width + 1), np.int32)
    for (x0, y0), (x1, y1) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        if y0 > y1:
            x0, y0, x1, y1 = x1, y1, x0, y0
        first = max(0, int(np.ceil(y0 - 0.5)))
        last = min(height, int(np.ceil(y1 - 0.5)))  # not included
        if first >= last:
            continue
        rows = np.arange(first, last)
        crossing = x0 + (rows + 0.5 - y0) * ((x1 - x0) / (y1 - y0))
        column = np.clip(np.ceil(crossing - 0.5), 0, width).astype(np.int64)
        flips[rows, column] += 1
    return np.asarray(np.cumsum(flips[:, :width], axis=1) % 2 == 1)


def _check_size(width: int, height: int) -> None:
    if width < 1 or height < 1 or width * height > _LARGEST:
        raise UserError(f"a mask of {width} × {height} pixels", fix="correct the annotation's size")
