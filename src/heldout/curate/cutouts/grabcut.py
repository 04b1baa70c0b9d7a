"""GrabCut with no weights: colours of the border against colours of the rest.

Rother, Kolmogorov, Blake, "GrabCut: interactive foreground extraction using iterated graph cuts",
2004; the implementation is OpenCV's. One run depends much on its size and seed, so several runs at
several sizes vote, and the share of votes is the matte: where they disagree, it says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from heldout.core.extras import require
from heldout.curate.cutouts.cutout import Box, Matte
from heldout.curate.cutouts.segmenter import Inner, in_box

_PURPOSE = "cutting out with GrabCut"
_SMALLEST = 8  # pixels of a side below which there is nothing to fit colours to


@dataclass(frozen=True)
class GrabCut:
    """OpenCV's GrabCut, voting over sizes.

    ``sizes``       longest side, in pixels, of the photograph in each run
    ``border``      share of each side that is background for sure, where no box is given
    ``iterations``  of each run
    ``seed``        of OpenCV's random numbers, which start its colour models
    """

    sizes: tuple[int, ...] = (192, 256, 320)
    border: float = 0.02
    iterations: int = 5
    seed: int = 0

    @property
    def identity(self) -> Mapping[str, Any]:
        """The settings."""
        return {"segmenter": "grabcut", **asdict(self), "sizes": list(self.sizes)}

    @property
    def runtime(self) -> Mapping[str, str]:
        """The version of OpenCV; another one may move an edge by a pixel."""
        return {"opencv": require("cv2", extra="compose", purpose=_PURPOSE).__version__}

    def __call__(self, pixels: np.ndarray, box: Box | None = None) -> Matte:
        """The share of runs that count a pixel to the object."""
        return in_box(pixels, box, self._votes)

    def _votes(self, pixels: np.ndarray, inner: Inner | None) -> Matte:
        cv2: Any = require("cv2", extra="compose", purpose=_PURPOSE)
        height, width = pixels.shape[:2]
        scales = [min(1.0, size / max(height, width)) for size in self.sizes]
        # Votes are counted at the largest size; a whole photograph would take much more memory.
        common = _size(width, height, max(scales))
        total = np.zeros(common[::-1], np.float32)
        for place, scale in enumerate(scales):
            reduced = cv2.resize(pixels, _size(width, height, scale), interpolation=cv2.INTER_AREA)
            hint = _hint(cv2, reduced.shape, inner, scale, self.border)
            # A small photograph is the same at all sizes; the seeds then still differ.
            found = self._once(cv2, reduced, hint, place)
            total += cv2.resize(found, common, interpolation=cv2.INTER_LINEAR)
        share = np.clip(total / np.float32(len(scales)), 0, 1)
        return np.asarray(cv2.resize(share, (width, height), interpolation=cv2.INTER_LINEAR))

    def _once(self, cv2: Any, pixels: np.ndarray, hint: np.ndarray, place: int) -> Matte:
        likely = hint == cv2.GC_PR_FGD
        if min(pixels.shape[:2]) < _SMALLEST or not likely.any() or likely.all():
            return np.asarray(likely, np.float32)
        cv2.setRNGSeed(self.seed + place)  # OpenCV keeps one generator a thread
        models = np.zeros((1, 65)), np.zeros((1, 65))
        mask = hint.copy()
        cv2.grabCut(pixels, mask, None, *models, self.iterations, cv2.GC_INIT_WITH_MASK)
        return np.asarray(mask & 1, np.float32)


def _size(width: int, height: int, scale: float) -> tuple[int, int]:
    return max(1, round(width * scale)), max(1, round(height * scale))


def _hint(
    cv2: Any, shape: tuple[int, ...], inner: Inner | None, scale: float, border: float
) -> np.ndarray:
    """What is background for sure, and what may be the object."""
    height, width = shape[:2]
    made = np.full((height, width), cv2.GC_BGD, np.uint8)
    if inner is None:
        dx, dy = max(1, round(width * border)), max(1, round(height * border))
        made[dy : height - dy, dx : width - dx] = cv2.GC_PR_FGD
        return made
    left, top, right, bottom = (round(side * scale) for side in inner)
    # A box that fills its surroundings leaves no background to learn from: spare a line of it.
    left, top = max(left, 1), max(top, 1)
    right, bottom = min(right, width - 1), min(bottom, height - 1)
    made[top:bottom, left:right] = cv2.GC_PR_FGD
    return made
