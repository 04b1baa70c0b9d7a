"""Inputs of factors held in memory, for tests and for trying a factor out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heldout.curate.compose.inputs import Pixels


@dataclass(frozen=True, eq=False, kw_only=True)
class InMemoryInputs:
    """Cut-outs (h, w, 4) and backgrounds (h, w, 3) as arrays, with their classes."""

    cutouts: Sequence[Pixels]
    cutout_classes: Sequence[str]
    backgrounds: Sequence[Pixels]
    background_classes: Sequence[str | None]

    def cutout(self, index: int) -> Pixels:
        """A cut-out."""
        return self.cutouts[index]

    def background(self, index: int, width: int, height: int) -> Pixels:
        """A background, resized where its size is another."""
        from PIL import Image

        pixels = self.backgrounds[index]
        if pixels.shape[:2] == (height, width):
            return pixels
        image = Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR)
        return np.asarray(image)
